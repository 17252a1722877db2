//! Tests of handles: wait sets, stops and continuations, groups, terminate, kill on drop. `FORKLESS_TEST_SCALE`
//! multiplies the counts.

testing::usual_surroundings!();

#[path = "../src/scenario/runner.rs"]
mod runner;

macro_rules! scenarios {
    ($($test:ident $name:literal)*) => { $(#[test]
    fn $test() {
        runner::run($name);
    })* };
}

scenarios! {
    thousands_of_children_are_returned_once_each "set-thousands"
    children_in_every_state_are_returned "set-odd"
    a_key_refers_to_one_child "set-keys"
    a_child_that_cannot_be_watched_comes_back "set-refused"
    a_child_comes_back_when_descriptors_are_used_up "set-exhausted"
    a_dropped_set_leaks_nothing "set-dropped"
    a_set_works_in_a_storm_of_signals "set-storm"
    a_traced_child_is_returned_after_its_tracer_detaches "set-traced"
    a_capture_sleeps_while_a_tracer_has_its_child "captured-traced"
    a_set_is_readable_when_a_child_has_ended "set-readable"
    a_forked_process_can_drop_a_set "set-copy"
    a_waiting_child_takes_little_memory "set-memory"
    stops_and_continuations_are_reported_in_order "changes"
    changes_taken_by_another_reaper_are_reported_as_ends "changes-taken"
    core_dumps_are_reported "cores"
    groups_are_signalled "groups"
    a_reaped_child_is_not_signalled_by_its_number "bounds-signals-after-the-end"
    groups_are_signalled_before_linux_6_9 "groups-before-6.9"
    terminate_sends_sigkill_after_the_grace "terminated"
    terminate_group_sends_sigkill_after_the_grace "terminated-groups"
    a_forked_process_that_drops_a_handle_kills_no_child "dropped-by-a-copy"
    dropped_handles_kill_with_kill_on_drop "killed-on-drop"
    waits_are_interrupted_by_a_signal "wait-interrupted"
    a_handle_keeps_the_ends_of_pipes_until_the_child_has_them "holding-ends"
    a_handle_that_is_dropped_waits_until_the_child_has_its_pipes "holding-dropped"
    a_childs_input_is_not_held_open "holding-input"
    descriptors_of_the_caller_are_passed_before_a_holding_launch_returns "holding-others"
    a_holding_launch_keeps_the_descriptors_of_its_command_open "holding-owned"
}

/// A container's seccomp filter may return any of these errnos.
#[test]
fn children_are_signalled_where_pidfd_send_signal_is_refused() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        let ending = runner::end(&["kill-refused", &errno.to_string()]);
        assert!(ending.status.success(), "{errno}: {} {}", ending.status, ending.text);
    }
}
