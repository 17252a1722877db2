//! Reading one output stream of a child into memory.

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Capacity for the first read. Most programs write less.
const FIRST: usize = 8 * 1024;

/// What a pipe holds by default, and the least capacity for each further read of a long stream.
const PIPE: usize = 64 * 1024;

/// The size that the pipe of a long stream is given, so that reader and writer switch less often. Measured with 64 MiB
/// on 2 CPUs: twice to eight times the default gain the same (a tenth to a third); sixteen times gain less, because
/// that does not stay in the CPU's cache.
const LARGE_PIPE: usize = 256 * 1024;

/// A stream, and the bytes that have been read from it.
pub(crate) struct Reader {
    fd: OwnedFd,
    bytes: Vec<u8>,
    limit: usize,
    /// Bytes beyond the limit.
    cut: u64,
    stops_at_limit: bool,
    is_open: bool,
    is_large: bool,
    never_waits: bool,
}

/// The result of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    /// Nothing is available now.
    Nothing,
    End,
    /// There is more than the limit, and the children are to be killed for it.
    TooMuch,
}

impl Reader {
    pub(crate) fn new(fd: OwnedFd, limit: usize, stops_at_limit: bool) -> Self {
        Self {
            fd,
            bytes: Vec::new(),
            limit,
            cut: 0,
            stops_at_limit,
            is_open: true,
            is_large: false,
            never_waits: false,
        }
    }

    /// The descriptor to poll, until the stream has ended.
    pub(crate) fn open(&self) -> Option<BorrowedFd<'_>> {
        self.is_open.then(|| self.fd.as_fd())
    }

    /// Bytes read so far.
    pub(crate) fn taken(&self) -> u64 {
        self.bytes.len() as u64 + self.cut
    }

    /// Makes reads nonblocking from now on. The flag affects nobody else: only this process has the reading end.
    pub(crate) fn never_wait(&mut self) {
        if !self.never_waits {
            // One call, where fcntl(2) needs two.
            self.never_waits = ioctl_fionbio(&self.fd, true).is_ok();
        }
    }

    /// Reads once.
    pub(crate) fn read(&mut self) -> io::Result<Progress> {
        let room = self.limit - self.bytes.len().min(self.limit);
        if room == 0 {
            return self.skip();
        }
        if self.bytes.capacity() - self.bytes.len() < FIRST {
            let more = if self.bytes.is_empty() { FIRST } else { PIPE.max(self.bytes.len()) };
            // Not more than the limit: it is also a limit on memory.
            self.bytes.try_reserve_exact(more.min(room))?;
        }
        let before = self.bytes.len();
        let count = loop {
            let answer = if room < self.bytes.capacity() - before {
                let filled = before;
                self.bytes.resize(filled + room, 0);
                let answer = read(&self.fd, &mut self.bytes[filled..]);
                self.bytes.truncate(filled + answer.unwrap_or(0));
                answer
            } else {
                read(&self.fd, spare_capacity(&mut self.bytes))
            };
            match answer {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Progress::Nothing),
                answer => break answer?,
            }
        };
        if count == 0 {
            self.is_open = false;
            return Ok(Progress::End);
        }
        if self.bytes.len() >= PIPE && !self.is_large {
            self.enlarge();
        }
        Ok(Progress::More)
    }

    /// Prepares for a long stream: a larger pipe, so that reader and writer switch less often, and nonblocking reads,
    /// which go on until nothing is available.
    fn enlarge(&mut self) {
        self.is_large = true;
        // Never made smaller: the program may have made it larger.
        if fcntl_getpipe_size(&self.fd).is_ok_and(|size| size < LARGE_PIPE) {
            let _ = fcntl_setpipe_size(&self.fd, LARGE_PIPE);
        }
        self.never_wait();
    }

    /// Whether the stream may be read again without a poll.
    pub(crate) fn is_large(&self) -> bool {
        self.is_large && self.never_waits && self.is_open
    }

    /// Reads once, and drops the bytes.
    fn skip(&mut self) -> io::Result<Progress> {
        let mut nowhere = [0; 16 * 1024];
        let count = loop {
            match read(&self.fd, &mut nowhere) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Progress::Nothing),
                answer => break answer?,
            }
        };
        self.cut += count as u64;
        match (count, self.stops_at_limit) {
            (0, _) => {
                self.is_open = false;
                Ok(Progress::End)
            }
            (_, true) => Ok(Progress::TooMuch),
            (_, false) => Ok(Progress::More),
        }
    }
}

/// The bytes that were read, and the number of those that were dropped.
pub(crate) fn finish(reader: Option<Reader>) -> (Vec<u8>, u64) {
    reader.map_or((Vec::new(), 0), |reader| (reader.bytes, reader.cut))
}
