//! The run of `forkless parallel --slurm` in an allocation: one srun, a worker on each node, and what goes between.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, UNIX_EPOCH};

use forkless::{Child, Command, Stdio};
use forkless_jobs::{Came, Ending, Flow, Gather, Offer, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use super::nodes::{Nodes, State};
use super::wire::{self, Lines};

/// No job is handed out while so many bytes wait for srun.
const BACKLOG: usize = 256 << 10;
/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(100);
/// srun gets this time to end after all workers have.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same where a node was lost: Slurm itself may wait for it for minutes.
const BRIEF: Duration = Duration::from_secs(1);

/// A run on the nodes of an allocation.
pub(super) struct Crew<'a> {
    gather: Gather<'a>,
    nodes: Nodes,
    /// Jobs that were handed out and must be again.
    left: VecDeque<u64>,
    /// Jobs that may have run before, and where.
    twice: BTreeMap<u64, String>,
    /// Ends of such jobs.
    ran_twice: u64,
    to_srun: Option<OwnedFd>,
    waiting: Vec<u8>,
    /// When srun last took orders, or none waited.
    taken: Instant,
    srun: Child,
    answers: OwnedFd,
    lines: Lines,
    input: Offer,
    /// After this silence, a node's jobs run elsewhere.
    lost_after: Duration,
    told: Flow,
    say: fn(&str),
}

