//! The Python package as its users meet it: built as a wheel, installed into a virtual environment, and tested there by its own tests and by
//! those that CPython has for `subprocess`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use xtask::modules::Profile;

/// The interpreter that has the package; none where there is no Python that could.
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PYTHON.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = own.parent().expect("a directory of cargo's");
        let built = xtask::modules::python(&own.join("python"), target, Profile::Dev);
        match built.unwrap_or_else(|error| panic!("{error:#}")) {
            Ok(python) => Some(python),
            Err(why) => {
                say(&format!("SKIPPED: tests in Python because {why}"));
                None
            }
        }
    });
    made.as_deref()
}

/// Past the harness, which swallows what a passing test prints.
fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Runs it; a failure is a failure of the test. What it wrote last, and what it left out, is shown.
#[track_caller]
fn must(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}{err}");
    out.lines().filter(|line| line.starts_with("SKIPPED:")).for_each(say);
    out.lines().next_back().unwrap_or("").to_owned()
}

/// A program of Python's, not for longer than it may take on a busy machine, in a directory where nothing is found by chance.
fn run(python: &Path, seconds: &str, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args([seconds]).arg(python).args(words).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    command.env_remove("PYTHONPATH").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn the_tests_in_python() {
    let Some(python) = python() else { return };
    let words = ["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--tb", "short", "--color", "no", "."];
    let counts = must(&mut run(python, "900", &words));
    say(&format!("pytest: {counts}"));
    assert!(counts.contains(" passed"), "{counts}");
}

/// What the interpreter's own tests of `subprocess` say of forkless.
fn standard(how: &str) {
    let Some(python) = python() else { return };
    let has_tests = run(python, "60", &["-c", "import test.test_subprocess"]).output();
    if !has_tests.is_ok_and(|output| output.status.success()) {
        say("SKIPPED: CPython's test_subprocess because this Python was installed without its tests");
        return;
    }
    say(&must(&mut run(python, "500", &["standard.py", how])));
}

#[test]
fn the_standard_tests_with_the_standard_module_served() {
    standard("install");
}

#[test]
fn the_standard_tests_with_forkless_own_names() {
    standard("popen");
}

/// The stubs name what there is, and the benchmark runs.
#[test]
fn the_figures_can_be_shown() {
    let Some(python) = python() else { return };
    must(&mut run(python, "300", &["../bench/bench.py", "--smoke"]));
}
