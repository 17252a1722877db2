//! The handle of a child.

use crate::child::orphan::Orphan;
use crate::error::Error;
use crate::kernel::{self, SIGKILL};
use crate::launch::cloned::late_error;
use crate::launch::pending::Pending;
use crate::launch::pipes::{self, Pipes, Theirs};
use crate::launch::run::{Origin, Running};
use crate::launch::wait::{self, Reaped};
use crate::launch::watch;
use crate::plan::Plan;
use crate::process;
use crate::request::command::LaunchGroup;
use crate::route::Route;
use crate::step::Step;
use crate::usage::{LimitEvents, Usage};
use forkless_core::frame::LEFT;
use forkless_core::sys;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod ending;
mod group;
mod held;
mod host;
mod init;
mod limits;
pub(crate) mod orphan;
mod release;
mod signal;
pub(crate) mod wait_set;

pub use ending::Ending;
use init::InitLink;
pub use release::Released;

/// A child process: the names and meanings of [`std::process::Child`], and more.
///
/// Dropping it does not kill the child, and leaves no zombie: a child that ends later is reaped by a later launch, or
/// by [`reap_orphans`](crate::reap_orphans).
///
/// ```
/// use forkless::{Command, Stdio};
/// use std::io::Read;
/// let mut child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
/// let mut text = String::new();
/// child.stdout.take().unwrap().read_to_string(&mut text)?;
/// assert_eq!(text, "hello\n");
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Child {
    /// The first field, so that with `kill_on_drop` the child is killed before its streams are closed.
    inner: Inner,
    /// The other end of the child's standard input, if it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The other end of the child's standard output, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The other end of the child's standard error, if it is a pipe.
    pub stderr: Option<ChildStderr>,
}

/// The part that has a `Drop`. [`Child`] itself has none, so that fields can be moved out of it.
#[derive(Debug)]
struct Inner {
    /// The PID for waits and signals; [`wait::NOBODY`] if the child is autoreaped.
    pid: i32,
    /// The process ID.
    id: i32,
    pidfd: Option<OwnedFd>,
    state: State,
    pending: Option<Pending>,
    /// The child's ends of its pipes, until it has taken them: of a launch that does not wait for that.
    held: Option<Theirs>,
    sockets: Vec<(RawFd, OwnedFd)>,
    back: Option<RawFd>,
    /// The connection to the init that executes the program.
    init: Option<InitLink>,
    exec: Option<OwnedFd>,
    /// Its own cgroup. Dropping it kills what is in it.
    group: Option<Box<dyn LaunchGroup>>,
    limit_events: Option<LimitEvents>,
    usage: Option<Usage>,
    skipped: Vec<Error>,
    started: Instant,
    route: Route,
    origin: Option<Box<dyn Origin>>,
    kill_on_drop: bool,
    /// The kernel kills the child when its pidfd is closed, which is when the handle is dropped.
    autokill: bool,
    /// The child leads its process group.
    leads_group: bool,
}

/// A change of a child's state: from [`Child::wait_change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// This signal has stopped it.
    Stopped(i32),
    /// It continues, after SIGCONT.
    Continued,
    /// It has ended. `std::os::unix::process::ExitStatusExt` has the signal that killed it, and whether it dumped core.
    Ended(ExitStatus),
}

#[derive(Debug)]
enum State {
    Running,
    Ended(ExitStatus),
    /// It has not executed its program.
    Failed(Error),
    /// Another part of the program reaped it, and its status is lost.
    Lost,
}

