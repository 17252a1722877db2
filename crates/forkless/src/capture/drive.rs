//! The loop that feeds children, reads what they write, and ends them when it is time.

use super::Timing;
use super::reader::{Progress, Reader};
use crate::child::Child;
use crate::error::Error;
use crate::quiet::write_quietly;
use crate::step::Step;
use forkless_core::planted;
use forkless_core::sys::signal::{SIGCONT, SIGKILL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ioctl_fionread};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The streams of one or several children, and when it is enough.
pub(crate) struct Drive {
    pub(crate) readers: [Option<Reader>; 2],
    pub(crate) input: Option<Input>,
    /// Bytes for which there is no pipe.
    pub(crate) input_left: usize,
    pub(crate) timing: Timing,
    /// It matters when the children end.
    pub(crate) watches: bool,
}

/// What is left to be written.
pub(crate) struct Input {
    pipe: OwnedFd,
    bytes: Arc<[u8]>,
    written: usize,
}

impl Input {
    pub(crate) fn new(pipe: OwnedFd, bytes: Arc<[u8]>) -> Self {
        Self { pipe, bytes, written: 0 }
    }

    /// As much as the pipe takes now; true when there is no more to do.
    fn write(&mut self) -> io::Result<bool> {
        /// A reader that keeps up would keep us here, away from the other streams and the clock.
        const TURN: usize = 1 << 20;
        let until = self.bytes.len().min(self.written + TURN);
        while self.written < until {
            match write_quietly(&self.pipe, &self.bytes[self.written..until]) {
                Ok(count) => self.written += count,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock => return Ok(false),
                    // It does not want to know.
                    ErrorKind::BrokenPipe => return Ok(true),
                    _ => return Err(error),
                },
            }
        }
        Ok(until == self.bytes.len())
    }
}

/// What came of it.
pub(crate) struct Driven {
    pub(crate) readers: [Option<Reader>; 2],
    pub(crate) input_left: usize,
    pub(crate) timed_out: bool,
    pub(crate) held_open: bool,
    /// The last signal that the children were sent.
    pub(crate) sent: Option<i32>,
}

impl Driven {
    /// How a child ended. One that we have killed so early that it never came to its program was not one that failed to start.
    pub(crate) fn status(&self, waited: io::Result<ExitStatus>) -> io::Result<ExitStatus> {
        match (waited, self.sent) {
            (Err(error), Some(signal)) if is_of_a_signal(&error) && !planted!("capture-no-time-is-a-failure") => {
                Ok(ExitStatus::from_raw(signal))
            }
            (waited, _) => waited,
        }
    }
}

/// Was the child killed before it could execute the program?
fn is_of_a_signal(error: &io::Error) -> bool {
    Error::of(error).is_some_and(|error| error.errno().is_none() && error.step() != Step::Check)
}

/// How far the children have been told to end.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Until this time, if there is one.
    Runs(Option<Instant>),
    /// They were asked to, and are killed at this time.
    Asked(Option<Instant>),
    Killed,
}

/// The state of the loop.
struct Run<'a> {
    drive: Drive,
    children: &'a mut [Child],
    stage: Stage,
    timed_out: bool,
    input_left: usize,
    sent: Option<i32>,
    /// When the last child was found to have ended.
    ended: Option<Instant>,
}

