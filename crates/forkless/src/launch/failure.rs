//! Makes the error of a failed launch: step, object, reason and remedy.

use super::creator::{CreatorError, MOST};
use super::probe::ProbeError;
use crate::error::Error;
use crate::kernel::CLONE_NNP;
use crate::plan::{Creator, Plan, describe};
use crate::procfs;
use crate::request::closure::PANICKED;
use crate::step::Step;
use forkless_core::frame::Frame;
use forkless_core::init::{CANNOT_KILL, NO_CHILD, NO_DOMAIN, Started};
use forkless_core::plan::{IN_PROCFS, OpCode, Origin};
use forkless_core::report::{Outcome, misses};
use forkless_core::signals::PUTS_HANDLERS_AWAY;
use forkless_core::sys::{self, errno, uapi};
use forkless_core::zygote_child::what;

pub(crate) fn probe_error(plan: &Plan, error: ProbeError) -> Error {
    match error {
        ProbeError::Stack(errno) => stack_error(plan, errno),
        ProbeError::Clone(errno::EINVAL) => clone_error(plan, false, errno::EINVAL).note(
            "no child may share memory here, as under user-mode emulation (qemu-user): use Launcher::Fork, which does not share memory",
        ),
        ProbeError::Clone(errno) => clone_error(plan, false, errno),
        ProbeError::NotShared => Error::new(plan.program(), Step::Probe, errno::ENOSYS)
            .note("CLONE_VM does not share memory here, as under user-mode emulation: use Launcher::Fork, which does not share memory"),
    }
}

pub(crate) fn stack_error(plan: &Plan, errno: i32) -> Error {
    Error::new(plan.program(), Step::Stack, errno).note("RLIMIT_AS, or the system's memory or mappings, are used up")
}

const NOT_A_CGROUP: &str = "it must be the directory of a version 2 cgroup whose cgroup.procs the caller may write to";

const OR_A_USER_NAMESPACE: &str = "needs CAP_SYS_ADMIN, or a user namespace with them";

/// Why a thread with the policy SCHED_DEADLINE can have no child: sched_fork() in kernel/sched/core.c.
const DEADLINE: &str = "a child cannot inherit the calling thread's policy SCHED_DEADLINE: set SCHED_FLAG_RESET_ON_FORK, or launch from another thread";

/// Whether the calling thread has the policy SCHED_DEADLINE, without SCHED_RESET_ON_FORK.
fn is_deadline() -> bool {
    // SAFETY: the call takes no address, and only returns a number.
    let policy = unsafe { sys::syscall(uapi::__NR_sched_getscheduler, [0; 6]) };
    policy == Ok(uapi::SCHED_DEADLINE as usize)
}

pub(crate) fn clone_error(plan: &Plan, pidfd: bool, error: i32) -> Error {
    let bare = Error::new(plan.program(), Step::Clone, error);
    let (bare, needs) = match flag_needs(plan, error) {
        Some((flag, needs)) => (bare.on(format!("with {flag}")), needs),
        None => (bare, None),
    };
    if let Some(needs) = needs {
        return bare.note(needs);
    }
    if plan.place.has_cgroup() && !matches!(error, errno::EAGAIN | errno::ENOMEM | errno::EMFILE) {
        return bare.on("into a cgroup").note(match error {
            errno::ENOSYS => "that needs clone3, which is refused or missing here",
            _ => NOT_A_CGROUP,
        });
    }
    if plan.place.namespaces != 0 {
        match error {
            errno::EPERM => {
                return bare.on("into namespaces").note(OR_A_USER_NAMESPACE);
            }
            errno::ENOSPC => return bare.on("into namespaces").note("the limit in /proc/sys/user is reached"),
            _ => {}
        }
    }
    match error {
        errno::EAGAIN if is_deadline() => bare.note(DEADLINE),
        errno::EAGAIN => bare.note("the limit of processes is reached: RLIMIT_NPROC, pids.max or kernel.pid_max"),
        errno::ENOMEM if matches!(plan.creator, Creator::Member(_)) => {
            bare.note("no memory, or the first process of the PID namespace has ended")
        }
        errno::ENOMEM => bare.note("no memory for another process"),
        errno::EINVAL if plan.place.vfork && plan.place.id_maps.is_some() => {
            bare.note("oom_score_adj together with id maps needs clone3, which is refused or missing here")
        }
        errno::EMFILE if pidfd => bare.note("no descriptor is left for the pidfd: RLIMIT_NOFILE"),
        _ => bare,
    }
}

