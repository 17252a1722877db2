//! Settings of the child process: ids, limits, scheduling, terminal, and system calls of the caller's own.

use crate::request::command::Command;
use crate::request::command::values::*;
use crate::step::Step;
use forkless_core::sys::uapi;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// These settings as the user gave them: nothing is looked up or checked yet.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    /// Those of one value.
    pub(crate) simple: Simple,
    pub(crate) directory_fd: Option<Arc<OwnedFd>>,
    pub(crate) rlimits: BTreeMap<u32, (u64, u64)>,
    /// Policy, none to keep the caller's, and priority.
    pub(crate) scheduler: Option<(Option<i32>, i32)>,
    pub(crate) affinity: Option<BTreeSet<usize>>,
    pub(crate) io_priority: Option<(u32, u32)>,
    pub(crate) terminal: Option<RawFd>,
    pub(crate) foreground: Option<RawFd>,
    pub(crate) chroot: Option<PathBuf>,
    pub(crate) user: Option<Name>,
    pub(crate) group: Option<Name>,
    pub(crate) groups: Option<Vec<u32>>,
    pub(crate) umask: Option<u32>,
    pub(crate) no_new_privs: bool,
    pub(crate) parent_death_signal: Option<i32>,
    pub(crate) follows_thread: bool,
    pub(crate) calls: Vec<RawCall>,
    pub(crate) hand_backs: Vec<u32>,
    pub(crate) best_effort: BTreeSet<u32>,
}

/// A system call as the user gave it.
#[derive(Clone)]
pub(crate) struct RawCall {
    pub(crate) number: u32,
    pub(crate) args: Vec<CallArg>,
    pub(crate) result: Option<u32>,
}

/// An argument of [`Command::call`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallArg {
    /// A number, or an address that means the same in the caller.
    Number(u64),
    /// The address of a copy of these bytes, which are followed by a NUL byte.
    Bytes(Vec<u8>),
    /// The result that an earlier call left in this variable (0 to 14); -1 if none did.
    Variable(u32),
}

impl From<u64> for CallArg {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for CallArg {
    fn from(text: &str) -> Self {
        Self::Bytes(text.into())
    }
}

/// A user or group as the user gave it.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    Id(u32),
    Name(OsString),
}

