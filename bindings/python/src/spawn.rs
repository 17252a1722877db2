//! Launches for `Popen`, which waits for its child itself.

use crate::child::Child;
use crate::convert::{Flag, Int, Passed};
use crate::error;
use crate::request::Request;
use crate::sandbox;
use crate::warm::Ending;
use forkless::internal::Released;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::os::fd::{IntoRawFd, RawFd};
use std::time::Duration;

/// The PID, a handle, the return code, and what must learn of the end.
type Started = (u32, Option<Child>, Option<i32>, Option<Ending>);

/// Starts a program. The parameters are those of the internal call of `subprocess`, in its order, `settings`, and the `Popen`
/// that gets the child.
///
/// Returns the pid; a handle, if waiting by pid would lose the status (SIGCHLD is ignored, the child was stopped
/// before it executed its program, or an init knows it); the return code, if the child has already been reaped; and with `warm`, what must learn of
/// the child's end.
#[pyfunction]
#[pyo3(signature = (args, executable, close_fds, pass_fds, cwd, env, streams, restore_signals, start_new_session, process_group, gid, gids,
    uid, umask, settings, popen=None))]
#[allow(clippy::too_many_arguments, reason = "the list is the interpreter's")]
pub(crate) fn spawn<'py>(
    py: Python<'py>,
    args: &Bound<'py, PyAny>,
    executable: Option<Bound<'py, PyAny>>,
    close_fds: Flag,
    pass_fds: Passed,
    cwd: Option<Bound<'py, PyAny>>,
    env: Option<Bound<'py, PyAny>>,
    streams: [Int<RawFd>; 3],
    restore_signals: Flag,
    start_new_session: Flag,
    process_group: Int<i32>,
    gid: Option<Int<u32>>,
    gids: Option<Vec<Bound<'py, PyAny>>>,
    uid: Option<Int<u32>>,
    umask: Int<i32>,
    settings: Option<&Bound<'py, PyDict>>,
    popen: Option<Bound<'py, PyAny>>,
) -> PyResult<Started> {
    let (uid, gid, Int(process_group)) = (uid.map(|uid| uid.0), gid.map(|gid| gid.0), process_group);
    let mut request = Request::new(args, executable, env.as_ref())?;
    request.signals(restore_signals.0);
    let is_set = |name| settings.map_or(Ok(false), |settings| settings.contains(name));
    // With a new root, a directory outside of it is not opened in advance.
    let (has_init, has_root) = sandbox::has_init(settings)?;
    let new_root = is_set("chroot")? || is_set("pivot_root")? || has_root;
    request.directory(cwd, !new_root && (uid.is_some() || gid.is_some() || gids.is_some()))?;
    request.environment(env.as_ref())?;
    // The constants have already been replaced by descriptors; of the negative numbers only -1 means "inherited".
    if let Some((target, fd)) = (0..).zip(&streams).find(|(_, fd)| fd.0 < -1) {
        return Err(request.names.not_open(fd.0, target));
    }
    request.streams(streams.map(|fd| (fd.0 >= 0).then_some(fd.0)), &pass_fds.0)?;
    request.groups(start_new_session.0, (process_group >= 0).then_some(process_group));
    let command = &mut request.command;
    command.inherit_all(!close_fds.0);
    if let Ok(umask) = u32::try_from(umask.0) {
        // The kernel ignores the other bits.
        command.umask(umask & 0o777);
    }
    let gids = gids.map(|gids| gids.iter().map(group_id).collect()).transpose()?;
    let is_sandboxed = match settings.map(|settings| settings.get_item("sandbox")).transpose()?.flatten() {
        None => false,
        Some(sandbox) => sandbox.is_truthy()?,
    };
    identity(py, command, uid, gid, gids, is_sandboxed)?;
    request.settings(settings)?;
    // The handle removes the cgroup of limits.
    let keeps = is_status_lost() || has_init || request.command.has_cgroup();
    request.command.pidfd(keeps);
    let (prepared, names) = request.prepare()?;
    let (pid, kept, code, ending) = py
        .detach(|| {
            let mut child = prepared.spawn()?;
            let (pid, ending) = (child.id(), child.take_ending());
            if keeps || !child.wait_exec_timeout(Duration::ZERO)? {
                return Ok((pid, Some(child), None, ending));
            }
            match child.release()? {
                Released::Running { .. } => Ok((pid, None, None, ending)),
                // Killed during exec, past the point of no return: only this process could wait for the child, and it
                // has.
                Released::Killed(signal) => Ok((pid, None, Some(-signal), ending)),
            }
        })
        .map_err(|error| names.error(error))?;
    if let Some(popen) = popen {
        // Here, because a signal handler that raises when this function returns would lose the child.
        popen.setattr("pid", pid)?;
        popen.setattr("returncode", code)?;
        popen.setattr("_child_created", true)?;
    }
    Ok((pid, kept.map(|child| Child::new(child, None)), code, ending.map(Ending)))
}

