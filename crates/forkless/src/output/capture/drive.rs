//! The loop that feeds children, reads what they write, and ends them at the timeout or the limit.

use super::reader::{Progress, Reader};
use crate::child::Child;
use crate::error::Error;
use crate::kernel::{SIGCONT, SIGKILL};
use crate::output::quiet::write_quietly;
use crate::step::Step;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, ioctl_fionread};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When and how a run is ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) timeout: Option<Duration>,
    pub(crate) signal: i32,
    pub(crate) grace: Duration,
    pub(crate) linger: Option<Duration>,
}

impl Timing {
    pub(crate) const ENDLESS: Self = Self { timeout: None, signal: SIGKILL, grace: Duration::ZERO, linger: None };
}

/// The streams of one or several children, and their timeouts.
pub(crate) struct Drive {
    pub(crate) readers: [Option<Reader>; 2],
    pub(crate) input: Option<Input>,
    /// Bytes of the input, if there is no pipe for it.
    pub(crate) input_left: usize,
    pub(crate) timing: Timing,
    /// Whether the children's ends matter, and not only those of their streams.
    pub(crate) watches: bool,
}

/// The bytes that remain to be written.
pub(crate) struct Input {
    pipe: OwnedFd,
    bytes: Arc<[u8]>,
    written: usize,
}

impl Input {
    pub(crate) fn new(pipe: OwnedFd, bytes: Arc<[u8]>) -> Self {
        Self { pipe, bytes, written: 0 }
    }

    /// Writes as much as the pipe takes now; true when nothing is left to do.
    fn write(&mut self) -> io::Result<bool> {
        /// A program that reads as fast as this writes must not keep the loop from the other streams and the clock.
        const TURN: usize = 1 << 20;
        let until = self.bytes.len().min(self.written + TURN);
        while self.written < until {
            match write_quietly(&self.pipe, &self.bytes[self.written..until]) {
                Ok(count) => self.written += count,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock => return Ok(false),
                    // The program reads no more of it.
                    ErrorKind::BrokenPipe => return Ok(true),
                    _ => return Err(error),
                },
            }
        }
        Ok(until == self.bytes.len())
    }
}

/// The result of the loop.
pub(crate) struct Driven {
    pub(crate) readers: [Option<Reader>; 2],
    pub(crate) input_left: usize,
    pub(crate) timed_out: bool,
    pub(crate) held_open: bool,
    /// The last signal that the children were sent.
    pub(crate) sent: Option<i32>,
}

impl Driven {
    /// How a child ended. A child that the loop has killed before its exec counts as killed, and not as one that failed
    /// to start.
    pub(crate) fn status(&self, waited: io::Result<ExitStatus>) -> io::Result<ExitStatus> {
        match (waited, self.sent) {
            (Err(error), Some(signal)) if is_of_a_signal(&error) => Ok(ExitStatus::from_raw(signal)),
            (waited, _) => waited,
        }
    }
}

/// Whether the child was killed before it could execute the program.
fn is_of_a_signal(error: &io::Error) -> bool {
    Error::of(error).is_some_and(|error| error.errno().is_none() && error.step() != Step::Check)
}

/// How far the ending of the children has come.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// They run until this time, if there is one.
    Runs(Option<Instant>),
    /// They were sent the first signal, and are killed at this time.
    Asked(Option<Instant>),
    Killed,
}

/// What the loop does next.
pub(crate) enum Next {
    /// Nothing. Whether another process holds the streams open.
    Done(bool),
    /// A turn, of at most this duration.
    Turn(Option<Duration>),
}

/// The state of the loop.
pub(crate) struct CaptureRun<'a> {
    drive: Drive,
    children: &'a mut [Child],
    stage: Stage,
    timed_out: bool,
    input_left: usize,
    sent: Option<i32>,
    /// What was polled last, and its events. Kept to save an allocation in each turn.
    polled: Vec<(What, PollFlags)>,
    /// When the last child was found to have ended.
    ended: Option<Instant>,
    /// A child has no pidfd, or a readable one and cannot be reaped yet, because its tracer is notified first. So all
    /// children are checked at intervals.
    is_blind: bool,
}

