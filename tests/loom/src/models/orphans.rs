//! Children whose handles were dropped by several threads: each is reaped once, and one thread at a time looks after them.

use super::orphan::{Orphan, adopt, look_after_a_few, reap_orphans};
use crate::launch::pending::Pending;
use crate::{Model, Written};
use loom::cell::UnsafeCell;
use loom::thread;

pub const MODEL: Model = Model { name: "orphans", run: drops, warm, switches: Some(2) };

loom::lazy_static! {
    /// How often each child was reaped. Only the thread that has the queue writes here.
    static ref REAPED: Reaped = Reaped(UnsafeCell::new([0; 4]));
}

struct Reaped(UnsafeCell<[u32; 4]>);

// SAFETY: loom reports accesses that could take place at once.
unsafe impl Send for Reaped {}
// SAFETY: as above.
unsafe impl Sync for Reaped {}

pub fn reap(pid: i32) -> bool {
    // SAFETY: loom checks the accesses.
    REAPED.0.with_mut(|at| unsafe { (*at)[pid as usize] += 1 });
    true
}

fn drop_handle(pid: i32) {
    adopt(Orphan { pid, pidfd: None, socket: None, pending: Some(Pending(Written::new(1))), group: None, parent: 1 });
}

/// Uses each static.
fn warm() {
    drop_handle(1);
    reap_orphans();
}

fn drops() {
    let _ = &*REAPED;
    let threads = [1, 2].map(|pid| thread::spawn(move || drop_handle(pid)));
    drop_handle(3);
    look_after_a_few();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(reap_orphans(), 0);
    // SAFETY: loom checks the accesses.
    let reaped = REAPED.0.with(|at| unsafe { *at });
    assert_eq!(reaped, [0, 1, 1, 1]);
}
