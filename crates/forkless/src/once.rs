//! Values that are computed once for the life of the process.

use crate::sync::AtomicPtr;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// A value that is computed at the first use and kept forever. It has no lock, unlike `OnceLock`: if the process were
/// forked while another thread held the lock, the copy would wait for it forever. Threads that find it missing at the
/// same time all compute it, and use the result of the first.
pub(crate) struct Once<T>(AtomicPtr<T>);

impl<T: Send + Sync> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The value, if it has been computed.
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null, or a value from `get_or`, which is never freed and not changed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The value; `find` computes it if it is missing.
    pub(crate) fn get_or(&self, find: impl FnOnce() -> T) -> &T {
        if let Some(known) = self.get() {
            return known;
        }
        let new = Box::into_raw(Box::new(find()));
        let kept = match self.0.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(earlier) => {
                // SAFETY: it was not published, so no other thread has it.
                drop(unsafe { Box::from_raw(new) });
                earlier
            }
        };
        // SAFETY: never freed, and not changed after it was published.
        unsafe { &*kept }
    }
}

/// [`Once`] for each of a few keys.
pub(crate) struct OnceFor<K, V>(AtomicPtr<KeyedValue<K, V>>);

struct KeyedValue<K, V> {
    key: K,
    value: V,
    /// The entry that was added before, or null.
    next: *mut KeyedValue<K, V>,
    /// The number of entries from this one on.
    count: usize,
}

/// The most keys that are kept. The value of another key is not kept.
const MOST: usize = 32;

impl<K: Clone + Eq + Send + Sync, V: Copy + Send + Sync> OnceFor<K, V> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The value of this key, if it is kept.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut at = self.0.load(Ordering::Acquire);
        // SAFETY: null, or an entry from `put`, which is never freed and not changed.
        while let Some(entry) = unsafe { at.as_ref() } {
            if entry.key == *key {
                return Some(entry.value);
            }
            at = entry.next;
        }
        None
    }

    /// Keeps the value of a key, and returns it.
    pub(crate) fn put(&self, key: &K, value: V) -> V {
        let first = self.0.load(Ordering::Acquire);
        // SAFETY: as in `get`.
        let count = 1 + unsafe { first.as_ref() }.map_or(0, |first| first.count);
        if count <= MOST {
            let new = Box::into_raw(Box::new(KeyedValue { key: key.clone(), value, next: first, count }));
            if self.0.compare_exchange(first, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // Another thread has added an entry first. This one is dropped; the next caller keeps it.
                // SAFETY: it was not published, so no other thread has it.
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
