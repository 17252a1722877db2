//! The results of a run.

use crate::control::Flow;
use crate::job::{Job, JobPlace};
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

/// How a job ended.
#[derive(Debug)]
pub enum Ending {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// The program could not be started. [`forkless::Error::of`] says why.
    NotStarted(io::Error),
    /// Its exit status is lost: other code of this process has reaped it.
    Lost(io::Error),
}

impl Ending {
    /// Whether it ended with exit status 0.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Exited(0))
    }

    /// The exit status and the signal, as the log has them: one of both is 0. A program that is not found counts as
    /// 127, one that cannot be executed as 126, as by a shell.
    pub fn numbers(&self) -> (i32, i32) {
        match self {
            Self::Exited(status) => (*status, 0),
            Self::Killed(signal) => (0, *signal),
            Self::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => (127, 0),
            Self::NotStarted(_) => (126, 0),
            Self::Lost(_) => (255, 0),
        }
    }
}

/// A job that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The job. What it runs, its standard input and its environment may be gone.
    pub job: Job,
    /// Its number and slot.
    pub place: JobPlace,
    /// How it ended.
    pub ending: Ending,
    /// It was killed because of [`Options::timeout`](crate::Options::timeout).
    pub timed_out: bool,
    /// The end of the run has ended it, or kept it from running: it has no line in the log.
    pub cut_short: bool,
    /// When it was launched.
    pub started: SystemTime,
    /// How long it ran.
    pub runtime: Duration,
    /// How often it has been launched.
    pub tries: u32,
    /// How many bytes of its output were captured. Complete when it is logged and written.
    pub received: u64,
}

impl Ended {
    /// Whether it counts as failed.
    pub fn is_failure(&self) -> bool {
        !self.ending.is_success() || self.timed_out
    }
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// All jobs, if that is known.
    pub total: Option<u64>,
    /// How many have ended in this run.
    pub ended: u64,
    /// How many of these have failed.
    pub failed: u64,
    /// How many were skipped, because they are done.
    pub done_before: u64,
    /// How many run now.
    pub running: usize,
    /// How many may run at once.
    pub slots: usize,
    /// The time since the start of the run.
    pub elapsed: Duration,
}

/// The result of a run. Its `Display` is "ran N, failed F, skipped S of T".
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Jobs that the source has made, and further ones that it is known to have had.
    pub total: u64,
    /// Jobs that have run to an end of their own, or by a signal.
    pub ran: u64,
    /// Of these, jobs that failed; and jobs that could not be started.
    pub failed: u64,
    /// Jobs that could not be started: counted in `failed`, not in `ran`.
    pub not_started: u64,
    /// Jobs that the log records as done already.
    pub done_before: u64,
    /// Jobs that were not launched, because the run was stopped.
    pub skipped: u64,
    /// The source may have had further jobs, whose number is not known.
    pub unread: bool,
    /// The run was stopped early, and how.
    pub stopped: Option<Flow>,
    /// The end of the job by which the limit of [`Options::halt`](crate::Options::halt) was reached: exit status and
    /// signal.
    pub halted_by: Option<(i32, i32)>,
    /// Errors of the run itself: of the source, the sink, the log, the results. Each text once.
    pub errors: Vec<io::Error>,
}

impl Summary {
    /// Whether every job has run: none was skipped, could not be started, or was left in the source.
    pub fn is_complete(&self) -> bool {
        self.skipped == 0 && self.not_started == 0 && !self.unread
    }

    /// Whether every job has run, none has failed, and no error has occurred.
    pub fn is_success(&self) -> bool {
        self.is_complete() && self.failed == 0 && self.errors.is_empty()
    }

    /// Adds an error, once: the same may occur for each job.
    pub(crate) fn add(&mut self, error: io::Error) {
        let words = error.to_string();
        if !self.errors.iter().any(|known| known.to_string() == words) {
            self.errors.push(error);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, ran, failed, skipped, done_before, unread, .. } = self;
        write!(out, "ran {ran}, failed {failed}, skipped {skipped} of {total}")?;
        if *done_before > 0 {
            write!(out, " ({done_before} done before)")?;
        }
        if *unread {
            write!(out, " and an unknown number in unread input")?;
        }
        Ok(())
    }
}
