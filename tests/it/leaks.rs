//! Nothing is left behind, and nothing is freed too early. `FORKLESS_TEST_SCALE` multiplies the number of launches.

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn good_launches_leave_nothing() {
    runner::run("leaks-good");
}

#[test]
fn a_running_child_costs_the_caller_its_own_ends_alone() {
    runner::run("leaks-running");
}

#[test]
fn launches_at_once_are_each_their_own() {
    runner::run("leaks-batch");
}

#[test]
fn failed_launches_leave_nothing() {
    runner::run("leaks-failed");
}

#[test]
fn dropped_handles_leave_nothing() {
    runner::run("leaks-dropped");
}

#[test]
fn dropped_children_are_reaped_by_later_launches() {
    runner::run("dropped-and-reaped");
}

/// Negative control: planted leaks of each kind are seen.
#[test]
fn planted_leaks_are_seen() {
    runner::run("leaks-control");
}

#[test]
fn what_a_child_reads_outlives_every_handle() {
    runner::run("dropped-before-exec");
}

#[test]
fn what_a_child_reads_outlives_every_handle_under_load() {
    runner::run("dropped-while-churning");
}

#[test]
fn what_a_child_uses_is_left_to_it_where_nobody_may_wait() {
    runner::run("held-waits-refused");
}

#[test]
fn a_clone_that_fails_leaves_no_stack_behind() {
    runner::run("clone-refused");
}
