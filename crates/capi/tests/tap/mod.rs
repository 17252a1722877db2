//! A test program that runs tests of another language, which print TAP: each of them is printed and counted as a test.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

/// Runs `test`, which returns the number of tests that passed, as the only test of a program. `name` is its name in the harness's
/// list, `what` what is tested.
pub(crate) fn main(name: &str, what: &str, test: fn() -> Result<usize, Outcome>) -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        println!("{name}: test");
        return ExitCode::SUCCESS;
    }
    let mut names = words.iter().filter(|word| !word.starts_with('-')).peekable();
    if names.peek().is_some() && !names.any(|wanted| name.contains(wanted.as_str())) {
        result(0, 0, 0);
        return ExitCode::SUCCESS;
    }
    match test() {
        Ok(tests) => result(tests, 0, 0),
        Err(Outcome::Skipped(why)) => {
            println!("SKIPPED: {what} because {why}");
            result(0, 0, 0);
        }
        Err(Outcome::Failed(what)) => {
            // As Rust's harness names it.
            println!("{what}\ntest {name} ... FAILED");
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

pub(crate) enum Outcome {
    Skipped(String),
    Failed(String),
}

pub(crate) fn failed(what: impl std::fmt::Display) -> Outcome {
    Outcome::Failed(what.to_string())
}

/// Runs the command, prints its output, and counts the tests that passed.
pub(crate) fn count(command: &mut Command) -> Result<usize, Outcome> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut passed = 0;
    for line in BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        println!("{}", line.strip_prefix("# ").filter(|rest| rest.starts_with("SKIPPED:")).unwrap_or(&line));
        passed += usize::from(line.starts_with("ok ") && !line.contains("# skip"));
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(passed) } else { Err(failed(format!("{}: {status}", command.get_program().display()))) }
}
