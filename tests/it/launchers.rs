//! The launchers that have to be asked for by name: fork and `posix_spawn`. (What their children find is in the behaviour
//! table.) The scenarios are those of the usual launcher, and a few of pre_exec's.

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
    good_launches_leave_nothing: "leaks-good" by fork posix_spawn;
    failed_launches_leave_nothing: "leaks-failed" by fork posix_spawn;
    dropped_handles_leave_nothing: "leaks-dropped" by fork posix_spawn;
    planted_leaks_are_seen: "leaks-control" by fork;
    what_a_child_reads_outlives_every_handle: "dropped-before-exec" by fork;
    spawn_does_not_wait_for_a_stopped_child: "stopped-before-exec" by fork;
    spawn_does_not_wait_for_a_stopped_child_among_signals: "stopped-among-signals" by fork;
    a_group_launches_through_a_storm_of_stops: "stop-storm" by fork posix_spawn;
    a_signal_ends_a_forked_child_before_exec_and_runs_no_handler_of_the_host: "held-signalled" by fork;
    launches_are_right_in_a_storm_of_signals: "signal-storm" by fork posix_spawn;
    killed_children_cost_later_launches_nothing: "kill-storm" by fork posix_spawn;
    launches_are_right_among_busy_threads: "thread-storm" by fork posix_spawn;
    a_forked_copy_can_launch: "fork-copy" by fork posix_spawn;
    copies_forked_amid_launches_can_launch: "fork-storm" by fork posix_spawn;
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
    closures_come_in_their_place: "pre-exec-place";
    closures_fail_panic_and_end: "pre-exec-ends";
    closures_do_odd_things: "pre-exec-odd";
    closures_allocate: "pre-exec-allocates";
    closures_without_fork_are_refused: "pre-exec-refused";
    a_panic_does_not_leave_the_child: "pre-exec-panic-stays";
    a_child_killed_at_once_is_noticed: "fork-killed-at-once";
    a_child_killed_early_is_noticed: "fork-killed-early";
    a_forked_child_that_fails_is_visible: "fork-failed-is-visible";
    a_forked_child_is_waited_for_without_descriptors_too: "fork-unwatched";
    exec_turns_the_process_into_the_program: "exec";
    a_file_that_is_no_program_is_run_by_the_shell_on_request: "scripts";
    streams_are_those_of_the_launch: "std-streams";
}
