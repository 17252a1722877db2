//! Descriptors that the handle keeps until the child has taken its own or has executed its program: the child's ends of its
//! pipes, after a launch that does not wait until the child has taken them, and a pipe that exec closes.

use super::{Child, InitLink, Inner, State};
use crate::launch::pending::Pending;
use crate::launch::watch::{wait_though_stopped, wait_while};
use forkless_core::frame::{LEFT, RUNNING};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

impl Child {
    /// A pipe that becomes readable (poll, epoll) when the program has been executed or the child has ended, after a
    /// launch with [`Command::exec_pipe`](crate::Command::exec_pipe). `None` once this handle has determined which, and
    /// closed the pipe. With an init, its socket follows, until init has executed the program.
    ///
    /// A process that another thread has forked meanwhile may keep it from becoming readable until it ends.
    #[doc(hidden)]
    pub fn exec_pipe(&self) -> Option<BorrowedFd<'_>> {
        let of_init = || self.inner.init.as_ref().and_then(InitLink::awaited);
        self.inner.exec.as_ref().map(AsFd::as_fd).or_else(of_init)
    }

    /// After a launch: waits as [`Command::spawn`](crate::Command::spawn) does, until the program has been executed or the
    /// child is found stopped.
    ///
    /// # Errors
    /// As for [`wait_exec`](Self::wait_exec).
    #[doc(hidden)]
    pub fn wait_spawn(&mut self) -> io::Result<()> {
        if let State::Failed(error) = &self.inner.state {
            return Err(error.clone().into());
        }
        if let Some(pending) = &self.inner.pending {
            if !wait_while(&pending.stack, self.inner.id, None, |word| word != LEFT) {
                return Ok(());
            }
            self.settle()?;
        }
        self.look_for_program(None).map(drop)
    }

    /// After [`Command::launch_holding`](crate::Command::launch_holding): closes the child's ends of its pipes, if the child
    /// has taken them. Returns whether none is left open. A wait for the child closes them too.
    #[doc(hidden)]
    pub fn let_go(&mut self) -> bool {
        let has_taken = |pending: &Pending| pending.stack.frame().state() != RUNNING;
        if self.inner.pending.as_ref().is_none_or(has_taken) {
            self.inner.held = None;
        }
        self.inner.held.is_none()
    }
}

impl Inner {
    /// Waits until the child has taken what the handle keeps. Otherwise the numbers of closed descriptors could be given to
    /// other files, which the child would then take.
    pub(super) fn hold_on(&mut self) {
        if let (Some(_), Some(pending)) = (&self.held, &self.pending) {
            wait_though_stopped(&pending.stack, self.id, self.pidfd.as_ref(), |word| word == RUNNING);
        }
    }
}
