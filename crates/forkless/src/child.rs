//! The handle of a child.

use crate::capture::{drive::Drive, reader};
use crate::compile::Plan;
use crate::error::Error;
use crate::kernel;
use crate::launch::{self, Form, Route, Run, Stack};
use crate::orphan::{self, Orphan};
use crate::output::{Chunks, Lines};
use crate::pipes::{self, Defaults, Pipes};
use crate::process;
use crate::usage::Usage;
use crate::wait::{self, Ended};
use crate::zygote::Request;
use forkless_core::frame::LEFT;
use forkless_core::sys::signal::SIGKILL;
use forkless_core::{planted, sys};
use std::ffi::OsString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod host;

mod signal;

/// A child process: the names and meanings of [`std::process::Child`], and more.
///
/// Dropping it neither kills the child nor leaves a zombie: a child that ends later is reaped by a later launch, or by
/// [`reap_orphans`](crate::reap_orphans).
#[derive(Debug)]
pub struct Child {
    /// First, so that a child that dies with its handle has been killed before its streams are closed.
    inner: Inner,
    /// The other end of the child's standard input, if it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The other end of the child's standard output, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The other end of the child's standard error, if it is a pipe.
    pub stderr: Option<ChildStderr>,
}

/// What a dropped handle leaves behind. Not [`Child`] itself is dropped: nothing could be moved out of that then.
#[derive(Debug)]
struct Inner {
    /// What the kernel is asked about the child by; [`wait::NOBODY`] for one that is autoreaped.
    pid: i32,
    /// Its process id.
    id: i32,
    pidfd: Option<OwnedFd>,
    state: State,
    pending: Option<Pending>,
    sockets: Vec<(RawFd, OwnedFd)>,
    back: Option<RawFd>,
    usage: Option<Usage>,
    missed: Vec<Error>,
    started: Instant,
    route: Route,
    kill_on_drop: bool,
    /// It is killed when its pidfd is closed, which is when the handle is dropped.
    autokill: bool,
    /// It leads its process group.
    leads_group: bool,
}

/// What has become of a child: from [`Child::wait_change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It has been stopped by this signal.
    Stopped(i32),
    /// It goes on, after SIGCONT.
    Continued,
    /// It has ended. `std::os::unix::process::ExitStatusExt` tells the signal, and whether a core was dumped.
    Ended(ExitStatus),
}

#[derive(Debug)]
enum State {
    Running,
    Ended(ExitStatus),
    /// It has never executed its program.
    Failed(Error),
    /// Somebody else reaped it, and its status with it.
    Lost,
}

/// What a child may be using as long as it has not left our memory.
pub(crate) struct Pending {
    stack: Stack,
    plan: ManuallyDrop<Arc<Plan>>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Pending")
    }
}

// A panic leaves it as it was: it is looked at, and dropped.
impl UnwindSafe for Pending {}
impl RefUnwindSafe for Pending {}

impl Pending {
    pub(crate) fn has_left(&self) -> bool {
        self.stack.has_left()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Nothing the child reads may be freed before it has left. If whoever drops this cannot know, the plan stays.
        if !self.stack.shares_memory() || self.has_left() || planted!("plan-freed-in-flight") {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.plan) };
        }
    }
}

impl Child {
    pub(crate) fn spawn(plan: &Arc<Plan>) -> io::Result<Self> {
        Self::start(plan, Form::Spawn, Defaults::Inherit, true)
    }

    pub(crate) fn launch(plan: &Arc<Plan>) -> io::Result<Self> {
        Self::start(plan, Form::Launch, Defaults::Inherit, true)
    }

    /// Starts a child; `pidfd`: if the command says nothing about it.
    pub(crate) fn start(plan: &Arc<Plan>, form: Form, defaults: Defaults<'_>, pidfd: bool) -> io::Result<Self> {
        Self::start_with(plan, form, defaults, plan.pidfd.unwrap_or(pidfd))
    }

    /// Starts a child; `pidfd`: whatever the command says.
    pub(crate) fn start_with(plan: &Arc<Plan>, form: Form, defaults: Defaults<'_>, pidfd: bool) -> io::Result<Self> {
        Self::start_by(None, plan, form, defaults, pidfd)
    }

