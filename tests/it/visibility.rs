//! What SIGCHLD handlers and `waitpid(-1)` loops of the host see of launches, and which statuses they can take. Each
//! scenario has its own negative controls.

testing::usual_surroundings!();

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn a_failed_launch_is_invisible() {
    runner::run("failed-is-invisible");
}

#[test]
fn a_good_launch_is_visible() {
    runner::run("good-is-visible");
}

#[test]
fn exit_statuses_are_kept_where_sigchld_is_ignored() {
    runner::run("sigchld-ignored");
}

#[test]
fn exit_statuses_are_kept_from_a_foreign_reaper() {
    runner::run("foreign-reaper");
}

#[test]
fn a_handle_does_not_signal_a_process_with_a_reused_pid() {
    runner::run("pid-reuse");
}

#[test]
fn autoreap_and_autokill_are_refused_by_name_with_what_excludes_them() {
    runner::run("autoreap-checked");
}

#[test]
fn a_missing_clone3_flag_is_an_error_that_names_it() {
    runner::run("autoreap-missing");
}

#[test]
fn an_autoreaped_child_has_its_status_by_the_pidfd_alone() {
    runner::run("autoreap-ends");
}

#[test]
fn an_autoreaped_child_that_does_not_come_to_exec_is_reported() {
    runner::run("autoreap-before-exec");
}

#[test]
fn a_dropped_autoreaped_child_leaks_nothing() {
    runner::run("autoreap-dropped");
}

#[test]
fn a_process_with_an_autoreaped_childs_reused_pid_is_not_signalled() {
    runner::run("autoreap-reused");
}

#[test]
fn autoreaped_children_are_waited_for_in_sets_and_awaited() {
    runner::run("autoreap-many");
}

#[test]
fn a_forked_process_sees_an_autoreaped_childs_end() {
    runner::run("autoreap-copy");
}

#[test]
fn autoreaped_children_take_settings() {
    runner::run("autoreap-settings");
}

#[test]
fn an_autokilled_child_ends_with_its_handle_and_its_host() {
    runner::run("autokill");
}

#[test]
fn an_ordinary_user_needs_no_new_privs_for_autokill() {
    runner::run("autokill-unprivileged");
}
