//! The handle of a child that is awaited.

use super::process::WatchedProcess;
use super::stream::{ChildStderr, ChildStdin, ChildStdout, ReadToEnd};
use crate::error::Error;
use crate::kernel::SIGCONT;
use crate::launch::pipes::Defaults;
use crate::launch::run::LaunchForm;
use crate::plan::Plan;
use crate::start::{Pidfd, Start};
use std::future::poll_fn;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{OwnedFd, RawFd};
use std::pin::pin;
use std::process::{ExitStatus, Output};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;

/// A child process: the names and meanings of `tokio::process::Child`, and more.
///
/// Dropping it leaves the child running, unless [`kill_on_drop`](super::Command::kill_on_drop) is set. In both cases a
/// task of the runtime reaps the child as soon as it has ended. If the runtime is gone, or goes before that, a later
/// launch reaps it, or [`reap_orphans`](crate::reap_orphans).
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
    process: ManuallyDrop<WatchedProcess>,
    /// The runtime that watches the child.
    runtime: Handle,
}

impl Child {
    /// Starts a child that the current runtime watches.
    pub(super) fn start(
        plan: &Arc<Plan>,
        form: LaunchForm,
        defaults: Defaults,
        kill_on_drop: bool,
    ) -> io::Result<Self> {
        // Asked before there is a child.
        let runtime = Handle::try_current().map_err(|_| {
            Error::check(plan.program(), "there is no tokio runtime here: call it in a task, or within Runtime::enter")
        })?;
        let mut child = Start::new(form).with(defaults).pidfd(Pidfd::Always).child(plan)?;
        // If the child cannot be watched, the error drops it, and it is killed.
        child.kill_on_drop(true);
        let mut child = Self::unwatched(child, runtime);
        child.watch()?;
        child.watched.process.child.kill_on_drop(kill_on_drop);
        Ok(child)
    }

    fn unwatched(child: crate::Child, runtime: Handle) -> Self {
        let process = ManuallyDrop::new(WatchedProcess::new(child));
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

    /// Takes over a child that was started without a runtime, to be awaited in the current one. Its streams become
    /// nonblocking. Its setting of `kill_on_drop` stays.
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
    /// If the current thread is in no runtime. Those of `pidfd_open(2)` for a child that was started without a pidfd,
    /// and of `epoll_ctl(2)`. The child is then dropped, like a [`forkless::Child`](crate::Child).
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn from_forkless(child: crate::Child) -> io::Result<Self> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let mut child = Self::unwatched(child, runtime);
        child.watch()?;
        Ok(child)
    }

