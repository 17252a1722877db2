//! A launch for `Popen`, which waits for its child in its own way.

use crate::child::Child;
use crate::convert::{Int, Passed};
use crate::error;
use crate::request::Request;
use forkless::Released;
use forkless::planted;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::os::fd::RawFd;
use std::time::Duration;

/// Starts a program with the words of `subprocess`' own inner call, in its order, and `settings`, which it has not.
///
/// The process id; where that alone would lose something, a handle to be kept: of a child whose status nobody keeps (SIGCHLD is ignored),
/// and of one that was stopped before it executed its program; and the return code, if there is nobody to wait for any more.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the list is the interpreter's")]
pub(crate) fn spawn<'py>(
    py: Python<'py>,
    args: &Bound<'py, PyAny>,
    executable: Option<Bound<'py, PyAny>>,
    close_fds: bool,
    pass_fds: Passed,
    cwd: Option<Bound<'py, PyAny>>,
    env: Option<Bound<'py, PyAny>>,
    streams: [Int<RawFd>; 3],
    restore_signals: bool,
    start_new_session: bool,
    process_group: Int<i32>,
    gid: Option<Int<u32>>,
    gids: Option<Vec<Bound<'py, PyAny>>>,
    uid: Option<Int<u32>>,
    umask: Int<i64>,
    settings: Option<&Bound<'py, PyDict>>,
) -> PyResult<(u32, Option<Child>, Option<i32>)> {
    let (uid, gid, Int(process_group)) = (uid.map(|uid| uid.0), gid.map(|gid| gid.0), process_group);
    let mut request = Request::new(args, executable, env.as_ref())?;
    request.signals(restore_signals);
    let is_set = |name| settings.map_or(Ok(false), |settings| settings.contains(name));
    // Another root is left for no directory outside of it.
    let new_root = is_set("chroot")? || is_set("pivot_root")?;
    request.directory(cwd, !new_root && (uid.is_some() || gid.is_some() || gids.is_some()))?;
    request.environment(env.as_ref())?;
    // What stands for something has been made a descriptor; -1 alone is none.
    if let Some((target, fd)) = (0..).zip(&streams).find(|(_, fd)| fd.0 < -1) {
        return Err(request.names.not_open(fd.0, target));
    }
    request.streams(streams.map(|fd| (fd.0 >= 0).then_some(fd.0)), &pass_fds.0)?;
    request.groups(start_new_session, (process_group >= 0).then_some(process_group));
    let command = &mut request.command;
    command.inherit_all(!close_fds || planted!("python-fds-not-closed"));
    if let Ok(umask) = u32::try_from(umask.0) {
        command.umask(umask);
    }
    let gids = gids.map(|gids| gids.iter().map(group_id).collect()).transpose()?;
    identity(py, command, uid, gid, gids)?;
    request.settings(settings)?;
    let keeps = statuses_are_lost();
    request.command.pidfd(keeps);
    let (prepared, names) = request.prepare()?;
    let (pid, kept, code) = py
        .detach(|| {
            let mut child = prepared.spawn()?;
            let pid = child.id();
            if keeps || !child.wait_exec_timeout(Duration::ZERO)? {
                return Ok((pid, Some(child), None));
            }
            match child.release()? {
                Released::Running { .. } => Ok((pid, None, None)),
                // In exec, where it has no program yet and can come to none any more: only we could wait for it, and have.
                Released::Killed(signal) => Ok((pid, None, Some(-signal))),
            }
        })
        .map_err(|error| names.error(error))?;
    Ok((pid, kept.map(|child| Child::new(child, None)), code))
}

/// `os.wait4`, with what the child has used left as it is until somebody asks: process id (0: it runs), status, usage.
#[pyfunction]
pub(crate) fn wait4(py: Python<'_>, pid: i32, options: i32) -> PyResult<(i32, i32, Option<RawUsage>)> {
    loop {
        let mut status = 0;
        // SAFETY: all zeroes is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let found = py.detach(|| {
            // SAFETY: both are written to, and ours.
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

/// What a child has used, as the kernel wrote it.
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

/// A change of user leaves the groups as they are, unless they are named.
fn identity(
    py: Python<'_>,
    command: &mut forkless::Command,
    uid: Option<u32>,
    gid: Option<u32>,
    gids: Option<Vec<u32>>,
) -> PyResult<()> {
    if let Some(gid) = gid {
        command.gid(gid);
    }
    if let Some(uid) = uid {
        command.uid(uid);
        if gids.is_none() && !planted!("python-groups-dropped") && rustix::process::geteuid().is_root() {
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

/// Out of range it is another error than a user's: so says the standard module.
fn group_id(gid: &Bound<'_, PyAny>) -> PyResult<u32> {
    gid.extract().map_err(|_| PyValueError::new_err("invalid group id"))
}

/// Does the kernel throw exit statuses away, because SIGCHLD is ignored? Then only a pidfd keeps them.
pub(crate) fn statuses_are_lost() -> bool {
    // SAFETY: all zeroes is a valid sigaction, which the kernel writes to.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action);
        action
    };
    !planted!("python-status-lost") && action.sa_sigaction == libc::SIG_IGN || action.sa_flags & libc::SA_NOCLDWAIT != 0
}

/// Reaps ended children whose handles (of `Prepared`) were dropped; the number of those that still run.
#[pyfunction]
pub(crate) fn reap_orphans() -> usize {
    forkless::reap_orphans()
}
