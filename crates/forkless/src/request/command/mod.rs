//! `Command`: a program with its arguments and settings. It records them; `verbs.rs` has the methods that start it.
//!
//! Longer than most files, because each method has an example.

use crate::request::ClonerHandle;
use crate::request::closure::Closure;
use crate::request::environment::Held;
use crate::request::stdio::{FdSource, Stdio};
use crate::route::Launcher;
use forkless_core::sys::signal::{SIGPIPE, bit};
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

mod capability;
mod launcher;
pub mod posix;
mod paths;
mod sandbox;
mod setup;
pub(crate) mod values;

pub use capability::{Capability, CapabilitySet};
pub(crate) use paths::Paths;
#[doc(hidden)]
pub use sandbox::FilePlace;
pub use sandbox::{BpfInstruction, Namespace, mount_attribute};
pub(crate) use sandbox::{
    Confinement, GroupLimits, Isolation, IsolationArg, IsolationCall, IsolationVariable, LaunchGroup, MS_BIND, MS_MOVE,
    MS_PRIVATE, MS_REC, MS_REMOUNT, Mount, MountStep, NewFile, OVERLAY, SandboxInit,
};
pub use setup::CallArg;
pub(crate) use setup::{Name, Setup};

/// A program with its arguments and settings, to be started, with the names and meanings of [`std::process::Command`].
///
/// By default the cost of a launch does not depend on the calling process: not on its memory, mappings, open descriptors or
/// threads. A launch never forks, unless [`launcher`](Self::launcher) selects that.
///
/// ```
/// use forkless::Command;
/// let output = Command::new("echo").arg("hello").output()?;
/// assert_eq!(output.stdout, b"hello\n");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Methods by purpose
/// - **Program and arguments**: [`new`](Self::new), [`from_std`](Self::from_std), [`or_else`](Self::or_else), [`program_fd`](Self::program_fd),
///   [`arg`](Self::arg), [`args`](Self::args), [`arg0`](Self::arg0), [`scripts_by_shell`](Self::scripts_by_shell),
///   [`retry_busy`](Self::retry_busy).
/// - **Environment**: [`env`](Self::env), [`envs`](Self::envs), [`env_remove`](Self::env_remove),
///   [`env_clear`](Self::env_clear).
/// - **Standard streams and descriptors**: [`stdin`](Self::stdin), [`stdout`](Self::stdout), [`stderr`](Self::stderr),
///   [`fd`](Self::fd), [`inherit_all`](Self::inherit_all).
/// - **Start**: [`spawn`](Self::spawn), [`launch`](Self::launch), [`status`](Self::status), [`output`](Self::output),
///   [`capture`](Self::capture), [`prepare`](Self::prepare), [`exec`](Self::exec).
/// - **Handle and end of the child**: [`pidfd`](Self::pidfd), [`kill_on_drop`](Self::kill_on_drop), [`kill_tree`](Self::kill_tree),
///   [`autoreap`](Self::autoreap), [`pidfd_autokill`](Self::pidfd_autokill),
///   [`parent_death_signal`](Self::parent_death_signal), [`thread_death_signal`](Self::thread_death_signal),
///   [`keep_record_locks`](Self::keep_record_locks).
/// - **Signals**: [`signal_default`](Self::signal_default), [`signal_ignore`](Self::signal_ignore),
///   [`signal_inherit`](Self::signal_inherit), [`signal_block`](Self::signal_block),
///   [`inherit_signal_mask`](Self::inherit_signal_mask).
/// - **User and group ids**: [`uid`](Self::uid), [`gid`](Self::gid), [`groups`](Self::groups), [`user`](Self::user),
///   [`group_name`](Self::group_name).
/// - **Limits and scheduling**: [`rlimit`](Self::rlimit), [`nice`](Self::nice), [`scheduler`](Self::scheduler),
///   [`cpu_affinity`](Self::cpu_affinity), [`io_priority`](Self::io_priority), [`timer_slack`](Self::timer_slack),
///   [`oom_score_adj`](Self::oom_score_adj), [`personality`](Self::personality),
///   [`memory_policy`](Self::memory_policy), [`memory_deny_write_execute`](Self::memory_deny_write_execute).
/// - **Limits of the child with all that it starts**: [`memory_max`](Self::memory_max), [`tasks_max`](Self::tasks_max),
///   [`cpu_max`](Self::cpu_max), [`io_max`](Self::io_max), [`cgroup_parent`](Self::cgroup_parent).
/// - **Session and terminal**: [`setsid`](Self::setsid), [`process_group`](Self::process_group),
///   [`controlling_terminal`](Self::controlling_terminal), [`foreground`](Self::foreground), [`pty`](Self::pty).
/// - **Working directory, root and umask**: [`current_dir`](Self::current_dir),
///   [`current_dir_fd`](Self::current_dir_fd), [`chroot`](Self::chroot), [`pivot_root`](Self::pivot_root),
///   [`umask`](Self::umask).
/// - **Namespaces**: [`unshare`](Self::unshare), [`map_uid`](Self::map_uid), [`map_gid`](Self::map_gid),
///   [`join`](Self::join), [`hostname`](Self::hostname).
/// - **Mounts**: [`mount`](Self::mount), [`bind`](Self::bind), [`bind_read_only`](Self::bind_read_only),
///   [`read_only`](Self::read_only), [`mount_attributes`](Self::mount_attributes), [`file_system`](Self::file_system),
///   [`attach_mount`](Self::attach_mount), [`overlay`](Self::overlay), [`tmpfs`](Self::tmpfs), [`proc`](Self::proc),
///   [`devices`](Self::devices), [`make_dir`](Self::make_dir), [`make_symlink`](Self::make_symlink),
///   [`unmount`](Self::unmount).
/// - **Cgroup**: [`cgroup`](Self::cgroup).
/// - **Privileges, Landlock and seccomp**: [`sandbox`](Self::sandbox) (all of them at once), [`no_new_privs`](Self::no_new_privs), [`bounding_set`](Self::bounding_set),
///   [`permitted`](Self::permitted), [`effective`](Self::effective), [`inheritable`](Self::inheritable),
///   [`ambient`](Self::ambient), [`securebits`](Self::securebits), [`landlock`](Self::landlock),
///   [`seccomp`](Self::seccomp).
/// - **Launcher and policy**: [`launcher`](Self::launcher), [`pre_exec`](Self::pre_exec),
///   [`best_effort`](Self::best_effort), `warm` (feature `warm`).
/// - **Other system calls**: [`call`](Self::call), [`hand_back`](Self::hand_back).
/// - **Inspection**: [`get_program`](Self::get_program), [`get_args`](Self::get_args), [`get_envs`](Self::get_envs),
///   [`get_env_clear`](Self::get_env_clear), [`get_current_dir`](Self::get_current_dir).
///
/// # What differs from `std`
/// - The program has standard input, output and error and the descriptors set by [`fd`](Self::fd), and no others, whether they
///   are close-on-exec or not. [`inherit_all`](Self::inherit_all) selects the POSIX rule.
/// - A [`Child`](crate::Child) that is dropped leaves no zombie behind.
/// - Errors say which step failed, and on what ([`Error::of`](crate::Error::of)). `raw_os_error()` of such an `io::Error`
///   is `None`: use `kind()` or [`Error::errno`](crate::Error::errno).
/// - [`pre_exec`](Self::pre_exec) needs [`Launcher::Fork`], because otherwise the child shares the caller's memory.
///
/// # In the child
/// The settings take effect in this order, whatever the order of the calls:
/// 1. Namespaces and cgroup, in which the child is born; the directory as a descriptor; namespaces to join.
/// 2. A private descriptor table; the descriptors, each to its number. The child waits for the caller to write the id maps.
/// 3. Time namespace, host name, mounts.
/// 4. Limits, scheduling, `oom_score_adj`.
/// 5. Session or process group, then the terminal.
/// 6. The root directory: `chroot` or `pivot_root`.
/// 7. Bounding set and securebits; then groups, group, user.
/// 8. The working directory, the umask, files that the child opens, copies of its descriptors.
/// 9. Further system calls, and descriptors that are handed back.
/// 10. `no_new_privs`; the parent-death signal; the capability sets; Landlock.
/// 11. Signals: SIGPIPE at its default, and the caller's mask, by default.
/// 12. Closures of [`pre_exec`](Self::pre_exec), the seccomp filter, exec.
///
/// A clone has the same settings, and shares the descriptors and closures:
///
/// ```
/// # use forkless::Command;
/// let mut list = Command::new("echo");
/// list.arg("a");
/// assert_eq!(list.clone().arg("b").output()?.stdout, b"a b\n");
/// assert_eq!(list.output()?.stdout, b"a\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Command {
    pub(crate) program: OsString,
    pub(crate) candidates: Vec<OsString>,
    /// See [`Command::try_all`].
    pub(crate) tries_all: bool,
    pub(crate) program_fd: Option<Arc<OwnedFd>>,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: EnvironmentChanges,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) fds: BTreeMap<RawFd, FdSource>,
    pub(crate) inherit_all: bool,
    pub(crate) setsid: bool,
    pub(crate) process_group: Option<i32>,
    pub(crate) signals: Signals,
    pub(crate) pidfd: Option<bool>,
    pub(crate) kill_on_drop: bool,
    pub(crate) once: bool,
    /// See [`Command::keep_record_locks`].
    pub(crate) keeps_locks: bool,
    /// See [`Command::exec_pipe`].
    pub(crate) exec_pipe: bool,
    pub(crate) autoreap: bool,
    pub(crate) pidfd_autokill: bool,
    pub(crate) busy_ms: u32,
    pub(crate) scripts_by_shell: bool,
    /// See [`Command::any_file_by_shell`].
    pub(crate) any_by_shell: bool,
    /// The master side of the pseudo-terminal that the child gets.
    pub(crate) pty: Option<Weak<OwnedFd>>,
    pub(crate) setup: Setup,
    pub(crate) sandbox: Isolation,
    pub(crate) confinement: Option<Arc<dyn Confinement>>,
    /// Everything that the program starts ends with it: added after the sandbox.
    pub(crate) tree: Option<Arc<dyn Confinement>>,
    pub(crate) launcher: Launcher,
    pub(crate) closures: Vec<Arc<Closure>>,
    pub(crate) ready: Option<Ready>,
    pub(crate) actions: Vec<posix::FileAction>,
    pub(crate) cloner: Option<ClonerHandle>,
}

