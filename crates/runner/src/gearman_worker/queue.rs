//! The worker's side of a connection: which jobs it has requested, runs and has answered.
//!
//! One connection has all jobs: the server gives a further one to a worker that has not answered the last. If the
//! connection breaks, the server gives the jobs to another worker; replies to them are not sent, except the results of
//! checks, which are jobs of their own.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use forkless_gearman::{
    Happening, Link,
    cipher::Envelope,
    monitoring::{Check, End},
    packet::{Packet, PacketKind},
    record::Request,
};
use forkless_jobs::{Ended, Events, Flow, Job, JobPlace, JobSource, Next, Progress, Sink, Stream};

use super::{allow::Allowed, reply, say};

/// How many jobs are requested at once, at most.
const ASKED: usize = 16;

/// The connection and the settings of a worker.
pub(super) struct Worker {
    pub(super) link: Link,
    /// Queues of lines.
    pub(super) functions: Vec<String>,
    /// Queues of mod_gearman.
    pub(super) checks: Vec<String>,
    pub(super) envelope: Envelope,
    pub(super) name: String,
    pub(super) allowed: Allowed,
    pub(super) slots: usize,
    pub(super) check_timeout: Duration,
    pub(super) max_age: Option<Duration>,
    pub(super) most_output: u64,
    /// Jobs that run are being ended.
    pub(super) ends_now: Arc<AtomicBool>,
}

/// The form of the reply to a job.
#[derive(Debug)]
pub(super) enum ReplyForm {
    /// Output, warning, failure.
    Plain,
    /// A record.
    Record,
    /// A check of mod_gearman.
    Check(Box<Check>),
}

/// A job that runs.
#[derive(Debug)]
pub(super) struct Task {
    /// The number of the connection that assigned it.
    generation: u64,
    pub(super) handle: Vec<u8>,
    pub(super) form: ReplyForm,
    /// Standard output and standard error.
    pub(super) outputs: [Vec<u8>; 2],
}

struct QueueState {
    worker: Worker,
    /// Counts connections.
    generation: u64,
    /// Jobs that have come and have not been started.
    assigned: VecDeque<Packet>,
    /// How many requests for a job have not been answered.
    asked: usize,
    /// The server has no job, and sends NOOP when it has one.
    is_dry: bool,
    running: BTreeMap<u64, Task>,
    /// How many of them have not ended. Those that have are answered after the next ones have been started.
    busy: usize,
    /// The runner waits for the descriptor: what has come must stay there until it asks for a job.
    is_awaited: bool,
    /// Results that the server has not acknowledged: queue, id and closed payload.
    results: VecDeque<(Vec<u8>, String, Vec<u8>)>,
    sent_results: u64,
    /// Replies for the last connection, which the server does not acknowledge.
    has_replied: bool,
    /// `Some(false)`: ECHO_REQ has been sent, after everything else. `Some(true)`: the server has answered it.
    echo: Option<bool>,
    /// The failure of the connection has been reported.
    is_down_known: bool,
}

/// The worker as the runner's source, its events and its sink.
#[derive(Clone)]
pub(super) struct Queue {
    state: Rc<RefCell<QueueState>>,
    /// A copy of the connection's descriptor, which stays the same when the connection is made again.
    ready: Rc<OwnedFd>,
}

impl Queue {
    pub(super) fn new(worker: Worker) -> Self {
        // Fails only if no descriptor is left; then the worker could run nothing.
        let ready = worker.link.as_fd().try_clone_to_owned();
        let state = QueueState {
            worker,
            generation: 0,
            assigned: VecDeque::new(),
            asked: 0,
            is_dry: false,
            running: BTreeMap::new(),
            busy: 0,
            is_awaited: false,
            results: VecDeque::new(),
            sent_results: 0,
            has_replied: false,
            echo: None,
            is_down_known: false,
        };
        let ready = ready.expect("a descriptor");
        Self { state: Rc::new(RefCell::new(state)), ready: Rc::new(ready) }
    }

    pub(super) fn pump(&self) {
        self.state.borrow_mut().pump();
    }

    pub(super) fn is_ending(&self) -> bool {
        self.state.borrow().worker.ends_now.load(Ordering::SeqCst)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Whether the server has handled all replies and results. The first call sends the request for that.
    pub(super) fn is_delivered(&self) -> bool {
        let mut state = self.state.borrow_mut();
        match state.echo {
            _ if state.results.is_empty() && !state.has_replied => true,
            Some(true) => state.results.is_empty(),
            Some(false) => false,
            None => {
                if state.worker.link.is_up() {
                    state.worker.link.send(PacketKind::ECHO_REQ, &[b"end"]);
                    state.worker.link.flush();
                    state.echo = Some(false);
                }
                false
            }
        }
    }
}

impl QueueState {
    fn pump(&mut self) {
        self.worker.link.pump();
        while let Some(happening) = self.worker.link.take() {
            match happening {
                Happening::Up => self.came_up(),
                Happening::Down(error) => self.went_down(&error),
                Happening::Packet(packet) => self.take(packet),
            }
        }
        self.worker.link.flush();
    }

