//! Lines whose output pipes the caller reads itself.

use super::{ShellChild, ShellCommand};
use crate::request::stdio::FdSource;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

impl ShellCommand {
    /// [`spawn`](Self::spawn) for a caller that reads the child's pipes while the child runs, and passes the status of
    /// the ended child to the ending.
    ///
    /// [`ShellEnding::status`](super::ShellEnding::status) writes the shell's message to the child's standard error, also to
    /// a pipe or a descriptor of the caller. So the ending keeps that descriptor: a pipe has its end of file when the ending
    /// is dropped.
    #[doc(hidden)]
    pub fn spawn_kept(&mut self) -> io::Result<ShellChild> {
        if self.form.is_err() {
            return self.spawn();
        }
        let before = self.command.fds.clone();
        let spawned = keep(&mut self.command.fds).and_then(|ours| Ok((self.spawn()?, ours)));
        self.command.fds = before;
        let (mut line, ours) = spawned?;
        for (number, end) in ours {
            match number {
                1 => line.child.stdout = Some(end.into()),
                _ => line.child.stderr = Some(end.into()),
            }
        }
        Ok(line)
    }
}

/// Replaces descriptors to which the ending may write by some that the command owns. Returns the caller's ends of the pipes.
fn keep(fds: &mut BTreeMap<RawFd, FdSource>) -> io::Result<Vec<(RawFd, OwnedFd)>> {
    let mut ours = Vec::new();
    for number in 1..=2 {
        let theirs = match fds.get(&number) {
            Some(FdSource::Piped) => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
                ours.push((number, reader));
                writer
            }
            Some(&FdSource::Borrowed(fd @ 3..)) => {
                // SAFETY: the caller keeps it open until the launch.
                fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 3)?
            }
            _ => continue,
        };
        fds.insert(number, FdSource::Owned(Arc::new(theirs)));
    }
    Ok(ours)
}
