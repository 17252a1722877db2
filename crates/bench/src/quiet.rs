//! Keeps what a program of the user's choice says out of the tables.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

use anyhow::{Context, Result};

/// Standard input and output on `/dev/null`, put back when dropped. Standard error stays: complaints must be seen.
///
/// The process's own streams, because that is what every contestant passes on; giving each child a stream of its own
/// would be a different launch.
pub(crate) struct Quiet {
    stdin: OwnedFd,
    stdout: OwnedFd,
}

impl Quiet {
    /// # Errors
    /// When a stream is closed or `/dev/null` is missing.
    pub(crate) fn new() -> Result<Self> {
        // Duplicates are close-on-exec: no child has them.
        let stdin = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
        let stdout = io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
        let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").context("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        Ok(Self { stdin, stdout })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // Cannot fail: both are open, and 0 and 1 are in range.
        let _ = rustix::stdio::dup2_stdin(&self.stdin);
        let _ = rustix::stdio::dup2_stdout(&self.stdout);
    }
}
