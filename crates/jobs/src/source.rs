//! What the user of this library implements: the source of jobs, the receiver of events, the sink of output.

use crate::control::Flow;
use crate::job::{Job, JobPlace};
use crate::summary::{Ended, Progress};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// What [`JobSource::next`] returns.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and it is moved at once")]
pub enum Next {
    /// A job. It gets the number and the slot of the [`JobPlace`].
    Job(Job),
    /// Skips so many jobs, which are all in [`Options::done`](crate::Options::done).
    Skip(u64),
    /// Input must come first, at [`JobSource::waits_for`].
    Later,
    /// The kernel has no resources for what the job needs. The source is called again when a job has ended, or after a
    /// moment. The run stops with the error after [`Options::patience`](crate::Options::patience) in which no job runs.
    Lacks(io::Error),
    /// There is no further job.
    End,
}

/// What [`JobSource::more`] returns.
#[derive(Debug)]
pub enum More {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Input must come first, at [`JobSource::waits_for`].
    Later,
    /// Another job must take its bytes or end first.
    NotYet,
    /// The job's standard input ends.
    End,
}

/// Makes the jobs, one each time a slot is free.
pub trait JobSource {
    /// Makes the next job.
    ///
    /// # Errors
    /// The run starts no further job, waits for those that run, and returns the error in
    /// [`Summary::errors`](crate::Summary).
    fn next(&mut self, place: JobPlace) -> io::Result<Next>;

    /// The descriptor that becomes readable when a source that has returned [`Next::Later`] can go on.
    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The next bytes for the standard input of a job that runs, and whose standard input is
    /// [`Stdin::Stream`](crate::Stdin::Stream). Called in turn for the jobs that can take more.
    ///
    /// # Errors
    /// The run stops at once, and ends the job before its standard input ends. The error is in
    /// [`Summary::errors`](crate::Summary).
    fn more(&mut self, seq: u64) -> io::Result<More> {
        let _ = seq;
        Ok(More::End)
    }

    /// A job takes no more: it has ended, was not started, or has closed its standard input. [`run`](crate::run) calls this
    /// for each job at least once; [`Gather`](crate::Gather) does not.
    fn closed(&mut self, seq: u64) {
        let _ = seq;
    }

    /// The run starts no further job. Called by [`run`](crate::run) only.
    fn stopped(&mut self) {}

    /// A job cannot be launched for lack of resources: it waits until another one ends. A source that lets the others wait for it must
    /// no longer do so.
    fn held(&mut self, seq: u64) {
        let _ = seq;
    }

    /// When a source that has returned [`Next::Later`] or [`More::Later`] goes on, also without input.
    fn waits_until(&self) -> Option<Instant> {
        None
    }

    /// The number of all jobs, if it is known or can be found out. Limits in percent need it.
    fn total(&mut self) -> Option<u64> {
        None
    }

    /// How many jobs are left, if that can be found out without a wait. Called when a run was stopped.
    fn left(&mut self) -> Option<u64> {
        None
    }
}

/// A source of the jobs of an iterator.
pub fn from_iter(jobs: impl IntoIterator<Item = Job>) -> impl JobSource {
    struct FromIter<I>(I);
    impl<I: Iterator<Item = Job>> JobSource for FromIter<I> {
        fn next(&mut self, _: JobPlace) -> io::Result<Next> {
            Ok(self.0.next().map_or(Next::End, Next::Job))
        }

        /// The iterator may have no end, so only one job is taken from it.
        fn left(&mut self) -> Option<u64> {
            if self.0.next().is_none() { Some(0) } else { None }
        }
    }
    FromIter(jobs.into_iter())
}

/// Receives the events of a run.
pub trait Events {
    /// A job has been launched, or given to the [`Remote`](crate::Remote): then `pid` is 0.
    fn started(&mut self, job: &Job, place: JobPlace, pid: u32) {
        let _ = (job, place, pid);
    }

    /// The program of a job that was reported as started could not be executed. The job is launched and reported again.
    fn withdrawn(&mut self, place: JobPlace) {
        let _ = place;
    }

    /// A job has ended, for the last time. Called in the order in which jobs end, before the next job is launched.
    fn finished(&mut self, ended: &Ended) -> Flow {
        let _ = ended;
        Flow::Continue
    }

    /// A try of a job has failed, and the job is launched again.
    fn retried(&mut self, ended: &Ended) {
        let _ = ended;
    }

    /// [`Control::notify`](crate::Control::notify) has been called: once or more.
    fn notified(&mut self) {}

    /// [`Control::suspend`](crate::Control::suspend) has been called, and the jobs have been stopped. They go on when this
    /// returns.
    fn suspended(&mut self) {}

    /// Called about every [`Options::tick`](crate::Options::tick), and once at the end.
    fn tick(&mut self, progress: &Progress) {
        let _ = progress;
    }
}

/// Ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Events for Nothing {}

/// An output of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Takes the captured output of the jobs, in the order in which it is to appear.
pub trait Sink {
    /// A piece of a job's output, with its tags. Must take all of it, or fail.
    ///
    /// # Errors
    /// They stop the run: at once if it is EPIPE.
    fn write(&mut self, seq: u64, stream: Stream, bytes: &[u8]) -> io::Result<()>;

    /// All output of this job has been written.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn written(&mut self, ended: &Ended) -> io::Result<()> {
        let _ = ended;
        Ok(())
    }

    /// The run is about to sleep: what is buffered must go out.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
