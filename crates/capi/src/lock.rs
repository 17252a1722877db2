//! A lock that a forked copy of the process can open.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// A lock that knows which [process](forkless::generation) holds it: a forked copy, in which nobody would ever open it, takes it over. What it guards
/// must make sense at any instant.
pub struct Lock<T> {
    holder: AtomicU32,
    inside: UnsafeCell<T>,
}

// SAFETY: `with` gives the contents to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock that is open.
    pub const fn new(inside: T) -> Self {
        Self { holder: AtomicU32::new(0), inside: UnsafeCell::new(inside) }
    }

    /// Works with what is inside, which is told the process that it is in.
    pub fn with<R>(&self, work: impl FnOnce(&mut T, u32) -> R) -> R {
        let me = forkless::generation();
        while let Err(holder) = self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            if holder != me && self.holder.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
            // It is held for a few system calls.
            std::thread::yield_now();
        }
        // SAFETY: held by this thread alone.
        let done = work(unsafe { &mut *self.inside.get() }, me);
        self.holder.store(0, Ordering::Release);
        done
    }
}
