//! The Python package as its users meet it: built as a wheel, installed into a virtual environment, and tested there by its own tests and by
//! those that CPython has for `subprocess`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The interpreter that has the package; none where there is no Python that could.
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PYTHON.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
        if fs::create_dir_all(&own).is_err() || tempfile::tempfile_in(&own).is_err() {
            // A tree that is someone else's: they may have installed it there before.
            let there = own.join("venv/bin/python");
            if own.join("wheels").exists() && there.exists() {
                return Some(there);
            }
            say("SKIPPED: tests in Python because cargo cannot build as this user");
            return None;
        }
        let requirements = Path::new("bindings/python/requirements.txt");
        let Some(python) = xtask::packages::venv(&own, requirements).unwrap_or_else(|error| panic!("{error:#}")) else {
            say("SKIPPED: tests in Python because there is no Python of 3.9 or later with venv");
            return None;
        };
        install(&python, &own.join("wheels"));
        Some(python)
    });
    made.as_deref()
}

/// Builds the wheel, in cargo's own directory and as its tests are built, and installs it.
fn install(python: &Path, wheels: &Path) {
    let _ = fs::remove_dir_all(wheels);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory of cargo's");
    let mut maturin = Command::new(python);
    maturin.args(["-m", "maturin", "build", "--locked", "--quiet", "--auditwheel", "skip", "--out"]);
    maturin.arg(wheels).arg("--manifest-path").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    must(maturin.arg("--interpreter").arg(python).env("CARGO_TARGET_DIR", target));
    let wheel = fs::read_dir(wheels).expect("the wheels").map(|entry| entry.expect("an entry").path());
    let wheel: Vec<_> = wheel.filter(|path| path.extension().is_some_and(|kind| kind == "whl")).collect();
    assert!(wheel.len() == 1 && wheel[0].to_string_lossy().contains("-cp39-abi3-"), "{wheel:?}");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]);
    must(pip.arg("--force-reinstall").arg(&wheel[0]));
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
    let counts = must(&mut run(python, "300", &words));
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
