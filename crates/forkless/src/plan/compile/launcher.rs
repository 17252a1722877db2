//! Differences of the launchers: what each refuses, and the steps with which a forked child gets what `clone3(2)`
//! gives to a cloned one.

use crate::error::Error;
use crate::kernel::{CLONE_AUTOREAP, CLONE_NNP, CLONE_PIDFD_AUTOKILL};
use crate::plan::compile::arena::Arg;
use crate::plan::compile::setup::Steps;
use crate::plan::{Plan, posix_spawn};
use crate::request::command::{Command, Namespace};
use crate::route::Launcher;
use crate::step::Step;
use forkless_core::plan::CALLER_VARIABLES;
use forkless_core::sys::uapi;
use std::os::fd::AsRawFd;

/// Refusals that need no plan.
pub(super) fn check(command: &Command) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::check(&command.program, what));
    if !command.closures.is_empty() && command.launcher != Launcher::Fork {
        return refuse(
            "pre_exec needs launcher(Launcher::Fork): with other launchers the child shares the caller's memory. Settings \
             replace most closures: usually setsid(true), also controlling_terminal, parent_death_signal, rlimit, umask",
        );
    }
    let is_refused = command.launcher != Launcher::Fork;
    if let Some(name) = command.setup.simple.of_own_memory().filter(|_| is_refused) {
        return Err(Error::check(
            &command.program,
            format!(
                "{name} needs Launcher::Fork: it changes the memory, which other children share with the caller \
                 until exec"
            ),
        ));
    }
    if command.scripts_by_shell && command.program_fd.is_some() {
        return refuse("scripts_by_shell needs the program's path, which program_fd does not have");
    }
    if command.scripts_by_shell && command.launcher == Launcher::PosixSpawn {
        return refuse("posix_spawn does not support scripts_by_shell: Launcher::Clone and Launcher::Fork can");
    }
    if is_autoreaped(command) {
        check_autoreap(command)?;
    }
    if command.launcher == Launcher::Fork && command.sandbox.has_new(Namespace::Pid) {
        return refuse(
            "unshare(Namespace::Pid) needs Launcher::Clone: a forked child does not enter the new PID namespace, only \
             its children do",
        );
    }
    Ok(())
}

/// Whether the kernel reaps the child.
pub(super) fn is_autoreaped(command: &Command) -> bool {
    command.autoreap || command.pidfd_autokill
}

/// Refuses settings that exclude `autoreap`.
fn check_autoreap(command: &Command) -> Result<(), Error> {
    let refuse = |why: &str| {
        let name = if command.pidfd_autokill { "pidfd_autokill" } else { "autoreap" };
        Err(Error::check(&command.program, format!("{name} {why}")))
    };
    if command.launcher != Launcher::Clone {
        return refuse("needs Launcher::Clone: it is a flag of clone3(2)");
    }
    if command.pidfd == Some(false) {
        return refuse("and pidfd(false) exclude each other: only the pidfd names the child and keeps its status");
    }
    if command.sandbox.seccomp.is_some() {
        return refuse(
            "and seccomp exclude each other: a child that the filter kills in exec must be seen before it is reaped",
        );
    }
    Ok(())
}

/// The flags of `clone3(2)` that the command sets. With `CLONE_NNP`, `CLONE_PIDFD_AUTOKILL` needs no privilege.
pub(super) fn flags(command: &Command) -> u64 {
    match (command.pidfd_autokill, command.setup.no_new_privs) {
        (true, true) => CLONE_AUTOREAP | CLONE_PIDFD_AUTOKILL | CLONE_NNP,
        (true, false) => CLONE_AUTOREAP | CLONE_PIDFD_AUTOKILL,
        (false, _) if command.autoreap => CLONE_AUTOREAP,
        (false, _) => 0,
    }
}

/// Refusals that depend on the plan: steps that `posix_spawn(3)` does not support.
pub(super) fn check_plan(plan: &Plan) -> Result<(), Error> {
    match plan.extensions.and_then(|extensions| posix_spawn::refusal(plan, extensions)) {
        Some(what) => Err(Error::check(plan.program(), what)),
        None => Ok(()),
    }
}

/// The cgroup and the namespaces, which a cloned child has from its start.
///
/// The child opens the cgroup's file with the caller's privileges, and writes to it inside the new namespaces. So the
/// root of a new cgroup namespace is the caller's cgroup, as for a cloned child. The kernel checks the privileges of
/// the open, not of the write.
pub(super) fn born(steps: &mut Steps<'_>) {
    const FILE: u32 = CALLER_VARIABLES as u32;
    let sandbox = steps.sandbox;
    if let Some(group) = &sandbox.cgroup {
        let name = steps.arena.data(b"cgroup.procs");
        let flags = Arg::Number((uapi::O_WRONLY | uapi::O_CLOEXEC).into());
        let args = [Arg::Number(group.as_raw_fd() as u64), Arg::Data(name), flags];
        steps.call_into(Step::ControlGroup, "", uapi::__NR_openat, &args, Some(FILE));
    }
    let unshared = sandbox.unshare & !(Namespace::Time as u64);
    if unshared != 0 {
        let start = steps.ops.len();
        steps.call(Step::Namespace, "", uapi::__NR_unshare, &[Arg::Number(unshared)]);
        if !sandbox.mounts.is_empty() || sandbox.pivot_root.is_some() || sandbox.hostname.is_some() {
            // Best effort would change the mounts and the name of the whole system.
            steps.fail_as(None, start);
        }
    }
    if sandbox.cgroup.is_some() {
        let own = steps.arena.data(b"0");
        let args = [Arg::Variable(FILE), Arg::Data(own), Arg::Number(1)];
        steps.call(Step::ControlGroup, "", uapi::__NR_write, &args);
        steps.call(Step::ControlGroup, "", uapi::__NR_close, &[Arg::Variable(FILE)]);
    }
}
