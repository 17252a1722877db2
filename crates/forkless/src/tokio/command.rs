//! A command for callers that await its child.

#[cfg(feature = "capture")]
use super::capture::capture;
use super::child::Child;
use crate::Stdio;
use crate::launch::pipes::Defaults;
use crate::launch::run::LaunchForm;
#[cfg(feature = "capture")]
use crate::output::capture::{Capture, Captured};
use crate::plan::compile::compile;
use crate::request::command::Command as Blocking;
#[cfg(feature = "capture")]
use crate::start::Pidfd;
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

/// Builder functions of [`crate::Command`] under their own names. `<` and `>` enclose the type parameters with their bounds.
macro_rules! forwarded {
    ($($name:ident < $($kind:ident : $bound:path),* > ( $($value:ident : $type:ty),* );)*) => {$(
        #[doc = concat!("As [`Command::", stringify!($name), "`](crate::Command::", stringify!($name), ").")]
        pub fn $name<$($kind: $bound),*>(&mut self, $($value: $type),*) -> &mut Self {
            self.inner.$name($($value),*);
            self
        }
    )*};
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

    forwarded! {
        arg<S: AsRef<OsStr>>(arg: S);
        args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I);
        arg0<S: AsRef<OsStr>>(arg0: S);
        env<K: AsRef<OsStr>, V: AsRef<OsStr>>(key: K, value: V);
        envs<I: IntoIterator<Item = (K, V)>, K: AsRef<OsStr>, V: AsRef<OsStr>>(vars: I);
        env_remove<K: AsRef<OsStr>>(key: K);
        env_clear<>();
        current_dir<P: AsRef<Path>>(dir: P);
        stdin<T: Into<Stdio>>(stdio: T);
        stdout<T: Into<Stdio>>(stdio: T);
        stderr<T: Into<Stdio>>(stdio: T);
        fd<T: Into<Stdio>>(source: T, number: RawFd);
        uid<>(uid: u32);
        gid<>(gid: u32);
        process_group<>(pgroup: i32);
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
        // SAFETY: the caller keeps the conditions of `Command::pre_exec`, as this function requires.
        unsafe { self.inner.pre_exec(f) };
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
        self.start(LaunchForm::Spawn)
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
        self.start(LaunchForm::Launch)
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
        status(self.start(LaunchForm::Launch))
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
        output(self.start(LaunchForm::Launch))
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

    /// Runs the program to its end with input, limits and a timeout, like [`Command::capture`](crate::Command::capture), while
    /// the runtime has other work. Dropping the future kills the program, with its process group if it leads one.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// use forkless::{Capture, tokio::Command};
    /// use std::time::Duration;
    /// let how = Capture::new().input("b\na\n").limit(1 << 20).timeout(Duration::from_secs(10));
    /// let sorted = Command::new("sort").capture(&how).await?;
    /// assert_eq!(sorted.text(), "a\nb");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Command::capture`](crate::Command::capture).
    ///
    /// # Panics
    /// When it is awaited in no runtime, or in one without I/O, or, with a limit of time, without a timer.
    #[cfg(feature = "capture")]
    pub fn capture(&mut self, how: &Capture) -> impl Future<Output = io::Result<Captured>> + use<> {
        let plan = compile(&self.inner, false).map(Arc::new);
        capture(plan.and_then(|plan| how.begin(&plan, Pidfd::Always)))
    }

    fn start(&mut self, form: LaunchForm) -> io::Result<Child> {
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
        self.start(LaunchForm::Spawn, Defaults::Inherit)
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
        self.start(LaunchForm::Launch, Defaults::Inherit)
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
        status(self.start(LaunchForm::Launch, Defaults::Inherit))
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
        output(self.start(LaunchForm::Launch, Defaults::Capture))
    }

    /// Runs the program to its end, like [`Command::capture`].
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # use forkless::{Capture, tokio::Command};
    /// let upper = Command::new("tr").args(["a-z", "A-Z"]).prepare()?;
    /// assert_eq!(upper.capture(&Capture::new().input("one")).await?.text(), "ONE");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Command::capture`].
    ///
    /// # Panics
    /// As for [`Command::capture`].
    #[cfg(feature = "capture")]
    pub fn capture(&self, how: &Capture) -> impl Future<Output = io::Result<Captured>> + use<> {
        capture(how.begin(self.inner.plan(), Pidfd::Always))
    }

    fn start(&self, form: LaunchForm, defaults: Defaults) -> io::Result<Child> {
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
