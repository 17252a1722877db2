//! Reading a terminal until the child has ended, even if other processes have the terminal open.

use super::{Pty, ready};
use crate::child::Child;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The interval at which a child without a pidfd is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// More than a terminal can buffer: 8 KiB of buffers (`pty_common_install()`), which are not counted exactly, and 4 KiB
/// of the line discipline.
const UNDER_WAY: usize = 64 * 1024;

impl Pty {
    /// Reads until the child has ended and all that it wrote has been read, and waits for it. `into` gets the bytes.
    ///
    /// `linger` is how long to read on after that while other processes, such as the child's background processes, have
    /// the terminal open. What they write later is not read. [`Duration::MAX`] reads until the terminal's own end.
    ///
    /// ```
    /// use forkless::{Command, Pty, PtySize};
    /// use std::time::Duration;
    /// let pty = Pty::open(PtySize::default())?;
    /// let mut child = Command::new("sh").args(["-c", "trap '' HUP; sleep 60 & echo done"]).pty(&pty).spawn()?;
    /// let mut text = Vec::new();
    /// let status = pty.read_until_exit(&mut child, Duration::ZERO, &mut text)?;
    /// assert!(status.success());
    /// assert_eq!(text, b"done\r\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Child::wait`] and [`follower`](Self::follower), and errors of reading and of `into`. After an error
    /// that is not one of [`Child::wait`], the child has not been waited for.
    pub fn read_until_exit<W: Write + ?Sized>(
        &self,
        child: &mut Child,
        linger: Duration,
        into: &mut W,
    ) -> io::Result<ExitStatus> {
        let mut buffer = [0; 8192];
        // Held open so that reads do not end while the child runs: it may close the terminal and open it again as /dev/tty.
        let held = self.follower()?;
        let status = loop {
            let (has_bytes, status) = self.wait_for_either(child)?;
            if let Some(status) = status {
                break status;
            }
            if has_bytes {
                self.pass(&mut buffer, into)?;
            }
        };
        drop(held);
        // A limit beyond what the clock holds is no limit.
        let deadline = Instant::now().checked_add(linger);
        let mut late = 0;
        while late < UNDER_WAY {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !self.is_ready(left)? {
                break;
            }
            let passed = self.pass(&mut buffer, into)?;
            if passed == 0 {
                break;
            }
            if left.is_some_and(|left| left.is_zero()) {
                late += passed;
            }
        }
        Ok(status)
    }

    /// Waits for bytes or the child's end. Returns whether there are bytes, and how the child has ended.
    fn wait_for_either(&self, child: &mut Child) -> io::Result<(bool, Option<ExitStatus>)> {
        let Some(pidfd) = child.pidfd() else {
            let has_bytes = self.is_ready(Some(POLL_INTERVAL))?;
            return Ok((has_bytes, child.try_wait()?));
        };
        let mut files = [PollFd::new(self, PollFlags::IN), PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        ready(&mut files, None)?;
        let [has_bytes, has_ended] = files.map(|file| !file.revents().is_empty());
        Ok((has_bytes, if has_ended { Some(child.wait()?) } else { None }))
    }

    /// Reads once; 0 at the end.
    fn pass<W: Write + ?Sized>(&self, buffer: &mut [u8], into: &mut W) -> io::Result<usize> {
        let mut terminal = self;
        loop {
            match terminal.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) => return into.write_all(&buffer[..count]).map(|()| count),
                Err(error) => return Err(error),
            }
        }
    }
}
