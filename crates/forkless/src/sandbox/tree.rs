//! The end of all that a program has started, without namespaces: see [`Command::kill_tree`].

use super::namespaces::{check_init, init_file};
use super::{LINGER, REFUSES_SIGNALS, landlock};
use crate::error::Error;
use crate::kernel::SIGKILL;
use crate::request::command::{Command, Confinement, Namespace, SandboxInit};
use crate::step::Step;
use forkless_core::sys::errno;
use std::sync::Arc;

impl Command {
    /// Ends everything that the program has started together with it (default: false): processes in the background, in other sessions
    /// and process groups, and those whose parents have ended.
    ///
    /// The child is then an init of 2 KiB, which executes the program. [`Child::id`](crate::Child::id) is its process ID. It passes signals of the
    /// handle on to the program, and kills all that is left
    /// - when the program has ended: 200 ms later, so that what ends by itself can
    /// - when the handle kills it: by [`Child::kill`](crate::Child::kill), [`kill_on_drop`](Self::kill_on_drop), or a timeout or limit of a
    ///   [`Capture`](crate::Capture)
    /// - when this process ends, for any reason.
    ///
    /// The wait for the child returns when all have gone.
    ///
    /// All processes of the program are in a Landlock domain, which none can leave, and from which none can signal a process outside. Init
    /// kills those of the domain with one system call, which no fork outruns: `landlock(7)` LANDLOCK_SCOPE_SIGNAL, Linux 6.12. In a sandbox
    /// of namespaces ([`Sandbox::new`](crate::Sandbox::new)) or a new PID namespace the kernel does it already, on any kernel.
    ///
    /// The program gets [`no_new_privs`](Self::no_new_privs): one with other rights, such as `sudo`, could not be killed. What
    /// another process starts for it is not its own: `systemd-run`, `at`, `docker`. SIGKILL from elsewhere, as by `kill -9 PID`, ends init and the
    /// program, and leaves the others.
    ///
    /// ```no_run
    /// # #[cfg(feature = "capture")] {
    /// use forkless::{Capture, Command};
    /// use std::time::Duration;
    /// // The program in the background would hold the pipe for an hour, and outlive both.
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "setsid sleep 3600 & sleep 3600"]).kill_tree(true);
    /// let captured = command.capture(&Capture::new().timeout(Duration::from_secs(1)))?;
    /// assert!(captured.timed_out);
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The launch fails at [`Step::Landlock`] with EOPNOTSUPP where the kernel cannot keep the promise, and names what can.
    /// [`Step::Capabilities`], EPERM: the program would have CAP_SETUID, but not CAP_KILL, so init could not kill processes of another user,
    /// except in a new PID namespace. [`Step::Check`]: the
    /// command has `program_fd` or `pidfd_autokill`, which need a child that is the program.
    pub fn kill_tree(&mut self, on: bool) -> &mut Self {
        self.tree = on.then(|| Arc::new(Tree) as Arc<dyn Confinement>);
        self
    }
}

struct Tree;

impl Confinement for Tree {
    fn confine(&self, command: &Command) -> Result<Command, Error> {
        let mut own = command.clone();
        own.tree = None;
        let refused = |why: &str| Err(Error::check(&command.program, format!("kill_tree: {why}")));
        if command.sandbox.in_sandbox && command.sandbox.init.is_none() {
            return refused(
                "needs the sandbox's init: with init(false) the end of the caller does not end the program",
            );
        }
        if command.sandbox.init.is_some() {
            return Ok(own);
        }
        if let Err(why) = check_init(command) {
            return refused(why);
        }
        // The kernel kills the rest of a PID namespace when its init ends.
        let kills_tree = !command.sandbox.has_new(Namespace::Pid);
        if kills_tree {
            check_kills(command)?;
            // Init sees the end of the caller by itself.
            own.setup.parent_death_signal.take_if(|signal| *signal == SIGKILL);
        }
        let file = init_file().map_err(|error| {
            let bare = Error::new(&command.program, Step::Check, error.raw_os_error()).on("for kill_tree");
            bare.note("init cannot be a program in memory: see vm.memfd_noexec")
        })?;
        own.sandbox.init = Some(SandboxInit { file: Arc::new(file), linger: LINGER.as_millis() as u32, kills_tree });
        own.no_new_privs(true);
        Ok(own)
    }
}

/// Refuses what would end init before it has killed the others, and kernels on which it cannot.
fn check_kills(command: &Command) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::check(&command.program, format!("kill_tree: {why}")));
    if command.pidfd_autokill {
        return refused("pidfd_autokill would end init, and leave the others");
    }
    if command.setup.parent_death_signal == Some(SIGKILL) && command.setup.follows_thread {
        return refused("thread_death_signal(SIGKILL) would end init, and leave the others");
    }
    if landlock::version().unwrap_or(0) < REFUSES_SIGNALS {
        let why = format!(
            "needs version {REFUSES_SIGNALS} of Landlock (Linux 6.12); a PID namespace, a sandbox of namespaces and a cgroup end all without it"
        );
        return Err(Error::new(&command.program, Step::Landlock, errno::EOPNOTSUPP).on("for kill_tree").note(why));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
