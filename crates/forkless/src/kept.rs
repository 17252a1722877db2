//! Descriptors that this library keeps open without its caller's knowledge.

use forkless_core::planted;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};

/// Such a descriptor. The caller may have closed all that it does not know (closefrom(3)), and the number may be another file by now:
/// only what was opened is closed.
#[derive(Debug)]
pub(crate) struct Kept<T: AsFd + IntoRawFd> {
    /// `Some` until it is dropped.
    fd: Option<T>,
    file: Option<(u64, u64)>,
}

impl<T: AsFd + IntoRawFd> Kept<T> {
    pub(crate) fn new(fd: T) -> Self {
        Self { file: file(&fd), fd: Some(fd) }
    }

    fn get(&self) -> &T {
        self.fd.as_ref().expect("not dropped")
    }

    /// Whether the number is still the file that was opened. True where a filter refuses fstat(2).
    pub(crate) fn is_there(&self) -> bool {
        file(self.get()) == self.file || planted!("kept-number-closed-unseen")
    }
}

/// Device and inode.
fn file(fd: &impl AsFd) -> Option<(u64, u64)> {
    rustix::fs::fstat(fd).ok().map(|found| (found.st_dev, found.st_ino))
}

impl<T: AsFd + IntoRawFd> std::ops::Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.get()
    }
}

impl<T: AsFd + IntoRawFd> AsRawFd for Kept<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.get().as_fd().as_raw_fd()
    }
}

impl<T: AsFd + IntoRawFd> Drop for Kept<T> {
    fn drop(&mut self) {
        if !self.is_there() {
            let _ = self.fd.take().map(IntoRawFd::into_raw_fd);
        }
    }
}
