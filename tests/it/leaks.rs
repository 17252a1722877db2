//! Nothing is leaked, and nothing is freed too early. `FORKLESS_TEST_SCALE` multiplies the number of launches.

testing::usual_surroundings!();

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn launches_leak_nothing() {
    runner::run("leaks-good");
}

#[test]
fn a_running_child_holds_only_the_callers_ends() {
    runner::run("leaks-running");
}

#[test]
fn concurrent_launches_do_not_mix() {
    runner::run("leaks-batch");
}

#[test]
fn failed_launches_leak_nothing() {
    runner::run("leaks-failed");
}

#[test]
fn dropped_handles_leak_nothing() {
    runner::run("leaks-dropped");
}

#[test]
fn dropped_children_are_reaped_by_later_launches() {
    runner::run("dropped-and-reaped");
}

/// Negative control: planted leaks of each kind are detected.
#[test]
fn planted_leaks_are_detected() {
    runner::run("leaks-control");
}

#[test]
fn a_plan_outlives_every_handle_while_a_child_reads_it() {
    runner::run("dropped-before-exec");
}

#[test]
fn a_plan_outlives_every_handle_while_a_child_reads_it_under_load() {
    runner::run("dropped-while-churning");
}

#[test]
fn memory_of_a_child_that_cannot_be_waited_for_is_kept() {
    runner::run("held-waits-refused");
}

#[test]
fn a_failed_clone_leaks_no_stack() {
    runner::run("clone-refused");
}
