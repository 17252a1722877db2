//! Descriptors that this library keeps open without its caller's knowledge.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};

/// Such a descriptor. The caller may have closed it, by closefrom(3) or by closing one of its own twice, and the number may be
/// another file by now: only what was opened is used and closed.
#[derive(Debug)]
pub(crate) struct Kept<T: AsFd + IntoRawFd> {
    /// `Some` until it is dropped.
    fd: Option<T>,
    file: Option<FileId>,
}

impl<T: AsFd + IntoRawFd> Kept<T> {
    pub(crate) fn new(fd: T) -> Self {
        Self { file: FileId::of(&fd), fd: Some(fd) }
    }

    /// At a number that programs hardly use, but in the first word of the kernel's file-descriptor table.
    pub(crate) fn moved_away(fd: OwnedFd) -> Self
    where
        T: From<OwnedFd>,
    {
        const AWAY: i32 = 48;
        Self::new(rustix::io::fcntl_dupfd_cloexec(&fd, AWAY).unwrap_or(fd).into())
    }

    /// The descriptor. ESTALE: its number refers to another file by now, or is closed.
    pub(crate) fn get(&self) -> io::Result<&T> {
        match self.is_there() {
            true => Ok(self.held()),
            false => Err(Errno::STALE.into()),
        }
    }

    /// [`get`](Self::get), which first calls `open` if the number is closed or refers to another file.
    #[cfg(all(feature = "warm", target_arch = "x86_64", target_env = "gnu"))]
    pub(crate) fn get_or_open<E>(place: &mut Option<Self>, open: impl FnOnce() -> Result<Self, E>) -> Result<&T, E> {
        let kept = match place.take().filter(Self::is_there) {
            Some(kept) => kept,
            None => open()?,
        };
        Ok(place.insert(kept).held())
    }

    fn held(&self) -> &T {
        self.fd.as_ref().expect("not dropped")
    }

    /// Whether the number is still the file that was opened. True where a filter refuses fstat(2).
    fn is_there(&self) -> bool {
        FileId::is_of(self.file, self.held())
    }
}

/// Device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// `None` if it cannot be read.
    pub(crate) fn of(fd: &impl AsFd) -> Option<Self> {
        Self::read(fd).ok()
    }

    /// Whether the number is still this file. True if it cannot be read, but is open.
    pub(crate) fn is_of(file: Option<Self>, fd: &impl AsFd) -> bool {
        match (file, Self::read(fd)) {
            (Some(file), Ok(found)) => file == found,
            (_, Err(error)) => error != Errno::BADF,
            (None, Ok(_)) => true,
        }
    }

    fn read(fd: &impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(fd).map(|found| Self(found.st_dev, found.st_ino))
    }
}

impl<T: AsFd + IntoRawFd> Drop for Kept<T> {
    fn drop(&mut self) {
        if !self.is_there() {
            let _ = self.fd.take().map(IntoRawFd::into_raw_fd);
        }
    }
}
