//! `--pipe`: blocks of whole records, one for the standard input of each job.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use forkless_jobs::{Filled, Input, JobPlace, JobSource, More, Next, Stdin, is_lack};
use memchr::memmem;
use regex::bytes::Regex;

use super::change::regular;
use super::csv::record_ends;
use super::files::Files;
use super::lines::Maker;
use super::message::say;
use super::records::Pull;
use super::sources::Row;
use super::template::Template;

/// Where one record ends and the next one begins.
#[derive(Debug)]
pub(super) enum Borders {
    /// What ends a record, and what begins the next one.
    Text { end: Vec<u8>, start: Vec<u8> },
    /// The first group ends a record.
    Regex(Regex),
    /// Records have no borders: a block may end at any byte.
    Anywhere,
    /// Lines of comma-separated values, in which quotes protect newlines.
    Csv,
}

impl Borders {
    /// From `--recend` and `--recstart`; a newline if neither is given.
    pub(super) fn new(end: Option<Vec<u8>>, start: Option<Vec<u8>>, are_regular: bool) -> Result<Self, String> {
        let (end, start) = match (end, start) {
            (None, None) => (b"\n".to_vec(), Vec::new()),
            (end, start) => (end.unwrap_or_default(), start.unwrap_or_default()),
        };
        if end.is_empty() && start.is_empty() {
            return Ok(Self::Anywhere);
        }
        if !are_regular {
            return Ok(Self::Text { end, start });
        }
        let text = format!("({})(?:{})", String::from_utf8_lossy(&end), String::from_utf8_lossy(&start));
        regular(&text, |builder| {
            builder.multi_line(true);
        })
        .map(Self::Regex)
        .map_err(|error| format!("--regexp: {error}"))
    }

    /// The borders in the text, without one at its start.
    fn each<'a>(&'a self, text: &'a [u8]) -> Box<dyn Iterator<Item = usize> + 'a> {
        let borders: Box<dyn Iterator<Item = usize>> = match self {
            Self::Text { end, start } => {
                let needle = [&end[..], start].concat();
                let places: Vec<usize> = memmem::find_iter(text, &needle).map(|place| place + end.len()).collect();
                Box::new(places.into_iter())
            }
            Self::Regex(regex) => {
                Box::new(regex.captures_iter(text).filter_map(|found| found.get(1).map(|group| group.end())))
            }
            Self::Anywhere => Box::new(1..=text.len()),
            Self::Csv => Box::new(record_ends(text, false).map(|end| end + 1)),
        };
        Box::new(borders.filter(|place| *place > 0))
    }

    /// The last border in the text.
    fn last(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Text { end, start } => {
                let needle = [&end[..], start].concat();
                memmem::rfind(text, &needle).map(|place| place + end.len()).filter(|place| *place > 0)
            }
            Self::Regex(_) | Self::Csv => self.each(text).last(),
            Self::Anywhere => Some(text.len()),
        }
    }

    /// The text without what separates its records.
    fn remove(&self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Text { end, start } => {
                let text = text.strip_prefix(&start[..]).unwrap_or(text);
                let needle = [&end[..], start].concat();
                let mut out = Vec::with_capacity(text.len());
                let mut from = 0;
                for place in memmem::find_iter(text, &needle) {
                    out.extend_from_slice(&text[from..place]);
                    from = place + needle.len();
                }
                let rest = &text[from..];
                out.extend_from_slice(rest.strip_suffix(&end[..]).unwrap_or(rest));
                out
            }
            Self::Regex(regex) => regex.replace_all(text, &b""[..]).into_owned(),
            Self::Anywhere => text.to_vec(),
            Self::Csv => {
                let mut out = Vec::with_capacity(text.len());
                let mut from = 0;
                for end in record_ends(text, false) {
                    out.extend_from_slice(&text[from..end]);
                    from = end + 1;
                }
                out.extend_from_slice(&text[from..]);
                out
            }
        }
    }
}

/// The header at the start of an input.
#[derive(Debug)]
pub(super) enum Heading {
    Lines(usize),
    /// What matches in the first block.
    Regex(Regex),
}

impl Heading {
    /// From `--header`.
    pub(super) fn new(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::Lines(0)) };
        if text == ":" {
            return Ok(Self::Lines(1));
        }
        match text.parse() {
            Ok(lines) => Ok(Self::Lines(lines)),
            Err(_) => {
                let regex = regular(&format!("^(?:{text})"), |_| {});
                regex.map(Self::Regex).map_err(|error| format!("--header: {error}"))
            }
        }
    }
}

