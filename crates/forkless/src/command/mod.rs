//! Command: what the user says. It records words and does nothing else.

use crate::child::Child;
use crate::compile::{Held, Plan};
use crate::launch::{Closure, Launcher};
use crate::output;
use crate::prepared::Prepared;
use crate::stdio::{Source, Stdio};
use forkless_core::sys::signal::SIGPIPE;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::sync::{Arc, Weak};
use std::time::Duration;

mod capability;

mod launcher;

pub mod posix;

mod sandbox;

mod setup;

pub(crate) mod values;

pub use capability::{Capability, CapabilitySet};
pub use sandbox::{BpfInstruction, Namespace, mount_attribute};
pub(crate) use sandbox::{MS_BIND, MS_MOVE, MS_PRIVATE, MS_REC, MS_REMOUNT, Mount, MountStep, OVERLAY, Sandbox};
pub use setup::CallArg;
pub(crate) use setup::{Name, Setup};

/// A program to be started: the names and meanings of [`std::process::Command`], by another way into the kernel.
///
/// The cost of a launch depends on nothing that the calling process is or has: not its memory, mappings, open
/// descriptors or threads. It never forks, unless told to ([`launcher`](Self::launcher)).
///
/// ```
/// use forkless::Command;
/// let output = Command::new("echo").arg("hello").output()?;
/// assert_eq!(output.stdout, b"hello\n");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # What differs from `std`
/// - The program gets standard input, output and error and the descriptors named by [`fd`](Self::fd), nothing else,
///   close-on-exec or not; [`inherit_all`](Self::inherit_all) brings back the POSIX rule.
/// - A [`Child`] that is dropped leaves no zombie behind.
/// - Errors say which step failed, on what ([`Error::of`](crate::Error::of)); `raw_os_error()` of such an `io::Error`
///   is `None`, use `kind()` or [`Error::errno`](crate::Error::errno).
/// - [`pre_exec`](Self::pre_exec) has to be asked for together with fork: the child shares the caller's memory else.
///
/// # In the child
/// In this order: a private descriptor table; descriptors to their numbers; limits and scheduling; session or process
/// group; terminal; root; groups, group, user; directory; umask; paths opened in the child; further calls; no new
/// privileges; parent-death signal; signals (SIGPIPE at its default and the caller's mask, unless told otherwise); exec.
pub struct Command {
    pub(crate) program: OsString,
    pub(crate) candidates: Vec<OsString>,
    /// See [`Command::try_all`].
    pub(crate) tries_all: bool,
    pub(crate) program_fd: Option<Arc<OwnedFd>>,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Environment,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) fds: BTreeMap<RawFd, Source>,
    pub(crate) inherit_all: bool,
    pub(crate) setsid: bool,
    pub(crate) process_group: Option<i32>,
    pub(crate) signals: Signals,
    pub(crate) pidfd: Option<bool>,
    pub(crate) kill_on_drop: bool,
    pub(crate) autoreap: bool,
    pub(crate) pidfd_autokill: bool,
    pub(crate) busy_ms: u32,
    pub(crate) scripts_by_shell: bool,
    /// The master of the terminal that the child is on.
    pub(crate) pty: Option<Weak<OwnedFd>>,
    pub(crate) setup: Setup,
    pub(crate) sandbox: Sandbox,
    pub(crate) launcher: Launcher,
    pub(crate) closures: Vec<Arc<Closure>>,
    pub(crate) ready: Option<Ready>,
    pub(crate) actions: Vec<posix::FileAction>,
}

/// What has been worked out beforehand, in a shell's place.
pub(crate) struct Ready {
    /// The whole environment, in this order.
    pub(crate) env: Held,
    /// The files to try.
    pub(crate) paths: Vec<OsString>,
    /// After all other descriptors, in this order.
    pub(crate) redirections: Vec<ReadyFile>,
}

/// A descriptor that the child opens or copies when all others are in place.
pub(crate) enum ReadyFile {
    Open { to: RawFd, path: CString, flags: i32 },
    Copy { to: RawFd, from: RawFd },
}

/// Changes to the environment that the child inherits.
#[derive(Default)]
pub(crate) struct Environment {
    /// Start from nothing.
    pub(crate) clear: bool,
    /// Set (some) or removed (none).
    pub(crate) changes: BTreeMap<OsString, Option<OsString>>,
}