impl Drive {
    /// Reads to the ends of the streams.
    pub(crate) fn plain(stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> Self {
        let readers = [stdout, stderr].map(|stream| stream.map(|fd| Reader::new(fd, usize::MAX, false)));
        Self { readers, input: None, input_left: 0, timing: Timing::ENDLESS, watches: false }
    }

    /// Runs until the streams have ended, or, where that is watched, until the children have and there is no more patience with
    /// the streams. The children may still have to be waited for.
    ///
    /// # Errors
    /// A launch that failed, and errors of reading; the children have been killed and reaped then.
    pub(crate) fn run(self, children: &mut [Child]) -> io::Result<Driven> {
        let deadline = self.timing.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let input_left = self.input_left;
        let stage = Stage::Runs(deadline);
        let mut run = Run { drive: self, children, stage, timed_out: false, input_left, sent: None, ended: None };
        match run.go() {
            Ok(held_open) => {
                let input_left = run.input_left + run.end_input();
                let Run { drive, timed_out, sent, .. } = run;
                Ok(Driven { readers: drive.readers, input_left, timed_out, held_open, sent })
            }
            Err(error) => {
                if run.signal(SIGKILL).is_ok() {
                    // All that can be waited for; why that fails, if it does, is not what is to be told.
                    run.children.iter_mut().for_each(|child| _ = child.wait());
                }
                Err(error)
            }
        }
    }
}

/// The descriptors of one poll, by what they are.
#[derive(Debug, Clone, Copy)]
enum What {
    Input,
    Output(usize),
    End(usize),
}

impl Run<'_> {
    /// Gives whether somebody else holds the streams open.
    fn go(&mut self) -> io::Result<bool> {
        if let Some(input) = &self.drive.input {
            let flags = fcntl_getfl(&input.pipe)?;
            fcntl_setfl(&input.pipe, flags | OFlags::NONBLOCK)?;
        }
        if self.drive.watches {
            // The program, which may open its output for reading, must not get us to wait for bytes that it has taken back.
            self.drive.readers.iter_mut().flatten().for_each(Reader::never_wait);
        }
        // Most programs take a short input at once.
        self.feed()?;
        let blind = self.drive.watches && self.children.iter_mut().any(|child| child.pidfd_or_open().is_err());
        loop {
            let reads = self.drive.readers.iter().flatten().any(|reader| reader.open().is_some());
            let busy = reads || self.drive.input.is_some();
            if !self.drive.watches && !busy {
                return Ok(false);
            }
            if self.drive.watches && self.ended.is_some() && !reads {
                self.end_groups()?;
                return Ok(false);
            }
            let patience = self.patience()?;
            if self.ended.is_some() && patience == Some(Duration::ZERO) {
                return self.drain();
            }
            self.turn(patience, blind)?;
        }
    }

    /// Takes what is in the streams now, and with it all that the children have written, who have ended; however much others may
    /// go on writing. Gives whether these are still there.
    fn drain(&mut self) -> io::Result<bool> {
        /// As much as a pipe is made to hold at most, unless root makes it.
        const UNKNOWN: u64 = 1 << 20;
        self.end_groups()?;
        let count = if planted!("capture-not-drained") { 0 } else { self.drive.readers.len() };
        for n in 0..count {
            let Some(reader) = &mut self.drive.readers[n] else { continue };
            reader.never_wait();
            let Some(fd) = reader.open() else { continue };
            let until = reader.taken() + ioctl_fionread(fd).unwrap_or(UNKNOWN);
            // Once more than is needed: it may be the end.
            while self.read(n)? == Progress::More && self.drive.readers[n].as_ref().is_some_and(|r| r.taken() <= until)
            {
            }
        }
        Ok(self.drive.readers.iter().flatten().any(|reader| reader.open().is_some()))
    }

    /// The children have ended: if that was, or is by now, for want of time, so do those that they have left in their groups.
    fn end_groups(&mut self) -> io::Result<()> {
        match self.stage {
            Stage::Runs(until) if until.is_none_or(|until| until > Instant::now()) => Ok(()),
            _ => self.signal(SIGKILL),
        }
    }

    /// How long the next turn may take; ends the children if it is time.
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