/// The requested flag of `clone3(2)`; and what it needs, if this error means that it is missing.
fn flag_needs(plan: &Plan, error: i32) -> Option<(&'static str, Option<&'static str>)> {
    let flag = match () {
        () if plan.is_autokilled() => "CLONE_PIDFD_AUTOKILL",
        () if plan.is_autoreaped() => "CLONE_AUTOREAP",
        () => return None,
    };
    let has_nnp = plan.flags & CLONE_NNP != 0;
    let needs = match error {
        errno::EPERM if plan.is_autokilled() && !has_nnp => Some("needs no_new_privs or CAP_SYS_ADMIN"),
        errno::ENOSYS => Some("needs clone3 of Linux 7.1, which is refused or missing here"),
        errno::EINVAL | errno::E2BIG => Some("needs Linux 7.1"),
        _ => None,
    };
    Some((flag, needs))
}

/// The caller's memory could not be made dumpable again after a child that changes its IDs.
pub(crate) fn dumpable_error(plan: &Plan, errno: i32) -> Error {
    Error::new(plan.program(), Step::Clone, errno).on("of a child with other ids").note(
        "it makes the caller's memory non-dumpable, and a filter refuses the call that undoes that (PR_SET_DUMPABLE of prctl): use Launcher::Fork, which does not share memory",
    )
}

/// The remedies if no thread can be started for a child with a parent-death signal.
const INSTEAD: &str =
    "launch from the first thread, or use thread_death_signal, pidfd_autokill, a cgroup or a PID namespace";

/// No thread could clone the child.
pub(crate) fn creator_error(plan: &Plan, error: CreatorError) -> Error {
    match error {
        CreatorError::Thread(error) => {
            let errno = error.raw_os_error().unwrap_or(errno::EAGAIN);
            let why = match (&plan.creator, errno) {
                (Creator::Process, errno::EINVAL) => "a thread that has unshared its PID namespace can start no thread",
                (_, errno::EAGAIN) if is_deadline() => DEADLINE,
                _ => "no thread could be started",
            };
            let bare = Error::new(plan.program(), Step::Clone, errno).on("by another thread");
            match plan.creator {
                Creator::Process => bare.note(format!("{why}: {INSTEAD}")),
                _ => bare.note(why),
            }
        }
        CreatorError::TooMany => Error::new(plan.program(), Step::Clone, errno::EAGAIN).on("by another thread").note(
            format!("{MOST} threads of this process wait for children with a parent-death signal already: {INSTEAD}"),
        ),
        CreatorError::Join(errno) => {
            let error = Error::new(plan.program(), Step::JoinNamespace, errno).on("Pid");
            match errno {
                errno::EPERM => error.note("needs CAP_SYS_ADMIN over the namespace and in the caller's"),
                errno::EINVAL => error.note("not a PID namespace below the caller's"),
                _ => error,
            }
        }
    }
}

/// The caller could not write an ID map.
pub(crate) fn map_error(plan: &Plan, errno: i32, what: &str) -> Error {
    let bare = Error::new(plan.program(), Step::IdMaps, errno).on(what);
    match errno {
        errno::EPERM => {
            bare.note("an ordinary user may map one id, its own, and user 0 needs CAP_SETFCAP to map itself")
        }
        errno::EINVAL => bare.note("a range is empty, overlaps another or reaches outside the caller's namespace"),
        procfs::FOREIGN => bare.note(procfs::FOREIGN_WORDS),
        _ => bare,
    }
}

