//! Waiting for a child's end, and its exit status.
//!
//! Every wait has `__WALL`: a child that fails before exec has no exit signal, and other waits do not see it. If the
//! handle has a pidfd, the wait goes by it: after a foreign reap the PID may already belong to another child.

use crate::error::Error;
use crate::kernel;
use crate::procfs::Process;
use crate::step::Step;
use crate::usage::Usage;
use forkless_core::signals::handler;
use forkless_core::sys::{self, errno, signal, uapi};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Stands for the PID of an autoreaped child in waits and signals: a number that no process has. The kernel frees the
/// child's own PID at its end, whether or not that was noticed here, so it may already belong to another process. Only
/// the pidfd names such a child.
pub(crate) const NOBODY: i32 = i32::MAX;

/// A child that has ended and been reaped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reaped {
    pub(crate) status: ExitStatus,
    /// None where another part of the program reaped the child.
    pub(crate) usage: Option<Usage>,
}

/// Whether the kernel discards exit statuses in this process, because SIGCHLD is ignored. Then only a pidfd keeps them.
pub fn is_sigchld_ignored() -> bool {
    sys::signal_action(signal::SIGCHLD as u32)
        .is_ok_and(|action| handler(&action) == 1 || action.sa_flags & uapi::SA_NOCLDWAIT as u64 != 0)
}

/// Waits for the end of a child and reaps it.
pub(crate) fn wait(pid: i32, pidfd: Option<&OwnedFd>, started: Instant) -> io::Result<Reaped> {
    loop {
        if let Some(ended) = wait_with(pid, pidfd, started, 0)? {
            return Ok(ended);
        }
    }
}

/// As [`wait`], but fails with EINTR when a signal handler has run.
pub(crate) fn wait_interruptible(pid: i32, pidfd: Option<&OwnedFd>, started: Instant) -> io::Result<Reaped> {
    loop {
        if let Some(ended) = to_reaped(ask_once(pid, pidfd, 0), pid, pidfd, started, 0)? {
            return Ok(ended);
        }
    }
}

/// Reaps the child if it has ended.
pub(crate) fn try_wait(pid: i32, pidfd: Option<&OwnedFd>, started: Instant) -> io::Result<Option<Reaped>> {
    wait_with(pid, pidfd, started, uapi::WNOHANG)
}

/// Reaps the child if it has ended, and discards its status; false while it runs.
pub(crate) fn has_gone(pid: i32, pidfd: Option<&OwnedFd>) -> bool {
    // An error means that it has gone too: reaped by another part of the program, or, in a forked copy, not our child.
    !matches!(ask(pid, pidfd, uapi::WNOHANG), Ok(None))
}

/// Sends a signal to a child of this process, which may have ended or been reaped by another part of the program.
///
/// Without a pidfd it is sent by PID, which is the child's until it has been reaped. (Another part of the program might
/// reap foreign children, and do so between these two calls. Even then the kernel would have to use up some thousands
/// of other PIDs before it gives this one to another process.)
pub(crate) fn signal(pid: i32, pidfd: Option<&OwnedFd>, signal: i32) {
    let sent = pidfd.map(|pidfd| sys::pidfd_send_signal(pidfd.as_raw_fd(), signal));
    if !matches!(sent, Some(Ok(()) | Err(errno::ESRCH))) && !is_reaped(pid, pidfd) {
        // Our child, and not reaped: the PID is still its own.
        let _ = sys::kill(pid, signal);
    }
}

/// Whether the child is known to have been reaped, or is no child of this process.
pub(crate) fn is_reaped(pid: i32, pidfd: Option<&OwnedFd>) -> bool {
    let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | uapi::__WALL;
    let look = |kind, id| sys::waitid(kind, id, &mut { sys::SignalInfo::EMPTY }, options, None);
    let answer = match pidfd.map(|pidfd| look(uapi::P_PIDFD, pidfd.as_raw_fd())) {
        Some(Err(error)) if is_refusal(error) => look(uapi::P_PID, pid),
        Some(answer) => answer,
        None => look(uapi::P_PID, pid),
    };
    answer == Err(errno::ECHILD)
}

fn wait_with(pid: i32, pidfd: Option<&OwnedFd>, started: Instant, options: u32) -> io::Result<Option<Reaped>> {
    to_reaped(ask(pid, pidfd, options), pid, pidfd, started, options)
}

