//! `cargo xtask peers`: the test suites of other projects, with the launcher that they have and with ours.
//!
//! `xtask/peers/suites.toml` is the list. Each suite is fetched by apt, pip, npm or cargo at a pinned version, and runs below
//! `target/peers`. A test with another result is a fault of ours, or the list has the reason.

use crate::json;
use crate::kernels::debian::{Apt, own_suite};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testing::modules::{Modules, Profile};
use testing::{dist, packages};

mod page;
mod results;

const LIST: &str = "xtask/peers/suites.toml";
const RECORD: &str = "bench/record/peers.json";

/// The options of the task.
#[derive(clap::Args)]
pub struct Options {
    /// Only these suites (default: all)
    names: Vec<String>,
    /// Write the results to the record, and the table of docs/real-programs.md
    #[arg(long)]
    record: bool,
}

#[derive(Deserialize)]
struct List {
    /// Patterns of lines with a result, by name.
    formats: BTreeMap<String, String>,
    /// Fields that suites of a kind have, unless they have others.
    kinds: BTreeMap<String, toml::Table>,
    /// What cannot be run, and why.
    absent: BTreeMap<String, String>,
    suite: BTreeMap<String, toml::Table>,
}

/// A row of the list. Its lines are for bash, in the directory of the suite, with `xtask/peers/lines.sh` before them.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Suite {
    kind: String,
    /// The project with its version, and the part that is tested.
    tests: String,
    /// What takes the place of the suite's launcher.
    ours: String,
    /// Debian's packages to install.
    packages: Vec<String>,
    /// Fetches and builds it, once.
    setup: String,
    /// Before the run with our launcher, and before the stock run.
    with_ours: String,
    with_stock: String,
    /// Runs the tests.
    run: String,
    format: String,
    /// Tests with another result, by a part of their names, and the reason.
    differs: BTreeMap<String, String>,
}

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// The results of a suite.
#[derive(Serialize, Deserialize)]
pub struct Row {
    stock: Counts,
    ours: Counts,
    /// Tests with another result in each of two rounds: name, stock, ours.
    differ: Vec<(String, String, String)>,
}

type Record = BTreeMap<String, Row>;

fn list() -> Result<List> {
    toml::from_str(&fs::read_to_string(dist::root().join(LIST))?).context(LIST)
}

fn record() -> Result<Record> {
    serde_json::from_str(&fs::read_to_string(dist::root().join(RECORD))?).context(RECORD)
}

impl List {
    fn suite(&self, name: &str) -> Result<Suite> {
        let own = self.suite.get(name).with_context(|| format!("no suite {name} in {LIST}"))?;
        let kind = own.get("kind").and_then(|kind| self.kinds.get(kind.as_str()?));
        let mut fields = kind.cloned().unwrap_or_default();
        fields.extend(own.clone());
        fields.try_into().with_context(|| format!("{LIST}: {name}"))
    }
}

/// Runs the suites, and prints their results.
///
/// # Errors
/// If a suite cannot be fetched or built, or a test has another result without a reason in the list.
pub fn run(options: &Options, target: &Path) -> Result<()> {
    let place = std::path::absolute(target.join("peers"))?;
    let list = list()?;
    let mut names: Vec<&str> = options.names.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = list.suite.keys().map(String::as_str).collect();
    }
    let suites = names.iter().map(|name| Ok((*name, list.suite(name)?))).collect::<Result<Vec<_>>>()?;
    let there = dist::InstallPlace::at(&place.join("prefix"))?;
    dist::libraries(&there, target, &[])?;
    dist::command(&there, target, &[])?;
    let mut rows = record().unwrap_or_default();
    let mut faults = Vec::new();
    for (name, suite) in suites {
        match suite.compare(&list.formats[&suite.format], &place.join(name), target) {
            Ok(row) => {
                println!("{name}: stock {}, ours {}", row.stock, row.ours);
                faults.extend(suite.unexplained(&row).map(|fault| format!("{name}: {fault}")));
                rows.insert(name.to_owned(), row);
            }
            Err(error) => faults.push(format!("{name}: {error:#}")),
        }
        if options.record {
            fs::write(dist::root().join(RECORD), json::lines(&rows)?)?;
        }
    }
    if options.record {
        page::write(&dist::root())?;
    }
    ensure!(faults.is_empty(), "failures, and differences without a reason in {LIST}:\n{}", faults.join("\n"));
    Ok(())
}

