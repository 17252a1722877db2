//! A child of a zygote waits until the caller has compared their attributes, and goes on only if they are equal.

use crate::Model;
use forkless_core::frame::Frame;
use forkless_core::sys::errno;
use forkless_core::zygote_child::Comparison;
use loom::cell::UnsafeCell;
use loom::thread;
use std::mem::zeroed;

pub const MODEL: Model = Model { name: "zygote", run: waits, warm: || (), switches: None };

struct Compared {
    comparison: Comparison,
    frame: Frame,
    /// What the caller does before it concludes, and the child uses after it.
    caller: UnsafeCell<u32>,
}

// SAFETY: loom reports accesses that could take place at once.
unsafe impl Sync for Compared {}

fn waits() {
    for are_equal in [true, false] {
        // SAFETY: a frame may be all zero.
        let frame = unsafe { zeroed() };
        let (comparison, caller) = (Comparison::new(true), UnsafeCell::new(0));
        let launch: &'static Compared = Box::leak(Box::new(Compared { comparison, frame, caller }));
        let child = thread::spawn(|| {
            let answer = launch.comparison.await_result(&launch.frame);
            // SAFETY: loom checks the accesses.
            launch.caller.with(|at| assert_eq!(unsafe { *at }, 1));
            answer
        });
        // SAFETY: loom checks the accesses.
        launch.caller.with_mut(|at| unsafe { *at = 1 });
        launch.comparison.conclude(are_equal);
        assert_eq!(child.join().expect("no panic"), if are_equal { Ok(()) } else { Err(errno::ECHILD) });
    }
}