    fn came_up(&mut self) {
        if self.is_down_known {
            say(format_args!("connected to {}", self.worker.link.server()));
        }
        self.is_down_known = false;
        self.generation += 1;
        (self.asked, self.is_dry, self.has_replied, self.echo) = (0, false, false, None);
        let Worker { link, functions, checks, name, .. } = &mut self.worker;
        link.send(PacketKind::SET_CLIENT_ID, &[format!("forkless-{name}-{}", std::process::id()).as_bytes()]);
        for function in functions.iter().chain(checks.iter()) {
            link.send(PacketKind::CAN_DO, &[function.as_bytes()]);
        }
        for (queue, id, payload) in &self.results {
            link.send(PacketKind::SUBMIT_JOB_BG, &[queue, id.as_bytes(), payload]);
        }
    }

    fn went_down(&mut self, error: &io::Error) {
        // The server gives these to another worker, or to this one again.
        self.assigned.clear();
        self.asked = 0;
        self.echo = None;
        if !std::mem::replace(&mut self.is_down_known, true) {
            say(format_args!("{}: {error}: retrying until the server answers", self.worker.link.server()));
        }
    }

    fn take(&mut self, packet: Packet) {
        match packet.kind {
            PacketKind::JOB_ASSIGN_UNIQ => {
                self.asked = self.asked.saturating_sub(1);
                // A job may have come to the queue between the answers to two requests.
                self.is_dry = false;
                self.assigned.push_back(packet);
            }
            PacketKind::NO_JOB => {
                self.asked = self.asked.saturating_sub(1);
                self.is_dry = true;
                if self.asked == 0 {
                    self.worker.link.send(PacketKind::PRE_SLEEP, &[]);
                }
            }
            PacketKind::NOOP => self.is_dry = false,
            PacketKind::JOB_CREATED => {
                self.results.pop_front();
            }
            PacketKind::ECHO_RES => self.echo = Some(true),
            PacketKind::ERROR => {
                let text = |index| String::from_utf8_lossy(packet.argument(index)).into_owned();
                let (code, words) = (text(0), text(1));
                say(format_args!("{} reports {code}: {words}", self.worker.link.server()));
                // Which result it has refused is not known: they are sent again by a new connection.
                if !self.results.is_empty() && code != "JOB_NOT_FOUND" {
                    self.worker.link.fail(io::Error::other(code));
                }
            }
            _ => {}
        }
    }

    /// Requests as many jobs as there are free slots, up to [`ASKED`].
    fn ask(&mut self) {
        if !self.worker.link.is_up() {
            // Other workers, or later ones, get the jobs whose replies are lost with the connection.
            self.has_replied = false;
        }
        if self.is_dry || !self.worker.link.is_up() {
            return;
        }
        let free = self.worker.slots.saturating_sub(self.busy + self.assigned.len());
        while self.asked < free.min(ASKED) {
            self.worker.link.send(PacketKind::GRAB_JOB_UNIQ, &[]);
            self.asked += 1;
        }
    }

    /// Makes the job of a JOB_ASSIGN_UNIQ packet. `None`: it has been answered already.
    fn job(&mut self, packet: &Packet, place: JobPlace) -> Option<Job> {
        let is_check = self.worker.checks.iter().any(|name| name.as_bytes() == packet.argument(1));
        let mut task = Task {
            generation: self.generation,
            handle: packet.argument(0).to_vec(),
            form: ReplyForm::Plain,
            outputs: Default::default(),
        };
        let (line, timeout) = if is_check {
            let opened = self.worker.envelope.open(packet.argument(3));
            let Some(check) = opened.as_deref().and_then(Check::parse) else {
                say("cannot decode a job as a check: use the same key as the server");
                self.reply(&task, PacketKind::WORK_FAIL, b"");
                return None;
            };
            let (line, timeout) = (check.line.clone(), check.timeout.unwrap_or(self.worker.check_timeout));
            let age = seconds(SystemTime::now()) - check.core_time;
            let too_old = self.worker.max_age.filter(|_| check.core_time > 0.0);
            task.form = ReplyForm::Check(Box::new(check));
            if too_old.is_some_and(|limit| age > limit.as_secs_f64()) {
                self.end_check(&task, &End::TooOld, SystemTime::now(), Duration::ZERO);
                return None;
            }
            (line, Some(timeout))
        } else {
            let Request { line, wants_record, timeout } = Request::parse(packet.argument(3));
            if wants_record {
                task.form = ReplyForm::Record;
            }
            (line, timeout)
        };
        match self.worker.allowed.run(line) {
            Ok(run) => {
                self.running.insert(place.seq, task);
                self.busy += 1;
                Some(Job { run, timeout, ..Job::default() })
            }
            Err(why) => {
                say(format_args!("refused: {why}"));
                self.refuse(&task, &why);
                None
            }
        }
    }

