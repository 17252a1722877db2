//! Signals to a child and to its process group, and ending a child by them.

use super::group::has_only_zombies;
use super::init::InitLink;
use super::{Child, Inner};
use crate::kernel::{SIGCONT, SIGKILL};
use crate::launch::pending::Pending;
use crate::launch::wait;
use forkless_core::sys::{self, errno};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

impl Inner {
    /// Sends a signal to the child, unless it is known to have ended.
    pub(super) fn signal(&self, signal: i32) -> sys::Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        if signal == SIGKILL
            && let Some(init) = self.init.as_ref().filter(|init| init.does_kill_tree())
        {
            // A child that has not executed init yet may be blocked, so it is killed below. It has started nothing, and if
            // it executes init after all, init starts nothing.
            if init.kill() || self.pending.as_ref().is_none_or(Pending::has_left) {
                return Ok(());
            }
        }
        if let Some(group) = self.group.as_ref().filter(|_| signal == SIGKILL) {
            group.kill();
        }
        let answer = match &self.pidfd {
            Some(pidfd) => match sys::pidfd_send_signal(pidfd.as_raw_fd(), signal) {
                Err(error) if is_refusal(error) => self.signal_by_pid(pidfd, signal, error),
                answer => answer,
            },
            // This handle has not reaped it, so the PID is still the child's.
            None => sys::kill(self.pid, signal),
        };
        if answer == Err(errno::ESRCH) { Ok(()) } else { answer }
    }

    /// The same by `kill(2)`, for hosts where a filter may refuse `pidfd_send_signal(2)`. If the child really may not
    /// be signalled, `kill(2)` fails in the same way.
    ///
    /// The PID is the child's until it is reaped. (Another part of the program might reap foreign children, and do
    /// so between these two calls. Even then the kernel would have to use up some thousands of other PIDs before it
    /// gives this one to another process.)
    fn signal_by_pid(&self, pidfd: &OwnedFd, signal: i32, refusal: i32) -> sys::Result<()> {
        if self.pid == wait::NOBODY {
            return Err(refusal);
        }
        if !wait::is_reaped(self.pid, Some(pidfd)) {
            // Our child, which has not been reaped.
            return sys::kill(self.pid, signal);
        }
        // Reaped by another part of the program; or this is a forked copy of the process, whose child it is not.
        match wait::wait_ended(self.pid, Some(pidfd), Duration::ZERO) {
            Ok(true) => Ok(()),
            _ => Err(refusal),
        }
    }

    /// `kill(2)` of the group, only while its number cannot belong to another group: see
    /// [`signal_by_pid`](Self::signal_by_pid).
    fn group_by_pid(&self, signal: i32, refusal: i32) -> sys::Result<()> {
        // The kernel gives a PID to no other process or group while a process has it, even a zombie.
        if !self.is_running() || self.pid == wait::NOBODY || wait::is_reaped(self.pid, self.pidfd.as_ref()) {
            return Err(refusal);
        }
        // The number is still that of the child's group.
        sys::kill(-self.pid, signal)
    }
}

/// Whether `pidfd_send_signal(2)` is missing here, or may have been refused by a filter. EPERM may also come
/// from the kernel itself.
fn is_refusal(error: i32) -> bool {
    matches!(error, errno::ENOSYS | errno::EPERM | errno::EACCES)
}

impl Child {
    /// Forgets the pidfd without closing it: its number may be another file by now.
    pub(crate) fn forget_pidfd(&mut self) {
        let _ = self.inner.pidfd.take().map(IntoRawFd::into_raw_fd);
    }

