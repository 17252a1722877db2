//! Input that is read as it comes, without a wait.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How much is read at once.
const PIECE: usize = 64 * 1024;

/// How much is read at once until a read fills that: a buffer that is not used needs no memory.
const FIRST: usize = 4096;

/// What [`Input::fill`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// There is more in the buffer now.
    Data,
    /// Nothing has come yet.
    Later,
    /// The input has ended.
    End,
}

/// A descriptor and what has been read from it, for a [`JobSource`](crate::JobSource).
///
/// The descriptor stays as it is: it is not made non-blocking, which other processes that have it would notice. It is
/// read only when it is known to be readable.
#[derive(Debug)]
pub struct Input {
    fd: OwnedFd,
    buffer: Vec<u8>,
    /// The bytes before this have been consumed.
    start: usize,
    /// So much is read at once.
    piece: usize,
    ended: bool,
}

impl Input {
    /// Reads from a descriptor.
    pub fn new(fd: impl Into<OwnedFd>) -> Self {
        Self { fd: fd.into(), buffer: Vec::new(), start: 0, piece: FIRST, ended: false }
    }

    /// What has been read and not consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Marks so many bytes as consumed.
    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }

    /// Whether the input has ended. There may be bytes left in the buffer.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Waits until there may be more.
    ///
    /// # Errors
    /// Those of `poll(2)`.
    pub fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads more, if there is more to read without a wait.
    ///
    /// # Errors
    /// Those of `read(2)`.
    pub fn fill(&mut self) -> io::Result<Filled> {
        if self.ended {
            return Ok(Filled::End);
        }
        let mut ready = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut ready, Some(&Timespec::default())) {
            Ok(0) | Err(Errno::INTR) => return Ok(Filled::Later),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let held = self.buffer.len();
        self.buffer.resize(held + self.piece, 0);
        let found = rustix::io::read(&self.fd, &mut self.buffer[held..]);
        if found == Ok(self.piece) {
            self.piece = PIECE;
        }
        self.buffer.truncate(held + found.as_ref().map_or(0, |&count| count));
        match found {
            Ok(0) => {
                self.ended = true;
                Ok(Filled::End)
            }
            Ok(_) => Ok(Filled::Data),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Filled::Later),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
