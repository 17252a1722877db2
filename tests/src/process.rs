//! System calls on processes that touch no memory.

use forkless_core::sys;

/// `kill(2)`; a negative number is a process group. Was the signal sent?
pub fn kill(pid: i32, signal: i32) -> bool {
    sys::kill(pid, signal).is_ok()
}

/// Has this process the effective user id of root?
pub fn is_root() -> bool {
    // SAFETY: reads a number.
    unsafe { libc::geteuid() == 0 }
}
