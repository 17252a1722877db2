//! The loop: launch, write, sleep, reap.

use crate::control::{Control, Flow};
use crate::launch::Launcher;
use crate::log::Outlet;
use crate::options::{Options, Output};
use crate::output::spill::Spill;
use crate::output::{Capture, FIRST};
use crate::pool::Pool;
use crate::slot::Slot;
use crate::source::{Events, JobSource, Sink};
use crate::summary::{Ended, Progress, Summary};
use crate::wake::{Token, Wake, WakeKind};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::Signal;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

mod start;
mod end;
mod feed;
mod capture;
mod limits;
mod away;

pub use limits::memory;

/// Runs all jobs of a source.
///
/// Returns when every job that was launched has ended, and its output has been written.
///
/// # Errors
/// The descriptors that the run itself needs cannot be made. Later errors are in the summary.
pub fn run(
    options: Options,
    source: &mut dyn JobSource,
    events: &mut dyn Events,
    sink: &mut dyn Sink,
) -> io::Result<Summary> {
    let mut engine = Engine::new(options, source, events, sink)?;
    engine.run()?;
    Ok(engine.summary)
}

/// The shortest wait before a launch is tried again that the kernel had no resources for. It doubles up to a second.
const PAUSE: Duration = Duration::from_millis(10);

struct Engine<'a> {
    options: Options,
    source: &'a mut dyn JobSource,
    events: &'a mut dyn Events,
    sink: Outlet<'a>,
    control: Control,
    wake: Wake,
    launcher: Launcher,
    pool: Option<Pool>,
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
    /// How long the next such wait takes.
    pause: Duration,
    /// Since when no job runs, because the source has no resources for the next one.
    starved: Option<Instant>,
    /// No launch before this, because of the options.
    delayed: Option<Instant>,
    /// Jobs that have ended, and whose output has not been handled.
    ended: Vec<Finished>,
    output: Waiters,
    streams: feed::Streams,
    /// When a signal or a time limit is due.
    deadline: Option<Instant>,
    runtimes: limits::Runtimes,
    begun: Instant,
    next_tick: Option<Instant>,
    summary: Summary,
}

/// Whether the source has jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Supply {
    MayHave,
    /// None before its descriptor is readable.
    Later,
    End,
}

/// A job that has ended, and what it wrote.
struct Finished {
    ended: Ended,
    capture: Option<Box<Capture>>,
}

/// Captured output that waits, and its buffers.
struct Waiters {
    /// The number of the job whose output is due, if it comes in order.
    due: u64,
    /// Jobs that have ended before that one.
    held: BTreeMap<u64, Finished>,
    spill: Spill,
    scratch: Vec<u8>,
    /// Jobs whose pipes are not watched yet: the time of the launch, slot and turn.
    quiet: VecDeque<(Instant, usize, u32)>,
    /// The slot of the last job that was launched.
    last: Option<usize>,
}

