//! What the runner reports of its jobs while they run.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forkless_jobs::{Control, Ended, Events, Flow, HaltOn, Job, JobPlace, Progress, Sink, Stream};

use super::files::Files;
use super::message::say;
use super::plan::slots_of;
use super::signals;

/// Prints messages and the progress of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Commands go to standard error when they start.
    pub(super) shows_commands: bool,
    /// Jobs that count for `--halt` are named.
    pub(super) names: Option<HaltOn>,
    pub(super) bar: bool,
    pub(super) progress: Arc<AtomicBool>,
    pub(super) eta: bool,
    pub(super) total: Option<u64>,
    /// The blocks of the jobs, as files.
    pub(super) files: Option<Rc<Files>>,
    /// The file with the number of jobs.
    pub(super) slots: Option<SlotsFile>,
    /// The commands that run, by the numbers of their jobs.
    pub(super) running: BTreeMap<u64, Vec<u8>>,
    /// The length of the progress line on the terminal; 0 if none is shown.
    pub(super) shown: Arc<AtomicUsize>,
}

/// The file of `--jobs FILE`, which is read again when a job has ended.
#[derive(Debug)]
pub(super) struct SlotsFile {
    pub(super) path: PathBuf,
    pub(super) control: Control,
}

impl SlotsFile {
    fn read(&self) {
        // While it is written, it may be empty: the number stays.
        let Some(slots) = std::fs::read_to_string(&self.path).ok().and_then(|text| slots_of(&text).ok()) else {
            return;
        };
        self.control.set_slots(slots);
    }
}

impl Events for Report {
    fn started(&mut self, job: &Job, place: JobPlace, pid: u32) {
        let is_known = self.running.insert(place.seq, job.text.clone()).is_some();
        if let Some(files) = &self.files {
            files.start(place.seq, pid);
        }
        if self.shows_commands && !is_known {
            let _ = io::stderr().write_all(&[&job.text[..], b"\n"].concat());
        }
    }

    fn withdrawn(&mut self, place: JobPlace) {
        if let Some(files) = &self.files {
            files.stop(place.seq);
        }
    }

    fn retried(&mut self, ended: &Ended) {
        self.running.remove(&ended.place.seq);
        if let Some(files) = &self.files {
            files.stop(ended.place.seq);
        }
    }

    fn finished(&mut self, ended: &Ended) -> Flow {
        self.running.remove(&ended.place.seq);
        let say = |words: fmt::Arguments<'_>| {
            erase(&self.shown);
            say(words);
        };
        let command = || String::from_utf8_lossy(&ended.job.text);
        if ended.timed_out {
            say(format_args!("killed because it timed out: {}", command()));
        }
        if let forkless_jobs::Ending::NotStarted(error) = &ended.ending {
            say(format_args!("{error}: {}", command()));
        }
        let is_failure = ended.is_failure();
        match self.names.filter(|_| !ended.cut_short) {
            Some(HaltOn::Fail) if is_failure => say(format_args!("this job failed: {}", command())),
            Some(HaltOn::Success) if !is_failure => say(format_args!("this job succeeded: {}", command())),
            Some(HaltOn::Done) => say(format_args!("this job finished: {}", command())),
            _ => {}
        }
        if let Some(files) = &self.files {
            files.remove(ended.place.seq);
        }
        if let Some(slots) = &self.slots {
            slots.read();
        }
        Flow::Continue
    }

    /// Lists the jobs that run.
    fn notified(&mut self) {
        erase(&self.shown);
        for command in self.running.values() {
            say(String::from_utf8_lossy(command));
        }
    }

    fn suspended(&mut self) {
        signals::suspend();
    }

    fn tick(&mut self, progress: &Progress) {
        let done = progress.ended + progress.done_before;
        let total = self.total.or(progress.total);
        let left = total.map(|total| estimate(progress, total));
        let mut line = String::new();
        if self.bar {
            let part = total.filter(|total| *total > 0).map_or(0, |total| done.saturating_mul(100) / total);
            let filled = "#".repeat((part / 5).min(20) as usize);
            let left = left.map_or_else(|| "?".to_owned(), |left| left.as_secs().to_string());
            line = format!("{part:3}% [{filled:<20}] {done}:{} {left} s", total.unwrap_or(0).saturating_sub(done));
        }
        let shows_progress = self.progress.load(Ordering::Relaxed);
        if shows_progress || self.eta {
            let all = total.map_or_else(String::new, |total| format!(" of {total}"));
            line.push_str(&format!(" {} running, {done}{all} done, {} failed", progress.running, progress.failed));
        }
        if let Some(left) = left.filter(|_| self.eta) {
            line.push_str(&format!(", {} s left", left.as_secs()));
        }
        if !line.is_empty() {
            let before = self.shown.swap(line.len(), Ordering::Relaxed);
            let blanks = " ".repeat(before.saturating_sub(line.len()));
            let _ = io::stderr().write_all(format!("\r{line}{blanks}").as_bytes());
        }
    }
}

impl Report {
    /// Whether anything is shown while jobs run.
    pub(super) fn is_live(&self) -> bool {
        self.bar || self.eta || self.progress.load(Ordering::Relaxed)
    }

    /// Ends the progress line.
    pub(super) fn end(&self) {
        if self.shown.load(Ordering::Relaxed) > 0 {
            let _ = io::stderr().write_all(b"\n");
        }
    }
}

/// Removes the progress line from the terminal, before something else is written.
fn erase(shown: &AtomicUsize) {
    let count = shown.swap(0, Ordering::Relaxed);
    if count > 0 {
        let _ = io::stderr().write_all(format!("\r{}\r", " ".repeat(count)).as_bytes());
    }
}

/// Output on the terminal that shows the progress line.
#[derive(Debug)]
pub(super) struct OutputAboveProgress<S> {
    pub(super) sink: S,
    pub(super) shown: Arc<AtomicUsize>,
    pub(super) has_more: bool,
}

impl<S: Sink> Sink for OutputAboveProgress<S> {
    fn write(&mut self, seq: u64, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        erase(&self.shown);
        self.has_more = true;
        self.sink.write(seq, stream, bytes)
    }

    fn written(&mut self, ended: &Ended) -> io::Result<()> {
        self.sink.written(ended)
    }

    fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_more) {
            erase(&self.shown);
        }
        self.sink.flush()
    }
}

fn estimate(progress: &Progress, total: u64) -> Duration {
    let done = progress.ended.max(1);
    let left = total.saturating_sub(progress.ended + progress.done_before);
    let seconds = progress.elapsed.as_secs_f64() * left as f64 / done as f64;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
