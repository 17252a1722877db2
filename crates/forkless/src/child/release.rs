//! Gives a child up to a caller that waits for it without its handle.

use super::{Child, State};
use crate::error::Error;
use crate::kernel::SIGKILL;
use crate::launch::{wait, watch};
use forkless_core::sys;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;

impl Child {
    /// Gives the child up: the caller waits for it by `waitpid(2)`, which sees it only once it has executed its
    /// program. Fails if it has not executed it; with ECHILD if it has been waited for: its pid may be another process's.
    #[doc(hidden)]
    pub fn release(mut self) -> io::Result<Released> {
        if self.inner.pid == wait::NOBODY {
            return Err(Error::check(&self.name(), "an autoreaped child cannot be released: the kernel reaps it, and only this handle can return its status").into());
        }
        self.wait_exec()?;
        if self.inner.group.is_some() {
            return Err(Error::check(
                &self.name(),
                "a child with limits of its own cgroup cannot be released: this handle removes the cgroup",
            )
            .into());
        }
        if self.inner.init.is_some() {
            return Err(Error::check(
                &self.name(),
                "a child with an init cannot be released: init reports to this handle",
            )
            .into());
        }
        if !matches!(self.inner.state, State::Running) {
            return Err(io::Error::from_raw_os_error(sys::errno::ECHILD));
        }
        // It may have been killed in exec, after the point of no return and before the program has run.
        if !watch::is_program(self.inner.pid) {
            let status = wait::reap(self.inner.pid, self.inner.pidfd.as_ref());
            self.inner.state = State::Lost;
            return Ok(Released::Killed(status.and_then(|status| status.signal()).unwrap_or(SIGKILL)));
        }
        self.inner.state = State::Lost;
        Ok(Released::Running { pid: self.inner.id, pidfd: self.inner.pidfd.take() })
    }
}

/// What happened to a child that was [given up](Child::release).
#[doc(hidden)]
#[derive(Debug)]
pub enum Released {
    /// It is running its program, or has ended.
    Running {
        /// Its process id.
        pid: i32,
        /// Its pidfd, if it has one.
        pidfd: Option<OwnedFd>,
    },
    /// This signal killed it in exec, and it has been reaped.
    Killed(i32),
}
