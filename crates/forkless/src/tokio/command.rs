//! A command for callers that await its child. Longer than other files: most of it is documentation with examples.

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
/// It has the builder functions of tokio's. [`as_forkless_mut`](Self::as_forkless_mut) gives access to all others of
/// [`forkless::Command`](crate::Command):
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> std::io::Result<()> {
/// use forkless::tokio::Command;
/// use forkless::Resource;
/// let mut command = Command::new("sh");
/// command.args(["-c", "ulimit -n"]).kill_on_drop(true);
/// command.as_forkless_mut().rlimit(Resource::Files, 77, 77);
/// assert_eq!(command.output().await?.stdout, b"77\n");
/// # Ok(())
/// # }
/// ```
///
/// Children always have a pidfd, whatever [`Command::pidfd`](crate::Command::pidfd) sets.
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
    /// A command that runs `program`, like [`Command::new`](crate::Command::new): a path if it contains a slash,
    /// otherwise searched for in `PATH`.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// assert!(Command::new("true").status().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Self {
        Blocking::new(program).into()
    }

    /// The blocking command inside.
    ///
    /// ```
    /// # use forkless::tokio::Command;
    /// let command = Command::new("true");
    /// assert_eq!(command.as_forkless().get_program(), "true");
    /// ```
    pub fn as_forkless(&self) -> &Blocking {
        &self.inner
    }

    /// The blocking command inside, with all its builder functions.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let mut command = Command::new("true");
    /// command.as_forkless_mut().umask(0o077);
    /// assert!(command.status().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_forkless_mut(&mut self) -> &mut Blocking {
        &mut self.inner
    }

    /// Returns the blocking command inside.
    ///
    /// ```
    /// # use forkless::tokio::Command;
    /// let mut command = Command::new("true").into_forkless();
    /// assert!(command.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_forkless(self) -> Blocking {
        self.inner
    }

    /// The same as [`as_forkless`](Self::as_forkless), under tokio's name for it.
    ///
    /// ```
    /// # use forkless::tokio::Command;
    /// let command = Command::new("true");
    /// assert_eq!(command.as_std().get_program(), "true");
    /// ```
    pub fn as_std(&self) -> &Blocking {
        &self.inner
    }

    /// The same as [`as_forkless_mut`](Self::as_forkless_mut), under tokio's name for it.
    ///
    /// ```
    /// # use forkless::tokio::Command;
    /// let mut command = Command::new("true");
    /// command.as_std_mut().arg("ignored");
    /// ```
    pub fn as_std_mut(&mut self) -> &mut Blocking {
        &mut self.inner
    }

    /// The same as [`into_forkless`](Self::into_forkless), under tokio's name for it.
    ///
    /// ```
    /// # use forkless::tokio::Command;
    /// let mut command = Command::new("true").into_std();
    /// assert!(command.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_std(self) -> Blocking {
        self.inner
    }

    /// Adds one argument. No shell interprets it.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("echo").arg("a  b").output().await?;
    /// assert_eq!(output.stdout, b"a  b\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("echo").args(["one", "two"]).output().await?;
    /// assert_eq!(output.stdout, b"one two\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn args<I, S>(&mut self, args: I) -> &mut Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.inner.args(args);
        self
    }

    /// Sets `argv[0]`, like [`Command::arg0`](crate::Command::arg0).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("sh").arg0("name").args(["-c", "echo $0"]).output().await?;
    /// assert_eq!(output.stdout, b"name\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg0: S) -> &mut Self {
        self.inner.arg0(arg0);
        self
    }

    /// Sets a variable in the child's environment.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("sh").args(["-c", "echo $A"]).env("A", "1").output().await?;
    /// assert_eq!(output.stdout, b"1\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Self {
        self.inner.env(key, value);
        self
    }

    /// Sets variables in the child's environment.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo $A$B"]).envs([("A", "1"), ("B", "2")]);
    /// assert_eq!(command.output().await?.stdout, b"12\n");
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("sh").args(["-c", "echo $HOME"]).env_remove("HOME").output().await?;
    /// assert_eq!(output.stdout, b"\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Self {
        self.inner.env_remove(key);
        self
    }

    /// Clears the child's environment. It then has only the variables that are set after this.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("env").env_clear().env("A", "1").output().await?;
    /// assert_eq!(output.stdout, b"A=1\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn env_clear(&mut self) -> &mut Self {
        self.inner.env_clear();
        self
    }

    /// Sets the child's working directory, like [`Command::current_dir`](crate::Command::current_dir).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("pwd").current_dir("/").output().await?;
    /// assert_eq!(output.stdout, b"/\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Self {
        self.inner.current_dir(dir);
        self
    }

    /// Sets the child's standard input.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// # use forkless::tokio::Stdio;
    /// let output = Command::new("cat").stdin(Stdio::null()).output().await?;
    /// assert_eq!(output.stdout, b"");
    /// # Ok(())
    /// # }
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.inner.stdin(stdio);
        self
    }

    /// Sets the child's standard output.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// # use forkless::tokio::Stdio;
    /// let status = Command::new("echo").arg("hello").stdout(Stdio::null()).status().await?;
    /// assert!(status.success());
    /// # Ok(())
    /// # }
    /// ```
    pub fn stdout<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.inner.stdout(stdio);
        self
    }

    /// Sets the child's standard error.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// # use forkless::tokio::Stdio;
    /// let status = Command::new("ls").arg("/nowhere").stderr(Stdio::null()).status().await?;
    /// assert!(!status.success());
    /// # Ok(())
    /// # }
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.inner.stderr(stdio);
        self
    }

    /// Sets another descriptor of the child, like [`Command::fd`](crate::Command::fd).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let null = std::fs::File::open("/dev/null")?;
    /// let status = Command::new("sh").args(["-c", "cat <&3"]).fd(null, 3).status().await?;
    /// assert!(status.success());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fd<T: Into<Stdio>>(&mut self, source: T, number: RawFd) -> &mut Self {
        self.inner.fd(source, number);
        self
    }

    /// Sets the child's user, like [`Command::uid`](crate::Command::uid).
    ///
    /// ```no_run
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("id").uid(65534).gid(65534).output().await?; // needs privileges
    /// # Ok(())
    /// # }
    /// ```
    pub fn uid(&mut self, uid: u32) -> &mut Self {
        self.inner.uid(uid);
        self
    }

    /// Sets the child's group, like [`Command::gid`](crate::Command::gid).
    ///
    /// ```no_run
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("id").gid(65534).output().await?; // needs privileges
    /// # Ok(())
    /// # }
    /// ```
    pub fn gid(&mut self, gid: u32) -> &mut Self {
        self.inner.gid(gid);
        self
    }

    /// Runs a closure in the child before exec, like [`Command::pre_exec`](crate::Command::pre_exec). It needs the
    /// launcher fork, set by [`as_forkless_mut`](Self::as_forkless_mut).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let mut command = Command::new("true");
    /// command.as_forkless_mut().launcher(forkless::Launcher::Fork);
    /// // SAFETY: the closure makes no system call, takes no lock and allocates nothing.
    /// unsafe { command.pre_exec(|| Ok(())) };
    /// assert!(command.status().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// The same as for [`Command::pre_exec`](crate::Command::pre_exec).
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's.
        unsafe { self.inner.pre_exec(f) };
        self
    }

    /// Sets the child's process group, like [`Command::process_group`](crate::Command::process_group); 0 is a new
    /// group.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let mut child = Command::new("true").process_group(0).spawn()?;
    /// # child.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn process_group(&mut self, pgroup: i32) -> &mut Self {
        self.inner.process_group(pgroup);
        self
    }

    /// Sets whether the child is killed with SIGKILL when it is dropped before it has ended (default: no). That holds
    /// for its [`Child`], and for the futures of [`status`](Self::status), [`output`](Self::output) and
    /// [`Child::wait_with_output`]. It is the same setting as [`Command::kill_on_drop`](crate::Command::kill_on_drop).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// use std::time::Duration;
    /// let mut command = Command::new("sleep");
    /// let sleeping = command.arg("60").kill_on_drop(true).status();
    /// assert!(tokio::time::timeout(Duration::from_millis(10), sleeping).await.is_err()); // and it has been killed
    /// # Ok(())
    /// # }
    /// ```
    pub fn kill_on_drop(&mut self, kill_on_drop: bool) -> &mut Self {
        self.inner.kill_on_drop(kill_on_drop);
        self
    }

    /// Whether [`kill_on_drop`](Self::kill_on_drop) is set.
    ///
    /// ```
    /// # use forkless::tokio::Command;
    /// let mut command = Command::new("true");
    /// assert!(command.kill_on_drop(true).get_kill_on_drop());
    /// ```
    pub fn get_kill_on_drop(&self) -> bool {
        self.inner.kill_on_drop
    }

    /// Starts the program, and returns when it has been executed, or with the error of the step that failed. Like
    /// [`Command::spawn`](crate::Command::spawn), it is not awaited.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let mut child = Command::new("true").spawn()?;
    /// assert!(child.wait().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An [`Error`](crate::Error) that names the step: [`Step::Check`](crate::Step::Check) if the current thread is in
    /// no tokio runtime, [`Step::Wait`](crate::Step::Wait) if the kernel has no pidfds (before Linux 5.3). Those of
    /// `epoll_ctl(2)`. After an error there is no child.
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn spawn(&mut self) -> io::Result<Child> {
        self.start(Form::Spawn)
    }

    /// Starts the program, and returns as soon as the child exists, before the program has been executed, like
    /// [`Command::launch`](crate::Command::launch). [`Child::wait`] reports why the program could not be executed.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let mut child = Command::new("true").launch()?;
    /// assert!(child.wait().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), for the steps up to the clone.
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn launch(&mut self) -> io::Result<Child> {
        self.start(Form::Launch)
    }

    /// Runs the program to its end, and returns its exit status. This call starts the child; its streams that are pipes
    /// are closed at once.
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
    /// The future returns those of [`spawn`](Self::spawn) and [`Child::wait`].
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        status(self.start(Form::Launch))
    }

    /// Runs the program to its end, and returns what it wrote. This call starts the child.
    ///
    /// As in tokio, standard output and error are captured whatever they were set to, and standard input is the
    /// caller's unless it was set.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let output = Command::new("echo").arg("hello").output().await?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future returns those of [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn output(&mut self) -> impl Future<Output = io::Result<Output>> + use<> {
        self.inner.stdout(Stdio::piped()).stderr(Stdio::piped());
        output(self.start(Form::Launch))
    }

    /// Does the work that all runs share, once, like [`Command::prepare`](crate::Command::prepare).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let prepared = Command::new("true").prepare()?;
    /// for _ in 0..3 {
    ///     assert!(prepared.status().await?.success());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Command::prepare`](crate::Command::prepare).
    pub fn prepare(&mut self) -> io::Result<Prepared> {
        Ok(self.inner.prepare()?.into())
    }

    fn start(&mut self, form: Form) -> io::Result<Child> {
        let plan = Arc::new(compile(&self.inner, false)?);
        Child::start(&plan, form, Defaults::Inherit, plan.kill_on_drop)
    }
}

