//! Tasks for developers and for CI: tests, checks, installation, benchmarks and generated pages (`cargo xtask --help`).

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use testing::modules::{self, Modules, Profile};
use testing::{dist, once, packages, surroundings};
use xtask::{
    distros, fuzz, kernels, models, mutants, peers, release, sanitize, site, sizes, soak, suite, targets, trust,
    version,
};

#[derive(Parser)]
#[command(about = "Run a task of the forkless project")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all tests of all crates and print the totals
    Test {
        /// Install no packages; tests that need a missing one are skipped
        #[arg(long)]
        no_install: bool,
        /// Run tests that have failed once more, alone; one that passes then is reported as flaky
        #[arg(long)]
        retry: bool,
        /// Arguments of the test harness, such as names of tests
        names: Vec<String>,
    },
    /// Run what CI runs: format, lints, docs, all tests, a short benchmark
    Ci,
    /// Measure, and write the record to bench/record and its figures to the README
    Record {
        /// Options of forkless bench, such as --full
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Install the command with man pages and completions, and the C libraries with headers and pkg-config files
    Dist {
        /// Install to P/lib, P/include, P/bin and P/share
        #[arg(long, value_name = "P")]
        prefix: PathBuf,
        /// Directory of the libraries, relative to the prefix (Debian: lib/x86_64-linux-gnu)
        #[arg(long, value_name = "L", default_value = "lib")]
        libdir: PathBuf,
        /// Write the files below this directory, as if it were /
        #[arg(long, value_name = "D")]
        destdir: Option<PathBuf>,
        /// Only the C libraries and their headers
        #[arg(long)]
        libraries: bool,
    },
    /// Build libforkless_warm.so, the library in templates of warm programs (experimental)
    Warm {
        /// The directory to write it to
        directory: PathBuf,
    },
    /// Run the test suites of other projects, with the launcher that they have and with ours
    Peers(peers::Options),
    /// Make crates, Debian packages and an archive of the command in target/packages
    Package(release::Options),
    /// Make the Node package, for this machine's architecture, in target/node/node_modules/forkless
    Node,
    /// Plant faults, one at a time, and check that the tests for them fail
    Mutants(mutants::Options),
    /// Run the tests in other releases of Debian, in directories that debootstrap makes (needs root)
    Distros(distros::Options),
    /// Boot real kernels in qemu and run the tests in them
    Kernels(kernels::Options),
    /// Launch in all forms from many threads of one process, for hours
    Soak(soak::Options),
    /// Check the models of docs/design/models (needs spin and gcc) and tests/loom, and that each planted error is found
    Models {
        /// Names of models, loom for those of tests/loom (default: all)
        names: Vec<String>,
    },
    /// Run tests under Miri, AddressSanitizer and ThreadSanitizer; needs a nightly toolchain and gcc
    Sanitize {
        /// The tool (default: all)
        tool: Option<sanitize::Tool>,
    },
    /// Run the fuzz targets; needs cargo-fuzz and a nightly toolchain
    Fuzz(fuzz::Options),
    /// Write what other languages and the docs have of the table of settings (after a change of crates/forkless/src/settings.rs)
    Settings,
    /// Check the library with musl, on other systems (feature std-fallback) and with the oldest Rust, as far as they are installed
    Targets(targets::Options),
    /// Make the documentation as a site in target/site/html, and follow its links (installs mdBook in target; needs mandoc)
    Site,
    /// Print the version of all packages, or write another one to all files that have it
    Version {
        /// Such as 0.2.0
        new: Option<String>,
    },
    /// Count lines, words and crates, and compare them with their ceilings in xtask/src/sizes.toml
    Sizes,
    /// Write the promises with their tests to docs/trust.md
    Trust,
}

