//! Keeps the output of the user's program out of the tables.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

use anyhow::{Context, Result};

/// Redirects standard input and output to `/dev/null` until dropped. Standard error is kept, so that errors are visible.
///
/// Redirects the streams of this process, which every method passes to the child. Redirecting each child would be a different
/// launch.
pub(crate) struct Quiet {
    stdin: OwnedFd,
    stdout: OwnedFd,
}

impl Quiet {
    /// # Errors
    /// If a stream is closed or `/dev/null` is missing.
    pub(crate) fn new() -> Result<Self> {
        // Duplicates are close-on-exec, so that no child inherits them.
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
        // Cannot fail: both descriptors are open, and 0 and 1 are valid.
        let _ = rustix::stdio::dup2_stdin(&self.stdin);
        let _ = rustix::stdio::dup2_stdout(&self.stdout);
    }
}