    /// Starts a child; `zygote`: who clones it, if not we.
    pub(crate) fn start_by(
        zygote: Option<Request<'_>>,
        plan: &Arc<Plan>,
        form: Form,
        defaults: Defaults<'_>,
        pidfd: bool,
    ) -> io::Result<Self> {
        let pipes = Pipes::make(plan, defaults)?;
        let run = Run { zygote, slots: pipes.slots, only_pipes: pipes.only_pipes, pidfd, form };
        let running = launch::run(plan, &run)?;
        let [stdin, stdout, stderr] = pipes.ours;
        let mut inner = Inner {
            pid: running.pid,
            id: running.id,
            pidfd: running.pidfd,
            state: State::Running,
            pending: None,
            sockets: pipes.sockets,
            back: plan.back,
            usage: None,
            missed: Vec::new(),
            started: running.started,
            route: running.route,
            kill_on_drop: plan.kill_on_drop,
            autokill: plan.is_autokilled(),
            leads_group: plan.leads_group,
        };
        if running.left {
            inner.missed = launch::missed(&running.stack, plan);
        } else {
            inner.pending = Some(Pending { stack: running.stack, plan: ManuallyDrop::new(Arc::clone(plan)) });
        }
        Ok(Self {
            inner,
            stdin: stdin.map(ChildStdin::from),
            stdout: stdout.map(ChildStdout::from),
            stderr: stderr.map(ChildStderr::from),
        })
    }

    /// The process id. It names this child until it has been waited for; an [autoreaped](crate::Command::autoreap) one until it ends.
    pub fn id(&self) -> u32 {
        self.inner.id as u32
    }

    /// The pidfd, which names this child for ever. None if [`Command::pidfd`](crate::Command::pidfd) said so.
    ///
    /// It is readable (poll, epoll) when the child has ended.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// The way this child was launched, and why that one.
    pub fn route(&self) -> Route {
        self.inner.route
    }

    /// The parent's end of the [`Stdio::socketpair`](crate::Stdio::socketpair) at the child's descriptor `number`.
    pub fn take_socket(&mut self, number: RawFd) -> Option<OwnedFd> {
        let at = self.inner.sockets.iter().position(|(theirs, _)| *theirs == number)?;
        Some(self.inner.sockets.swap_remove(at).1)
    }

    /// The next descriptor that the child has handed [back](crate::Command::hand_back), in the order in which that was
    /// asked for; none if there is no further one. After [`launch`](crate::Command::launch) it waits for it.
    ///
    /// # Errors
    /// EMFILE.
    pub fn take_handed_back(&mut self) -> io::Result<Option<OwnedFd>> {
        let Some(number) = self.inner.back else { return Ok(None) };
        match self.inner.sockets.iter().find(|(theirs, _)| *theirs == number) {
            Some((_, socket)) => pipes::receive(socket),
            None => Ok(None),
        }
    }

