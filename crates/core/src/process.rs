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

/// `chdir(2)` to the path of the working directory: `getcwd(2)`. A mount made since may have hidden the directory.
///
/// With `only_moves`, before the mounts: a child that another process has cloned may have a directory of that process's mount
/// namespace. It becomes that of the same path in its own, if that is the same directory.
#[inline(never)]
pub unsafe fn enter_again(only_moves: bool) -> Result<()> {
    const PATH_MAX: usize = 4096;
    const OUTSIDE: &[u8] = b"(unreachable)";
    let mut path = MaybeUninit::<[u8; PATH_MAX]>::uninit();
    let start = path.as_mut_ptr().cast::<u8>();
    // SAFETY: the kernel writes at most so many bytes.
    unsafe { sys::syscall(uapi::__NR_getcwd, [start as usize, PATH_MAX, 0, 0, 0, 0]) }?;
    // SAFETY: the call has written a string. Nothing is read behind its NUL, which is the first difference at the latest.
    let is_outside = OUTSIDE.iter().enumerate().all(|(at, &byte)| unsafe { start.add(at).read() } == byte);
    if !only_moves {
        // SAFETY: the call has written a string, which ends in NUL.
        return if is_outside { Err(errno::ENOENT) } else { unsafe { chdir(start) } };
    }
    if is_outside {
        let before = directory()?;
        // SAFETY: the string is longer than its prefix, and ends in NUL.
        unsafe { chdir(start.add(OUTSIDE.len())) }?;
        if directory()? != before {
            return Err(errno::ENOENT);
        }
    }
    Ok(())
}

/// Device and inode of the working directory.
fn directory() -> Result<(u32, u32, u64)> {
    let mut found = MaybeUninit::<uapi::statx>::uninit();
    let here = c".".as_ptr() as usize;
    let args = [uapi::AT_FDCWD as isize as usize, here, 0, uapi::STATX_INO as usize, found.as_mut_ptr() as usize, 0];
    // SAFETY: the kernel reads the string and writes one `statx`.
    unsafe { sys::syscall(uapi::__NR_statx, args) }?;
    // SAFETY: the call has written all of it.
    let found = unsafe { found.assume_init() };
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
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
    let lives = sys::getppid() == frame.parent || planted!("death-signal-without-look");
    if lives { Ok(()) } else { Err(errno::ESRCH) }
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