/// A command that is prepared once, run many times, and awaited.
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
    /// Sets whether children are killed when they are dropped, like [`Command::kill_on_drop`]. It overrides the
    /// command's setting.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let mut prepared = Command::new("sleep").arg("60").prepare()?;
    /// prepared.kill_on_drop(true);
    /// drop(prepared.spawn()?); // kills it
    /// # Ok(())
    /// # }
    /// ```
    pub fn kill_on_drop(&mut self, kill_on_drop: bool) -> &mut Self {
        self.kill_on_drop = kill_on_drop;
        self
    }

    /// Starts the program, and returns when it has been executed, like [`Command::spawn`].
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let prepared = Command::new("true").prepare()?;
    /// let mut child = prepared.spawn()?;
    /// assert!(child.wait().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Command::spawn`].
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn spawn(&self) -> io::Result<Child> {
        self.start(Form::Spawn, Defaults::Inherit)
    }

    /// Starts the program, and returns as soon as the child exists, like [`Command::launch`].
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let prepared = Command::new("true").prepare()?;
    /// let mut child = prepared.launch()?;
    /// assert!(child.wait().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Command::launch`].
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn launch(&self) -> io::Result<Child> {
        self.start(Form::Launch, Defaults::Inherit)
    }

    /// Runs the program to its end, and returns its exit status, like [`Command::status`].
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let prepared = Command::new("true").prepare()?;
    /// assert!(prepared.status().await?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Command::status`].
    ///
    /// # Panics
    /// In a runtime without I/O.
    pub fn status(&self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        status(self.start(Form::Launch, Defaults::Inherit))
    }

    /// Runs the program to its end, and returns what it wrote, like [`Prepared::output`](crate::Prepared::output):
    /// streams that the command does not set are captured, and standard input is empty.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::tokio::Command;
    /// let prepared = Command::new("echo").arg("hello").prepare()?;
    /// assert_eq!(prepared.output().await?.stdout, b"hello\n");
    /// # Ok(())
    /// # }
    /// ```
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

/// Waits for the end of a child, if it was started.
async fn status(started: io::Result<Child>) -> io::Result<ExitStatus> {
    let mut child = started?;
    // Nobody reads them: without this, a child that fills a pipe would never end.
    drop((child.stdout.take(), child.stderr.take()));
    child.wait().await
}

/// Waits for the end and the output of a child, if it was started.
async fn output(started: io::Result<Child>) -> io::Result<Output> {
    started?.wait_with_output().await
}