    /// The blocking child inside, for what it knows: its [pidfd](crate::Child::pidfd), [usage](crate::Child::usage),
    /// [route](crate::Child::route), [skipped steps](crate::Child::skipped).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("true").spawn()?;
    /// child.wait().await?;
    /// if let Some(usage) = child.as_forkless().usage() {
    ///     println!("{:?} of CPU time", usage.user_time + usage.system_time);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_forkless(&self) -> &crate::Child {
        &self.watched.process.child
    }

    /// The PID. `None` once the child has been waited for, since the PID may then belong to another process.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("true").spawn()?;
    /// println!("started process {}", child.id().expect("not waited for yet"));
    /// child.wait().await?;
    /// assert_eq!(child.id(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn id(&self) -> Option<u32> {
        self.watched.process.child.is_running().then(|| self.watched.process.child.id())
    }

    /// Takes the caller's end of a socket pair, like [`Child::take_socket`](crate::Child::take_socket). The socket is
    /// blocking.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// use forkless::tokio::{Command, Stdio};
    /// use tokio::{io::AsyncReadExt, net::UnixStream};
    /// let mut child = Command::new("sh").args(["-c", "echo hello >&3"]).fd(Stdio::socketpair(), 3).spawn()?;
    /// let socket = std::os::unix::net::UnixStream::from(child.take_socket(3).expect("made for this child"));
    /// socket.set_nonblocking(true)?;
    /// let mut text = String::new();
    /// UnixStream::from_std(socket)?.read_to_string(&mut text).await?;
    /// assert_eq!(text, "hello\n");
    /// # child.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_socket(&mut self, number: RawFd) -> Option<OwnedFd> {
        self.watched.process.child.take_socket(number)
    }

    /// Takes the next descriptor that the child has handed back, like
    /// [`Child::take_handed_back`](crate::Child::take_handed_back). It does not block after
    /// [`spawn`](super::Command::spawn).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("true").spawn()?;
    /// assert!(child.take_handed_back()?.is_none()); // the command has no hand_back
    /// # child.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Child::take_handed_back`](crate::Child::take_handed_back).
    pub fn take_handed_back(&mut self) -> io::Result<Option<OwnedFd>> {
        self.watched.process.child.take_handed_back()
    }

    /// Whether the program has been executed by now. After [`spawn`](super::Command::spawn) it has.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("true").launch()?;
    /// println!("executed: {}", child.try_wait_exec()?);
    /// # child.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The step that failed. The child is gone then.
    pub fn try_wait_exec(&mut self) -> io::Result<bool> {
        self.watched.process.child.wait_exec_timeout(Duration::ZERO)
    }

    /// Waits for the child to end, and returns its exit status.
    ///
    /// It first closes the child's standard input, and shuts down the writing direction of sockets that were not
    /// [taken](Self::take_socket), so that a child that reads to the end of its input does not wait for the caller.
    ///
    /// Cancel safe: if the future is dropped, as `tokio::time::timeout` does, nothing is lost, and it can be called
    /// again.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("sh").args(["-c", "exit 3"]).spawn()?;
    /// assert_eq!(child.wait().await?.code(), Some(3));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// After [`launch`](super::Command::launch): why the program could not be executed. `ECHILD` inside if another part
    /// of the program reaped the child and the kernel is older than 6.15. If the current runtime is being shut down. Another runtime
    /// than the one that the child was started in may wait for it, also when that one is gone.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.watched.process.child.end_input();
        self.watched.process.end().await
    }

    /// Returns the exit status if the child has ended. Needs no runtime, and leaves standard input open.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("sleep").arg("60").spawn()?;
    /// assert!(child.try_wait()?.is_none());
    /// child.kill().await?;
    /// assert!(child.try_wait()?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), except for the last.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.watched.process.try_wait()
    }

    /// Waits for the child to end, and returns its exit status and what it wrote to those pipes that are still in the
    /// handle. Both pipes are read at the same time.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// use forkless::tokio::{Command, Stdio};
    /// let child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.wait_with_output().await?.stdout, b"hello\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and any error of reading.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        self.watched.process.child.end_input();
        let mut stdout = ReadToEnd::stdout(self.stdout.take());
        let mut stderr = ReadToEnd::stderr(self.stderr.take());
        let mut status = None;
        let mut wait = pin!(self.wait());
        // Awaits the end too: with a limit such as `memory_max` it kills what the child has left with the streams open.
        poll_fn(|context| {
            if status.is_none() {
                if let Poll::Ready(ended) = wait.as_mut().poll(context)? {
                    status = Some(ended);
                }
            }
            let (out, err) = (stdout.poll(context)?, stderr.poll(context)?);
            ready!(out);
            ready!(err);
            if status.is_some() { Poll::Ready(io::Result::Ok(())) } else { Poll::Pending }
        })
        .await?;
        let Some(status) = status else { unreachable!("awaited above") };
        Ok(Output { status, stdout: stdout.into_bytes(), stderr: stderr.into_bytes() })
    }

    /// Sends a signal, by its number, to the child. Not an error if it has already ended.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("sleep").arg("60").spawn()?;
    /// child.signal(15)?; // SIGTERM
    /// assert!(!child.wait().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal, `EPERM` if the child now has a user whose processes the caller may not
    /// signal.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        self.watched.process.child.signal(signal)
    }

    /// Kills the child with SIGKILL, and does not wait for its end. Not an error if it has already ended.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("sleep").arg("60").spawn()?;
    /// child.start_kill()?;
    /// assert!(!child.wait().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`signal`](Self::signal).
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.watched.process.child.kill()
    }

    /// Kills the child with SIGKILL, and waits for its end. Not an error if it has already ended.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let mut child = forkless::tokio::Command::new("sleep").arg("60").spawn()?;
    /// child.kill().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`signal`](Self::signal) and [`wait`](Self::wait).
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        self.wait().await.map(drop)
    }

    /// Asks the child to end with `signal` (15 is SIGTERM), waits for `grace` at most, kills it with SIGKILL if it
    /// still runs, and waits for its end, like [`wait`](Self::wait).
    ///
    /// A stopped child is continued, so that it can handle the signal.
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
    /// In a runtime without timers.
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
        if process.child.does_die_with_handle() {
            // An error leaves nothing else to try.
            let _ = process.child.kill();
        }
        // A child that is not watched is reaped by a later launch: the runtime may have no reactor.
        let is_reaped_here = !process.child.is_autoreaped();
        if process.is_watched() && is_reaped_here && matches!(process.try_wait(), Ok(None)) {
            // A runtime that is gone drops the future at once, and the child with it.
            drop(self.runtime.spawn(async move { process.end().await.map(drop) }));
        }
    }
}
