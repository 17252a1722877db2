//! What hosts need that have signals and waits of their own: interpreters, event loops.

use super::Child;
use crate::wait;
use std::io;
use std::process::ExitStatus;

impl Child {
    /// As [`wait`](Self::wait), but ended by a signal handler that has run meanwhile, and the child's standard input stays
    /// open. For hosts that act upon signals between system calls, as interpreters do.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// let mut child = forkless::Command::new("true").spawn()?;
    /// let status = loop {
    ///     match child.wait_interruptible() {
    ///         Err(error) if error.kind() == ErrorKind::Interrupted => { /* what a handler has noted is done here */ }
    ///         answer => break answer?,
    ///     }
    /// };
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Interrupted`, after which it can be called again; else as for [`wait`](Self::wait).
    pub fn wait_interruptible(&mut self) -> io::Result<ExitStatus> {
        if let Some(answer) = self.known() {
            return answer;
        }
        if self.is_filtered() {
            self.wait_exec()?;
        }
        let ended = wait::wait_interruptible(self.inner.pid, self.inner.pidfd.as_ref(), self.inner.started);
        self.end(ended)
    }
}
