//! The handle of a child that is awaited.

use super::process::Process;
use super::stream::{Capture, ChildStderr, ChildStdin, ChildStdout};
use crate::compile::Plan;
use crate::error::Error;
use crate::launch::Form;
use crate::pipes::Defaults;
use forkless_core::planted;
use forkless_core::sys::signal::SIGCONT;
use std::future::poll_fn;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{OwnedFd, RawFd};
use std::process::{ExitStatus, Output};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;

/// A child process: the names and meanings of `tokio::process::Child`, and more.
///
/// Dropping it leaves the child running, unless [`kill_on_drop`](super::Command::kill_on_drop) was asked for; either way
/// a task of the runtime reaps it as soon as it has ended. Where the runtime is gone, or goes before that, it is reaped by
/// a later launch, or by [`reap_orphans`](crate::reap_orphans).
#[derive(Debug)]
pub struct Child {
    /// First, so that a child that dies with its handle has been killed before its streams are closed.
    watched: Watched,
    /// The other end of the child's standard input, if it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The other end of the child's standard output, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The other end of the child's standard error, if it is a pipe.
    pub stderr: Option<ChildStderr>,
}

/// What a dropped handle leaves behind. Not [`Child`] itself is dropped: nothing could be moved out of that then.
#[derive(Debug)]
struct Watched {
    /// Taken when this is dropped.
    process: ManuallyDrop<Process>,
    /// The one that watches the child.
    runtime: Handle,
}

impl Child {
    /// Starts a child that the current runtime watches.
    pub(super) fn start(plan: &Arc<Plan>, form: Form, defaults: Defaults, kill_on_drop: bool) -> io::Result<Self> {
        // Asked before there is a child.
        let runtime = Handle::try_current().map_err(|_| {
            Error::check(plan.program(), "there is no tokio runtime here: call it in a task, or within Runtime::enter")
        })?;
        let mut child = crate::Child::start_with(plan, form, defaults, true)?;
        // A child that cannot be watched is not left behind.
        child.kill_on_drop(!planted!("awaited-unwatched-left"));
        let mut child = Self::unwatched(child, runtime);
        child.watch()?;
        child.watched.process.child.kill_on_drop(kill_on_drop);
        Ok(child)
    }

    fn unwatched(child: crate::Child, runtime: Handle) -> Self {
        let process = ManuallyDrop::new(Process::new(child));
        Self { watched: Watched { process, runtime }, stdin: None, stdout: None, stderr: None }
    }

    fn watch(&mut self) -> io::Result<()> {
        self.watched.process.watch()?;
        let child = &mut self.watched.process.child;
        self.stdin = child.stdin.take().map(ChildStdin::from_std).transpose()?;
        self.stdout = child.stdout.take().map(ChildStdout::from_std).transpose()?;
        self.stderr = child.stderr.take().map(ChildStderr::from_std).transpose()?;
        Ok(())
    }

