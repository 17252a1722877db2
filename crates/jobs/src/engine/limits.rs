//! Times: delays, limits of a job's time, and the signals that end a job.

use super::Engine;
use crate::options::Timeout;
use crate::slot::{Killing, Slot};
use std::time::{Duration, Instant};

/// The times that jobs have taken.
#[derive(Default)]
pub(super) struct Runtimes {
    /// Sorted.
    kept: Vec<Duration>,
    seen: u64,
    random: u64,
}

/// So many times are kept. Later ones replace earlier ones at random.
const KEPT: usize = 1000;

impl Runtimes {
    pub(super) fn add(&mut self, time: Duration) {
        self.seen += 1;
        if self.kept.len() == KEPT {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Each of all times is kept with the same probability.
            if (self.random >> 16) % self.seen >= KEPT as u64 {
                return;
            }
            self.kept.remove((self.random >> 32) as usize % KEPT);
        }
        let at = self.kept.partition_point(|known| *known < time);
        self.kept.insert(at, time);
    }

    /// The median, once there are three.
    fn median(&self) -> Option<Duration> {
        if self.seen < 3 { None } else { self.kept.get(self.kept.len() / 2).copied() }
    }
}

/// The shorter of two optional limits.
pub(super) fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// `start + time`, or a century after `start` if the clock cannot represent that.
pub(super) fn after(start: Instant, time: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    start.checked_add(time).unwrap_or(start + CENTURY)
}

/// How long to wait before load and memory are checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The number that follows `name` at the beginning of a line of the file, or 0.
fn number_in(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    value.unwrap_or(0)
}

/// The memory of this machine in bytes; 0 without a procfs.
pub fn memory() -> u64 {
    number_in("/proc/meminfo", "MemTotal:") * 1024
}

impl Engine<'_> {
    /// Whether a job may be launched now, as far as the options and the kernel's resources are concerned.
    pub(super) fn check_limits(&mut self) -> bool {
        for time in [&mut self.not_before, &mut self.delayed] {
            if time.is_some_and(|time| Instant::now() < time) {
                return false;
            }
            *time = None;
        }
        if self.is_pressed() {
            self.delayed = Some(Instant::now() + POLL_INTERVAL);
            return false;
        }
        true
    }

    /// Whether the machine has too many processes or too little memory for a further job.
    fn is_pressed(&self) -> bool {
        let loaded = self.options.max_load.is_some_and(|most| {
            // This process runs too, and does not count.
            let all = number_in("/proc/stat", "procs_running") + number_in("/proc/stat", "procs_blocked");
            all.saturating_sub(1) as f64 > most
        });
        let available = || number_in("/proc/meminfo", "MemAvailable:") * 1024;
        loaded || self.options.min_memory.is_some_and(|least| available() < least)
    }

    /// Sets the times that depend on a launch: the delay before the next one, and the job's time limit.
    pub(super) fn launched(&mut self, at: Instant, slot: usize) {
        if !self.options.delay.is_zero() {
            // From now: the launch itself may have taken a while.
            self.delayed = Some(after(Instant::now(), self.options.delay));
        }
        let own = match &self.slots[slot] {
            Slot::Running(running) => running.job.timeout,
            _ => None,
        };
        if let Some(limit) = shorter(self.time_limit(), own) {
            self.due_at(after(at, limit));
        }
    }

    pub(super) fn due_at(&mut self, time: Instant) {
        self.deadline = Some(self.deadline.map_or(time, |known| known.min(time)));
    }

    pub(super) fn time_limit(&self) -> Option<Duration> {
        match self.options.timeout? {
            Timeout::After(limit) => Some(limit),
            Timeout::Percent(percent) => {
                let limit = self.runtimes.median()?.as_secs_f64() * percent.max(0.0) / 100.0;
                Some(Duration::try_from_secs_f64(limit).unwrap_or(Duration::MAX))
            }
        }
    }

    /// Does what is due now.
    pub(super) fn look_at_the_clock(&mut self) {
        let percent = matches!(self.options.timeout, Some(Timeout::Percent(_)));
        if self.deadline.is_none() && self.next_tick.is_none() && self.output.quiet.is_empty() && !percent {
            return;
        }
        let now = Instant::now();
        self.watch_the_long(now);
        if percent || self.deadline.is_some_and(|deadline| deadline <= now) {
            self.end_the_late(now);
        }
        if self.next_tick.is_some_and(|tick| tick <= now) {
            self.next_tick = self.options.tick.map(|tick| after(now, tick));
            let progress = self.progress();
            self.events.tick(&progress);
        }
    }

    /// Sends the signals that are due, and finds the next time that something is.
    fn end_the_late(&mut self, now: Instant) {
        let limit = self.time_limit();
        self.deadline = None;
        for slot in 0..self.slots.len() {
            let Slot::Running(running) = &mut self.slots[slot] else { continue };
            if let Some(over) = &running.over {
                match over.until {
                    until if until > now => self.due_at(until),
                    _ => self.let_end(slot),
                }
                continue;
            }
            let next = match (&running.killing, shorter(limit, running.job.timeout)) {
                (Some(killing), _) => killing.next,
                (None, Some(limit)) => Some(after(running.started, limit)),
                (None, None) => None,
            };
            let Some(next) = next else { continue };
            if next > now {
                self.due_at(next);
                continue;
            }
            running.timed_out |= running.killing.is_none();
            self.send_next(slot, now);
        }
    }

    /// Begins to end all jobs that run.
    pub(super) fn end_all(&mut self) {
        self.leave_away();
        let now = Instant::now();
        for slot in 0..self.slots.len() {
            self.let_end(slot);
            if matches!(&self.slots[slot], Slot::Running(running) if running.killing.is_none()) {
                self.send_next(slot, now);
            }
        }
    }

    /// Sends the next signal of the sequence that ends a job.
    pub(super) fn send_next(&mut self, slot: usize, now: Instant) {
        let Slot::Running(running) = &mut self.slots[slot] else { return };
        if running.over.is_some() {
            return;
        }
        let sent = running.killing.as_ref().map_or(0, |killing| killing.sent);
        let next = self.options.termination.get(sent).map(|&(signal, pause)| {
            running.send(signal);
            after(now, pause)
        });
        // No signal follows the last pause.
        let next = next.filter(|_| sent + 1 < self.options.termination.len());
        running.killing = Some(Killing { sent: sent + 1, next });
        if let Some(next) = next {
            self.due_at(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_load_and_memory() {
        assert!(number_in("/proc/stat", "procs_running") > 0);
        assert!(number_in("/proc/meminfo", "MemAvailable:") > 0);
        assert_eq!(number_in("/proc/stat", "no_such_name"), 0);
    }

    #[test]
    fn the_median_of_many_times_is_near_that_of_those_kept() {
        let mut times = Runtimes::default();
        assert!(times.median().is_none());
        for n in 0..100_000 {
            times.add(Duration::from_millis(n % 1001));
        }
        assert_eq!(times.kept.len(), KEPT);
        let median = times.median().expect("a median").as_millis();
        assert!((400..600).contains(&median), "{median}");
    }
}
