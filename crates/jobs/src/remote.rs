//! Jobs that run elsewhere.

use crate::job::{Job, JobPlace};
use crate::summary::Ending;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

/// Runs jobs elsewhere, as many as there are [slots](crate::Options::slots). It must report the end of each job once, even
/// if connections break: the run waits for all of them.
pub trait Remote {
    /// Takes a job. The remote must enforce the `timeout`: the run does not.
    fn submit(&mut self, job: &Job, place: JobPlace, timeout: Option<Duration>);

    /// The descriptor that becomes readable when there is something to do.
    fn waits_for(&self) -> BorrowedFd<'_>;

    /// Does what is possible without a wait, and adds the jobs that have ended. Called also before each sleep.
    ///
    /// # Errors
    /// An error stops the run: no further job is started, and those that are away count as skipped.
    fn pump(&mut self, ended: &mut Vec<RemoteEnd>) -> io::Result<()>;
}

/// A job that has ended elsewhere.
#[derive(Debug)]
pub struct RemoteEnd {
    /// Its number.
    pub seq: u64,
    /// How it ended.
    pub ending: Ending,
    /// It was killed because it took too long.
    pub timed_out: bool,
    /// When it was started, by the clock of the machine that ran it. `None`: when it was submitted.
    pub started: Option<SystemTime>,
    /// How long it ran. `None`: as long as it was away.
    pub runtime: Option<Duration>,
    /// Its standard output.
    pub out: Vec<u8>,
    /// Its standard error.
    pub err: Vec<u8>,
}
