//! The choice of the launcher, and what only one launcher can do.

use crate::request::closure::Closure;
use crate::request::command::Command;
use crate::route::Launcher;
use std::io;
use std::sync::Arc;

impl Command {
    /// Selects how the child is made (default: [`Launcher::Clone`]).
    ///
    /// All launchers play the same plan, and the program starts in the same state. What one of them cannot do is
    /// refused when the plan is made.
    ///
    /// - [`Launcher::Fork`]: the child has a copy of the caller's memory (`fork(3)`), at a cost that grows with that
    ///   memory. Handlers of `pthread_atfork(3)` run. It is for [`pre_exec`](Self::pre_exec), and for systems on which
    ///   no child may share memory (user-mode emulation). The child's exit signal is SIGCHLD from the start: the
    ///   program's SIGCHLD handler also sees a child that fails before exec, as with `std::process`.
    /// - [`Launcher::PosixSpawn`]: the C library's `posix_spawn(3)`, for comparison, and for callers whose policy
    ///   demands it. It reports an errno and not the step. Settings that it does not have are refused:
    ///   `docs/settings.md` has the list. `launch` returns as late as `spawn`, and a child that is stopped before exec
    ///   stops the caller with it.
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

    /// Lets the kernel reap the child when it ends: `CLONE_AUTOREAP` of `clone3(2)`, Linux 7.1.
    ///
    /// It is for children that no one waits for, and for programs in which other code waits for all children. No zombie
    /// is left, no `waitpid(-1)` elsewhere gets the status, and the child's end raises no SIGCHLD (its stops do).
    ///
    /// - The exit status comes by the handle's pidfd alone, which keeps it. [`Child::usage`](crate::Child::usage) is
    ///   none.
    /// - A dropped child needs no reaping: [`reap_orphans`](crate::reap_orphans) has it no longer than until its exec.
    /// - A wait for all children (`waitpid(-1)`) waits for the child too, and then returns without it.
    ///
    /// # Errors
    /// An older kernel is an error of [`Step::Clone`](crate::Step::Clone), EINVAL; nothing is launched instead.
    /// [`Step::Check`](crate::Step::Check): together with another launcher, a zygote, [`pidfd(false)`](Self::pidfd),
    /// [`seccomp`](Self::seccomp) or [`exec`](Self::exec).
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

    /// Lets the kernel kill the child with SIGKILL when its handle is dropped, or when this process ends in any way:
    /// `CLONE_PIDFD_AUTOKILL` of `clone3(2)`, Linux 7.1. It reaps the child too, with everything that
    /// [`autoreap`](Self::autoreap) describes.
    ///
    /// The child is killed when the last descriptor of the handle's [pidfd](crate::Child::pidfd) is closed. Forked
    /// copies of this process and copies of the descriptor keep the child alive. The child alone is killed, not what it
    /// has started.
    ///
    /// Needs [`no_new_privs`](Self::no_new_privs), which the child then has from the start (`CLONE_NNP`), or
    /// CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// As for [`autoreap`](Self::autoreap); EPERM at [`Step::Clone`](crate::Step::Clone) without the privilege.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let mut server = Command::new("server").no_new_privs(true).pidfd_autokill(true).spawn()?;
    /// drop(server); // killed, and reaped
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pidfd_autokill(&mut self, autokill: bool) -> &mut Self {
        self.pidfd_autokill = autokill;
        self
    }

    /// Adds a closure that the child calls just before exec. Needs [`launcher(Launcher::Fork)`](Self::launcher),
    /// selected explicitly. Several closures are called in the order in which they were added.
    ///
    /// The child has its descriptors, working directory, ids and signals by then, but the caller's environment. Only a
    /// seccomp filter comes after it. A closure that ends the child, or executes a program itself, counts as success:
    /// the exit status shows what came of it.
    ///
    /// # Errors
    /// - If the closure returns an error, the launch fails at [`Step::PreExec`](crate::Step::PreExec) with its
    ///   `raw_os_error()`, or EINVAL if it has none.
    /// - If the closure panics, the launch fails there too. The panic ends in the child; its message is written to the
    ///   child's standard error.
    /// - [`Step::Check`](crate::Step::Check): another launcher.
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
    /// held, so only what is async-signal-safe may be relied on (`signal-safety(7)`); with glibc and musl, memory may
    /// be allocated too. Descriptors that the child did not inherit are closed, whatever the closure has captured. The
    /// closure must leave only by returning.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        self.closures.push(Arc::new(Closure::new(f)));
        self
    }
}
