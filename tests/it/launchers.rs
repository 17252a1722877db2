//! Tests of the launchers that must be selected explicitly, fork and `posix_spawn`: the scenarios of the default
//! launcher, and those of pre_exec. (The behaviour table checks what their children inherit.)

testing::usual_surroundings!();

#[path = "../src/scenario/runner.rs"]
mod runner;

fn run(name: &str, launcher: &str) {
    let ending = runner::end(&[name, &format!("launcher={launcher}")]);
    assert!(ending.status.success(), "scenario {name} by {launcher}: {}\n{}", ending.status, ending.text);
}

macro_rules! by_launcher {
    ($($test:ident: $scenario:literal by $($launcher:ident)*;)*) => { $(
        #[test]
        fn $test() {
            $(run($scenario, stringify!($launcher));)*
        }
    )* };
}

by_launcher! {
    launches_leak_nothing: "leaks-good" by fork posix_spawn;
    failed_launches_leak_nothing: "leaks-failed" by fork posix_spawn;
    dropped_handles_leak_nothing: "leaks-dropped" by fork posix_spawn;
    planted_leaks_are_detected: "leaks-control" by fork;
    a_plan_outlives_every_handle_while_a_child_reads_it: "dropped-before-exec" by fork;
    spawn_does_not_wait_for_a_stopped_child: "stopped-before-exec" by fork;
    spawn_does_not_wait_for_a_stopped_child_among_signals: "stopped-among-signals" by fork;
    a_stopped_and_continued_group_launches: "stop-storm" by fork posix_spawn;
    a_signal_ends_a_forked_child_before_exec_and_runs_no_handler_of_the_host: "held-signalled" by fork;
    launches_succeed_in_a_storm_of_signals: "signal-storm" by fork posix_spawn;
    killed_children_do_not_slow_down_later_launches: "kill-storm" by fork posix_spawn;
    launches_succeed_among_busy_threads: "thread-storm" by fork posix_spawn;
    a_forked_process_can_launch: "fork-copy" by fork posix_spawn;
    processes_forked_during_launches_can_launch: "fork-storm" by fork posix_spawn;
    statuses_are_kept_where_sigchld_is_ignored: "sigchld-ignored" by fork;
}

macro_rules! scenarios {
    ($($test:ident: $scenario:literal;)*) => { $(
        #[test]
        fn $test() {
            runner::run($scenario);
        }
    )* };
}

scenarios! {
    pre_exec_closures_run_in_order: "pre-exec-place";
    pre_exec_closures_may_fail_panic_or_exit: "pre-exec-ends";
    pre_exec_closures_may_do_unusual_things: "pre-exec-odd";
    pre_exec_closures_may_allocate: "pre-exec-allocates";
    pre_exec_without_fork_is_refused: "pre-exec-refused";
    a_panic_does_not_leave_the_child: "pre-exec-panic-stays";
    a_child_killed_at_once_is_reported: "fork-killed-at-once";
    a_child_killed_early_is_reported: "fork-killed-early";
    a_forked_child_that_fails_is_visible: "fork-failed-is-visible";
    a_forked_child_is_waited_for_without_free_descriptors: "fork-unwatched";
    a_forked_child_gets_its_id_maps_and_its_pidfd: "maps-forked";
    a_child_gets_its_id_maps_while_its_thread_is_suspended: "maps-meanwhile";
    pipes_that_the_child_opens_again_keep_their_direction: "pipes-again";
    exec_is_reported_by_a_pipe: "exec-reported";
    exec_turns_the_process_into_the_program: "exec";
    exec_waits_for_a_number_that_another_thread_opens: "exec-beside-open";
    scripts_by_shell_runs_a_file_without_a_header: "scripts";
    streams_are_those_at_the_time_of_the_launch: "std-streams";
    the_first_launch_may_be_the_init_of_a_pid_namespace: "first-launch-is-init";
}

#[test]
fn the_first_launch_under_a_filter_may_be_the_init_of_a_pid_namespace() {
    let ending = runner::end(&["first-launch-is-init", "filtered"]);
    assert!(ending.status.success(), "{} {}", ending.status, ending.text);
}

#[test]
fn a_command_has_no_more_steps_of_best_effort_than_can_be_noted() {
    runner::run("bounds-misses");
}
