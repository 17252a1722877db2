//! What SIGCHLD handlers and `waitpid(-1)` loops see of launches, and what they can take away. Each scenario has its
//! negative controls in it.

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn a_failed_launch_is_invisible() {
    runner::run("failed-is-invisible");
}

#[test]
fn a_good_launch_is_visible() {
    runner::run("good-is-visible");
}

#[test]
fn exit_statuses_are_kept_where_sigchld_is_ignored() {
    runner::run("sigchld-ignored");
}

#[test]
fn exit_statuses_are_kept_from_a_foreign_reaper() {
    runner::run("foreign-reaper");
}

#[test]
fn a_handle_does_not_signal_whoever_got_its_pid() {
    runner::run("pid-reuse");
}
