//! One srun: a step of the Slurm job with a worker on each of its nodes, and the streams to them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use forkless::{Child, Command, Stdio};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::{PipeFlags, pipe_with};

use super::wire::WireLines;

/// No job is handed out while so many bytes wait for srun.
const BACKLOG: usize = 256 << 10;
/// srun gets this time to end by itself.
const BRIEF: Duration = Duration::from_secs(1);
/// The time between two requests to give back jobs: an order that was still on its way may have come after the first.
const REPEAT: Duration = Duration::from_secs(10);

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// It takes orders.
    Takes,
    /// It takes no more orders, and its workers end the jobs that they have.
    Retires,
    /// srun has ended, or has closed its output.
    Over,
}

/// An order to run a job.
struct Order {
    /// Where it ends in all that was ever written to srun.
    end: u64,
    rank: usize,
    seq: u64,
}

pub(super) struct Step {
    pub(super) work: Work,
    /// The nodes that were requested; empty for the first step, which takes all.
    pub(super) names: Vec<String>,
    srun: Child,
    to_srun: Option<OwnedFd>,
    /// The other end of that pipe: what srun does not read is taken back here.
    unread: File,
    waiting: Vec<u8>,
    written: u64,
    /// Orders that srun may not have read.
    orders: VecDeque<Order>,
    /// How much srun has read, and when it was last seen to have read more, or everything.
    taken: u64,
    taken_at: Instant,
    answers: OwnedFd,
    pub(super) lines: WireLines,
    /// Its name for Slurm, such as `12.3`, if a worker has reported it.
    id: Option<String>,
    /// The command that sends the last request to give back jobs, and when it was started.
    recall: Option<(Child, Instant)>,
}

impl Step {
    /// Starts srun by this command line.
    pub(super) fn start(
        words: &[OsString],
        environment: &[(OsString, OsString)],
        names: Vec<String>,
    ) -> io::Result<Self> {
        let (input, to_srun) = pipe_with(PipeFlags::CLOEXEC)?;
        // A description of its own: srun's end must stay blocking.
        let unread = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(format!("/proc/self/fd/{}", input.as_raw_fd()))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::from(input)).stdout(Stdio::piped());
        // Ctrl-C is for this process, which ends the jobs by orders.
        command.process_group(0);
        for (name, value) in environment {
            command.env(name, value);
        }
        let mut srun = command.spawn().map_err(io::Error::other)?;
        let answers = srun.stdout.take().map(OwnedFd::from).ok_or_else(|| io::Error::other("no pipe from srun"))?;
        fcntl_setfl(&to_srun, OFlags::NONBLOCK)?;
        Ok(Self {
            work: Work::Takes,
            names,
            srun,
            to_srun: Some(to_srun),
            unread,
            waiting: Vec::new(),
            written: 0,
            orders: VecDeque::new(),
            taken: 0,
            taken_at: Instant::now(),
            answers,
            lines: WireLines::default(),
            id: None,
            recall: None,
        })
    }

    /// Where answers come from, and, if orders wait, where they go to.
    pub(super) fn streams(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let out = self.to_srun.as_ref().filter(|_| !self.waiting.is_empty());
        (self.answers.as_fd(), out.map(AsFd::as_fd))
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < BACKLOG
    }

    /// Whether all orders have been written.
    pub(super) fn has_written(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn order(&mut self, line: &[u8]) {
        self.waiting.extend_from_slice(line);
        self.waiting.push(b'\n');
    }

    /// Adds the order to run a job.
    pub(super) fn order_job(&mut self, rank: usize, seq: u64, line: &[u8]) {
        self.order(line);
        self.orders.push_back(Order { end: self.written + self.waiting.len() as u64, rank, seq });
    }

    /// Writes orders, as far as srun takes them.
    pub(super) fn write(&mut self) {
        while let Some(to_srun) = self.to_srun.as_ref().filter(|_| !self.waiting.is_empty()) {
            match forkless::internal::write_quietly(to_srun, &self.waiting) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    self.written += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let taken = self.written.saturating_sub(ioctl_fionread(&self.unread).unwrap_or(0));
        if taken > self.taken || (taken == self.written && self.waiting.is_empty()) {
            (self.taken, self.taken_at) = (taken, Instant::now());
        }
        while self.orders.front().is_some_and(|order| order.end <= self.taken) {
            self.orders.pop_front();
        }
    }

    /// How long srun has read nothing of what waits for it.
    pub(super) fn is_stuck_for(&self) -> Duration {
        self.taken_at.elapsed()
    }

    /// Takes back what srun has not read, and lets the workers end what they have. Returns the jobs of these orders, with
    /// the workers that they were for. No worker gets them: an order of which srun has read a part stays without its end.
    pub(super) fn retire(&mut self) -> Vec<(usize, u64)> {
        self.work = Work::Retires;
        self.waiting.clear();
        let (mut back, mut piece) = (0, vec![0; 1 << 16]);
        loop {
            match self.unread.read(&mut piece) {
                Ok(count) if count > 0 => back += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let read = self.written - back;
        self.orders.drain(..).filter(|order| order.end > read).map(|order| (order.rank, order.seq)).collect()
    }

    /// Notes the number of this step in the Slurm job.
    pub(super) fn note_number(&mut self, number: &[u8]) {
        let job = std::env::var("SLURM_JOB_ID").ok();
        let number = std::str::from_utf8(number).ok().filter(|number| !number.is_empty());
        self.id = job.zip(number).map(|(job, number)| format!("{job}.{number}"));
    }

    /// Lets the workers, which no order reaches any more, give back the jobs that wait. SIGCONT, which Slurm sends to all
    /// processes of a step, changes nothing in the jobs that run. Does nothing shortly after the last time.
    pub(super) fn recall(&mut self) {
        if self.recall.as_ref().is_some_and(|(_, since)| since.elapsed() < REPEAT) {
            return;
        }
        self.end_recall();
        let Some(id) = &self.id else { return };
        let mut scancel = Command::new("scancel");
        scancel.args(["--quiet", "--signal=CONT", id]).process_group(0);
        scancel.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without scancel the jobs run where they are.
        self.recall = scancel.spawn().ok().map(|scancel| (scancel, Instant::now()));
    }

    fn end_recall(&mut self) {
        if let Some((mut scancel, _)) = self.recall.take() {
            let _ = scancel.kill();
            let _ = scancel.wait();
        }
    }

    /// Reads answers. Empty: the end of srun's output. `None`: not yet.
    pub(super) fn read(&mut self) -> Option<Vec<u8>> {
        let mut piece = vec![0; 1 << 16];
        match rustix::io::read(&self.answers, &mut piece) {
            Ok(count) => piece.truncate(count),
            Err(Errno::INTR | Errno::AGAIN) => return None,
            Err(_) => piece.clear(),
        }
        Some(piece)
    }

    /// Closes srun's input. Workers that are still starting leave at its end.
    pub(super) fn close(&mut self) {
        self.to_srun = None;
    }

    /// Kills srun. Workers that have jobs kill these.
    pub(super) fn kill(&mut self) {
        self.close();
        self.end_recall();
        self.work = Work::Over;
        let _ = self.srun.kill();
        let _ = self.srun.wait();
    }

    /// Ends srun, if it does not end by itself.
    pub(super) fn end(&mut self) {
        self.close();
        self.end_recall();
        if !matches!(self.srun.wait_timeout(BRIEF), Ok(Some(_))) {
            self.kill();
        }
        self.work = Work::Over;
    }
}