    /// To those that still run, and with each its process group if it leads one; SIGKILL also to the groups of those that do not.
    ///
    /// # Errors
    /// One that may not be killed: it would be waited for in vain.
    fn signal(&mut self, signal: i32) -> io::Result<()> {
        /// A child that is stopped before exec does not come to it.
        const UNTIL_EXEC: Duration = Duration::from_millis(100);
        if self.children.iter().any(Child::is_running) {
            self.sent = Some(signal);
        }
        let mut told = Ok(());
        for child in self.children.iter_mut() {
            // Killed before exec it would have failed to start, where its time was up. (An error is found again when it is
            // waited for.)
            let executed = !child.is_running() || child.wait_exec_timeout(UNTIL_EXEC).unwrap_or(true);
            if child.leads_group() && (child.is_running() || signal == SIGKILL && !planted!("capture-group-left")) {
                // Nobody may be left of it, or nobody that we may signal; before Linux 6.9 it cannot be found without its leader.
                let _ = child.signal_group(signal);
            }
            // Before exec it may not lead its group yet.
            if !child.leads_group() || !executed || signal == SIGKILL {
                let answer = child.signal(signal);
                if signal == SIGKILL {
                    told = told.and(answer);
                }
            }
            if signal != SIGKILL {
                let _ = if child.leads_group() { child.signal_group(SIGCONT) } else { child.signal(SIGCONT) };
            }
        }
        told
    }

    /// Sleeps until something happens, or for so long, and answers it.
    fn turn(&mut self, patience: Option<Duration>, blind: bool) -> io::Result<()> {
        /// How often children are looked at that cannot be polled.
        const LOOK: Duration = Duration::from_millis(20);
        let patience =
            if blind && self.ended.is_none() { Some(patience.map_or(LOOK, |time| time.min(LOOK))) } else { patience };
        let mut what = Vec::with_capacity(4);
        let mut fds = Vec::with_capacity(4);
        if let Some(input) = &self.drive.input {
            what.push(What::Input);
            fds.push(PollFd::new(&input.pipe, PollFlags::OUT));
        }
        for (n, reader) in self.drive.readers.iter().enumerate() {
            if let Some(fd) = reader.as_ref().and_then(Reader::open) {
                what.push(What::Output(n));
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        if self.drive.watches && self.ended.is_none() {
            for (n, child) in self.children.iter().enumerate().filter(|(_, child)| child.is_running()) {
                if let Some(pidfd) = child.pidfd() {
                    what.push(What::End(n));
                    fds.push(PollFd::from_borrowed_fd(pidfd, PollFlags::IN));
                }
            }
        }
        let limit = patience.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, limit.as_ref()) {
            Err(Errno::INTR) if !planted!("capture-interrupted") => return Ok(()),
            answer => answer?,
        };
        let events: Vec<_> = what.into_iter().zip(fds.iter().map(PollFd::revents)).collect();
        drop(fds);
        for (what, _) in events.into_iter().filter(|(_, events)| !events.is_empty()) {
            match what {
                What::Input => self.feed()?,
                What::Output(n) => self.take(n)?,
                What::End(n) => self.look(n)?,
            }
        }
        if blind {
            (0..self.children.len()).try_for_each(|n| self.look(n))?;
        }
        if self.drive.watches && self.ended.is_none() && !self.children.iter().any(Child::is_running) {
            self.ended = Some(Instant::now());
            // Nobody is left who would read it.
            self.input_left += self.end_input();
        }
        Ok(())
    }

    /// Has a child ended?
    fn look(&mut self, n: usize) -> io::Result<()> {
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

    /// Closes the input; gives how much of it was not written.
    fn end_input(&mut self) -> usize {
        self.drive.input.take().map_or(0, |input| input.bytes.len() - input.written)
    }

    /// Reads of a stream that has something.
    fn take(&mut self, n: usize) -> io::Result<()> {
        // Also where it has only been hung up: what is written just before the last writer goes may be there nevertheless, since
        // the kernel looks at both without a lock (pipe_poll() in fs/pipe.c).
        /// The other streams, and the clock, are looked at again after so many reads.
        const READS: usize = 16;
        for _ in 0..READS {
            let more = self.read(n)? == Progress::More;
            if !more || !self.drive.readers[n].as_ref().is_some_and(Reader::is_large) {
                break;
            }
        }
        Ok(())
    }

    /// One read; too much is the end of the children.
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
