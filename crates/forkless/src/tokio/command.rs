//! What is to be run, for callers that await it.

use super::child::Child;
use crate::Stdio;
use crate::command::Command as Blocking;
use crate::compile::compile;
use crate::launch::run::Form;
use crate::pipes::Defaults;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::process::{ExitStatus, Output};
use std::sync::Arc;

/// A program to be started and awaited: the names and meanings of `tokio::process::Command`.
///
/// It has the builders that tokio's has; all others of [`forkless::Command`](crate::Command) are reached by
/// [`as_forkless_mut`](Self::as_forkless_mut):
///
/// ```
/// use forkless::tokio::Command;
/// use forkless::Resource;
/// # #[tokio::main]
/// # async fn main() -> std::io::Result<()> {
/// let mut command = Command::new("sh");
/// command.args(["-c", "ulimit -n"]).kill_on_drop(true);
/// command.as_forkless_mut().rlimit(Resource::Files, 77, 77);
/// assert_eq!(command.output().await?.stdout, b"77\n");
/// # Ok(())
/// # }
/// ```
///
/// Children always have a pidfd, whatever [`Command::pidfd`](crate::Command::pidfd) says.
#[derive(Debug)]
pub struct Command {
    inner: Blocking,
}

impl From<Blocking> for Command {
    fn from(inner: Blocking) -> Self {
        Self { inner }
    }
}

impl Command {
    /// As [`Command::new`](crate::Command::new).
    pub fn new<S: AsRef<OsStr>>(program: S) -> Self {
        Blocking::new(program).into()
    }

    /// The command of the blocking kind inside.
    pub fn as_forkless(&self) -> &Blocking {
        &self.inner
    }

    /// The command of the blocking kind inside, with all its builders.
    pub fn as_forkless_mut(&mut self) -> &mut Blocking {
        &mut self.inner
    }

    /// The command of the blocking kind.
    pub fn into_forkless(self) -> Blocking {
        self.inner
    }

    /// [`as_forkless`](Self::as_forkless) by tokio's name for it: what stands in std's place has the names of std's.
    pub fn as_std(&self) -> &Blocking {
        &self.inner
    }

    /// [`as_forkless_mut`](Self::as_forkless_mut) by tokio's name for it.
    pub fn as_std_mut(&mut self) -> &mut Blocking {
        &mut self.inner
    }

    /// [`into_forkless`](Self::into_forkless) by tokio's name for it.
    pub fn into_std(self) -> Blocking {
        self.inner
    }