/// For a child that was killed before its first step, in another cgroup than the caller's.
const KILLED_GROUP: &str = "the child was killed before it could run the program. Newer kernels do this in each cgroup whose \
                            processes were killed at once before (cgroup.kill): create another one";

/// Best-effort steps that failed.
pub(crate) fn skipped(plan: &Plan, frame: &Frame) -> Vec<Error> {
    misses(frame)
        .filter(|(op, _)| *op <= plan.last_op())
        .map(|(op, errno)| failed(plan, Outcome::Failed { op, code: plan.op(op).code, detail: -1, errno }))
        .collect()
}

// They are reported in the same way.
const _: () = assert!(PUTS_HANDLERS_AWAY > what::UMASK);

/// The error of a child's failure.
pub(crate) fn failed(plan: &Plan, failure: Outcome) -> Error {
    let (index, code, detail, errno) = match failure {
        Outcome::Failed { op, code, detail, errno } => (op, code, detail, errno),
        Outcome::Adopt { what: PUTS_HANDLERS_AWAY, errno: 0 } => return Error::killed(plan.program(), Step::Signals),
        Outcome::Adopt { what: PUTS_HANDLERS_AWAY, errno } => {
            return Error::new(plan.program(), Step::Signals, errno).on("that the caller handles");
        }
        Outcome::Adopt { what, errno } => {
            let bare = Error::new(plan.program(), Step::Adopt, errno)
                .on(what::name_of(what).unwrap_or("other attributes, which were not complete in time"));
            return if what == what::SCHEDULER && is_deadline() { bare.note(DEADLINE) } else { bare };
        }
        Outcome::Killed(op) => {
            let step = op.map_or(Step::Clone, |(index, _)| describe::step_of(plan.op(index)));
            let error = Error::killed(plan.program(), step);
            // cgroup_post_fork() in kernel/cgroup/cgroup.c compares `kill_seq` of the caller's cgroup and of the new one.
            let may_be_killed_group = op.is_none() && plan.place.has_cgroup();
            return if may_be_killed_group { error.note(KILLED_GROUP) } else { error };
        }
        Outcome::Garbled(step) => {
            let why = format!("the child's report is invalid: it names step {step} of {}", plan.last_op() + 1);
            return Error::without_errno(plan.program(), Step::Clone, why);
        }
        Outcome::Exec => unreachable!("not a failure"),
    };
    let op = plan.op(index);
    if errno == PANICKED && code == OpCode::PreExec {
        let error = Error::without_errno(plan.program(), Step::PreExec, "it has panicked");
        return error.on(describe::object_of(plan, op, Some(detail)).unwrap_or_default());
    }
    if errno == IN_PROCFS && code == OpCode::Open {
        let error = Error::new(plan.program(), Step::Open, errno::EOPNOTSUPP);
        let why = "it leads to procfs, which takes the child for its caller until exec: open it in the caller, use dup_of for one of \
                   the child's own, or use Launcher::Fork";
        return error.on(describe::object_of(plan, op, Some(detail)).unwrap_or_default()).note(why);
    }
    let bare = Error::new(plan.program(), describe::step_of(op), errno);
    if code == OpCode::Exec {
        return exec_error(plan, bare, plan.candidate(op, detail), errno);
    }
    let error = match describe::object_of(plan, op, Some(detail)) {
        Some(object) => bare.on(object),
        None => bare,
    };
    match (code, errno) {
        (OpCode::Place, errno::EBADF) => match plan.pair(detail).map(|pair| (pair.origin(), pair.target)) {
            Some((Origin::Descriptor(source), target)) => {
                error.note(format!("either {source} is not open or {target} is not below RLIMIT_NOFILE"))
            }
            _ => error,
        },
        (OpCode::Call, errno::EACCES)
            if error.step() == Step::OomScore
                && plan.call(op).is_some_and(|call| call.number == uapi::__NR_openat) =>
        {
            error.note(
                "/proc/self belongs to root, because the child's memory is not dumpable. That is the caller's setting, or, before Linux 5.16, \
                 the protection of a caller whose child has a seccomp filter: use Launcher::Fork, which does not share memory",
            )
        }
        (OpCode::Call, errno::ENOSYS | errno::EXDEV) => {
            match plan.call(op).and_then(|call| unknown_call(call.number, errno)) {
                Some(note) => error.note(note),
                None => error,
            }
        }
        (OpCode::Call | OpCode::Seccomp, _) => with_privilege(error, errno),
        _ => error,
    }
}

