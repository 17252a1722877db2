//! The loop that feeds children, reads what they write, and ends them when it is time.

use super::Timing;
use super::reader::{Progress, Reader};
use crate::child::Child;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, write};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;

/// The streams of one or several children, and when it is enough.
pub(crate) struct Drive {
    pub(crate) readers: [Option<Reader>; 2],
    pub(crate) input: Option<Input>,
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
        while self.written < self.bytes.len() {
            match write(&self.pipe, &self.bytes[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                // It does not want to know.
                Err(Errno::PIPE) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// What came of it.
pub(crate) struct Driven {
    pub(crate) readers: [Option<Reader>; 2],
    pub(crate) input_left: usize,
    pub(crate) timed_out: bool,
    pub(crate) held_open: bool,
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
    /// When the last child was found to have ended.
    ended: Option<Instant>,
    /// Bytes read after there was no more time for them.
    late: usize,
}

impl Drive {
    /// Reads to the ends of the streams.
    pub(crate) fn plain(stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> Self {
        let readers = [stdout, stderr].map(|stream| stream.map(|fd| Reader::new(fd, usize::MAX, false)));
        Self { readers, input: None, timing: Timing::ENDLESS, watches: false }
    }

    /// Runs until the streams have ended, or, where that is watched, until the children have and there is no more patience with
    /// the streams. The children may still have to be waited for.
    ///
    /// # Errors
    /// A launch that failed, and errors of reading; the children have been killed then.
    pub(crate) fn run(self, children: &mut [Child]) -> io::Result<Driven> {
        let deadline = self.timing.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let mut run = Run {
            drive: self,
            children,
            stage: Stage::Runs(deadline),
            timed_out: false,
            input_left: 0,
            ended: None,
            late: 0,
        };
        match run.go() {
            Ok(held_open) => {
                let input_left = run.input_left + run.end_input();
                Ok(Driven { readers: run.drive.readers, input_left, timed_out: run.timed_out, held_open })
            }
            Err(error) => {
                run.signal(SIGKILL);
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
                return Ok(false);
            }
            let patience = self.patience()?;
            if !self.turn(patience, blind)? && self.ended.is_some() && patience == Some(Duration::ZERO) {
                return Ok(true);
            }
            if self.late > 4 << 20 {
                return Ok(true);
            }
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
            self.signal(next);
            self.stage = match next {
                SIGKILL => Stage::Killed,
                _ => Stage::Asked(now.checked_add(self.drive.timing.grace)),
            };
        }
    }

    /// To those that still run, and with each its process group if it leads one.
    fn signal(&mut self, signal: i32) {
        /// A child that is stopped before exec does not come to it.
        const UNTIL_EXEC: Duration = Duration::from_millis(100);
        for child in self.children.iter_mut().filter(|child| child.is_running()) {
            // Killed before exec it would have failed to start, where its time was up. (An error is found again when it is
            // waited for.)
            let _ = child.wait_exec_timeout(UNTIL_EXEC);
            // One that has just ended cannot be told, and one that may not be told cannot be helped.
            let _ = if child.leads_group() { child.signal_group(signal) } else { child.signal(signal) };
            if signal != SIGKILL {
                let _ = if child.leads_group() { child.signal_group(SIGCONT) } else { child.signal(SIGCONT) };
            }
        }
    }

    /// Sleeps until something happens and answers it; false if nothing did.
    fn turn(&mut self, patience: Option<Duration>, blind: bool) -> io::Result<bool> {
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
            Err(Errno::INTR) => return Ok(true),
            answer => answer?,
        };
        let events: Vec<_> = what.into_iter().zip(fds.iter().map(PollFd::revents)).collect();
        drop(fds);
        let mut any = false;
        for (what, events) in events.into_iter().filter(|(_, events)| !events.is_empty()) {
            any = true;
            match what {
                What::Input => self.feed()?,
                What::Output(n) => self.take(n, events)?,
                What::End(n) => _ = self.children[n].try_wait()?,
            }
        }
        if blind {
            for child in self.children.iter_mut().filter(|child| child.is_running()) {
                child.try_wait()?;
            }
        }
        if self.drive.watches && self.ended.is_none() && !self.children.iter().any(Child::is_running) {
            self.ended = Some(Instant::now());
            // Nobody is left who would read it.
            self.input_left += self.end_input();
            any = true;
        }
        Ok(any)
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

    fn take(&mut self, n: usize, events: PollFlags) -> io::Result<()> {
        let Some(reader) = &mut self.drive.readers[n] else { return Ok(()) };
        if events & (PollFlags::IN | PollFlags::HUP) == PollFlags::HUP {
            // Hung up and nothing to read: a read would only say so again.
            reader.close();
            return Ok(());
        }
        /// The other streams, and the clock, are looked at again after so many reads.
        const READS: usize = 16;
        for _ in 0..READS {
            if self.ended.is_some() {
                self.late += 64 << 10;
            }
            match reader.read()? {
                Progress::More if reader.is_large() => {}
                Progress::TooMuch if !matches!(self.stage, Stage::Killed) => {
                    self.stage = Stage::Killed;
                    self.signal(SIGKILL);
                    break;
                }
                _ => break,
            }
        }
        Ok(())
    }
}
