//! The worker of `forkless parallel --slurm`, one on each node: runs the jobs that it is given.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use forkless_jobs::{
    Control, Ended, Ending, Events, Job, JobPlace, JobSource, Next, Options, Progress, Run, Sink, Stream, run,
};
use rustix::event::{EventfdFlags, eventfd};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::wire::{self, Outbox, WireLines};

/// How long answers wait to go out together.
const TICK: Duration = Duration::from_millis(20);
/// Slurm signals all processes of a step, one after the other. For so long the end of a job by a signal is held back:
/// the worker may get the signal, too.
const DOUBT: Duration = Duration::from_secs(1);
/// A worker without answers sends a sign of life after this.
const BEAT: Duration = Duration::from_secs(1);

/// A job that waits for a slot.
struct WaitingOrder {
    seq: u64,
    directory: Vec<u8>,
    line: Vec<u8>,
}

/// What the thread that reads orders shares with the run.
struct Shared {
    inner: Mutex<Inner>,
    wake: OwnedFd,
}

struct Inner {
    queue: VecDeque<WaitingOrder>,
    /// No further order comes.
    is_over: bool,
    /// The run was stopped, which may be why jobs fail: these get no line in the log, and run again with `--resume`.
    is_stopped: bool,
    /// Jobs that a signal has ended, and when: Slurm may be sending it to this worker, too.
    suspects: VecDeque<(Instant, Vec<String>)>,
    outbox: Outbox,
    sent: Instant,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the run, which may wait for an order.
    fn wake(&self) {
        // Fails only when it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Inner {
    fn send(&mut self) -> io::Result<()> {
        let bytes = self.outbox.take();
        if !bytes.is_empty() {
            self.sent = Instant::now();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match forkless::internal::write_quietly(rustix::stdio::stdout(), rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the ends that were held back, once it is known whether the run was stopped.
    fn settle(&mut self) {
        while self.suspects.front().is_some_and(|(since, _)| self.is_stopped || since.elapsed() >= DOUBT) {
            let Some((_, fields)) = self.suspects.pop_front() else { break };
            self.end(&fields, self.is_stopped);
        }
    }

    fn end(&mut self, fields: &[String], is_cut: bool) {
        let cut = u8::from(is_cut).to_string();
        let mut fields: Vec<&[u8]> = fields.iter().map(String::as_bytes).collect();
        fields.insert(fields.len() - 1, cut.as_bytes());
        self.add("end", &fields);
    }

    fn add(&mut self, kind: &str, fields: &[&[u8]]) {
        let mut record = kind.as_bytes().to_vec();
        fields.iter().for_each(|field| wire::field(&mut record, field));
        self.outbox.add(&record);
    }
}

/// Runs jobs until the orders end.
///
/// # Errors
/// A variable of srun is not set, or no descriptor is left.
pub(super) fn work(mut options: Options, variables: Variables) -> Result<(), String> {
    let text = |name: &str| {
        env::var(name).map_err(|_| format!("--slurm-worker: {name} is not set: --slurm starts it by srun"))
    };
    let rank: u64 = text("SLURM_PROCID")?.parse().map_err(|_| "SLURM_PROCID is no number")?;
    let node = env::var("SLURMD_NODENAME").unwrap_or_else(|_| format!("node {rank}"));
    let failed = |error: io::Error| error.to_string();
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| error.to_string())?;
    let (queue, outbox, sent) = (VecDeque::new(), Outbox::new(rank), Instant::now());
    let inner = Mutex::new(Inner { queue, is_over: false, is_stopped: false, suspects: VecDeque::new(), outbox, sent });
    let shared = Arc::new(Shared { inner, wake });
    let control = options.control.clone().map_or_else(Control::new, Ok).map_err(failed)?;
    options.control = Some(control.clone());
    options.tick = Some(TICK);
    {
        let mut inner = shared.lock();
        let step = env::var("SLURM_STEP_ID").unwrap_or_default();
        inner.add("hello", &[node.as_bytes(), options.slots.to_string().as_bytes(), step.as_bytes()]);
        inner.send().map_err(failed)?;
    }
    let (reader, signalled) = ((Arc::clone(&shared), control.clone()), control);
    thread::Builder::new()
        .name("orders".to_owned())
        .spawn(move || read_orders(&reader.0, &reader.1, rank))
        .map_err(failed)?;
    heed_signals(Arc::clone(&shared), signalled).map_err(failed)?;
    let seqs = Arc::new(Mutex::new(BTreeMap::new()));
    let mut source = Orders { shared: Arc::clone(&shared), seqs: Arc::clone(&seqs), node, variables };
    let mut events = Heartbeat { shared: Arc::clone(&shared) };
    let mut sink = SlotAnswers { shared: Arc::clone(&shared), seqs };
    run(options, &mut source, &mut events, &mut sink).map_err(failed)?;
    loop {
        let mut inner = shared.lock();
        inner.settle();
        if inner.suspects.is_empty() {
            break;
        }
        drop(inner);
        thread::sleep(TICK);
    }
    let mut inner = shared.lock();
    give_back(&mut inner, usize::MAX);
    inner.add("bye", &[]);
    inner.send().map_err(failed)
}

/// Variables of each job beside its numbers.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// Gets the slot's number, from 0.
    pub(super) slot: Option<OsString>,
    pub(super) temporary: Option<OsString>,
}

/// Slurm sends a signal to all tasks of a step before it ends their job. Then this worker starts nothing more, and reports
/// that. SIGCONT stands for the order to give back jobs, where srun carries no more orders. Slurm also sends it after a
/// suspension; then the jobs come again.
fn heed_signals(shared: Arc<Shared>, control: Control) -> io::Result<()> {
    let mut signals = Signals::new([SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGUSR1])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut terms = 0;
        for signal in signals.forever() {
            if signal == SIGCONT {
                let mut inner = shared.lock();
                give_back(&mut inner, usize::MAX);
                let _ = inner.send();
                continue;
            }
            terms += u32::from(signal == SIGTERM);
            let mut inner = shared.lock();
            inner.is_stopped = true;
            inner.settle();
            give_back(&mut inner, usize::MAX);
            inner.add("term", &[]);
            let _ = inner.send();
            if signal == SIGINT || terms > 1 {
                control.stop_now();
            } else {
                control.stop_soon();
            }
        }
    })?;
    Ok(())
}

