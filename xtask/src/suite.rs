//! Runs `cargo test`, adds up its results, and shows failures at the end, where a reader of a long log looks first.

use crate::count;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// More failed tests than this have a common cause, which a second run does not change.
const RETRIES: usize = 12;

/// The result of one or more test programs.
#[derive(Default)]
struct Results {
    passed: u64,
    failed: Vec<Failure>,
    /// How many tests the programs say have failed. Those without a name cannot be run again.
    counted: u64,
    skipped: u64,
    /// The targets that cargo says have failed, as its arguments: `--test signals`.
    targets: Vec<String>,
    /// How many test programs have reported failed tests. Another failure is a crash, or a build.
    reported: usize,
    succeeded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    test: String,
    /// What the test has printed, without backtraces.
    output: Vec<String>,
}

/// Runs the tests (`cargo` with its arguments before `--`) and prints the totals. `names`: arguments of the harness.
///
/// `retry`: runs tests that have failed once more, one at a time, because a busy machine can stop a test for seconds. One
/// that passes then is reported as flaky, with the output of its failure.
///
/// # Errors
/// If a test has failed (twice, with `retry`), something does not compile, or no test ran.
pub fn run(cargo: impl Fn() -> Command, names: &[String], retry: bool) -> Result<()> {
    let mut first = one(cargo().args(["--no-fail-fast", "--", "--show-output"]).args(names))?;
    let mut flaky = Vec::new();
    if let Some(args) = retry_arguments(&first).filter(|_| retry) {
        println!("\n== {} failed; again, one at a time", tests(first.failed.len()));
        let second = one(cargo().arg("--no-fail-fast").args(args).args(names))?;
        if second.succeeded && second.passed >= first.failed.len() as u64 {
            first.passed += second.passed;
            flaky = std::mem::take(&mut first.failed);
            first.succeeded = true;
        }
    }
    show("flaky: failed, and passed alone", &flaky);
    show("failed", &first.failed);
    println!("\n{} passed, {} failed, {} skipped", first.passed, first.failed.len(), first.skipped);
    if !first.succeeded || !first.failed.is_empty() {
        bail!("some tests failed");
    }
    if first.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

fn tests(count: usize) -> String {
    if count == 1 { "1 test".to_owned() } else { format!("{count} tests") }
}

/// Arguments that run the failed tests again. None if something else has failed, too, such as a build.
fn retry_arguments(results: &Results) -> Option<Vec<String>> {
    let is_doc = |target: &String| target.contains("--doc");
    let (targets, failed) = (&results.targets, results.failed.len());
    let are_named = results.counted == failed as u64;
    if !(1..=RETRIES).contains(&failed) || !are_named || results.reported != targets.len() || targets.iter().any(is_doc)
    {
        return None;
    }
    let targets = targets.iter().flat_map(|target| target.split(' '));
    let names = results.failed.iter().map(|failure| failure.test.as_str());
    let harness = ["--", "--show-output", "--test-threads=1", "--exact"];
    Some(targets.chain(harness).chain(names).map(str::to_owned).collect())
}

fn show(what: &str, failures: &[Failure]) {
    /// Enough for a message; a longer output is above.
    const LINES: usize = 60;
    for Failure { test, output } in failures {
        println!("\n---- {test} ({what}) ----");
        let hidden = output.len().saturating_sub(LINES);
        if hidden > 0 {
            println!("({hidden} lines more above)");
        }
        output[hidden..].iter().for_each(|line| println!("{line}"));
    }
}

/// Runs the command and prints what it prints.
fn one(command: &mut Command) -> Result<Results> {
    // One pipe for both, so that their order is kept.
    let (output, input) = std::io::pipe().context("a pipe")?;
    command.stdout(input.try_clone().context("a pipe")?).stderr(Stdio::from(input));
    let mut child = command.spawn().context("cargo test")?;
    // Close the command's copies of the pipe's writing end: with them open, the reader would find no end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = Reader::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        reader.take(&line);
    }
    reader.results.succeeded = child.wait()?.success();
    Ok(reader.results)
}

