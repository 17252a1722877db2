//! Tests the perl distribution as a user installs it: `perl Makefile.PL && make && make test`, in a copy.
//!
//! It does not use Rust's test harness, so that each of perl's tests is printed and counted as a test.

testing::usual_surroundings!();

mod tap;

use std::path::Path;
use std::process::{Command, ExitCode};
use tap::{Outcome, count, failed};

fn main() -> ExitCode {
    tap::main("perl_distribution", "the perl distribution", test)
}

/// Returns the number of perl's tests that passed.
fn test() -> Result<usize, Outcome> {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if tempfile::tempfile_in(own).is_err() {
        // A tree that this user cannot write to is not a failure of the distribution.
        return Err(Outcome::Skipped("cargo's directory cannot be written to by this user".into()));
    }
    let target = own.parent().expect("a directory of cargo's");
    let built = testing::modules::perl(&own.join("perl"), target).map_err(|error| failed(format!("{error:#}")))?;
    let copy = built.map_err(Outcome::Skipped)?;
    // Reasons for skipped tests are written to standard error.
    let slow = std::env::var("FORKLESS_TEST_SLOW").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let limit = (900u32 * slow).to_string();
    let mut make = Command::new("timeout");
    make.args([&limit, "sh", "-c", "exec make test TEST_VERBOSE=1 2>&1"]).current_dir(&copy).env_remove("PERL5LIB");
    let tests = count(&mut make)?;
    if tests == 0 {
        return Err(failed("none of perl's tests has run"));
    }
    Ok(tests)
}
