//! Who and where the program is: directory, session, process group, terminal, parent.
//!
//! # Safety
//! As for [`child`](crate::child). The child has its own `fs_struct` (no `CLONE_FS`), so the directory is its own.

use crate::frame::Frame;
use crate::sys::{self, Result, errno, uapi};

/// `chdir(2)`. `path` ends in NUL.
pub unsafe fn chdir(path: *const u8) -> Result<()> {
    // SAFETY: the path ends in NUL (caller).
    unsafe { sys::syscall(uapi::__NR_chdir, [path as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `setsid(2)`.
pub unsafe fn setsid() -> Result<()> {
    // SAFETY: changes the calling process, the child.
    unsafe { sys::syscall(uapi::__NR_setsid, [0; 6]) }.map(drop)
}

/// `setpgid(2)` of the caller.
pub unsafe fn setpgid(group: i32) -> Result<()> {
    // SAFETY: changes the calling process, the child.
    unsafe { sys::syscall(uapi::__NR_setpgid, [0, group as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `prctl(2)` PR_SET_PDEATHSIG, with the check that closes its race: a parent that died before the call sends nothing.
pub unsafe fn parent_death_signal(frame: &Frame, signal: u32) -> Result<()> {
    const PR_SET_PDEATHSIG: usize = 1;
    // SAFETY: changes the calling process, the child.
    unsafe { sys::syscall(uapi::__NR_prctl, [PR_SET_PDEATHSIG, signal as usize, 0, 0, 0, 0]) }?;
    if sys::getppid() == frame.parent { Ok(()) } else { Err(errno::ESRCH) }
}

/// `tcsetpgrp(3)` of the caller's own process group, on the terminal at `fd`.
///
/// A process in the background is stopped by SIGTTOU for that, unless it blocks the signal.
pub unsafe fn foreground(fd: i32) -> Result<()> {
    const TIOCSPGRP: usize = 0x5410;
    const SIGTTOU: u32 = 22;
    // SAFETY: reads the caller's group and blocks a signal in the caller, the child; the kernel reads four bytes.
    unsafe {
        let group = sys::syscall(uapi::__NR_getpgid, [0; 6])? as i32;
        let mask = sys::set_signal_mask(1 << (SIGTTOU - 1))?;
        let answer = sys::syscall(uapi::__NR_ioctl, [fd as usize, TIOCSPGRP, &raw const group as usize, 0, 0, 0]);
        sys::set_signal_mask(mask)?;
        answer.map(drop)
    }
}