/// Reads the output of cargo and of Rust's test harness, a line at a time.
#[derive(Default)]
struct Reader {
    results: Results,
    /// The output of the tests of this program so far.
    blocks: Vec<Failure>,
    /// In the output of a test.
    is_inside: bool,
    is_backtrace: bool,
    failed: Vec<String>,
}

impl Reader {
    fn take(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            // Rust's own harness says `NAME stdout`.
            let test = test.trim_end_matches(" stdout");
            self.blocks.push(Failure { test: test.to_owned(), output: Vec::new() });
            (self.is_inside, self.is_backtrace) = (true, false);
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.results.passed += count(counts, "passed");
            self.results.counted += count(counts, "failed");
            self.results.skipped += count(counts, "ignored");
            self.results.reported += usize::from(counts.starts_with("FAILED"));
            let blocks = std::mem::take(&mut self.blocks);
            for test in self.failed.drain(..) {
                let found = blocks.iter().find(|block| block.test == test).cloned();
                self.results.failed.push(found.unwrap_or(Failure { test, output: Vec::new() }));
            }
            self.is_inside = false;
        } else if line == "failures:" || line == "successes:" {
            self.is_inside = false;
        } else if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failed.push(test.trim_end().to_owned());
        } else if let Some(target) = line.strip_prefix("    `-p ").and_then(|rest| rest.strip_suffix('`')) {
            // Without its package: with `-p` the features would not be those of the whole workspace.
            self.results.targets.extend(target.split_once(' ').map(|(_, target)| target.to_owned()));
        } else if self.is_inside {
            self.is_backtrace = (self.is_backtrace || line == "stack backtrace:") && !line.starts_with("note: ");
            if let Some(block) = self.blocks.last_mut().filter(|_| !self.is_backtrace) {
                block.output.push(line.to_owned());
            }
        }
        if line.starts_with("SKIPPED:") {
            self.results.skipped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Reader, Results, retry_arguments};

    const OUTPUT: &str = "\
     Running tests/signals.rs (target/debug/deps/signals-1)

running 3 tests
SKIPPED: one, because of a reason
test a ... ok
test b ... FAILED
test c ... ignored

successes:

---- a stdout ----
fine

successes:
    a

failures:

---- b stdout ----
thread 'b' panicked at x.rs:1:2:
no
stack backtrace:
   0: somewhere
             at x.rs:1
note: Some details are omitted
last

failures:
    b

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.29s

error: 1 target failed:
    `-p forkless-cli --test signals`";

    fn read(output: &str) -> Results {
        let mut reader = Reader::default();
        output.lines().for_each(|line| reader.take(line));
        reader.results
    }

    #[test]
    fn results_have_the_output_of_failed_tests() {
        let results = read(OUTPUT);
        assert_eq!((results.passed, results.skipped), (1, 2));
        let lines = ["thread 'b' panicked at x.rs:1:2:", "no", "note: Some details are omitted", "last", ""];
        let output = lines.map(str::to_owned).to_vec();
        assert_eq!(results.failed, [Failure { test: "b".to_owned(), output }]);
    }

    #[test]
    fn failed_tests_run_again_alone() {
        let args = retry_arguments(&read(OUTPUT)).expect("arguments");
        assert_eq!(args.join(" "), "--test signals -- --show-output --test-threads=1 --exact b");
    }

    #[test]
    fn nothing_runs_again_after_another_failure() {
        assert!(retry_arguments(&read("error: could not compile `x`")).is_none());
        let nameless = OUTPUT.replace("1 failed;", "2 failed;");
        assert!(retry_arguments(&read(&nameless)).is_none());
        let crashed = OUTPUT.replace("error: 1 target", "error: 2 targets") + "\n    `-p forkless-tests --test crash`";
        assert!(retry_arguments(&read(&crashed)).is_none());
        assert!(retry_arguments(&read(&OUTPUT.replace("--test signals", "--doc"))).is_none());
        assert!(retry_arguments(&Results::default()).is_none());
    }
}
