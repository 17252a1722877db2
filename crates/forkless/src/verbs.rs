//! Verbs: what is done with a [`Command`] that has been put together. They stand above what compiles it and what launches it.

use crate::child::Child;
use crate::command::Command;
use crate::compile::compile;
use crate::launch::exec::exec;
use crate::launch::run::Form;
use crate::output;
use crate::prepared::Prepared;
use crate::route::Launcher;
use crate::start::{self, Start};
use std::io;
use std::process::{ExitStatus, Output};
use std::sync::Arc;

impl Command {
    /// Starts the program and returns when it has been executed, or with the error that kept it from being so.
    ///
    /// If the child is stopped (SIGSTOP, Ctrl-Z) before it has executed the program, `spawn` does not wait for it to
    /// be continued: it returns, and a later failure is reported by [`Child::wait`].
    ///
    /// # Errors
    /// An [`Error`](crate::Error) that names the step; nothing is left behind.
    pub fn spawn(&mut self) -> io::Result<Child> {
        Start::new(Form::Spawn).child(&Arc::new(compile(self, false)?))
    }

    /// Starts the program and returns as soon as the child exists, before the program has been executed.
    ///
    /// A failure of the child (no such program, no such directory) is reported by [`Child::wait_exec`] and
    /// [`Child::wait`]. Where descriptors are passed (pipes, [`fd`](Self::fd)) the call also waits until the child has
    /// taken them. The standard streams that it inherits are taken a moment later: do not redirect them before
    /// [`Child::wait_exec`].
    ///
    /// Some launches return no sooner than the exec, and then also with its error: those of a caller that a debugger traces, those
    /// whose child enters another [`cgroup`](Self::cgroup), [changes its ids](Self::uid) or its
    /// [`oom_score_adj`](Self::oom_score_adj), those by [`Launcher::PosixSpawn`], and those whose child was done with it when the
    /// call looked.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), for everything up to the clone.
    pub fn launch(&mut self) -> io::Result<Child> {
        Start::new(Form::Launch).child(&Arc::new(compile(self, false)?))
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn). A program that fails is not an error: ask the [`ExitStatus`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        start::status(&Arc::new(compile(self, false)?))
    }

    /// Runs the program to its end and gives what it wrote.
    ///
    /// Unless told otherwise, standard input is empty and the two outputs are captured.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn output(&mut self) -> io::Result<Output> {
        output::output(&Arc::new(compile(self, false)?))
    }

    /// Does the work that all runs share, once: the result can be run any number of times, from several threads, and
    /// without an allocation.
    ///
    /// The environment and the program's place in `PATH` are those of now; should the program no longer be there, the
    /// rest of `PATH` is tried.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check) where the request makes no sense.
    pub fn prepare(&mut self) -> io::Result<Prepared> {
        Ok(Prepared::new(compile(self, true)?))
    }

    /// Turns the calling process into the program, with all settings, instead of making a child: `execve(2)`. Comes back
    /// only if that fails, with the error.
    ///
    /// - Streams of which nothing was said are those of the process. Other descriptors are closed by exec, unless
    ///   [`fd`](Self::fd) or [`inherit_all`](Self::inherit_all) says otherwise.
    /// - Other threads go on until the exec, and end there. Buffers are not written, and nothing is dropped.
    /// - What needs a parent is refused ([`Step::Check`](crate::Step::Check)) before anything is done: [`Stdio::piped`],
    ///   [`Stdio::socketpair`], [`pty`](Self::pty), [`hand_back`](Self::hand_back), id maps, PID namespaces,
    ///   [`parent_death_signal`](Self::parent_death_signal), [`autoreap`](Self::autoreap),
    ///   [`pidfd_autokill`](Self::pidfd_autokill). [`pidfd`](Self::pidfd), [`kill_on_drop`](Self::kill_on_drop) and
    ///   [`launcher`](Self::launcher) have no meaning here.
    /// - After an error the signal mask is as it was, and so is what signals do. Whatever else was done before the step
    ///   that failed remains, as with std's: descriptors are in their places (and those that the program was not to have
    ///   are close-on-exec), directory, umask, limits, session, ids, namespaces and filters are changed, the last three
    ///   in the calling thread alone. It is best to end then.
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
        let launcher = std::mem::replace(&mut self.launcher, Launcher::Fork);
        let plan = compile(self, false);
        self.launcher = launcher;
        match plan {
            Ok(plan) => exec(&plan, self.signals.default | self.signals.ignore).into(),
            Err(error) => error,
        }
    }
}
