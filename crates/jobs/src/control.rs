//! Stops a run, or changes its slots, from elsewhere.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

/// What the run shall do after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Start no further job, and wait for those that run.
    Soon,
    /// Kill those that run, too.
    Now,
}

impl Flow {
    /// After an error of the output: nobody reads what the jobs that run would write to a broken pipe.
    pub(crate) fn after_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Now } else { Self::Soon }
    }
}

/// Stops a run or changes its slots, from a signal handler or another thread. Clones control the same run.
///
/// All functions are async-signal-safe: they store a number and write to an eventfd.
#[derive(Debug, Clone)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    wake: OwnedFd,
    /// 0: go on; 1: soon; 2: now.
    stop: AtomicU32,
    /// 0: no change.
    slots: AtomicI64,
    /// Added to the slots.
    more: AtomicI64,
    /// A signal for the jobs; 0: none.
    signal: AtomicU32,
    /// Milliseconds between ticks, 0 for none; [`NO_CHANGE`]: they stay as they are.
    tick: AtomicU32,
    notifies: AtomicBool,
    suspends: AtomicBool,
}

const NO_CHANGE: u32 = u32::MAX;

impl Control {
    /// The control of a run to come.
    ///
    /// # Errors
    /// EMFILE.
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (stop, slots, more, signal) = Default::default();
        let (tick, notifies, suspends) = (AtomicU32::new(NO_CHANGE), AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self(Arc::new(Inner { wake, stop, slots, more, signal, tick, notifies, suspends })))
    }

    /// Starts no further job; those that run go on.
    pub fn stop_soon(&self) {
        self.0.stop.fetch_max(1, Ordering::SeqCst);
        self.wake();
    }

    /// Starts no further job, and ends those that run by [`Options::termination`](crate::Options::termination).
    pub fn stop_now(&self) {
        self.0.stop.fetch_max(2, Ordering::SeqCst);
        self.wake();
    }

    /// Sends a signal to each job that runs: to its process group, if it has one of its own.
    pub fn signal(&self, signal: i32) {
        self.0.signal.store(signal as u32, Ordering::SeqCst);
        self.wake();
    }

    /// Sets how many jobs run at once. Jobs that run are not ended.
    pub fn set_slots(&self, slots: usize) {
        self.0.slots.store(slots.try_into().unwrap_or(i64::MAX).max(1), Ordering::SeqCst);
        self.wake();
    }

    /// Adds to the number of jobs that run at once, or subtracts from it. At least one remains.
    pub fn add_slots(&self, more: i32) {
        self.0.more.fetch_add(more.into(), Ordering::SeqCst);
        self.wake();
    }

    /// Sets how often [`Events::tick`](crate::Events::tick) is called: every so many milliseconds, or not at all.
    pub fn set_tick(&self, milliseconds: Option<u32>) {
        self.0.tick.store(milliseconds.map_or(0, |time| time.clamp(1, NO_CHANGE - 1)), Ordering::SeqCst);
        self.wake();
    }

    /// Has [`Events::notified`](crate::Events::notified) called by the thread of the run.
    pub fn notify(&self) {
        self.0.notifies.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Stops each job that runs by SIGTSTP, as Ctrl-Z does, calls [`Events::suspended`](crate::Events::suspended), and then
    /// continues the jobs.
    pub fn suspend(&self) {
        self.0.suspends.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // Fails only when it is readable already.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }

    /// Clears the eventfd. Must be called before the values are read, so that a later change wakes the run again.
    pub(crate) fn slept(&self) {
        let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
    }

    pub(crate) fn flow(&self) -> Flow {
        match self.0.stop.load(Ordering::SeqCst) {
            0 => Flow::Continue,
            1 => Flow::Soon,
            _ => Flow::Now,
        }
    }

    /// Returns the number of slots that replaces `now`.
    pub(crate) fn slots(&self, now: usize) -> usize {
        let set = self.0.slots.swap(0, Ordering::SeqCst);
        let more = self.0.more.swap(0, Ordering::SeqCst);
        let base = if set > 0 { set } else { i64::try_from(now).unwrap_or(i64::MAX) };
        usize::try_from(base.saturating_add(more).max(1)).unwrap_or(usize::MAX)
    }

    /// The new time between ticks, if it has been set.
    pub(crate) fn take_tick(&self) -> Option<Option<Duration>> {
        match self.0.tick.swap(NO_CHANGE, Ordering::SeqCst) {
            NO_CHANGE => None,
            0 => Some(None),
            milliseconds => Some(Some(Duration::from_millis(milliseconds.into()))),
        }
    }

    pub(crate) fn take_notice(&self) -> bool {
        self.0.notifies.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn take_suspension(&self) -> bool {
        self.0.suspends.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn take_signal(&self) -> Option<i32> {
        Some(self.0.signal.swap(0, Ordering::SeqCst) as i32).filter(|&signal| signal != 0)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}
