//! Which settings need a parent.
//!
//! Forkless applies all others to itself, and becomes the program. That costs no child, leaves no process between the
//! program and its caller, and needs no rules for signals.

use std::fmt;

use forkless_core::sys::{getpgrp, getpid, getsid};

use super::{
    job_control::has_terminal,
    options::{RunOptions, SessionAndGroup},
};

/// Why the program needs forkless as its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    /// The option, or the options.
    option: &'static str,
    /// What the parent is for.
    why: &'static str,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.option, self.why)
    }
}

/// The reasons for a parent. If there are none, forkless becomes the program.
pub(super) fn reasons(options: &RunOptions) -> Vec<Reason> {
    let needed = [during(options), after(options), by_the_kernel(options)];
    let needed = needed.into_iter().flatten().filter(|(given, ..)| *given);
    needed.map(|(_, option, why)| Reason { option, why }).collect()
}

type Row = (bool, &'static str, &'static str);

/// What forkless does while the program runs.
fn during(options: &RunOptions) -> Vec<Row> {
    let times_out = options.timeout.is_some_and(|time| !time.is_zero());
    // True in a script or a Makefile. An interactive shell has already made forkless the leader of a group.
    let leaves_terminal =
        options.child.session_and_group() == SessionAndGroup::OwnGroup && getpgrp() != getpid() && has_terminal();
    vec![
        (options.supervise, "--supervise", "selected explicitly"),
        (options.sandbox.sandbox.is_some(), "--sandbox", "forkless starts the init of the sandbox and signals it"),
        (options.child.kill_tree, "--kill-tree", "forkless starts an init and signals it"),
        (times_out, "--timeout", "forkless signals the program"),
        (options.capture.is_some(), "--capture", "forkless reads the output"),
        (options.child.die_with_parent, "--die-with-parent", "forkless dies with its parent, and the program with it"),
        (leaves_terminal, "--process-group", "forkless lends it the terminal"),
        (options.child.pty.is_some(), "--pty", "forkless relays input and output"),
    ]
}

/// What forkless does when the program has ended or could not be started.
fn after(options: &RunOptions) -> Vec<Row> {
    let (filters, limits) = (&options.filters, &options.limits);
    vec![
        (options.report.is_some(), "--report", "forkless writes it when the program has ended"),
        (options.json_status_fd.is_some(), "--json-status-fd", "forkless writes to it when the program has ended"),
        (options.usage, "--usage", "forkless reports when the program has ended"),
        (options.child.foreground, "--foreground", "forkless takes the terminal back"),
        (options.signal_exit_code, "--signal-exit-code", "forkless turns the signal into an exit code"),
        (options.control_group.has_new(), "new cgroup", "forkless removes it"),
        (options.child.is_any_best_effort(), "--best-effort", "forkless reports the skipped steps"),
        (options.shell.is_some(), "--shell", "the shell runs the line if forkless cannot"),
        // Such a filter would also prevent forkless from reporting that the program cannot be executed.
        (options.privileges.is_filtered(), "--seccomp", "forkless reports what the filter prevents"),
        (filters.can_kill(), "--system-call-filter", "forkless reports what the filter prevents"),
        (limits.is_tight().is_some(), "--as", "forkless reports a program that does not fit"),
        (limits.does_cut_messages(), "--fsize", "forkless writes its own messages to a file"),
        (options.child.has_calls(), "--syscall", "the system call must not change forkless"),
    ]
}

/// What the kernel does only for another process.
fn by_the_kernel(options: &RunOptions) -> Vec<Row> {
    let (child, namespaces) = (&options.child, &options.namespaces);
    let leads_group = || getpgrp() == getpid();
    let leads_session = || getsid() == getpid();
    vec![
        (child.launcher.is_some(), "--launcher", "it creates a child"),
        (child.has_death_signal(), "--pdeathsig", "the signal follows the end of forkless"),
        (child.pidfd_autokill, "--pidfd-autokill", "the program ends with forkless"),
        (child.has_session() && leads_group(), "--setsid", "forkless leads a process group"),
        (child.process_group.is_some() && leads_session(), "--process-group", "forkless leads a session"),
        (namespaces.is_in_pid_namespace(), "PID namespace", "only a child can enter it"),
        (namespaces.is_in_time_namespace(), "time namespace", "only a child enters it on all kernels"),
        (namespaces.has_maps(), "user namespace", "forkless writes the ID maps from outside"),
    ]
}