/// Environment, paths and redirections in final form, from a shell line or [`Command::exactly`].
#[derive(Clone)]
pub(crate) struct Ready {
    /// The whole environment, in this order.
    pub(crate) env: Held,
    /// The paths to try, in this order.
    pub(crate) paths: Paths,
    /// Made after all other descriptors, in this order.
    pub(crate) redirections: Vec<ReadyFile>,
}

/// A descriptor that the child opens or copies when all others are in place.
#[derive(Clone)]
pub(crate) enum ReadyFile {
    Open { to: RawFd, path: CString, flags: i32 },
    Copy { to: RawFd, from: RawFd },
}

/// Changes to the environment that the child inherits.
#[derive(Clone, Default)]
pub(crate) struct EnvironmentChanges {
    /// Does the child start without the variables of the caller?
    pub(crate) clear: bool,
    /// Set (some) or removed (none).
    pub(crate) changes: BTreeMap<OsString, Option<OsString>>,
}

/// The signal actions and the mask that the program starts with. Bit n-1 is signal n.
#[derive(Clone, Copy)]
pub(crate) struct Signals {
    pub(crate) default: u64,
    pub(crate) ignore: u64,
    pub(crate) mask: u64,
    pub(crate) inherit_mask: bool,
    /// Numbers that are not signals, kept for the error.
    pub(crate) bad: Option<i32>,
}