/// Ids, limits, scheduling, terminal and system calls of the child.
///
/// Each setting is one system call in the child, unless its documentation says otherwise. None makes the launch fork. The
/// child makes the calls in a fixed order, whatever the order of the settings: see `docs/design/order.md`.
impl Command {
    /// Sets the child's working directory to an open directory: `fchdir(2)`.
    ///
    /// A relative [`current_dir`](Self::current_dir) is then looked up from there. So is a relative
    /// [`chroot`](Self::chroot) or [`pivot_root`](Self::pivot_root), which then becomes the working directory.
    ///
    /// # Errors
    /// The launch fails at [`Step::Chdir`] with the error of `fchdir(2)`. [`Step::Check`]: together with an
    /// absolute `chroot` or `pivot_root`. There the directory would have no effect, or be a way out of the root.
    ///
    /// ```
    /// use forkless::Command;
    /// let root = std::fs::File::open("/")?;
    /// let output = Command::new("pwd").current_dir_fd(root).output()?;
    /// assert_eq!(output.stdout, b"/\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current_dir_fd<F: Into<OwnedFd>>(&mut self, directory: F) -> &mut Self {
        self.setup.directory_fd = Some(Arc::new(directory.into()));
        self
    }

    /// Sets the child's root directory: `chroot(2)`. Needs CAP_SYS_CHROOT.
    ///
    /// The new root also becomes the working directory, unless [`current_dir`](Self::current_dir) names another one.
    /// That path, the program's path and PATH are looked up inside the new root.
    ///
    /// # Errors
    /// The launch fails at [`Step::Chroot`], with EPERM without the capability. [`Step::Check`]:
    /// together with [`pivot_root`](Self::pivot_root).
    ///
    /// ```no_run
    /// use forkless::Command;
    /// // Runs /srv/debian/bin/ls.
    /// let status = Command::new("/bin/ls").arg("/").chroot("/srv/debian").status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn chroot<P: AsRef<Path>>(&mut self, root: P) -> &mut Self {
        self.setup.chroot = Some(root.as_ref().to_owned());
        self
    }

    /// Sets the child's user id (real, effective and saved): `setresuid(2)`. Needs CAP_SETUID unless the id is one of
    /// the caller's.
    ///
    /// If the caller is root and [`groups`](Self::groups) is not used, the child has no supplementary groups. For any
    /// other caller, such as one with CAP_SETUID alone, the child keeps the caller's, as with `std::process`.
    ///
    /// # Errors
    /// The launch fails at [`Step::SetUid`], with EPERM if the caller may not change to this id. [`Step::Check`]: the
    /// id 4,294,967,295, which to the kernel means "no change".
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let output = Command::new("id").arg("-u").uid(1000).gid(1000).output()?;
    /// assert_eq!(output.stdout, b"1000\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn uid(&mut self, uid: u32) -> &mut Self {
        self.setup.user = Some(Name::Id(uid));
        self
    }

    /// Sets the child's group id (real, effective and saved): `setresgid(2)`. Needs CAP_SETGID unless the id is one of
    /// the caller's.
    ///
    /// The child keeps the caller's supplementary groups, unless [`groups`](Self::groups) or a change of user
    /// replaces them.
    ///
    /// # Errors
    /// The launch fails at [`Step::SetGid`], with EPERM if the caller may not change to this id. [`Step::Check`]: the
    /// id 4,294,967,295, which to the kernel means "no change".
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let output = Command::new("id").arg("-g").gid(50).output()?;
    /// assert_eq!(output.stdout, b"50\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn gid(&mut self, gid: u32) -> &mut Self {
        self.setup.group = Some(Name::Id(gid));
        self
    }

    /// Sets the child's supplementary groups: `setgroups(2)`. Needs CAP_SETGID, also for an empty list.
    ///
    /// # Errors
    /// The launch fails at [`Step::SetGroups`], with EPERM without the capability.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// // The groups of user 1000, and nothing of the caller's.
    /// Command::new("backup").uid(1000).gid(1000).groups(&[4, 24]).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn groups(&mut self, groups: &[u32]) -> &mut Self {
        self.setup.groups = Some(groups.to_owned());
        self
    }

    /// Sets the child's user by name, with its primary group and its supplementary groups (`initgroups(3)`).
    ///
    /// [`gid`](Self::gid) or [`group_name`](Self::group_name) replaces the primary group, [`groups`](Self::groups) the
    /// supplementary ones. The name is looked up by the caller when the plan is made. A string of digits that is no
    /// user's name is a user id. If no user has that id, its groups are as for [`uid`](Self::uid).
    ///
    /// # Errors
    /// [`Step::Check`]: there is no such user, or it cannot be looked up. Otherwise as for [`uid`](Self::uid),
    /// [`gid`](Self::gid) and [`groups`](Self::groups).
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let output = Command::new("id").arg("-un").user("www-data").output()?;
    /// assert_eq!(output.stdout, b"www-data\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn user<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Self {
        self.setup.user = Some(Name::Name(name.as_ref().to_owned()));
        self
    }

    /// Sets the child's group by name. It is looked up by the caller when the plan is made. A string of digits that is
    /// no group's name is a group id.
    ///
    /// # Errors
    /// [`Step::Check`]: there is no such group, or it cannot be looked up. Otherwise as for [`gid`](Self::gid).
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let output = Command::new("id").arg("-gn").group_name("audio").output()?;
    /// assert_eq!(output.stdout, b"audio\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn group_name<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Self {
        self.setup.group = Some(Name::Name(name.as_ref().to_owned()));
        self
    }

    /// Sets the child's file mode creation mask, the permission bits that new files do not get: `umask(2)`.
    ///
    /// It holds for the program, and for files that the child opens for it ([`Stdio::open`](crate::Stdio::open)).
    ///
    /// # Errors
    /// [`Step::Check`]: a mask above 0o777.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("sh").args(["-c", "umask"]).umask(0o027).output()?;
    /// assert_eq!(output.stdout, b"0027\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn umask(&mut self, mask: u32) -> &mut Self {
        self.setup.umask = Some(mask);
        self
    }

    /// Sets a resource limit of the child, `soft` and `hard`, in the unit of the [`Resource`]: `prlimit(2)`.
    /// [`RLIM_INFINITY`] is no limit. Raising a hard limit needs CAP_SYS_RESOURCE.
    ///
    /// One call for each resource; the last one counts. Limits are set before the child changes its ids, and after its
    /// descriptors are in place, so that a small [`Resource::Files`] does not stand in the way of the launch.
    ///
    /// # Errors
    /// The launch fails at [`Step::Rlimit`]: EPERM if the caller may not raise the limit, EINVAL if `soft` is above
    /// `hard`.
    ///
    /// ```
    /// use forkless::{Command, Resource};
    /// let output = Command::new("sh").args(["-c", "ulimit -n"]).rlimit(Resource::Files, 64, 64).output()?;
    /// assert_eq!(output.stdout, b"64\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn rlimit(&mut self, resource: Resource, soft: u64, hard: u64) -> &mut Self {
        self.setup.rlimits.insert(resource as u32, (soft, hard));
        self
    }

    /// Sets the child's scheduling policy and static priority: `sched_setscheduler(2)`. The priority is from 1 to 99
    /// for the real-time policies ([`Scheduler::Fifo`], [`Scheduler::RoundRobin`]), else 0.
    ///
    /// Real-time policies need CAP_SYS_NICE or RLIMIT_RTPRIO.
    ///
    /// # Errors
    /// The launch fails at [`Step::Scheduler`]: EPERM if the caller may not use the policy, EINVAL for a priority that
    /// does not go with it.
    ///
    /// ```
    /// use forkless::{Command, Scheduler};
    /// let status = Command::new("true").scheduler(Scheduler::Batch, 0).status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scheduler(&mut self, policy: Scheduler, priority: u32) -> &mut Self {
        self.setup.scheduler = Some((Some(policy as i32), priority as i32));
        self
    }

    /// Sets the CPUs that the child may run on, counted from 0: `sched_setaffinity(2)`.
    ///
    /// # Errors
    /// The launch fails at [`Step::Affinity`], with EINVAL if the caller's cpuset has none of these CPUs.
    /// [`Step::Check`]: no CPU at all, or a number above 65,535.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let output = Command::new("nproc").cpu_affinity([0, 2]).output()?;
    /// assert_eq!(output.stdout, b"2\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cpu_affinity<I: IntoIterator<Item = usize>>(&mut self, cpus: I) -> &mut Self {
        self.setup.affinity = Some(cpus.into_iter().collect());
        self
    }

    /// Sets the child's I/O priority: a class, and a level in it from 0 (highest) to 7: `ioprio_set(2)`.
    ///
    /// # Errors
    /// The launch fails at [`Step::IoPriority`], with EPERM for [`IoClass::Realtime`] without the capability; at
    /// [`Step::Check`] for a level above 7.
    ///
    /// ```
    /// use forkless::{Command, IoClass};
    /// let status = Command::new("true").io_priority(IoClass::BestEffort, 7).status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn io_priority(&mut self, class: IoClass, level: u32) -> &mut Self {
        self.setup.io_priority = Some((class as u32, level));
        self
    }

    /// Makes the terminal at the child's descriptor `number` the child's controlling terminal: `ioctl(2)` TIOCSCTTY.
    /// For a new pseudo-terminal [`pty`](Self::pty) does this and the rest.
    ///
    /// # Errors
    /// The launch fails at [`Step::Terminal`]: ENOTTY if the descriptor is no terminal, EPERM if it is another
    /// session's.
    /// [`Step::Check`]: without [`setsid`](Self::setsid), or together with `pty`.
    ///
    /// ```no_run
    /// use forkless::{Command, Stdio};
    /// let terminal = std::fs::File::options().read(true).write(true).open("/dev/tty3")?;
    /// Command::new("login")
    ///     .stdin(terminal).stdout(Stdio::dup_of(0)).stderr(Stdio::dup_of(0))
    ///     .setsid(true).controlling_terminal(0).spawn()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn controlling_terminal(&mut self, number: RawFd) -> &mut Self {
        self.setup.terminal = Some(number);
        self
    }

    /// Makes the child's process group the foreground group of the terminal at its descriptor `number`: `tcsetpgrp(3)`;
    /// four system calls.
    ///
    /// A shell does this for a job, with [`process_group(0)`](Self::process_group). When the job has ended or stopped,
    /// the caller takes the terminal back.
    ///
    /// # Errors
    /// The launch fails at [`Step::Foreground`], with ENOTTY if the descriptor is not the child's controlling terminal.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let mut job = Command::new("vi").process_group(0).foreground(0).spawn()?;
    /// job.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn foreground(&mut self, number: RawFd) -> &mut Self {
        self.setup.foreground = Some(number);
        self
    }

    /// Keeps the program and its children from gaining privileges by exec, as by setuid bits or file capabilities:
    /// `prctl(2)` PR_SET_NO_NEW_PRIVS. [`landlock`](Self::landlock) and [`seccomp`](Self::seccomp) need it, or
    /// CAP_SYS_ADMIN.
    ///
    /// ```
    /// use forkless::Command;
    /// let output = Command::new("grep").args(["NoNewPrivs", "/proc/self/status"]).no_new_privs(true).output()?;
    /// assert_eq!(output.stdout, b"NoNewPrivs:\t1\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn no_new_privs(&mut self, on: bool) -> &mut Self {
        self.setup.no_new_privs = on;
        self
    }

    /// Sends the child `signal` when this process ends: `prctl(2)` PR_SET_PDEATHSIG; two system calls, of which the
    /// second checks that the process has not ended already.
    ///
    /// For the kernel the parent is the *thread* that clones. If the caller is not the process's first thread, it starts a
    /// thread (`forkless-parent`), which clones the child, and then sleeps until the child has ended. The kernel copies what a
    /// child inherits from the caller to that thread and from there to the child. On a virtual machine of two CPUs the caller is
    /// blocked for 640 µs instead of 80. There are at most 1,024 such threads in a process.
    ///
    /// If this process executes another program, the kernel ends all of its threads but the one that calls exec. So the children
    /// of other threads get the signal, and those of the first thread do not if the first thread calls exec. If another thread
    /// does, all children get it: de_thread() in fs/exec.c.
    ///
    /// A process whose first thread ends by `pthread_exit(3)` sends the children of that thread their signal then, and goes on
    /// until the other children have ended.
    ///
    /// The kernel forgets the signal when the child executes a setuid program, or one that gains capabilities by exec
    /// which the child had not permitted, as root's programs do.
    ///
    /// # Errors
    /// [`Step::Check`]: the signal does not exist. If the calling thread is not the first one, the launch also fails if no thread
    /// can be started (a limit, a filter, or the calling thread has unshared its PID namespace), and if 1,024 threads wait for
    /// children already. [`thread_death_signal`](Self::thread_death_signal) needs no other thread.
    ///
    /// ```
    /// use forkless::Command;
    /// const SIGTERM: i32 = 15;
    /// let mut child = Command::new("sleep").arg("60").parent_death_signal(SIGTERM).spawn()?;
    /// # child.kill()?; child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn parent_death_signal(&mut self, signal: i32) -> &mut Self {
        self.setup.parent_death_signal = Some(signal);
        self.setup.follows_thread = false;
        self
    }

    /// Sends the child `signal` when the *thread* that launches it ends, even if the process lives on: `prctl(2)`
    /// PR_SET_PDEATHSIG. It replaces [`parent_death_signal`](Self::parent_death_signal).
    ///
    /// # Errors
    /// [`Step::Check`]: the signal does not exist.
    ///
    /// ```
    /// use forkless::Command;
    /// const SIGTERM: i32 = 15;
    /// // A worker and the program that it started end together.
    /// std::thread::spawn(|| -> std::io::Result<()> {
    ///     Command::new("sleep").arg("60").thread_death_signal(SIGTERM).spawn()?;
    ///     Ok(())
    /// }).join().unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn thread_death_signal(&mut self, signal: i32) -> &mut Self {
        self.setup.parent_death_signal = Some(signal);
        self.setup.follows_thread = true;
        self
    }

    /// Adds a system call that this library has no function for, by its number on this machine. The child makes it
    /// after its ids have been changed and before its signals are set. Several are made in the order in which they were
    /// added.
    ///
    /// `result`: the variable (0 to 14) that keeps what the call returns, for later ones.
    ///
    /// A child with a call that may write (`write(2)` and its like) may enter a cgroup by it, so it is started with
    /// `CLONE_VFORK`: see [`cgroup`](Self::cgroup).
    ///
    /// # Errors
    /// The launch fails at [`Step::Call`] with the call's errno. [`Step::Check`]: more than 6 arguments, or a variable
    /// out of range.
    ///
    /// ```
    /// use forkless::{CallArg, Command};
    /// const OPENAT: u32 = if cfg!(target_arch = "x86_64") { 257 } else { 56 };
    /// const DUP3: u32 = if cfg!(target_arch = "x86_64") { 292 } else { 24 };
    /// let here = CallArg::Number(-100i64 as u64);
    /// let mut command = Command::new("cat");
    /// // SAFETY: opening and duplicating a descriptor change nothing but the child's own table.
    /// unsafe {
    ///     command.call(OPENAT, [here, "/dev/null".into(), 0.into()], Some(0));
    ///     command.call(DUP3, [CallArg::Variable(0), 0.into(), 0.into()], None);
    /// }
    /// assert!(command.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Safety
    /// The child shares the caller's memory until exec. The call must not write to memory, nor change what the kernel
    /// keeps per memory: PR_SET_DUMPABLE, PR_SET_MM, PR_SET_THP_DISABLE and the like.
    pub unsafe fn call<I>(&mut self, number: u32, args: I, result: Option<u32>) -> &mut Self
    where
        I: IntoIterator<Item = CallArg>,
    {
        self.setup.calls.push(RawCall { number, args: args.into_iter().collect(), result });
        self
    }

    /// Returns to the caller the descriptor that a [`call`](Self::call) has left in this variable (0 to 14):
    /// [`Child::take_handed_back`](crate::Child::take_handed_back). For what only the child can open: a mount, a
    /// namespace from inside, a file under its root. `unix(7)` SCM_RIGHTS.
    ///
    /// # Errors
    /// The launch fails at [`Step::HandBack`] if the variable holds no descriptor. [`Step::Check`]: a variable out of
    /// range.
    ///
    /// ```
    /// use forkless::{CallArg, Command};
    /// const OPENAT: u32 = if cfg!(target_arch = "x86_64") { 257 } else { 56 };
    /// let mut command = Command::new("true");
    /// command.current_dir("/proc/self");
    /// // SAFETY: opening a file changes nothing but the child's own table.
    /// unsafe { command.call(OPENAT, [CallArg::Number(-100i64 as u64), "comm".into(), 0.into()], Some(0)) };
    /// let mut child = command.hand_back(0).spawn()?;
    /// let file = child.take_handed_back()?.expect("the child opened it");
    /// assert!(child.take_handed_back()?.is_none());
    /// # drop(file); child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn hand_back(&mut self, variable: u32) -> &mut Self {
        self.setup.hand_backs.push(variable);
        self
    }

    /// Lets the launch go on if this step fails. The failure is reported by [`Child::skipped`](crate::Child::skipped).
    ///
    /// For the steps of settings; not for those that pass descriptors or execute the program. System calls that belong
    /// together, such as those that make one mount, are skipped together and reported once.
    ///
    /// # Errors
    /// [`Step::Check`]: a step that cannot be skipped, or a plan in which more than 128 steps could be.
    ///
    /// ```
    /// use forkless::{Command, Step};
    /// let mut child = Command::new("true").nice(-20).best_effort(Step::Nice).spawn()?;
    /// for skipped in child.skipped() {
    ///     eprintln!("the program runs without this: {skipped}");
    /// }
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn best_effort(&mut self, step: Step) -> &mut Self {
        self.setup.best_effort.insert(step.code());
        self
    }
}

