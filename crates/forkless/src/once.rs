//! What is found once for the life of the process.

use forkless_core::planted;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is found at the first use and kept for good. Not behind a lock, as `OnceLock` is: a copy of the process that
/// was forked while another thread held that would wait for it for ever. Threads that come at the same time each look, and
/// take what the first has found.
pub(crate) struct Once<T>(AtomicPtr<T>);

impl<T: Send + Sync> Once<T> {
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
        let kept = match self.0.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(earlier) => {
                // SAFETY: nobody else has this one.
                drop(unsafe { Box::from_raw(new) });
                earlier
            }
        };
        // SAFETY: never freed, and not changed once it is there.
        unsafe { &*kept }
    }
}

/// The same for each of a few keys.
pub(crate) struct OnceFor<K, V>(AtomicPtr<Entry<K, V>>);

struct Entry<K, V> {
    key: K,
    value: V,
    /// The one before it, or null.
    next: *mut Entry<K, V>,
    /// How many there are from here on.
    count: usize,
}

/// As many keys are kept. What is found for another one is not.
const MOST: usize = 32;

impl<K: Clone + Eq + Send + Sync, V: Copy + Send + Sync> OnceFor<K, V> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// What was found for this key.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut at = self.0.load(Ordering::Acquire);
        // SAFETY: null, or from `put`: never freed, and not changed.
        while let Some(entry) = unsafe { at.as_ref() } {
            if entry.key == *key || planted!("once-for-any-key") {
                return Some(entry.value);
            }
            at = entry.next;
        }
        None
    }

    /// Keeps what was found for a key; gives it back.
    pub(crate) fn put(&self, key: &K, value: V) -> V {
        let first = self.0.load(Ordering::Acquire);
        // SAFETY: as in `get`.
        let count = 1 + unsafe { first.as_ref() }.map_or(0, |first| first.count);
        if count <= MOST {
            let new = Box::into_raw(Box::new(Entry { key: key.clone(), value, next: first, count }));
            if self.0.compare_exchange(first, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // Another thread has kept something: the next one to look keeps this.
                // SAFETY: nobody else has this one.
                drop(unsafe { Box::from_raw(new) });
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_for_each_of_a_few_keys() {
        let kept = OnceFor::new();
        for key in 0..2 * MOST {
            assert_eq!((kept.get(&key), kept.put(&key, key + 1)), (None, key + 1));
        }
        let found: Vec<_> = (0..2 * MOST).filter_map(|key| kept.get(&key)).collect();
        assert_eq!(found, (1..=MOST).collect::<Vec<_>>());
    }
}