/// `os.wait4`, which converts the usage only on request. Returns the pid (0: still running), status and usage.
#[pyfunction]
pub(crate) fn wait4(py: Python<'_>, pid: i32, options: i32) -> PyResult<(i32, i32, Option<RawUsage>)> {
    loop {
        let mut status = 0;
        // SAFETY: all zeroes is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let found = py.detach(|| {
            // SAFETY: both pointers are to local variables that the call writes to.
            let found = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
            if found < 0 { Err(std::io::Error::last_os_error()) } else { Ok(found) }
        });
        match found {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => py.check_signals()?,
            Err(error) => return Err(error::plain(py, error)),
            Ok(0) => return Ok((0, 0, None)),
            Ok(found) => return Ok((found, status, Some(RawUsage(usage)))),
        }
    }
}

/// `os.pidfd_open`, which an interpreter lacks that was built with the headers of an old system.
#[pyfunction]
pub(crate) fn pidfd_open(py: Python<'_>, pid: i32) -> PyResult<RawFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::INVAL);
    let opened = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    opened.map(IntoRawFd::into_raw_fd).map_err(|errno| error::of_errno(py, errno.raw_os_error(), None))
}

/// `os.memfd_create`, for the same reason.
#[pyfunction]
pub(crate) fn memfd_create(py: Python<'_>, name: &str) -> PyResult<RawFd> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let made = memfd_create(name, MemfdFlags::CLOEXEC);
    made.map(IntoRawFd::into_raw_fd).map_err(|errno| error::of_errno(py, errno.raw_os_error(), None))
}

/// The resource usage of a child, as the kernel wrote it.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct RawUsage(libc::rusage);

#[pymethods]
impl RawUsage {
    /// The fields of `resource.struct_rusage`, in their order.
    fn fields(&self) -> ([f64; 2], [i64; 14]) {
        let time = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let u = &self.0;
        let counts = [
            u.ru_maxrss,
            u.ru_ixrss,
            u.ru_idrss,
            u.ru_isrss,
            u.ru_minflt,
            u.ru_majflt,
            u.ru_nswap,
            u.ru_inblock,
            u.ru_oublock,
            u.ru_msgsnd,
            u.ru_msgrcv,
            u.ru_nsignals,
            u.ru_nvcsw,
            u.ru_nivcsw,
        ];
        ([time(u.ru_utime), time(u.ru_stime)], counts)
    }
}

/// Changing the user keeps the supplementary groups, unless they are given. A sandbox has none of the caller's.
fn identity(
    py: Python<'_>,
    command: &mut forkless::Command,
    uid: Option<u32>,
    gid: Option<u32>,
    gids: Option<Vec<u32>>,
    is_sandboxed: bool,
) -> PyResult<()> {
    if let Some(gid) = gid {
        command.gid(gid);
    }
    if let Some(uid) = uid {
        command.uid(uid);
        if gids.is_none() && !is_sandboxed && rustix::process::geteuid().is_root() {
            let groups =
                rustix::process::getgroups().map_err(|errno| error::of_errno(py, errno.raw_os_error(), None))?;
            command.groups(&groups.iter().map(|gid| gid.as_raw()).collect::<Vec<_>>());
        }
    }
    if let Some(gids) = gids {
        command.groups(&gids);
    }
    Ok(())
}

/// As in the standard module, a group ID out of range is another error than a user ID.
fn group_id(gid: &Bound<'_, PyAny>) -> PyResult<u32> {
    gid.extract().map_err(|_| PyValueError::new_err("invalid group id"))
}

/// Whether the kernel discards exit statuses because SIGCHLD is ignored. Then only a pidfd keeps them.
pub(crate) fn is_status_lost() -> bool {
    // SAFETY: all zeroes is a valid sigaction, and the kernel writes to it.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action);
        action
    };
    action.sa_sigaction == libc::SIG_IGN || action.sa_flags & libc::SA_NOCLDWAIT != 0
}

/// Reaps ended children whose handles (of `Prepared`) were dropped. Returns the number of those that still run.
#[pyfunction]
pub(crate) fn reap_orphans() -> usize {
    forkless::reap_orphans()
}
