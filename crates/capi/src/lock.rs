//! A lock that a forked process can take over.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A lock that records which [process](forkless::internal::generation) holds it. In a forked process the thread that held
/// it does not exist, so the lock is taken over.
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

    /// Locks, and works with the content and the generation of the process. The content must be consistent at any moment.
    pub fn with<R>(&self, work: impl FnOnce(&mut T, u32) -> R) -> R {
        let (me, _) = self.lock();
        // SAFETY: held by this thread alone.
        let done = work(unsafe { &mut *self.inside.get() }, me);
        self.holder.store(0, Ordering::Release);
        done
    }

    /// The same for data that may be inconsistent while the lock is held. `renew` is called first if the lock was held by a
    /// thread that this process does not have.
    pub fn with_or_after<R>(&self, renew: impl FnOnce(&mut T), work: impl FnOnce(&mut T) -> R) -> R {
        let (_, taken_over) = self.lock();
        // SAFETY: held by this thread alone.
        let inside = unsafe { &mut *self.inside.get() };
        if taken_over {
            renew(inside);
        }
        let done = work(inside);
        self.holder.store(0, Ordering::Release);
        done
    }

    /// Returns the generation of the process, and whether the lock was taken over.
    fn lock(&self) -> (u32, bool) {
        let me = forkless::internal::generation();
        let mut looks = 0;
        while let Err(holder) = self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            let is_nobodys = holder != me;
            if is_nobodys && self.holder.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return (me, true);
            }
            // The lock is held for a few system calls only. But its holder may have a lower priority and need this CPU.
            looks += 1;
            if looks < 16 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        (me, false)
    }
}