    /// The child's input ends: its standard input, and what it could read from sockets that nobody has taken.
    pub(crate) fn end_input(&mut self) {
        if !planted!("input-not-ended") {
            drop(self.stdin.take());
        }
        for (_, socket) in &self.inner.sockets {
            // A child that has closed its end has no input either.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }

    /// What the child has used; none before it has been waited for, or if another part of the program reaped it.
    pub fn usage(&self) -> Option<&Usage> {
        self.inner.usage.as_ref()
    }

    /// The [best-effort](crate::Command::best_effort) steps that failed; complete after
    /// [`wait_exec`](Self::wait_exec).
    pub fn missed(&self) -> &[Error] {
        &self.inner.missed
    }

    /// Waits until the program has been executed.
    ///
    /// After [`spawn`](crate::Command::spawn) that has happened, unless the child was stopped.
    ///
    /// # Errors
    /// The step that failed. The child is gone then.
    pub fn wait_exec(&mut self) -> io::Result<()> {
        while !self.look_for_exec(None)? {}
        Ok(())
    }

    /// Waits until the program has been executed, for `limit` at most; says whether it has been.
    ///
    /// # Errors
    /// As for [`wait_exec`](Self::wait_exec).
    pub fn wait_exec_timeout(&mut self, limit: Duration) -> io::Result<bool> {
        // A limit beyond what the clock holds is no limit.
        self.look_for_exec(Instant::now().checked_add(limit))
    }

    fn look_for_exec(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        if let State::Failed(error) = &self.inner.state {
            return Err(error.clone().into());
        }
        loop {
            let Some(pending) = &self.inner.pending else { return Ok(true) };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if launch::wait_while(&pending.stack, self.inner.id, left, |word| word != LEFT) {
                self.settle()?;
                return Ok(true);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
        }
    }

    /// The child has left our memory: has it become the program?
    fn settle(&mut self) -> Result<(), Error> {
        let Some(pending) = self.inner.pending.take() else { return Ok(()) };
        self.inner.missed = launch::missed(&pending.stack, &pending.plan);
        let killed = pending.plan.is_filtered
            && matches!(self.inner.state, State::Running)
            && !launch::has_executed(&pending.stack, self.inner.pid);
        let failed = launch::failed(&pending.stack, &pending.plan).filter(|_| !planted!("late-failure-not-seen"));
        let Some(outcome) = failed else {
            if !killed {
                return Ok(());
            }
            let status = wait::reap(self.inner.pid, self.inner.pidfd.as_ref());
            let error = launch::killed_in_exec(&pending.plan, status);
            self.inner.state = State::Failed(error.clone());
            return Err(error);
        };
        let status = match self.inner.state {
            State::Running => wait::reap(self.inner.pid, self.inner.pidfd.as_ref()),
            State::Ended(status) => Some(status),
            State::Failed(_) | State::Lost => None,
        };
        let error = launch::launch_error(outcome, &pending.stack, &pending.plan, status, self.inner.route);
        self.inner.state = State::Failed(error.clone());
        Err(error)
    }

    /// Gives the child up: it is the caller's to wait for, by `waitpid(2)`, which sees it only once it has executed its program.
    ///
    /// # Errors
    /// Why it has not done that.
    #[doc(hidden)]
    pub fn release(mut self) -> io::Result<Released> {
        if self.inner.pid == wait::NOBODY {
            return Err(Error::check(&self.name(), "nobody else can wait for an autoreaped child").into());
        }
        self.wait_exec()?;
        // It may have been killed in exec, where there is no turning back and nothing done yet.
        if matches!(self.inner.state, State::Running) && !launch::is_program(self.inner.pid) {
            let status = wait::reap(self.inner.pid, self.inner.pidfd.as_ref());
            self.inner.state = State::Lost;
            return Ok(Released::Killed(status.and_then(|status| status.signal()).unwrap_or(SIGKILL)));
        }
        self.inner.state = State::Lost;
        Ok(Released::Running { pid: self.inner.id, pidfd: self.inner.pidfd.take() })
    }

    /// Waits for the child to end. Its standard input is closed first, and sockets that nobody has taken
    /// give it no more input, so that it cannot wait for us.
    ///
    /// # Errors
    /// After [`launch`](crate::Command::launch): why the program could not be executed. `ECHILD` inside if another part
    /// of the program reaped the child and the handle has no pidfd (or the kernel is older than 6.15).
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.end_input();
        if let Some(answer) = self.known() {
            return answer;
        }
        if self.is_filtered() {
            self.wait_exec()?;
        }
        let ended = wait::wait(self.inner.pid, self.inner.pidfd.as_ref(), self.inner.started);
        self.end(ended)
    }

    /// The exit status if the child has ended.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(answer) = self.known() {
            return answer.map(Some);
        }
        if self.is_filtered() {
            match &self.inner.pending {
                Some(pending)
                    if !launch::wait_while(&pending.stack, self.inner.id, Some(Duration::ZERO), |word| {
                        word != LEFT
                    }) =>
                {
                    return Ok(None);
                }
                _ => self.settle()?,
            }
        }
        match wait::try_wait(self.inner.pid, self.inner.pidfd.as_ref(), self.inner.started) {
            Ok(None) => Ok(None),
            Ok(Some(ended)) => self.end(Ok(ended)).map(Some),
            Err(error) => self.end(Err(error)).map(Some),
        }
    }

