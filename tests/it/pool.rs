//! Children cloned ahead.

#[path = "../src/scenario/runner.rs"]
mod runner;

/// Working directory, umask, environment, limits, signals, ids, namespaces: as they are at the launch.
#[test]
fn children_are_as_if_cloned_at_the_launch() {
    runner::run("pool-fresh");
}

/// Negative control: what is not compared is seen.
#[test]
fn what_is_not_compared_is_noticed_by_the_test() {
    runner::run("pool-fresh-control");
}

#[test]
fn descriptors_are_those_of_the_launch() {
    runner::run("pool-descriptors");
}

#[test]
fn nothing_is_left() {
    runner::run("pool-leaks");
}

#[test]
fn nobody_else_sees_them() {
    runner::run("pool-invisible");
}

#[test]
fn outsiders_kill_and_stop() {
    runner::run("pool-killed");
}

#[test]
fn signals_are_not_the_programs() {
    runner::run("pool-signalled");
}

#[test]
fn a_forked_copy_has_none() {
    runner::run("pool-forked");
}

#[test]
fn forks_amid_launches() {
    runner::run("pool-forked-storm");
}

#[test]
fn the_thread_that_made_it_ends() {
    runner::run("pool-maker-ends");
}

#[test]
fn what_is_not_used_ends() {
    runner::run("pool-idle");
}

#[test]
fn they_go_with_the_host() {
    runner::run("pool-ends");
}

#[test]
fn limits_are_survived() {
    runner::run("pool-limits");
}

#[test]
fn no_memory_for_stacks() {
    runner::run("pool-no-memory");
}

#[test]
fn bad_options_are_refused() {
    runner::run("pool-refused");
}
