//! Tests of zygotes: attributes of their children, functions before exec, helpers that are killed and stopped, owners
//! that change, fork and end. `FORKLESS_TEST_SCALE` multiplies the counts.

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
    children_are_the_callers_own "zygote-basics"
    functions_run_before_exec "zygote-calls"
    children_take_on_the_callers_attributes "zygote-follows"
    a_caller_with_a_thousand_groups_launches "zygote-groups"
    a_move_to_another_cgroup_is_noticed_however_long_its_path "zygote-cgroups"
    each_launch_may_have_a_cgroup_of_its_own "zygote-own-cgroup"
    a_thread_in_a_cgroup_of_its_own_has_its_children_there "zygote-thread-cgroup"
    a_cgroup_with_an_unreadable_path_is_refused "zygote-deep-cgroup"
    a_killed_helper_loses_no_child "zygote-killed"
    killed_helpers_lose_no_child_in_a_storm "zygote-kill-storm"
    a_child_of_a_killed_helper_reports_its_exec "zygote-held"
    a_stopped_helper_is_continued "zygote-stopped"
    launches_beside_changes_of_ids_do_not_fail "zygote-beside-ids"
    many_descriptors_and_large_environments "zygote-large"
    launches_by_a_zygote_leak_nothing "zygote-leaks"
    lost_descriptors_fail_one_launch "zygote-lost"
    a_caller_in_a_user_namespace_is_noticed "zygote-user-namespace"
    a_caller_under_landlock_is_noticed "zygote-landlock"
    restrictions_that_proc_does_not_show_are_noticed "zygote-hidden"
    equally_many_filters_of_two_threads_are_not_taken_for_the_same "zygote-equal-filters"
    filters_that_a_program_is_executed_with_need_no_other_helper "zygote-common-filters"
    a_pid_namespace_is_joined_for_one_launch "zygote-pid-namespace"
    a_plan_outlives_every_handle_while_a_child_reads_it "zygote-dropped-before-exec"
    a_forked_process_cannot_use_the_zygote "zygote-fork-copy"
    a_helper_ends_with_its_owner_and_not_with_a_thread "zygote-ends"
    a_program_that_does_not_serve_is_refused "zygote-refused"
    no_zombie_is_left_by_a_zygote "zygote-visible"
    a_helper_serves_its_caller "zygote-owner-unchanged"
    a_helper_ends_when_its_caller_has_dropped_root "zygote-owner-dropped-ids"
    a_helper_ends_when_its_caller_has_dropped_a_capability "zygote-owner-dropped-capability"
    a_descriptor_of_another_launch_is_not_taken_for_memory "zygote-lost-memory"
    a_launch_waits_while_too_many_descriptors_are_on_their_way "zygote-many-in-flight"
    a_helper_serves_no_other_process "zygote-owner-another-process"
    numbers_that_the_caller_has_closed_are_not_used "zygote-owner-foreign-numbers"
}