fn main() -> ExitCode {
    // Without a backtrace of anyhow's, which would hide the results before it.
    task().map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn task() -> Result<()> {
    let options = Options::parse();
    // Their relative paths refer to the caller's working directory.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| dist::root().join("target"), PathBuf::from);
    match &options.task {
        Task::Dist { prefix, libdir, destdir, libraries } => {
            let prefix = std::path::absolute(prefix)?;
            let place = dist::InstallPlace { prefix, libdir: libdir.clone(), destdir: destdir.clone() };
            // Below a directory of its own first: the list of installed files must have exactly these.
            let stage = std::path::absolute(&target)?.join("dist-stage");
            if stage.exists() {
                std::fs::remove_dir_all(&stage)?;
            }
            let staged = dist::InstallPlace { destdir: Some(stage.clone()), ..place.clone() };
            dist::libraries(&staged, &target, &[])?;
            if !libraries {
                dist::command(&staged, &target, &[])?;
            }
            dist::licences(&staged)?;
            testing::installed::install(&staged, &place)?;
            return Ok(std::fs::remove_dir_all(stage)?);
        }
        Task::Warm { directory } => return dist::warm(directory, &target.join("warm-build")),
        Task::Peers(options) => return peers::run(options, &target),
        Task::Package(options) => return release::make(options, &target),
        Task::Node => {
            let made = modules::node(&target.join("node"), &target, Profile::Release)?;
            let modules = made.map_err(anyhow::Error::msg)?;
            println!("{}", modules.join("forkless").display());
            return Ok(());
        }
        Task::Mutants(options) => return mutants::run(options, &target),
        Task::Distros(options) => return distros::run(options, &target),
        Task::Kernels(options) => return kernels::run(options, &target),
        Task::Soak(options) => return soak::run(options, &target),
        Task::Models { names } => return models::run(names, &target),
        Task::Sanitize { tool } => return sanitize::run(*tool, &target),
        Task::Fuzz(options) => return fuzz::run(options, &target),
        Task::Settings => return step("settings", cargo(&GENERATE).current_dir(dist::root())),
        Task::Targets(options) => return targets::check(options, &target),
        Task::Version { new } => return version::run(new.as_deref()),
        Task::Site => return site::make(&target).map(drop),
        Task::Sizes => return sizes::run(),
        Task::Trust => return trust::write(&dist::root()),
        Task::Test { .. } | Task::Ci | Task::Record { .. } => {}
    }
    // Cargo sets the directory of this crate, but the tasks run in the workspace root.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into());
    std::env::set_current_dir(Path::new(&here).join(".."))?;
    match options.task {
        Task::Test { no_install, retry, names } => {
            test(&names, if no_install { Install::Nothing } else { Install::Missing }, retry, &target)
        }
        Task::Ci => ci(&target),
        Task::Record { words } => record(&words, &target),
        _ => unreachable!("done above"),
    }
}

/// The features of all crates in releases, and that of slow tests.
const FEATURES: &str = "forkless/tokio,forkless-cli/suites";

fn ci(target: &Path) -> Result<()> {
    let gcc = Command::new("gcc").arg("--version").stdout(Stdio::null()).status();
    ensure!(gcc.is_ok_and(|status| status.success()), "gcc is missing: apt-get install gcc libc6-dev");
    heading("sizes");
    sizes::run()?;
    step("format", cargo(&["fmt", "--all", "--", "--check"]))?;
    let models = ["fmt", "--manifest-path", "tests/loom/Cargo.toml", "--all", "--", "--check"];
    step("format of the models", cargo(&models))?;
    let lints = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"];
    step("lints", cargo(&lints))?;
    step("lints without features", cargo(&["clippy", "-p", "forkless", "--locked", "--", "-D", "warnings"]))?;
    let oldest = targets::oldest(&target.join("targets"));
    if let Err(why) = &oldest {
        println!("SKIPPED: checks with the oldest Rust because {why:#}");
    }
    // With the features of its own dependencies alone, as a user of the crate has them.
    for name in release::CRATES {
        let mut cargo = if oldest.is_ok() { targets::oldest(&target.join("targets"))? } else { cargo(&[]) };
        step(&format!("{name} alone"), cargo.args(["check", "--quiet", "--locked", "--package", name]))?;
    }
    let command = ["", "gearman", "slurm"].map(|feature| ("check", "forkless-cli", feature));
    let library = ["", "capture", "cgroup", "pty", "sandbox", "shell", "zygote", "tokio", "warm"];
    // The examples, too.
    for (verb, name, feature) in library.map(|feature| ("test", "forkless", feature)).into_iter().chain(command) {
        let words = [verb, "--quiet", "--locked", "--no-default-features", "--package", name, "--features", feature];
        let examples = (verb == "test").then_some("--doc");
        step(&format!("{name} with the feature {feature:?}"), cargo(&words).args(examples))?;
    }
    heading("other targets");
    targets::of_ci(target)?;
    step("fuzz targets", &mut fuzz::check(target))?;
    heading("build of the models");
    models::with_loom("build", target)?;
    let check = ["semver-checks", "--workspace", "--exclude", "forkless-core", "--all-features", "--baseline-rev"];
    match version::released() {
        Some(tag) => step("Semantic Versioning", cargo(&check).arg(tag))?,
        None => println!("SKIPPED: the check of Semantic Versioning because no version has been released"),
    }
    let docs = ["doc", "--workspace", "--no-deps", "--features", FEATURES, "--locked"];
    step("docs", cargo(&docs).env("RUSTDOCFLAGS", "-D warnings"))?;
    test(&[], Install::Missing, true, target)?;
    heading("Debian 13");
    if nix::unistd::geteuid().is_root() {
        distros::run(&distros::Options::of_ci()?, target)?;
    } else {
        println!("SKIPPED: tests in Debian 13 because this user is not root");
    }
    heading("models");
    if models::has_spin() {
        models::run(&[], target)?;
    } else {
        println!("SKIPPED: the models of docs/design/models because spin is missing");
        models::with_loom("run", target)?;
    }
    heading("planted faults");
    mutants::run(&mutants::Options::central(), target)?;
    let quick = ["--", "--quick", "--no-progress", "--out", "target/bench-ci"];
    // Use the modules and the program of the tests: this short run is only a check, and its figures are not used.
    let modules = Modules::build(&target.join("tmp"), target, Profile::Dev)?;
    modules.skipped().iter().for_each(|line| println!("{line}"));
    step("benchmark", modules.add_to(cargo(&BENCH).args(quick))?)?;
    let record = std::fs::read_to_string("target/bench-ci/results.json").context("the record")?;
    modules.have_rows(&serde_json::from_str(&record)?)
}

/// Writes what other languages and the docs have of the table of settings.
const GENERATE: [&str; 6] = ["run", "--quiet", "--locked", "--package=forkless-tests", "--bin", "generated"];

/// Runs the benchmark.
const BENCH: [&str; 5] = ["run", "--quiet", "--locked", "--package", "forkless-bench"];

/// Writes a record with today's date. Run it on an otherwise idle machine.
fn record(words: &[String], target: &Path) -> Result<()> {
    let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
    let out = format!("bench/record/{}", String::from_utf8(date.stdout)?.trim());
    let modules = Modules::build(&target.join("modules"), target, Profile::Release)?;
    modules.skipped().iter().for_each(|line| println!("{line}"));
    step("benchmark", modules.add_to(cargo(&BENCH).args(["--release", "--", "--out", &out]).args(words))?)?;
    step("README", cargo(&BENCH).args(["--release", "--", "report", "--readme", "README.md", &out]))
}

/// How to handle missing packages that tests need.
#[derive(PartialEq, Eq)]
enum Install {
    /// Install Debian packages, if this is Debian and the user is root, and Python packages in a virtual environment.
    Missing,
    /// Install nothing.
    Nothing,
}

/// Installs packages that tests need, runs `cargo test` for the workspace and prints the totals.
///
/// A test that cannot run here (it needs root, or a newer kernel) prints a line that begins with `SKIPPED:`.
fn test(names: &[String], install: Install, retry: bool, target: &Path) -> Result<()> {
    surroundings::check_unsplit(&std::path::absolute(dist::root())?)
        .context("cargo test works there, cargo xtask test does not")?;
    surroundings::usual();
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("LC_ALL", surroundings::LANGUAGE) };
    if install == Install::Missing {
        packages::debian()?;
        packages::unpack(target)?;
    }
    let command = || {
        let mut command = cargo(&["test", "--workspace", "--features", FEATURES, "--locked"]);
        command.env(once::RUN, &*once::THIS_RUN);
        if install == Install::Nothing {
            command.env(packages::NO_INSTALL, "1");
        }
        command
    };
    // Cargo shows the progress of the build only on a terminal.
    step("build", command().arg("--no-run"))?;
    suite::run(command, names, retry)
}

/// With signals as in a terminal: tests that signal a program would wait for ever under nohup(1), or in the background of a script.
fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT").arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Prints a heading, with the time since the first one.
fn heading(name: &str) {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    println!("== {name} ({} s)", START.elapsed().as_secs());
}

fn step(name: &str, command: impl std::borrow::BorrowMut<Command>) -> Result<()> {
    let mut command = command;
    heading(name);
    let status = command.borrow_mut().status().with_context(|| name.to_owned())?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}
