//! `cargo xtask peers`: the test suites of other projects, with the launcher that they have and with ours.
//!
//! `xtask/peers/suites.toml` is the list. Each suite is fetched by apt, pip, npm or cargo at a pinned version, and runs below
//! `target/peers`. A test with another result is a fault of ours, or the list has the reason.

use crate::kernels::debian::{Apt, own_suite};
use crate::modules::{Modules, Profile};
use crate::{dist, packages};
use anyhow::{Context, Result, bail, ensure};
use results::Format;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub mod page;
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
    suite: Vec<Suite>,
}

/// A row of the list. Its lines are for sh, in the directory of the suite, with `xtask/peers/lines.sh` before them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suite {
    name: String,
    /// The project with its version, and the part that is tested.
    tests: String,
    /// What takes the place of the suite's launcher.
    ours: String,
    /// Why it cannot be run; then it has no lines.
    absent: Option<String>,
    /// The suite of Debian that has the source (default: the machine's).
    debian: Option<String>,
    /// Debian's packages to install.
    #[serde(default)]
    packages: Vec<String>,
    /// Fetches and builds it, once.
    #[serde(default)]
    setup: String,
    /// Before the run with our launcher, and before the stock run.
    #[serde(default)]
    with_ours: String,
    #[serde(default)]
    with_stock: String,
    /// Runs the tests.
    #[serde(default)]
    run: String,
    #[serde(default)]
    format: Format,
    /// Tests with another result, by a part of their names, and the reason.
    #[serde(default)]
    differs: BTreeMap<String, String>,
}

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// What a suite came to.
#[derive(Serialize, Deserialize)]
pub struct Row {
    stock: Counts,
    ours: Counts,
    /// Tests with another result in each of two rounds: name, stock, ours.
    differ: Vec<(String, String, String)>,
}

type Record = BTreeMap<String, Row>;

fn list() -> Result<Vec<Suite>> {
    Ok(toml::from_str::<List>(&fs::read_to_string(dist::root().join(LIST))?).context(LIST)?.suite)
}

fn record() -> Result<Record> {
    serde_json::from_str(&fs::read_to_string(dist::root().join(RECORD))?).context(RECORD)
}

/// Runs the suites, and prints what they came to.
///
/// # Errors
/// If a suite cannot be fetched or built, or a test has another result without a reason in the list.
pub fn run(options: &Options, target: &Path) -> Result<()> {
    let place = std::path::absolute(target.join("peers"))?;
    let all = list()?;
    let unknown = options.names.iter().find(|name| !all.iter().any(|suite| suite.name == **name));
    ensure!(unknown.is_none(), "no suite {unknown:?} in {LIST}");
    let prefix = place.join("prefix");
    let there = dist::Place::at(&prefix)?;
    dist::libraries(&there, target, &[])?;
    dist::command(&there, target, &[])?;
    let mut rows = record().unwrap_or_default();
    let mut faults = Vec::new();
    for suite in all.iter().filter(|suite| options.names.is_empty() || options.names.contains(&suite.name)) {
        if let Some(why) = &suite.absent {
            println!("{}: not available: {why}", suite.name);
            continue;
        }
        match suite.compare(&place, target) {
            Ok(row) => {
                println!("{}: stock {}, ours {}", suite.name, row.stock, row.ours);
                faults.extend(suite.unexplained(&row));
                rows.insert(suite.name.clone(), row);
            }
            Err(error) => faults.push(format!("{}: {error:#}", suite.name)),
        }
        if options.record {
            fs::write(
                dist::root().join(RECORD),
                format!("{}\n", serde_json::to_string(&rows)?.replace("},\"", "},\n\"")),
            )?;
        }
    }
    if options.record {
        page::write(&dist::root())?;
    }
    ensure!(faults.is_empty(), "without a reason in {LIST}:\n{}", faults.join("\n"));
    Ok(())
}

impl Suite {
    fn compare(&self, place: &Path, target: &Path) -> Result<Row> {
        let work = place.join(&self.name);
        let packages: Vec<&str> = self.packages.iter().map(String::as_str).collect();
        packages::install(&packages)?;
        if !work.join("ready").exists() {
            let _ = fs::remove_dir_all(&work);
            let apt = place.join("apt").join(self.debian.as_ref().unwrap_or(&own_suite()));
            Apt::new(self.debian.as_deref().unwrap_or(&own_suite()), "amd64", &apt)?.run(
                "apt-get",
                &["-q", "update"],
                place,
            )?;
            fs::create_dir_all(&work)?;
            ensure!(
                self.line("setup", &self.setup, &work, target)?.success(),
                "setup failed: {}/setup.log",
                work.display()
            );
            fs::write(work.join("ready"), "")?;
        }
        let (stock, ours) = self.round(&work, target)?;
        let mut differ = results::differences(&stock, &ours);
        if !differ.is_empty() {
            // Only what differs in a second round, too: tests that depend on time fail now and then.
            let (stock, ours) = self.round(&work, target)?;
            let again = results::differences(&stock, &ours);
            differ.retain(|(name, ..)| again.iter().any(|(other, ..)| other == name));
        }
        Ok(Row { stock: results::counts(&stock), ours: results::counts(&ours), differ })
    }

    fn round(&self, work: &Path, target: &Path) -> Result<(results::Results, results::Results)> {
        let half = |name: &str, before: &str| {
            self.line(name, &format!("{before}\n{}", self.run), work, target)?;
            let log = work.join(format!("{name}.log"));
            let found = self.format.read(&String::from_utf8_lossy(&fs::read(&log)?));
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
        let apt = place.join("apt").join(self.debian.as_ref().unwrap_or(&own_suite())).join("apt.conf");
        sh.env("PEERS", dist::root().join("xtask/peers")).env("ROOT", dist::root()).env("APT_CONFIG", apt);
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
    fn unexplained(&self, row: &Row) -> Vec<String> {
        let new = row.differ.iter().filter(|(name, ..)| self.reason(name).is_none());
        let new = new.map(|(name, stock, ours)| format!("{}: {name}: stock {stock}, ours {ours}", self.name));
        let is_old = |part: &&String| !row.differ.iter().any(|(name, ..)| name.contains(part.as_str()));
        let old = self.differs.keys().filter(is_old);
        new.chain(old.map(|part| format!("{}: no difference any more: {part}", self.name))).collect()
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
