//! `--tee`: all jobs get all of the input.
//!
//! The input goes to a temporary file without a name, from which each job gets it at its own pace, so that also a job that
//! starts late gets all of it. When all jobs have started, those that are fast wait for those that are slow, and what all
//! have taken is given back to the file system.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use forkless_jobs::{Filled, Input, JobPlace, JobSource, More, Next, Stdin};
use rustix::fs::{FallocateFlags, fallocate};

use super::lines::Lines;

/// So many bytes go to a job at once.
const PIECE: u64 = 64 << 10;
/// How many bytes a fast job may be ahead of a slow one.
const AHEAD: u64 = 64 << 20;
/// So many bytes are given back at once.
const GIVEN_BACK: u64 = 1 << 20;

/// The jobs, and the input for all of them.
pub(super) struct Tee {
    lines: Lines,
    input: Input,
    tape: File,
    /// The length of the tape.
    length: u64,
    /// So much of its beginning has been given back.
    gone: u64,
    has_ended: bool,
    /// How much each job has taken.
    taken: BTreeMap<u64, u64>,
    /// All jobs have been made.
    is_full: bool,
}

impl Tee {
    /// The values of `lines` must be known: the run waits for this input only.
    pub(super) fn new(lines: Lines, input: Input, tape: File) -> Self {
        let (taken, is_full, has_ended) = (BTreeMap::new(), false, false);
        Self { lines, input, tape, length: 0, gone: 0, has_ended, taken, is_full }
    }

    /// The least that any job has taken.
    fn least(&self) -> u64 {
        self.taken.values().copied().min().unwrap_or(self.length)
    }

    fn give_back(&mut self) {
        let least = self.least();
        if self.is_full && least - self.gone >= GIVEN_BACK {
            // Some file systems cannot do it. Then the file is as long as the input.
            let _ = fallocate(&self.tape, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, least);
            self.gone = least;
        }
    }
}

impl JobSource for Tee {
    fn next(&mut self, place: JobPlace) -> io::Result<Next> {
        Ok(match self.lines.next(place)? {
            Next::Job(mut job) => {
                job.stdin = Stdin::Stream(Vec::new());
                self.taken.insert(place.seq, 0);
                Next::Job(job)
            }
            answer => {
                self.is_full = true;
                answer
            }
        })
    }

    fn more(&mut self, seq: u64) -> io::Result<More> {
        let from = self.taken.get(&seq).copied().unwrap_or(self.length);
        if from == self.length {
            if self.has_ended {
                return Ok(More::End);
            }
            if self.is_full && self.length - self.least() >= AHEAD {
                return Ok(More::NotYet);
            }
            match self.input.fill()? {
                Filled::Data => {}
                Filled::Later => return Ok(More::Later),
                Filled::End => {
                    self.has_ended = true;
                    return Ok(More::End);
                }
            }
            let bytes = self.input.bytes();
            self.tape.write_all_at(bytes, self.length)?;
            self.length += bytes.len() as u64;
            let count = bytes.len();
            self.input.consume(count);
        }
        let mut bytes = vec![0; (self.length - from).min(PIECE) as usize];
        self.tape.read_exact_at(&mut bytes, from)?;
        self.taken.insert(seq, from + bytes.len() as u64);
        self.give_back();
        Ok(More::Bytes(bytes))
    }

    fn closed(&mut self, seq: u64) {
        self.taken.remove(&seq);
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        Some(self.input.as_fd())
    }

    fn total(&mut self) -> Option<u64> {
        self.lines.total()
    }

    fn left(&mut self) -> Option<u64> {
        self.lines.left()
    }
}
