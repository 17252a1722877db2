//! The caller's ends of a child's streams: pipes that the reactor watches.

use crate::Stdio;
use crate::output::quiet::write_vectored;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::pipe::Receiver;

/// The other end of the child's standard input.
///
/// Dropping it ends the child's input; `shutdown` alone does not. A write without a reader raises no SIGPIPE, whatever
/// its disposition in this process.
#[derive(Debug)]
pub struct ChildStdin(Sender);

/// The other end of the child's standard output.
#[derive(Debug)]
pub struct ChildStdout(Receiver);

/// The other end of the child's standard error.
#[derive(Debug)]
pub struct ChildStderr(Receiver);

/// The writing end of a pipe. Not tokio's own type, whose writes raise SIGPIPE.
#[derive(Debug)]
struct Sender(AsyncFd<OwnedFd>);

impl Sender {
    fn from_owned_fd_unchecked(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` names one open descriptor as long as it lives.
        Ok(Self(unsafe { AsyncFd::register_with_interest(fd, Interest::WRITABLE) }?))
    }

    fn into_blocking_fd(self) -> io::Result<OwnedFd> {
        let fd = self.0.into_inner();
        rustix::io::ioctl_fionbio(&fd, false)?;
        Ok(fd)
    }

    fn poll_write(&self, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let mut room = ready!(self.0.poll_write_ready(context))?;
            match room.try_io(|fd| write_vectored(fd.get_ref(), parts)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(answer) => return Poll::Ready(answer),
                // The pipe was full after all. The reactor wakes this task again.
                Err(_) => {}
            }
        }
    }
}

impl AsRawFd for Sender {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

impl AsyncWrite for ChildStdin {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
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
            /// Turns a blocking stream of a child into an async one, which the current runtime watches.
            ///
            /// ```
            /// # #[tokio::main]
            /// # async fn main() -> std::io::Result<()> {
            /// use std::process::{Command, Stdio};
            /// let mut command = Command::new("cat");
            /// let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            /// use forkless::tokio::{ChildStderr, ChildStdin, ChildStdout};
            /// let stdin = ChildStdin::from_std(child.stdin.take().unwrap())?;
            /// let stdout = ChildStdout::from_std(child.stdout.take().unwrap())?;
            /// let stderr = ChildStderr::from_std(child.stderr.take().unwrap())?;
            /// # drop((stdin, stdout, stderr));
            /// # child.wait()?;
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Those of `epoll_ctl(2)`, such as `ENOSPC`.
            ///
            /// # Panics
            /// Outside a tokio runtime, and in one without I/O.
            pub fn from_std(stream: std::process::$stream) -> io::Result<Self> {
                let fd = OwnedFd::from(stream);
                rustix::io::ioctl_fionbio(&fd, true)?;
                // The type guarantees that it is a pipe, and which end of it.
                $end::from_owned_fd_unchecked(fd).map(Self)
            }

            /// Returns the descriptor, set to blocking again.
            ///
            /// ```
            /// # #[tokio::main]
            /// # async fn main() -> std::io::Result<()> {
            /// use forkless::tokio::{Command, Stdio};
            /// let mut command = Command::new("cat");
            /// let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            /// let input = std::fs::File::from(child.stdin.take().unwrap().into_owned_fd()?);
            /// let output = std::fs::File::from(child.stdout.take().unwrap().into_owned_fd()?);
            /// # drop((input, output));
            /// # child.wait().await?;
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Those of `fcntl(2)`; none are known.
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

            /// For the next program of a pipeline: the descriptor, set to blocking again.
            fn try_from(stream: $stream) -> io::Result<Self> {
                stream.into_owned_fd().map(Self::from)
            }
        }

        impl TryFrom<$stream> for std::process::Stdio {
            type Error = io::Error;

            /// For a program that std starts: the descriptor, set to blocking again.
            fn try_from(stream: $stream) -> io::Result<Self> {
                stream.into_owned_fd().map(Self::from)
            }
        }
    )* };
}

descriptor! { ChildStdin(Sender) ChildStdout(Receiver) ChildStderr(Receiver) }

/// All bytes that a child writes to one stream.
pub(super) struct ReadToEnd {
    /// `None` at its end.
    stream: Option<Receiver>,
    bytes: Vec<u8>,
}

impl ReadToEnd {
    pub(super) fn stdout(stream: Option<ChildStdout>) -> Self {
        Self { stream: stream.map(|stream| stream.0), bytes: Vec::new() }
    }

    pub(super) fn stderr(stream: Option<ChildStderr>) -> Self {
        Self { stream: stream.map(|stream| stream.0), bytes: Vec::new() }
    }

    /// Reads what is available; ready when the stream has ended and is closed.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        /// Most outputs fit into the first capacity. A longer one doubles it.
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
