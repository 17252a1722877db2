//! `--gearman`: the jobs run on the workers of a Gearman server.
//!
//! Each job stays here until its reply has come. If the connection breaks or the server is started again, all jobs without a
//! reply are submitted again: each runs at least once, and none is lost.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use forkless_gearman::packet::{Packet, PacketKind};
use forkless_gearman::record::{Record, Request};
use forkless_gearman::{Happening, Link, Trust};
use forkless_jobs::{Ending, Job, JobPlace, Remote, RemoteEnd, Run};

use super::message::say;
use super::options::ParallelOptions;

/// The queue, if none is named.
const QUEUE: &str = "forkless";
/// How many jobs are in the queue at once, if `--jobs` does not say.
pub(super) const SLOTS: usize = 1000;

/// The feeder of the queue of `HOST:PORT` or `HOST:PORT/QUEUE`.
pub(super) fn feeder(text: &str) -> Result<Box<dyn Remote>, String> {
    Ok(Box::new(Feeder::new(text)?))
}

/// A job without a reply.
#[derive(Debug, Default)]
struct Outstanding {
    workload: Vec<u8>,
    out: Vec<u8>,
    err: Vec<u8>,
}

/// Feeds a queue and gathers the replies.
struct Feeder {
    link: Link,
    queue: String,
    jobs: BTreeMap<u64, Outstanding>,
    /// Submitted by this connection, and not acknowledged.
    submitted: VecDeque<u64>,
    /// The names that the server has given to jobs of this connection.
    handles: HashMap<Vec<u8>, u64>,
    /// Makes ids of jobs unique: two jobs with the same id would be one for the server.
    run: String,
    count: u64,
    is_down_known: bool,
}

impl Feeder {
    fn new(text: &str) -> Result<Self, String> {
        let (server, queue) = text.split_once('/').unwrap_or((text, QUEUE));
        if queue.is_empty() || queue.contains('\0') {
            return Err(format!(
                "--gearman: no queue after the slash: HOST:PORT/QUEUE, or HOST:PORT for the queue {QUEUE:?}"
            ));
        }
        let link = Link::new(server, Trust::Any).map_err(|error| format!("--gearman: {server}: {error}"))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        Ok(Self {
            link,
            queue: queue.to_owned(),
            jobs: BTreeMap::new(),
            submitted: VecDeque::new(),
            handles: HashMap::new(),
            run: format!("forkless-{}-{now}", std::process::id()),
            count: 0,
            is_down_known: false,
        })
    }

    fn send(&mut self, seq: u64) {
        let Some(job) = self.jobs.get(&seq).filter(|_| self.link.is_up()) else { return };
        self.count += 1;
        let id = format!("{}-{}", self.run, self.count);
        self.link.send(PacketKind::SUBMIT_JOB, &[self.queue.as_bytes(), id.as_bytes(), &job.workload]);
        self.submitted.push_back(seq);
    }

    fn came_up(&mut self) {
        if std::mem::take(&mut self.is_down_known) {
            say(format_args!("connected to {}", self.link.server()));
        }
        self.submitted.clear();
        self.handles.clear();
        let waiting: Vec<u64> = self.jobs.keys().copied().collect();
        for seq in waiting {
            if let Some(job) = self.jobs.get_mut(&seq) {
                // The job runs again from its beginning.
                (job.out, job.err) = Default::default();
            }
            self.send(seq);
        }
    }

    fn take(&mut self, packet: &Packet, ended: &mut Vec<RemoteEnd>) {
        match packet.kind {
            PacketKind::JOB_CREATED => {
                if let Some(seq) = self.submitted.pop_front() {
                    self.handles.insert(packet.argument(0).to_vec(), seq);
                }
                return;
            }
            PacketKind::ERROR => {
                let text = |index| String::from_utf8_lossy(packet.argument(index)).into_owned();
                say(format_args!("{} reports {}: {}", self.link.server(), text(0), text(1)));
                // Which job it has refused is not known: a new connection submits all of them again.
                self.link.fail(io::Error::other(text(0)));
                return;
            }
            _ => {}
        }
        let Some(&seq) = self.handles.get(packet.argument(0)) else { return };
        let Some(job) = self.jobs.get_mut(&seq) else { return };
        match packet.kind {
            PacketKind::WORK_DATA => job.out.extend_from_slice(packet.argument(1)),
            PacketKind::WORK_WARNING => job.err.extend_from_slice(packet.argument(1)),
            PacketKind::WORK_COMPLETE | PacketKind::WORK_FAIL => {
                self.handles.remove(packet.argument(0));
                let Some(job) = self.jobs.remove(&seq) else { return };
                let exit = i32::from(packet.kind == PacketKind::WORK_FAIL);
                ended.push(remote_end(seq, job, exit, packet.argument(1)));
            }
            _ => {}
        }
    }
}

