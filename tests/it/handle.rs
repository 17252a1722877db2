//! The handle: sets of children, stops and continuations told, groups, staged ends, kills on drop. `FORKLESS_TEST_SCALE`
//! multiplies the counts.

#[path = "../src/scenario/runner.rs"]
mod runner;

macro_rules! scenarios {
    ($($test:ident $name:literal)*) => { $(#[test]
    fn $test() {
        runner::run($name);
    })* };
}

scenarios! {
    thousands_are_told_once_each "set-thousands"
    children_in_every_state_are_told "set-odd"
    a_key_means_one_child "set-keys"
    a_child_that_cannot_be_watched_comes_back "set-refused"
    a_child_comes_back_when_descriptors_are_used_up "set-exhausted"
    a_dropped_set_leaves_nothing "set-dropped"
    a_set_is_right_in_a_storm_of_signals "set-storm"
    a_traced_child_is_told_when_its_tracer_has_let_go "set-traced"
    a_set_is_readable_when_a_child_has_ended "set-readable"
    a_forked_copy_drops_a_set_without_harm "set-copy"
    a_waiting_child_takes_little_memory "set-memory"
    changes_are_told_in_order "changes"
    changes_that_another_took_are_ends "changes-taken"
    dumped_cores_are_told "cores"
    groups_are_signalled "groups"
    groups_are_signalled_before_linux_6_9 "groups-before-6.9"
    an_end_is_asked_for_and_then_made "terminated"
    the_end_of_a_group_is_asked_for_and_then_made "terminated-groups"
    a_forked_copy_that_drops_a_handle_kills_nobody "dropped-by-a-copy"
    dropped_handles_kill_if_they_are_to "killed-on-drop"
    waits_end_at_a_signal "wait-interrupted"
}

/// By a container's filter, which may answer with any of these.
#[test]
fn children_are_signalled_where_pidfd_send_signal_is_refused() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        let ending = runner::end(&["kill-refused", &errno.to_string()]);
        assert!(ending.status.success(), "{errno}: {} {}", ending.status, ending.text);
    }
}