/// The jobs for the blocks of an input.
#[derive(Debug)]
pub(super) struct Blocks {
    input: Input,
    borders: Borders,
    size: usize,
    template: Template,
    maker: Maker,
    /// So many records make a block.
    pub(super) records: Option<usize>,
    /// So many lines make a record.
    pub(super) lines: usize,
    /// How to find the header, which comes before each block.
    pub(super) heading: Heading,
    header: Option<Vec<u8>>,
    /// What separates records is removed.
    pub(super) removes: bool,
    pub(super) skips_blank: bool,
    /// Blocks end after their size, not before (`--pipe-part`).
    pub(super) is_part: bool,
    /// Blocks go to files.
    pub(super) files: Option<Rc<Files>>,
    /// A block is cut after this time, if it has whole records.
    pub(super) patience: Option<Duration>,
    /// Since when there is a part of a block.
    since: Option<Instant>,
    /// The block of a job whose file could not be made for now.
    held: Option<Vec<u8>>,
    /// All blocks go to so many jobs.
    pub(super) round: Option<Round>,
}

/// `--round-robin`: the jobs that get all blocks.
#[derive(Debug)]
pub(super) struct Round {
    /// So many jobs are started, if there are blocks for them.
    pub(super) jobs: usize,
    started: usize,
    /// Blocks go to the jobs strictly in turn.
    pub(super) is_strict: bool,
    /// Those that take blocks, the one whose turn it is first.
    order: VecDeque<u64>,
    /// There are no further blocks.
    is_over: bool,
}

impl Round {
    pub(super) fn new(jobs: usize, is_strict: bool) -> Self {
        Self { jobs, started: 0, is_strict, order: VecDeque::new(), is_over: false }
    }
}

impl Blocks {
    pub(super) fn new(input: Input, borders: Borders, size: usize, template: Template, maker: Maker) -> Self {
        Self {
            input,
            borders,
            size,
            template,
            maker,
            records: None,
            lines: 1,
            heading: Heading::Lines(0),
            header: None,
            removes: false,
            skips_blank: false,
            is_part: false,
            files: None,
            patience: None,
            since: None,
            held: None,
            round: None,
        }
    }

    /// The next block.
    fn block(&mut self) -> io::Result<Pull<Vec<u8>>> {
        let mut has_ended = false;
        loop {
            let is_ready = self.take_header(has_ended);
            if is_ready {
                let length = self.cut(has_ended).or_else(|| self.cut_late());
                if let Some(length) = length {
                    self.since = None;
                    let block = self.input.bytes()[..length].to_vec();
                    self.input.consume(length);
                    return Ok(Pull::Item(block));
                }
            }
            if has_ended {
                return Ok(Pull::End);
            }
            match self.input.fill()? {
                Filled::Data => {}
                Filled::Later => {
                    if self.since.is_none() && self.patience.is_some() && !self.input.bytes().is_empty() {
                        self.since = Some(Instant::now());
                    }
                    return Ok(Pull::Later);
                }
                Filled::End => has_ended = true,
            }
        }
    }

    /// When a block is cut although it is not full.
    fn due(&self) -> Option<Instant> {
        self.since?.checked_add(self.patience?)
    }

    /// The length of the whole records in the buffer, if the next block has been awaited for too long.
    fn cut_late(&mut self) -> Option<usize> {
        if self.records.is_some() || self.due()? > Instant::now() {
            return None;
        }
        self.since = None;
        self.borders.last(self.input.bytes())
    }

    /// Takes the header out of the input. False if more must come first.
    fn take_header(&mut self, has_ended: bool) -> bool {
        if self.header.is_some() {
            return true;
        }
        let bytes = self.input.bytes();
        let end = match &self.heading {
            Heading::Lines(0) => Some(0),
            Heading::Lines(lines) => memchr::memchr_iter(b'\n', bytes).nth(lines - 1).map(|place| place + 1),
            // More input could make it longer.
            Heading::Regex(_) if bytes.len() < self.size && !has_ended => None,
            Heading::Regex(regex) => Some(regex.find(bytes).map_or(0, |found| found.end())),
        };
        let Some(end) = end.or(has_ended.then_some(bytes.len())) else { return false };
        self.header = Some(bytes[..end].to_vec());
        self.input.consume(end);
        true
    }

    /// The length of the next block; `None` if more must come first, or nothing is left.
    fn cut(&mut self, has_ended: bool) -> Option<usize> {
        let bytes = self.input.bytes();
        if bytes.is_empty() {
            return None;
        }
        let all = has_ended.then_some(bytes.len());
        let each = self.lines.max(1);
        if let Some(records) = self.records {
            return self.borders.each(bytes).nth(records.saturating_mul(each) - 1).or(all);
        }
        if each > 1 {
            return self.cut_groups(each, has_ended);
        }
        if self.is_part {
            if bytes.len() <= self.size {
                return all;
            }
            if matches!(self.borders, Borders::Anywhere) {
                return Some(self.size);
            }
            return self.borders.each(bytes).find(|place| *place > self.size).or(all);
        }
        loop {
            let bytes = self.input.bytes();
            if bytes.len() <= self.size && has_ended {
                return Some(bytes.len());
            }
            if bytes.len() < self.size {
                return None;
            }
            if let Some(end) = self.borders.last(&bytes[..self.size]) {
                return Some(end);
            }
            self.grow();
        }
    }