impl Child {
    /// The handle of a child that has been launched.
    ///
    /// `holds`: the launch did not wait until the child had taken its ends of the pipes.
    pub(crate) fn new(running: Running, mut pipes: Pipes, plan: &Arc<Plan>, holds: bool) -> Self {
        let [stdin, stdout, stderr] = pipes.ours;
        let held = (holds && !running.left).then_some(pipes.theirs);
        let mut inner = Inner {
            pid: running.pid,
            id: running.id,
            pidfd: running.pidfd,
            state: State::Running,
            pending: None,
            held,
            init: InitLink::take(&mut pipes.sockets, plan),
            sockets: pipes.sockets,
            back: plan.fds.back,
            exec: pipes.exec.filter(|_| !running.left),
            group: None,
            limit_events: None,
            usage: None,
            skipped: Vec::new(),
            started: running.started,
            route: running.route,
            origin: running.origin,
            kill_on_drop: plan.kill_on_drop,
            autokill: plan.is_autokilled(),
            leads_group: plan.leads_group,
        };
        if running.left {
            inner.skipped = watch::skipped(&running.stack, plan);
        } else {
            inner.pending = Some(Pending::new(running.stack, plan));
        }
        Self {
            inner,
            stdin: stdin.map(ChildStdin::from),
            stdout: stdout.map(ChildStdout::from),
            stderr: stderr.map(ChildStderr::from),
        }
    }