    fn refuse(&mut self, task: &Task, why: &str) {
        match &task.form {
            ReplyForm::Check(_) => self.end_check(task, &End::Refused(why), SystemTime::now(), Duration::ZERO),
            form => {
                for (kind, bytes) in reply::refusal(form, why) {
                    self.reply(task, kind, &bytes);
                }
            }
        }
    }

    /// Sends a packet about a job, if the connection that assigned it still exists.
    fn reply(&mut self, task: &Task, kind: PacketKind, bytes: &[u8]) {
        if task.generation != self.generation {
            return;
        }
        self.has_replied = true;
        match kind {
            PacketKind::WORK_FAIL => self.worker.link.send(kind, &[&task.handle]),
            _ => self.worker.link.send(kind, &[&task.handle, bytes]),
        }
    }

    fn end_check(&mut self, task: &Task, end: &End<'_>, started: SystemTime, runtime: Duration) {
        let ReplyForm::Check(check) = &task.form else { return };
        if check.has_result() {
            let Worker { link, envelope, name, .. } = &mut self.worker;
            let begun = seconds(started);
            let result = forkless_gearman::monitoring::result(check, end, name, begun, begun + runtime.as_secs_f64());
            let sealed = envelope.seal(&result);
            self.sent_results += 1;
            // Two results of one check must not be taken for the same job.
            let id = format!("forkless-{name}-{}-{begun:.6}-{}", std::process::id(), self.sent_results);
            link.send(PacketKind::SUBMIT_JOB_BG, &[&check.result_queue, id.as_bytes(), &sealed]);
            self.results.push_back((check.result_queue.clone(), id, sealed));
        }
        self.reply(task, PacketKind::WORK_COMPLETE, b"");
    }

    /// A job has ended, and its output is complete.
    fn ended(&mut self, ended: &Ended) {
        let Some(task) = self.running.remove(&ended.place.seq) else { return };
        let cut_short = self.worker.ends_now.load(Ordering::SeqCst) && ended.is_failure() && !ended.timed_out;
        if cut_short {
            // Not answered: the server gives it to another worker when the connection ends.
            return;
        }
        if matches!(task.form, ReplyForm::Check(_)) {
            let end = reply::end_of_check(&task, ended);
            self.end_check(&task, &end, ended.started, ended.runtime);
            return;
        }
        for (kind, bytes) in reply::of(&task, ended, self.worker.most_output) {
            self.reply(&task, kind, &bytes);
        }
    }
}

/// Seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The queue as a source of jobs.
pub(super) struct Jobs(pub(super) Queue);

impl JobSource for Jobs {
    fn next(&mut self, place: JobPlace) -> io::Result<Next> {
        let mut state = self.0.state.borrow_mut();
        state.is_awaited = false;
        if state.assigned.is_empty() {
            state.pump();
        }
        while let Some(packet) = state.assigned.pop_front() {
            if let Some(job) = state.job(&packet, place) {
                return Ok(Next::Job(job));
            }
        }
        state.ask();
        state.is_awaited = true;
        Ok(Next::Later)
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.descriptor())
    }

    /// Jobs that were not taken stay with the server.
    fn left(&mut self) -> Option<u64> {
        Some(0)
    }
}

/// Counts the ends of jobs, and serves the connection while all slots are taken.
pub(super) struct Liveness(pub(super) Queue);

impl Events for Liveness {
    fn finished(&mut self, _: &Ended) -> Flow {
        self.0.state.borrow_mut().busy -= 1;
        Flow::Continue
    }

    fn tick(&mut self, _: &Progress) {
        let mut state = self.0.state.borrow_mut();
        if !state.is_awaited {
            state.pump();
        }
    }
}

/// The queue as a sink: collects output, and sends the replies.
pub(super) struct Answers(pub(super) Queue);

impl Sink for Answers {
    fn write(&mut self, seq: u64, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if let Some(task) = self.0.state.borrow_mut().running.get_mut(&seq) {
            task.outputs[usize::from(stream == Stream::Err)].extend_from_slice(bytes);
        }
        Ok(())
    }

    fn written(&mut self, ended: &Ended) -> io::Result<()> {
        self.0.state.borrow_mut().ended(ended);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Replies and requests for jobs go out together.
        self.0.state.borrow_mut().worker.link.flush();
        Ok(())
    }
}