/// What the program starts with. Bit n-1 is signal n.
#[derive(Clone, Copy)]
pub(crate) struct Signals {
    pub(crate) default: u64,
    pub(crate) ignore: u64,
    pub(crate) mask: u64,
    pub(crate) inherit_mask: bool,
    /// Numbers that are not signals, kept for the error.
    pub(crate) bad: Option<i32>,
}

/// How long to try again while a program is busy: see [`Command::retry_busy`].
const BUSY_MS: u32 = 100;

impl Command {
    /// A command that runs `program`: a path if it has a slash in it, otherwise searched for in `PATH`, in the child's
    /// if the command changes it and in the caller's if not. An entry with which the path would be longer than the kernel
    /// takes (4,095 bytes) is passed over.
    ///
    /// By default: no arguments, the caller's environment, directory and standard streams (for [`output`](Self::output):
    /// no input, captured output).
    pub fn new<S: AsRef<OsStr>>(program: S) -> Self {
        let program = program.as_ref().to_owned();
        Self {
            args: vec![program.clone()],
            program,
            candidates: Vec::new(),
            tries_all: false,
            program_fd: None,
            env: Environment::default(),
            directory: None,
            fds: BTreeMap::new(),
            inherit_all: false,
            setsid: false,
            process_group: None,
            signals: Signals { default: bit(SIGPIPE), ignore: 0, mask: 0, inherit_mask: true, bad: None },
            pidfd: None,
            kill_on_drop: false,
            autoreap: false,
            pidfd_autokill: false,
            busy_ms: BUSY_MS,
            scripts_by_shell: false,
            pty: None,
            setup: Setup::default(),
            sandbox: Sandbox::default(),
            launcher: Launcher::Clone,
            closures: Vec::new(),
            ready: None,
            actions: Vec::new(),
        }
    }

    /// Another program to try where the ones before it are not there, as `execvp(3)` goes through `PATH`.
    pub fn or_else<S: AsRef<OsStr>>(&mut self, program: S) -> &mut Self {
        self.candidates.push(program.as_ref().to_owned());
        self
    }

    /// The program as an open descriptor of it: `execveat(2)`. The name given to [`new`](Self::new) is then only what it
    /// is called, in `argv[0]` and in errors.
    ///
    /// The child finds the descriptor at a number above all others that it has. For a script it stays open, because the
    /// interpreter opens `/dev/fd/N` to read it; for a binary it is closed by exec.
    pub fn program_fd<F: Into<OwnedFd>>(&mut self, program: F) -> &mut Self {
        self.program_fd = Some(Arc::new(program.into()));
        self
    }

