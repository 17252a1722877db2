//! The loop: reap, launch, write, sleep.

use crate::control::Control;
use crate::launch::{Launcher, is_lack, is_of_launch};
use crate::options::Options;
use crate::slot::{Running, Slot, Waiting};
use crate::source::{Events, Flow, Next, Place, Sink, Source};
use crate::summary::{Ended, Ending, Summary};
use crate::wake::{Kind, Token, Wake};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant, SystemTime};

/// Runs all jobs of a source.
///
/// Returns when every job that was launched has ended, and its output has been written.
///
/// # Errors
/// The descriptors that the run itself needs cannot be made. All that goes wrong later is in the summary.
pub fn run(
    options: Options,
    source: &mut dyn Source,
    events: &mut dyn Events,
    sink: &mut dyn Sink,
) -> io::Result<Summary> {
    let mut engine = Engine::new(options, source, events, sink)?;
    engine.run()?;
    Ok(engine.summary)
}

/// How long to wait before a launch is tried again that the kernel had no resources for.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(1);

/// How often jobs are asked for their end whose pidfds cannot be watched.
const ASK: Duration = Duration::from_millis(10);

struct Engine<'a> {
    options: Options,
    source: &'a mut dyn Source,
    events: &'a mut dyn Events,
    sink: &'a mut dyn Sink,
    control: Control,
    wake: Wake,
    launcher: Launcher,
    slots: Vec<Slot>,
    running: usize,
    waiting: usize,
    /// How many of those that run have no watched pidfd.
    unwatched: usize,
    /// The number of the last job.
    seq: u64,
    turn: u32,
    input: Supply,
    flow: Flow,
    /// No launch before this, because the kernel had no resources.
    not_before: Option<Instant>,
    pause: Duration,
    summary: Summary,
}

/// Whether the source has jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Supply {
    MayHave,
    /// It waits for its descriptor.
    Later,
    End,
}