/// Converts the result of a wait, and looks for the status elsewhere if the wait fails with ECHILD.
fn to_reaped(
    answer: sys::Result<WaitResult>,
    pid: i32,
    pidfd: Option<&OwnedFd>,
    started: Instant,
    options: u32,
) -> io::Result<Option<Reaped>> {
    match answer {
        Ok(found) => Ok(found.map(|(status, usage)| Reaped {
            status: ExitStatus::from_raw(status),
            usage: Some(Usage::new(&usage, started.elapsed())),
        })),
        Err(errno::ECHILD) => match pidfd {
            Some(pidfd) if pid == NOBODY => autoreaped(pidfd.as_fd(), options),
            pidfd => taken_by_another(pid, pidfd, options),
        },
        Err(error) => Err(io::Error::from_raw_os_error(error)),
    }
}

fn ask(pid: i32, pidfd: Option<&OwnedFd>, options: u32) -> sys::Result<WaitResult> {
    loop {
        let answer = ask_once(pid, pidfd, options);
        if answer.as_ref().err() != Some(&errno::EINTR) {
            return answer;
        }
    }
}

fn ask_once(pid: i32, pidfd: Option<&OwnedFd>, options: u32) -> sys::Result<WaitResult> {
    match pidfd {
        Some(pidfd) => by_pidfd(pid, pidfd.as_fd(), options),
        None => by_pid(pid, options),
    }
}

type WaitResult = Option<(i32, uapi::rusage)>;

/// The usage of a child that has used nothing yet.
// SAFETY: all zeroes is a valid rusage.
const NO_USAGE: uapi::rusage = unsafe { std::mem::zeroed() };

fn by_pid(pid: i32, options: u32) -> sys::Result<WaitResult> {
    let (mut status, mut usage) = (0, NO_USAGE);
    let all = uapi::__WALL;
    match sys::wait4(pid, &mut status, options | all, Some(&mut usage)) {
        Err(error) if is_refusal(error) => by_id(uapi::P_PID, pid, options).map_err(|_| error),
        found => Ok((found? == pid).then_some((status, usage))),
    }
}

fn by_pidfd(pid: i32, pidfd: BorrowedFd<'_>, options: u32) -> sys::Result<WaitResult> {
    match by_id(uapi::P_PIDFD, pidfd.as_raw_fd(), options) {
        // Refused; before Linux 5.4 a pidfd cannot be waited for.
        Err(error) if is_refusal(error) => by_pid(pid, options).map_err(|_| error),
        answer => answer,
    }
}

/// Whether the other of the two system calls for waiting should be tried: one may be refused where the other is
/// allowed.
fn is_refusal(error: i32) -> bool {
    let refusals = [errno::EINVAL, errno::ENOSYS, errno::EPERM, errno::EACCES];
    refusals.contains(&error)
}

fn by_id(kind: u32, id: i32, options: u32) -> sys::Result<WaitResult> {
    const CLD_EXITED: i32 = 1;
    const CLD_DUMPED: i32 = 3;
    let (mut info, mut usage) = (sys::SignalInfo::EMPTY, NO_USAGE);
    let options = options | uapi::WEXITED | uapi::__WALL;
    sys::waitid(kind, id, &mut info, options, Some(&mut usage))?;
    let status = match info.code {
        CLD_EXITED => info.status << 8,
        CLD_DUMPED => info.status | 0x80,
        _ => info.status,
    };
    Ok((info.pid != 0).then_some((status, usage)))
}

/// A change of the child's state that was not reported before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum News {
    Stopped(i32),
    Continued,
    /// It can be reaped, or another part of the program has reaped it.
    Ended,
}