impl Suite {
    fn compare(&self, format: &str, work: &Path, target: &Path) -> Result<Row> {
        packages::install(&self.packages.iter().map(String::as_str).collect::<Vec<_>>())?;
        if !work.join("ready").exists() {
            let _ = fs::remove_dir_all(work);
            fs::create_dir_all(work)?;
            Apt::new(&own_suite(), "amd64", &work.with_file_name("apt"))?.run("apt-get", &["-q", "update"], work)?;
            let is_done = self.line("setup", &self.setup, work, target)?.success();
            ensure!(is_done, "setup failed: {}/setup.log", work.display());
            fs::write(work.join("ready"), "")?;
        }
        let (stock, ours) = self.round(format, work, target)?;
        let mut differ = results::differences(&stock, &ours);
        if !differ.is_empty() {
            // Only what differs in a second round, too: tests that depend on time fail now and then.
            let (stock, ours) = self.round(format, work, target)?;
            let again = results::differences(&stock, &ours);
            differ.retain(|(name, ..)| again.iter().any(|(other, ..)| other == name));
        }
        Ok(Row { stock: results::counts(&stock), ours: results::counts(&ours), differ })
    }

    fn round(&self, format: &str, work: &Path, target: &Path) -> Result<(results::TestResults, results::TestResults)> {
        let half = |name: &str, before: &str| {
            self.line(name, &format!("{before}\n{}", self.run), work, target)?;
            let log = work.join(format!("{name}.log"));
            let found = results::read(format, &String::from_utf8_lossy(&fs::read(&log)?))?;
            ensure!(!found.is_empty(), "no results in {}", log.display());
            Ok(found)
        };
        Ok((half("stock", &self.with_stock)?, half("ours", &self.with_ours)?))
    }

    /// Runs lines, with their output in a file.
    fn line(&self, name: &str, lines: &str, work: &Path, target: &Path) -> Result<std::process::ExitStatus> {
        let log = fs::File::create(work.join(format!("{name}.log")))?;
        let mut sh = Command::new("timeout");
        sh.args(["-k", "5", "1200", "bash", "-c"]).arg(format!(". \"$PEERS/lines.sh\"\n{lines}")).current_dir(work);
        let place = work.parent().context("a directory")?;
        sh.env("PEERS", dist::root().join("xtask/peers")).env("ROOT", dist::root());
        sh.env("APT_CONFIG", place.join("apt/apt.conf"));
        sh.env("INSTALLED", place.join("prefix")).env("PRELOAD", place.join("prefix/lib/libforkless_preload.so"));
        for (variable, module) in modules(place, target)? {
            sh.env(variable, module);
        }
        // Cargo's variables are not for the cargo of a suite.
        for variable in ["CARGO_TARGET_DIR", "CARGO_MANIFEST_DIR", "LD_LIBRARY_PATH", "RUSTUP_TOOLCHAIN"] {
            sh.env_remove(variable);
        }
        sh.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).status().context("timeout")
    }

    /// The differences that the list has no reason for, and the reasons that fit none.
    fn unexplained(&self, row: &Row) -> impl Iterator<Item = String> {
        let new = row.differ.iter().filter(|(name, ..)| self.reason(name).is_none());
        let new = new.map(|(name, stock, ours)| format!("{name}: stock {stock}, ours {ours}"));
        let is_old = |part: &&String| !row.differ.iter().any(|(name, ..)| name.contains(part.as_str()));
        new.chain(self.differs.keys().filter(is_old).map(|part| format!("the listed difference did not occur: {part}")))
    }

    fn reason(&self, name: &str) -> Option<&str> {
        self.differs.iter().find_map(|(part, reason)| name.contains(part.as_str()).then_some(reason.as_str()))
    }
}

/// The variables of the lines that name our modules: built once per run.
fn modules(place: &Path, target: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    static BUILT: std::sync::OnceLock<Modules> = std::sync::OnceLock::new();
    if BUILT.get().is_none() {
        let _ = BUILT.set(Modules::build(&place.join("modules"), target, Profile::Dev)?);
    }
    let Some(built) = BUILT.get() else { bail!("no modules") };
    let named = [("PERLLIB_OURS", &built.perl), ("PYTHON", &built.python), ("NODE_MODULES", &built.node)];
    Ok(named.into_iter().filter_map(|(name, path)| Some((name, path.as_ref().ok()?.clone()))).collect())
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
