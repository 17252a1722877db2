//! A lock that a forked process can take over.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// A lock that records which [process](forkless::generation) holds it. In a forked process the thread that held it does
/// not exist, so the lock is taken over. The protected data must be consistent at any moment.
pub struct Lock<T> {
    holder: AtomicU32,
    inside: UnsafeCell<T>,
}

// SAFETY: `with` gives access to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An unlocked lock.
    pub const fn new(inside: T) -> Self {
        Self { holder: AtomicU32::new(0), inside: UnsafeCell::new(inside) }
    }

    /// Locks, and works with the content and the generation of the process.
    pub fn with<R>(&self, work: impl FnOnce(&mut T, u32) -> R) -> R {
        let me = forkless::generation();
        while let Err(holder) = self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            if holder != me && self.holder.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
            // The lock is held for a few system calls only.
            std::thread::yield_now();
        }
        // SAFETY: held by this thread alone.
        let done = work(unsafe { &mut *self.inside.get() }, me);
        self.holder.store(0, Ordering::Release);
        done
    }
}
