//! What has been captured: read into memory, or a file in memory that is mapped.

use crate::error::Error;
use crate::step::Step;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, tell};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

/// Bytes that a program wrote. It is a `[u8]` for all purposes.
pub struct Content(Kept);

enum Kept {
    Read(Vec<u8>),
    Mapped { at: NonNull<u8>, len: usize },
}

// SAFETY: a private owner of memory that nobody can write to.
unsafe impl Send for Content {}
// SAFETY: as above.
unsafe impl Sync for Content {}

impl Content {
    /// The bytes as a vector; copied if they are in a mapped file.
    pub fn into_vec(mut self) -> Vec<u8> {
        match &mut self.0 {
            Kept::Read(bytes) => std::mem::take(bytes),
            Kept::Mapped { .. } => self.to_vec(),
        }
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kept::Read(bytes))
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Read(bytes) => bytes,
            // SAFETY: mapped as long as this lives, and sealed: nobody can change it or make it shorter.
            Kept::Mapped { at, len } => unsafe { std::slice::from_raw_parts(at.as_ptr(), *len) },
        }
    }
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Content {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl fmt::Debug for Content {
    /// As a string, the way [`Output`](std::process::Output) is shown.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self) {
            Ok(text) => text.fmt(out),
            Err(_) => (**self).fmt(out),
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Kept::Mapped { at, len } = self.0 {
            // SAFETY: the whole mapping, to which nobody refers any more.
            let _ = unsafe { munmap(at.as_ptr().cast(), len) };
        }
    }
}

/// A file in memory for a program to write to. It cannot become longer than its limit.
pub(super) struct MemoryFile(OwnedFd);

impl MemoryFile {
    pub(super) fn new(program: &OsStr, limit: usize) -> io::Result<Self> {
        let failed = |errno: Errno| {
            let error = Error::new(program, Step::Pipe, errno.raw_os_error()).on("in memory (memfd_create)");
            io::Error::from(if errno == Errno::MFILE { error.note("RLIMIT_NOFILE is reached") } else { error })
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Not executable, which kernels before 6.3 do not know how to say.
        let file = match memfd_create("captured", flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create("captured", flags),
            answer => answer,
        };
        let file = file.map_err(failed)?;
        // The length is the limit from the beginning, in a file that has nothing in it yet; how much has been written is told by
        // the offset, which the program shares with us.
        ftruncate(&file, limit.min(i64::MAX as usize) as u64).map_err(failed)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK).map_err(failed)?;
        Ok(Self(file))
    }

    /// What has been written. Nobody can write any more from now on.
    pub(super) fn content(self) -> io::Result<Content> {
        let len = tell(&self.0)? as usize;
        if len == 0 {
            return Ok(Vec::new().into());
        }
        if fcntl_add_seals(&self.0, SealFlags::WRITE).is_err() {
            // Somebody has mapped it for writing: what we map could change under our hands.
            let mut bytes = vec![0; len];
            let mut filled = 0;
            while filled < len {
                match rustix::io::pread(&self.0, &mut bytes[filled..], filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            bytes.truncate(filled);
            return Ok(bytes.into());
        }
        // Not populated: the kernel maps 16 pages at a fault, which costs half of what mapping all at once does.
        // SAFETY: a new mapping, chosen by the kernel, of a file that nobody can write to or make shorter.
        let at = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &self.0, 0) }?;
        // SAFETY: mmap does not give address 0.
        Ok(Content(Kept::Mapped { at: unsafe { NonNull::new_unchecked(at.cast()) }, len }))
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