    /// Kills the child with SIGKILL. Not an error if it has already ended.
    ///
    /// ```
    /// use std::os::unix::process::ExitStatusExt;
    /// let mut child = forkless::Command::new("sleep").arg("60").spawn()?;
    /// child.kill()?;
    /// assert_eq!(child.wait()?.signal(), Some(9));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EPERM` if the child now has a user whose processes the caller may not signal.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(SIGKILL)
    }

    /// Sends a signal, by its number, to the child. Not an error if it has already ended.
    ///
    /// ```
    /// use std::os::unix::process::ExitStatusExt;
    /// let mut child = forkless::Command::new("sleep").arg("60").spawn()?;
    /// child.signal(15)?; // SIGTERM
    /// assert_eq!(child.wait()?.signal(), Some(15));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal, `EPERM` if the child now has a user whose processes the caller may not
    /// signal.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        self.inner.signal(signal).map_err(io::Error::from_raw_os_error)
    }

    /// Sends a signal, by its number, to the child's process group: to the child and to the processes that it has
    /// started, even after the child itself has ended. Not an error if no process is left.
    ///
    /// The child must be the group's leader: [`process_group(0)`](crate::Command::process_group) or
    /// [`setsid`](crate::Command::setsid).
    ///
    /// ```
    /// use std::os::unix::process::ExitStatusExt;
    /// let mut command = forkless::Command::new("sh");
    /// let mut child = command.args(["-c", "sleep 60; true"]).process_group(0).spawn()?;
    /// child.signal_group(15)?; // the shell and its sleep
    /// assert_eq!(child.wait()?.signal(), Some(15));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal or the child leads no group; `EPERM` if none of them may be signalled;
    /// `ECHILD` if the child has been waited for and the kernel is older than 6.9, or there is no pidfd: the group's
    /// number may then belong to another group.
    pub fn signal_group(&mut self, signal: i32) -> io::Result<()> {
        if !self.inner.leads_group {
            let why = "the child leads no process group: process_group(0) or setsid(true)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if !(0..=64).contains(&signal) {
            // Checked here, because the kernel's EINVAL could also mean that it does not know the flag of the group.
            return Err(io::Error::from_raw_os_error(errno::EINVAL));
        }
        if signal == SIGKILL && self.inner.init.as_ref().is_some_and(InitLink::does_kill_tree) {
            return self.signal(signal);
        }
        // A child that was just launched may not have made its group yet, and would be its only member. This is read before
        // the signal is sent, because the child may execute its program in between.
        let is_early = self.inner.pending.as_ref().is_some_and(|pending| !pending.has_left());
        match self.to_group(signal) {
            Err(errno::ESRCH) if is_early => self.signal(signal),
            Err(errno::ESRCH) => Ok(()),
            answer => answer.map_err(io::Error::from_raw_os_error),
        }
    }

    fn to_group(&self, signal: i32) -> sys::Result<()> {
        let by_pidfd = match &self.inner.pidfd {
            // The kernel finds the group by the object behind the pidfd, not by a number, so it never signals a later group
            // that has the same number.
            Some(pidfd) => sys::pidfd_signal_group(pidfd.as_raw_fd(), signal),
            None => Err(errno::ENOSYS),
        };
        match by_pidfd {
            Err(errno::ENOSYS | errno::EINVAL | errno::EBADF) => self.inner.group_by_pid(signal, errno::ECHILD),
            Err(error) if is_refusal(error) => self.inner.group_by_pid(signal, error),
            answer => answer,
        }
    }

    /// Asks the child to end with `signal` (15 is SIGTERM), waits for `grace` at most, kills it with SIGKILL if it
    /// still runs, and waits for its end.
    ///
    /// A stopped child is continued, so that it can handle the signal. Its standard input is closed after the signal.
    ///
    /// ```
    /// use std::{os::unix::process::ExitStatusExt, time::Duration};
    /// let mut child = forkless::Command::new("sleep").arg("60").spawn()?;
    /// let status = child.terminate(15, Duration::from_secs(10))?;
    /// assert_eq!(status.signal(), Some(15));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`signal`](Self::signal) and [`wait`](Self::wait).
    pub fn terminate(&mut self, signal: i32, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(signal)?;
        self.signal(SIGCONT)?;
        self.end_input();
        if self.wait_timeout(grace)?.is_none() {
            self.kill()?;
        }
        self.wait()
    }

    /// Does what [`terminate`](Self::terminate) does for the child's process group: processes of the group that are
    /// left after `grace` are killed, even if the child itself has ended.
    ///
    /// Nothing reports that a group has become empty, so once the child has ended this polls at growing intervals of at
    /// most 20 ms. Zombies that their parents do not reap are not waited for, as far as procfs shows them. Before Linux
    /// 6.9, or without a pidfd, the rest of the group is killed as soon as the child has ended. A process that has left
    /// the group is not found; a cgroup ([`Cgroup`](crate::Cgroup)) cannot be left.
    ///
    /// ```
    /// use std::{os::unix::process::ExitStatusExt, time::Duration};
    /// let mut command = forkless::Command::new("sh");
    /// let mut child = command.args(["-c", "sleep 60 & wait"]).process_group(0).spawn()?;
    /// let status = child.terminate_group(15, Duration::from_secs(10))?;
    /// assert_eq!(status.signal(), Some(15));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`signal_group`](Self::signal_group) and [`wait`](Self::wait).
    pub fn terminate_group(&mut self, signal: i32, grace: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now().checked_add(grace);
        self.signal_group(signal)?;
        self.signal_group(SIGCONT)?;
        self.end_input();
        let ended = wait::wait_ended(self.inner.pid, self.inner.pidfd.as_ref(), grace)?;
        if !ended || !self.can_see_group() {
            // Not reaped yet, so no other group can have this number.
            self.signal_group(SIGKILL)?;
            return self.wait();
        }
        // Reaped before the group is probed: a zombie still counts as a member.
        let status = self.wait();
        let mut pause = Duration::from_micros(200);
        // Reading all of procfs is costly, so the interval doubles each time.
        let (begun, mut look) = (Instant::now(), Duration::from_millis(50));
        while self.probe_group() == Some(Ok(())) {
            let left = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                self.signal_group(SIGKILL)?;
                break;
            }
            if begun.elapsed() >= look {
                if has_only_zombies(self.inner.pid) {
                    // For a process that was created while procfs was read.
                    self.signal_group(SIGKILL)?;
                    break;
                }
                look = begun.elapsed() * 2;
            }
            sys::pause(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        status
    }

    /// Sends signal 0 to the group by the pidfd: whether any process is in it.
    fn probe_group(&self) -> Option<sys::Result<()>> {
        self.inner.pidfd.as_ref().map(|pidfd| sys::pidfd_signal_group(pidfd.as_raw_fd(), 0))
    }

    /// Whether the group can still be probed after its leader has been reaped. Must be called before that.
    fn can_see_group(&self) -> bool {
        match self.probe_group() {
            Some(Ok(()) | Err(errno::ESRCH)) => true,
            // A filter may have refused the call itself. If kill(2) gives EPERM too, the processes may not be signalled.
            Some(Err(errno::EPERM)) => self.inner.group_by_pid(0, errno::EPERM) == Err(errno::EPERM),
            _ => false,
        }
    }
}
