//! Captures. `FORKLESS_TEST_SCALE` multiplies the number of rounds.

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn what_is_fed() {
    runner::run("capture-input");
}

#[test]
fn all_streams_at_once() {
    runner::run("capture-streams");
}

#[test]
fn how_much_is_kept() {
    runner::run("capture-limits");
}

#[test]
fn when_the_time_is_up() {
    runner::run("capture-times");
}

#[test]
fn no_time_is_no_failed_launch() {
    runner::run("capture-no-time");
}

#[test]
fn what_the_program_wrote_is_never_lost() {
    runner::run("capture-held-open");
}

#[test]
fn failed_launches_leave_nothing() {
    runner::run("capture-fails");
}

#[test]
fn standard_error_follows() {
    runner::run("capture-merged");
}

#[test]
fn files_in_memory() {
    runner::run("capture-memory-files");
}

#[test]
fn few_descriptors() {
    runner::run("capture-few-fds");
}

#[test]
fn a_caller_of_short_files() {
    runner::run("capture-short-files");
}

#[test]
fn signals_all_the_time() {
    runner::run("capture-signals");
}

#[test]
fn sigchld_ignored() {
    runner::run("capture-sigchld-ignored");
}

#[test]
fn another_reaper() {
    runner::run("capture-foreign-reaper");
}

/// With SIGPIPE at its default; with a handler; blocked.
#[test]
fn a_program_that_ends_early_raises_no_sigpipe() {
    for args in [&["sigpipe"][..], &["sigpipe", "ENOSYS"], &["sigpipe", "EOPNOTSUPP"], &["sigpipe", "EPERM"]] {
        let ending = runner::end(args);
        assert!(ending.status.success(), "{args:?}: {} {}", ending.status, ending.text);
    }
}

/// Negative control: feeding before reading does not end, and what is left behind is seen.
#[test]
fn feeding_first_does_not_end() {
    runner::run("capture-control");
}

#[test]
fn memory_files_where_descriptors_cannot_be_fetched() {
    for args in [&["capture-refused"][..], &["capture-refused", "late"]] {
        let ending = runner::end(args);
        assert!(ending.status.success(), "{}", ending.text);
    }
}
