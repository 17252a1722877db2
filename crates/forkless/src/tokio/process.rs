//! A child, and the reactor's watch on its pidfd: waiting without a thread.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitStatus;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

/// A child that may be watched. When it is dropped, the child is kept as an orphan, like any other.
#[derive(Debug)]
pub(super) struct WatchedProcess {
    /// Some from [`watch`](Self::watch) until the child has been reaped. Before `child`, to be dropped before the
    /// descriptor that it names is closed.
    watch: Option<AsyncFd<OwnPidfd>>,
    pub(super) child: crate::Child,
}

/// The child's pidfd, which the child owns.
#[derive(Debug)]
struct OwnPidfd(RawFd);

impl AsRawFd for OwnPidfd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl WatchedProcess {
    pub(super) fn new(child: crate::Child) -> Self {
        Self { watch: None, child }
    }

    /// Registers the child with the runtime's reactor. Panics, as all of tokio does, if the runtime has none.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        if self.child.is_running() {
            let pidfd = OwnPidfd(self.child.pidfd_or_open()?.as_raw_fd());
            // SAFETY: the child keeps the descriptor as long as it lives, and is dropped after the watch.
            self.watch = Some(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?);
        }
        Ok(())
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Reaps the child if it has ended.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let answer = self.child.try_wait();
        if !self.child.is_running() {
            self.watch = None;
        }
        answer
    }

    /// Waits for the child to end and reaps it. Dropping the future has no effect on the child.
    pub(super) async fn end(&mut self) -> io::Result<ExitStatus> {
        poll_fn(|context| self.poll_end(context)).await
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        loop {
            // Not watched: it has ended, or its runtime had gone when it was last waited for.
            if self.watch.is_none() && self.child.is_running() && Handle::try_current().is_ok() {
                self.watch()?;
            }
            let Some(watch) = &self.watch else { return Poll::Ready(self.over()) };
            // A pidfd is readable when its process has ended, even before it was registered. So a wait before that would be a
            // useless system call.
            let ended = ready!(watch.poll_read_ready(context));
            let answer = self.child.try_wait();
            match (answer, ended) {
                // It has ended, but a tracer is notified first. The pidfd wakes this task again.
                (Ok(None), Ok(mut news)) => news.clear_ready(),
                // Its runtime has gone. The current one is another, or the same one, which takes no more descriptors.
                (Ok(None), Err(error)) => {
                    self.watch = None;
                    if Handle::try_current().is_err() {
                        return Poll::Ready(Err(error));
                    }
                    self.watch()?;
                }
                (answer, _) => {
                    self.watch = self.watch.take().filter(|_| self.child.is_running());
                    return Poll::Ready(answer.transpose().unwrap_or_else(|| self.over()));
                }
            }
        }
    }

    /// The end of a child that is not watched any more.
    fn over(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.try_wait()?;
        status.ok_or_else(|| io::Error::other("the runtime that watched this child has been dropped"))
    }
}
