//! What caller and child share while both run: atomic types, fences and futexes.
//!
//! All code that uses them has them from here, because the models in `tests/loom` compile that code with types of their own.

use crate::sys::{Result, syscall, uapi};
pub use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, fence};

/// `futex(2)` FUTEX_WAIT, not process-private, because the kernel's wake at exec is not. `timeout` is relative.
#[inline]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<&uapi::__kernel_timespec>) -> Result<()> {
    let limit = timeout.map_or(0, |t| t as *const _ as usize);
    let args = [word.as_ptr() as usize, uapi::FUTEX_WAIT as usize, expected as usize, limit, 0, 0];
    // SAFETY: the word and the timeout live for the length of the call.
    unsafe { syscall(uapi::__NR_futex, args) }.map(drop)
}

/// `futex(2)` FUTEX_WAKE of one waiter, not process-private.
#[inline]
pub fn futex_wake(word: &AtomicU32) {
    wake(word, 1);
}

/// `futex(2)` FUTEX_WAKE of all waiters, not process-private.
#[inline]
pub fn futex_wake_all(word: &AtomicU32) {
    wake(word, i32::MAX as usize);
}

#[inline]
fn wake(word: &AtomicU32, count: usize) {
    let args = [word.as_ptr() as usize, uapi::FUTEX_WAKE as usize, count, 0, 0, 0];
    // SAFETY: the kernel only uses the word's address as a key.
    let _ = unsafe { syscall(uapi::__NR_futex, args) };
}
