//! The slots: each is free, or has a job that runs or is to be launched.

use crate::job::{Job, JobPlace, Stdin};
use crate::output::Capture;
use forkless::{Child, ShellEnding};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::fcntl_getpipe_size;
use std::fs::File;
use std::io;
use std::process::{ChildStdin, ExitStatus};
use std::time::{Duration, Instant, SystemTime};

pub(crate) enum Slot {
    Free,
    /// A job whose launch has failed for now or is delayed, or that is tried again.
    Waiting(Box<Waiting>),
    /// A job that a [thread](crate::pool) launches.
    Starting(Box<Starting>),
    Running(Box<Running>),
    /// A job that runs elsewhere.
    Away(Box<RemoteJob>),
}

pub(crate) struct RemoteJob {
    pub(crate) job: Job,
    pub(crate) place: JobPlace,
    /// How often it has been submitted.
    pub(crate) tries: u32,
    pub(crate) started: Instant,
    pub(crate) clock: SystemTime,
}

pub(crate) struct Waiting {
    pub(crate) job: Job,
    pub(crate) place: JobPlace,
    /// How often it has been launched.
    pub(crate) tries: u32,
    /// When its launch first failed for lack of resources.
    pub(crate) since: Option<Instant>,
    /// How often its child was [killed](crate::launch::is_killed_before_exec) before it could run the program.
    pub(crate) kills_before_exec: u32,
}

pub(crate) struct Starting {
    pub(crate) waiting: Waiting,
    pub(crate) copies: [Option<File>; 2],
    pub(crate) started: Instant,
    pub(crate) clock: SystemTime,
}

pub(crate) struct Running {
    pub(crate) job: Job,
    pub(crate) place: JobPlace,
    pub(crate) tries: u32,
    /// Distinguishes it from other jobs in the same slot.
    pub(crate) turn: u32,
    pub(crate) child: Child,
    /// Translates the exit status of a line that runs without a shell.
    pub(crate) shell: Option<ShellEnding>,
    pub(crate) started: Instant,
    pub(crate) clock: SystemTime,
    /// Its pidfd is watched. Otherwise the run polls for its end.
    pub(crate) watched: bool,
    pub(crate) capture: Option<Box<Capture>>,
    pub(crate) feed: Option<Feed>,
    /// The run is ending it by signals.
    pub(crate) killing: Option<Killing>,
    pub(crate) timed_out: bool,
    /// It was sent a signal.
    pub(crate) signalled: bool,
    /// As in [`Waiting`].
    pub(crate) kills_before_exec: u32,
    /// Its process has ended, and another one holds its output open.
    pub(crate) over: Option<Over>,
}

/// The end of a job's process while another one holds the job's output open.
pub(crate) struct Over {
    pub(crate) status: ExitStatus,
    pub(crate) runtime: Duration,
    /// What is not read by then is lost.
    pub(crate) until: Instant,
}

/// What is still to be written to a job's standard input.
pub(crate) struct Feed {
    pub(crate) pipe: ChildStdin,
    pub(crate) bytes: Vec<u8>,
    pub(crate) at: usize,
    /// The source has further bytes.
    pub(crate) goes_on: bool,
}

/// The progress of the sequence of signals that ends a job.
pub(crate) struct Killing {
    /// How many signals have been sent.
    pub(crate) sent: usize,
    /// When the next one is due; `None`: there is none.
    pub(crate) next: Option<Instant>,
}

impl Running {
    /// Whether its process has ended, and not been reaped.
    pub(crate) fn has_ended(&self) -> bool {
        let Some(pidfd) = self.child.pidfd() else { return false };
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Closes its standard input. What was written comes back to the job if it may be launched again: because it may be
    /// `tried` again, or because the kernel may report late that it had no resources to execute the program. In the second
    /// case nothing has read from the pipe, so no more than the pipe holds has been written.
    pub(crate) fn end_feed(&mut self, tried: bool) {
        let Some(Feed { pipe, bytes, at, goes_on }) = self.feed.take() else { return };
        let is_unread = || fcntl_getpipe_size(&pipe).map_or(true, |size| at <= size);
        if !goes_on && (tried || is_unread()) {
            self.job.stdin = Stdin::Bytes(bytes);
        }
    }

    /// Sends a signal to the job, and to its process group if it has one of its own.
    pub(crate) fn send(&mut self, signal: i32) {
        self.signalled = true;
        // It may have ended.
        let has_none = |error: io::Error| error.kind() == io::ErrorKind::InvalidInput;
        if self.child.signal_group(signal).is_err_and(has_none) {
            let _ = self.child.signal(signal);
        }
    }
}
