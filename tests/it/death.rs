//! Signals at the parent's death: [`parent_death_signal`](forkless::Command::parent_death_signal) and
//! [`thread_death_signal`](forkless::Command::thread_death_signal).

testing::usual_surroundings!();

#[path = "../src/scenario/runner.rs"]
mod runner;

/// With a negative control: the kernel's own rule.
#[test]
fn a_child_survives_the_thread_that_launched_it() {
    runner::run("death-thread-ends");
}

#[test]
fn a_child_gets_the_signal_when_the_process_ends() {
    runner::run("death-process-ends");
}

#[test]
fn a_sandbox_ends_with_the_caller_that_made_it() {
    runner::run("death-sandbox-ends");
}

#[test]
fn a_program_does_not_start_when_its_host_has_died() {
    runner::run("death-host-gone");
}

#[test]
fn a_forked_process_launches_from_any_thread() {
    runner::run("death-fork-copy");
}

#[test]
fn the_thread_that_clones_handles_no_signal_and_children_inherit_the_callers_mask() {
    runner::run("death-blocks");
}

#[test]
fn the_host_can_change_its_ids() {
    runner::run("death-ids-change");
}

#[test]
fn eight_threads_launch_at_once() {
    runner::run("death-many");
}

#[test]
fn a_thread_with_its_own_descriptor_table_passes_its_own_descriptors() {
    runner::run("death-own-table");
}

#[test]
fn threads_launch_after_the_main_thread_has_ended() {
    runner::run("death-main-thread-gone");
}

/// With the kernel's own rule beside it: the children that the thread clones itself.
#[test]
fn a_child_has_the_rights_of_the_thread_that_launched_it() {
    runner::run("creator-own-rights");
}

#[test]
fn equally_many_filters_of_two_threads_are_not_taken_for_the_same() {
    runner::run("creator-equal-filters");
}

#[test]
fn a_child_has_the_ids_of_the_thread_that_launched_it() {
    runner::run("creator-own-ids");
}

#[test]
fn a_parent_death_signal_works_without_proc() {
    runner::run("creator-in-a-host-without-proc");
}

#[test]
fn the_number_of_threads_with_children_is_bounded() {
    runner::run("creator-too-many");
}

#[test]
fn a_slow_child_holds_up_no_other_threads_launch() {
    runner::run("creator-not-held-up");
}

#[test]
fn a_thread_that_can_start_no_thread_is_refused() {
    runner::run("death-unshared-pids");
}

#[test]
fn a_child_that_does_not_see_its_parent_gets_its_signal() {
    runner::run("death-unseen-parent");
}
