//! Process attributes: working directory, session, process group, terminal, parent.
//!
//! # Safety
//! As for [`child`](crate::child). The child has its own `fs_struct` (no `CLONE_FS`), so its working directory is its
//! own.

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
    let parent = sys::getppid();
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
/// here, but may be visible in `/proc` as mounted in that namespace. False if it cannot be determined.
pub fn has_lost_parent(frame: &Frame) -> bool {
    if planted!("living-parent-taken-for-dead") {
        return true;
    }
    match sys::getppid() {
        0 => status_number(b"\nPPid:").is_some_and(|parent| parent as i32 != frame.host),
        parent => parent != frame.host,
    }
}

/// A number in `/proc/self/status`, by its label. The label begins with the preceding newline, because the first line
/// contains the program's name, which may be anything. This needs a descriptor for a moment, so the file-descriptor
/// table must be the child's own.
pub(crate) fn status_number(label: &[u8]) -> Option<u32> {
    if planted!("own-status-not-read") {
        return None;
    }
    // Not zeroed first: that would compile to a call of memset, the only one in this crate.
    let mut buffer = MaybeUninit::<[u8; 1024]>::uninit();
    // SAFETY: the path ends in NUL, the kernel writes at most the buffer's length, and the descriptor is this
    // function's own.
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
