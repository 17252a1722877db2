//! Limits of the measuring time and of the launches, and the CPU time of a turn.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time;
use nix::unistd::Pid;
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

    /// Whether a signal has arrived.
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

/// How long one turn of a method lasts.
pub(crate) struct Goal {
    /// The shortest time of a turn.
    pub(crate) time: Duration,
    /// The fewest launches of a turn.
    pub(crate) fewest: usize,
    /// The most launches: a turn ends after them, even before `time`.
    pub(crate) most: usize,
}

impl Goal {
    /// Whether a turn with this many launches in this time goes on.
    pub(crate) fn is_unfinished(&self, count: usize, time: Duration) -> bool {
        count < self.most && (count < self.fewest || time < self.time)
    }
}

/// Processes that make children for this one and go on after them, and which have not been reaped.
static HELPERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// The CPU time of these processes counts as long as this exists.
pub(crate) struct Helpers(Vec<Pid>);

impl Helpers {
    pub(crate) fn count(pids: impl IntoIterator<Item = u32>) -> Self {
        let pids: Vec<_> = pids.into_iter().filter_map(|pid| Some(Pid::from_raw(pid.try_into().ok()?))).collect();
        lock().extend(&pids);
        Self(pids)
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        lock().retain(|pid| !self.0.contains(pid));
    }
}

fn lock() -> MutexGuard<'static, Vec<Pid>> {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CPU time of this process, its reaped children and its [helpers](Helpers), without the threads that cause page faults.
///
/// The time of the process and of the helpers comes from their CPU clocks in nanoseconds, that of the children from getrusage(2),
/// which is less precise.
pub(crate) fn cpu_time() -> Duration {
    let own = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    let own = Duration::new(own.tv_sec.unsigned_abs(), u32::try_from(own.tv_nsec).unwrap_or(0));
    let sum =
        |t: TimeVal| Duration::from_secs(t.tv_sec().unsigned_abs()) + Duration::from_micros(t.tv_usec().unsigned_abs());
    let children = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(Duration::ZERO, |usage| sum(usage.user_time()) + sum(usage.system_time()));
    let of = |&pid: &Pid| time::ClockId::pid_cpu_clock_id(pid).and_then(time::ClockId::now);
    let helpers: Duration = lock().iter().map(|pid| of(pid).map_or(Duration::ZERO, Duration::from)).sum();
    let apart = faulting::cpu_time();
    own.saturating_sub(apart) + children + helpers
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

    #[test]
    fn helpers_are_counted_while_they_run() {
        let mut helper = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh");
        let of = |helper: &std::process::Child| {
            let helpers = Helpers::count([helper.id()]);
            let before = cpu_time();
            std::thread::sleep(Duration::from_millis(300));
            let time = cpu_time() - before;
            drop(helpers);
            (time, lock().len())
        };
        let (time, left) = of(&helper);
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(100));
        let alone = cpu_time() - before;
        helper.kill().and_then(|()| helper.wait()).expect("its end");
        assert!(time > 2 * alone && left == 0, "{time:?} with it, {alone:?} without, {left} left");
    }
}
