//! What is found once for the life of the process.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is found at the first use and kept for good. Not behind a lock, as `OnceLock` is: a copy of the process that
/// was forked while another thread held that would wait for it for ever. Threads that come at the same time each look, and
/// take what the first has found.
pub(crate) struct Settled<T>(AtomicPtr<T>);

impl<T: Send + Sync> Settled<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// What was found, if anybody has looked.
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null, or from `get_or`: never freed, and not changed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// What was found; `find` looks if nobody has.
    pub(crate) fn get_or(&self, find: impl FnOnce() -> T) -> &T {
        if let Some(known) = self.get() {
            return known;
        }
        let new = Box::into_raw(Box::new(find()));
        let settled = match self.0.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(earlier) => {
                // SAFETY: nobody else has this one.
                drop(unsafe { Box::from_raw(new) });
                earlier
            }
        };
        // SAFETY: never freed, and not changed once it is there.
        unsafe { &*settled }
    }
}
