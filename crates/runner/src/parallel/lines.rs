//! The jobs: one line for each set of arguments.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use forkless_jobs::{Job, JobPlace, JobSource, Next, Run};

use super::options::Retries;
use super::pack::RowPacker;
use super::records::Pull;
use super::results::Naming;
use super::shard::Shard;
use super::shell::Shell;
use super::sources::Row;
use super::template::{Numbers, Template};

/// How long the jobs that are left are counted: the input may have no end.
const COUNTING: Duration = Duration::from_secs(1);

/// Makes a job of a line.
#[derive(Debug)]
pub(super) struct Maker {
    pub(super) shell: Shell,
    pub(super) slots: usize,
    pub(super) total: u64,
    pub(super) tag: Option<Template>,
    /// How often a job is launched, if each has its own number.
    pub(super) tries: Option<Template>,
    pub(super) directory: Option<Template>,
    pub(super) results: Option<Naming>,
    /// The command goes to standard output before its output.
    pub(super) shows_command: bool,
    /// Gets the slot's number, from 0.
    pub(super) slot_variable: Option<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    /// Nothing is run: the tag comes before the command.
    pub(super) is_dry: bool,
    /// Only these jobs are made.
    pub(super) shard: Option<Shard>,
}

impl Maker {
    pub(super) fn numbers(&self, place: JobPlace) -> Numbers {
        Numbers { seq: place.seq, slot: place.slot, slots: self.slots, total: self.total }
    }

    /// The first value of the job is its working directory, or empty; the others are the arguments.
    pub(super) fn job(&self, line: Vec<u8>, args: &Row, place: JobPlace) -> Job {
        let numbers = self.numbers(place);
        let mut job = Job { text: line.clone(), ..Job::default() };
        if let Some(tag) = &self.tag {
            job.tag = tag.expand(args, numbers);
            job.tag.push(b'\t');
        }
        if self.shows_command {
            job.head = [&job.tag[..], &line, b"\n"].concat();
        }
        if let Some(tries) = &self.tries {
            let text = tries.expand(args, numbers);
            let times = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
            job.tries = Some(times.map_or(1, Retries::most));
        }
        if let Some(naming) = &self.results {
            job.results = Some(naming.directory(args, numbers));
        }
        let directory = self.directory.as_ref().map(|template| template.expand(args, numbers));
        job.values = std::iter::once(directory.unwrap_or_default()).chain(args.iter().cloned()).collect();
        job.env = self.environment(place);
        if self.is_dry {
            job.text = [&job.tag[..], &line].concat();
        }
        job.run = Run::Line(line);
        job
    }

    pub(super) fn environment(&self, place: JobPlace) -> Vec<(OsString, OsString)> {
        let mut env = self.env.clone();
        env.push(("PARALLEL_SEQ".into(), place.seq.to_string().into()));
        env.push(("PARALLEL_JOBSLOT".into(), place.slot.to_string().into()));
        if let Some(name) = &self.slot_variable {
            env.push((name.clone(), (place.slot - 1).to_string().into()));
        }
        env
    }
}

/// Where the arguments of the jobs come from.
#[derive(Debug)]
pub(super) enum Supply {
    Packed(Box<RowPacker>),
    /// All of them are known.
    Known(std::vec::IntoIter<Row>),
    /// Lines of a log, by their numbers, which are run as they are.
    Again(BTreeMap<u64, Vec<u8>>),
}

/// The jobs of a template and its input.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) supply: Supply,
    pub(super) template: Template,
    pub(super) maker: Maker,
    /// So many sets of arguments were taken.
    pub(super) taken: u64,
    pub(super) total: Option<u64>,
}

impl Lines {
    fn args(&mut self, numbers: Numbers) -> io::Result<Pull<Row>> {
        loop {
            let pulled = match &mut self.supply {
                Supply::Packed(packer) => packer.next(&self.template, numbers)?,
                Supply::Known(rows) => rows.next().map_or(Pull::End, Pull::Item),
                Supply::Again(_) => Pull::End,
            };
            if let (Pull::Item(_), Some(shard)) = (&pulled, self.maker.shard) {
                self.taken += 1;
                if !shard.contains(self.taken - 1) {
                    continue;
                }
            }
            return Ok(pulled);
        }
    }

    /// Reads all arguments, and waits for them. The number of jobs is known then.
    pub(super) fn read_all(&mut self, shuffle: bool) -> io::Result<()> {
        let Supply::Packed(_) = self.supply else { return Ok(()) };
        let mut rows = Vec::new();
        loop {
            let numbers = self.maker.numbers(JobPlace { seq: rows.len() as u64 + 1, slot: 1 });
            match self.args(numbers)? {
                Pull::Item(args) => rows.push(args),
                Pull::Later => {
                    let Supply::Packed(packer) = &self.supply else { break };
                    packer.sources().wait()?;
                }
                Pull::End => break,
            }
        }
        if shuffle {
            fastrand::shuffle(&mut rows);
        }
        self.maker.total = rows.len() as u64;
        self.total = Some(rows.len() as u64);
        self.maker.shard = None;
        self.supply = Supply::Known(rows.into_iter());
        Ok(())
    }
}

impl JobSource for Lines {
    fn next(&mut self, place: JobPlace) -> io::Result<Next> {
        if let Supply::Again(lines) = &mut self.supply {
            return Ok(match lines.first_entry() {
                Some(first) if *first.key() > place.seq => Next::Skip(first.key() - place.seq),
                Some(first) => Next::Job(self.maker.job(first.remove(), &Row::new(), place)),
                None => Next::End,
            });
        }
        let numbers = self.maker.numbers(place);
        match self.args(numbers)? {
            Pull::Item(args) => {
                let line = self.template.expand(&args, numbers);
                Ok(Next::Job(self.maker.job(line, &args, place)))
            }
            Pull::Later => Ok(Next::Later),
            Pull::End => Ok(Next::End),
        }
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        match &self.supply {
            Supply::Packed(packer) => packer.sources().waits_for(),
            _ => None,
        }
    }

    fn total(&mut self) -> Option<u64> {
        self.total
    }

    fn left(&mut self) -> Option<u64> {
        let mut left = 0;
        if let Supply::Again(lines) = &self.supply {
            return Some(lines.len() as u64);
        }
        let numbers = self.maker.numbers(JobPlace { seq: 1, slot: 1 });
        let begun = Instant::now();
        loop {
            match self.args(numbers).ok()? {
                Pull::Item(_) if begun.elapsed() > COUNTING => return None,
                Pull::Item(_) => left += 1,
                Pull::Later => return None,
                Pull::End => return Some(left),
            }
        }
    }
}