/// Takes orders, so that those of others do not wait for this worker.
fn read_orders(shared: &Shared, control: &Control, rank: u64) {
    let (mut lines, mut piece) = (WireLines::default(), vec![0; 1 << 16]);
    let mut input = io::stdin().lock();
    let mut has_quit = false;
    loop {
        let count = match input.read(&mut piece) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        if count == 0 {
            break;
        }
        let _ = lines.each(&piece[..count], |line| {
            has_quit |= obey(line, shared, control, rank);
            Ok(())
        });
        shared.wake();
    }
    let mut inner = shared.lock();
    inner.is_over = true;
    if !has_quit {
        // srun or this node's slurmstepd is gone: nothing reads answers, and the jobs run elsewhere.
        inner.is_stopped = true;
        inner.queue.clear();
        control.stop_now();
    }
    drop(inner);
    shared.wake();
}

/// Carries out an order. Returns true if no further one comes.
fn obey(line: &[u8], shared: &Shared, control: &Control, rank: u64) -> bool {
    let mut fields = line.split(|&byte| byte == b'\t');
    let kind = fields.next().unwrap_or_default();
    let is_mine = wire::number(fields.next()).is_some_and(|node: u64| node == rank);
    let mut inner = shared.lock();
    match kind {
        b"run" if is_mine => {
            let Some(seq) = wire::number(fields.next()) else { return false };
            let mut text = || wire::plain(fields.next().unwrap_or_default());
            inner.queue.push_back(WaitingOrder { seq, directory: text(), line: text() });
        }
        b"back" if is_mine => {
            give_back(&mut inner, wire::number(fields.next()).unwrap_or(0));
            // An error is seen by the run, too.
            let _ = inner.send();
        }
        b"stop" => {
            inner.is_stopped = true;
            control.stop_now();
        }
        b"quit" => {
            inner.is_over = true;
            return true;
        }
        _ => {}
    }
    false
}

/// Returns jobs that have not begun, the last ones first.
fn give_back(inner: &mut Inner, count: usize) {
    for _ in 0..count.min(inner.queue.len()) {
        let Some(order) = inner.queue.pop_back() else { break };
        inner.add("back", &[order.seq.to_string().as_bytes()]);
    }
    inner.add("gave", &[]);
}

/// The numbers of the jobs, by those that they have in this worker's run.
type Seqs = Arc<Mutex<BTreeMap<u64, u64>>>;

