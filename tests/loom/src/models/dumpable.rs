//! Launches with other IDs that overlap, and a change of the caller's own setting: the memory is not dumpable while such
//! a child has it, and has the caller's setting afterwards.

use super::dumpable::{KeepDumpable, set_dumpable};
use crate::Model;
use crate::kernel::DUMPABLE;
use loom::thread;
use std::sync::atomic::Ordering::SeqCst;

pub const MODEL: Model = Model { name: "dumpable", run: launches, warm, switches: Some(2) };

/// Three threads change the caller's setting: the one that sleeps is woken.
pub const SETTINGS: Model = Model { name: "settings", run: settings, warm, switches: Some(3) };

fn settings() {
    let set = || set_dumpable(true).expect("nothing is refused");
    let threads = [thread::spawn(set), thread::spawn(set)];
    set();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(DUMPABLE.load(SeqCst), 1);
}

fn warm() {
    launch();
    let _ = set_dumpable(true);
}

fn launch() {
    let keep = KeepDumpable::begin().expect("nothing is refused");
    // The child changes its IDs, and runs for a moment.
    DUMPABLE.store(0, SeqCst);
    assert_eq!(DUMPABLE.load(SeqCst), 0, "a child has other IDs in this memory");
    drop(keep);
}

fn launches() {
    let threads = [thread::spawn(launch), thread::spawn(|| set_dumpable(true).expect("nothing is refused"))];
    launch();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(DUMPABLE.load(SeqCst), 1, "the caller's own setting");
}