/// The end of a job, by its reply: that of our worker, or of another one.
fn remote_end(seq: u64, mut job: Outstanding, exit: i32, reply: &[u8]) -> RemoteEnd {
    let Some(record) = Record::parse(reply).filter(|_| exit == 0) else {
        job.out.extend_from_slice(reply);
        let ending = Ending::Exited(exit);
        return RemoteEnd { seq, ending, timed_out: false, started: None, runtime: None, out: job.out, err: job.err };
    };
    let Record { exit, signal, timed_out, cut, started, seconds, refused, out, mut err } = record;
    if cut {
        err.extend_from_slice(b"forkless: the worker has cut the output at its limit\n");
    }
    let ending = match (refused.is_empty(), signal) {
        (false, _) if exit == 127 => Ending::NotStarted(io::Error::new(io::ErrorKind::NotFound, refused)),
        (false, _) => Ending::NotStarted(io::Error::other(refused)),
        (true, 0) if (0..=255).contains(&exit) => Ending::Exited(exit),
        (true, 1..=64) => Ending::Killed(signal),
        // No process has such an end.
        (true, _) => Ending::Exited(255),
    };
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
    // Any worker may have sent these numbers: they may be out of the clock's range.
    let started = duration(started).filter(|time| !time.is_zero());
    let started = started.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
    RemoteEnd { seq, ending, timed_out, started, runtime: duration(seconds), out, err }
}

impl Remote for Feeder {
    fn submit(&mut self, job: &Job, place: JobPlace, timeout: Option<Duration>) {
        let line = match &job.run {
            Run::Line(line) => line.clone(),
            Run::Program { .. } => job.text.clone(),
        };
        let workload = Request { line, wants_record: true, timeout }.to_workload();
        self.jobs.insert(place.seq, Outstanding { workload, ..Outstanding::default() });
        self.send(place.seq);
    }

    fn waits_for(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    fn pump(&mut self, ended: &mut Vec<RemoteEnd>) -> io::Result<()> {
        self.link.pump();
        while let Some(happening) = self.link.take() {
            match happening {
                Happening::Up => self.came_up(),
                Happening::Down(error) => {
                    if !std::mem::replace(&mut self.is_down_known, true) {
                        say(format_args!("{}: {error}: retrying until the server answers", self.link.server()));
                    }
                }
                Happening::Packet(packet) => self.take(&packet, ended),
            }
        }
        self.link.flush();
        Ok(())
    }
}

/// Refuses options that have no meaning for jobs that run elsewhere.
pub(super) fn check(given: &ParallelOptions) -> Result<(), String> {
    if given.slurm.is_some() {
        return Err("--gearman and --slurm exclude each other: leave one out".to_owned());
    }
    let local = [
        (given.has_blocks(), "--pipe"),
        (given.workdir.is_some(), "--workdir"),
        (given.nice.is_some(), "--nice"),
        (given.linger.is_some(), "--linger"),
        (given.kill_tree, "--kill-tree"),
        (given.load.is_some(), "--load"),
        (given.memfree.is_some(), "--memfree"),
        (given.tmpdir.is_some(), "--tmpdir"),
        (given.term_seq.is_some(), "--term-seq"),
        (given.process_slot_var.is_some(), "--process-slot-var"),
    ];
    match local.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, name)) => Err(format!("--gearman: not with {name}, which is for jobs on this machine: leave it out")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outstanding() -> Outstanding {
        Outstanding { workload: Vec::new(), out: b"data ".to_vec(), err: b"warned".to_vec() }
    }

    #[test]
    fn replies_of_any_worker_are_understood() {
        let other = remote_end(1, outstanding(), 0, b"text");
        assert!(other.ending.is_success() && other.runtime.is_none());
        assert_eq!((&other.out[..], &other.err[..]), (&b"data text"[..], &b"warned"[..]));
        assert_eq!(remote_end(1, outstanding(), 1, b"").ending.numbers(), (1, 0));
        let record = Record { signal: 9, timed_out: true, seconds: 1.5, out: b"x".to_vec(), ..Record::default() };
        let ours = remote_end(1, Outstanding::default(), 0, &record.to_reply());
        assert_eq!((ours.ending.numbers(), ours.timed_out), ((0, 9), true));
        assert_eq!((ours.runtime, &ours.out[..]), (Some(Duration::from_millis(1500)), &b"x"[..]));
        for seconds in [1e19, f64::MAX, f64::INFINITY, f64::NAN, -1.0] {
            let record = Record { started: seconds, seconds, ..Record::default() };
            assert_eq!(remote_end(1, Outstanding::default(), 0, &record.to_reply()).started, None, "{seconds}");
        }
        for (exit, signal) in [(256, 0), (-1, 0), (0, -5), (0, 65)] {
            let record = Record { exit, signal, ..Record::default() };
            assert_eq!(remote_end(1, Outstanding::default(), 0, &record.to_reply()).ending.numbers(), (255, 0));
        }
        let refused = Record { exit: 126, refused: "not allowed".to_owned(), ..Record::default() };
        assert!(matches!(remote_end(1, Outstanding::default(), 0, &refused.to_reply()).ending, Ending::NotStarted(_)));
    }
}