    /// Adds one argument. No shell looks at it.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.inner.args(args);
        self
    }

    /// As [`Command::arg0`](crate::Command::arg0).
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg0: S) -> &mut Self {
        self.inner.arg0(arg0);
        self
    }

    /// Sets a variable in the child's environment.
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Self {
        self.inner.env(key, value);
        self
    }

    /// Sets variables in the child's environment.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.envs(vars);
        self
    }

    /// Removes a variable from the child's environment.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Self {
        self.inner.env_remove(key);
        self
    }

    /// Empties the child's environment; variables set afterwards are all it has.
    pub fn env_clear(&mut self) -> &mut Self {
        self.inner.env_clear();
        self
    }

    /// As [`Command::current_dir`](crate::Command::current_dir).
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Self {
        self.inner.current_dir(dir);
        self
    }

    /// The child's standard input.
    pub fn stdin<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.inner.stdin(stdio);
        self
    }

    /// The child's standard output.
    pub fn stdout<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.inner.stdout(stdio);
        self
    }

    /// The child's standard error.
    pub fn stderr<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.inner.stderr(stdio);
        self
    }

    /// As [`Command::fd`](crate::Command::fd).
    pub fn fd<T: Into<Stdio>>(&mut self, source: T, number: RawFd) -> &mut Self {
        self.inner.fd(source, number);
        self
    }

    /// As [`Command::uid`](crate::Command::uid).
    pub fn uid(&mut self, uid: u32) -> &mut Self {
        self.inner.uid(uid);
        self
    }

    /// As [`Command::gid`](crate::Command::gid).
    pub fn gid(&mut self, gid: u32) -> &mut Self {
        self.inner.gid(gid);
        self
    }

    /// As [`Command::pre_exec`](crate::Command::pre_exec), which needs `launcher(Launcher::Fork)` of
    /// [`as_forkless_mut`](Self::as_forkless_mut).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's.
        unsafe { self.inner.pre_exec(f) };
        self
    }

    /// As [`Command::process_group`](crate::Command::process_group).
    pub fn process_group(&mut self, pgroup: i32) -> &mut Self {
        self.inner.process_group(pgroup);
        self
    }

    /// As [`Command::kill_on_drop`](crate::Command::kill_on_drop), and the same setting: is the child killed (SIGKILL) when its [`Child`], or the future of [`status`](Self::status),
    /// [`output`](Self::output) or [`Child::wait_with_output`], is dropped before it has ended? Not unless told.
    pub fn kill_on_drop(&mut self, kill_on_drop: bool) -> &mut Self {
        self.inner.kill_on_drop(kill_on_drop);
        self
    }

    /// Whether [`kill_on_drop`](Self::kill_on_drop) was asked for.
    pub fn get_kill_on_drop(&self) -> bool {
        self.inner.kill_on_drop
    }

    /// Starts the program and returns when it has been executed, or with the error that kept it from being so: as
    /// [`Command::spawn`](crate::Command::spawn), which is not awaited either.
    ///
    /// # Errors
    /// An [`Error`](crate::Error) that names the step, [`Step::Check`](crate::Step::Check) where the current thread is in
    /// no tokio runtime, [`Step::Wait`](crate::Step::Wait) where the kernel has no pidfds (before Linux 5.3). Of
    /// `epoll_ctl(2)`. Nothing is left behind.
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn spawn(&mut self) -> io::Result<Child> {
        self.start(Form::Spawn)
    }

    /// Starts the program and returns as soon as the child exists, before the program has been executed: as
    /// [`Command::launch`](crate::Command::launch). What keeps the program from being executed is told by
    /// [`Child::wait`].
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), for everything up to the clone.
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn launch(&mut self) -> io::Result<Child> {
        self.start(Form::Launch)
    }

    /// Runs the program to its end. The child is started by this call; its streams that are pipes are closed at once.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let (one, other) = tokio::join!(
    ///     forkless::tokio::Command::new("true").status(),
    ///     forkless::tokio::Command::new("false").status(),
    /// );
    /// assert!(one?.success() && !other?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future gives those of [`spawn`](Self::spawn) and [`Child::wait`].
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        status(self.start(Form::Launch))
    }

    /// Runs the program to its end and gives what it wrote. The child is started by this call.
    ///
    /// As by tokio's, standard output and error are captured whatever they were set to, and standard input is the
    /// caller's unless it was set.
    ///
    /// # Errors
    /// The future gives those of [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn output(&mut self) -> impl Future<Output = io::Result<Output>> + use<> {
        self.inner.stdout(Stdio::piped()).stderr(Stdio::piped());
        output(self.start(Form::Launch))
    }

    /// Does the work that all runs share, once: as [`Command::prepare`](crate::Command::prepare).
    ///
    /// # Errors
    /// As there.
    pub fn prepare(&mut self) -> io::Result<Prepared> {
        Ok(self.inner.prepare()?.into())
    }

    fn start(&mut self, form: Form) -> io::Result<Child> {
        let plan = Arc::new(compile(&self.inner, false)?);
        Child::start(&plan, form, Defaults::Inherit, plan.kill_on_drop)
    }
}

/// A command prepared once, to be run often and awaited.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> std::io::Result<()> {
/// use forkless::tokio::Prepared;
/// let prepared = Prepared::from(forkless::Command::new("true").prepare()?);
/// let running: Vec<_> = (0..3).map(|_| tokio::spawn(prepared.status())).collect();
/// for status in running {
///     assert!(status.await??.success());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Prepared {
    inner: crate::Prepared,
    kill_on_drop: bool,
}

impl From<crate::Prepared> for Prepared {
    fn from(inner: crate::Prepared) -> Self {
        let kill_on_drop = inner.plan().kill_on_drop;
        Self { inner, kill_on_drop }
    }
}

impl Prepared {
    /// As [`Command::kill_on_drop`], in place of what the command said.
    pub fn kill_on_drop(&mut self, kill_on_drop: bool) -> &mut Self {
        self.kill_on_drop = kill_on_drop;
        self
    }

    /// As [`Command::spawn`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn spawn(&self) -> io::Result<Child> {
        self.start(Form::Spawn, Defaults::Inherit)
    }

    /// As [`Command::launch`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn launch(&self) -> io::Result<Child> {
        self.start(Form::Launch, Defaults::Inherit)
    }

    /// As [`Command::status`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn status(&self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        status(self.start(Form::Launch, Defaults::Inherit))
    }

    /// As [`Prepared::output`](crate::Prepared::output): unless the command said otherwise, standard input is empty and the
    /// two outputs are captured.
    ///
    /// # Errors
    /// As for [`Command::output`].
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn output(&self) -> impl Future<Output = io::Result<Output>> + use<> {
        output(self.start(Form::Launch, Defaults::Capture))
    }

    fn start(&self, form: Form, defaults: Defaults) -> io::Result<Child> {
        Child::start(self.inner.plan(), form, defaults, self.kill_on_drop)
    }
}

/// The end of a child that was started, or not.
async fn status(started: io::Result<Child>) -> io::Result<ExitStatus> {
    let mut child = started?;
    // Nobody reads or writes them; the child must not wait for us.
    drop((child.stdout.take(), child.stderr.take()));
    child.wait().await
}

/// The end and the output of a child that was started, or not.
async fn output(started: io::Result<Child>) -> io::Result<Output> {
    started?.wait_with_output().await
}
