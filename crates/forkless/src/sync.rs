//! What threads share: atomic types and futexes.
//!
//! The models in `tests/loom` compile some modules of this crate with types of their own in place of these.

pub(crate) use forkless_core::sync::*;
pub(crate) use std::sync::atomic::AtomicUsize;

use forkless_core::sys::{Result, uapi};

/// The lower half of a word as a futex word. Only the kernel reads it by this address.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let low = word.as_ptr().cast::<u32>().wrapping_add(cfg!(target_endian = "big") as usize);
    // SAFETY: the address of one half of `word`: aligned for an `AtomicU32`, and valid as long as `word`.
    unsafe { AtomicU32::from_ptr(low) }
}

/// [`futex_wait`] on the lower half of a word.
pub(crate) fn futex_wait_low(word: &AtomicU64, expected: u32, timeout: Option<&uapi::__kernel_timespec>) -> Result<()> {
    futex_wait(low_half(word), expected, timeout)
}

/// [`futex_wake_all`] for the lower half of a word.
pub(crate) fn futex_wake_low(word: &AtomicU64) {
    futex_wake_all(low_half(word));
}
