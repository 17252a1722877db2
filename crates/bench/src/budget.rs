//! How long and how often to launch, and the CPU time that it took.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use rustix::time::ClockId;

use super::faulting;

/// Launches made before measuring, so that nobody pays for first touches.
pub(crate) const WARM_UP: usize = 5;
/// How long a turn lasts, about: long enough that the caches are the contestant's own and the other processor is awake, short
/// enough that the turns come often. That of an engine is as long.
pub(crate) const TURN: Duration = Duration::from_millis(8);
/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget<'a> {
    /// For each contestant under the condition.
    pub(crate) time: Duration,
    /// Most launches of each.
    pub(crate) samples: u64,
    /// Set when the user has had enough.
    pub(crate) stop: &'a AtomicBool,
}

impl Budget<'_> {
    /// # Errors
    /// When the user has had enough. An error and not an exit, so that everything is put back on the way out.
    pub(crate) fn go_on(&self) -> Result<()> {
        ensure!(!self.stop.load(Ordering::Relaxed), "stopped by a signal");
        Ok(())
    }
}

/// How long one turn of a contestant is.
pub(crate) struct Goal {
    /// Time of the turn …
    pub(crate) time: Duration,
    /// … which goes on until this many launches were made …
    pub(crate) fewest: usize,
    /// … and ends in any case when this many were.
    pub(crate) most: usize,
}

impl Goal {
    /// Whether a turn with so many launches in so much time is to go on.
    pub(crate) fn is_ahead(&self, count: usize, time: Duration) -> bool {
        count < self.most && (count < self.fewest || time < self.time)
    }
}

/// User and system time of this process, but for threads that only touch memory, and of its reaped children.
///
/// The process's own from its CPU clock, which counts nanoseconds; the children's from getrusage(2), which has no
/// better.
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
