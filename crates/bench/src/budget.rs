//! Limits of the measuring time and of the launches, and the CPU time of a turn.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use rustix::time::ClockId;

use super::faulting;

/// Launches before the measurement, which fill caches.
pub(crate) const WARM_UP: usize = 5;
/// Approximate length of a turn: long enough to fill the caches and to wake the other CPU, short enough for frequent turns. Also
/// applies to engines.
pub(crate) const TURN: Duration = Duration::from_millis(8);
/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget<'a> {
    /// Time for each method under the condition.
    pub(crate) time: Duration,
    /// Maximum number of launches of each method.
    pub(crate) samples: u64,
    /// Set by a signal to stop the bench.
    pub(crate) stop: &'a AtomicBool,
}

impl Budget<'_> {
    /// # Errors
    /// If a signal has arrived. An error instead of an exit, so that everything is cleaned up.
    pub(crate) fn go_on(&self) -> Result<()> {
        ensure!(!self.is_stopped(), "stopped by a signal");
        Ok(())
    }

    /// Has a signal arrived?
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ignores an error after a signal: the keys of a terminal send it to the launched program, too, which then fails.
    ///
    /// # Errors
    /// As `outcome`, if no signal has arrived.
    pub(crate) fn unless_stopped(&self, outcome: Result<()>) -> Result<()> {
        if self.is_stopped() { Ok(()) } else { outcome }
    }
}

/// The length of one turn of a method.
pub(crate) struct Goal {
    /// Minimum time of the turn …
    pub(crate) time: Duration,
    /// … which also continues until this many launches were made …
    pub(crate) fewest: usize,
    /// … and always ends after this many.
    pub(crate) most: usize,
}

impl Goal {
    /// Does a turn with this many launches in this time continue?
    pub(crate) fn is_ahead(&self, count: usize, time: Duration) -> bool {
        count < self.most && (count < self.fewest || time < self.time)
    }
}

/// CPU time of this process and its reaped children, without the threads that cause page faults.
///
/// The time of the process comes from its CPU clock in nanoseconds, that of the children from getrusage(2), which is less precise.
pub(crate) fn cpu_time() -> Duration {
    let own = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    let own = Duration::new(own.tv_sec.unsigned_abs(), u32::try_from(own.tv_nsec).unwrap_or(0));
    let time =
        |t: TimeVal| Duration::from_secs(t.tv_sec().unsigned_abs()) + Duration::from_micros(t.tv_usec().unsigned_abs());
    let children = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(Duration::ZERO, |usage| time(usage.user_time()) + time(usage.system_time()));
    let apart = faulting::cpu_time();
    own.saturating_sub(apart) + children
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_counted_as_cpu_time() {
        let before = cpu_time();
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().expect("sh").success());
        assert!(cpu_time() > before);
    }
}
