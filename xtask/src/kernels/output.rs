//! Reads results from the output of a test program.

use super::guest::Done;
use super::record::{Job, Outcome};
use std::collections::BTreeMap;

/// Reads the output of a job, which may have been cut off.
pub fn read(done: &Done) -> Job {
    let mut reader = GuestReader::default();
    done.output.lines().for_each(|line| reader.line(line));
    let GuestReader { tests, skipped, running, result, .. } = reader;
    let mut ended = match (done.status, &result) {
        (None, _) => Some("the guest ended first".to_owned()),
        (Some(137), _) => Some("not done within its time".to_owned()),
        (Some(status), None) => Some(format!("ended with status {status}")),
        (Some(_), Some(_)) => None,
    };
    let mut job =
        Job { name: done.name.clone(), seconds: done.seconds, tests, skipped, total: running, ..Job::default() };
    if let Some(counts) = result {
        let count = |word: &str| counts[COUNTED.iter().position(|known| *known == word).expect("a counted word")];
        let of = |outcome| job.tests.values().filter(|other| **other == outcome).count() as u64;
        // Some programs do not name their tests.
        (job.more_passed, job.more_failed) =
            (count("passed").saturating_sub(of(Outcome::Passed)), count("failed").saturating_sub(of(Outcome::Failed)));
        if of(Outcome::Passed) > count("passed") || of(Outcome::Failed) > count("failed") {
            ended = Some("more tests were named than counted".to_owned());
        }
        job.total = count("passed") + count("failed") + count("ignored") + count("filtered");
        if count("ignored") > 0 {
            job.skipped.insert("tests that are ignored".to_owned(), count("ignored"));
        }
    }
    job.ended = ended;
    job
}

/// What the harness counts in its last line.
const COUNTED: [&str; 4] = ["passed", "failed", "ignored", "filtered"];

#[derive(Default)]
struct GuestReader {
    /// The name of the test program and `: `, where cargo runs several.
    program: String,
    tests: BTreeMap<String, Outcome>,
    skipped: BTreeMap<String, u64>,
    /// How many tests the program has, or else how many the harness says that it runs.
    running: u64,
    /// The test whose result is not on the line of its name, because other tests wrote between the two.
    open: Option<String>,
    /// What follows was written by the tests.
    is_shown: bool,
    /// The sums of all programs.
    result: Option<[u64; 4]>,
}

impl GuestReader {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            let before = self.result.unwrap_or_default();
            self.result = Some(std::array::from_fn(|at| before[at] + crate::count(rest, COUNTED[at])));
            self.is_shown = false;
        } else if let Some(rest) = line.trim_start().strip_prefix("Running ") {
            // `tests/it/x.rs (target/debug/deps/x-0123)`
            let file = rest.rsplit(['/', '(']).next().unwrap_or(rest);
            self.program = format!("{}: ", file.rsplit_once('-').map_or(file, |(name, _)| name));
        } else if let Some(rest) =
            line.strip_prefix("listed ").or_else(|| line.strip_prefix("running ")).filter(|_| self.running == 0)
        {
            self.running = crate::count(rest, "test");
        } else if let Some(line) = line.strip_prefix("SKIPPED: ") {
            *self.skipped.entry(line.to_owned()).or_insert(0) += 1;
        } else if line == "successes:" || line == "failures:" {
            self.is_shown = true;
        } else if self.is_shown {
        } else if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            self.open = Some(format!("{}{}", self.program, name.trim_end().trim_end_matches(" - should panic")));
            self.end(end);
        } else {
            self.end(line);
        }
    }

    /// The rest of a line that began with a test's name, or a line after it.
    fn end(&mut self, text: &str) {
        let outcome = match text {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed,
            _ if text.starts_with("ignored") => return self.open = None,
            // Several of the harness's threads write at once.
            _ => {
                return if text.starts_with("SKIPPED: ") {
                    self.line(text)
                };
            }
        };
        if let Some(name) = self.open.take() {
            self.tests.insert(name, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(output: &str, status: Option<i32>) -> Job {
        read(&Done { name: "x".into(), status, seconds: 1, output: output.into() })
    }

    #[test]
    fn a_test_program_that_ran_to_its_end_is_counted_by_its_result() {
        let text = "running 4 tests\ntest a ... ok\ntest b ... FAILED\nSKIPPED: c because d\ntest e ... ignored\n\
            test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out\n";
        let job = done(text, Some(101));
        assert_eq!((job.passed(), job.failed(), job.total, job.ended.as_deref()), (1, 1, 7, None));
        assert_eq!(job.failures().collect::<Vec<_>>(), ["b"]);
        assert_eq!(job.cell(), "2 of 7 tests: 1 passed, 1 failed, 3 skipped");
    }

    #[test]
    fn tests_without_names_are_counted() {
        let job = done("test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n", Some(0));
        assert_eq!(job.cell(), "40 passed");
        assert!(job.is_good());
    }

    #[test]
    fn a_result_that_is_not_on_its_tests_line_is_found() {
        let text = "test a ... SKIPPED: b because c\nok\ntest d - should panic ... ok\n\
            successes:\ntest e ... ok\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n";
        let job = done(text, Some(0));
        assert_eq!(job.tests.keys().collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(job.cell(), "2 passed, 1 skipped");
    }

    #[test]
    fn results_of_several_programs_are_added_up() {
        let one = |name: &str| {
            format!(
                "     Running tests/{name}.rs (/target/debug/deps/{name}-01ab)\nrunning 1 test\ntest x ... ok\nsuccesses:\n\
                 test result: ok. 1 passed; 0 failed; 0 ignored\n"
            )
        };
        let job = done(&(one("a") + &one("b")), Some(0));
        assert_eq!(job.tests.keys().collect::<Vec<_>>(), ["a: x", "b: x"]);
        assert_eq!(job.cell(), "2 passed");
    }

    #[test]
    fn tests_that_were_not_chosen_count_in_a_program_that_was_cut_off() {
        let job = done("listed 9 tests\nrunning 2 tests\ntest a ... ok\n", Some(137));
        assert_eq!(job.cell(), "1 of 9 tests: 1 passed, not done within its time");
    }

    #[test]
    fn a_test_program_that_was_cut_off_is_counted_by_its_lines_and_is_not_good() {
        for (status, ended) in
            [(None, "the guest ended first"), (Some(137), "not done within its time"), (Some(0), "ended with status 0")]
        {
            let job = done("running 3 tests\ntest a ... ok\ntest b ... ok\n", status);
            assert_eq!(job.cell(), format!("2 of 3 tests: 2 passed, {ended}"));
            assert!(!job.is_good());
        }
    }
}
