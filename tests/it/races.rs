//! Races: busy programs, stops, signals, kills, threads, forks of the host. `FORKLESS_TEST_SECONDS` says how long a storm
//! lasts (default 2), `FORKLESS_TEST_SCALE` multiplies the counts.

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn a_program_just_written_is_never_busy() {
    runner::run("busy-forkless");
}

#[test]
fn a_program_just_written_at_a_high_descriptor_is_never_busy() {
    let ending = runner::end(&["busy-forkless", "high"]);
    assert!(ending.status.success(), "{}", ending.text);
}

/// Negative control: `posix_spawn` fails in the same stress.
#[test]
fn a_program_just_written_is_busy_for_posix_spawn() {
    runner::run("busy-control");
}

#[test]
fn spawn_does_not_wait_for_a_stopped_child() {
    runner::run("stopped-before-exec");
}

#[test]
fn spawn_does_not_wait_for_a_stopped_child_while_signals_come() {
    runner::run("stopped-among-signals");
}

/// Negative control: `posix_spawn` does wait.
#[test]
fn posix_spawn_waits_for_a_stopped_child() {
    runner::run("stopped-control");
}

#[test]
fn a_group_launches_through_a_storm_of_stops() {
    runner::run("stop-storm");
}

#[test]
fn launches_are_right_in_a_storm_of_signals() {
    runner::run("signal-storm");
}

/// Negative control: a handler that runs in a child is seen.
#[test]
fn a_handler_in_a_child_is_seen() {
    runner::run("signal-control");
}

#[test]
fn killed_children_cost_later_launches_nothing() {
    runner::run("kill-storm");
}

#[test]
fn launches_are_right_among_busy_threads() {
    runner::run("thread-storm");
}

#[test]
fn a_forked_copy_can_launch() {
    runner::run("fork-copy");
}

#[test]
fn copies_forked_amid_launches_can_launch() {
    runner::run("fork-storm");
}

#[test]
fn a_first_launch_in_a_storm_of_signals_learns_the_best_way() {
    runner::run("first-launch-storm");
}

#[test]
fn threads_launch_after_the_main_thread_has_ended() {
    runner::run("main-thread-gone");
}

#[test]
fn a_thread_with_its_own_table_passes_its_own_descriptors() {
    runner::run("own-table");
}

#[test]
fn a_forked_copy_of_the_same_pid_is_another_process() {
    runner::run("copy-of-the-same-pid");
}

#[test]
fn a_hosts_memory_is_closed_to_the_user_that_its_child_has_become() {
    runner::run("ids-closed");
}

#[test]
fn a_host_that_always_launches_children_of_other_ids_is_dumpable_now_and_then() {
    runner::run("ids-restored");
}

#[test]
fn a_copy_forked_amid_a_change_of_ids_waits_for_nothing() {
    runner::run("ids-forked-amid");
}

#[test]
fn a_host_may_make_itself_dumpable_or_not_amid_a_change_of_ids() {
    runner::run("ids-asked-for");
}

#[test]
fn what_a_change_of_ids_refuses_to_others_is_there_for_the_next_ones() {
    runner::run("ids-refused-meanwhile");
}

#[test]
fn a_hosts_memory_is_closed_while_its_child_has_other_credentials() {
    runner::run("ids-other-credentials");
}

#[test]
fn a_child_waits_for_its_id_maps_as_long_as_its_host_is_stopped() {
    runner::run("maps-host-stopped");
}

#[test]
fn a_host_that_is_killed_leaves_no_child_that_waits_for_its_id_maps() {
    runner::run("maps-host-killed");
}

#[test]
fn a_stopped_child_without_id_maps_keeps_nobody() {
    runner::run("maps-child-stopped");
}

#[test]
fn launches_into_a_new_pid_namespace() {
    runner::run("pid-namespace");
}

#[test]
fn a_changed_environment_is_noticed() {
    runner::run("environment-changes");
}

#[test]
fn an_environment_that_is_being_changed_is_that_of_a_moment() {
    runner::run("environment-taken-out");
}
