//! Tests of captured output. `FORKLESS_TEST_SCALE` multiplies the number of rounds.

testing::usual_surroundings!();

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn input_is_written_to_the_program() {
    runner::run("capture-input");
}

#[test]
fn all_streams_are_read_and_written_concurrently() {
    runner::run("capture-streams");
}

#[test]
fn limit_keeps_the_beginning_of_each_stream() {
    runner::run("capture-limits");
}

#[test]
fn a_timeout_ends_the_program() {
    runner::run("capture-times");
}

#[test]
fn a_timeout_of_zero_is_no_failed_launch() {
    runner::run("capture-no-time");
}

#[test]
fn output_is_never_lost() {
    runner::run("capture-held-open");
}

#[test]
fn failed_launches_leak_nothing() {
    runner::run("capture-fails");
}

#[test]
fn merged_standard_error_is_in_order() {
    runner::run("capture-merged");
}

#[test]
fn output_is_captured_in_memfds() {
    runner::run("capture-memory-files");
}

#[test]
fn captures_work_with_few_descriptors() {
    runner::run("capture-few-fds");
}

#[test]
fn captures_work_with_a_small_file_size_limit() {
    runner::run("capture-short-files");
}

#[test]
fn captures_survive_a_storm_of_signals() {
    runner::run("capture-signals");
}

#[test]
fn sigchld_ignored() {
    runner::run("capture-sigchld-ignored");
}

#[test]
fn captures_report_a_status_taken_by_another_reaper() {
    runner::run("capture-foreign-reaper");
}

/// With SIGPIPE at its default, handled, and blocked.
#[test]
fn a_program_that_ends_early_raises_no_sigpipe() {
    for args in [&["sigpipe"][..], &["sigpipe", "ENOSYS"], &["sigpipe", "EOPNOTSUPP"], &["sigpipe", "EPERM"]] {
        let ending = runner::end(args);
        assert!(ending.status.success(), "{args:?}: {} {}", ending.status, ending.text);
    }
}

/// Negative control: writing all input before reading does not return, and what it leaves behind is detected.
#[test]
fn writing_all_input_before_reading_deadlocks() {
    runner::run("capture-control");
}

#[test]
fn memfds_work_if_pidfd_getfd_is_refused() {
    for args in [&["capture-refused"][..], &["capture-refused", "late"]] {
        let ending = runner::end(args);
        assert!(ending.status.success(), "{}", ending.text);
    }
}
