//! Children whose handle was dropped before they had ended.
//!
//! A child that nobody waits for stays a zombie. There is no thread here to wait for it and no signal handler to be told
//! by, so dropped children are kept in a queue, and every launch and every drop looks after a few of them. Ended ones
//! are reaped faster than new ones can come, so they do not pile up; [`reap_orphans`] does all at once.
//!
//! Nothing here waits for a lock: in a forked copy of the process it might be held by a thread that the copy has not got.

use crate::launch::pending::Pending;
use crate::process;
use crate::wait;
use forkless_core::planted;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A child without a handle.
pub(crate) struct Orphan {
    /// [`wait::NOBODY`]: it is autoreaped.
    pub(crate) pid: i32,
    pub(crate) pidfd: Option<OwnedFd>,
    /// What it may still be reading, if it has not been seen to execute its program.
    pub(crate) pending: Option<Pending>,
    /// The [process](process::generation) whose child it is: ours, unless we are a forked copy.
    pub(crate) parent: u32,
}

/// A newly dropped child, on its way into the queue.
struct Arrival {
    orphan: Orphan,
    next: *mut Arrival,
}

/// New ones, pushed without a lock.
static ARRIVALS: AtomicPtr<Arrival> = AtomicPtr::new(null_mut());

/// The others.
static QUEUE: Queue = Queue { holder: AtomicU32::new(0), orphans: UnsafeCell::new(VecDeque::new()) };

/// How many there are in the queue.
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// How many are looked after at a time.
const A_FEW: usize = 4;

/// A queue behind a lock that is tried and never waited for. It knows which process holds it.
struct Queue {
    /// The [process](process::generation) one of whose threads is at it, or 0.
    holder: AtomicU32,
    orphans: UnsafeCell<VecDeque<Orphan>>,
}

// SAFETY: `with` gives the contents to one thread at a time.
unsafe impl Sync for Queue {}

impl Queue {
    /// Does something with the queue, unless another thread is at it.
    fn with(&self, work: impl FnOnce(&mut VecDeque<Orphan>)) {
        let me = process::generation();
        if let Err(holder) = self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            // A holder that is another process is the one that this process was forked from, amid its work. Its thread
            // is not here to finish that, and the children are not ours.
            let stale = holder != me && !planted!("queue-held-for-ever");
            if !stale || self.holder.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
                return;
            }
            // SAFETY: held by this thread alone now. What was there may be half-changed and is not dropped.
            unsafe { self.orphans.get().write(VecDeque::new()) };
        }
        // SAFETY: held by this thread alone.
        let orphans = unsafe { &mut *self.orphans.get() };
        work(orphans);
        QUEUED.store(orphans.len(), Ordering::Relaxed);
        self.holder.store(0, Ordering::Release);
    }
}

/// Takes charge of a child.
pub(crate) fn adopt(orphan: Orphan) {
    let arrival = Box::into_raw(Box::new(Arrival { orphan, next: null_mut() }));
    let mut head = ARRIVALS.load(Ordering::Relaxed);
    loop {
        // SAFETY: not in the list yet, so it is ours.
        unsafe { (*arrival).next = head };
        match ARRIVALS.compare_exchange_weak(head, arrival, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    look_after_a_few();
}

/// Looks after a few orphans; two loads where there are none.
pub(crate) fn look_after_a_few() {
    let is_any = QUEUED.load(Ordering::Relaxed) != 0 || !ARRIVALS.load(Ordering::Relaxed).is_null();
    if is_any && !planted!("orphans-not-looked-after") {
        QUEUE.with(|queue| look_after(queue, A_FEW));
    }
}

/// Reaps the children that have ended since their handles were dropped, and gives the number of those that still run.
///
/// The library does this by itself, a few at each launch. A program that has dropped handles and launches nothing more
/// for a long time may call it where it likes.
pub fn reap_orphans() -> usize {
    QUEUE.with(|queue| look_after(queue, usize::MAX));
    QUEUED.load(Ordering::Relaxed)
}

fn look_after(queue: &mut VecDeque<Orphan>, limit: usize) {
    let mut arrival = ARRIVALS.swap(null_mut(), Ordering::Acquire);
    while !arrival.is_null() {
        // SAFETY: made by Box::into_raw, and in no list any more.
        let boxed = unsafe { Box::from_raw(arrival) };
        arrival = boxed.next;
        queue.push_back(boxed.orphan);
    }
    let me = process::generation();
    for _ in 0..limit.min(queue.len()) {
        let Some(mut orphan) = queue.pop_front() else { return };
        if orphan.parent != me && !planted!("orphans-of-another-process") {
            // Left from before a fork. Its pidfd may not be ours to close: fork copies the descriptors before the memory,
            // so one that was made in between is named here and is not there, or is something else.
            std::mem::forget(orphan);
            continue;
        }
        if orphan.pending.as_ref().is_some_and(Pending::has_left) {
            orphan.pending = None;
        }
        // One that is autoreaped is here for its memory alone.
        let has_gone = match orphan.pid {
            wait::NOBODY => orphan.pending.is_none(),
            pid => wait::has_gone(pid, orphan.pidfd.as_ref()),
        };
        if !has_gone {
            queue.push_back(orphan);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_a_forked_copy_finds_held_is_its_own() {
        let me = process::generation();
        for (holder, is_free) in [(0, true), (me, false), (me.wrapping_add(1), true)] {
            let queue = Queue { holder: AtomicU32::new(holder), orphans: UnsafeCell::new(VecDeque::new()) };
            let mut was_free = false;
            queue.with(|_| was_free = true);
            assert_eq!(was_free, is_free, "held by {holder}, asked by {me}");
        }
    }
}
