//! `cargo xtask mutants`: plants faults and checks that the tests for them fail.
//!
//! Each fault is a patch in `tests/faults` (see [`faults`]). The tests are built once, in a copy of the tree with all faults. Each
//! listed test then runs without a fault, and must pass, and with each fault that it should catch, and must fail by an assertion
//! within its time limit.

use crate::faults::{self, Fault, Test};
use crate::json;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use testing::{dist, once};

/// The faults to try.
#[derive(clap::Args)]
pub struct Options {
    /// Try these faults (default: all)
    names: Vec<String>,
    /// Try only the most important faults, as CI does
    #[arg(long)]
    central: bool,
    /// Add each result to the record in bench/record as soon as it is known
    #[arg(long)]
    record: bool,
    /// Only the faults that the record does not have as caught
    #[arg(long)]
    missing: bool,
}

impl Options {
    /// The faults that CI tries.
    pub fn central() -> Self {
        Self { names: Vec::new(), central: true, record: false, missing: false }
    }
}

/// The environment variable that selects a fault.
const PLANTED: &str = "FORKLESS_PLANTED";

/// The environment variable that marks processes of a trial, to find those left behind.
const TRIAL: &str = "FORKLESS_PLANTED_TRIAL";

/// Default time limit of a test, in seconds.
const LIMIT: u64 = 60;

/// The result of a trial, best first.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Every test failed by an assertion and in time.
    Caught,
    /// A test was skipped on this machine.
    Skipped,
    /// A test passed.
    Survived,
    /// A test exceeded its time limit or was killed by a signal.
    Hung,
    /// A test also fails without the fault, or the fault lists no test.
    Unproven,
}

/// Faults with one result.
#[derive(Serialize, Deserialize)]
struct Tried {
    /// The commit whose code had the faults.
    commit: String,
    verdict: Verdict,
    faults: BTreeSet<String>,
}

/// Tries the faults.
///
/// # Errors
/// If cargo fails, or a fault is neither caught nor skipped.
pub fn run(options: &Options, target: &Path) -> Result<()> {
    let all = faults::read(&dist::root())?;
    let begun = Instant::now();
    let place = std::path::absolute(target)?.join("planted");
    faults::copy(&dist::root(), &place.join("tree"), &all)?;
    println!("{} faults planted in a copy, {:.1} s", all.len(), begun.elapsed().as_secs_f64());
    let known: BTreeSet<String> = all.iter().map(|fault| fault.name.clone()).collect();
    let mut faults = chosen(all, options)?;
    if options.missing {
        let record = FaultRecord::read()?;
        faults.retain(|fault| !record.has_caught(&fault.name));
    }
    let begun = Instant::now();
    if options.central {
        // The faults that CI does not try must compile, too.
        let mut check = Command::new(cargo());
        check.current_dir(place.join("tree")).args(["check", "--workspace", "--locked", "--target-dir"]);
        testing::run(check.arg(place.join("target")).args(["--features", "forkless/warm"]))?;
    }
    let trial = Trial::new(&faults, &place)?;
    println!("built, {:.0} s", begun.elapsed().as_secs_f64());
    let commit = commit();
    let (mut passes, mut tried) = (BTreeMap::new(), Vec::new());
    for fault in &faults {
        let begun = Instant::now();
        let verdict = trial.try_fault(fault, &mut passes)?;
        println!("{}", line(&fault.name, verdict, begun.elapsed().as_secs_f64()));
        if options.record {
            // Another run may have added its own meanwhile.
            let mut record = FaultRecord::read()?;
            record.add(&fault.name, &commit, verdict, &known);
            record.write()?;
        }
        tried.push(verdict);
    }
    let count = |wanted: Verdict| tried.iter().filter(|&&verdict| verdict == wanted).count();
    let (caught, skipped) = (count(Verdict::Caught), count(Verdict::Skipped));
    println!("\n{caught}/{} planted faults caught, {skipped} skipped", tried.len());
    ensure!(caught + skipped == tried.len(), "some planted faults were not caught");
    Ok(())
}

fn chosen(faults: Vec<Fault>, options: &Options) -> Result<Vec<Fault>> {
    for name in &options.names {
        ensure!(faults.iter().any(|fault| fault.name == *name), "tests/faults has no {name}.patch");
    }
    let is_chosen = |fault: &Fault| {
        (options.names.is_empty() || options.names.contains(&fault.name)) && (fault.head.central || !options.central)
    };
    Ok(faults.into_iter().filter(is_chosen).collect())
}

fn line(name: &str, verdict: Verdict, seconds: f64) -> String {
    format!("{:<9} {seconds:>6.1} s  {name}", format!("{verdict:?}").to_lowercase())
}

/// The test programs, built with all faults.
struct Trial {
    /// The program and its working directory, by package and target.
    programs: BTreeMap<(String, String), (PathBuf, PathBuf)>,
    output: PathBuf,
}

