//! Who and where the program is: directory, session, process group, terminal, parent.
//!
//! # Safety
//! As for [`child`](crate::child). The child has its own `fs_struct` (no `CLONE_FS`), so the directory is its own.

use crate::frame::Frame;
use crate::planted;
use crate::sys::{self, Result, errno, prctl, signal, uapi};
use core::mem::MaybeUninit;

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
    // SAFETY: changes the calling process, the child.
    unsafe { sys::syscall(uapi::__NR_prctl, [prctl::PR_SET_PDEATHSIG as usize, signal as usize, 0, 0, 0, 0]) }?;
    let lives = sys::getppid() == frame.parent || planted!("death-signal-without-look");
    if lives { Ok(()) } else { Err(errno::ESRCH) }
}

/// `tcsetpgrp(3)` of the caller's own process group, on the terminal at `fd`.
///
/// A process in the background is stopped by SIGTTOU for that, unless it blocks the signal.
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

/// Has the parent that waited for us died? One in another process-id namespace has no number here, but `/proc`, as it was mounted
/// there, has it still. Not so where that cannot be known.
pub fn has_lost_parent(frame: &Frame) -> bool {
    match sys::getppid() {
        0 => status_number(b"\nPPid:").is_some_and(|parent| parent as i32 != frame.host),
        parent => parent != frame.host,
    }
}

/// A number in `/proc/self/status`, by its label, which begins with the end of the line before: the first line is the program's
/// name, which may be anything. It takes a descriptor for a moment, so the table must be the child's own.
pub(crate) fn status_number(label: &[u8]) -> Option<u32> {
    // Not zeroed first: that would be a call of memset, the only one in this crate.
    let mut buffer = MaybeUninit::<[u8; 1024]>::uninit();
    // SAFETY: the path ends in NUL, the kernel writes at most the buffer's length, the descriptor is our own.
    let filled = unsafe {
        let status = sys::open(c"/proc/self/status".as_ptr().cast(), uapi::O_RDONLY | uapi::O_CLOEXEC, 0).ok()?;
        let filled = sys::read(status, buffer.as_mut_ptr().cast(), size_of::<[u8; 1024]>());
        let _ = sys::close(status);
        filled.ok()?
    };
    // SAFETY: that many bytes have been written.
    let text = unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), filled) };
    let mut matched = 0;
    let mut number = None;
    for &byte in text {
        match (label.get(matched), byte, number) {
            (Some(&wanted), _, _) => matched = if byte == wanted { matched + 1 } else { (byte == b'\n') as usize },
            (None, b'0'..=b'9', _) => {
                number = Some(number.unwrap_or(0u32).wrapping_mul(10).wrapping_add((byte - b'0') as u32));
            }
            (None, _, Some(_)) => return number,
            (None, _, None) => {}
        }
    }
    None
}