impl Drive {
    /// Reads to the ends of the streams, without limits.
    pub(crate) fn plain(stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> Self {
        let readers = [stdout, stderr].map(|stream| stream.map(|fd| Reader::new(fd, usize::MAX, false)));
        Self { readers, input: None, input_left: 0, timing: Timing::ENDLESS, watches: false }
    }

    /// Runs until the streams have ended, or, where the children are watched, until the children have ended and the
    /// streams are not waited for any longer. The children may still have to be waited for.
    ///
    /// # Errors
    /// A launch that failed, and errors of reading. The children have been killed and reaped then.
    pub(crate) fn run(self, children: &mut [Child]) -> io::Result<Driven> {
        let mut run = CaptureRun::new(self, children);
        let answer = run.go();
        run.conclude(answer)
    }
}

/// A descriptor of the poll.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Input,
    Output(usize),
    End(usize),
}

impl<'a> CaptureRun<'a> {
    pub(crate) fn new(mut drive: Drive, children: &'a mut [Child]) -> Self {
        // What the child leaves running holds the streams until the child's end has been seen.
        drive.watches |= children.iter().any(Child::has_group);
        let deadline = drive.timing.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let (stage, input_left, polled) = (Stage::Runs(deadline), drive.input_left, Vec::with_capacity(4));
        Self { drive, children, stage, timed_out: false, input_left, sent: None, polled, ended: None, is_blind: false }
    }

    /// The result of the loop, or the error that has ended it: the children are killed and reaped then.
    pub(crate) fn conclude(mut self, answer: io::Result<bool>) -> io::Result<Driven> {
        match answer {
            Ok(held_open) => {
                let input_left = self.input_left + self.end_input();
                let CaptureRun { drive, timed_out, sent, .. } = self;
                Ok(Driven { readers: drive.readers, input_left, timed_out, held_open, sent })
            }
            Err(error) => {
                if self.signal(SIGKILL).is_ok() {
                    // All of them are waited for. The first error is reported, not one of these waits.
                    self.children.iter_mut().for_each(|child| _ = child.wait());
                }
                Err(error)
            }
        }
    }

    /// Returns whether another process holds the streams open.
    fn go(&mut self) -> io::Result<bool> {
        self.begin()?;
        loop {
            match self.next()? {
                Next::Done(held_open) => return Ok(held_open),
                Next::Turn(patience) => _ = self.turn(patience)?,
            }
        }
    }