impl Trial {
    /// `place`: has the copy.
    fn new(faults: &[Fault], place: &Path) -> Result<Self> {
        let tests: BTreeSet<&Test> = faults.iter().flat_map(|fault| &fault.head.tests).collect();
        let mut build = Command::new(cargo());
        let words = ["test", "--no-run", "--locked", "--message-format", "json-render-diagnostics"];
        build.current_dir(place.join("tree")).args(words);
        build.args(["--features", "forkless/warm", "--package", "forkless", "--target-dir"]).arg(place.join("target"));
        let packages: BTreeSet<&str> = tests.iter().map(|test| &*test.0).collect();
        build.args(packages.iter().flat_map(|package| ["--package", package]));
        if packages.contains("forkless-cli") {
            build.args(["--features", "forkless-cli/suites"]);
        }
        let targets: BTreeSet<&str> = tests.iter().map(|test| &*test.1).collect();
        for name in targets {
            if name == "lib" {
                build.arg("--lib")
            } else {
                build.args(["--test", name])
            };
        }
        let built = build.stderr(Stdio::inherit()).output().context("cargo test")?;
        ensure!(built.status.success(), "cargo test --no-run: {}", built.status);
        let said = String::from_utf8(built.stdout)?;
        let programs = said.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?)).collect();
        Ok(Self { programs, output: place.join(format!("output-{}", std::process::id())) })
    }

    /// `passes`: the result of each test without a fault.
    fn try_fault(&self, fault: &Fault, passes: &mut BTreeMap<(Test, String), Verdict>) -> Result<Verdict> {
        let mut worst = if fault.head.tests.is_empty() { Verdict::Unproven } else { Verdict::Caught };
        for test in &fault.head.tests {
            let key = (test.clone(), format!("{:?}", fault.head.env));
            let without = match passes.get(&key) {
                Some(known) => *known,
                None => *passes.entry(key).or_insert(self.run(test, fault, None)?),
            };
            let verdict = match without {
                // Some parts of a test may be skipped here while another one sees the fault.
                Verdict::Survived | Verdict::Skipped => self.run(test, fault, Some(&fault.name))?,
                _ => Verdict::Unproven,
            };
            worst = worst.max(verdict);
        }
        Ok(worst)
    }

    /// Runs a test once. Without a fault the result should be `Survived`.
    fn run(&self, test: &Test, fault: &Fault, planted: Option<&str>) -> Result<Verdict> {
        let Test(package, target, name) = test;
        let program = self.programs.get(&(package.clone(), target.clone()));
        let (program, directory) = program.with_context(|| format!("no test target {target} in {package}"))?;
        let file = File::create(&self.output)?;
        let trial = format!("{}-{name}-{}", std::process::id(), planted.unwrap_or(""));
        let mut command = Command::new(program);
        command.args([name, "--exact", "--test-threads=1"]).current_dir(directory).envs(&fault.head.env);
        command.env(PLANTED, planted.unwrap_or("")).env(TRIAL, &trial).env("CARGO", cargo()).env("RUST_BACKTRACE", "0");
        command.env(once::RUN, &*once::THIS_RUN);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let limit = fault.head.limit.unwrap_or(LIMIT);
        // The run without a fault may have to build something first, so it gets more time.
        let limit = Duration::from_secs(if planted.is_some() { limit } else { limit + 600 });
        let status = within(limit, command.spawn().with_context(|| program.display().to_string())?)?;
        end_all(&trial)?;
        let said = String::from_utf8_lossy(&fs::read(&self.output)?).into_owned();
        let verdict = verdict(name, status, &said)?;
        let as_expected = if planted.is_some() { Verdict::Caught } else { Verdict::Survived };
        if verdict != as_expected && verdict != Verdict::Skipped {
            println!("{target} {name}, planted {planted:?}: {verdict:?}\n{}", tail(&said));
        }
        Ok(verdict)
    }
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Parses a test program from a line of cargo's JSON: package and target, file, package directory.
fn program(message: &serde_json::Value) -> Option<((String, String), (PathBuf, PathBuf))> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let program = message["executable"].as_str().filter(|_| is_test)?;
    // "path+file:///place/crates/core#forkless-core@0.1.0", or "path+file:///place/xtask#0.1.0".
    let (place, id) = message["package_id"].as_str()?.split_once('#')?;
    let package = id.split_once('@').map_or(place.rsplit('/').next()?, |(name, _)| name);
    let is_lib = message["target"]["kind"]
        .as_array()?
        .iter()
        .any(|kind| kind.as_str().is_some_and(|kind| kind.ends_with("lib")));
    let target = if is_lib { "lib" } else { message["target"]["name"].as_str()? };
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
    Some(((package.to_owned(), target.to_owned()), (program.into(), directory.into())))
}

