//! What is run in each guest: test programs that this machine has built, and scenarios that only a real kernel can play.

use super::arch::Arch;
use super::guest::GuestJob;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testing::dist::{self, root};
use testing::{modules, once, packages};

/// A test program of cargo's, or a part of one.
struct CargoSuite {
    name: &'static str,
    package: &'static str,
    test: &'static str,
    /// Only the tests of these modules; none: all.
    modules: &'static str,
    /// Time limit in the guest, in minutes.
    limit: u64,
    /// Builds, on this machine, what the tests would build first: that takes too long on an emulated one.
    build: fn(&Path) -> Result<()>,
}

const fn suite(package: &'static str, test: &'static str, limit: u64, build: fn(&Path) -> Result<()>) -> CargoSuite {
    CargoSuite { name: test, package, test, modules: "", limit, build }
}

/// The scenarios of these modules.
const fn scenarios(name: &'static str, limit: u64, modules: &'static str) -> CargoSuite {
    CargoSuite { name, package: "forkless-tests", test: "scenarios", modules, limit, build: nothing }
}

/// Nothing to build.
fn nothing(_: &Path) -> Result<()> {
    Ok(())
}

fn perl(target: &Path) -> Result<()> {
    say(modules::perl(&target.join("tmp/perl"), target)?)
}

fn python(target: &Path) -> Result<()> {
    say(modules::python(&target.join("tmp/python"), target, modules::Profile::Dev)?)
}

fn say(built: testing::packages::Built) -> Result<()> {
    if let Err(why) = built {
        println!("SKIPPED: a module for another language because {why}");
    }
    Ok(())
}

/// Its tests run one at a time: they change sysctls, and the last of them one that cannot be changed back.
const HOSTS: &str = "hosts";

/// Its programs use perf events: see [`guest::run`](super::guest::run).
pub const WARM: &str = "warm";

/// Last the one that leaves the system changed.
static SUITES: [CargoSuite; 21] = [
    suite("forkless-tests", "faults", 20, nothing),
    scenarios("handle", 30, "set ends holding awaited"),
    scenarios("visibility", 20, "visibility autoreap"),
    scenarios("death", 20, "death creator"),
    scenarios("launchers", 30, "launchers exec reported bounds"),
    suite("forkless-tests", "procfs", 20, nothing),
    scenarios("capture", 30, "capture capture_alone sigpipe"),
    scenarios("pipeline", 30, "pipeline lines"),
    suite("forkless-tests", "shell", 30, nothing),
    suite("forkless-tests", "settings", 40, nothing),
    scenarios("zygote", 40, "zygote zygote_bounds zygote_odd zygote_owner"),
    scenarios("races", 60, "busy dumps environment held hosts ids locks maps oom stops storms strangers"),
    suite("forkless-tests", "awaited", 30, nothing),
    scenarios("leaks", 30, "leaks heap"),
    suite("forkless-tests", "behaviour", 90, nothing),
    suite("forkless-warm", WARM, 60, |target| {
        dist::warm_once(&target.join("tmp/warm"), &target.join("tmp/warm-build"))
    }),
    suite("forkless-capi", "c", 60, |target| dist::install_once(&target.join("tmp/c"), target)),
    suite("forkless-preload", "preload", 60, |target| dist::install_once(&target.join("tmp/preload"), target)),
    suite("forkless-capi", "perl", 60, perl),
    suite("forkless-python", "python", 60, python),
    suite("forkless-tests", HOSTS, 60, nothing),
];

/// Those that can run there: a Debian of another architecture has no compiler, and no modules for other languages.
fn suites_of(arch: Arch) -> impl Iterator<Item = &'static CargoSuite> {
    SUITES.iter().filter(move |suite| arch.cross().is_none() || suite.package == "forkless-tests")
}

/// The scenarios of signals that dump core.
const DUMPS: &str = "dumps";

/// All that can be run.
pub fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(DUMPS).chain(SUITES.iter().map(|suite| suite.name))
}

