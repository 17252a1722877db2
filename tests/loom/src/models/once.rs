//! Two threads compute a value at the same time: both get the first one, and see all of it.

use crate::once::{Once, OnceFor};
use crate::{Model, Written};
use loom::thread;
use std::sync::Arc;

pub const VALUE: Model = Model { name: "once", run: value, warm: || (), switches: None };
pub const KEYS: Model = Model { name: "once-for", run: keys, warm: || (), switches: None };

fn value() {
    let once = Arc::new(Once::new());
    let find = |number: u32| {
        let once = Arc::clone(&once);
        move || once.get_or(|| Written::new(number)).read()
    };
    once.get();
    let other = thread::spawn(find(1));
    let third = once.clone();
    let third = thread::spawn(move || third.get().map(Written::read));
    let own = find(2)();
    assert_eq!(own, other.join().expect("no panic"), "both have the first value");
    let seen = third.join().expect("no panic");
    assert!(seen.is_none_or(|seen| seen == own), "{seen:?}");
    assert_eq!(once.get().map(Written::read), Some(own));
}

fn keys() {
    let once: Arc<OnceFor<u32, &'static Written>> = Arc::new(OnceFor::new());
    once.get(&0);
    let put = |key: u32| {
        let once = Arc::clone(&once);
        move || once.put(&key, Box::leak(Box::new(Written::new(key)))).read()
    };
    let other = thread::spawn(put(1));
    let third = Arc::clone(&once);
    let third = thread::spawn(move || third.get(&1).map(Written::read));
    assert_eq!(put(2)(), 2);
    let seen = third.join().expect("no panic");
    assert!(seen.is_none_or(|seen| seen == 1), "{seen:?}");
    assert_eq!(other.join().expect("no panic"), 1);
    let kept = [1, 2].map(|key| once.get(&key).map(Written::read));
    // If both were put at once, one of them is not kept.
    assert!([[Some(1), Some(2)], [Some(1), None], [None, Some(2)]].contains(&kept), "{kept:?}");
}