struct Orders {
    shared: Arc<Shared>,
    seqs: Seqs,
    node: String,
    variables: Variables,
}

impl JobSource for Orders {
    fn next(&mut self, place: JobPlace) -> io::Result<Next> {
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
        let mut inner = self.shared.lock();
        let Some(WaitingOrder { seq, directory, line }) = inner.queue.pop_front() else {
            return Ok(if inner.is_over { Next::End } else { Next::Later });
        };
        drop(inner);
        self.seqs.lock().unwrap_or_else(PoisonError::into_inner).insert(place.seq, seq);
        let mut job = Job { run: Run::Line(line), values: vec![directory], ..Job::default() };
        for (name, value) in [
            ("PARALLEL_PID", std::process::id().to_string()),
            ("PARALLEL_SSHLOGIN", self.node.clone()),
            ("PARALLEL_SSHHOST", self.node.clone()),
            ("PARALLEL_SEQ", seq.to_string()),
            ("PARALLEL_JOBSLOT", place.slot.to_string()),
        ] {
            job.env.push((name.into(), value.into()));
        }
        let Variables { slot, temporary } = &self.variables;
        job.env.extend(slot.iter().map(|name| (name.clone(), (place.slot - 1).to_string().into())));
        job.env.extend(temporary.iter().map(|directory| ("TMPDIR".into(), directory.clone())));
        Ok(Next::Job(job))
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.wake.as_fd())
    }

    fn left(&mut self) -> Option<u64> {
        Some(self.shared.lock().queue.len() as u64)
    }
}

struct Heartbeat {
    shared: Arc<Shared>,
}

impl Events for Heartbeat {
    fn tick(&mut self, _: &Progress) {
        let mut inner = self.shared.lock();
        inner.settle();
        if inner.sent.elapsed() >= BEAT {
            inner.add("beat", &[]);
        }
        // An error is seen by the sink, too.
        let _ = inner.send();
    }
}

struct SlotAnswers {
    shared: Arc<Shared>,
    seqs: Seqs,
}

impl SlotAnswers {
    fn seq(&self, local: u64) -> u64 {
        self.seqs.lock().unwrap_or_else(PoisonError::into_inner).get(&local).copied().unwrap_or(0)
    }
}

impl Sink for SlotAnswers {
    fn write(&mut self, local: u64, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let seq = self.seq(local).to_string();
        let kind = if stream == Stream::Err { "err" } else { "out" };
        let mut rest = bytes;
        let mut inner = self.shared.lock();
        while !rest.is_empty() {
            let (text, left) = wire::piece(rest);
            inner.outbox.add(&[kind.as_bytes(), b"\t", seq.as_bytes(), b"\t", &text].concat());
            rest = left;
            if inner.outbox.is_full() {
                inner.send()?;
            }
        }
        Ok(())
    }

    fn written(&mut self, ended: &Ended) -> io::Result<()> {
        let seq = self.seq(ended.place.seq);
        self.seqs.lock().unwrap_or_else(PoisonError::into_inner).remove(&ended.place.seq);
        let mut inner = self.shared.lock();
        let (kind, text) = match &ended.ending {
            Ending::Exited(_) => ("exit", String::new()),
            Ending::Killed(_) => ("kill", String::new()),
            Ending::NotStarted(error) => ("none", error.to_string()),
            Ending::Lost(error) => ("lost", error.to_string()),
        };
        let (status, signal) = ended.ending.numbers();
        let started = ended.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let text = text.chars().take(200).collect::<String>();
        let fields = [
            seq.to_string(),
            kind.to_owned(),
            (status + signal).to_string(),
            started.to_string(),
            ended.runtime.as_micros().to_string(),
            ended.tries.to_string(),
            ended.place.slot.to_string(),
            u8::from(ended.timed_out).to_string(),
            text,
        ];
        let is_failure = ended.is_failure() && !ended.timed_out;
        // A shell exits with 128 and the number of the signal that has ended its command.
        let number = if signal > 0 { signal } else { status - 128 };
        if is_failure && !inner.is_stopped && [SIGHUP, SIGINT, SIGTERM, SIGUSR1].contains(&number) {
            inner.suspects.push_back((Instant::now(), fields.into()));
            return Ok(());
        }
        let is_cut = is_failure && inner.is_stopped;
        inner.end(&fields, is_cut);
        if inner.outbox.is_full() { inner.send() } else { Ok(()) }
    }
}