/// Which jobs, and how.
#[derive(clap::Args)]
pub struct Choice {
    /// Only these jobs
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only tests with one of these in their names
    #[arg(long, value_name = "WORD")]
    test: Vec<String>,
    /// Run this line of bash in the guest instead of the tests
    #[arg(long, value_name = "LINE", conflicts_with_all = ["record", "only", "test"])]
    run: Option<String>,
    /// Multiply the time limits of the tests by this
    #[arg(long, default_value_t = 15)]
    slow: u32,
    /// Multiply the counts of the tests by this
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Set this variable of the environment of the jobs (NAME=VALUE)
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Stop a test program after this many minutes (default: a limit for each)
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds what is chosen and makes the jobs of it.
///
/// # Errors
/// If cargo fails, or a name is unknown.
pub fn jobs(choice: &Choice, arch: Arch, target: &Path) -> Result<Vec<GuestJob>> {
    if let Some(line) = &choice.run {
        let script = format!("{}cd {}\n{line}\n", choice.environment(), quoted(&root().canonicalize()?));
        return Ok(vec![GuestJob { name: "run".into(), script, limit: Duration::from_secs(3600) }]);
    }
    if let Some(unknown) = choice.only.iter().find(|only| !names().any(|name| name == only.as_str())) {
        bail!("no job {unknown}: there are {}", names().collect::<Vec<_>>().join(", "));
    }
    let chosen = |name: &str| choice.only.is_empty() || choice.only.iter().any(|other| other == name);
    let suites: Vec<&CargoSuite> = suites_of(arch).filter(|suite| chosen(suite.name)).collect();
    let built = build(arch)?;
    for suite in &suites {
        (suite.build)(target).with_context(|| format!("what {} would build", suite.name))?;
    }
    let mut jobs = Vec::new();
    if chosen(DUMPS) && choice.test.is_empty() {
        jobs.push(dumps(choice, &built)?);
    }
    for suite in suites {
        let is_it = |message: &&Message| message.is("test", suite.test) && message.is_test();
        let message = built.iter().find(is_it).with_context(|| format!("cargo built no test {}", suite.test))?;
        let directory = message.manifest_path.as_deref().and_then(Path::parent).context("a manifest")?;
        let mut script = choice.environment();
        let shown = quoted(directory);
        let program = quoted(message.executable.as_deref().context("a program")?);
        writeln!(script, "export CARGO_MANIFEST_DIR={shown}\ncd {shown}")?;
        let modules: String = suite.modules.split_whitespace().map(|module| format!(" {module}::")).collect();
        let words: String = choice.test.iter().map(|word| format!(" {}", quoted(Path::new(word)))).collect();
        let threads = if suite.test == HOSTS { " --test-threads=1" } else { "" };
        if choice.is_part() {
            // A run that is cut off counts only the chosen ones.
            writeln!(script, "echo \"listed $({program} --list{modules} 2>/dev/null | grep -c ': test$') tests\"")?;
        }
        writeln!(script, "exec {program} --show-output{threads}{modules}{words}")?;
        let limit = Duration::from_secs(choice.minutes.unwrap_or(suite.limit) * 60);
        jobs.push(GuestJob { name: suite.name.into(), script, limit });
    }
    ensure!(!jobs.is_empty(), "none of these jobs runs there: see `cargo xtask kernels --help`");
    Ok(jobs)
}

impl Message {
    fn is(&self, kind: &str, name: &str) -> bool {
        let target = self.target.as_ref();
        self.reason == "compiler-artifact"
            && target.is_some_and(|target| target.name == name && target.kind.iter().any(|other| other == kind))
    }

    fn is_test(&self) -> bool {
        self.profile.as_ref().is_some_and(|profile| profile.test)
    }
}

impl Choice {
    /// Whether the user gave a line to run, of which only the output and the status are used.
    pub fn is_line(&self) -> bool {
        self.run.is_some()
    }

    /// Whether only some tests of each program run.
    pub fn is_part(&self) -> bool {
        !self.test.is_empty()
    }

