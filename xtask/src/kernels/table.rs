//! What came of the jobs: counts, failures and skips, the record, and the table in docs/platforms.md.

use super::guest::Done;
use crate::dist::root;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

const BEGIN: &str = "<!-- The following is written by `cargo xtask kernels --record`. -->";
const END: &str = "<!-- Up to here. -->";

/// All jobs in one kernel.
#[derive(Serialize)]
pub struct Run {
    version: String,
    release: String,
    jobs: Vec<Counted>,
}

/// One job.
#[derive(Serialize)]
struct Counted {
    name: String,
    passed: u64,
    failed: u64,
    seconds: u64,
    /// How it ended, unless with its last test.
    ended: Option<String>,
    /// Names of tests.
    failures: Vec<String>,
    /// Lines that say what was skipped and why, and how often each was said.
    skipped: BTreeMap<String, u64>,
}

impl Run {
    pub fn new(version: &str, release: &str, done: &[Done]) -> Self {
        Self { version: version.into(), release: release.into(), jobs: done.iter().map(counted).collect() }
    }

    pub fn is_good(&self) -> bool {
        self.jobs.iter().all(|job| job.failed == 0 && job.ended.is_none())
    }

    /// For the terminal.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for job in &self.jobs {
            let _ = writeln!(text, "{:>10}: {}, {} s", job.name, job.cell(), job.seconds);
            for name in &job.failures {
                let _ = writeln!(text, "            FAILED: {name}");
            }
            for (line, times) in &job.skipped {
                let _ = writeln!(text, "            SKIPPED: {line} ({times})");
            }
        }
        text
    }
}

impl Counted {
    fn cell(&self) -> String {
        let mut cell = format!("{} passed", self.passed);
        let skipped: u64 = self.skipped.values().sum();
        for (count, word) in [(self.failed, "failed"), (skipped, "skipped")] {
            if count > 0 {
                let _ = write!(cell, ", {count} {word}");
            }
        }
        if let Some(ended) = &self.ended {
            let _ = write!(cell, ", {ended}");
        }
        cell
    }
}

/// Reads what a test program wrote; it may have been cut off.
fn counted(done: &Done) -> Counted {
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    let (mut failures, mut skipped) = (Vec::new(), BTreeMap::new());
    let mut ended = match done.status {
        None => Some("the guest ended first".to_owned()),
        Some(137) => Some("not done within its time".to_owned()),
        Some(_) => None,
    };
    let mut has_result = false;
    for line in done.output.lines() {
        if let Some(rest) = line.strip_prefix("test result: ") {
            has_result = true;
            let count = |word: &str| crate::count(rest, word);
            (passed, failed, ignored) = (count("passed"), count("failed"), count("ignored"));
        } else if let Some(line) = line.strip_prefix("SKIPPED: ") {
            *skipped.entry(line.to_owned()).or_insert(0) += 1;
        } else if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            passed += u64::from(!has_result && end == "ok");
            failed += u64::from(!has_result && end == "FAILED");
            if end == "FAILED" {
                failures.push(name.to_owned());
            }
        }
    }
    if !has_result && ended.is_none() {
        ended = Some(format!("ended with status {}", done.status.unwrap_or(0)));
    }
    if ignored > 0 {
        skipped.insert("tests that are ignored".to_owned(), ignored);
    }
    Counted { name: done.name.clone(), passed, failed, seconds: done.seconds, ended, failures, skipped }
}

/// Writes the results to `bench/record/DATE-kernels`, and the table between its marks in docs/platforms.md.
///
/// # Errors
/// A file cannot be written, or has no marks.
pub fn record(runs: &[Run]) -> Result<()> {
    let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
    let date = String::from_utf8(date.stdout)?.trim().to_owned();
    let place = root().join(format!("bench/record/{date}-kernels"));
    fs::create_dir_all(&place)?;
    fs::write(place.join("results.json"), serde_json::to_string_pretty(runs)? + "\n")?;
    let page = root().join("docs/platforms.md");
    let text = fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(BEGIN).context("docs/platforms.md has no first mark")?;
    let (_, after) = rest.split_once(END).context("docs/platforms.md has no second mark")?;
    fs::write(&page, format!("{before}{BEGIN}\n\n{}\n{END}{after}", markdown(runs, &date)))?;
    Ok(())
}

fn markdown(runs: &[Run], date: &str) -> String {
    let mut text =
        format!("Measured on {date}: [record](../bench/record/{date}-kernels/results.json).\n\n| test program |");
    for run in runs {
        let _ = write!(text, " {} |", run.release);
    }
    let _ = writeln!(text, "\n| --- |{}", " --- |".repeat(runs.len()));
    let mut names: Vec<&str> = Vec::new();
    for job in runs.iter().flat_map(|run| &run.jobs) {
        if !names.contains(&job.name.as_str()) {
            names.push(&job.name);
        }
    }
    for name in names {
        let _ = write!(text, "| {name} |");
        for run in runs {
            let job = run.jobs.iter().find(|job| job.name == name);
            let _ = write!(text, " {} |", job.map_or_else(|| "not run".to_owned(), Counted::cell));
        }
        text.push('\n');
    }
    for run in runs {
        for (word, lines) in [("failed", run.failures()), ("skipped", run.skips())] {
            if !lines.is_empty() {
                let _ = write!(text, "\nLinux {}, {word}:\n\n{lines}", run.version);
            }
        }
    }
    text
}

impl Run {
    fn failures(&self) -> String {
        let lines = self.jobs.iter().flat_map(|job| job.failures.iter().map(move |name| (job, name)));
        lines.map(|(job, name)| format!("- {}: `{name}`\n", job.name)).collect()
    }

    fn skips(&self) -> String {
        let lines = self.jobs.iter().flat_map(|job| job.skipped.iter().map(move |one| (job, one)));
        let times = |times: u64| if times > 1 { format!(" ({times} times)") } else { String::new() };
        lines.map(|(job, (line, n))| format!("- {}: {line}{}\n", job.name, times(*n))).collect()
    }
}
