//! Executing the program.
//!
//! # Safety
//! As for [`child`](crate::child).

use crate::frame::Frame;
use crate::plan::{ANY_BY_SHELL, Header, Op, TRY_ALL, at, environment};
use crate::sync::fence;
use crate::sys::{self, errno, uapi};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Plays [`OpCode::Exec`](crate::plan::OpCode::Exec): tries the candidates in turn, as `execvp(3)` does with PATH.
///
/// A candidate that does not exist is skipped. A candidate that exists but may not be executed (EACCES) is remembered:
/// if no later one works, that is the error. Any other failure (E2BIG, ENOEXEC, ENOMEM …) is final, because a later
/// candidate would be a different program; with [`TRY_ALL`] it is remembered instead. Returns the errno; the index of
/// its candidate is in the frame's `detail`.
pub unsafe fn exec(frame: &Frame, plan: *const Header, op: &Op) -> i32 {
    let (mut answer, mut is_remembered) = (errno::ENOENT, false);
    // Release fence: a caller that sees the futex word cleared must see the step. The kernel clears it with a plain
    // store.
    fence(Release);
    for n in 0..op.b {
        if !is_remembered {
            frame.detail.store(n as i32, Relaxed);
        }
        // SAFETY: the list at `a` holds `b` offsets of strings in the arena.
        let path = unsafe { at::<u8>(plan, *at::<u32>(plan, op.a).add(n as usize)) };
        // SAFETY: the plan's compiler has relocated the vectors, which end in zero words.
        let error = unsafe { exec_one(plan, path, op.c) };
        if error == errno::ENOEXEC && op.set != 0 {
            frame.detail.store(n as i32, Relaxed);
            // SAFETY: the path of the candidate.
            if op.flags & ANY_BY_SHELL == 0 && unsafe { is_binary(path) } {
                return errno::ENOEXEC;
            }
            // SAFETY: there is a vector for each candidate; it begins with the shell.
            unsafe {
                let argv = at::<u64>(plan, op.set as u32).add(n as usize * (op.set >> 32) as usize);
                execve(*argv as *const u8, argv, environment(plan));
            }
            // ENOEXEC is a better reason than a missing shell.
            return errno::ENOEXEC;
        }
        if !can_go_on(error, op.flags) {
            frame.detail.store(n as i32, Relaxed);
            return error;
        }
        if !is_remembered {
            answer = error;
            is_remembered = !is_absent(error);
        }
    }
    answer
}

/// Whether the next candidate is tried after this failure.
pub fn can_go_on(error: i32, flags: u32) -> bool {
    is_absent(error) || error == errno::EACCES || flags & TRY_ALL != 0
}

/// Whether the errno means that the program does not exist.
pub fn is_absent(error: i32) -> bool {
    matches!(error, errno::ENOENT | errno::ENOTDIR | errno::ENODEV | errno::ESTALE | errno::ETIMEDOUT)
}

/// Whether a file is no text: an ELF file, or one with a NUL byte in the beginning of its first line. Shells refuse it, too.
/// One that cannot be read may be text.
unsafe fn is_binary(path: *const u8) -> bool {
    const ELF: [u8; 4] = *b"\x7fELF";
    let mut start = [0u8; 80];
    // SAFETY: the path ends with NUL, and the buffer has its length. Nothing else owns the descriptor: the child has its own
    // table by now, so no lock of the caller's is released by the close.
    let length = unsafe {
        let Ok(file) = sys::open(path, uapi::O_RDONLY | uapi::O_CLOEXEC, 0) else { return false };
        let length = sys::read(file, start.as_mut_ptr(), start.len());
        let _ = sys::close(file);
        length.unwrap_or(0)
    };
    // Byte by byte: functions of slices would call code outside of this crate.
    let mut is_elf = length >= ELF.len();
    for (n, &byte) in start.iter().enumerate().take(length) {
        is_elf = is_elf && (n >= ELF.len() || byte == ELF[n]);
        if byte == b'\n' {
            break;
        }
        if byte == 0 {
            return true;
        }
    }
    is_elf
}

/// `execve(2)` of one path. Retries each millisecond, at most `busy_ms` times, while the file is open for writing
/// (ETXTBSY).
unsafe fn exec_one(plan: *const Header, path: *const u8, busy_ms: u32) -> i32 {
    // SAFETY: the header's vectors lie in the arena.
    let (argv, envp) = unsafe { (at::<u64>(plan, (*plan).argv), environment(plan)) };
    let mut left = busy_ms;
    loop {
        // SAFETY: the plan's path and vectors.
        match unsafe { execve(path, argv, envp) } {
            errno::ETXTBSY if left > 0 => {
                left -= 1;
                sys::pause(core::time::Duration::from_millis(1));
            }
            error => return error,
        }
    }
}

/// `execve(2)` of a NUL-terminated path with two zero-terminated vectors. Returns the errno.
unsafe fn execve(path: *const u8, argv: *const u64, envp: *const u64) -> i32 {
    // SAFETY: the caller's path and vectors; returns only on failure.
    match unsafe { sys::syscall(uapi::__NR_execve, [path as usize, argv as usize, envp as usize, 0, 0, 0]) } {
        Err(error) => error,
        // execve does not return on success.
        Ok(_) => errno::ENOSYS,
    }
}

/// `execveat(2)` of the child's descriptor `fd`. Returns the errno.
pub unsafe fn exec_fd(plan: *const Header, fd: i32) -> i32 {
    const AT_EMPTY_PATH: usize = 0x1000;
    // SAFETY: the header's vectors lie in the arena.
    let (argv, envp) = unsafe { (at::<u64>(plan, (*plan).argv), environment(plan)) };
    fence(Release);
    let args = [fd as usize, c"".as_ptr() as usize, argv as usize, envp as usize, AT_EMPTY_PATH, 0];
    // SAFETY: an empty NUL-terminated path and two zero-terminated vectors; returns only on failure.
    match unsafe { sys::syscall(uapi::__NR_execveat, args) } {
        Err(error) => error,
        Ok(_) => errno::ENOSYS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later candidate would hide the reason: `execvp(3)` too goes on only when a program does not exist or may not be executed.
    #[test]
    fn only_a_program_that_is_absent_or_forbidden_sends_the_search_on() {
        let found = (1..=133).filter(|&error| can_go_on(error, 0));
        let known = [errno::ENOENT, errno::EACCES, errno::ENODEV, errno::ENOTDIR, errno::ETIMEDOUT, errno::ESTALE];
        assert!(found.eq(known));
        assert!((1..=133).all(|error| can_go_on(error, TRY_ALL)));
    }
}
