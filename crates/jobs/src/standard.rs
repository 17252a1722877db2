//! The sink that writes to this process's own standard output and standard error.

use crate::source::{Sink, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Writes to standard output and standard error. Consecutive pieces for one of them are buffered and written together.
#[derive(Debug, Default)]
pub struct Standard {
    buffer: Vec<u8>,
    /// Where the buffer goes.
    to_err: bool,
}

/// The buffer's size.
const MOST: usize = 64 * 1024;

impl Standard {
    /// A sink with an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Sink for Standard {
    fn write(&mut self, _: u64, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let to_err = stream == Stream::Err;
        if to_err != self.to_err || self.buffer.len() + bytes.len() > MOST {
            self.flush()?;
        }
        self.to_err = to_err;
        if bytes.len() >= MOST {
            return write_all(fd_of(to_err), bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let answer = write_all(fd_of(self.to_err), &self.buffer);
        self.buffer.clear();
        answer
    }
}

fn fd_of(err: bool) -> BorrowedFd<'static> {
    if err { rustix::stdio::stderr() } else { rustix::stdio::stdout() }
}

/// Writes everything, also to a non-blocking pipe. No SIGPIPE.
pub(crate) fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    let fd = fd.as_fd();
    while !bytes.is_empty() {
        match forkless::internal::write_quietly(fd, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
