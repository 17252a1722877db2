//! Tests the perl distribution as a user installs it: `perl Makefile.PL && make && make test`, in a copy.
//!
//! It does not use Rust's test harness, so that each of perl's tests is printed and counted as a test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The name of the test in the harness's list.
const NAME: &str = "perl_distribution";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        println!("{NAME}: test");
        return ExitCode::SUCCESS;
    }
    let mut names = words.iter().filter(|word| !word.starts_with('-')).peekable();
    if names.peek().is_some() && !names.any(|name| NAME.contains(name.as_str())) {
        result(0, 0, 0);
        return ExitCode::SUCCESS;
    }
    match test() {
        Ok(tests) => result(tests, 0, 0),
        Err(Outcome::Skipped(why)) => {
            println!("SKIPPED: the perl distribution because {why}");
            result(0, 0, 0);
        }
        Err(Outcome::Failed(what)) => {
            println!("{what}");
            result(0, 1, 0);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The last line of the harness, for tools that count tests.
fn result(passed: usize, failed: usize, ignored: usize) {
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out\n"
    );
}

enum Outcome {
    Skipped(String),
    Failed(String),
}

fn failed(what: impl std::fmt::Display) -> Outcome {
    Outcome::Failed(what.to_string())
}

/// Returns the number of perl's tests that passed.
fn test() -> Result<usize, Outcome> {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if tempfile::tempfile_in(own).is_err() {
        // A tree that this user cannot write to is not a failure of the distribution.
        return Err(Outcome::Skipped("cargo's directory cannot be written to by this user".into()));
    }
    let target = own.parent().expect("a directory of cargo's");
    let built = xtask::modules::perl(&own.join("perl"), target).map_err(|error| failed(format!("{error:#}")))?;
    let copy = built.map_err(Outcome::Skipped)?;
    // Reasons for skipped tests are written to standard error.
    let mut make = Command::new("timeout");
    make.args(["900", "sh", "-c", "exec make test TEST_VERBOSE=1 2>&1"]).current_dir(&copy).env_remove("PERL5LIB");
    let tests = count(&mut make)?;
    if tests == 0 {
        return Err(failed("none of perl's tests has run"));
    }
    Ok(tests)
}

/// Runs the command, prints its output, and counts the tests that passed.
fn count(command: &mut Command) -> Result<usize, Outcome> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut passed = 0;
    for line in BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        println!("{}", line.strip_prefix("# ").filter(|rest| rest.starts_with("SKIPPED:")).unwrap_or(&line));
        passed += usize::from(line.starts_with("ok ") && !line.contains("# skip"));
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(passed) } else { Err(failed(format!("make test: {status}"))) }
}