impl<'a> Engine<'a> {
    fn new(
        mut options: Options,
        source: &'a mut dyn JobSource,
        events: &'a mut dyn Events,
        sink: &'a mut dyn Sink,
    ) -> io::Result<Self> {
        let control = options.control.take().map_or_else(Control::new, Ok)?;
        let wake = Wake::new()?;
        wake.add(&control, Token::of_run(WakeKind::Control))?;
        options.slots = options.slots.max(1);
        if let Some(remote) = &options.remote {
            wake.add(remote.waits_for(), Token::of_run(WakeKind::Remote))?;
            if options.output == Output::Inherit {
                options.output = Output::Group;
            }
        }
        // The order of inherited output cannot be changed.
        options.keep_order &= options.output != Output::Inherit;
        let threads = std::mem::take(&mut options.threads);
        let is_free = options.delay.is_zero() && options.max_load.is_none() && options.min_memory.is_none();
        // Where the kernel has no room for further threads, the run's own thread launches.
        let pool = match !threads.is_empty() && is_free {
            true => Pool::start(threads).ok(),
            false => None,
        };
        if let Some(pool) = &pool {
            wake.add(pool, Token::of_run(WakeKind::Pool))?;
        }
        let captures = options.output != Output::Inherit;
        let mut spill = Spill::new(options.memory, std::mem::take(&mut options.temporary));
        if captures {
            spill.reserve = Some(fcntl_dupfd_cloexec(&control, 0)?);
        }
        let scratch = vec![0; if captures { FIRST } else { 0 }];
        let (begun, due) = (Instant::now(), options.done.next_open(1));
        Ok(Self {
            control,
            wake,
            launcher: Launcher::default(),
            pool,
            slots: Vec::new(),
            running: 0,
            waiting: 0,
            unwatched: 0,
            seq: 0,
            turn: 0,
            input: Supply::MayHave,
            flow: Flow::Continue,
            not_before: None,
            pause: PAUSE,
            starved: None,
            delayed: None,
            ended: Vec::new(),
            output: Waiters { due, held: BTreeMap::new(), spill, scratch, quiet: VecDeque::new(), last: None },
            streams: feed::Streams::default(),
            deadline: None,
            runtimes: limits::Runtimes::default(),
            begun,
            next_tick: options.tick.map(|tick| limits::after(begun, tick)),
            summary: Summary::default(),
            sink: Outlet::new(sink, options.log.take()),
            options,
            source,
            events,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            self.obey();
            self.take_launches();
            self.look_at_the_clock();
            // The next jobs first: they run while the output of the last ones is handled.
            let more = self.start();
            self.serve();
            let was_full = self.is_window_full();
            self.settle();
            if more || was_full && !self.is_window_full() {
                continue;
            }
            if let Err(error) = self.sink.flush() {
                self.sink_failed(error);
            }
            if self.pump_remote() {
                continue;
            }
            if self.is_over() {
                break;
            }
            if let Some(pool) = &mut self.pool {
                pool.sleeps();
                if let Some(answer) = pool.take_answer() {
                    pool.wakes();
                    self.answered(answer);
                    continue;
                }
            }
            self.wake.sleep(self.limit(), &mut ready)?;
            if let Some(pool) = &self.pool {
                pool.wakes();
            }
            for token in &ready {
                self.handle(*token);
            }
            if self.unwatched > 0 {
                self.ask_unwatched();
            }
            if self.input_due().is_some_and(|due| due <= Instant::now()) {
                self.input_came();
            }
        }
        self.finish();
        Ok(())
    }

    /// Whether so many jobs are ahead of the one whose output is due that no further one may be launched.
    fn is_window_full(&self) -> bool {
        self.options.keep_order && self.output.held.len() >= self.options.window
    }

    fn is_over(&self) -> bool {
        self.running == 0
            && self.ended.is_empty()
            && (self.flow > Flow::Continue || self.input == Supply::End && self.waiting == 0)
    }

    /// How long to sleep at most.
    fn limit(&self) -> Option<Duration> {
        /// How often jobs whose pidfds cannot be watched are checked for their end.
        const ASK: Duration = Duration::from_millis(10);
        let launches = self.flow == Flow::Continue;
        let times = [
            self.not_before.filter(|_| launches),
            self.delayed.filter(|_| launches),
            self.deadline,
            self.next_tick,
            self.input_due(),
            self.output.quiet.front().map(|(launched, ..)| *launched + capture::QUIET),
        ];
        let first = times.into_iter().flatten().min();
        let now = first.map(|_| Instant::now());
        let left = first.zip(now).map(|(first, now)| first.saturating_duration_since(now));
        let ask = (self.unwatched > 0).then_some(ASK);
        let now = self.streams.is_busy.then_some(Duration::ZERO);
        [left, ask, now].into_iter().flatten().min()
    }

    fn handle(&mut self, token: Token) {
        match token.kind {
            WakeKind::Control => self.control.slept(),
            // The remote is pumped before each sleep.
            WakeKind::Remote => {}
            // The answers are taken before the next launch.
            WakeKind::Pool => self.pool.iter().for_each(Pool::slept),
            WakeKind::Source => self.input_came(),
            kind if matches!(&self.slots[token.slot], Slot::Running(job) if job.turn == token.turn) => match kind {
                WakeKind::Child => self.reap(token.slot),
                WakeKind::In => self.feed(token.slot),
                WakeKind::Err => self.read(token.slot, 1),
                _ => self.read(token.slot, 0),
            },
            _ => {}
        }
    }

    /// Carries out the requests of the [`Control`].
    fn obey(&mut self) {
        self.options.slots = self.control.slots(self.options.slots);
        self.stop(self.control.flow());
        if let Some(tick) = self.control.take_tick() {
            self.options.tick = tick;
            self.next_tick = tick.map(|_| Instant::now());
        }
        if self.control.take_notice() {
            self.events.notified();
        }
        if let Some(signal) = self.control.take_signal() {
            self.signal_all(signal);
        }
        if self.control.take_suspension() {
            self.signal_all(Signal::TSTP.as_raw());
            self.events.suspended();
            self.signal_all(Signal::CONT.as_raw());
        }
    }

    /// Signals each job that runs.
    fn signal_all(&mut self, signal: i32) {
        self.await_launches();
        for slot in &mut self.slots {
            if let Slot::Running(running) = slot
                && running.over.is_none()
            {
                running.send(signal);
            }
        }
    }

    /// Stops the run. A weaker stop than an earlier one has no effect.
    fn stop(&mut self, flow: Flow) {
        if flow > self.flow {
            self.flow = flow;
            self.summary.stopped = Some(flow);
            self.source.stopped();
            if flow == Flow::Now {
                self.await_launches();
                self.end_all();
            }
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.summary.add(error);
    }

    fn sink_failed(&mut self, error: io::Error) {
        let flow = Flow::after_output(&error);
        self.fail(error);
        self.stop(flow);
    }

    /// Counts what was not run, and writes what waited for a job that was not run.
    fn finish(&mut self) {
        while let Some((seq, finished)) = self.output.held.pop_first() {
            self.output.due = seq;
            self.write_out(finished);
        }
        if let Err(error) = self.sink.flush() {
            self.sink_failed(error);
        }
        if let Err(error) = self.sink.end() {
            self.fail(error);
        }
        self.summary.skipped += self.waiting as u64;
        self.summary.total = self.seq;
        let left = self.input != Supply::End || self.streams.have_been;
        if left && !self.summary.unread {
            match self.source.left() {
                Some(left) => {
                    self.summary.skipped += left;
                    self.summary.total += left;
                }
                None => self.summary.unread = true,
            }
        }
        if self.options.tick.is_some() {
            let progress = self.progress();
            self.events.tick(&progress);
        }
    }

    fn progress(&mut self) -> Progress {
        Progress {
            total: self.source.total(),
            ended: self.summary.ran + self.summary.not_started,
            failed: self.summary.failed,
            done_before: self.summary.done_before,
            running: self.running,
            slots: self.options.slots,
            elapsed: self.begun.elapsed(),
        }
    }
}