    /// Adds one argument. No shell looks at it.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// What the program sees as `argv[0]`, in place of the name it was started by.
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg0: S) -> &mut Self {
        let arg0 = arg0.as_ref().to_owned();
        match self.args.first_mut() {
            Some(first) => *first = arg0,
            // `exactly` may have been given no words at all.
            None => self.args.push(arg0),
        }
        self
    }

    /// Sets a variable in the child's environment.
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Self {
        self.env.changes.insert(key.as_ref().to_owned(), Some(value.as_ref().to_owned()));
        self
    }

    /// Sets variables in the child's environment.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        for (key, value) in vars {
            self.env(key, value);
        }
        self
    }

    /// Removes a variable from the child's environment. A name that no variable can have, with a NUL byte, is no error.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Self {
        if self.env.clear {
            self.env.changes.remove(key.as_ref());
        } else {
            self.env.changes.insert(key.as_ref().to_owned(), None);
        }
        self
    }

    /// Empties the child's environment; variables set afterwards are all it has.
    pub fn env_clear(&mut self) -> &mut Self {
        self.env.clear = true;
        self.env.changes.clear();
        self
    }

    /// The child's working directory. A relative program path is looked up from there.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Self {
        self.directory = Some(dir.as_ref().to_owned());
        self
    }

    /// The child's standard input.
    pub fn stdin<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.fd(stdio, 0)
    }

    /// The child's standard output.
    pub fn stdout<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.fd(stdio, 1)
    }

    /// The child's standard error.
    pub fn stderr<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.fd(stdio, 2)
    }

    /// What the child finds at descriptor `number`: any source at any number, swaps and cycles included.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    /// Command::new("sh").args(["-c", "echo hello >&7"]).fd(theirs, 7).status()?;
    /// # use std::io::{BufRead, BufReader};
    /// let mut line = String::new();
    /// BufReader::new(ours).read_line(&mut line)?;
    /// assert_eq!(line, "hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fd<T: Into<Stdio>>(&mut self, source: T, number: RawFd) -> &mut Self {
        self.fds.insert(number, source.into().0);
        self
    }

    /// The POSIX rule: the child inherits every descriptor that is not close-on-exec.
    ///
    /// The kernel then copies the caller's whole descriptor table, at a cost that grows with it, and a file that
    /// another thread is writing may be held open for an instant (see ETXTBSY in `execve(2)`).
    pub fn inherit_all(&mut self, inherit: bool) -> &mut Self {
        self.inherit_all = inherit;
        self
    }

    /// The child begins a session of its own, without a controlling terminal: `setsid(2)`.
    pub fn setsid(&mut self, setsid: bool) -> &mut Self {
        self.setsid = setsid;
        self
    }

    /// The child's process group; 0: a new one of its own. `setpgid(2)`.
    pub fn process_group(&mut self, pgroup: i32) -> &mut Self {
        self.process_group = Some(pgroup);
        self
    }

    /// The program starts with the default action for `signal`.
    pub fn signal_default(&mut self, signal: i32) -> &mut Self {
        if self.is_signal(signal) {
            self.signals.default |= bit(signal);
            self.signals.ignore &= !bit(signal);
        }
        self
    }

    /// The program starts with `signal` ignored.
    pub fn signal_ignore(&mut self, signal: i32) -> &mut Self {
        if self.is_signal(signal) {
            self.signals.ignore |= bit(signal);
            self.signals.default &= !bit(signal);
        }
        self
    }

    /// The program starts with whatever `signal` does in the caller: ignored stays ignored, anything else is the
    /// default, since no handler outlives exec.
    pub fn signal_inherit(&mut self, signal: i32) -> &mut Self {
        if self.is_signal(signal) {
            self.signals.default &= !bit(signal);
            self.signals.ignore &= !bit(signal);
        }
        self
    }

    /// The program starts with `signal` blocked, beside those that the calling thread blocks.
    pub fn signal_block(&mut self, signal: i32) -> &mut Self {
        if self.is_signal(signal) {
            self.signals.mask |= bit(signal);
        }
        self
    }

    /// Does the program start with the calling thread's signal mask, as the POSIX rule is? Unless told otherwise it does. If
    /// not, nothing is blocked but what [`signal_block`](Self::signal_block) names: for callers that block signals for
    /// themselves, to take them by `signalfd(2)` or `sigwait(3)`.
    pub fn inherit_signal_mask(&mut self, inherit: bool) -> &mut Self {
        self.signals.inherit_mask = inherit;
        self
    }

    fn is_signal(&mut self, signal: i32) -> bool {
        let good = (1..=64).contains(&signal);
        if !good {
            self.signals.bad = Some(signal);
        }
        good
    }

    /// Should the handle hold a pidfd?
    ///
    /// With one, signals cannot reach another process that got the same pid, waiting with a time-out needs no further
    /// system call, and on Linux 6.15 and later the exit status is kept even if another part of the program reaps
    /// the child or SIGCHLD is ignored. It costs one descriptor and a few microseconds.
    ///
    /// Unless told otherwise, `spawn` and `launch` have one; `status` and `output`, which wait at once, have one only
    /// where SIGCHLD is ignored.
    pub fn pidfd(&mut self, pidfd: bool) -> &mut Self {
        self.pidfd = Some(pidfd);
        self
    }

    /// Should the child be killed with SIGKILL when its [`Child`] is dropped before it has ended? It is not waited for then,
    /// but reaped by a later launch or [`reap_orphans`](crate::reap_orphans), as any dropped child is.
    ///
    /// The child alone is killed, not what it has started; and nobody is if this process ends without dropping the handle
    /// ([`pidfd_autokill`](Self::pidfd_autokill) and [`parent_death_signal`](Self::parent_death_signal) are for that).
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.kill_on_drop = kill;
        self
    }

    /// Tries again, each millisecond and for up to `limit`, while the program is open for writing (ETXTBSY); a tenth of a
    /// second unless told otherwise.
    ///
    /// A child of this crate holds files that another thread is writing for the few microseconds in which it makes its
    /// descriptor table, if their numbers are below 64 (the kernel copies a table in words of 64); a fork elsewhere in
    /// the process may hold any, for longer.
    pub fn retry_busy(&mut self, limit: Duration) -> &mut Self {
        self.busy_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Is a file that may be executed but is no program, nor a script with `#!` (ENOEXEC), run by `/bin/sh`, as `execvp(3)` does?
    /// Unless told otherwise it is an error, as for `std`, whose children by fork, such as those with `pre_exec`, are run so
    /// however.
    ///
    /// ```
    /// # use std::os::unix::fs::PermissionsExt;
    /// let script = std::env::temp_dir().join(format!("forkless-script-{}", std::process::id()));
    /// std::fs::write(&script, "echo $1")?;
    /// std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    /// let output = forkless::Command::new(&script).arg("hello").scripts_by_shell(true).output()?;
    /// # std::fs::remove_file(script)?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scripts_by_shell(&mut self, by_shell: bool) -> &mut Self {
        self.scripts_by_shell = by_shell;
        self
    }

    /// Starts the program and returns when it has been executed, or with the error that kept it from being so.
    ///
    /// If the child is stopped (SIGSTOP, Ctrl-Z) before it has executed the program, `spawn` does not wait for it to
    /// be continued: it returns, and a later failure is reported by [`Child::wait`].
    ///
    /// # Errors
    /// An [`Error`](crate::Error) that names the step; nothing is left behind.
    pub fn spawn(&mut self) -> io::Result<Child> {
        Child::spawn(&Arc::new(Plan::compile(self, false)?))
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
        Child::launch(&Arc::new(Plan::compile(self, false)?))
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn). A program that fails is not an error: ask the [`ExitStatus`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        crate::wait::status(&Arc::new(Plan::compile(self, false)?))
    }

    /// Runs the program to its end and gives what it wrote.
    ///
    /// Unless told otherwise, standard input is empty and the two outputs are captured.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn output(&mut self) -> io::Result<Output> {
        output::output(&Arc::new(Plan::compile(self, false)?))
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
        Ok(Prepared::new(Plan::compile(self, true)?))
    }

    /// The program as given to [`Command::new`].
    pub fn get_program(&self) -> &OsStr {
        &self.program
    }

    /// The arguments, without `argv[0]`.
    pub fn get_args(&self) -> CommandArgs<'_> {
        CommandArgs { inner: self.args.get(1..).unwrap_or_default().iter() }
    }

    /// The changes to the environment: set (some) or removed (none).
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        CommandEnvs { inner: self.env.changes.iter() }
    }

    /// Was the environment emptied, by [`env_clear`](Self::env_clear)?
    pub fn get_env_clear(&self) -> bool {
        self.env.clear
    }

    /// The child's directory, if it is not the caller's.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}

