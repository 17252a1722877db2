//! Tests the Raku distribution in a copy, with `prove`, which perl has.
//!
//! It does not use Rust's test harness, so that each of Raku's tests is printed and counted as a test.

testing::usual_surroundings!();

mod tap;

use std::path::Path;
use std::process::{Command, ExitCode};
use tap::{Outcome, count, failed};

fn main() -> ExitCode {
    tap::main("raku_distribution", "the Raku distribution", test)
}

/// Returns the number of Raku's tests that passed.
fn test() -> Result<usize, Outcome> {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if tempfile::tempfile_in(own).is_err() {
        // A tree that this user cannot write to is not a failure of the distribution.
        return Err(Outcome::Skipped("cargo's directory cannot be written to by this user".into()));
    }
    let target = own.parent().expect("a directory of cargo's");
    let built = testing::raku::copy(&own.join("raku"), target).map_err(|error| failed(format!("{error:#}")))?;
    let copy = built.map_err(Outcome::Skipped)?;
    let mut prove = Command::new("timeout");
    // Reasons for skipped tests are written to standard error.
    prove.args(["-k", "10", "600", "sh", "-c", "exec prove --verbose --exec 'raku -I lib' t 2>&1"]);
    let tests = count(prove.current_dir(&copy.dist).env("FORKLESS_LIBRARY", &copy.library))?;
    if tests == 0 {
        return Err(failed("none of Raku's tests has run"));
    }
    Ok(tests)
}
