//! Waits for hosts with their own signal handling: interpreters, event loops.

use super::Child;
use crate::launch::wait;
use std::io;
use std::process::ExitStatus;

impl Child {
    /// Does what [`wait`](Self::wait) does, but returns early when a signal handler has run. The child's standard input
    /// stays open. For interpreters, which act on signals between system calls.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// let mut child = forkless::Command::new("true").spawn()?;
    /// let status = loop {
    ///     match child.wait_interruptible() {
    ///         Err(error) if error.kind() == ErrorKind::Interrupted => { /* act on what the handler has noted */ }
    ///         answer => break answer?,
    ///     }
    /// };
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Interrupted`, after which it can be called again; otherwise as for [`wait`](Self::wait).
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
