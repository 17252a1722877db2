//! A record of several runs: the results of the test programs in each kernel, or of the test parts in each distribution.

use super::output as results;
use crate::json;
use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::output;

/// Records of the kernels: `bench/record/DATE-kernels`.
pub const KERNELS: &str = "kernels";

/// Everything that was run in one kernel or distribution.
#[derive(Serialize, Deserialize)]
pub struct Kernel {
    /// With the architecture after it, if it is another than amd64.
    pub version: String,
    pub jobs: Vec<Job>,
}

/// How a test ended.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Passed,
    Failed,
}

/// One test program.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Job {
    pub name: String,
    pub date: String,
    /// Of the project, of each run whose results are here.
    pub commits: BTreeSet<String>,
    /// Of the kernels of these runs, as `uname -r` has them.
    pub releases: BTreeSet<String>,
    /// Of the last run.
    pub seconds: u64,
    /// Variables of the environment that were set for it.
    #[serde(skip_serializing_if = "is_default")]
    pub variables: Vec<String>,
    /// How the program ended, unless after its last test.
    #[serde(skip_serializing_if = "is_default")]
    pub ended: Option<String>,
    /// Tests of the program, whether they ran or not.
    pub total: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub tests: BTreeMap<String, Outcome>,
    /// Those that the program did not name.
    pub more_passed: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub more_failed: u64,
    /// Lines that report what was skipped and why, and how often each was printed.
    #[serde(skip_serializing_if = "is_default")]
    pub skipped: BTreeMap<String, u64>,
}

/// Whether a field has its default value, and is left out of the record.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Job {
    /// Names of tests.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().filter(|(_, outcome)| **outcome == Outcome::Failed).map(|(name, _)| name.as_str())
    }

    pub fn passed(&self) -> u64 {
        self.tests.len() as u64 - self.failures().count() as u64 + self.more_passed
    }

    pub fn failed(&self) -> u64 {
        self.failures().count() as u64 + self.more_failed
    }

    pub fn is_good(&self) -> bool {
        self.failed() == 0 && self.ended.is_none()
    }

    /// Without the names of the tests that passed, which no page shows.
    fn short(mut self) -> Self {
        let all = self.tests.len();
        self.tests.retain(|_, outcome| *outcome == Outcome::Failed);
        self.more_passed += (all - self.tests.len()) as u64;
        self
    }

    /// The result as a cell of a table.
    pub fn cell(&self) -> String {
        let (passed, failed) = (self.passed(), self.failed());
        let mut cell = String::new();
        if passed + failed < self.total {
            let _ = write!(cell, "{} of {} tests: ", passed + failed, self.total);
        }
        let _ = write!(cell, "{passed} passed");
        let skipped: u64 = self.skipped.values().sum();
        for (count, word) in [(failed, "failed"), (skipped, "skipped")] {
            if count > 0 {
                let _ = write!(cell, ", {count} {word}");
            }
        }
        if let Some(ended) = &self.ended {
            let _ = write!(cell, ", {ended}");
        }
        if !self.variables.is_empty() {
            let _ = write!(cell, " (`{}`)", self.variables.join(" "));
        }
        cell
    }
}

/// What is added to the record after each job.
pub struct Entry<'a> {
    pub version: &'a str,
    pub job: Job,
}

fn add(kernels: &mut Vec<Kernel>, entry: Entry<'_>) {
    let at = kernels.iter().position(|kernel| kernel.version == entry.version).unwrap_or_else(|| {
        kernels.push(Kernel { version: entry.version.to_owned(), jobs: Vec::new() });
        kernels.len() - 1
    });
    let kernel = &mut kernels[at];
    match kernel.jobs.iter_mut().find(|job| job.name == entry.job.name) {
        Some(job) => *job = entry.job.short(),
        None => kernel.jobs.push(entry.job.short()),
    }
    // By architecture, then by number, not by letter.
    let order = |kernel: &Kernel| {
        let (number, arch) = kernel.version.split_once(' ').unwrap_or((&kernel.version, ""));
        (arch.to_owned(), number.split('.').map(|part| part.parse().unwrap_or(u32::MAX)).collect::<Vec<u32>>())
    };
    kernels.sort_by_key(order);
}

