//! The parent's ends of a child's streams: pipes that the reactor watches.

use crate::Stdio;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

/// The other end of a child's standard input.
///
/// Dropping it is the end of the child's input; `shutdown` alone is not.
#[derive(Debug)]
pub struct ChildStdin(pipe::Sender);

/// The other end of a child's standard output.
#[derive(Debug)]
pub struct ChildStdout(pipe::Receiver);

/// The other end of a child's standard error.
#[derive(Debug)]
pub struct ChildStderr(pipe::Receiver);

impl AsyncWrite for ChildStdin {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

macro_rules! readable {
    ($($stream:ty)*) => { $(impl AsyncRead for $stream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, into)
        }
    })* };
}

readable! { ChildStdout ChildStderr }

macro_rules! descriptor {
    ($($stream:ident($end:ident))*) => { $(
        impl $stream {
            /// The async stream of a blocking one, watched by the current runtime.
            ///
            /// # Errors
            /// Of `epoll_ctl(2)`, such as `ENOSPC`.
            ///
            /// # Panics
            /// Outside a tokio runtime, and in one without I/O.
            pub fn from_std(stream: std::process::$stream) -> io::Result<Self> {
                let fd = OwnedFd::from(stream);
                rustix::io::ioctl_fionbio(&fd, true)?;
                // That it is a pipe, and which end of it, is known by its type.
                pipe::$end::from_owned_fd_unchecked(fd).map(Self)
            }

            /// The descriptor, blocking again.
            ///
            /// # Errors
            /// Of `fcntl(2)`; there is no known cause.
            pub fn into_owned_fd(self) -> io::Result<OwnedFd> {
                self.0.into_blocking_fd()
            }
        }

        impl AsRawFd for $stream {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_raw_fd()
            }
        }

        impl AsFd for $stream {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl TryFrom<$stream> for Stdio {
            type Error = io::Error;

            /// For the next program of a pipeline: the descriptor, blocking again.
            fn try_from(stream: $stream) -> io::Result<Self> {
                stream.into_owned_fd().map(Self::from)
            }
        }

        impl TryFrom<$stream> for std::process::Stdio {
            type Error = io::Error;

            /// For a program that std starts: the descriptor, blocking again.
            fn try_from(stream: $stream) -> io::Result<Self> {
                stream.into_owned_fd().map(Self::from)
            }
        }
    )* };
}

descriptor! { ChildStdin(Sender) ChildStdout(Receiver) ChildStderr(Receiver) }

/// Everything that a child writes to one stream.
pub(super) struct Capture {
    /// None at its end.
    stream: Option<pipe::Receiver>,
    bytes: Vec<u8>,
}

impl Capture {
    pub(super) fn stdout(stream: Option<ChildStdout>) -> Self {
        Self { stream: stream.map(|stream| stream.0), bytes: Vec::new() }
    }

    pub(super) fn stderr(stream: Option<ChildStderr>) -> Self {
        Self { stream: stream.map(|stream| stream.0), bytes: Vec::new() }
    }

    /// Reads what is there; ready when the stream has ended, and is closed.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        /// Most outputs are shorter than the room there is at first; a longer one doubles it.
        const FIRST: usize = 4 * 1024;
        const LEAST: usize = 512;
        while let Some(stream) = &mut self.stream {
            if self.bytes.spare_capacity_mut().len() < LEAST {
                self.bytes.reserve(FIRST);
            }
            let mut room = ReadBuf::uninit(self.bytes.spare_capacity_mut());
            ready!(Pin::new(stream).poll_read(context, &mut room))?;
            let new = room.filled().len();
            // SAFETY: the read has filled so many bytes after the vector's end.
            unsafe { self.bytes.set_len(self.bytes.len() + new) };
            if new == 0 {
                self.stream = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
