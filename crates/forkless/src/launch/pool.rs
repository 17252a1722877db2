//! A pool of objects without a lock, in which an object may lie while something still uses it.

use crate::sync::AtomicPtr;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

/// Up to `N` objects. They belong to the pool from [`put`](Self::put) until [`take`](Self::take).
pub(crate) struct Pool<T, const N: usize>([AtomicPtr<T>; N]);

impl<T, const N: usize> Pool<T, N> {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; N])
    }

    /// Takes an unused object, and returns it with its slot; tries slot `start` first. Objects in use stay in the pool.
    /// `leftover` gets an object in use for which no slot is left.
    pub(crate) fn take(
        &self,
        start: usize,
        is_unused: impl Fn(&T) -> bool,
        leftover: impl Fn(NonNull<T>),
    ) -> Option<(NonNull<T>, usize)> {
        for slot in (start..start + N).map(|n| n % N) {
            // Most slots are empty: a load is cheaper than an exchange.
            if self.0[slot].load(Ordering::Relaxed).is_null() {
                continue;
            }
            let Some(object) = NonNull::new(self.0[slot].swap(null_mut(), Ordering::Acquire)) else { continue };
            // SAFETY: valid until it is taken, as `put` requires, and the swap gave it to this thread alone.
            if is_unused(unsafe { object.as_ref() }) {
                return Some((object, slot));
            }
            // SAFETY: as above: it is still valid, and no other code has taken it.
            if unsafe { self.put(slot, object) }.is_none() {
                leftover(object);
            }
        }
        None
    }

    /// Puts an object into an empty slot, and returns the slot; tries slot `start` first. `None`: no slot is empty.
    ///
    /// # Safety
    /// The object is valid until it is taken, and no other code takes it for its own.
    pub(crate) unsafe fn put(&self, start: usize, object: NonNull<T>) -> Option<usize> {
        (start..start + N).map(|n| n % N).find(|&slot| {
            let slot = &self.0[slot];
            slot.load(Ordering::Relaxed).is_null()
                && slot.compare_exchange(null_mut(), object.as_ptr(), Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }
}
