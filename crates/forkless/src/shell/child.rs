//! The handle of a line that runs.

use super::ending::ShellEnding;
use crate::child::Child;
use std::io;
use std::process::{ExitStatus, Output};
use std::time::Duration;

/// A line that runs: from [`ShellCommand::spawn`](super::ShellCommand::spawn).
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
    /// The child: its pipes, its ids, its signals. The status that this gives by itself is the program's, which the functions
    /// below tell as a shell would.
    pub fn handle(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The child, for who waits for it in another way, and what its status means.
    pub fn into_parts(self) -> (Child, ShellEnding) {
        (self.child, self.ending)
    }

    /// As [`Child::wait`].
    ///
    /// # Errors
    /// As there, and those of [`ShellEnding::status`].
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.end(status)
    }

    /// As [`Child::try_wait`].
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()?.map(|status| self.end(status)).transpose()
    }

    /// As [`Child::wait_timeout`].
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        self.child.wait_timeout(limit)?.map(|status| self.end(status)).transpose()
    }

    /// As [`Child::wait_with_output`].
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and any error of reading.
    pub fn wait_with_output(self) -> io::Result<Output> {
        let (child, ending) = self.into_parts();
        let output = child.wait_with_output()?;
        Ok(Output { status: ending.status(output.status)?, ..output })
    }

    /// The shell's words are said once, however often the status is asked for.
    fn end(&mut self, status: ExitStatus) -> io::Result<ExitStatus> {
        let told = self.ending.status(status)?;
        self.ending.say_no_more();
        Ok(told)
    }
}
