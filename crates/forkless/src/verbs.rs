//! The methods that start a [`Command`]. They stand above the code that compiles it and the code that launches it.

use crate::child::Child;
use crate::launch::exec::exec;
use crate::launch::run::LaunchForm;
use crate::output::stream;
use crate::plan::compile::compile;
use crate::prepared::Prepared;
use crate::request::command::Command;
use crate::route::Launcher;
use crate::start::{self, Start};
use std::io;
use std::process::{ExitStatus, Output};
use std::sync::Arc;

impl Command {
    /// Starts the program and returns when it has been executed, or returns the error that prevented it.
    ///
    /// If the child is stopped (SIGSTOP, Ctrl-Z) before it has executed the program, `spawn` does not wait for it to be
    /// continued: it returns, and a later failure is reported by [`Child::wait`].
    ///
    /// # Errors
    /// An [`Error`](crate::Error) that names the step. The failed child has been reaped.
    ///
    /// ```
    /// use forkless::{Command, Error, Step};
    /// let mut child = Command::new("true").spawn()?;
    /// assert!(child.wait()?.success());
    /// let error = Command::new("true").current_dir("/no/such/directory").spawn().unwrap_err();
    /// assert_eq!(Error::of(&error).unwrap().step(), Step::Chdir);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn(&mut self) -> io::Result<Child> {
        Start::new(LaunchForm::Spawn).child(&Arc::new(compile(self, false)?))
    }

    /// Starts the program and returns as soon as the child exists, before the program has been executed.
    ///
    /// A failure of the child (no such program, no such directory) is reported by [`Child::wait_exec`] and
    /// [`Child::wait`]. Where descriptors are passed (pipes, [`fd`](Self::fd)) the call also waits until the child has
    /// taken them. The standard streams that it inherits are taken a moment later: do not redirect them before
    /// [`Child::wait_exec`].
    ///
    /// Some launches return no sooner than the exec, and then with its error: if a debugger traces the caller; if the child
    /// enters another [`cgroup`](Self::cgroup), [changes its ids](Self::uid) or its [`oom_score_adj`](Self::oom_score_adj);
    /// by [`Launcher::PosixSpawn`]; and if the child has completed the exec before the call checks.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), for everything up to the clone.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut child = Command::new("true").launch()?;
    /// // … other work …
    /// child.wait_exec()?; // did it start?
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn launch(&mut self) -> io::Result<Child> {
        Start::new(LaunchForm::Launch).child(&Arc::new(compile(self, false)?))
    }

    /// [`launch`](Self::launch), but does not wait until the child has taken its ends of the pipes, where that is
    /// possible: the handle keeps them open until [`Child::let_go`] or the wait finds that the child has them. Standard
    /// output ends only then, so this suits callers that read until the child has ended.
    #[doc(hidden)]
    pub fn launch_holding(&mut self) -> io::Result<Child> {
        Start::new(LaunchForm::Launch).holding().child(&Arc::new(compile(self, false)?))
    }

    /// Runs the program to its end and returns its exit status.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn). A program that fails is not an error: see the [`ExitStatus`].
    ///
    /// ```
    /// use forkless::Command;
    /// let status = Command::new("sh").args(["-c", "exit 3"]).status()?;
    /// assert_eq!(status.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        start::status(&Arc::new(compile(self, false)?))
    }

    /// Runs the program to its end and returns its exit status and what it wrote.
    ///
    /// By default standard input is empty, and standard output and error are captured. [`capture`](Self::capture) sets
    /// limits and timeouts.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("sh").args(["-c", "echo out; echo err >&2"]).output()?;
    /// assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn output(&mut self) -> io::Result<Output> {
        stream::output(&Arc::new(compile(self, false)?))
    }

    /// Does the work that all launches share, once. The result can be launched any number of times, from several
    /// threads, and without an allocation.
    ///
    /// The environment and the program's place in `PATH` are those of this call. If the program is missing there later,
    /// the rest of `PATH` is tried.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check) if the settings are invalid.
    ///
    /// ```
    /// use forkless::Command;
    /// let prepared = Command::new("true").prepare()?;
    /// for _ in 0..3 {
    ///     assert!(prepared.status()?.success());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn prepare(&mut self) -> io::Result<Prepared> {
        Ok(Prepared::new(compile(self, true)?))
    }

    /// Turns the calling process into the program, with all settings, instead of making a child: `execve(2)`. Returns
    /// only if that fails, with the error.
    ///
    /// - Standard streams that are not set are those of the process. Other descriptors are closed by exec, unless
    ///   [`fd`](Self::fd) or [`inherit_all`](Self::inherit_all) keeps them.
    /// - Other threads run until the exec, and end there. Buffers are not written, and nothing is dropped.
    /// - The descriptors are placed in the table that all threads share. A thread that opens or closes files meanwhile
    ///   can take or close a number that the program is to have. A number that an `open(2)` of another thread has
    ///   reserved is waited for, at most a second; then the error is EBUSY (`dup(2)`).
    /// - Closures of [`pre_exec`](Self::pre_exec) run in this process: EBUSY if another thread is calling one of them.
    /// - [`pidfd`](Self::pidfd), [`kill_on_drop`](Self::kill_on_drop) and [`launcher`](Self::launcher) mean nothing here.
    ///
    /// # Errors
    /// - What needs a parent is refused ([`Step::Check`](crate::Step::Check)) before anything is done:
    ///   [`Stdio::piped`], [`Stdio::socketpair`], [`pty`](Self::pty), [`hand_back`](Self::hand_back), id maps, PID
    ///   namespaces, [`parent_death_signal`](Self::parent_death_signal), [`autoreap`](Self::autoreap),
    ///   [`pidfd_autokill`](Self::pidfd_autokill).
    /// - After an error the signal mask and the signal actions are as before. Whatever else was done before the step
    ///   that failed remains, as with std's: descriptors are in their places (and those that the program was not to
    ///   have are close-on-exec); working directory, umask, limits, session, ids, namespaces and filters are changed,
    ///   the last three in the calling thread alone. It is best to end the process then.
    ///
    /// [`Stdio::piped`]: crate::Stdio::piped
    /// [`Stdio::socketpair`]: crate::Stdio::socketpair
    ///
    /// ```no_run
    /// let error = forkless::Command::new("sh").args(["-c", "ulimit -n"]).rlimit(forkless::Resource::Files, 50, 50).exec();
    /// panic!("{error}");
    /// ```
    pub fn exec(&mut self) -> io::Error {
        // As a forked child would do it.
        match compile(self.clone().launcher(Launcher::Fork), false) {
            Ok(plan) => exec(&plan, self.signals.default | self.signals.ignore).into(),
            Err(error) => error,
        }
    }
}