/// The calls by which a process takes on other ids, capabilities or user namespaces.
const CREDENTIALS: [u32; 12] = [
    uapi::__NR_setuid,
    uapi::__NR_setgid,
    uapi::__NR_setreuid,
    uapi::__NR_setregid,
    uapi::__NR_setresuid,
    uapi::__NR_setresgid,
    uapi::__NR_setfsuid,
    uapi::__NR_setfsgid,
    uapi::__NR_setgroups,
    uapi::__NR_capset,
    uapi::__NR_setns,
    uapi::__NR_unshare,
];

impl Setup {
    /// Does the child change its ids? Then the kernel makes the memory that it shares with the caller non-dumpable.
    pub(crate) fn has_ids(&self) -> bool {
        self.user.is_some() || self.group.is_some() || self.groups.is_some() || self.simple.has_ids()
    }

    /// Does one of the user's own system calls change ids, capabilities or namespaces?
    pub(crate) fn has_calls_for_ids(&self) -> bool {
        self.calls.iter().any(|call| CREDENTIALS.contains(&call.number))
    }

    /// The caller's descriptor of the child's directory.
    pub(crate) fn directory_number(&self) -> Option<RawFd> {
        self.directory_fd.as_ref().map(|fd| fd.as_raw_fd())
    }
}

