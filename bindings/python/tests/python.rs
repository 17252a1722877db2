//! Tests of the Python package: it is built as a wheel, installed into a virtual environment, and tested there with its
//! own tests and with CPython's tests of `subprocess`.

testing::usual_surroundings!();

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use testing::modules::Profile;

/// The interpreter with the package installed; none without a suitable Python.
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PYTHON.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = own.parent().expect("a directory of cargo's");
        let built = testing::modules::python(&own.join("python"), target, Profile::Dev);
        match built.unwrap_or_else(|error| panic!("{error:#}")) {
            Ok(python) => {
                add_warm_library(&python, target);
                Some(python)
            }
            Err(why) => {
                say(&format!("SKIPPED: tests in Python because {why}"));
                None
            }
        }
    });
    made.as_deref()
}

/// Installs the library of warm programs in `forkless/` beside the native module, where the package looks. (Beside it, it would be
/// taken for a module.)
fn add_warm_library(python: &Path, target: &Path) {
    if cfg!(not(all(target_arch = "x86_64", target_env = "gnu"))) {
        return;
    }
    let mut find = run(python, 60, &["-c", "import forkless; print(forkless.__path__[0])"]);
    let package = PathBuf::from(must(&mut find));
    let probe = package.join("probe");
    // Otherwise its owner may have installed it before.
    if std::fs::write(&probe, "").is_ok() {
        std::fs::remove_file(probe).expect("a file");
        testing::dist::warm(&package.join("forkless"), &target.join("warm-build"))
            .expect("the library of warm programs");
    }
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Runs the command and fails if it fails. Shows the end of its output, and which tests it skipped.
#[track_caller]
fn must(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}{err}");
    out.lines().filter(|line| line.starts_with("SKIPPED:")).for_each(say);
    out.lines().next_back().unwrap_or("").to_owned()
}

/// A Python command with a generous timeout, in the directory of the tests, where `import forkless` does not find the sources of the
/// package.
fn run(python: &Path, seconds: u32, words: &[&str]) -> Command {
    let slow = std::env::var("FORKLESS_TEST_SLOW").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut command = Command::new("timeout");
    command
        .arg((seconds * slow).to_string())
        .arg(python)
        .args(words)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    command.env_remove("PYTHONPATH").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn pytest_passes() {
    let Some(python) = python() else { return };
    let words =
        ["-m", "pytest", "--quiet", "--maxfail", "3", "-p", "no:cacheprovider", "--tb", "short", "--color", "no", "."];
    let counts = must(&mut run(python, 900, &words));
    say(&format!("pytest: {counts}"));
    assert!(counts.contains(" passed"), "{counts}");
}

/// Each example of the page about tool calls is a program that checks its own result.
#[test]
fn examples_of_the_page_about_agents_work() {
    let Some(python) = python() else { return };
    let page = include_str!("../../../docs/agents.md");
    let examples: Vec<&str> =
        page.split("```python\n").skip(1).map(|rest| rest.split("```").next().expect("an end")).collect();
    assert!(!examples.is_empty(), "no examples");
    for example in examples {
        must(&mut run(python, 60, &["-c", example]));
    }
}

/// CPython's own tests of `subprocess`, run on forkless.
fn standard(how: &str) {
    let Some(python) = python() else { return };
    let has_tests = run(python, 60, &["-c", "import test.test_subprocess"]).output();
    if !has_tests.is_ok_and(|output| output.status.success()) {
        say("SKIPPED: CPython's test_subprocess because this Python was installed without its tests");
        return;
    }
    say(&must(&mut run(python, 500, &["standard.py", how])));
}

#[test]
fn cpython_tests_pass_after_install() {
    standard("install");
}

#[test]
fn cpython_tests_pass_with_forkless_popen() {
    standard("popen");
}

/// The stubs match the modules, and the benchmark runs.
#[test]
fn the_benchmark_runs() {
    let Some(python) = python() else { return };
    must(&mut run(python, 300, &["../bench/bench.py", "--smoke"]));
}