impl<'a> Engine<'a> {
    fn new(
        mut options: Options,
        source: &'a mut dyn Source,
        events: &'a mut dyn Events,
        sink: &'a mut dyn Sink,
    ) -> io::Result<Self> {
        let control = options.control.take().map_or_else(Control::new, Ok)?;
        let wake = Wake::new()?;
        wake.add(&control, Token::of_run(Kind::Control))?;
        options.slots = options.slots.max(1);
        Ok(Self {
            options,
            source,
            events,
            sink,
            control,
            wake,
            launcher: Launcher::default(),
            slots: Vec::new(),
            running: 0,
            waiting: 0,
            unwatched: 0,
            seq: 0,
            turn: 0,
            input: Supply::MayHave,
            flow: Flow::Continue,
            not_before: None,
            pause: *PAUSES.start(),
            summary: Summary::default(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            self.obey();
            self.start();
            if let Err(error) = self.sink.flush() {
                self.sink_failed(error);
            }
            if self.running == 0 && (self.flow > Flow::Continue || self.input == Supply::End && self.waiting == 0) {
                break;
            }
            self.wake.sleep(self.limit(), &mut ready)?;
            for token in &ready {
                self.handle(*token);
            }
            if self.unwatched > 0 {
                self.ask_unwatched();
            }
        }
        self.finish();
        Ok(())
    }

    /// How long to sleep at most.
    fn limit(&self) -> Option<Duration> {
        let now = Instant::now();
        let retry = self.not_before.filter(|_| self.flow == Flow::Continue);
        let retry = retry.map(|until| until.saturating_duration_since(now));
        let ask = (self.unwatched > 0).then_some(ASK);
        [retry, ask].into_iter().flatten().min()
    }

    fn handle(&mut self, token: Token) {
        match token.kind {
            Kind::Control => self.control.slept(),
            Kind::Source => {
                if let Some(fd) = self.source.waits_for() {
                    self.wake.remove(fd);
                }
                self.input = Supply::MayHave;
            }
            Kind::Child => {
                if matches!(&self.slots[token.slot], Slot::Running(job) if job.turn == token.turn) {
                    self.reap(token.slot);
                }
            }
            Kind::Out | Kind::Err | Kind::In => {}
        }
    }

    /// Does what the [`Control`] asks for.
    fn obey(&mut self) {
        self.options.slots = self.control.slots(self.options.slots);
        self.stop(self.control.flow());
        if let Some(signal) = self.control.take_signal() {
            for slot in &mut self.slots {
                if let Slot::Running(running) = slot {
                    send(running, signal);
                }
            }
        }
    }

    fn stop(&mut self, flow: Flow) {
        if flow > self.flow {
            self.flow = flow;
            self.summary.stopped = Some(flow);
        }
    }

    fn fail(&mut self, error: io::Error) {
        // The same error may come again for each job.
        let words = error.to_string();
        if !self.summary.errors.iter().any(|known| known.to_string() == words) {
            self.summary.errors.push(error);
        }
    }

    fn sink_failed(&mut self, error: io::Error) {
        let closed = error.kind() == io::ErrorKind::BrokenPipe;
        self.fail(error);
        self.stop(if closed { Flow::Now } else { Flow::Soon });
    }

    /// Launches jobs while slots are free.
    fn start(&mut self) {
        if let Some(until) = self.not_before {
            if Instant::now() < until {
                return;
            }
            self.not_before = None;
        }
        for slot in 0..self.slots.len() {
            if self.waiting == 0 || self.flow > Flow::Continue {
                break;
            }
            if matches!(self.slots[slot], Slot::Waiting(_)) {
                let Slot::Waiting(waiting) = std::mem::replace(&mut self.slots[slot], Slot::Free) else { continue };
                self.waiting -= 1;
                if !self.launch(*waiting) {
                    return;
                }
            }
        }
        while self.flow == Flow::Continue
            && self.input == Supply::MayHave
            && self.running + self.waiting < self.options.slots
        {
            let Some(slot) = self.free_slot() else { break };
            let place = Place { seq: self.seq + 1, slot: slot + 1 };
            match self.source.next(place) {
                Ok(Next::Job(job)) => {
                    self.seq += 1;
                    if !self.launch(Waiting { job, place, tries: 0, since: None }) {
                        break;
                    }
                }
                Ok(Next::Later) => self.wait_for_source(),
                Ok(Next::End) => self.input = Supply::End,
                Err(error) => {
                    self.fail(error);
                    self.stop(Flow::Soon);
                    self.summary.unread = true;
                }
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

    fn wait_for_source(&mut self) {
        let token = Token::of_run(Kind::Source);
        let answer = match self.source.waits_for() {
            Some(fd) => self.wake.add(fd, token),
            None => Err(io::Error::other("the source of the jobs waits for nothing")),
        };
        match answer {
            Ok(()) => self.input = Supply::Later,
            // A regular file is always readable.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => {
                self.fail(error);
                self.stop(Flow::Soon);
                self.summary.unread = true;
            }
        }
    }

    /// Launches a job. False if the kernel has no resources for it: it waits then.
    fn launch(&mut self, waiting: Waiting) -> bool {
        let slot = waiting.place.slot - 1;
        let (clock, started) = (SystemTime::now(), Instant::now());
        let launched = match self.launcher.launch(&waiting.job, &mut self.options) {
            Ok(launched) => launched,
            Err(error) if is_lack(&error) => return self.hold(waiting, error),
            Err(error) => {
                let Waiting { job, place, tries, .. } = waiting;
                let ending = Ending::NotStarted(error);
                let tries = tries + 1;
                self.end(Ended {
                    job,
                    place,
                    ending,
                    timed_out: false,
                    started: clock,
                    runtime: Duration::ZERO,
                    tries,
                    received: 0,
                });
                return true;
            }
        };
        self.pause = *PAUSES.start();
        self.turn = self.turn.wrapping_add(1);
        let Waiting { job, place, tries, .. } = waiting;
        self.events.started(&job, place, launched.child.id());
        let token = Token { kind: Kind::Child, slot, turn: self.turn };
        let watched = launched.child.pidfd().is_some_and(|pidfd| self.wake.add(pidfd, token).is_ok());
        self.unwatched += usize::from(!watched);
        self.running += 1;
        self.slots[slot] = Slot::Running(Box::new(Running {
            job,
            place,
            tries: tries + 1,
            turn: self.turn,
            child: launched.child,
            shell: launched.shell,
            started,
            clock,
            watched,
        }));
        true
    }

    /// Keeps a job that the kernel has no resources for now. Returns false, as [`launch`](Self::launch) then does.
    fn hold(&mut self, mut waiting: Waiting, error: io::Error) -> bool {
        let now = Instant::now();
        if self.running > 0 {
            // The end of another job may give what is missing.
            waiting.since = None;
        }
        let since = *waiting.since.get_or_insert(now);
        if self.running == 0 && now.saturating_duration_since(since) >= self.options.patience {
            let Waiting { job, place, tries, .. } = waiting;
            let ending = Ending::NotStarted(error);
            let (started, runtime) = (SystemTime::now(), Duration::ZERO);
            self.end(Ended { job, place, ending, timed_out: false, started, runtime, tries, received: 0 });
            self.stop(Flow::Soon);
            return false;
        }
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(*PAUSES.end());
        self.waiting += 1;
        let slot = waiting.place.slot - 1;
        self.slots[slot] = Slot::Waiting(Box::new(waiting));
        false
    }

    fn ask_unwatched(&mut self) {
        for slot in 0..self.slots.len() {
            if matches!(&self.slots[slot], Slot::Running(job) if !job.watched) {
                self.reap(slot);
            }
        }
    }

    /// Reaps the job in a slot, if it has ended.
    fn reap(&mut self, slot: usize) {
        let Slot::Running(running) = &mut self.slots[slot] else { return };
        let status = match running.child.try_wait() {
            Ok(None) => return,
            Ok(Some(status)) => match &running.shell {
                Some(ending) => ending.status(status),
                None => Ok(status),
            },
            Err(error) => Err(error),
        };
        let Slot::Running(running) = std::mem::replace(&mut self.slots[slot], Slot::Free) else { return };
        self.running -= 1;
        self.unwatched -= usize::from(!running.watched);
        // What was missing for a launch may be there now.
        self.not_before = None;
        let Running { job, place, tries, started, clock, .. } = *running;
        let ending = match status {
            Ok(status) => match status.code() {
                Some(code) => Ending::Exited(code),
                None => Ending::Killed(status.signal().unwrap_or(0)),
            },
            Err(error) if is_lack(&error) => {
                self.hold(Waiting { job, place, tries: tries - 1, since: None }, error);
                return;
            }
            Err(error) if is_of_launch(&error) => Ending::NotStarted(error),
            Err(error) => Ending::Lost(error),
        };
        let runtime = started.elapsed();
        self.end(Ended { job, place, ending, timed_out: false, started: clock, runtime, tries, received: 0 });
    }

    /// A job has ended, in one way or another.
    fn end(&mut self, ended: Ended) {
        if ended.is_failure() && ended.tries < self.options.tries && self.flow == Flow::Continue {
            self.events.again(&ended);
            let slot = ended.place.slot - 1;
            let Ended { job, place, tries, .. } = ended;
            self.slots[slot] = Slot::Waiting(Box::new(Waiting { job, place, tries, since: None }));
            self.waiting += 1;
            return;
        }
        match ended.ending {
            Ending::NotStarted(_) => self.summary.not_started += 1,
            _ => self.summary.ran += 1,
        }
        self.summary.failed += u64::from(ended.is_failure());
        let flow = self.events.finished(&ended);
        self.stop(flow);
    }

    /// Counts what was not run.
    fn finish(&mut self) {
        self.summary.skipped += self.waiting as u64;
        self.summary.total = self.seq;
        if self.input != Supply::End && !self.summary.unread {
            match self.source.left() {
                Some(left) => {
                    self.summary.skipped += left;
                    self.summary.total += left;
                }
                None => self.summary.unread = true,
            }
        }
    }
}

/// Sends a signal to a job, and to its process group if it has one of its own.
fn send(running: &mut Running, signal: i32) {
    // It may have ended.
    if running.child.signal_group(signal).is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
        let _ = running.child.signal(signal);
    }
}
