//! Captured output: bytes that were read into memory, or a memfd that is mapped.

use crate::error::Error;
use crate::step::Step;
use rustix::buffer::spare_capacity;
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, ftruncate, memfd_create, seek, tell};
use rustix::io::{Errno, pread};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

/// Bytes that a program wrote. It dereferences to `[u8]`.
pub struct Content(ContentBytes);

enum ContentBytes {
    Read(Vec<u8>),
    /// A mapping of `len` bytes, of which the first `seen` are the output.
    Mapped {
        at: NonNull<u8>,
        len: usize,
        seen: usize,
    },
}

// SAFETY: the only owner of memory that nobody can write to.
unsafe impl Send for Content {}
// SAFETY: as above.
unsafe impl Sync for Content {}

impl Content {
    /// The first `limit` bytes of it.
    fn up_to(mut self, limit: usize) -> Self {
        match &mut self.0 {
            ContentBytes::Read(bytes) => bytes.truncate(limit),
            ContentBytes::Mapped { seen, .. } => *seen = limit.min(*seen),
        }
        self
    }

    /// The bytes as a vector. They are copied if they are in a memfd.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let captured = Command::new("echo").arg("hello").capture(&Capture::new())?;
    /// let bytes: Vec<u8> = captured.stdout.into_vec();
    /// assert_eq!(bytes, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_vec(mut self) -> Vec<u8> {
        match &mut self.0 {
            ContentBytes::Read(bytes) => std::mem::take(bytes),
            ContentBytes::Mapped { .. } => self.to_vec(),
        }
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self(ContentBytes::Read(bytes))
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            ContentBytes::Read(bytes) => bytes,
            // SAFETY: mapped as long as this lives, `seen` bytes at least, and sealed: no process can change or truncate it.
            ContentBytes::Mapped { at, seen, .. } => unsafe { std::slice::from_raw_parts(at.as_ptr(), *seen) },
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
    /// As a string, like [`Output`](std::process::Output).
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self) {
            Ok(text) => text.fmt(out),
            Err(_) => (**self).fmt(out),
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let ContentBytes::Mapped { at, len, .. } = self.0 {
            // SAFETY: the whole mapping, to which no reference exists any more.
            let _ = unsafe { munmap(at.as_ptr().cast(), len) };
        }
    }
}

/// A memfd for a program to write to. It cannot become longer than its limit.
pub(crate) struct MemoryFile {
    file: OwnedFd,
    limit: u64,
}

impl MemoryFile {
    pub(super) fn new(program: &OsStr, limit: usize) -> io::Result<Self> {
        let failed = |errno: Errno| {
            let error = Error::new(program, Step::Pipe, errno.raw_os_error()).on("(a memfd for the output)");
            io::Error::from(if errno == Errno::MFILE { error.note("RLIMIT_NOFILE is reached") } else { error })
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // MFD_NOEXEC_SEAL is EINVAL before Linux 6.3.
        let file = match memfd_create("captured", flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create("captured", flags),
            answer => answer,
        };
        let file = file.map_err(failed)?;
        // The file has its final length from the start, and the file offset, which is shared with the program, shows how much
        // has been written. A length above RLIMIT_FSIZE would raise SIGXFSZ in the caller; the program has the same limit.
        let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX).min(i64::MAX as u64);
        let limit = most.min(limit as u64);
        ftruncate(&file, limit).map_err(failed)?;
        let seals = SealFlags::GROW | SealFlags::SHRINK;
        fcntl_add_seals(&file, seals).map_err(failed)?;
        Ok(Self { file, limit })
    }

    /// What the program has written. It seals the file, so that nobody can write to it any more.
    pub(super) fn content(self) -> io::Result<Content> {
        // The program may have set the offset to anything. Reading a mapping beyond the file's end would raise SIGBUS.
        let offset = tell(&self.file)?.min(self.limit);
        let is_sealed = fcntl_add_seals(&self.file, SealFlags::WRITE).is_ok();
        let len = offset.max(self.end_of_data(offset)) as usize;
        let written = |bytes: &[u8]| {
            let behind = bytes[offset as usize..].iter().rposition(|&byte| byte != 0);
            behind.map_or(offset as usize, |last| offset as usize + last + 1)
        };
        if len == 0 {
            return Ok(Vec::new().into());
        }
        if !is_sealed {
            // A process has mapped it for writing, or has sealed the seals: a mapping could change while it is read.
            let _ = fcntl_add_seals(&self.file, SealFlags::FUTURE_WRITE);
            let mut bytes = self.copy(len)?;
            bytes.truncate(written(&bytes));
            return Ok(bytes.into());
        }
        // Not populated: the kernel maps 16 pages at a fault, which costs half of what mapping all at once does. Not shared: before
        // Linux 6.7 a file that nobody can write to cannot be mapped shared (EPERM), and what is read is the same.
        // SAFETY: a new mapping, chosen by the kernel, of a file that nobody can write to or make shorter.
        let at = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, &self.file, 0) }?;
        // SAFETY: mmap does not give address 0.
        let mapped = Content(ContentBytes::Mapped { at: unsafe { NonNull::new_unchecked(at.cast()) }, len, seen: len });
        let seen = written(&mapped);
        Ok(mapped.up_to(seen))
    }

    /// The end of the last page after `from` that has been written to; 0 if there is none.
    fn end_of_data(&self, from: u64) -> u64 {
        let mut end = 0;
        while let Ok(data) = seek(&self.file, SeekFrom::Data(from.max(end))) {
            match seek(&self.file, SeekFrom::Hole(data)) {
                Ok(hole) if hole > data => end = hole.min(self.limit),
                _ => break,
            }
        }
        end
    }

    fn copy(&self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len)?;
        while bytes.len() < len {
            let at = bytes.len() as u64;
            match pread(&self.file, spare_capacity(&mut bytes), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.resize(len, 0);
        Ok(bytes)
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