/// The default of [`Command::retry_busy`], in milliseconds.
pub(crate) const BUSY_MS: u32 = 100;

impl Command {
    /// Makes a command that runs `program`, by default without arguments, with the caller's environment, working
    /// directory and standard streams.
    ///
    /// A program with a slash in it is a path. Any other is searched for in `PATH`: in the child's if the command
    /// changes it, otherwise in the caller's. An entry with which the path would be longer than the kernel accepts (4,095
    /// bytes) is skipped.
    ///
    /// ```
    /// use forkless::Command;
    /// assert!(Command::new("true").status()?.success());
    /// assert!(Command::new("/bin/sh").args(["-c", "exit 0"]).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Self {
        let program = program.as_ref().to_owned();
        Self {
            args: vec![program.clone()],
            program,
            candidates: Vec::new(),
            tries_all: false,
            program_fd: None,
            env: EnvironmentChanges::default(),
            directory: None,
            fds: BTreeMap::new(),
            inherit_all: false,
            setsid: false,
            process_group: None,
            signals: Signals { default: bit(SIGPIPE), ignore: 0, mask: 0, inherit_mask: true, bad: None },
            pidfd: None,
            kill_on_drop: false,
            once: false,
            keeps_locks: false,
            exec_pipe: false,
            autoreap: false,
            pidfd_autokill: false,
            busy_ms: BUSY_MS,
            scripts_by_shell: false,
            any_by_shell: false,
            pty: None,
            setup: Setup::default(),
            sandbox: Isolation::default(),
            confinement: None,
            tree: None,
            launcher: Launcher::Clone,
            closures: Vec::new(),
            ready: None,
            actions: Vec::new(),
            cloner: None,
        }
    }

    /// Makes a command of one of std's, with what std's functions return: program, arguments, variables that are set or
    /// removed, and working directory.
    ///
    /// **Not taken over, because std has no function that reads it**: `env_clear`, `stdin`, `stdout` and `stderr`, `arg0`,
    /// ids and groups, `process_group`, closures of `pre_exec`. Set these again. After `env_clear` of std's command, the
    /// new one would otherwise inherit the caller's variables. For a string with a NUL byte, std returns the text
    /// `<string-with-nul>`.
    ///
    /// ```
    /// let mut theirs = std::process::Command::new("sh");
    /// theirs.args(["-c", "echo $GREETING; pwd"]).env("GREETING", "hello").current_dir("/");
    /// let output = forkless::Command::from_std(&theirs).output()?;
    /// assert_eq!(output.stdout, b"hello\n/\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_std(command: &std::process::Command) -> Self {
        let mut new = Self::new(command.get_program());
        new.args(command.get_args());
        new.env.changes =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned))).collect();
        new.directory = command.get_current_dir().map(Path::to_owned);
        new
    }

    /// Adds a fallback, which is tried if the programs before it are not found; `argv[0]` is unchanged. `execvp(3)`
    /// goes through `PATH` in the same way.
    ///
    /// ```
    /// use forkless::Command;
    /// let status = Command::new("no-such-program").or_else("true").status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn or_else<S: AsRef<OsStr>>(&mut self, program: S) -> &mut Self {
        self.candidates.push(program.as_ref().to_owned());
        self
    }

    /// Sets the program to an open file: `execveat(2)`. The name given to [`new`](Self::new) is then only what it is
    /// called, in `argv[0]` and in errors.
    ///
    /// The child finds the descriptor at a number above all others that it has. For a script it stays open, because the
    /// interpreter opens `/dev/fd/N` to read it; for a binary it is closed by exec.
    ///
    /// ```
    /// use forkless::Command;
    /// let shell = std::fs::File::open("/bin/sh")?;
    /// let status = Command::new("sh").program_fd(shell).args(["-c", "exit 3"]).status()?;
    /// assert_eq!(status.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn program_fd<F: Into<OwnedFd>>(&mut self, program: F) -> &mut Self {
        self.program_fd = Some(Arc::new(program.into()));
        self
    }

    /// Adds one argument. It reaches the program as it is: no shell splits or expands it.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): the argument contains a NUL byte.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("echo").arg("a b").arg("$HOME").output()?;
    /// assert_eq!(output.stdout, b"a b $HOME\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments, each as [`arg`](Self::arg) does.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("echo").args(["one", "two"]).output()?;
    /// assert_eq!(output.stdout, b"one two\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn args<I, S>(&mut self, args: I) -> &mut Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets what the program sees as `argv[0]` (default: the name given to [`new`](Self::new)).
    ///
    /// ```no_run
    /// use forkless::Command;
    /// // A minus sign in front makes it a login shell.
    /// Command::new("sh").arg0("-sh").status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg0: S) -> &mut Self {
        let arg0 = arg0.as_ref().to_owned();
        match self.args.first_mut() {
            Some(first) => *first = arg0,
            // `exactly` may have been given no arguments at all.
            None => self.args.push(arg0),
        }
        self
    }

    /// Sets a variable in the child's environment.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): the name or the value contains a NUL byte.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("sh").args(["-c", "echo $GREETING"]).env("GREETING", "hello").output()?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Self {
        self.env.changes.insert(key.as_ref().to_owned(), Some(value.as_ref().to_owned()));
        self
    }

    /// Sets several variables in the child's environment, each as [`env`](Self::env) does.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("sh").args(["-c", "echo $A $B"]).envs([("A", "1"), ("B", "2")]).output()?;
    /// assert_eq!(output.stdout, b"1 2\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// Removes a variable from the child's environment. It is no error if no variable can have the name, as one with a
    /// NUL byte.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("sh").args(["-c", "echo ${LC_ALL-unset}"]).env_remove("LC_ALL").output()?;
    /// assert_eq!(output.stdout, b"unset\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Self {
        if self.env.clear {
            self.env.changes.remove(key.as_ref());
        } else {
            self.env.changes.insert(key.as_ref().to_owned(), None);
        }
        self
    }

    /// Empties the child's environment. It then has the variables that are set afterwards, and no others.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("env").env_clear().env("LANG", "C").output()?;
    /// assert_eq!(output.stdout, b"LANG=C\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env_clear(&mut self) -> &mut Self {
        self.env.clear = true;
        self.env.changes.clear();
        self
    }

    /// Sets the child's working directory: `chdir(2)`. A relative path of the program is looked up from there.
    ///
    /// # Errors
    /// The launch fails at [`Step::Chdir`](crate::Step::Chdir), and the error names the directory.
    /// [`Step::Check`](crate::Step::Check): the path contains a NUL byte.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("pwd").current_dir("/").output()?;
    /// assert_eq!(output.stdout, b"/\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Self {
        self.directory = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets the child's standard input (default: the caller's; for [`output`](Self::output), empty).
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::io::Write;
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    /// child.stdin.take().unwrap().write_all(b"hello")?; // and closes it
    /// assert_eq!(child.wait_with_output()?.stdout, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.fd(stdio, 0)
    }

    /// Sets the child's standard output (default: the caller's; for [`output`](Self::output), captured).
    ///
    /// ```
    /// use forkless::Command;
    /// let null = std::fs::File::options().write(true).open("/dev/null")?;
    /// assert!(Command::new("echo").arg("hello").stdout(null).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stdout<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.fd(stdio, 1)
    }

    /// Sets the child's standard error (default: the caller's; for [`output`](Self::output), captured).
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let status = Command::new("ls").arg("/no/such/file").stderr(Stdio::null()).status()?;
    /// assert!(!status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Self {
        self.fd(stdio, 2)
    }

    /// Sets what the child finds at descriptor `number`: any source at any number, swaps and cycles included.
    ///
    /// The child has the standard streams and the descriptors that are set by this method. All others are closed,
    /// unless [`inherit_all`](Self::inherit_all) keeps them.
    ///
    /// # Errors
    /// The launch fails at [`Step::PassFd`](crate::Step::PassFd), and the error names the descriptor.
    /// [`Step::Check`](crate::Step::Check): a negative number, or [`Stdio::piped`] above 2.
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

    /// Makes the child inherit every descriptor that is not close-on-exec, the POSIX rule (default: false).
    ///
    /// The kernel then copies the caller's whole file-descriptor table, at a cost that grows with it. Until exec the
    /// child also holds files open that another thread is writing (see ETXTBSY in `execve(2)`).
    ///
    /// ```no_run
    /// use forkless::Command;
    /// // The jobserver of GNU make passes descriptors that only MAKEFLAGS names.
    /// Command::new("make").inherit_all(true).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn inherit_all(&mut self, inherit: bool) -> &mut Self {
        self.inherit_all = inherit;
        self
    }

    /// Starts the child in a new session, without a controlling terminal: `setsid(2)`.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): together with [`process_group`](Self::process_group), since a session
    /// leader leads its own group.
    ///
    /// ```
    /// use forkless::Command;
    /// // Ctrl-C at the caller's terminal does not reach it.
    /// let mut server = Command::new("sleep").arg("60").setsid(true).spawn()?;
    /// # server.kill()?; server.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn setsid(&mut self, setsid: bool) -> &mut Self {
        self.setsid = setsid;
        self
    }

    /// Puts the child into this process group, or for 0 into a new one of its own: `setpgid(2)`.
    ///
    /// # Errors
    /// The launch fails at [`Step::SetPgid`](crate::Step::SetPgid), with EPERM if the session has no such group.
    /// [`Step::Check`](crate::Step::Check): together with [`setsid`](Self::setsid) or [`pty`](Self::pty).
    ///
    /// ```
    /// use forkless::Command;
    /// const SIGTERM: i32 = 15;
    /// let mut job = Command::new("sh").args(["-c", "sleep 60; exit"]).process_group(0).spawn()?;
    /// job.signal_group(SIGTERM)?; // the shell, and what it has started
    /// assert!(!job.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn process_group(&mut self, pgroup: i32) -> &mut Self {
        self.process_group = Some(pgroup);
        self
    }

    /// Starts the program with the default action for `signal` (1 to 64). SIGPIPE has it by default.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): there is no such signal.
    ///
    /// ```
    /// use forkless::Command;
    /// const SIGHUP: i32 = 1;
    /// // Under nohup(1) SIGHUP is ignored, and a child inherits that.
    /// let status = Command::new("sh").args(["-c", "kill -HUP $$"]).signal_default(SIGHUP).status()?;
    /// assert!(!status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn signal_default(&mut self, signal: i32) -> &mut Self {
        if self.check_signal(signal) {
            self.signals.default |= bit(signal);
            self.signals.ignore &= !bit(signal);
        }
        self
    }

    /// Starts the program with `signal` (1 to 64) ignored.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): there is no such signal, or it is SIGKILL or SIGSTOP.
    ///
    /// ```
    /// use forkless::Command;
    /// const SIGINT: i32 = 2;
    /// let output = Command::new("sh").args(["-c", "kill -INT $$; echo alive"]).signal_ignore(SIGINT).output()?;
    /// assert_eq!(output.stdout, b"alive\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn signal_ignore(&mut self, signal: i32) -> &mut Self {
        if self.check_signal(signal) {
            self.signals.ignore |= bit(signal);
            self.signals.default &= !bit(signal);
        }
        self
    }

    /// Starts the program with the caller's action for `signal` (1 to 64): ignored stays ignored, anything else becomes
    /// the default, since no handler outlives exec. This is the default for all signals but SIGPIPE.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): there is no such signal.
    ///
    /// ```
    /// use forkless::Command;
    /// const SIGPIPE: i32 = 13;
    /// // A Rust program ignores SIGPIPE.
    /// let output = Command::new("sh").args(["-c", "kill -PIPE $$; echo alive"]).signal_inherit(SIGPIPE).output()?;
    /// assert_eq!(output.stdout, b"alive\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn signal_inherit(&mut self, signal: i32) -> &mut Self {
        if self.check_signal(signal) {
            self.signals.default &= !bit(signal);
            self.signals.ignore &= !bit(signal);
        }
        self
    }

    /// Starts the program with `signal` (1 to 64) blocked, beside those that the calling thread blocks.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): there is no such signal.
    ///
    /// ```
    /// use forkless::Command;
    /// const SIGTERM: i32 = 15;
    /// let output = Command::new("sh").args(["-c", "kill -TERM $$; echo alive"]).signal_block(SIGTERM).output()?;
    /// assert_eq!(output.stdout, b"alive\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn signal_block(&mut self, signal: i32) -> &mut Self {
        if self.check_signal(signal) {
            self.signals.mask |= bit(signal);
        }
        self
    }

    /// Sets whether the program starts with the calling thread's signal mask (default: true, the POSIX rule).
    ///
    /// With false nothing is blocked but what [`signal_block`](Self::signal_block) names. This is for callers that
    /// block signals for themselves, to take them by `signalfd(2)` or `sigwait(3)`.
    ///
    /// ```
    /// use forkless::Command;
    /// let status = Command::new("true").inherit_signal_mask(false).status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn inherit_signal_mask(&mut self, inherit: bool) -> &mut Self {
        self.signals.inherit_mask = inherit;
        self
    }

    fn check_signal(&mut self, signal: i32) -> bool {
        let good = (1..=64).contains(&signal);
        if !good {
            self.signals.bad = Some(signal);
        }
        good
    }

    /// Sets whether the handle holds a pidfd. By default [`spawn`](Self::spawn) and [`launch`](Self::launch) have one.
    /// [`status`](Self::status) and [`output`](Self::output), which wait at once, have one only where SIGCHLD is
    /// ignored.
    ///
    /// With a pidfd, signals cannot reach another process that got the same pid, and a wait with a timeout needs no
    /// further system call. On Linux 6.15 and later the exit status is kept even if another part of the program reaps
    /// the child, or SIGCHLD is ignored. It costs one descriptor and a few microseconds.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut child = Command::new("true").pidfd(false).spawn()?;
    /// assert!(child.pidfd().is_none());
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pidfd(&mut self, pidfd: bool) -> &mut Self {
        self.pidfd = Some(pidfd);
        self
    }

    /// Makes [`launch`](Self::launch) wait until the child has a file-descriptor table of its own (default: false), which takes some
    /// microseconds. The other forms wait longer anyway.
    ///
    /// POSIX record locks (`fcntl(2)` F_SETLK) belong to a table of descriptors, and a child shares that of its caller for a moment. If
    /// the caller executes another program right after `launch`, the kernel gives it a copy of the table, and the locks are lost when
    /// the child leaves the first one. If it ends, the child has its locks on descriptors 0 to 2 until it has made its own table.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut child = Command::new("true").keep_record_locks(true).launch()?;
    /// // From here on the caller may execute another program: its locks stay.
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// Source: unshare_files() in kernel/fork.c, which begin_new_exec() calls; filp_flush() and locks_remove_posix() in fs.
    pub fn keep_record_locks(&mut self, on: bool) -> &mut Self {
        self.keeps_locks = on;
        self
    }

    /// Kills the child with SIGKILL when its [`Child`](crate::Child) is dropped before it has ended (default: false).
    /// A later launch, or [`reap_orphans`](crate::reap_orphans), reaps it, as any dropped child.
    ///
    /// The child alone is killed, not what it has started, which [`kill_tree`](Self::kill_tree) adds. If this process
    /// ends without dropping the handle, the child is not killed: [`pidfd_autokill`](Self::pidfd_autokill) and
    /// [`parent_death_signal`](Self::parent_death_signal) are for that.
    ///
    /// ```
    /// use forkless::Command;
    /// let child = Command::new("sleep").arg("60").kill_on_drop(true).spawn()?;
    /// drop(child); // kills it
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.kill_on_drop = kill;
        self
    }

    /// Announces that no other launch follows: probing the kernel's features would then cost more than it saves.
    #[doc(hidden)]
    pub fn launched_once(&mut self, once: bool) -> &mut Self {
        self.once = once;
        self
    }

    /// Makes [`Child::exec_pipe`](crate::Child::exec_pipe) available after a [`launch`](Self::launch).
    #[doc(hidden)]
    pub fn exec_pipe(&mut self, on: bool) -> &mut Self {
        self.exec_pipe = on;
        self
    }

    /// Sets for how long to try again, each millisecond, while the program is open for writing (ETXTBSY) (default: 100
    /// ms).
    ///
    /// A child of this crate holds files that another thread is writing for the few microseconds in which it makes its
    /// file-descriptor table, if their numbers are below 64 (the kernel copies a table in words of 64). A fork
    /// elsewhere in the process may hold any, for longer.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// use std::time::Duration;
    /// std::fs::copy("build/tool", "/tmp/tool")?;
    /// Command::new("/tmp/tool").retry_busy(Duration::from_secs(1)).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn retry_busy(&mut self, limit: Duration) -> &mut Self {
        self.busy_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Runs an executable file that is no program, and no script with `#!` (ENOEXEC), by `/bin/sh`, as `execvp(3)` does
    /// (default: false, an error). A binary, such as a program for another machine, stays an error, as in shells. `std`
    /// makes it an error too, except for its children by fork, such as those with `pre_exec`.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): together with [`program_fd`](Self::program_fd) or
    /// [`Launcher::PosixSpawn`](crate::Launcher::PosixSpawn).
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

    /// Returns the program as given to [`Command::new`].
    ///
    /// ```
    /// let command = forkless::Command::new("true");
    /// assert_eq!(command.get_program(), "true");
    /// ```
    pub fn get_program(&self) -> &OsStr {
        &self.program
    }

    /// Returns the arguments, without `argv[0]`.
    ///
    /// ```
    /// let mut command = forkless::Command::new("echo");
    /// command.args(["one", "two"]);
    /// assert!(command.get_args().eq(["one", "two"]));
    /// ```
    pub fn get_args(&self) -> CommandArgs<'_> {
        CommandArgs { inner: self.args.get(1..).unwrap_or_default().iter() }
    }

    /// Returns the changes to the environment, sorted by name: set (some) or removed (none).
    ///
    /// ```
    /// let mut command = forkless::Command::new("true");
    /// command.env("LANG", "C").env_remove("LC_ALL");
    /// let changes: Vec<_> = command.get_envs().collect();
    /// assert_eq!(changes, [("LANG".as_ref(), Some("C".as_ref())), ("LC_ALL".as_ref(), None)]);
    /// ```
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        CommandEnvs { inner: self.env.changes.iter() }
    }

    /// Reports whether [`env_clear`](Self::env_clear) has emptied the environment.
    ///
    /// ```
    /// let mut command = forkless::Command::new("true");
    /// assert!(!command.get_env_clear());
    /// assert!(command.env_clear().get_env_clear());
    /// ```
    pub fn get_env_clear(&self) -> bool {
        self.env.clear
    }

    /// Returns the child's working directory, if [`current_dir`](Self::current_dir) has set one.
    ///
    /// ```
    /// let mut command = forkless::Command::new("true");
    /// assert_eq!(command.current_dir("/").get_current_dir(), Some("/".as_ref()));
    /// ```
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}

impl fmt::Debug for Command {
    /// Formats the command as a line for a shell, approximately.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(directory) = &self.directory {
            write!(out, "cd {directory:?} && ")?;
        }
        let mut removed = self.env.changes.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key).peekable();
        if self.env.clear {
            write!(out, "env -i ")?;
        } else if removed.peek().is_some() {
            write!(out, "env ")?;
            removed.try_for_each(|key| write!(out, "-u {} ", key.to_string_lossy()))?;
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

/// The arguments of a [`Command`]: from [`Command::get_args`].
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

/// The changes of a [`Command`] to the environment: from [`Command::get_envs`].
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