    /// Prepares the streams for the first turn.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        if let Some(input) = &self.drive.input {
            ioctl_fionbio(&input.pipe, true)?;
        }
        if self.drive.watches {
            // A program can open its own output and read it. Bytes that it took back must not make this process wait.
            self.drive.readers.iter_mut().flatten().for_each(Reader::never_wait);
        }
        // Most programs take a short input at once.
        self.feed()?;
        self.is_blind = self.drive.watches && self.children.iter_mut().any(|child| child.pidfd_or_open().is_err());
        Ok(())
    }

    pub(crate) fn next(&mut self) -> io::Result<Next> {
        let reads = self.drive.readers.iter().flatten().any(|reader| reader.open().is_some());
        let busy = reads || self.drive.input.is_some();
        if !self.drive.watches && !busy {
            return Ok(Next::Done(false));
        }
        if self.drive.watches && self.ended.is_some() && !reads {
            self.end_groups()?;
            return Ok(Next::Done(false));
        }
        let patience = self.patience()?;
        if self.ended.is_some() && patience == Some(Duration::ZERO) {
            return self.drain().map(Next::Done);
        }
        Ok(Next::Turn(patience))
    }

    /// The descriptors of a turn, and what they are awaited for.
    pub(crate) fn watched(&self) -> impl Iterator<Item = (What, PollFd<'_>)> {
        let input = self.drive.input.iter().map(|input| (What::Input, PollFd::new(&input.pipe, PollFlags::OUT)));
        let opened =
            self.drive.readers.iter().enumerate().filter_map(|(n, reader)| Some((n, reader.as_ref()?.open()?)));
        let outputs = opened.map(|(n, fd)| (What::Output(n), PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let is_waiting = self.drive.watches && self.ended.is_none() && !self.is_blind;
        let running = self.children.iter().enumerate().filter(move |(_, child)| is_waiting && child.is_running());
        let ends = running
            .filter_map(|(n, child)| Some((What::End(n), PollFd::from_borrowed_fd(child.pidfd()?, PollFlags::IN))));
        input.chain(outputs).chain(ends)
    }

    /// Reads what is in the streams now, and no more: all that the ended children have written, however much others go
    /// on writing. Returns whether another process still has the streams open.
    fn drain(&mut self) -> io::Result<bool> {
        /// The largest size of a pipe that an unprivileged process can set.
        const UNKNOWN: u64 = 1 << 20;
        self.end_groups()?;
        for n in 0..self.drive.readers.len() {
            let Some(reader) = &mut self.drive.readers[n] else { continue };
            reader.never_wait();
            let Some(fd) = reader.open() else { continue };
            let until = reader.taken() + ioctl_fionread(fd).unwrap_or(UNKNOWN);
            // One read more than needed: it may report the end.
            while self.read(n)? == Progress::More && self.drive.readers[n].as_ref().is_some_and(|r| r.taken() <= until)
            {
            }
        }
        Ok(self.drive.readers.iter().flatten().any(|reader| reader.open().is_some()))
    }

    /// The children have ended. If the timeout has passed by now, or has ended them, the rest of their process groups
    /// is killed.
    fn end_groups(&mut self) -> io::Result<()> {
        match self.stage {
            Stage::Runs(until) if until.is_none_or(|until| until > Instant::now()) => Ok(()),
            _ => self.signal(SIGKILL),
        }
    }

    /// How long the next turn may take. Ends the children at the timeout.
    fn patience(&mut self) -> io::Result<Option<Duration>> {
        let now = Instant::now();
        if let Some(ended) = self.ended {
            const AFTER_TIMEOUT: Duration = Duration::from_millis(100);
            let was_ended = self.timed_out || matches!(self.stage, Stage::Killed);
            let linger = self.drive.timing.linger.or(was_ended.then_some(AFTER_TIMEOUT));
            let until_linger = linger.and_then(|linger| ended.checked_add(linger));
            let until_timeout = if let Stage::Runs(until) = self.stage { until } else { None };
            let until = [until_linger, until_timeout].into_iter().flatten().min();
            return Ok(until.map(|until| until.saturating_duration_since(now)));
        }
        loop {
            let (until, next) = match self.stage {
                Stage::Runs(until) => (until, self.drive.timing.signal),
                Stage::Asked(until) => (until, SIGKILL),
                Stage::Killed => return Ok(None),
            };
            let left = until.map(|until| until.saturating_duration_since(now));
            if left != Some(Duration::ZERO) {
                return Ok(left);
            }
            self.timed_out = true;
            self.signal(next)?;
            self.stage = match next {
                SIGKILL => Stage::Killed,
                _ => Stage::Asked(now.checked_add(self.drive.timing.grace)),
            };
        }
    }

    /// Signals the children that still run, with their process groups if they lead one. SIGKILL also goes to the groups
    /// of those that have ended.
    ///
    /// # Errors
    /// One of a child that may not be killed: waiting for it would not end.
    fn signal(&mut self, signal: i32) -> io::Result<()> {
        /// A child that is stopped before exec never executes its program.
        const UNTIL_EXEC: Duration = Duration::from_millis(100);
        if self.children.iter().any(Child::is_running) {
            self.sent = Some(signal);
        }
        let mut told = Ok(());
        for child in self.children.iter_mut() {
            // A child that is killed before exec would be reported as one that failed to start, though it timed out. (An error
            // of this wait comes again when the child is waited for.)
            let executed = !child.is_running() || child.wait_exec_timeout(UNTIL_EXEC).unwrap_or(true);
            if child.is_group_leader() && (child.is_running() || signal == SIGKILL) {
                // The error is ignored: the group may be empty, or have no process that may be signalled, and before Linux 6.9
                // it cannot be found after its leader was reaped.
                let _ = child.signal_group(signal);
            }
            // Before exec the child may not lead its group yet, so it is signalled itself too.
            if !child.is_group_leader() || !executed || signal == SIGKILL {
                let answer = child.signal(signal);
                if signal == SIGKILL {
                    told = told.and(answer);
                }
            }
            if signal != SIGKILL {
                let _ = if child.is_group_leader() { child.signal_group(SIGCONT) } else { child.signal(SIGCONT) };
            }
        }
        told
    }

    /// Sleeps until something happens, or for so long, and handles it. Returns whether something has happened.
    pub(crate) fn turn(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        let patience = self.limited(patience);
        let mut polled = std::mem::take(&mut self.polled);
        polled.clear();
        let mut fds = Vec::with_capacity(4);
        for (what, fd) in self.watched() {
            polled.push((what, PollFlags::empty()));
            fds.push(fd);
        }
        let limit = patience.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, limit.as_ref()) {
            Err(Errno::INTR) => return Ok(true),
            answer => answer?,
        };
        polled.iter_mut().zip(&fds).for_each(|((_, events), fd)| *events = fd.revents());
        drop(fds);
        for (what, _) in polled.iter().filter(|(_, events)| !events.is_empty()) {
            match *what {
                What::Input => self.feed()?,
                What::Output(n) => self.take(n)?,
                What::End(n) => {
                    self.reap_if_ended(n)?;
                    self.is_blind |= self.children[n].is_running();
                }
            }
        }
        let has_happened = polled.iter().any(|(_, events)| !events.is_empty());
        self.polled = polled;
        if self.is_blind {
            (0..self.children.len()).try_for_each(|n| self.reap_if_ended(n))?;
        }
        if self.drive.watches && self.ended.is_none() && !self.children.iter().any(Child::is_running) {
            self.ended = Some(Instant::now());
            // No child is left to read it.
            self.input_left += self.end_input();
        }
        Ok(has_happened)
    }

    /// Limits the duration of a turn while children are checked at intervals.
    pub(crate) fn limited(&self, patience: Option<Duration>) -> Option<Duration> {
        const POLL_INTERVAL: Duration = Duration::from_millis(20);
        let is_looked_at = self.is_blind && self.ended.is_none();
        if is_looked_at { Some(patience.map_or(POLL_INTERVAL, |time| time.min(POLL_INTERVAL))) } else { patience }
    }

    /// Reaps the child if it has ended.
    fn reap_if_ended(&mut self, n: usize) -> io::Result<()> {
        match self.children[n].try_wait() {
            Err(error) if self.sent.is_some() && is_of_a_signal(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    fn feed(&mut self) -> io::Result<()> {
        let done = match &mut self.drive.input {
            Some(input) => input.write()?,
            None => false,
        };
        if done {
            self.input_left += self.end_input();
        }
        Ok(())
    }

    /// Closes the input, and returns the number of bytes that were not written.
    fn end_input(&mut self) -> usize {
        self.drive.input.take().map_or(0, |input| input.bytes.len() - input.written)
    }

    /// Reads from a stream that is ready.
    fn take(&mut self, n: usize) -> io::Result<()> {
        // A read follows even if the poll reported only POLLHUP: bytes that the last writer wrote just before it closed may be
        // there, because the kernel checks both without a lock (pipe_poll() in fs/pipe.c).
        /// After so many reads, the other streams and the clock get their turn.
        const READS: usize = 16;
        for _ in 0..READS {
            let more = self.read(n)? == Progress::More;
            if !more || !self.drive.readers[n].as_ref().is_some_and(Reader::is_large) {
                break;
            }
        }
        Ok(())
    }

    /// Reads once. More than the limit kills the children, if that is set.
    fn read(&mut self, n: usize) -> io::Result<Progress> {
        let Some(reader) = &mut self.drive.readers[n] else { return Ok(Progress::End) };
        match reader.read()? {
            Progress::TooMuch => {
                if !matches!(self.stage, Stage::Killed) {
                    self.stage = Stage::Killed;
                    self.signal(SIGKILL)?;
                }
                Ok(Progress::More)
            }
            progress => Ok(progress),
        }
    }
}