    fn environment(&self) -> String {
        let (slow, scale) = (self.slow, self.scale);
        let mut lines = format!("export FORKLESS_TEST_SLOW={slow} FORKLESS_TEST_SCALE={scale}\n");
        let run = &*once::THIS_RUN;
        let _ = writeln!(
            lines,
            "export {}=1 {}={run} FORKLESS_OWN_SYSTEM=1 RUST_BACKTRACE=0",
            packages::NO_INSTALL,
            once::RUN
        );
        for name in ["PATH", "CARGO", "CARGO_HOME", "RUSTUP_HOME"] {
            if let Some(value) = std::env::var_os(name) {
                let _ = writeln!(lines, "export {name}={}", quoted(Path::new(&value)));
            }
        }
        for word in &self.env {
            let _ = writeln!(lines, "export {}", quoted(Path::new(word)));
        }
        lines
    }
}

/// Builds the test programs and what they run.
fn build(arch: Arch) -> Result<Vec<Message>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["test", "--no-run", "--locked", "--message-format=json-render-diagnostics"]);
    // Always all: for a part of the packages cargo would select other features, and build everything again.
    for suite in suites_of(arch) {
        cargo.args(["-p", suite.package, "--test", suite.test]);
    }
    if let Some((triple, linker)) = arch.cross() {
        let name = triple.to_uppercase().replace('-', "_");
        cargo.args(["--target", triple]).env(format!("CARGO_TARGET_{name}_LINKER"), linker);
    }
    let done = cargo.stderr(Stdio::inherit()).output().context("cargo")?;
    if !done.status.success() {
        bail!("cargo test --no-run: {}", done.status);
    }
    let text = String::from_utf8(done.stdout)?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Signals that dump core, to children before their exec: before Linux 5.16 they end a host that does not protect itself.
fn dumps(choice: &Choice, built: &[Message]) -> Result<GuestJob> {
    let is_it = |message: &&Message| message.is("bin", "scenario") && !message.is_test();
    let scenario = built.iter().find(is_it).and_then(|message| message.executable.as_deref());
    let scenario = quoted(scenario.context("cargo built no scenario")?);
    let script = format!(
        r#"{}cd /tmp
passed=0 failed=0
play() {{
    want=$1; shift
    setsid -w {scenario} "$@"; got=$?
    if [ $got = $want ]; then passed=$((passed + 1)); word=ok; else failed=$((failed + 1)); word="FAILED"; fi
    echo "test $* ... $word"
    echo "exit status $got, expected $want"
}}
case $(uname -r) in [0-4].* | 5.[0-9].* | 5.1[0-5].*) host=131 ;; *) host=0 ;; esac
play $host dumps::control
play 0 dumps::before_linux_5_16_a_signal_that_dumps_core_ends_the_child_without_a_dump real
play 0 dumps::before_linux_5_16_a_program_starts_with_the_right_actions_and_mask real
play 0 dumps::before_linux_5_16_the_memory_cannot_be_dumped_while_a_filter_may_kill real
play 0 dumps::before_linux_5_16_the_probe_is_killed_by_a_filter_without_a_dump real
play 0 storms::launches_succeed_in_a_storm_of_signals
play 0 storms::killed_children_do_not_slow_down_later_launches
echo "test result: . $passed passed; $failed failed; 0 ignored"
"#,
        choice.environment()
    );
    Ok(GuestJob { name: DUMPS.into(), script, limit: Duration::from_secs(600) })
}

/// Quotes a word for a shell.
fn quoted(word: &Path) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_is_in_one_job() {
        let modules: Vec<&str> = SUITES.iter().flat_map(|suite| suite.modules.split_whitespace()).collect();
        for entry in std::fs::read_dir(root().join("tests/it/scenarios")).expect("the scenarios").flatten() {
            let text = std::fs::read_to_string(entry.path()).expect("a source");
            if text.lines().any(|line| line.starts_with("scenario!(")) {
                let module = entry.file_name().to_string_lossy().replace(".rs", "");
                assert_eq!(modules.iter().filter(|other| **other == module).count(), 1, "{module}");
            }
        }
    }
}