    /// The process ID. It names this child until the child has been waited for; an
    /// [autoreaped](crate::Command::autoreap) child until it ends.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let child = Command::new("sh").args(["-c", "echo $$"]).stdout(Stdio::piped()).spawn()?;
    /// let id = child.id();
    /// assert_eq!(child.wait_with_output()?.stdout, format!("{id}\n").into_bytes());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn id(&self) -> u32 {
        self.inner.id as u32
    }

    /// The pidfd, which always names this child and never another process. `None` if
    /// [`Command::pidfd`](crate::Command::pidfd) turned it off.
    ///
    /// It becomes readable (poll, epoll) when the child has ended. `pidfd_open(2)`
    ///
    /// ```
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// let mut child = forkless::Command::new("true").spawn()?;
    /// if let Some(pidfd) = child.pidfd() {
    ///     poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None)?;
    /// }
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// The method by which this child was launched, with its fallbacks. Its `Display` is one line of text for a log.
    ///
    /// ```
    /// let mut child = forkless::Command::new("true").spawn()?;
    /// println!("launched by {}", child.route());
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn route(&self) -> Route {
        self.inner.route
    }

    /// Why a [`Warm`](crate::warm::Warm) has not launched this child from a template. `None` if it has, or if it was not
    /// to launch the child.
    ///
    /// ```no_run
    /// let warm = forkless::warm::Warm::of_process()?;
    /// let mut child = forkless::Command::new("true").warm(&warm).spawn()?;
    /// println!("{}", child.cold_reason().unwrap_or("warm"));
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(all(feature = "warm", target_arch = "x86_64", target_env = "gnu"))]
    pub fn cold_reason(&self) -> Option<&str> {
        self.inner.origin.as_ref()?.cold_reason()
    }

    /// Takes the caller's end of the [`Stdio::socketpair`](crate::Stdio::socketpair) at the child's descriptor
    /// `number`. `None` if there is none at that number, or it has been taken.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::{io::Read, io::Write, os::unix::net::UnixStream};
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "read line <&3; echo \"got $line\" >&3"]).fd(Stdio::socketpair(), 3);
    /// let mut child = command.spawn()?;
    /// let mut socket = UnixStream::from(child.take_socket(3).expect("made for this child"));
    /// socket.write_all(b"hello\n")?;
    /// let mut reply = String::new();
    /// socket.read_to_string(&mut reply)?;
    /// assert_eq!(reply, "got hello\n");
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_socket(&mut self, number: RawFd) -> Option<OwnedFd> {
        let at = self.inner.sockets.iter().position(|(theirs, _)| *theirs == number)?;
        Some(self.inner.sockets.swap_remove(at).1)
    }

    /// Takes the next descriptor that the child has handed [back](crate::Command::hand_back), in the order of the calls
    /// of `hand_back`. `None` when there is no further one.
    ///
    /// After [`launch`](crate::Command::launch) it waits until the child has sent it.
    ///
    /// ```
    /// use forkless::{CallArg, Command};
    /// const OPENAT: u32 = if cfg!(target_arch = "x86_64") { 257 } else { 56 };
    /// let mut command = Command::new("true");
    /// // SAFETY: openat(2) of a directory changes nothing but the child's own descriptor table.
    /// unsafe { command.call(OPENAT, [CallArg::Number(-100i64 as u64), "/".into(), 0.into()], Some(0)) };
    /// let mut child = command.hand_back(0).spawn()?;
    /// let root = child.take_handed_back()?.expect("the child opened it");
    /// assert!(std::fs::File::from(root).metadata()?.is_dir());
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// Ends the child's input: its standard input, and the writing direction of sockets that were not taken.
    #[doc(hidden)]
    pub fn end_input(&mut self) {
        drop(self.stdin.take());
        for (_, socket) in &self.inner.sockets {
            // A child that has closed its end has no input either.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }

    /// The resources that the child has used. `None` before it has been waited for, and if another part of the program
    /// reaped it.
    ///
    /// ```
    /// let mut child = forkless::Command::new("true").spawn()?;
    /// child.wait()?;
    /// if let Some(usage) = child.usage() {
    ///     println!("{:?} of CPU time, {} KiB of memory", usage.user_time + usage.system_time, usage.max_rss_kib);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn usage(&self) -> Option<&Usage> {
        self.inner.usage.as_ref()
    }

    /// The [best-effort](crate::Command::best_effort) steps that failed and were skipped. The list is complete after
    /// [`wait_exec`](Self::wait_exec).
    ///
    /// ```
    /// use forkless::{Command, Step};
    /// let mut command = Command::new("true");
    /// command.oom_score_adj(-500).best_effort(Step::OomScore);
    /// let mut child = command.spawn()?;
    /// for error in child.skipped() {
    ///     eprintln!("{error}"); // without privileges: that oom_score_adj could not be set
    /// }
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn skipped(&self) -> &[Error] {
        &self.inner.skipped
    }

    /// Waits until the program has been executed.
    ///
    /// After [`spawn`](crate::Command::spawn) that has already happened, unless the child was stopped before it.
    ///
    /// ```
    /// use forkless::{Command, Error, Step};
    /// // A launch that takes long enough reports the failure itself.
    /// let executed = Command::new("/no/such/program").launch().and_then(|mut child| child.wait_exec());
    /// let error = executed.unwrap_err();
    /// assert_eq!(Error::of(&error).map(Error::step), Some(Step::Exec));
    /// ```
    ///
    /// # Errors
    /// The step that failed. The child is gone then.
    pub fn wait_exec(&mut self) -> io::Result<()> {
        while !self.look_for_exec(None)? {}
        Ok(())
    }

    /// Waits until the program has been executed, for `limit` at most. Returns whether it has been.
    ///
    /// ```
    /// use std::time::Duration;
    /// let mut child = forkless::Command::new("true").launch()?;
    /// if !child.wait_exec_timeout(Duration::from_secs(60))? {
    ///     eprintln!("process {} has not come to its program", child.id());
    /// }
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
            let Some(pending) = &self.inner.pending else { return self.look_for_program(deadline) };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if watch::wait_while(&pending.stack, self.inner.id, left, |word| word != LEFT) {
                self.settle()?;
                return self.look_for_program(deadline);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
        }
    }

    /// Handles a child that has left the caller's memory. An error if it has not executed its program.
    fn settle(&mut self) -> Result<(), Error> {
        self.inner.held = None;
        let Some(pending) = self.inner.pending.take() else { return Ok(()) };
        self.inner.exec = None;
        self.inner.skipped.extend(watch::skipped(&pending.stack, &pending.plan));
        let is_running = matches!(self.inner.state, State::Running);
        let outcome = match watch::result(&pending.stack, &pending.plan) {
            Err(outcome) => outcome,
            Ok(())
                if is_running
                    && pending.plan.place.is_filtered
                    && !watch::has_executed(&pending.stack, self.inner.pid) =>
            {
                watch::killed_in_exec(&pending.plan)
            }
            Ok(()) => return Ok(()),
        };
        let status = match self.inner.state {
            State::Running => wait::reap(self.inner.pid, self.inner.pidfd.as_ref()),
            State::Ended(status) => Some(status),
            State::Failed(_) | State::Lost => None,
        };
        let error = late_error(outcome, &pending.stack, &pending.plan, status, self.inner.route);
        self.inner.state = State::Failed(error.clone());
        Err(error)
    }

    /// Waits for the child to end, and returns its exit status.
    ///
    /// It first closes the child's standard input, and shuts down the writing direction of sockets that were not
    /// [taken](Self::take_socket), so that a child that reads to the end of its input does not wait for the caller.
    ///
    /// ```
    /// let mut child = forkless::Command::new("sh").args(["-c", "exit 3"]).spawn()?;
    /// assert_eq!(child.wait()?.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// Returns the exit status if the child has ended, and `None` while it runs. Does not block.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
    /// assert!(child.try_wait()?.is_none());
    /// drop(child.stdin.take()); // the end of its input
    /// child.wait()?;
    /// assert!(child.try_wait()?.is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
                    if !watch::wait_while(&pending.stack, self.inner.id, Some(Duration::ZERO), |word| word != LEFT) =>
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

    /// Waits for the child to end, for `limit` at most. `None` if it has not ended by then.
    ///
    /// Sleeps on a pidfd, without a thread and without polling. Where pidfds are refused, it polls at growing intervals
    /// of at most 20 ms. The child's standard input stays open.
    ///
    /// ```
    /// use std::time::Duration;
    /// let mut child = forkless::Command::new("sleep").arg("60").spawn()?;
    /// if child.wait_timeout(Duration::from_millis(10))?.is_none() {
    ///     child.kill()?;
    /// }
    /// assert!(!child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if let Some(answer) = self.known() {
            return answer.map(Some);
        }
        /// Between two looks at a child that has ended, of which its tracer is notified first: see `ptrace(2)`.
        const TRACED: Duration = Duration::from_millis(20);
        let deadline = Instant::now().checked_add(limit);
        wait::wait_ended(self.inner.pid, self.inner.pidfd.as_ref(), limit)?;
        loop {
            let status = self.try_wait()?;
            let left = deadline.map_or(TRACED, |deadline| deadline.saturating_duration_since(Instant::now()));
            if status.is_some() || left.is_zero() {
                return Ok(status);
            }
            sys::pause(left.min(TRACED));
        }
    }

    /// Whether a seccomp filter of the child may have killed it in exec. That can be determined only until it is reaped.
    fn is_filtered(&self) -> bool {
        self.inner.pending.as_ref().is_some_and(|pending| pending.plan.place.is_filtered)
    }

    /// Whether it leads its process group.
    pub(crate) fn is_group_leader(&self) -> bool {
        self.inner.leads_group
    }

    /// Whether this handle has neither reaped nor lost the child.
    pub(crate) fn is_running(&self) -> bool {
        self.inner.is_running()
    }

    /// The pidfd. Opens one if there is none.
    pub(crate) fn pidfd_or_open(&mut self) -> Result<BorrowedFd<'_>, Error> {
        if self.inner.pidfd.is_none() {
            let pidfd = kernel::pidfd_open(self.inner.pid).map_err(|errno| {
                Error::new(&self.name(), Step::Wait, errno).note("this needs a pidfd, which could not be opened")
            })?;
            if wait::is_reaped(self.inner.pid, Some(&pidfd)) {
                // Another part of the program reaped it, and its PID may belong to another process.
                return Err(Error::new(&self.name(), Step::Wait, sys::errno::ESRCH));
            }
            self.inner.pidfd = Some(pidfd);
        }
        match &self.inner.pidfd {
            Some(pidfd) => Ok(pidfd.as_fd()),
            None => unreachable!("opened above"),
        }
    }

    /// Its name in errors that come after its plan was freed.
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

    fn end(&mut self, ended: io::Result<Reaped>) -> io::Result<ExitStatus> {
        match ended {
            Ok(ended) => {
                let said = self.inner.init.take().map_or(Ok(None), InitLink::end);
                let ended = Reaped { status: said.as_ref().ok().copied().flatten().unwrap_or(ended.status), ..ended };
                self.inner.state = State::Ended(ended.status);
                self.inner.usage = ended.usage;
                self.inner.end_group();
                // Only after a successful wait: otherwise the child may still run in this memory.
                if let Some(pending) = &self.inner.pending {
                    pending.stack.child_has_ended();
                }
                if let Some(origin) = &self.inner.origin {
                    origin.child_ended(ended.status);
                }
                self.settle()?;
                if let Err(error) = said {
                    self.inner.state = State::Failed(error.clone());
                    return Err(error.into());
                }
                Ok(ended.status)
            }
            Err(error) => {
                if Error::of(&error).is_some_and(|error| error.errno() == Some(sys::errno::ECHILD)) {
                    self.inner.end_group();
                    // Init may have reported the program's end, or why it did not begin, before another part of this process
                    // reaped init.
                    match self.inner.init.take().map_or(Ok(None), InitLink::end) {
                        Ok(Some(status)) => {
                            self.inner.state = State::Ended(status);
                            return Ok(status);
                        }
                        Ok(None) => {}
                        Err(error) => {
                            self.inner.state = State::Failed(error.clone());
                            return Err(error.into());
                        }
                    }
                    self.inner.state = State::Lost;
                    self.settle()?;
                }
                Err(error)
            }
        }
    }

    /// Waits until the child stops, continues or ends, for `limit` at most if it is set. `None` if nothing of this
    /// happened by then.
    ///
    /// Linux reports a stop once, to one waiter: another part of the program that waits for stops (`waitpid(-1)` with
    /// WUNTRACED) may get it instead. The child's standard input stays open. `waitid(2)` WSTOPPED, WCONTINUED.
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

    /// Sets whether the child is killed with SIGKILL when this handle is dropped. See
    /// [`Command::kill_on_drop`](crate::Command::kill_on_drop).
    ///
    /// ```
    /// let mut child = forkless::Command::new("sleep").arg("60").spawn()?;
    /// child.kill_on_drop(true);
    /// drop(child); // kills it
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill_on_drop(&mut self, kill: bool) {
        self.inner.kill_on_drop = kill;
    }

    /// Whether the kernel reaps it.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_autoreaped(&self) -> bool {
        self.inner.pid == wait::NOBODY
    }

    /// Whether dropping the handle kills it.
    #[cfg(feature = "tokio")]
    pub(crate) fn does_die_with_handle(&self) -> bool {
        self.inner.does_die_with_handle()
    }
}

impl Inner {
    fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    /// Whether dropping the handle kills it. Not in a forked copy of this process, whose child it is not.
    fn does_die_with_handle(&self) -> bool {
        let is_ours = !wait::is_reaped(self.pid, self.pidfd.as_ref());
        (self.kill_on_drop || self.autokill) && self.is_running() && is_ours
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hold_on();
        if !matches!(self.state, State::Running) {
            return;
        }
        if self.does_die_with_handle() {
            // An error leaves nothing else to try.
            let _ = self.signal(SIGKILL);
        }
        let has_gone = match self.pid {
            // It may still be in this process's memory. Closing its pidfd now kills it if it has `pidfd_autokill`.
            wait::NOBODY => self.pending.as_ref().is_none_or(Pending::has_left),
            pid => wait::has_gone(pid, self.pidfd.as_ref()),
        };
        if !has_gone {
            let pidfd = self.pidfd.take().filter(|_| self.pid != wait::NOBODY);
            let pending = self.pending.take();
            // Init ends when this socket is closed.
            let socket = self.init.take().map(InitLink::into_socket);
            let (group, parent) = (self.group.take(), process::generation());
            orphan::adopt(Orphan { pid: self.pid, pidfd, pending, socket, group, parent });
        }
    }
}