/// The reason of a failed system call of the mount settings: the kernel does not have it, or it refuses a link.
fn unknown_call(number: u32, errno: i32) -> Option<&'static str> {
    match (number, errno) {
        (uapi::__NR_openat2, errno::EXDEV) => Some("a link leads out of it"),
        (_, errno::EXDEV) => None,
        (uapi::__NR_openat2, _) => {
            Some("no path can be kept inside without openat2, which is refused or missing: Linux 5.6")
        }
        (uapi::__NR_mount_setattr, _) => Some("needs mount_setattr, which is refused or missing: Linux 5.12"),
        (uapi::__NR_open_tree | uapi::__NR_move_mount | uapi::__NR_fsopen, _) => {
            Some("needs the calls for mounts of Linux 5.2, which are refused or missing")
        }
        _ => None,
    }
}

/// Adds the missing privilege, or another remedy.
fn with_privilege(error: Error, errno: i32) -> Error {
    let privilege = match (errno, error.step()) {
        (errno::EPERM, Step::SetUid) => "needs CAP_SETUID, or an id that the caller has",
        (errno::EPERM, Step::SetGid) => "needs CAP_SETGID, or an id that the caller has",
        (errno::EPERM, Step::SetGroups) => "needs CAP_SETGID",
        (errno::EPERM, Step::Namespace) => OR_A_USER_NAMESPACE,
        (errno::ENOSPC, Step::Namespace) => "the limit in /proc/sys/user is reached",
        (_, Step::ControlGroup) => NOT_A_CGROUP,
        (errno::EACCES, Step::Mount) => {
            "its user may not enter a directory of the path; a program that root starts in a sandbox runs as user 65534"
        }
        (errno::EPERM, Step::JoinNamespace | Step::Mount | Step::PivotRoot | Step::Hostname) => {
            "needs CAP_SYS_ADMIN over the namespace"
        }
        (errno::EPERM, Step::Landlock) | (errno::EACCES, Step::Seccomp) => "needs no_new_privs or CAP_SYS_ADMIN",
        (errno::EPERM, Step::Capabilities | Step::Securebits) => {
            "needs CAP_SETPCAP, and cannot add capabilities that the caller lacks"
        }
        (errno::EINVAL | errno::EBUSY, Step::PivotRoot) => "the new root must be a mount point",
        (errno::EPERM, Step::Terminal) => "it is the terminal of another session",
        (errno::EPERM, Step::Chroot) => "needs CAP_SYS_CHROOT",
        (errno::EPERM, Step::Rlimit) => "needs CAP_SYS_RESOURCE to raise a hard limit",
        (errno::EPERM | errno::EACCES, Step::Nice | Step::Scheduler) => {
            "needs CAP_SYS_NICE, or a resource limit that allows it"
        }
        (errno::EACCES, Step::OomScore) => "needs CAP_SYS_RESOURCE to lower it",
        (errno::EPERM, Step::IoPriority) => "needs CAP_SYS_NICE",
        (errno::EINVAL, Step::Affinity) => "none of these CPUs exists and is allowed",
        _ => return error,
    };
    error.note(privilege)
}