/// Waits for the child to stop, continue or end. Does not reap it.
pub(crate) fn change(pid: i32, pidfd: Option<&OwnedFd>, limit: Option<Duration>) -> io::Result<Option<News>> {
    let (mut kind, mut id) = pidfd.map_or((uapi::P_PID, pid), |pidfd| (uapi::P_PIDFD, pidfd.as_raw_fd()));
    // A limit beyond the clock's range is no limit.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut pause = Duration::from_micros(100);
    let mut ended = false;
    loop {
        let once = deadline.map_or(0, |_| uapi::WNOHANG);
        match look_for_change(kind, id, once) {
            Err(errno::EINTR) => continue,
            // Before Linux 5.4 a pidfd cannot be waited for.
            Err(errno::EINVAL) if kind == uapi::P_PIDFD => {
                (kind, id) = (uapi::P_PID, pid);
                continue;
            }
            // Another part of the program has reaped it: the wait that follows reports that.
            Err(errno::ECHILD) => return Ok(Some(News::Ended)),
            Err(error) => return Err(io::Error::from_raw_os_error(error)),
            Ok(Some(news)) => return Ok(Some(news)),
            Ok(None) => {}
        }
        // A stop makes no descriptor readable. With a limit, the only thing to sleep on is the child's end.
        let Some(left) = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) else { continue };
        if left.is_zero() {
            return Ok(None);
        }
        let nap = pause.min(left);
        if wait_ended(pid, pidfd, nap)? && std::mem::replace(&mut ended, true) {
            // It has ended but cannot be reaped yet: a tracer is notified first.
            sys::pause(nap);
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn look_for_change(kind: u32, id: i32, once: u32) -> sys::Result<Option<News>> {
    const CLD_STOPPED: i32 = 5;
    const CLD_CONTINUED: i32 = 6;
    let mut info = sys::SignalInfo::EMPTY;
    let stops = uapi::WSTOPPED | uapi::WCONTINUED | uapi::__WALL;
    sys::waitid(kind, id, &mut info, stops | uapi::WEXITED | uapi::WNOWAIT | once, None)?;
    match (info.pid, info.code) {
        (0, _) => return Ok(None),
        (_, CLD_STOPPED | CLD_CONTINUED) => {}
        _ => return Ok(Some(News::Ended)),
    }
    // This consumes the report. It may already be a later one than the one seen above.
    sys::waitid(kind, id, &mut info, stops | uapi::WNOHANG, None)?;
    Ok(match (info.pid, info.code) {
        (0, _) => None,
        (_, CLD_STOPPED) => Some(News::Stopped(info.status)),
        _ => Some(News::Continued),
    })
}

/// Another part of the program has reaped the child, or the kernel has because SIGCHLD is ignored. A pidfd may still
/// have the status.
fn taken_by_another(pid: i32, pidfd: Option<&OwnedFd>, options: u32) -> io::Result<Option<Reaped>> {
    if let Some(pidfd) = pidfd {
        if options & uapi::WNOHANG == 0 {
            wait_readable(pidfd.as_fd(), None)?;
        }
        let kept = kept_status(pidfd.as_fd()).ok().flatten();
        if let Some(status) = kept {
            return Ok(Some(Reaped { status: ExitStatus::from_raw(status), usage: None }));
        }
    }
    let why = if pidfd.is_some() {
        "another part of this program reaped it, or SIGCHLD is ignored; Linux 6.15 and later keep the status for a pidfd"
    } else {
        "another part of this program reaped it, or SIGCHLD is ignored; Command::pidfd(true) keeps the status"
    };
    Err(Error::new(&OsString::from(format!("pid {pid}")), Step::Wait, errno::ECHILD).note(why).into())
}

/// An autoreaped child has ended. (Or this is a forked copy of the process whose child it is: there the wait fails with
/// ECHILD too, and the status is not available.)
fn autoreaped(pidfd: BorrowedFd<'_>, options: u32) -> io::Result<Option<Reaped>> {
    let limit = (options & uapi::WNOHANG != 0).then_some(Duration::ZERO);
    if !wait_readable(pidfd, limit)? {
        return Ok(None);
    }
    loop {
        match kept_status(pidfd) {
            Ok(Some(status)) => return Ok(Some(Reaped { status: ExitStatus::from_raw(status), usage: None })),
            // The kernel has reaped it and is about to store the status.
            Ok(None) if limit.is_none() => {}
            Ok(None) => return Ok(None),
            Err(error) => {
                let error = Error::new("an autoreaped child".as_ref(), Step::Wait, error);
                return Err(error.note("its status is available only by PIDFD_GET_INFO, which failed").into());
            }
        }
    }
}

/// The exit status that a pidfd keeps after its process has been reaped: `PIDFD_GET_INFO`, Linux 6.15. `None`: it is
/// not stored yet, or never will be.
///
/// Source: pidfd_info in linux/pidfd.h, pidfd_info() in fs/pidfs.c.
fn kept_status(pidfd: BorrowedFd<'_>) -> sys::Result<Option<i32>> {
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    /// _IOWR(0xff, 11, struct pidfd_info), of 64 bytes in its first version.
    const PIDFD_GET_INFO: usize = 0xc040_ff0b;
    /// mask and cgroup id, eleven ids, the exit status.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    /// The reaper removes the child from view, and stores its status some microseconds later. If this is a forked copy,
    /// whose child it is not, the status never comes.
    const PATIENCE: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + PATIENCE;
    let mut vanished = false;
    loop {
        let mut info = Info { mask: PIDFD_INFO_EXIT, ..Info::default() };
        let args = [pidfd.as_raw_fd() as usize, PIDFD_GET_INFO, &raw mut info as usize, 0, 0, 0];
        // SAFETY: the kernel reads and writes 64 bytes at `info`: the request's number contains that size.
        match unsafe { sys::syscall(uapi::__NR_ioctl, args) } {
            Ok(_) if info.mask & PIDFD_INFO_EXIT != 0 => return Ok(Some(info.exit_code)),
            Ok(_) => {}
            // The child was reaped during the call; the next call finds the status, if this kernel keeps it.
            Err(errno::ESRCH) if !vanished => vanished = true,
            // Not known before Linux 6.13, not kept before 6.15.
            Err(error) => return Err(error),
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::yield_now();
    }
}

/// Waits until the child has ended, for `limit` at most. Returns whether it has.
pub(crate) fn wait_ended(pid: i32, pidfd: Option<&OwnedFd>, limit: Duration) -> io::Result<bool> {
    if let Some(pidfd) = pidfd {
        return wait_readable(pidfd.as_fd(), Some(limit));
    }
    match kernel::pidfd_open(pid) {
        Ok(pidfd) => wait_readable(pidfd.as_fd(), Some(limit)),
        // It has been reaped: the next wait reports that.
        Err(errno::ESRCH) => Ok(true),
        Err(_) => poll_for_end(pid, limit),
    }
}

/// Polls at growing intervals of at most 20 ms: without a pidfd, because they are refused or RLIMIT_NOFILE is reached,
/// there is nothing to sleep on.
fn poll_for_end(pid: i32, limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now().checked_add(limit);
    let mut pause = Duration::from_micros(100);
    loop {
        if is_gone(pid) {
            return Ok(true);
        }
        let left = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(false);
        }
        sys::pause(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Whether the child has ended, reaped or not. Needed because a child that was killed before exec reports nothing.
pub(crate) fn is_gone(pid: i32) -> bool {
    let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | uapi::__WALL;
    let mut info = sys::SignalInfo::EMPTY;
    match sys::waitid(uapi::P_PID, pid, &mut info, options, None) {
        Ok(()) => info.pid == pid,
        Err(errno::ECHILD) => true,
        // A refusal does not show whether the child has ended.
        Err(_) => Process::open(pid).and_then(|process| process.read("stat")).is_ok_and(|text| has_ended(&text)),
    }
}

/// Whether the state in a child's `/proc/PID/stat` is that of a zombie.
fn has_ended(text: &[u8]) -> bool {
    let end = text.iter().rposition(|&byte| byte == b')');
    end.and_then(|end| text.get(end + 2)).is_some_and(|state| matches!(state, b'Z' | b'X'))
}

/// Whether a signal has stopped the child. It does not consume the report, so that a wait for stopped children still
/// gets it.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let mut info = sys::SignalInfo::EMPTY;
    let options = uapi::WSTOPPED | uapi::WNOHANG | uapi::WNOWAIT | uapi::__WALL;
    sys::waitid(uapi::P_PID, pid, &mut info, options, None).is_ok() && info.pid == pid
}

/// A pidfd is readable when its process has ended.
fn wait_readable(fd: BorrowedFd<'_>, limit: Option<Duration>) -> io::Result<bool> {
    // A limit beyond the clock's range is no limit.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            answer => return Ok(answer? > 0),
        }
    }
}

/// Reaps a child that failed before exec. No other part of the program can have reaped it, since it has no exit signal.
/// (The kernel has reaped an autoreaped one.)
pub(crate) fn reap(pid: i32, pidfd: Option<&OwnedFd>) -> Option<ExitStatus> {
    if pid == NOBODY {
        return wait(pid, pidfd, Instant::now()).ok().map(|ended| ended.status);
    }
    loop {
        match by_pid(pid, 0) {
            Err(errno::EINTR) => {}
            answer => return answer.ok().flatten().map(|(status, _)| ExitStatus::from_raw(status)),
        }
    }
}
