//! No child uses the heap, and runs of a prepared plan do not allocate.

testing::usual_surroundings!();

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn no_front_end_uses_the_heap_in_a_child() {
    let text = runner::run("heap-launches");
    assert!(!text.contains("trapped"), "{text}");
}

/// Negative control: the trap catches a forked child that allocates.
#[test]
fn the_trap_catches_a_forked_child() {
    assert!(runner::run("heap-control-fork").contains("trapped"));
}

/// Negative control: the trap catches a child in shared memory.
#[test]
fn the_trap_catches_a_cloned_child() {
    assert!(runner::run("heap-control-clone").contains("trapped"));
}

/// The scenario has its own negative controls: the counter counts.
#[test]
fn runs_of_a_prepared_plan_do_not_allocate() {
    runner::run("heap-count");
}

#[test]
fn launches_do_not_copy_each_variable() {
    runner::run("environment-cost");
}
