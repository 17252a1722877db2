//! Taking jobs from the source, and launching them.

use super::{Engine, PAUSE, Supply};
use crate::control::Flow;
use crate::job::{Job, JobPlace, Stdin};
use crate::launch::{Launched, Ready, is_killed_before_exec, is_lack};
use crate::options::Output;
use crate::output::Capture;
use crate::pool::{Pool, PoolAnswer};
use crate::slot::{Feed, Running, Slot, Starting, Waiting};
use crate::source::{Next, Sink, Stream};
use crate::summary::{Ended, Ending};
use crate::wake::{Token, WakeKind};
use forkless::Child;
use rustix::fs::{OFlags, fcntl_setfl};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

/// How many jobs may end without a process (in a dry run, not found, done before) before events are handled again.
const AT_ONCE: usize = 64;

/// A job is given up after so many children that were killed before they ran the program: something kills each of them.
const MOST_KILLS_BEFORE_EXEC: u32 = 10;

/// What a source has given.
#[allow(clippy::large_enum_variant, reason = "a box would be a request for memory for each job")]
enum Pulled {
    Job(Waiting),
    /// A job that an earlier run has done.
    Done,
    /// No resources for a job.
    Lack,
    /// No job now, or none at all.
    Nothing,
}

impl Engine<'_> {
    /// Launches jobs while slots are free. Returns whether more could be started at once.
    pub(super) fn start(&mut self) -> bool {
        if self.flow > Flow::Continue {
            return false;
        }
        if !self.check_limits() {
            self.look_ahead();
            return false;
        }
        for slot in 0..self.slots.len() {
            if self.waiting == 0 {
                break;
            }
            if !matches!(self.slots[slot], Slot::Waiting(_)) {
                continue;
            }
            if let Slot::Waiting(waiting) = std::mem::replace(&mut self.slots[slot], Slot::Free) {
                self.waiting -= 1;
                if !self.launch(*waiting) || self.flow > Flow::Continue || !self.check_limits() {
                    return false;
                }
            }
        }
        let mut done = 0;
        while self.flow == Flow::Continue
            && self.input == Supply::MayHave
            && self.running + self.waiting < self.options.slots
            && !self.is_window_full()
        {
            if self.ended.len() >= AT_ONCE || done >= 64 * AT_ONCE {
                return true;
            }
            let Some(slot) = self.free_slot() else { break };
            if !self.check_limits() {
                break;
            }
            match self.pull(slot) {
                Pulled::Job(waiting) => {
                    if !self.launch(waiting) {
                        break;
                    }
                }
                Pulled::Lack => break,
                Pulled::Done => done += 1,
                Pulled::Nothing => {}
            }
        }
        // A job that failed without a process is tried again.
        self.waiting > 0 && self.flow == Flow::Continue && self.check_limits()
    }

    /// The next job of the source.
    fn pull(&mut self, slot: usize) -> Pulled {
        let place = JobPlace { seq: self.seq + 1, slot: slot + 1 };
        match self.source.next(place) {
            Ok(Next::Job(job)) => {
                self.seq += 1;
                self.starved = None;
                if self.options.done.contains(place.seq) {
                    self.summary.done_before += 1;
                    self.source.closed(place.seq);
                    return Pulled::Done;
                }
                let waiting = Waiting { job, place, tries: 0, since: None, kills_before_exec: 0 };
                return Pulled::Job(waiting);
            }
            Ok(Next::Skip(count)) => {
                self.seq += count;
                self.summary.done_before += count;
                return Pulled::Done;
            }
            Ok(Next::Later) => self.wait_for_source(),
            Ok(Next::Lacks(error)) => {
                self.source_lacks(error);
                return Pulled::Lack;
            }
            Ok(Next::End) => self.input = Supply::End,
            Err(error) => self.source_failed(error),
        }
        Pulled::Nothing
    }

    /// Takes the next job while the run waits only for a delay: if there is none, the run is over now.
    fn look_ahead(&mut self) {
        let is_idle = self.running + self.waiting == 0 && !self.is_window_full();
        if !is_idle || self.delayed.is_none() || self.options.delay.is_zero() {
            return;
        }
        while self.flow == Flow::Continue && self.input == Supply::MayHave {
            let Some(slot) = self.free_slot() else { return };
            match self.pull(slot) {
                Pulled::Job(waiting) => {
                    self.slots[slot] = Slot::Waiting(Box::new(waiting));
                    self.waiting += 1;
                    return;
                }
                Pulled::Lack => return,
                Pulled::Done | Pulled::Nothing => {}
            }
        }
    }

    /// The lowest free slot; `None`: all that are free are above the limit.
    fn free_slot(&mut self) -> Option<usize> {
        let free = self.slots.iter().position(|slot| matches!(slot, Slot::Free));
        let free = free.unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        (free < self.options.slots).then_some(free)
    }

    pub(super) fn source_failed(&mut self, error: io::Error) {
        self.fail(error);
        self.stop(Flow::Soon);
        self.summary.unread = true;
    }

    /// Pauses because the source lacks resources, or fails with its error when the patience is used up.
    fn source_lacks(&mut self, error: io::Error) {
        let now = Instant::now();
        let is_idle = self.running + self.waiting == 0;
        if !is_idle {
            self.starved = None;
        }
        let since = *self.starved.get_or_insert(now);
        if is_idle && now.saturating_duration_since(since) >= self.options.patience {
            return self.source_failed(error);
        }
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
    }

    fn wait_for_source(&mut self) {
        let answer = match self.source.waits_for() {
            Some(fd) => self.wake.add(fd, Token::of_run(WakeKind::Source)),
            None => Err(io::Error::other("the source of jobs returned Later without a descriptor to wait for")),
        };
        match answer {
            Ok(()) => self.input = Supply::Later,
            // Already watched: the streams of jobs wait for it, too.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.input = Supply::Later,
            // A regular file is always readable.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => self.source_failed(error),
        }
    }

    /// Launches a job. Returns false if the kernel has no resources for it: the job waits then.
    pub(super) fn launch(&mut self, mut waiting: Waiting) -> bool {
        if self.options.dry_run {
            return self.pretend(waiting);
        }
        if self.options.remote.is_some() {
            self.send_away(waiting);
            return true;
        }
        if self.options.output == Output::Inherit && !waiting.job.head.is_empty() {
            self.announce(&mut waiting);
        }
        let slot = waiting.place.slot - 1;
        let copies = match self.copies(&waiting.job, waiting.place.seq) {
            Ok(copies) => copies,
            Err(error) => return self.hold(waiting, error),
        };
        let (clock, started) = (SystemTime::now(), Instant::now());
        let ready = self.launcher.prepare(&waiting.job, &mut self.options, started);
        let pool = self.pool.as_mut().filter(|_| !matches!(waiting.job.stdin, Stdin::Stream(_)));
        match (ready, pool) {
            (Ok(ready), Some(pool)) => {
                pool.send(slot, ready);
                self.running += 1;
                self.slots[slot] = Slot::Starting(Box::new(Starting { waiting, copies, started, clock }));
                true
            }
            (ready, _) => {
                let launched = ready.and_then(Ready::launch);
                self.begin(Starting { waiting, copies, started, clock }, launched)
            }
        }
    }

    /// A thread has launched a job, or failed to.
    pub(super) fn answered(&mut self, PoolAnswer { slot, launched }: PoolAnswer) {
        if let Slot::Starting(starting) = std::mem::replace(&mut self.slots[slot], Slot::Free) {
            self.running -= 1;
            self.begin(*starting, launched);
        }
    }

    /// Waits for the threads that launch a job now.
    pub(super) fn await_launches(&mut self) {
        while let Some(answer) = self.pool.as_mut().and_then(Pool::await_answer) {
            self.answered(answer);
        }
    }

    /// Takes what the threads have launched.
    pub(super) fn take_launches(&mut self) {
        while let Some(answer) = self.pool.as_mut().and_then(Pool::take_answer) {
            self.answered(answer);
        }
    }

    /// The rest of a launch. Returns as [`launch`](Self::launch).
    fn begin(&mut self, starting: Starting, launched: io::Result<Launched>) -> bool {
        let Starting { waiting, copies, started, clock } = starting;
        let slot = waiting.place.slot - 1;
        let launched = match launched {
            Ok(launched) => launched,
            Err(error) if is_lack(&error) => return self.hold(waiting, error),
            Err(error) if is_killed_before_exec(&error) => return self.keep_killed(waiting, error),
            Err(error) => {
                self.end_unstarted(waiting, Ending::NotStarted(error), false);
                return true;
            }
        };
        self.pause = PAUSE;
        self.turn = self.turn.wrapping_add(1);
        let Waiting { mut job, place, tries, kills_before_exec, .. } = waiting;
        let mut child = launched.child;
        self.events.started(&job, place, child.id());
        let token = Token { kind: WakeKind::Child, slot, turn: self.turn };
        let watched = child.pidfd().is_some_and(|pidfd| self.wake.add(pidfd, token).is_ok());
        self.unwatched += usize::from(!watched);
        self.running += 1;
        let capture = self.capture(&mut child, copies);
        let feed = self.feed_of(&mut job, &mut child);
        let (turn, fed) = (self.turn, feed.is_some());
        let captured = capture.is_some();
        self.slots[slot] = Slot::Running(Box::new(Running {
            job,
            place,
            tries: tries + 1,
            turn,
            child,
            shell: launched.shell,
            started,
            clock,
            watched,
            capture,
            feed,
            killing: None,
            timed_out: false,
            signalled: false,
            kills_before_exec,
            over: None,
        }));
        if captured || fed {
            self.watch_output(slot, started);
            self.let_go(slot);
        }
        if fed {
            self.feed(slot);
        }
        self.launched(started, slot);
        true
    }

    /// Writes the head of a job whose output is not captured: the output follows at once.
    fn announce(&mut self, waiting: &mut Waiting) {
        let head = std::mem::take(&mut waiting.job.head);
        let written = self.sink.write(waiting.place.seq, Stream::Out, &head).and_then(|()| self.sink.flush());
        if let Err(error) = written {
            self.sink_failed(error);
        }
    }

    /// Makes the capture of a job's output.
    fn capture(&mut self, child: &mut Child, copies: [Option<File>; 2]) -> Option<Box<Capture>> {
        if self.options.output == Output::Inherit {
            return None;
        }
        let (out, err) = (child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from));
        Some(Box::new(Capture::new(out, err, copies, self.options.most_output)))
    }

    /// Makes the files of the job's results. Fails only for lack of resources; other errors are reported at the end.
    pub(super) fn copies(&mut self, job: &Job, seq: u64) -> io::Result<[Option<File>; 2]> {
        let Some(directory) = job.results.as_ref().filter(|_| self.options.output != Output::Inherit) else {
            return Ok([None, None]);
        };
        let make = || {
            std::fs::create_dir_all(directory)?;
            std::fs::write(directory.join("seq"), seq.to_string())?;
            io::Result::Ok([File::create(directory.join("stdout"))?, File::create(directory.join("stderr"))?])
        };
        match make() {
            Ok(copies) => Ok(copies.map(Some)),
            Err(error) if is_lack(&error) => Err(error),
            Err(error) => {
                self.results_failed(seq, &error);
                Ok([None, None])
            }
        }
    }

    /// What is to be written to the job's standard input.
    fn feed_of(&mut self, job: &mut Job, child: &mut Child) -> Option<Feed> {
        let pipe = child.stdin.take()?;
        let (bytes, goes_on) = match &mut job.stdin {
            Stdin::Bytes(bytes) => (bytes, false),
            Stdin::Stream(bytes) => (bytes, true),
            _ => return None,
        };
        if let Err(error) = fcntl_setfl(&pipe, OFlags::NONBLOCK) {
            self.fail(error.into());
            return None;
        }
        Some(Feed { pipe, bytes: std::mem::take(bytes), at: 0, goes_on })
    }

    /// Keeps a job that the kernel has no resources for now. Returns false, as [`launch`](Self::launch) then does.
    pub(super) fn hold(&mut self, mut waiting: Waiting, error: io::Error) -> bool {
        let now = Instant::now();
        // Jobs that are still being launched hold no resources that their end could free.
        let running = self.running - self.pool.as_ref().map_or(0, Pool::in_flight);
        if running > 0 {
            // The end of another job may free what is missing.
            waiting.since = None;
            self.source.held(waiting.place.seq);
        }
        let since = *waiting.since.get_or_insert(now);
        let is_over = now.saturating_duration_since(since) >= self.options.patience;
        if running == 0 && is_over && self.flow == Flow::Continue {
            self.end_unstarted(waiting, Ending::NotStarted(error), false);
            self.stop(Flow::Soon);
            return false;
        }
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
        self.waiting += 1;
        let slot = waiting.place.slot - 1;
        self.slots[slot] = Slot::Waiting(Box::new(waiting));
        false
    }

    /// Keeps a job whose child was [killed](is_killed_before_exec) before it could run the program. If the run gets the same
    /// signal and ends, the job is counted as skipped; otherwise it is launched again. Returns as [`hold`](Self::hold).
    pub(super) fn keep_killed(&mut self, mut waiting: Waiting, error: io::Error) -> bool {
        waiting.kills_before_exec += 1;
        if waiting.kills_before_exec < MOST_KILLS_BEFORE_EXEC {
            return self.hold(waiting, error);
        }
        // Not in the log: it has not run.
        self.end_unstarted(waiting, Ending::NotStarted(error), true);
        true
    }

    /// Shows a job in a dry run.
    fn pretend(&mut self, mut waiting: Waiting) -> bool {
        waiting.job.head = std::mem::take(&mut waiting.job.text);
        waiting.job.head.push(b'\n');
        self.end_unstarted(waiting, Ending::Exited(0), false);
        true
    }

    /// The end of a job without a process. One that was `cut_short` has no line in the log.
    fn end_unstarted(&mut self, waiting: Waiting, ending: Ending, cut_short: bool) {
        let Waiting { job, place, tries, .. } = waiting;
        let (started, runtime) = (SystemTime::now(), Duration::ZERO);
        let ended =
            Ended { job, place, ending, timed_out: false, cut_short, started, runtime, tries: tries + 1, received: 0 };
        self.end(ended, None);
    }
}
