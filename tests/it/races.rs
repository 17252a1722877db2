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
fn a_signal_ends_a_child_before_exec_and_runs_no_handler_of_the_host() {
    runner::run("held-signalled");
}

#[test]
fn a_child_is_seen_to_leave() {
    runner::run("child-leaves");
}

#[test]
fn a_launch_is_woken_by_the_child_that_has_its_descriptors() {
    runner::run("launch-woken");
}

#[test]
fn a_launch_returns_when_the_child_has_its_descriptors() {
    runner::run("launch-returns");
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
fn a_copy_finds_the_stacks_of_its_originals_children_free() {
    runner::run("held-copy");
}

#[test]
fn what_a_host_is_is_noted_once_for_all_changes_of_ids_that_overlap() {
    runner::run("ids-overlap");
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
fn a_child_of_another_user_has_none_of_its_hosts_groups() {
    runner::run("ids-groups");
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
fn a_stranger_with_the_hosts_number_passes_no_descriptor() {
    runner::run("pid-namespace-stranger");
}

#[test]
fn a_changed_environment_is_noticed() {
    runner::run("environment-changes");
}

#[test]
fn an_environment_that_is_being_changed_is_that_of_a_moment() {
    runner::run("environment-taken-out");
}

#[test]
fn before_linux_5_16_a_signal_that_dumps_core_ends_the_child_without_a_dump() {
    runner::run("dumps-signals");
}

#[test]
fn before_linux_5_16_a_program_starts_with_the_right_actions_and_mask() {
    runner::run("dumps-program");
}

#[test]
fn before_linux_5_16_a_signal_at_its_default_is_guarded_until_exec() {
    runner::run("dumps-default");
}

#[test]
fn before_linux_5_16_the_memory_cannot_be_dumped_while_a_filter_may_kill() {
    runner::run("dumps-filtered");
}

#[test]
fn before_linux_5_16_the_probe_is_killed_by_a_filter_without_a_dump() {
    runner::run("dumps-probe");
}

/// Negative control, as far as this kernel allows.
#[test]
fn before_linux_5_16_a_core_dump_reaches_who_shares_memory() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("osrelease");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let is_before = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (5, 16);
    let ending = runner::end(&["dumps-control"]);
    assert_eq!(ending.status.success(), !is_before, "{} {}", ending.status, ending.text);
}

#[test]
fn an_oom_kill_in_a_childs_cgroup_spares_its_host() {
    runner::run("oom");
}

/// The limit of it: a cgroup that is killed whole takes everyone along who shares memory with one of its processes.
#[test]
fn a_cgroup_killed_whole_takes_the_host_of_an_unexecuted_child_along() {
    let ending = runner::end(&["oom", "whole"]);
    assert!(ending.status.success(), "{}", ending.text);
}

/// Negative control: by a clone without `CLONE_VFORK` the host is killed.
#[test]
fn an_oom_kill_reaches_who_shares_memory() {
    let ending = runner::end(&["oom", "control"]);
    assert!(ending.status.success(), "{}", ending.text);
}
