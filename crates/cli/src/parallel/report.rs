//! What the runner tells of its jobs while they run.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use forkless_jobs::{Ended, Events, Flow, HaltOn, Job, Place, Progress};

use super::say;

/// Follows a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Commands go to standard error when they start.
    pub(super) shows_commands: bool,
    /// Jobs that count for `--halt` are named.
    pub(super) names: Option<HaltOn>,
    pub(super) bar: bool,
    pub(super) progress: bool,
    pub(super) eta: bool,
    pub(super) total: Option<u64>,
    /// The last value in a job's list of values is a file to be removed.
    pub(super) removes: bool,
    pub(super) shown: usize,
}

impl Events for Report {
    fn started(&mut self, job: &Job, _: Place, _: u32) {
        if self.shows_commands {
            let _ = io::stderr().write_all(&[&job.text[..], b"\n"].concat());
        }
    }

    fn finished(&mut self, ended: &Ended) -> Flow {
        let command = String::from_utf8_lossy(&ended.job.text);
        if ended.timed_out {
            say(format_args!("killed because it timed out: {command}"));
        }
        if let forkless_jobs::Ending::NotStarted(error) = &ended.ending {
            say(format_args!("{error}: {command}"));
        }
        let is_failure = ended.is_failure();
        match self.names {
            Some(HaltOn::Fail) if is_failure => say(format_args!("this job failed: {command}")),
            Some(HaltOn::Success) if !is_failure => say(format_args!("this job succeeded: {command}")),
            Some(HaltOn::Done) => say(format_args!("this job finished: {command}")),
            _ => {}
        }
        if let Some(file) = ended.job.values.last().filter(|_| self.removes) {
            let file = PathBuf::from(OsString::from_vec(file.clone()));
            let _ = std::fs::remove_file(file);
        }
        Flow::Continue
    }

    fn tick(&mut self, progress: &Progress) {
        let done = progress.ended + progress.done_before;
        let total = self.total.or(progress.total);
        let left = total.map(|total| estimate(progress, total));
        let mut line = String::new();
        if self.bar {
            let part = total.filter(|total| *total > 0).map_or(0, |total| done * 100 / total);
            let filled = "#".repeat((part / 5).min(20) as usize);
            let left = left.map_or_else(|| "?".to_owned(), |left| left.as_secs().to_string());
            line = format!("{part:3}% [{filled:<20}] {done}:{} {left} s", total.unwrap_or(0).saturating_sub(done));
        }
        if self.progress || self.eta {
            let all = total.map_or_else(String::new, |total| format!(" of {total}"));
            line.push_str(&format!(" {} running, {done}{all} done, {} failed", progress.running, progress.failed));
        }
        if let Some(left) = left.filter(|_| self.eta) {
            line.push_str(&format!(", {} s left", left.as_secs()));
        }
        if !line.is_empty() {
            let blanks = " ".repeat(self.shown.saturating_sub(line.len()));
            let _ = io::stderr().write_all(format!("\r{line}{blanks}").as_bytes());
            self.shown = line.len();
        }
    }
}

impl Report {
    /// Whether anything is shown while jobs run.
    pub(super) fn ticks(&self) -> bool {
        self.bar || self.progress || self.eta
    }

    /// Ends the line.
    pub(super) fn end(&self) {
        if self.shown > 0 {
            let _ = io::stderr().write_all(b"\n");
        }
    }
}

fn estimate(progress: &Progress, total: u64) -> Duration {
    let done = progress.ended.max(1);
    let left = total.saturating_sub(progress.ended + progress.done_before);
    progress.elapsed.mul_f64(left as f64 / done as f64)
}