/// Expands to a setting's type, to the value that is stored, or to the check of its range.
macro_rules! kind {
    (type word($type:ty)) => {
        $type
    };
    (type flag) => {
        bool
    };
    (type $number:ident $(($low:literal, $high:literal))?) => {
        $number
    };
    (keep flag $value:ident) => {
        $value.then_some(true)
    };
    (keep $kind:ident $value:ident) => {
        Some($value)
    };
    (check i32($low:literal, $high:literal) $name:ident $value:expr) => {
        if $value.is_some_and(|value| !($low..=$high).contains(&value)) {
            return Some(concat!(stringify!($name), " is out of range: ", $low, " to ", $high));
        }
    };
    (check $kind:ident $(($type:ty))? $name:ident $value:expr) => {};
}

macro_rules! verdict {
    (shared) => {
        false
    };
    (own) => {
        true
    };
    (kept) => {
        false
    };
    (changed) => {
        true
    };
    (inherited) => {
        false
    };
    (affects_the_shell) => {
        true
    };
}

macro_rules! simple {
    (
        played { $(
            $(#[$doc:meta])*
            $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) {
                line $line:literal step $step:ident = $code:literal, $words:literal, $of:literal op $op:tt
                memory $memory:ident ids $ids:ident posix_spawn $posix:ident shell $shell:ident $($rest:tt)*
            }
        )* }
        passed $passed:tt
    ) => {
        /// The values of the settings; `None`: not set.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Simple {
            $(pub(crate) $name: Option<kind!(type $kind $(($($more)*))?)>,)*
        }

        /// Settings of one value. Each is one system call in the child, unless said otherwise.
        impl Command {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, $arg: kind!(type $kind $(($($more)*))?)) -> &mut Self {
                    self.setup.simple.$name = kind!(keep $kind $arg);
                    self
                }
            )*
        }

        impl Simple {
            /// The error for a value outside its range.
            pub(crate) fn out_of_range(&self) -> Option<&'static str> {
                $(kind!(check $kind $(($($more)*))? $name self.$name);)*
                None
            }

            /// The name of a setting whose call changes the memory of the process that makes it.
            pub(crate) fn of_own_memory(&self) -> Option<&'static str> {
                [$((verdict!($memory) && self.$name.is_some(), stringify!($name))),*]
                    .into_iter()
                    .find_map(|(is, name)| is.then_some(name))
            }

            /// Does one of them change the child's ids?
            pub(crate) fn has_ids(&self) -> bool {
                [$(verdict!($ids) && self.$name.is_some()),*].contains(&true)
            }

            /// Does one of them affect a shell itself, not only the programs that it starts?
            pub(crate) fn has_effect_on_shell(&self) -> bool {
                [$(verdict!($shell) && self.$name.is_some()),*].contains(&true)
            }
        }
    };
}

crate::settings!(simple);
