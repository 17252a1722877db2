//! Races: busy programs, stops, signals, kills, threads, forks of the host. `FORKLESS_TEST_SECONDS` says how long a storm
//! lasts (default 2), `FORKLESS_TEST_SCALE` multiplies the counts.

testing::usual_surroundings!();

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
fn a_stopped_and_continued_group_launches() {
    runner::run("stop-storm");
}

#[test]
fn a_signal_ends_a_child_before_exec_and_runs_no_handler_of_the_host() {
    runner::run("held-signalled");
}

#[test]
fn the_parent_notices_that_a_child_has_left() {
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
fn launches_succeed_in_a_storm_of_signals() {
    runner::run("signal-storm");
}

/// Negative control: a handler that runs in a child is detected.
#[test]
fn a_handler_that_runs_in_a_child_is_detected() {
    runner::run("signal-control");
}

#[test]
fn killed_children_do_not_slow_down_later_launches() {
    runner::run("kill-storm");
}

#[test]
fn launches_succeed_among_busy_threads() {
    runner::run("thread-storm");
}

#[test]
fn a_forked_process_can_launch() {
    runner::run("fork-copy");
}

#[test]
fn processes_forked_during_launches_can_launch() {
    runner::run("fork-storm");
}

#[test]
fn the_probe_is_right_in_a_storm_of_signals() {
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
fn a_forked_process_with_the_same_pid_is_another_process() {
    runner::run("copy-of-the-same-pid");
}

#[test]
fn a_forked_process_reuses_the_stacks_of_its_parents_children() {
    runner::run("held-copy");
}

#[test]
fn a_host_that_is_not_dumpable_stays_so() {
    runner::run("ids-own-zero");
}

#[test]
fn overlapping_id_changes_record_dumpable_once() {
    runner::run("ids-overlap");
}

#[test]
fn the_childs_new_user_cannot_access_the_hosts_memory() {
    runner::run("ids-closed");
}

/// With the lost locks of callers without the setting as a control.
#[test]
fn record_locks_stay_when_the_caller_executes_another_program() {
    runner::run("record-locks");
}

#[test]
fn the_memory_is_dumpable_again_only_when_a_child_with_failed_maps_is_reaped() {
    runner::run("bounds-failed-maps");
}

#[test]
fn a_host_that_drops_root_during_a_launch_stays_non_dumpable() {
    runner::run("ids-own-drop");
}

#[test]
fn a_host_that_keeps_changing_ids_becomes_dumpable_between_launches() {
    runner::run("ids-restored");
}

#[test]
fn a_child_of_another_user_has_no_group_of_its_host() {
    runner::run("ids-groups");
}

#[test]
fn a_process_forked_during_an_id_change_does_not_hang() {
    runner::run("ids-forked-amid");
}

#[test]
fn set_dumpable_works_during_an_id_change() {
    runner::run("ids-asked-for");
}

#[test]
fn launches_after_an_id_change_can_access_the_host_again() {
    runner::run("ids-refused-meanwhile");
}

#[test]
fn the_host_is_not_dumpable_while_its_child_has_other_credentials() {
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
fn a_stopped_child_without_id_maps_does_not_block_its_host() {
    runner::run("maps-child-stopped");
}

#[test]
fn launches_into_a_new_pid_namespace() {
    runner::run("pid-namespace");
}

#[test]
fn a_process_with_the_hosts_reused_pid_passes_no_descriptor() {
    runner::run("pid-namespace-stranger");
}

#[test]
fn a_changed_environment_is_noticed() {
    runner::run("environment-changes");
}

#[test]
fn an_environment_that_changes_concurrently_is_copied_consistently() {
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
fn before_linux_5_16_a_core_dump_kills_processes_that_share_memory() {
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

/// A known limit: killing a whole cgroup also kills processes that share memory with one of its members.
#[test]
fn cgroup_kill_also_kills_the_host_of_an_unexecuted_child() {
    let ending = runner::end(&["oom", "whole"]);
    assert!(ending.status.success(), "{}", ending.text);
}

/// Negative control: with a clone without `CLONE_VFORK` the host is killed.
#[test]
fn an_oom_kill_reaches_processes_that_share_memory() {
    let ending = runner::end(&["oom", "control"]);
    assert!(ending.status.success(), "{}", ending.text);
}