    /// Waits for the child to end, for `limit` at most; none if it has not ended by then.
    ///
    /// Sleeps on a pidfd; there is no polling and no thread, except where pidfds are refused: there it looks at growing
    /// intervals of at most 20 ms. The child's standard input stays open.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if let Some(answer) = self.known() {
            return answer.map(Some);
        }
        wait::wait_ended(self.inner.pid, self.inner.pidfd.as_ref(), limit)?;
        self.try_wait()
    }

    /// May a filter of the child's have killed it in exec? That can only be seen before it is reaped.
    fn is_filtered(&self) -> bool {
        self.inner.pending.as_ref().is_some_and(|pending| pending.plan.is_filtered)
    }

    /// Does it lead its process group?
    pub(crate) fn leads_group(&self) -> bool {
        self.inner.leads_group
    }

    /// Neither reaped nor lost, as far as we know.
    pub(crate) fn is_running(&self) -> bool {
        self.inner.is_running()
    }

    /// The pidfd; opened now if there is none.
    pub(crate) fn pidfd_or_open(&mut self) -> Result<BorrowedFd<'_>, Error> {
        if self.inner.pidfd.is_none() {
            let pidfd = kernel::pidfd_open(self.inner.pid).map_err(|errno| {
                Error::new(&self.name(), crate::Step::Wait, errno).note("it takes a pidfd, which cannot be had")
            })?;
            if wait::is_reaped(self.inner.pid, Some(&pidfd)) && !planted!("pidfd-of-a-stranger") {
                // By another, and the pid is a stranger's by now.
                return Err(Error::new(&self.name(), crate::Step::Wait, sys::errno::ESRCH));
            }
            self.inner.pidfd = Some(pidfd);
        }
        match &self.inner.pidfd {
            Some(pidfd) => Ok(pidfd.as_fd()),
            None => unreachable!("opened above"),
        }
    }

    /// What it is called in errors that come when its plan is gone.
    fn name(&self) -> OsString {
        format!("pid {}", self.inner.id).into()
    }

    fn known(&self) -> Option<io::Result<ExitStatus>> {
        match &self.inner.state {
            State::Running => None,
            State::Ended(status) => Some(Ok(*status)),
            State::Failed(error) => Some(Err(error.clone().into())),
            State::Lost => Some(Err(io::Error::from_raw_os_error(sys::errno::ECHILD))),
        }
    }

    fn end(&mut self, ended: io::Result<Ended>) -> io::Result<ExitStatus> {
        match ended {
            Ok(ended) => {
                self.inner.state = State::Ended(ended.status);
                self.inner.usage = ended.usage;
                self.settle()?;
                Ok(ended.status)
            }
            Err(error) => {
                if Error::of(&error).is_some_and(|error| error.errno() == Some(sys::errno::ECHILD)) {
                    self.inner.state = State::Lost;
                    self.settle()?;
                }
                Err(error)
            }
        }
    }

    /// Waits for the child to end and gives what it wrote to the pipes that are still here.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and any error of reading.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        self.end_input();
        let drive = Drive::plain(self.stdout.take().map(Into::into), self.stderr.take().map(Into::into));
        let [stdout, stderr] = drive.run(&mut [])?.readers.map(|reader| reader::finish(reader).0);
        Ok(Output { status: self.wait()?, stdout, stderr })
    }

    /// What the child writes to the pipes of its standard output and error, as it comes, with the stream it came from: at most
    /// 64 KiB at a time. It takes the pipes out of this handle; when both have ended, so has the iterator.
    ///
    /// The two streams are two pipes: what was written to them within microseconds may come in another order. Where the order
    /// matters let them be one, with `stderr(Stdio::dup_of(1))`.
    pub fn chunks(&mut self) -> Chunks {
        Chunks::new(self.stdout.take().map(Into::into), self.stderr.take().map(Into::into))
    }

    /// The same line by line, without the newlines. What the program writes last is a line too if no newline ends it; a line
    /// longer than 1 MiB comes in pieces.
    ///
    /// ```
    /// use forkless::{Command, Stdio, Stream};
    /// let mut child = Command::new("printf").arg("one\ntwo").stdout(Stdio::piped()).spawn()?;
    /// let lines: Vec<_> = child.lines().collect::<Result<_, _>>()?;
    /// assert_eq!(lines, [(Stream::Stdout, b"one".to_vec()), (Stream::Stdout, b"two".to_vec())]);
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lines(&mut self) -> Lines {
        Lines::new(self.chunks())
    }

    /// Waits until the child is stopped, goes on or ends, for `limit` at most if there is one; none if it did neither.
    ///
    /// A stop is told once, and only to one: another part of the program that asks for stops (`waitpid(-1)` with WUNTRACED) may
    /// have been told instead. The child's standard input stays open. Source: `waitid(2)` WSTOPPED, WCONTINUED.
    ///
    /// ```
    /// use forkless::{Change, Command, Stdio};
    /// let mut child = Command::new("sh").args(["-c", "kill -STOP $$; read line; exit 3"]).stdin(Stdio::piped()).spawn()?;
    /// assert_eq!(child.wait_change(None)?, Some(Change::Stopped(19)));
    /// child.signal(18)?;
    /// assert_eq!(child.wait_change(None)?, Some(Change::Continued));
    /// drop(child.stdin.take());
    /// assert!(matches!(child.wait_change(None)?, Some(Change::Ended(status)) if status.code() == Some(3)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_change(&mut self, limit: Option<Duration>) -> io::Result<Option<Change>> {
        if let Some(answer) = self.known() {
            return answer.map(|status| Some(Change::Ended(status)));
        }
        match wait::change(self.inner.pid, self.inner.pidfd.as_ref(), limit)? {
            Some(wait::News::Ended) => self.try_wait().map(|status| status.map(Change::Ended)),
            Some(wait::News::Stopped(signal)) => Ok(Some(Change::Stopped(signal))),
            Some(wait::News::Continued) => Ok(Some(Change::Continued)),
            None => Ok(None),
        }
    }

    /// Should the child be killed with SIGKILL when this handle is dropped? See
    /// [`Command::kill_on_drop`](crate::Command::kill_on_drop).
    pub fn kill_on_drop(&mut self, kill: bool) {
        self.inner.kill_on_drop = kill;
    }

    /// Does the kernel reap it?
    #[cfg(feature = "tokio")]
    pub(crate) fn is_autoreaped(&self) -> bool {
        self.inner.pid == wait::NOBODY
    }

    /// Is it to be killed now that its handle is dropped?
    #[cfg(feature = "tokio")]
    pub(crate) fn dies_with_handle(&self) -> bool {
        self.inner.dies_with_handle()
    }
}