    /// [`cut`](Self::cut) where `each` lines make a record.
    fn cut_groups(&mut self, each: usize, has_ended: bool) -> Option<usize> {
        loop {
            let bytes = self.input.bytes();
            let within = &bytes[..bytes.len().min(self.size)];
            if within.len() < self.size && !has_ended {
                return None;
            }
            let borders: Vec<usize> = self.borders.each(within).collect();
            let groups = borders.len() / each;
            if groups > 0 {
                return Some(borders[groups * each - 1]);
            }
            if has_ended && within.len() == bytes.len() {
                return Some(bytes.len());
            }
            self.grow();
        }
    }

    /// Makes the blocks larger, in the steps of GNU parallel.
    fn grow(&mut self) {
        self.size = (self.size * 13).div_ceil(10) + 1;
        say(format_args!("a record is longer than the block: --block is now {}", self.size));
    }

    fn without_separators(&self, block: Vec<u8>) -> Vec<u8> {
        match self.removes {
            true => self.borders.remove(&block),
            false => block,
        }
    }

    fn job(&mut self, mut block: Vec<u8>, place: JobPlace) -> io::Result<Next> {
        let mut args = Row::new();
        let stdin = match (&self.files, &self.round) {
            (Some(files), _) => {
                let made = if self.maker.is_dry { Ok(()) } else { files.make(place.seq, &mut block) };
                match made {
                    Ok(()) => args.push(super::values::bytes(files.path(place.seq).as_os_str())),
                    Err(error) if is_lack(&error) => {
                        self.held = Some(block);
                        return Ok(Next::Lacks(error));
                    }
                    Err(error) => return Err(error),
                }
                Stdin::Null
            }
            (None, Some(_)) => Stdin::Stream(block),
            (None, None) => Stdin::Bytes(block),
        };
        let line = self.template.expand(&args, self.maker.numbers(place));
        let mut job = self.maker.job(line, &args, place);
        job.stdin = stdin;
        Ok(Next::Job(job))
    }

    /// The first block of a job, with the header before it.
    fn pull_first(&mut self) -> io::Result<Pull<Vec<u8>>> {
        if let Some(held) = self.held.take() {
            return Ok(Pull::Item(held));
        }
        Ok(match self.pull()? {
            Pull::Item(block) => {
                let block = self.without_separators(block);
                Pull::Item([self.header.clone().unwrap_or_default(), block].concat())
            }
            pulled => pulled,
        })
    }

    /// The next block that is not left out.
    fn pull(&mut self) -> io::Result<Pull<Vec<u8>>> {
        loop {
            match self.block()? {
                Pull::Item(block) if self.skips_blank && block.trim_ascii().is_empty() => {}
                pulled => return Ok(pulled),
            }
        }
    }
}

impl JobSource for Blocks {
    fn next(&mut self, place: JobPlace) -> io::Result<Next> {
        if self.round.as_ref().is_some_and(|round| round.is_over || round.started == round.jobs) {
            return Ok(Next::End);
        }
        let pulled = self.pull_first()?;
        if let Some(round) = &mut self.round {
            match &pulled {
                Pull::Item(_) => {
                    round.started += 1;
                    round.order.push_back(place.seq);
                }
                Pull::Later => {}
                Pull::End => round.is_over = true,
            }
        }
        match pulled {
            Pull::Item(block) => self.job(block, place),
            Pull::Later => Ok(Next::Later),
            Pull::End => Ok(Next::End),
        }
    }

    fn more(&mut self, seq: u64) -> io::Result<More> {
        let Some(round) = &self.round else { return Ok(More::End) };
        if round.is_over {
            return Ok(More::End);
        }
        // Each job gets a block first.
        let is_turn = !round.is_strict || round.order.front() == Some(&seq);
        if round.started < round.jobs || !is_turn {
            return Ok(More::NotYet);
        }
        let pulled = self.pull()?;
        let Some(round) = &mut self.round else { return Ok(More::End) };
        match pulled {
            Pull::Item(block) => {
                round.order.rotate_left(1);
                Ok(More::Bytes(self.without_separators(block)))
            }
            Pull::Later => Ok(More::Later),
            Pull::End => {
                round.is_over = true;
                Ok(More::End)
            }
        }
    }

    fn closed(&mut self, seq: u64) {
        if let Some(round) = &mut self.round {
            round.order.retain(|known| *known != seq);
        }
        // Also of a job that is skipped, which has no other end.
        if let Some(files) = &self.files {
            files.remove(seq);
        }
    }

    fn stopped(&mut self) {
        if let Some(round) = &mut self.round {
            round.is_over = true;
        }
    }

    fn held(&mut self, seq: u64) {
        // It has its first block. The others share the rest.
        if let Some(round) = &mut self.round {
            round.jobs = round.started;
            round.order.retain(|known| *known != seq);
        }
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        Some(self.input.as_fd())
    }

    fn waits_until(&self) -> Option<Instant> {
        self.due()
    }

    /// What is left cannot be counted in jobs: their number depends on the slots, or on the time.
    fn left(&mut self) -> Option<u64> {
        if self.maker.is_dry {
            return Some(0);
        }
        if self.held.is_some() {
            return None;
        }
        matches!(self.pull().ok()?, Pull::End).then_some(0)
    }
}