impl<'a> Crew<'a> {
    /// Starts srun with these words.
    pub(super) fn start(
        gather: Gather<'a>,
        words: &[OsString],
        environment: &[(OsString, OsString)],
        lost_after: Duration,
        say: fn(&str),
    ) -> Result<Self, String> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for this process, which ends the jobs by orders.
        command.process_group(0);
        for (name, value) in environment {
            command.env(name, value);
        }
        let mut srun = command.spawn().map_err(|error| format!("--slurm: {error}"))?;
        let (Some(to_srun), Some(answers)) = (srun.stdin.take(), srun.stdout.take()) else {
            return Err("--slurm: no pipes to srun".to_owned());
        };
        let (to_srun, answers) = (OwnedFd::from(to_srun), OwnedFd::from(answers));
        fcntl_setfl(&to_srun, OFlags::NONBLOCK).map_err(|error| format!("--slurm: {error}"))?;
        Ok(Self {
            gather,
            nodes: Nodes::default(),
            left: VecDeque::new(),
            twice: BTreeMap::new(),
            ran_twice: 0,
            to_srun: Some(to_srun),
            waiting: Vec::new(),
            taken: Instant::now(),
            srun,
            answers,
            lines: Lines::default(),
            input: Offer::Full,
            lost_after,
            told: Flow::Continue,
            say,
        })
    }

    /// Runs all jobs. Returns how many of them may have run twice, beside the summary.
    pub(super) fn run(mut self) -> (forkless_jobs::Summary, u64) {
        let mut is_over = false;
        loop {
            self.hand_out();
            self.obey();
            let has_ended = match self.gather.flow() {
                // A job that neither waits nor is with a node will never end.
                Flow::Continue => {
                    let is_with_none = self.left.is_empty() && self.nodes.all().all(|node| node.jobs.is_empty());
                    self.input == Offer::End && (self.gather.open() == 0 || is_with_none)
                }
                _ => self.nodes.all().all(|node| node.jobs.is_empty() || node.state != State::Works),
            };
            if has_ended || is_over {
                break;
            }
            is_over = !self.turn(TICK);
            if !is_over && self.is_stuck() {
                let words =
                    "srun takes no more orders since a node was lost: use --resume to run the rest on the others";
                self.gather.fail(io::Error::other(words));
                break;
            }
            if is_over && self.gather.open() > 0 {
                self.gather.fail(io::Error::other("srun has ended before the jobs: use --resume to run the rest"));
            }
        }
        if !is_over {
            self.dismiss();
        }
        self.end_srun();
        (self.gather.finish(), self.ran_twice)
    }

    /// Sleeps, then reads and writes what is ready. False: srun has closed its output.
    fn turn(&mut self, limit: Duration) -> bool {
        self.gather.flush();
        self.write();
        let out = self.to_srun.as_ref().filter(|_| !self.waiting.is_empty());
        let source = self.gather.waits_for().filter(|_| self.input == Offer::Later && self.wants_more());
        let mut ready = vec![PollFd::new(&self.answers, PollFlags::IN), PollFd::new(&self.gather, PollFlags::IN)];
        ready.extend(out.map(|out| PollFd::new(out, PollFlags::OUT)));
        ready.extend(source.as_ref().map(|source| PollFd::new(source, PollFlags::IN)));
        let limit = Timespec::try_from(limit).ok();
        let has_answers = match poll(&mut ready, limit.as_ref()) {
            Ok(_) => !ready[0].revents().is_empty(),
            Err(_) => false,
        };
        drop(ready);
        if self.input == Offer::Later {
            self.input = Offer::Full;
        }
        let is_open = !has_answers || self.read();
        let now = Instant::now();
        for rank in self.nodes.silent(now, self.lost_after) {
            self.lose(rank, State::Lost);
        }
        let running = self.nodes.all().map(|node| node.jobs.len().min(node.slots)).sum();
        let slots = self.nodes.all().map(|node| node.slots).sum();
        self.gather.tick(running, slots);
        is_open
    }

    /// srun keeps all orders that a dead node has not taken, and reads no more when they are a megabyte. That does not
    /// change before srun ends.
    fn is_stuck(&self) -> bool {
        let has_lost = self.nodes.all().any(|node| node.state == State::Lost);
        has_lost && !self.waiting.is_empty() && self.taken.elapsed() >= self.lost_after
    }

    fn wants_more(&self) -> bool {
        self.waiting.len() < BACKLOG
    }

    /// Gives jobs to the nodes that should have more.
    fn hand_out(&mut self) {
        while self.wants_more() && self.gather.flow() == Flow::Continue {
            let Some(rank) = self.nodes.hungry(self.input == Offer::End) else { return };
            let seq = match self.left.pop_front() {
                Some(seq) => seq,
                None => {
                    self.input = self.gather.next();
                    let Offer::Job(seq) = self.input else { break };
                    seq
                }
            };
            let Some(job) = self.gather.job(seq) else { continue };
            let forkless_jobs::Job { values, text, .. } = job;
            let mut order = format!("run\t{rank}\t{seq}").into_bytes();
            wire::field(&mut order, values.first().map_or(&[][..], |directory| directory));
            wire::field(&mut order, text);
            order.push(b'\n');
            self.waiting.append(&mut order);
            if let Some(node) = self.nodes.get(rank) {
                node.jobs.insert(seq);
            }
        }
        let is_idle = self.left.is_empty() && self.input != Offer::Full && self.gather.flow() == Flow::Continue;
        if let Some((rank, count)) = is_idle.then(|| self.nodes.to_ask_back()).flatten() {
            self.order(&format!("back\t{rank}\t{count}"));
        }
    }

    fn order(&mut self, line: &str) {
        self.waiting.extend_from_slice(line.as_bytes());
        self.waiting.push(b'\n');
    }

    /// Tells the workers when the run is to stop.
    fn obey(&mut self) {
        let flow = self.gather.obey();
        if flow <= self.told {
            return;
        }
        self.told = flow;
        self.left.clear();
        if flow == Flow::Now {
            return self.order("stop");
        }
        let ranks = 0..self.nodes.0.len();
        ranks.for_each(|rank| self.order(&format!("back\t{rank}\t{}", u32::MAX)));
    }

    /// Writes orders, as far as srun takes them.
    fn write(&mut self) {
        if self.waiting.is_empty() {
            self.taken = Instant::now();
        }
        let Some(to_srun) = &self.to_srun else { return };
        while !self.waiting.is_empty() {
            match forkless::write_quietly(to_srun, &self.waiting) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    self.taken = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.to_srun = None;
                    self.waiting.clear();
                    return;
                }
            }
        }
    }

    /// Reads answers. False: the end of srun's output.
    fn read(&mut self) -> bool {
        let mut piece = vec![0; 1 << 16];
        let count = match rustix::io::read(&self.answers, &mut piece) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return true,
            Err(_) => 0,
        };
        let mut lines = std::mem::take(&mut self.lines);
        let now = Instant::now();
        let _ = lines.each(&piece[..count], |line| {
            match wire::answer(line) {
                Some((rank, records)) => {
                    self.nodes.heard(rank, now);
                    records.for_each(|record| self.take(rank, record, now));
                }
                // A prolog of the site, or the like.
                None => drop(io::stderr().write_all(&[line, b"\n"].concat())),
            }
            Ok(())
        });
        self.lines = lines;
        count > 0
    }

    /// Takes a record of a worker.
    fn take(&mut self, rank: usize, record: &[u8], now: Instant) {
        let mut fields = record.split(|&byte| byte == b'\t');
        let kind = fields.next().unwrap_or_default();
        match kind {
            b"hello" => {
                let name = String::from_utf8_lossy(&wire::plain(fields.next().unwrap_or_default())).into_owned();
                self.nodes.add(rank, name, wire::number(fields.next()).unwrap_or(1), now);
            }
            b"out" | b"err" => {
                let Some(seq) = wire::number(fields.next()) else { return };
                let stream = if kind == b"err" { Stream::Err } else { Stream::Out };
                // Only of the node that has the job now.
                if self.nodes.get(rank).is_some_and(|node| node.jobs.contains(&seq)) {
                    self.gather.output(seq, stream, &wire::plain(fields.next().unwrap_or_default()));
                }
            }
            b"end" => {
                let Some(seq) = wire::number(fields.next()) else { return };
                if self.nodes.ended(rank, seq, now)
                    && let Some(came) = came(fields)
                {
                    self.end(rank, seq, came);
                }
            }
            b"back" => {
                if let Some(seq) = wire::number(fields.next()).filter(|&seq| self.nodes.returned(rank, seq)) {
                    self.left.push_back(seq);
                }
            }
            b"gave" => self.nodes.answered(rank),
            b"term" => self.gather_stops(),
            b"bye" => self.lose(rank, State::Left),
            _ => {}
        }
    }

    fn end(&mut self, rank: usize, seq: u64, came: Came) {
        let mut host = self.nodes.get(rank).map_or_else(String::new, |node| node.name.clone());
        if let Some(before) = self.twice.remove(&seq) {
            self.ran_twice += 1;
            host = format!("{host},lost:{before}");
        }
        self.gather.ended(seq, came, &host);
    }

    /// Slurm has sent a signal to the workers: it is about to end the job.
    fn gather_stops(&mut self) {
        if self.gather.flow() == Flow::Continue {
            (self.say)("a worker got a signal: starting no more jobs, waiting for those that run");
        }
        self.gather.stop(Flow::Soon);
    }

    /// A node is silent or has left: its jobs run elsewhere.
    fn lose(&mut self, rank: usize, state: State) {
        let name = self.nodes.get(rank).map_or_else(String::new, |node| node.name.clone());
        let jobs = self.nodes.leave(rank, state);
        if state == State::Lost {
            let (count, seconds) = (jobs.len(), self.lost_after.as_secs());
            (self.say)(&format!(
                "{name} has been silent for {seconds} s: its {count} jobs run elsewhere, some of them twice"
            ));
        }
        for seq in jobs {
            self.gather.again(seq);
            let before = self.twice.entry(seq).or_default();
            if !before.is_empty() {
                before.push(',');
            }
            before.push_str(&name);
            self.left.push_back(seq);
        }
    }

    /// Tells the workers that there is no more, and waits until they have left.
    fn dismiss(&mut self) {
        self.order("quit");
        let has_lost = self.nodes.all().any(|node| node.state == State::Lost);
        // Workers that cannot be told leave when srun ends.
        let mut deadline = self.is_stuck().then(Instant::now);
        loop {
            self.write();
            if self.waiting.is_empty() {
                // The end of input tells workers that are still on their way.
                self.to_srun = None;
            }
            if deadline.is_none() && self.nodes.all().all(|node| node.state != State::Works) {
                deadline = Some(Instant::now() + if has_lost { BRIEF } else { PATIENCE });
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) || !self.turn(TICK) {
                return;
            }
        }
    }

    /// Ends srun, if it has not ended.
    fn end_srun(&mut self) {
        self.to_srun = None;
        if !matches!(self.srun.wait_timeout(BRIEF), Ok(Some(_))) {
            let _ = self.srun.kill();
            let _ = self.srun.wait();
        }
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
