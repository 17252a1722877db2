//! What came of the jobs: counts, failures and skips, the record, and the table in docs/platforms.md.

use super::guest::Done;
use crate::dist::root;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

const BEGIN: &str = "<!-- The following is written by `cargo xtask kernels --record`. -->";
const END: &str = "<!-- Up to here. -->";

/// All jobs in one kernel.
#[derive(Serialize, Deserialize)]
pub struct Run {
    version: String,
    release: String,
    jobs: Vec<Counted>,
}

/// One job.
#[derive(Serialize, Deserialize)]
struct Counted {
    name: String,
    /// Of the project.
    commit: String,
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
        let commit = commit();
        let jobs = done.iter().map(|done| counted(done, &commit)).collect();
        Self { version: version.into(), release: release.into(), jobs }
    }

    /// Its jobs, in place of those of the same names.
    fn add(&mut self, later: Self) {
        self.jobs.retain(|job| later.jobs.iter().all(|other| other.name != job.name));
        self.jobs.extend(later.jobs);
        self.release = later.release;
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
fn counted(done: &Done, commit: &str) -> Counted {
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
    let (name, commit) = (done.name.clone(), commit.to_owned());
    Counted { name, commit, passed, failed, seconds: done.seconds, ended, failures, skipped }
}

/// What is checked out, and whether it was changed since.
fn commit() -> String {
    let mut git = Command::new("git");
    let described = git.args(["describe", "--always", "--dirty"]).current_dir(root()).output();
    described.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Adds the results to today's record, `bench/record/DATE-kernels`, and writes the table between its marks in docs/platforms.md.
///
/// # Errors
/// A file cannot be written, or has no marks.
pub fn record(runs: Vec<Run>) -> Result<()> {
    let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
    let date = String::from_utf8(date.stdout)?.trim().to_owned();
    let place = root().join(format!("bench/record/{date}-kernels"));
    fs::create_dir_all(&place)?;
    let file = place.join("results.json");
    let mut all: Vec<Run> = match fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?,
        Err(_) => Vec::new(),
    };
    for run in runs {
        match all.iter_mut().find(|known| known.version == run.version) {
            Some(known) => known.add(run),
            None => all.push(run),
        }
    }
    // By number, not by letter.
    let number = |run: &Run| run.version.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    all.sort_by_key(number);
    fs::write(&file, serde_json::to_string_pretty(&all)? + "\n")?;
    let page = root().join("docs/platforms.md");
    let text = fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(BEGIN).context("docs/platforms.md has no first mark")?;
    let (_, after) = rest.split_once(END).context("docs/platforms.md has no second mark")?;
    fs::write(&page, format!("{before}{BEGIN}\n\n{}\n{END}{after}", markdown(&all, &date)))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn done(output: &str, status: Option<i32>) -> Counted {
        counted(&Done { name: "x".into(), status, seconds: 1, output: output.into() }, "")
    }

    #[test]
    fn a_test_program_that_ran_to_its_end_is_counted_by_its_result() {
        let text = "test a ... ok\ntest b ... FAILED\nSKIPPED: c because d\ntest result: FAILED. 1 passed; 1 failed; 2 ignored\n";
        let counted = done(text, Some(101));
        assert_eq!((counted.passed, counted.failed, counted.ended.as_deref()), (1, 1, None));
        assert_eq!(counted.failures, ["b"]);
        assert_eq!(counted.cell(), "1 passed, 1 failed, 3 skipped");
    }

    #[test]
    fn a_test_program_that_was_cut_off_is_counted_by_its_lines_and_is_not_good() {
        for (status, ended) in
            [(None, "the guest ended first"), (Some(137), "not done within its time"), (Some(0), "ended with status 0")]
        {
            let counted = done("test a ... ok\ntest b ... FAILED\n", status);
            assert_eq!((counted.passed, counted.failed, counted.ended.as_deref()), (1, 1, Some(ended)));
            assert!(!Run { version: String::new(), release: String::new(), jobs: vec![counted] }.is_good());
        }
    }

    #[test]
    fn a_later_run_replaces_the_jobs_of_an_earlier_one() {
        let run = |output| Run { version: "5.10".into(), release: "r".into(), jobs: vec![done(output, Some(0))] };
        let mut all = run("");
        all.add(run("test result: ok. 7 passed; 0 failed; 0 ignored\n"));
        assert_eq!(all.jobs.iter().map(|job| job.passed).collect::<Vec<_>>(), [7]);
    }
}