/// The init of a sandbox could not execute the program.
pub(crate) fn inner_exec(plan: &Plan, started: Started) -> Error {
    if started.path == NO_CHILD {
        return Error::new(plan.program(), Step::Clone, started.errno).on("by the init of a sandbox");
    }
    if started.path == NO_DOMAIN {
        return Error::new(plan.program(), Step::Landlock, started.errno).on("for kill_tree");
    }
    if started.path == CANNOT_KILL {
        let bare = Error::new(plan.program(), Step::Capabilities, started.errno).on("for kill_tree");
        return bare.note("init needs capget(2), and CAP_KILL where the program has CAP_SETUID, to kill all processes");
    }
    let path = plan.inner.as_ref().and_then(|inner| inner.path(started.path));
    let path = path.map(|path| path.to_string_lossy().into_owned());
    exec_error(plan, Error::new(plan.program(), Step::Exec, started.errno), path, started.errno)
}

fn exec_error(plan: &Plan, bare: Error, candidate: Option<String>, errno: i32) -> Error {
    if let Some(path) = Some(errno::ENOENT).filter(|&absent| errno == absent).and_then(|_| plan.outside()) {
        return bare.note(format!(
            "{path:?} exists, but inside the sandbox it, its interpreter or its loader does not: show them by read()"
        ));
    }
    let searched = plan.searched().map(|path| path.to_string_lossy().replace(':', ", "));
    match (errno, searched) {
        (errno::ENOENT | errno::ENOTDIR, Some(path)) => bare.note(format!("searched PATH: {path}")),
        (errno::E2BIG, _) => bare.note("arguments and environment are longer than the kernel accepts: see execve(2)"),
        (errno::ENOEXEC, _) => {
            bare.on_candidate(plan, candidate).note("neither a binary for this machine nor a script with #!")
        }
        (errno::EACCES, _) => {
            bare.on_candidate(plan, candidate).note("not executable, a directory, or on a noexec mount")
        }
        _ => bare.on_candidate(plan, candidate),
    }
}

impl Error {
    /// Adds the path that was tried, if it differs from the program's name.
    fn on_candidate(self, plan: &Plan, candidate: Option<String>) -> Self {
        match candidate {
            Some(path) if plan.program() != path.as_str() => self.on(format!("{path:?}")),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::compile::compile;
    use crate::request::command::Command;
    use forkless_core::report::outcome;

    /// Other code may write anything to a frame. Whatever it holds, the result is an error with a text, and no panic.
    #[test]
    fn a_garbled_report_is_an_error() {
        let mut command = Command::new("/bin/true");
        command.current_dir("/").stdin(crate::Stdio::piped());
        let plan = compile(&command, true).expect("a plan");
        // SAFETY: all zeroes are a frame: numbers and null pointers.
        let mut frame: Frame = unsafe { std::mem::zeroed() };
        let steps = plan.last_op() + 1;
        for errno in [0, errno::EBADF, i32::MIN, i32::MAX] {
            for detail in [-1, 0, i32::MIN, i32::MAX] {
                for step in (0..=steps + 1).chain([1 << 16, 1 << 31, u32::MAX]) {
                    (*frame.errno.get_mut(), *frame.detail.get_mut(), *frame.step.get_mut()) = (errno, detail, step);
                    // SAFETY: no child plays it.
                    let outcome = unsafe { outcome(&frame, plan.header()) };
                    assert_eq!(matches!(outcome, Outcome::Garbled(_)), step > steps, "step {step}");
                    if outcome != Outcome::Exec {
                        assert!(!failed(&plan, outcome).to_string().is_empty());
                    }
                }
            }
        }
        *frame.skipped.get_mut() = u32::MAX;
        frame.misses.iter_mut().for_each(|miss| *miss.get_mut() = u64::MAX);
        assert!(skipped(&plan, &frame).is_empty(), "misses of no step");
    }
}