/// The bit of a signal in a set.
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

impl fmt::Debug for Command {
    /// The command as a shell would be told it, near enough.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(directory) = &self.directory {
            write!(out, "cd {directory:?} && ")?;
        }
        if self.env.clear {
            write!(out, "env -i ")?;
        }
        for (key, value) in &self.env.changes {
            if let Some(value) = value {
                write!(out, "{}={value:?} ", key.to_string_lossy())?;
            }
        }
        let Some((first, others)) = self.args.split_first() else { return write!(out, "[{:?}]", self.program) };
        if self.program != *first {
            write!(out, "[{:?}] ", self.program)?;
        }
        write!(out, "{first:?}")?;
        others.iter().try_for_each(|arg| write!(out, " {arg:?}"))
    }
}

/// The arguments of a [`Command`].
#[derive(Debug, Clone)]
pub struct CommandArgs<'a> {
    inner: std::slice::Iter<'a, OsString>,
}

impl<'a> Iterator for CommandArgs<'a> {
    type Item = &'a OsStr;

    fn next(&mut self) -> Option<&'a OsStr> {
        self.inner.next().map(OsString::as_os_str)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl ExactSizeIterator for CommandArgs<'_> {}

/// The changes of a [`Command`] to the environment.
#[derive(Debug, Clone)]
pub struct CommandEnvs<'a> {
    inner: btree_map::Iter<'a, OsString, Option<OsString>>,
}

impl<'a> Iterator for CommandEnvs<'a> {
    type Item = (&'a OsStr, Option<&'a OsStr>);

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next().map(|(key, value)| (key.as_os_str(), value.as_deref()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl ExactSizeIterator for CommandEnvs<'_> {}
