//! Children whose handle was dropped before they had ended.
//!
//! A child that nobody waits for stays a zombie. The library has no thread that waits, and no signal handler that would
//! be notified. So dropped children are kept in a queue, and each launch and each drop checks a few of them. That reaps
//! ended children faster than new ones can come, so they do not pile up. [`reap_orphans`] checks all of them.
//!
//! Nothing here waits for a lock: in a forked copy of the process, the lock might be held by a thread that the copy
//! does not have.

use crate::launch::pending::Pending;
use crate::launch::wait;
use crate::process;
use crate::request::command::LaunchGroup;
use crate::sync::{AtomicPtr, AtomicU32, AtomicUsize};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// A child without a handle.
pub(crate) struct Orphan {
    /// [`wait::NOBODY`]: it is autoreaped.
    pub(crate) pid: i32,
    pub(crate) pidfd: Option<OwnedFd>,
    /// Kept open for the init of a sandbox.
    #[allow(dead_code, reason = "held until the child has ended")]
    pub(crate) socket: Option<OwnedFd>,
    /// What the child may still be reading, if it has not been seen to execute its program.
    pub(crate) pending: Option<Pending>,
    #[allow(dead_code, reason = "removed when the child has ended")]
    pub(crate) group: Option<Box<dyn LaunchGroup>>,
    /// The [process](process::generation) that launched it: this one, unless this is a forked copy.
    pub(crate) parent: u32,
}

/// A newly dropped child, on its way into the queue.
struct Arrival {
    orphan: Orphan,
    next: *mut Arrival,
}

/// Newly dropped children, pushed without a lock.
static ARRIVALS: AtomicPtr<Arrival> = AtomicPtr::new(null_mut());

/// The other dropped children.
static QUEUE: Queue = Queue { holder: AtomicU32::new(0), orphans: UnsafeCell::new(VecDeque::new()) };

/// The number of children in the queue.
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// How many are checked at a time.
const A_FEW: usize = 4;

/// A queue with a lock that is only tried, and never waited for. The lock records which process holds it.
struct Queue {
    /// The [process](process::generation) one of whose threads holds the lock, or 0.
    holder: AtomicU32,
    orphans: UnsafeCell<VecDeque<Orphan>>,
}

// SAFETY: `with` gives the contents to one thread at a time.
unsafe impl Sync for Queue {}

impl Queue {
    /// Calls `work` with the queue, unless another thread holds the lock.
    fn with(&self, work: impl FnOnce(&mut VecDeque<Orphan>)) {
        let me = process::generation();
        if let Err(holder) = self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            // Another process as the holder means that this process was forked while that thread was at work. The thread
            // does not exist here and never releases the lock, and the children are not this process's.
            let stale = holder != me;
            if !stale || self.holder.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
                return;
            }
            // SAFETY: held by this thread alone now. The old contents may be half-changed, so they are not dropped.
            unsafe { self.orphans.get().write(VecDeque::new()) };
        }
        // SAFETY: held by this thread alone.
        let orphans = unsafe { &mut *self.orphans.get() };
        work(orphans);
        QUEUED.store(orphans.len(), Ordering::Relaxed);
        self.holder.store(0, Ordering::Release);
    }
}

/// Puts a child into the queue.
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

/// Checks a few children of the queue. Costs two loads if it is empty.
pub(crate) fn look_after_a_few() {
    let is_any = QUEUED.load(Ordering::Relaxed) != 0 || !ARRIVALS.load(Ordering::Relaxed).is_null();
    if is_any {
        QUEUE.with(|queue| look_after(queue, A_FEW));
    }
}

/// Reaps the children that have ended since their handles were dropped, and returns the number of those that still run.
///
/// The library does this by itself, for a few children at each launch. Call it in a program that has dropped handles
/// and then launches nothing for a long time.
///
/// ```
/// let child = forkless::Command::new("true").spawn()?;
/// drop(child); // without a wait
/// let running = forkless::reap_orphans();
/// println!("{running} children run without a handle");
/// # Ok::<(), std::io::Error>(())
/// ```
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
        if orphan.parent != me {
            // Left from before a fork. Its pidfd must not be closed: fork copies the descriptors before the memory, so the
            // number of one that was opened in between is unused in this process, or names another file.
            std::mem::forget(orphan);
            continue;
        }
        if orphan.pending.as_ref().is_some_and(Pending::has_left) {
            orphan.pending = None;
        }
        // An autoreaped child is in the queue only for the memory that it may still use.
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
