//! What a developer and the CI machine run: `cargo xtask test`, `cargo xtask ci`, `cargo xtask dist`, `cargo xtask record`,
//! `cargo xtask real`.

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xtask::modules::{self, Modules, Profile};
use xtask::{
    background, count, dist, fuzz, inventory, kernels, mutants, noshell, packages, preload, real, settings, soak, trust,
};

#[derive(Parser)]
#[command(about = "Tasks of the forkless project")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Every test of every crate, closing with counts.
    Test {
        /// Install nothing: tests that lack a program or a package say so and are skipped.
        #[arg(long)]
        no_install: bool,
        /// Arguments of the test harness: names of tests to run.
        names: Vec<String>,
    },
    /// What the CI machine runs: format, lints, docs, every test, a short benchmark.
    Ci,
    /// Measures, puts the record into bench/record, and its figures into the README.
    Record {
        /// Options of the benchmark, such as --full.
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Builds the C libraries, their headers and their pkg-config files, and installs them.
    Dist {
        /// Where: P/lib, P/include.
        #[arg(long, value_name = "P")]
        prefix: PathBuf,
    },
    /// Measures our popen_noshell in the benchmark of its author, beside vfork, fork, posix_spawn, system and popen.
    Noshell(noshell::Options),
    /// Measures the preload library beside libc's functions.
    Preload(preload::Options),
    /// Measures real programs with and without libforkless_preload.so.
    Real(real::Options),
    /// Breaks rules on purpose, one at a time, and sees whether the tests that are there for them fail.
    Mutants(mutants::Options),
    /// Measures the tables and graphs of the texts on slow launches again, beside their published figures.
    Background(background::Options),
    /// Boots real kernels in qemu and runs the tests in them.
    Kernels(kernels::Options),
    /// Launches of all forms, mixed from many threads of one host, for hours.
    Soak(soak::Options),
    /// Runs the fuzz targets, which needs cargo-fuzz and a nightly toolchain.
    Fuzz(fuzz::Options),
    /// Writes what other languages and the docs have of the table of settings: after a change of crates/forkless/src/settings.rs.
    Settings,
    /// Lists all unsafe code with its reasons in docs/unsafe.md.
    Unsafe,
    /// Lists the promises with their tests and planted faults in docs/trust.md.
    Trust,
}

fn main() -> Result<()> {
    let options = Options::parse();
    // Relative paths of these are the caller's.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| dist::root().join("target"), PathBuf::from);
    match &options.task {
        Task::Dist { prefix } => {
            ensure!(std::env::var_os(dist::FEATURES).is_none(), "{} is set: that is for trials alone", dist::FEATURES);
            return dist::install(prefix, &target);
        }
        Task::Mutants(options) => return mutants::run(options, &target),
        Task::Noshell(options) => return noshell::compare(options, &target),
        Task::Preload(options) => return preload::compare(options, &target),
        Task::Real(options) => return real::compare(options, &target),
        Task::Background(options) => return background::compare(options, &target),
        Task::Kernels(options) => return kernels::run(options, &target),
        Task::Soak(options) => return soak::run(options, &target),
        Task::Fuzz(options) => return fuzz::run(options, &target),
        Task::Settings => return settings::write(&dist::root()),
        Task::Unsafe => return inventory::write(&dist::root()),
        Task::Trust => return trust::write(&dist::root()),
        Task::Test { .. } | Task::Ci | Task::Record { .. } => {}
    }
    // Cargo sets the directory of this crate; the tasks run at the workspace's root.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into());
    std::env::set_current_dir(Path::new(&here).join(".."))?;
    match options.task {
        Task::Test { no_install, names } => {
            test(&names, if no_install { Install::Nothing } else { Install::Missing }, &target)
        }
        Task::Ci => ci(&target),
        Task::Record { words } => record(&words, &target),
        _ => unreachable!("done above"),
    }
}

/// Of all crates: what releases have. (`planted` breaks rules on purpose, and is for trials alone.)
const FEATURES: &str = "forkless/tokio";

fn ci(target: &Path) -> Result<()> {
    require("gcc", "the benchmark's C contestants are built with it: apt-get install gcc libc6-dev")?;
    step("format", cargo(&["fmt", "--all", "--", "--check"]))?;
    let lints = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"];
    step("lints", cargo(&lints))?;
    step("lints without features", cargo(&["clippy", "-p", "forkless", "--locked", "--", "-D", "warnings"]))?;
    let docs = ["doc", "--workspace", "--no-deps", "--features", FEATURES, "--locked"];
    step("docs", cargo(&docs).env("RUSTDOCFLAGS", "-D warnings"))?;
    test(&[], Install::Missing, target)?;
    println!("== planted faults");
    mutants::run(&mutants::Options::central(), target)?;
    let quick = ["run", "--release", "--locked", "--", "bench", "--quick", "--no-progress", "--out", "target/bench-ci"];
    // Those of the tests: the figures say nothing anyway.
    let modules = Modules::build(&target.join("tmp"), target, Profile::Dev)?;
    modules.skipped().iter().for_each(|line| println!("{line}"));
    let mut quick = cargo(&quick);
    step("benchmark", modules.add_to(&mut quick)?)?;
    let record = std::fs::read_to_string("target/bench-ci/results.json").context("the record")?;
    modules.have_rows(&serde_json::from_str(&record)?)
}

/// A record of today: on a machine that has nothing else to do.
fn record(words: &[String], target: &Path) -> Result<()> {
    let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
    let out = format!("bench/record/{}", String::from_utf8(date.stdout)?.trim());
    let bench = ["run", "--release", "--locked", "--", "bench"];
    let modules = Modules::build(&target.join("modules"), target, Profile::Release)?;
    modules.skipped().iter().for_each(|line| println!("{line}"));
    step("benchmark", modules.add_to(cargo(&bench).args(["--out", &out]).args(words))?)?;
    step("README", cargo(&bench).args(["report", "--readme", "README.md", &out]))
}

/// What to do about packages that tests need and that are missing.
#[derive(PartialEq, Eq)]
enum Install {
    /// Debian's, if this is Debian and we are root, and Python's, into a virtual environment.
    Missing,
    /// Leave the machine as it is.
    Nothing,
}

/// Installs what tests need, runs `cargo test` over the workspace and adds its results up.
///
/// A test that cannot run here (it needs root, or a newer kernel) prints a line that begins with `SKIPPED:`.
fn test(names: &[String], install: Install, target: &Path) -> Result<()> {
    if install == Install::Missing {
        packages::debian()?;
        packages::unpack(target)?;
    }
    let mut command =
        cargo(&["test", "--workspace", "--features", FEATURES, "--locked", "--no-fail-fast", "--", "--show-output"]);
    command.args(names).env(modules::RUN, &*modules::THIS_RUN);
    if install == Install::Nothing {
        command.env(packages::NO_INSTALL, "1");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().context("cargo test")?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some(counts) = line.strip_prefix("test result: ") {
            passed += count(counts, "passed");
            failed += count(counts, "failed");
            skipped += count(counts, "ignored");
        } else if line.starts_with("SKIPPED:") {
            skipped += 1;
        }
    }
    let status = child.wait()?;
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    if !status.success() || failed > 0 {
        bail!("not every test passed");
    }
    if passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

fn require(program: &str, why: &str) -> Result<()> {
    match Command::new(program).arg("--version").stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("{program} is missing: {why}"),
    }
}

fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

fn step(name: &str, command: impl std::borrow::BorrowMut<Command>) -> Result<()> {
    let mut command = command;
    println!("== {name}");
    let status = command.borrow_mut().status().with_context(|| name.to_owned())?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}
