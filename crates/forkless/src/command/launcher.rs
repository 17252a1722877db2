//! Which launcher makes the child, and what only one of them can do.

use crate::command::Command;
use crate::plan::closure::Closure;
use crate::route::Launcher;
use std::io;
use std::sync::Arc;

impl Command {
    /// The way the child is made; [`Launcher::Clone`] unless told otherwise. `fork(3)`, `posix_spawn(3)`.
    ///
    /// All play the same plan, and the child finds the same. What one of them cannot do is refused when the plan is made.
    ///
    /// - [`Launcher::Fork`]: the child has a copy of the caller's memory, at a cost that grows with that. Handlers of
    ///   `pthread_atfork(3)` run. For [`pre_exec`](Self::pre_exec), and where no child may share memory (user-mode
    ///   emulation). The child's exit signal is SIGCHLD from the start, so one that fails before exec is seen by the
    ///   program's SIGCHLD handler, as with `std::process`.
    /// - [`Launcher::PosixSpawn`]: what the C library makes of it, for comparison and where a policy wants it. It tells an
    ///   errno and not the step, and what it has no word for is refused: `docs/settings.md` has the list. `launch` returns
    ///   as late as `spawn`, and a child that is stopped before exec stops the caller with it.
    ///
    /// ```
    /// use forkless::{Command, Launcher, Route};
    /// let mut child = Command::new("true").launcher(Launcher::Fork).spawn()?;
    /// assert!(matches!(child.route(), Route::Fork { .. }));
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn launcher(&mut self, launcher: Launcher) -> &mut Self {
        self.launcher = launcher;
        self
    }

    /// The kernel reaps the child when it ends: `CLONE_AUTOREAP` of `clone3(2)`, Linux 7.1. For children that nobody waits for, and for
    /// programs in which somebody else waits for all children: no zombie is left, no `waitpid(-1)` elsewhere gets the status, and
    /// the child's end raises no SIGCHLD (its stops do).
    ///
    /// - The exit status comes by the handle's pidfd alone, which keeps it. [`Child::usage`](crate::Child::usage) is none.
    /// - A dropped child is nobody's concern: [`reap_orphans`](crate::reap_orphans) has it no longer than until its exec.
    /// - A wait for all children waits for the child too, and then goes without it.
    /// - Refused ([`Step::Check`](crate::Step::Check)) with other launchers, a zygote, [`pidfd(false)`](Self::pidfd),
    ///   [`seccomp`](Self::seccomp) and [`exec`](Self::exec).
    ///
    /// An older kernel is an error of [`Step::Clone`](crate::Step::Clone), EINVAL; nothing is launched instead.
    ///
    /// ```
    /// let mut command = forkless::Command::new("true");
    /// match command.autoreap(true).spawn() {
    ///     Ok(mut child) => assert!(child.wait()?.success() && child.usage().is_none()),
    ///     Err(error) => assert!(error.to_string().contains("Linux 7.1"), "{error}"),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn autoreap(&mut self, autoreap: bool) -> &mut Self {
        self.autoreap = autoreap;
        self
    }

    /// The kernel kills the child with SIGKILL when its handle is dropped, and also when this process ends without dropping it, however
    /// that comes about: `CLONE_PIDFD_AUTOKILL` of `clone3(2)`, Linux 7.1. It reaps the child too, with all that
    /// [`autoreap`](Self::autoreap) says.
    ///
    /// The child is killed when the last descriptor of the handle's [pidfd](crate::Child::pidfd) is closed. Forked copies of this
    /// process and copies of the descriptor keep the child alive. The child alone is killed, not what it has started.
    ///
    /// Needs [`no_new_privs`](Self::no_new_privs), which the child then has from the start (`CLONE_NNP`), or CAP_SYS_ADMIN: else an
    /// error of [`Step::Clone`](crate::Step::Clone), EPERM.
    pub fn pidfd_autokill(&mut self, autokill: bool) -> &mut Self {
        self.pidfd_autokill = autokill;
        self
    }

    /// Calls `f` in the child just before exec: with its descriptors, directory, identity and signals as the program is to
    /// have them, but the caller's environment. Only a seccomp filter comes after. Several are called in the order in which
    /// they were given. Needs [`launcher(Launcher::Fork)`](Self::launcher), by name.
    ///
    /// - An error fails the launch at [`Step::PreExec`](crate::Step::PreExec), with its `raw_os_error()`, or EINVAL where it
    ///   has none.
    /// - A panic goes no further than the child, and fails the launch there too; its message is written to the child's
    ///   standard error.
    /// - A closure that ends the child, or executes something itself, has succeeded: what came of it is the exit status.
    ///
    /// ```
    /// use forkless::{Command, Launcher};
    /// let mut command = Command::new("true");
    /// // SAFETY: it makes an error, and touches nothing.
    /// unsafe { command.launcher(Launcher::Fork).pre_exec(|| Err(std::io::Error::from_raw_os_error(1))) };
    /// let error = command.spawn().unwrap_err();
    /// assert_eq!(forkless::Error::of(&error).unwrap().step(), forkless::Step::PreExec);
    /// ```
    ///
    /// # Safety
    /// As for std's: the child is a copy of the process with one thread. Locks that other threads held at the fork stay
    /// held, so only what is async-signal-safe may be relied on (`signal-safety(7)`); with glibc and musl, memory may be
    /// allocated too. Descriptors that the child did not inherit are closed, whatever the closure has captured. It must not
    /// return from where it was called by other means than returning.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        self.closures.push(Arc::new(Closure::new(f)));
        self
    }
}
