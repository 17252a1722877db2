//! The handle of a shell command line that runs.

use super::ending::ShellEnding;
use crate::child::Child;
use std::io;
use std::process::{ExitStatus, Output};
use std::time::Duration;

/// A shell command line that runs: from [`ShellCommand::spawn`](super::ShellCommand::spawn).
///
/// ```
/// use forkless::Stdio;
/// let mut line = forkless::shell("cat");
/// line.settings().stdin(Stdio::piped()).stdout(Stdio::piped());
/// let mut child = line.spawn()?;
/// # use std::io::Write;
/// child.handle().stdin.take().unwrap().write_all(b"hello")?;
/// assert_eq!(child.wait_with_output()?.stdout, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ShellChild {
    pub(super) child: Child,
    pub(super) ending: ShellEnding,
}

impl ShellChild {
    /// The child: its pipes, IDs and signals. A wait on it returns the program's own status; the functions below
    /// return the status that a shell would report.
    ///
    /// ```
    /// let mut child = forkless::shell("exec sleep 60").spawn()?;
    /// child.handle().signal(15)?;
    /// # child.handle().kill()?;
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn handle(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The child, for callers that wait for it in another way, and the value that translates its status.
    ///
    /// ```
    /// let (mut child, ending) = forkless::shell("exit 3").spawn()?.into_parts();
    /// let status = ending.status(child.wait()?)?;
    /// assert_eq!(status.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_parts(self) -> (Child, ShellEnding) {
        (self.child, self.ending)
    }

    /// Waits for the end, like [`Child::wait`], and returns the status that a shell would report.
    ///
    /// ```
    /// let mut child = forkless::shell("exit 3").spawn()?;
    /// assert_eq!(child.wait()?.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Child::wait`] and [`ShellEnding::status`].
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.end(status)
    }

    /// Returns the status if the line has ended, like [`Child::try_wait`]. Does not block.
    ///
    /// ```
    /// let mut child = forkless::shell("exec sleep 60").spawn()?;
    /// assert!(child.try_wait()?.is_none());
    /// # child.handle().kill()?;
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()?.map(|status| self.end(status)).transpose()
    }

    /// Waits for the end, for `limit` at most, like [`Child::wait_timeout`]. `None` if it has not ended by then.
    ///
    /// ```
    /// use std::time::Duration;
    /// let mut child = forkless::shell("exec sleep 60").spawn()?;
    /// if child.wait_timeout(Duration::from_millis(10))?.is_none() {
    ///     child.handle().kill()?;
    /// }
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        self.child.wait_timeout(limit)?.map(|status| self.end(status)).transpose()
    }

    /// Waits for the end, and returns the status and what was written to the pipes, like [`Child::wait_with_output`].
    ///
    /// ```
    /// let mut line = forkless::shell("ls -d /");
    /// line.settings().stdout(forkless::Stdio::piped());
    /// assert_eq!(line.spawn()?.wait_with_output()?.stdout, b"/\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and any error of reading.
    pub fn wait_with_output(self) -> io::Result<Output> {
        let (child, ending) = self.into_parts();
        let output = child.wait_with_output()?;
        ending.output(output)
    }

    /// Returns the shell's status, and writes the shell's message the first time.
    fn end(&mut self, status: ExitStatus) -> io::Result<ExitStatus> {
        let told = self.ending.status(status)?;
        self.ending.say_no_more();
        Ok(told)
    }
}
