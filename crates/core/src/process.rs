//! Process attributes: working directory, session, process group, terminal, parent.
//!
//! # Safety
//! As for [`child`](crate::child). The child has its own `fs_struct` (no `CLONE_FS`), so its working directory is its
//! own.

use crate::frame::Frame;
use crate::planted;
use crate::procfs;
use crate::sys::{self, Result, errno, prctl, signal, uapi};

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

/// `setpgid(2)` of the calling process.
pub unsafe fn setpgid(group: i32) -> Result<()> {
    // SAFETY: changes the calling process, the child.
    unsafe { sys::syscall(uapi::__NR_setpgid, [0, group as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `prctl(2)` PR_SET_PDEATHSIG. Then checks for the parent's death, because a parent that died before the call sends no
/// signal.
pub unsafe fn parent_death_signal(frame: &Frame, signal: u32) -> Result<()> {
    // SAFETY: changes the calling process, the child.
    unsafe { sys::syscall(uapi::__NR_prctl, [prctl::PR_SET_PDEATHSIG as usize, signal as usize, 0, 0, 0, 0]) }?;
    // A refused call does not show whether the parent lives.
    let parent = sys::parent().unwrap_or(-1);
    // 0: a parent outside of this PID namespace, as after unshare(CLONE_NEWPID) in the parent. An orphan has a parent in its own
    // namespace, whose init it is given to: find_new_reaper() in kernel/exit.c.
    let lives = parent == frame.parent || parent == 0 && !planted!("unseen-parent-taken-for-dead");
    if lives || planted!("death-signal-without-look") { Ok(()) } else { Err(errno::ESRCH) }
}

/// `tcsetpgrp(3)` of the calling process's group, on the terminal at `fd`.
///
/// SIGTTOU is blocked, because it would stop a process in the background that makes this call.
pub unsafe fn foreground(fd: i32) -> Result<()> {
    const TIOCSPGRP: usize = 0x5410;
    // SAFETY: reads the caller's group and blocks a signal in the caller, the child; the kernel reads four bytes.
    unsafe {
        let group = sys::syscall(uapi::__NR_getpgid, [0; 6])? as i32;
        let mask = sys::set_signal_mask(signal::bit(signal::SIGTTOU))?;
        let answer = sys::syscall(uapi::__NR_ioctl, [fd as usize, TIOCSPGRP, &raw const group as usize, 0, 0, 0]);
        if !planted!("foreground-leaves-a-signal-blocked") {
            sys::set_signal_mask(mask)?;
        }
        answer.map(drop)
    }
}

/// Whether the parent, which waits for this child, has died. If the parent is in another PID namespace, it has no pid
/// here, but may be visible in `/proc`, if that shows the parent's namespace. False if it cannot be determined.
pub fn has_lost_parent(frame: &Frame) -> bool {
    if planted!("living-parent-taken-for-dead") {
        return true;
    }
    match sys::getppid() {
        0 if frame.host_in_procfs == 0 => false,
        0 => procfs::status_number(b"\nPPid:").is_some_and(|parent| parent as i32 != frame.host_in_procfs),
        parent => parent != frame.host,
    }
}
