//! Signals to a child and to its process group, and the ends made of them.

use super::{Child, Inner};
use crate::wait;
use forkless_core::planted;
use forkless_core::sys::signal::{SIGCONT, SIGKILL};
use forkless_core::sys::{self, errno};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

impl Inner {
    /// Sends a signal to the child, unless it is known to have ended.
    pub(super) fn signal(&self, signal: i32) -> sys::Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        let answer = match &self.pidfd {
            Some(_) if planted!("signalled-by-number") => sys::kill(self.pid, signal),
            Some(pidfd) => match sys::pidfd_send_signal(pidfd.as_raw_fd(), signal) {
                Err(error) if is_refusal(error) => self.signal_by_pid(pidfd, signal, error),
                answer => answer,
            },
            // Not reaped by us, so the pid is still the child's.
            None => sys::kill(self.pid, signal),
        };
        if answer == Err(errno::ESRCH) { Ok(()) } else { answer }
    }

    /// The same by `kill(2)`, where `pidfd_send_signal(2)` has failed as it does where a filter refuses it. If the child may
    /// really not be signalled the answer is the same.
    ///
    /// The number is the child's as long as nobody has reaped it. (Another part of the program that reaps children not its
    /// own, and that between these two calls, would find its number used up and begun again as well: there are some
    /// thousands before.)
    fn signal_by_pid(&self, pidfd: &OwnedFd, signal: i32, refusal: i32) -> sys::Result<()> {
        if self.pid == wait::NOBODY {
            return Err(refusal);
        }
        if !wait::is_reaped(self.pid, Some(pidfd)) || planted!("signal-to-a-stranger") {
            // Our child, which has not been reaped.
            return sys::kill(self.pid, signal);
        }
        // Reaped by another; or, in a forked copy of this process, no child of ours.
        match wait::wait_ended(self.pid, Some(pidfd), Duration::ZERO) {
            Ok(true) => Ok(()),
            _ => Err(refusal),
        }
    }

    /// `kill(2)` of the group, where nobody else can have its number: see [`signal_by_pid`](Self::signal_by_pid).
    fn group_by_pid(&self, signal: i32, refusal: i32) -> sys::Result<()> {
        // A number is not given to another process, nor to a group, while a process has it, be it a zombie.
        if planted!("signal-to-a-strangers-group") {
            return sys::kill(-self.pid, signal);
        }
        if !self.is_running() || self.pid == wait::NOBODY || wait::is_reaped(self.pid, self.pidfd.as_ref()) {
            return Err(refusal);
        }
        // The number is still that of the child's group.
        sys::kill(-self.pid, signal)
    }
}

/// What `pidfd_send_signal(2)` fails with where it is missing or a filter refuses it. EPERM may also be what it says.
fn is_refusal(error: i32) -> bool {
    matches!(error, errno::ENOSYS | errno::EPERM | errno::EACCES)
}

impl Child {
    /// Kills the child with SIGKILL. Not an error if it has already ended.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(SIGKILL)
    }

    /// Sends a signal to the child. Not an error if it has already ended.
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal, `EPERM` if the child has become someone whom we may not signal.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        self.inner.signal(signal).map_err(io::Error::from_raw_os_error)
    }

    /// Sends a signal to the child's process group, of which it must be the leader
    /// ([`process_group(0)`](crate::Command::process_group) or [`setsid`](crate::Command::setsid)): to the child and what it
    /// has started, also when the child itself has ended. Not an error if there is nobody left.
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal or the child leads no group; `EPERM` if none of them may be signalled; `ECHILD` if
    /// the child has been waited for and the kernel is older than 6.9, or there is no pidfd: the group's number may by then
    /// be another's.
    pub fn signal_group(&mut self, signal: i32) -> io::Result<()> {
        if !self.inner.leads_group {
            let why = "the child leads no process group: process_group(0) or setsid(true)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if !(0..=64).contains(&signal) {
            // The kernel's EINVAL would also mean that it does not know the call.
            return Err(io::Error::from_raw_os_error(errno::EINVAL));
        }
        // Launched a moment ago, it may not have made its group yet, and is the only one that would be in it. Asked first:
        // it may execute its program meanwhile.
        let is_early = self.inner.pending.as_ref().is_some_and(|pending| !pending.has_left());
        match self.to_group(signal) {
            Err(errno::ESRCH) if is_early => self.signal(signal),
            Err(errno::ESRCH) => Ok(()),
            answer => answer.map_err(io::Error::from_raw_os_error),
        }
    }

    fn to_group(&self, signal: i32) -> sys::Result<()> {
        let by_pidfd = match &self.inner.pidfd {
            // The kernel looks for the group by what the pidfd holds, not by a number: a later group of the same number is
            // another one to it.
            Some(pidfd) => sys::pidfd_signal_group(pidfd.as_raw_fd(), signal),
            None => Err(errno::ENOSYS),
        };
        match by_pidfd {
            Err(errno::ENOSYS | errno::EINVAL | errno::EBADF) => self.inner.group_by_pid(signal, errno::ECHILD),
            Err(error) if is_refusal(error) => self.inner.group_by_pid(signal, error),
            answer => answer,
        }
    }

    /// Asks the child to end by `signal` (15 is SIGTERM), waits for `grace` at most, then kills it with SIGKILL; waits for
    /// its end. A stopped child is continued, so that it hears; its standard input is closed after the signal.
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

    /// As [`terminate`](Self::terminate), for the child's process group: whoever of it is left after `grace`, be it without
    /// the child, is killed.
    ///
    /// Groups tell nobody that they have become empty, so once the child has ended it looks at growing intervals of at most
    /// 20 ms; before Linux 6.9, or without a pidfd, whoever is left is killed as soon as the child has ended. A process that
    /// has left the group is not found; a control group ([`Cgroup`](crate::Cgroup)) cannot be left.
    ///
    /// # Errors
    /// As for [`signal_group`](Self::signal_group) and [`wait`](Self::wait).
    pub fn terminate_group(&mut self, signal: i32, grace: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now().checked_add(grace);
        self.signal_group(signal)?;
        self.signal_group(SIGCONT)?;
        self.end_input();
        let ended = wait::wait_ended(self.inner.pid, self.inner.pidfd.as_ref(), grace)?;
        if !ended || !self.sees_group() {
            // Not reaped yet: nobody else can have the number of its group.
            self.signal_group(SIGKILL)?;
            return self.wait();
        }
        // Reaped first: as a zombie it is still one of its group.
        let status = self.wait();
        let mut pause = Duration::from_micros(200);
        while self.probe_group() == Some(Ok(())) {
            let left = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                self.signal_group(SIGKILL)?;
                break;
            }
            sys::pause(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        status
    }

    /// Signal 0 to the group by the pidfd: is anybody in it?
    fn probe_group(&self) -> Option<sys::Result<()>> {
        self.inner.pidfd.as_ref().map(|pidfd| sys::pidfd_signal_group(pidfd.as_raw_fd(), 0))
    }

    /// Can the group be asked for when its leader has been reaped? Asked before that.
    fn sees_group(&self) -> bool {
        match self.probe_group() {
            Some(Ok(()) | Err(errno::ESRCH)) => true,
            // It may be the call that is refused, and not to signal them.
            Some(Err(errno::EPERM)) => self.inner.group_by_pid(0, errno::EPERM) == Err(errno::EPERM),
            _ => false,
        }
    }
}
