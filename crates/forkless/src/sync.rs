//! What threads share: atomic types and futexes.
//!
//! The code that the models in `tests/loom` compile has them from here. The models have types of their own in their place.

pub(crate) use forkless_core::sync::*;
pub(crate) use std::sync::atomic::AtomicUsize;

use forkless_core::sys::{Result, uapi};

/// The lower half of a word as a futex word. Only the kernel reads it by this address.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let low = word.as_ptr().cast::<u32>().wrapping_add(cfg!(target_endian = "big") as usize);
    // SAFETY: a part of the word, aligned for it, which exists as long.
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
