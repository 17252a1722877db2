//! Process attributes: working directory, session, process group, terminal, parent.
//!
//! # Safety
//! As for [`child`](crate::child). The child has its own `fs_struct` (no `CLONE_FS`), so its working directory is its
//! own.

use crate::frame::Frame;
use crate::procfs;
use crate::sys::{self, Result, errno, prctl, signal, uapi};
use core::mem::MaybeUninit;

/// `chdir(2)`. `path` ends in NUL.
pub unsafe fn chdir(path: *const u8) -> Result<()> {
    // SAFETY: the path ends in NUL (caller).
    unsafe { sys::syscall(uapi::__NR_chdir, [path as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `chdir(2)` to the path of the working directory: `getcwd(2)`. A mount made since may have hidden the directory.
///
/// With `only_moves`, before the mounts: the working directory may be in the mount namespace of the process that cloned the
/// child. Then the child changes to the same path in its own namespace, if that is the same directory.
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
    // A refused call does not show whether the parent lives.
    let parent = sys::parent().unwrap_or(-1);
    // 0: a parent outside of this PID namespace, as after unshare(CLONE_NEWPID) in the parent. An orphan has a parent in its own
    // namespace, whose init it is given to: find_new_reaper() in kernel/exit.c.
    if parent == frame.parent || parent == 0 { Ok(()) } else { Err(errno::ESRCH) }
}

/// `tcsetpgrp(3)` of the calling process's group, on the terminal at `fd`.
///
/// SIGTTOU is blocked, because it would stop a process in the background that makes this call.
pub unsafe fn foreground(fd: i32) -> Result<()> {
    const TIOCSPGRP: usize = 0x5410;
    // SAFETY: reads the caller's group and blocks a signal in the caller, the child; the kernel reads four bytes.
    unsafe {
        let group = sys::syscall(uapi::__NR_getpgid, [0; 6])? as i32;
        let mask = sys::signal_mask()?;
        sys::set_signal_mask(mask | signal::bit(signal::SIGTTOU))?;
        let answer = sys::syscall(uapi::__NR_ioctl, [fd as usize, TIOCSPGRP, &raw const group as usize, 0, 0, 0]);
        sys::set_signal_mask(mask)?;
        answer.map(drop)
    }
}

/// Whether the caller, for which this child waits, has died. If the caller is in another PID namespace, it has no pid
/// here, but may be visible in `/proc`, if that shows the caller's namespace. False if it cannot be determined.
pub fn has_lost_parent(frame: &Frame) -> bool {
    match sys::getppid() {
        0 if frame.host_in_procfs == 0 => false,
        0 => procfs::status_number(b"\nPPid:").is_some_and(|parent| parent as i32 != frame.host_in_procfs),
        parent => parent != frame.host,
    }
}