    /// A child that was started otherwise, to be awaited in the current runtime. Its streams become non-blocking. Whether it is
    /// killed on drop is as it was.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let child = forkless::Command::new("true").launch()?;
    /// let mut child = forkless::tokio::Child::from_forkless(child)?;
    /// assert!(child.wait().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Where the current thread is in no runtime. Of `pidfd_open(2)`, for a child that was started without a pidfd, and of
    /// `epoll_ctl(2)`. The child is dropped then as [`forkless::Child`](crate::Child) is.
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn from_forkless(child: crate::Child) -> io::Result<Self> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let mut child = Self::unwatched(child, runtime);
        child.watch()?;
        Ok(child)
    }

    /// The blocking child inside, for what it tells: its [pidfd](crate::Child::pidfd), [usage](crate::Child::usage),
    /// [route](crate::Child::route), [missed](crate::Child::missed) steps.
    pub fn as_forkless(&self) -> &crate::Child {
        &self.watched.process.child
    }

    /// The process id; none once the child has been waited for, since it may by then be another's.
    pub fn id(&self) -> Option<u32> {
        self.watched.process.child.is_running().then(|| self.watched.process.child.id())
    }

    /// As [`Child::take_socket`](crate::Child::take_socket). The socket is a blocking one.
    pub fn take_socket(&mut self, number: RawFd) -> Option<OwnedFd> {
        self.watched.process.child.take_socket(number)
    }

    /// As [`Child::take_handed_back`](crate::Child::take_handed_back), which does not block after
    /// [`spawn`](super::Command::spawn).
    ///
    /// # Errors
    /// As there.
    pub fn take_handed_back(&mut self) -> io::Result<Option<OwnedFd>> {
        self.watched.process.child.take_handed_back()
    }

    /// Whether the program has been executed by now; after [`spawn`](super::Command::spawn) it has.
    ///
    /// # Errors
    /// The step that failed. The child is gone then.
    pub fn try_wait_exec(&mut self) -> io::Result<bool> {
        self.watched.process.child.wait_exec_timeout(Duration::ZERO)
    }

    /// Waits for the child to end. Its standard input is closed first, so that it cannot wait for us, and sockets that
    /// nobody has taken give it no more input.
    ///
    /// Cancel safe: nothing is lost if the future is dropped, as `tokio::time::timeout` does, and asked for again.
    ///
    /// # Errors
    /// After [`launch`](super::Command::launch): why the program could not be executed. `ECHILD` inside if another part of
    /// the program reaped the child and the kernel is older than 6.15. If the runtime that the child was started in is
    /// gone.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.watched.process.child.end_input();
        self.watched.process.end().await
    }

    /// The exit status if the child has ended. Needs no runtime, and leaves standard input open.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), but for the last.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.watched.process.try_wait()
    }

    /// Waits for the child to end and gives what it wrote to the pipes that are still here, both read as their data come.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and any error of reading.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        self.watched.process.child.end_input();
        let mut stdout = Capture::stdout(self.stdout.take());
        let mut stderr = Capture::stderr(self.stderr.take());
        poll_fn(|context| {
            let (out, err) = (stdout.poll(context)?, stderr.poll(context)?);
            ready!(out);
            ready!(err);
            Poll::Ready(io::Result::Ok(()))
        })
        .await?;
        let status = self.wait().await?;
        Ok(Output { status, stdout: stdout.into_bytes(), stderr: stderr.into_bytes() })
    }

    /// Sends a signal to the child. Not an error if it has already ended.
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal, `EPERM` if the child has become someone whom we may not signal.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        self.watched.process.child.signal(signal)
    }

    /// Kills the child with SIGKILL, without waiting for its end. Not an error if it has already ended.
    ///
    /// # Errors
    /// As for [`signal`](Self::signal).
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.watched.process.child.kill()
    }

    /// Kills the child with SIGKILL and waits for its end. Not an error if it has already ended.
    ///
    /// # Errors
    /// As for [`signal`](Self::signal) and [`wait`](Self::wait).
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        self.wait().await.map(drop)
    }

    /// Asks the child to end, with `signal`; if it has not after `grace`, kills it with SIGKILL. Either way it is waited
    /// for, as by [`wait`](Self::wait). A stopped child is continued, so that it hears.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// use std::{os::unix::process::ExitStatusExt, time::Duration};
    /// let mut child = forkless::tokio::Command::new("sleep").arg("60").spawn()?;
    /// let status = child.terminate(15, Duration::from_secs(10)).await?;
    /// assert_eq!(status.signal(), Some(15));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`signal`](Self::signal) and [`wait`](Self::wait).
    ///
    /// # Panics
    /// In a runtime without time.
    pub async fn terminate(&mut self, signal: i32, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(signal)?;
        self.signal(SIGCONT)?;
        if let Ok(answer) = tokio::time::timeout(grace, self.wait()).await {
            return answer;
        }
        self.start_kill()?;
        self.wait().await
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let mut process = unsafe { ManuallyDrop::take(&mut self.process) };
        if process.child.dies_with_handle() && !planted!("awaited-lives-on") {
            // An error leaves nothing else to try.
            let _ = process.child.kill();
        }
        // What is not watched is reaped by a later launch: the runtime may have no reactor to watch it with.
        let is_reaped_here = !process.child.is_autoreaped() && !planted!("awaited-dropped-not-reaped");
        if process.is_watched() && is_reaped_here && matches!(process.try_wait(), Ok(None)) {
            // A runtime that is gone drops the future at once, and the child with it.
            drop(self.runtime.spawn(async move { process.end().await.map(drop) }));
        }
    }
}