impl Inner {
    fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    /// Is it to be killed now that its handle is dropped? Not in a forked copy of this process, whose child it is not.
    fn dies_with_handle(&self) -> bool {
        let is_ours = !wait::is_reaped(self.pid, self.pidfd.as_ref()) || planted!("killed-by-a-copy");
        (self.kill_on_drop || self.autokill) && self.is_running() && is_ours
    }
}

/// What became of a child that was [given up](Child::release).
#[doc(hidden)]
#[derive(Debug)]
pub enum Released {
    /// It is running its program, or has ended.
    Running {
        /// Its process id.
        pid: i32,
        /// Its pidfd, if it has one.
        pidfd: Option<OwnedFd>,
    },
    /// It was killed by this signal in exec, and nothing is left of it.
    Killed(i32),
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !matches!(self.state, State::Running) {
            return;
        }
        if self.dies_with_handle() && !planted!("handle-kills-nobody") {
            // An error leaves nothing else to try.
            let _ = self.signal(SIGKILL);
        }
        let has_gone = match self.pid {
            // It may still be in our memory. Its pidfd is closed now, which is what kills one of `pidfd_autokill`.
            wait::NOBODY => self.pending.as_ref().is_none_or(Pending::has_left),
            pid => wait::has_gone(pid, self.pidfd.as_ref()),
        };
        if !has_gone {
            let pidfd = self.pidfd.take().filter(|_| self.pid != wait::NOBODY);
            let pending = self.pending.take();
            if planted!("dropped-child-forgotten") {
                return;
            }
            orphan::adopt(Orphan { pid: self.pid, pidfd, pending, parent: process::generation() });
        }
    }
}