/// The newest record, `bench/record/DATE-WHAT`.
fn newest(root: &Path, what: &str) -> Result<Option<PathBuf>> {
    let mut found: Vec<PathBuf> = fs::read_dir(root.join("bench/record"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(&format!("-{what}")))
        .map(|path| path.join("results.json"))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    Ok(found.pop())
}

/// The newest record's path below `root`, and its contents.
///
/// # Errors
/// If the file cannot be read, or is no record.
pub fn read(root: &Path, what: &str) -> Result<Option<(PathBuf, Vec<Kernel>)>> {
    let Some(file) = newest(root, what)? else { return Ok(None) };
    let kernels = serde_json::from_str(&fs::read_to_string(&file)?).with_context(|| format!("{}", file.display()))?;
    Ok(Some((file.strip_prefix(root)?.to_owned(), kernels)))
}

/// Keeps other runs from this directory until it is dropped.
///
/// # Errors
/// It cannot be opened.
pub fn lock(directory: &Path) -> Result<Flock<File>> {
    Flock::lock(File::open(directory)?, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
}

/// Adds the results of a job to the newest record, or to a new one of today.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(root: &Path, what: &str, entry: Entry<'_>) -> Result<()> {
    let new = || PathBuf::from(format!("bench/record/{}-{what}/results.json", entry.job.date));
    let (file, mut kernels) = read(root, what)?.unwrap_or_else(|| (new(), Vec::new()));
    add(&mut kernels, entry);
    let file = root.join(file);
    fs::create_dir_all(file.parent().context("a directory")?)?;
    fs::write(file, json::lines(&kernels)?)?;
    Ok(())
}

/// The commit of the sources, marked if they were changed since. The record and the pages made of it are no sources.
///
/// # Errors
/// Without git.
pub fn commit(root: &Path) -> Result<String> {
    let git = |words: &[&str]| output(Command::new("git").args(words).current_dir(root));
    let commit = git(&["describe", "--always"])?.trim().to_owned();
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/record", ":!docs"])?;
    Ok(if changed.is_empty() { commit } else { commit + "-dirty" })
}

/// A job's results, with what was run and when.
///
/// # Errors
/// Without `date`.
pub fn job(done: &super::guest::Done, variables: &[String], commit: &str, release: &str) -> Result<Job> {
    let date = output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
    let [commits, releases] = [commit, release].map(|word| BTreeSet::from([word.to_owned()]));
    Ok(Job { date, commits, releases, variables: variables.to_vec(), ..results::read(done) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(tests: &[(&str, Outcome)], ended: Option<&str>) -> Job {
        let tests: BTreeMap<_, _> = tests.iter().map(|(name, outcome)| ((*name).to_owned(), *outcome)).collect();
        Job { name: "x".into(), total: 2, tests, ended: ended.map(str::to_owned), ..Job::default() }
    }

    fn added(first: Job, then: Job) -> Job {
        let mut kernels = Vec::new();
        for job in [first, then] {
            add(&mut kernels, Entry { version: "5.10", job });
        }
        kernels.remove(0).jobs.remove(0)
    }

    #[test]
    fn a_later_run_of_all_tests_replaces_an_earlier_one() {
        let first = job(&[("a", Outcome::Failed), ("b", Outcome::Passed)], None);
        assert_eq!(added(first, job(&[("a", Outcome::Passed)], Some("cut"))).cell(), "1 of 2 tests: 1 passed, cut");
    }

    #[test]
    fn kernels_are_in_the_order_of_their_numbers() {
        let mut kernels = Vec::new();
        for version in ["6.1 arm64", "6.12", "5.10", "sid", "6.1"] {
            add(&mut kernels, Entry { version, job: Job::default() });
        }
        assert_eq!(
            kernels.iter().map(|kernel| kernel.version.as_str()).collect::<Vec<_>>(),
            ["5.10", "6.1", "6.12", "sid", "6.1 arm64"]
        );
    }
}
