//! The run of `forkless parallel --slurm` in an allocation: one srun, a worker on each node, their orders and answers.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, Write};
use std::time::{Duration, Instant, UNIX_EPOCH};

use forkless_jobs::{Came, Ending, Flow, Gather, Offer, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::nodes::{Id, NodeState, Nodes};
use super::probe::Probe;
use super::step::{Step, Work};
use super::wire;

/// How often time limits are checked.
const TICK: Duration = Duration::from_millis(100);
/// srun gets this time to end after all workers have.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same where a node was lost: Slurm itself may wait for it for minutes.
const BRIEF: Duration = Duration::from_secs(1);
/// How many steps may be started without the end of a job.
const STARTS: u32 = 3;

/// The parts of the command line that starts the workers.
pub(super) struct Starter {
    /// srun, and options that each step has.
    pub(super) srun: Vec<OsString>,
    /// The options for all nodes.
    pub(super) all_nodes: Vec<OsString>,
    /// The user's own options. They override those for all nodes; the options for the nodes that are left override them.
    pub(super) own: Vec<OsString>,
    /// The worker's command line.
    pub(super) worker: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Starter {
    /// Starts a step on these nodes; on all of the allocation if none is named.
    fn start(&self, names: Vec<String>) -> io::Result<Step> {
        let count = names.len();
        let named =
            [format!("--nodes={count}"), format!("--ntasks={count}"), format!("--nodelist={}", names.join(","))];
        let Self { srun, all_nodes, own, worker, .. } = self;
        let words = match names.is_empty() {
            true => [&srun[..], all_nodes, own, worker].concat(),
            false => [&srun[..], own, &named.map(OsString::from), worker].concat(),
        };
        Step::start(&words, &self.environment, names)
    }
}

/// A run on the nodes of an allocation.
///
/// One step has all nodes. If its srun ends, or reads no more orders because a node is dead, a further step takes the rest
/// of the jobs on the nodes that are left.
pub(super) struct Crew<'a> {
    gather: Gather<'a>,
    starter: Starter,
    steps: Vec<Step>,
    nodes: Nodes,
    probe: Probe,
    /// Steps that were started since a job ended.
    starts: u32,
    /// The run has ended, or cannot go on: no further step is started.
    is_over: bool,
    /// Jobs that were handed out and must be again.
    left: VecDeque<u64>,
    /// Jobs that may have run before, and where.
    twice: BTreeMap<u64, String>,
    /// Ends of such jobs.
    ran_twice: u64,
    input: Offer,
    /// After this silence, a node's jobs run elsewhere.
    lost_after: Duration,
    /// The last order to the workers.
    ordered: Flow,
    say: fn(&str),
}

impl<'a> Crew<'a> {
    /// Starts a worker on each node.
    pub(super) fn start(
        gather: Gather<'a>,
        starter: Starter,
        lost_after: Duration,
        say: fn(&str),
    ) -> Result<Self, String> {
        let first = starter.start(Vec::new()).map_err(|error| format!("--slurm: {error}"))?;
        Ok(Self {
            gather,
            starter,
            steps: vec![first],
            nodes: Nodes::default(),
            probe: Probe::default(),
            starts: 1,
            is_over: false,
            left: VecDeque::new(),
            twice: BTreeMap::new(),
            ran_twice: 0,
            input: Offer::Full,
            lost_after,
            ordered: Flow::Continue,
            say,
        })
    }

    /// Runs all jobs. Returns how many of them may have run twice, beside the summary.
    pub(super) fn run(mut self) -> (forkless_jobs::Summary, u64) {
        while !self.is_over {
            self.hand_out();
            self.obey();
            if self.has_ended() {
                break;
            }
            self.turn(TICK);
            self.go_on();
        }
        self.is_over = true;
        self.dismiss();
        (self.gather.finish(), self.ran_twice)
    }

    fn has_ended(&self) -> bool {
        let is_with_none = self.nodes.all().all(|node| node.jobs.is_empty());
        match self.gather.flow() {
            // A job that neither waits nor is with a node will never end.
            Flow::Continue => {
                self.input == Offer::End && (self.gather.open() == 0 || self.left.is_empty() && is_with_none)
            }
            _ => is_with_none,
        }
    }

    /// Sleeps, then reads and writes what is ready.
    fn turn(&mut self, limit: Duration) {
        self.gather.flush();
        self.steps.iter_mut().for_each(Step::write);
        let source = self.gather.waits_for().filter(|_| self.input == Offer::Later && self.has_room());
        let mut ready = vec![PollFd::new(&self.gather, PollFlags::IN)];
        let live = || self.steps.iter().enumerate().filter(|(_, step)| step.work != Work::Over);
        ready.extend(live().map(|(_, step)| PollFd::from_borrowed_fd(step.streams().0, PollFlags::IN)));
        ready.extend(live().filter_map(|(_, step)| Some(PollFd::from_borrowed_fd(step.streams().1?, PollFlags::OUT))));
        ready.extend(source.as_ref().map(|source| PollFd::new(source, PollFlags::IN)));
        let limit = Timespec::try_from(limit).ok();
        let count = poll(&mut ready, limit.as_ref()).unwrap_or(0);
        let has_answers: Vec<usize> = live()
            .zip(&ready[1..])
            .filter_map(|((step, _), ready)| (count > 0 && !ready.revents().is_empty()).then_some(step))
            .collect();
        drop(ready);
        if self.input == Offer::Later {
            self.input = Offer::Full;
        }
        has_answers.into_iter().for_each(|step| self.read(step));
        let now = Instant::now();
        for id in self.nodes.silent(now, self.lost_after) {
            self.lose(id, NodeState::Lost);
        }
        let running = self.nodes.all().map(|node| node.jobs.len().min(node.slots)).sum();
        let works = self.nodes.all().filter(|node| node.state != NodeState::Retires);
        let slots = works.map(|node| node.slots).sum();
        self.gather.tick(running, slots);
    }

    /// Starts a further step when one has ended or is stuck, and ends those that have no more jobs.
    fn go_on(&mut self) {
        for number in 0..self.steps.len() {
            let is_stuck = self.steps[number].work == Work::Takes && self.is_stuck(number);
            if is_stuck && self.gather.flow() == Flow::Continue {
                self.replace(number);
            }
            if self.steps[number].work == Work::Retires && self.nodes.has_waiting(number) {
                self.steps[number].recall();
            }
            let is_idle =
                self.steps[number].work == Work::Retires && self.nodes.of(number).all(|(_, node)| node.jobs.is_empty());
            if is_idle || self.gather.flow() == Flow::Now && self.steps[number].work == Work::Retires {
                self.steps[number].kill();
                self.step_ended(number);
            }
        }
        if let Some(names) = self.probe.turn(self.lost_after.max(PATIENCE)) {
            self.start_step(names);
        }
        let is_alone = self.steps.iter().all(|step| step.work == Work::Over) && !self.probe.is_busy();
        if is_alone && !self.is_over && !self.has_ended() {
            self.give_up("srun has ended before the jobs: use --resume to run the rest");
        }
    }

    /// srun keeps all orders that a dead node has not taken, and reads no more once they are a megabyte. That does not
    /// change before srun ends.
    fn is_stuck(&self, step: usize) -> bool {
        let has_lost = self.nodes.of(step).any(|(_, node)| node.state == NodeState::Lost);
        has_lost && self.steps[step].is_stuck_for() >= self.lost_after
    }

    /// Another step takes the rest of the jobs of one that is stuck. Its workers end those that they have begun, and give
    /// back the others.
    fn replace(&mut self, number: usize) {
        let of_state = |nodes: &Nodes, state| -> Vec<String> {
            nodes.of(number).filter(|(_, node)| node.state == state).map(|(_, node)| node.name.clone()).collect()
        };
        let (names, lost) = (of_state(&self.nodes, NodeState::Works), of_state(&self.nodes, NodeState::Lost));
        for (rank, seq) in self.steps[number].retire() {
            if self.nodes.take_back((number, rank), seq) {
                self.left.push_back(seq);
            }
        }
        self.nodes.retire(number);
        if names.is_empty() {
            return self.give_up("no node is left: use --resume to run the rest");
        }
        (self.say)(&format!("srun takes no more orders since {} was lost", lost.join(",")));
        self.start_step(names);
    }

    /// Starts a further step on these nodes.
    fn start_step(&mut self, names: Vec<String>) {
        if names.is_empty() || self.starts >= STARTS {
            return self.give_up("srun has ended before the jobs: use --resume to run the rest");
        }
        (self.say)(&format!("another srun runs the rest on {}", names.join(",")));
        self.starts += 1;
        match self.starter.start(names) {
            Ok(step) => self.steps.push(step),
            Err(error) => {
                self.give_up(&format!("another srun cannot be started: {error}: use --resume to run the rest"))
            }
        }
    }

    fn give_up(&mut self, words: &str) {
        self.is_over = true;
        self.gather.fail(io::Error::other(words.to_owned()));
    }

    /// An srun has ended: its workers have killed the jobs that they had. These run again, on nodes that still answer.
    fn step_ended(&mut self, number: usize) {
        let took_orders = self.steps[number].work == Work::Takes;
        self.steps[number].end();
        let ids: Vec<(Id, NodeState)> = self.nodes.of(number).map(|(id, node)| (id, node.state)).collect();
        let mut names = if ids.is_empty() { self.steps[number].names.clone() } else { Vec::new() };
        for (id, state) in ids {
            names.extend(self.nodes.get(id).filter(|_| state == NodeState::Works).map(|node| node.name.clone()));
            self.lose(id, NodeState::Left);
        }
        if took_orders && !self.is_over && self.gather.flow() == Flow::Continue && !self.has_ended() {
            if !names.is_empty() {
                (self.say)("srun has ended before the jobs: asking which nodes still answer");
            }
            self.probe.ask(names);
        }
    }

    /// Whether each step that takes orders has room for more.
    fn has_room(&self) -> bool {
        self.steps.iter().all(|step| step.work != Work::Takes || step.has_room())
    }

    /// Gives jobs to the nodes that should have more.
    fn hand_out(&mut self) {
        if self.steps.len() > 1 {
            self.nodes.inherit();
        }
        while self.has_room() && self.gather.flow() == Flow::Continue {
            let Some(id) = self.nodes.hungry(self.input == Offer::End) else { return };
            let seq = match self.left.pop_front() {
                Some(seq) => seq,
                None => {
                    self.input = self.gather.offer();
                    let Offer::Job(seq) = self.input else { break };
                    seq
                }
            };
            let Some(job) = self.gather.job(seq) else { continue };
            let forkless_jobs::Job { values, text, .. } = job;
            let (step, rank) = id;
            let mut order = format!("run\t{rank}\t{seq}").into_bytes();
            wire::field(&mut order, values.first().map_or(&[][..], |directory| directory));
            wire::field(&mut order, text);
            self.steps[step].order_job(rank, seq, &order);
            if let Some(node) = self.nodes.get(id) {
                node.jobs.insert(seq);
            }
        }
        let is_idle = self.left.is_empty() && self.input != Offer::Full && self.gather.flow() == Flow::Continue;
        if let Some(((step, rank), count)) = is_idle.then(|| self.nodes.ask_back_next()).flatten() {
            self.steps[step].order(format!("back\t{rank}\t{count}").as_bytes());
        }
    }

    /// Sends an order to all workers that take orders.
    fn order(&mut self, line: &str) {
        let takes = self.steps.iter_mut().filter(|step| step.work == Work::Takes);
        takes.for_each(|step| step.order(line.as_bytes()));
    }

    /// Orders the workers to stop when the run is to stop.
    fn obey(&mut self) {
        let flow = self.gather.obey();
        if flow <= self.ordered {
            return;
        }
        self.ordered = flow;
        self.left.clear();
        self.probe.stop();
        if flow == Flow::Now {
            return self.order("stop");
        }
        for (number, step) in self.steps.iter_mut().enumerate().filter(|(_, step)| step.work == Work::Takes) {
            let ranks = self.nodes.of(number).map(|((_, rank), _)| rank);
            ranks.for_each(|rank| step.order(format!("back\t{rank}\t{}", u32::MAX).as_bytes()));
        }
    }

    /// Reads answers of a step.
    fn read(&mut self, step: usize) {
        let Some(piece) = self.steps[step].read() else { return };
        if piece.is_empty() {
            return self.step_ended(step);
        }
        let mut lines = std::mem::take(&mut self.steps[step].lines);
        let now = Instant::now();
        let _ = lines.each(&piece, |line| {
            match wire::parse_answer(line) {
                Some((rank, records)) => {
                    self.nodes.heard((step, rank), now);
                    records.for_each(|record| self.take((step, rank), record, now));
                }
                // Output of a prolog of the site, or the like.
                None => drop(io::stderr().write_all(&[line, b"\n"].concat())),
            }
            Ok(())
        });
        self.steps[step].lines = lines;
    }

    /// Takes a record of a worker.
    fn take(&mut self, id: Id, record: &[u8], now: Instant) {
        let mut fields = record.split(|&byte| byte == b'\t');
        let kind = fields.next().unwrap_or_default();
        match kind {
            b"hello" => {
                let name = String::from_utf8_lossy(&wire::plain(fields.next().unwrap_or_default())).into_owned();
                self.nodes.add(id, name, wire::number(fields.next()).unwrap_or(1), now);
                self.steps[id.0].note_number(fields.next().unwrap_or_default());
            }
            b"out" | b"err" => {
                let Some(seq) = wire::number(fields.next()) else { return };
                let stream = if kind == b"err" { Stream::Err } else { Stream::Out };
                // Only from the node that has the job now.
                if self.nodes.get(id).is_some_and(|node| node.jobs.contains(&seq)) {
                    self.gather.output(seq, stream, &wire::plain(fields.next().unwrap_or_default()));
                }
            }
            b"end" => {
                let Some(seq) = wire::number(fields.next()) else { return };
                if self.nodes.end_job(id, seq, now)
                    && let Some(came) = came(fields)
                {
                    self.end(id, seq, came);
                }
            }
            b"back" => {
                if let Some(seq) = wire::number(fields.next()).filter(|&seq| self.nodes.take_back(id, seq)) {
                    self.left.push_back(seq);
                }
            }
            b"gave" => self.nodes.answered(id),
            b"term" => self.gather_stops(),
            b"bye" => self.lose(id, NodeState::Left),
            _ => {}
        }
    }

    fn end(&mut self, id: Id, seq: u64, came: Came) {
        let mut host = self.nodes.get(id).map_or_else(String::new, |node| node.name.clone());
        if let Some(before) = self.twice.remove(&seq) {
            self.ran_twice += 1;
            host = format!("{host},lost:{before}");
        }
        self.starts = 0;
        self.gather.end_job(seq, came, &host);
    }

    /// Slurm has sent a signal to the workers: it is about to end the job.
    fn gather_stops(&mut self) {
        if self.gather.flow() == Flow::Continue {
            (self.say)("a worker got a signal: starting no more jobs, waiting for those that run");
        }
        self.gather.stop(Flow::Soon);
    }

    /// A node is silent or has left: its jobs run elsewhere.
    fn lose(&mut self, id: Id, state: NodeState) {
        let name = self.nodes.get(id).map_or_else(String::new, |node| node.name.clone());
        let jobs = self.nodes.leave(id, state);
        if state == NodeState::Lost {
            let (count, seconds) = (jobs.len(), self.lost_after.as_secs());
            (self.say)(&format!(
                "{name} has been silent for {seconds} s: its {count} jobs run elsewhere, some of them twice"
            ));
        }
        for seq in jobs {
            self.gather.restart(seq);
            let before = self.twice.entry(seq).or_default();
            if !before.is_empty() {
                before.push(',');
            }
            before.push_str(&name);
            self.left.push_back(seq);
        }
    }

    /// Orders the workers to quit, waits until they have left, and ends the steps that have not ended.
    fn dismiss(&mut self) {
        self.probe.stop();
        self.order("quit");
        let has_lost = self.nodes.all().any(|node| node.state == NodeState::Lost);
        let mut deadline = None;
        while self.steps.iter().any(|step| step.work == Work::Takes) {
            for number in 0..self.steps.len() {
                self.steps[number].write();
                let (has_written, is_stuck) = (self.steps[number].has_written(), self.is_stuck(number));
                let step = &mut self.steps[number];
                match step.work {
                    // Workers that are still starting learn it from the end of their input.
                    Work::Takes if has_written => step.close(),
                    // Workers that no order reaches leave when srun ends.
                    Work::Takes if is_stuck => step.kill(),
                    _ => {}
                }
            }
            if deadline.is_none() && !self.nodes.all().any(|node| node.state == NodeState::Works) {
                deadline = Some(Instant::now() + if has_lost { BRIEF } else { PATIENCE });
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                break;
            }
            self.turn(TICK);
        }
        self.steps.iter_mut().filter(|step| step.work != Work::Over).for_each(Step::end);
    }
}

/// The end of a job, as a worker writes it after the number.
fn came<'a>(mut fields: impl Iterator<Item = &'a [u8]>) -> Option<Came> {
    let kind = fields.next()?.to_vec();
    let status: i32 = wire::number(fields.next())?;
    let started = UNIX_EPOCH + Duration::from_micros(wire::number(fields.next())?);
    let runtime = Duration::from_micros(wire::number(fields.next())?);
    let tries = wire::number(fields.next())?;
    let slot = wire::number(fields.next())?;
    let mut flag = || wire::number(fields.next()).map(|flag: u8| flag != 0);
    let (timed_out, cut_short) = (flag()?, flag()?);
    let text = String::from_utf8_lossy(&wire::plain(fields.next().unwrap_or_default())).into_owned();
    let ending = match &kind[..] {
        b"exit" => Ending::Exited(status),
        b"kill" => Ending::Killed(status),
        b"none" if status == 127 => Ending::NotStarted(io::Error::new(io::ErrorKind::NotFound, text)),
        b"none" => Ending::NotStarted(io::Error::other(text)),
        _ => Ending::Lost(io::Error::other(text)),
    };
    Some(Came { ending, timed_out, cut_short, started, runtime, tries, slot })
}