/// Waits for the process; kills it and returns None when the time is up.
fn within(limit: Duration, mut child: std::process::Child) -> Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills all processes that a trial has left behind, in any process group.
fn end_all(trial: &str) -> Result<()> {
    let mark = format!("{TRIAL}={trial}\0");
    let has_mark = |pid: &str| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    let all = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let left: Vec<_> = all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && has_mark(name)).collect();
    if !left.is_empty() {
        // The process may have ended meanwhile.
        Command::new("kill").arg("-KILL").args(left).stderr(Stdio::null()).status().context("kill")?;
    }
    Ok(())
}

/// The result of a test run. A scenario that is stopped by its own alarm or time limit counts as hung.
fn verdict(name: &str, status: Option<ExitStatus>, said: &str) -> Result<Verdict> {
    let Some(status) = status else { return Ok(Verdict::Hung) };
    let is_late = ["SIGALRM", "did not end within its time"].iter().any(|words| said.contains(words));
    let results = said.rsplit_once("test result: ").map_or("", |(_, results)| results);
    // A failed test is in the list at the end; a test program without Rust's harness only reports that it failed.
    let is_named =
        said.rsplit_once("\nfailures:\n").is_some_and(|(_, list)| list.lines().any(|line| line.trim() == name));
    match status.code() {
        Some(_) if is_late => Ok(Verdict::Hung),
        Some(101) if is_named => Ok(Verdict::Caught),
        Some(1) if results.starts_with("FAILED") => Ok(Verdict::Caught),
        Some(0) if said.lines().any(|line| line.starts_with("SKIPPED:")) => Ok(Verdict::Skipped),
        Some(0) if !results.starts_with("ok. 0 passed") => Ok(Verdict::Survived),
        Some(0) => bail!("no test {name}"),
        _ => Ok(Verdict::Hung),
    }
}

fn tail(said: &str) -> String {
    const LINES: usize = 30;
    let lines: Vec<_> = said.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].iter().fold(String::new(), |text, line| text + "    " + line + "\n")
}

/// `bench/record/mutants.json`: the last result of each fault.
struct FaultRecord {
    file: PathBuf,
    tried: Vec<Tried>,
}

impl FaultRecord {
    fn read() -> Result<Self> {
        let file = dist::root().join("bench/record/mutants.json");
        let tried = match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).context("mutants.json")?,
            Err(_) => Vec::new(),
        };
        Ok(Self { file, tried })
    }

    fn has_caught(&self, name: &str) -> bool {
        self.tried.iter().any(|tried| tried.verdict == Verdict::Caught && tried.faults.contains(name))
    }

    /// Replaces the result of a fault, and removes the faults that are not `known`: they no longer exist.
    fn add(&mut self, name: &str, commit: &str, verdict: Verdict, known: &BTreeSet<String>) {
        for tried in &mut self.tried {
            tried.faults.retain(|fault| fault != name && known.contains(fault));
        }
        match self.tried.iter_mut().find(|tried| tried.commit == commit && tried.verdict == verdict) {
            Some(tried) => drop(tried.faults.insert(name.to_owned())),
            None => self.tried.push(Tried { commit: commit.to_owned(), verdict, faults: [name.to_owned()].into() }),
        }
        self.tried.retain(|tried| !tried.faults.is_empty());
    }

    fn write(&self) -> Result<()> {
        Ok(fs::write(&self.file, json::lines(&self.tried)?)?)
    }
}

/// The commit of the sources, in short; empty outside of a repository.
fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).stderr(Stdio::null()).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn only_a_failure_of_the_named_test_in_time_catches_a_fault() {
        let exit = |code: i32| Some(ExitStatus::from_raw(code << 8));
        let failed = "test x ... FAILED\n\nfailures:\n\n---- x stdout ----\nno\n\nfailures:\n    x\n\ntest result: FAILED. 0 passed; 1 failed;\n";
        let passed = "test x ... ok\n\ntest result: ok. 1 passed; 0 failed;\n";
        let is = |status, said: &str| verdict("x", status, said).expect("a verdict");
        assert_eq!(is(exit(101), failed), Verdict::Caught);
        assert_eq!(is(exit(1), "not ok 3\ntest result: FAILED. 2 passed; 1 failed;"), Verdict::Caught);
        assert_eq!(is(exit(0), passed), Verdict::Survived);
        assert_eq!(is(exit(0), &format!("SKIPPED: x because of y\n{passed}")), Verdict::Skipped);
        assert_eq!(is(None, ""), Verdict::Hung);
        assert_eq!(is(exit(101), &failed.replace("no\n", "signal: 14 (SIGALRM)\n")), Verdict::Hung);
        assert_eq!(is(Some(ExitStatus::from_raw(11)), ""), Verdict::Hung);
        assert_eq!(is(exit(101), &failed.replace("    x\n", "    y\n")), Verdict::Hung);
        assert!(verdict("x", exit(0), "test result: ok. 0 passed; 0 failed;").is_err());
    }
}
