//! What the child is, beside what it runs: identity, limits, scheduling.

use crate::command::Command;
use crate::command::values::*;
use crate::step::Step;
use forkless_core::sys::uapi;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of the child, as they were asked for.
#[derive(Default)]
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
    pub(crate) init_groups: bool,
    pub(crate) umask: Option<u32>,
    pub(crate) no_new_privs: bool,
    pub(crate) parent_death_signal: Option<i32>,
    pub(crate) follows_thread: bool,
    pub(crate) calls: Vec<RawCall>,
    pub(crate) hand_backs: Vec<u32>,
    pub(crate) best_effort: BTreeSet<u32>,
}

/// A system call as it was asked for.
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

/// A user or group as it was asked for.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    Id(u32),
    Name(OsString),
}

/// Identity, limits and scheduling of the child. Each is one system call in it, unless said otherwise, and none costs
/// the launcher: it never forks for them.
///
/// They are played in a fixed order, whatever the order of these calls: see `docs/design/order.md`.
impl Command {
    /// The child's directory as an open descriptor of one: `fchdir(2)`.
    ///
    /// A relative [`current_dir`](Self::current_dir) is then looked up from there, or a relative [`chroot`](Self::chroot) or
    /// [`pivot_root`](Self::pivot_root), which then becomes the directory. With an absolute one of those it is refused: it
    /// would have no effect, or be a way out of the root.
    pub fn current_dir_fd<F: Into<OwnedFd>>(&mut self, directory: F) -> &mut Self {
        self.setup.directory_fd = Some(Arc::new(directory.into()));
        self
    }

    /// The child's root directory: `chroot(2)`. Needs CAP_SYS_CHROOT.
    ///
    /// Its directory becomes the new root, unless [`current_dir`](Self::current_dir) says another one, which is looked
    /// up inside. So are the program's path and PATH.
    pub fn chroot<P: AsRef<Path>>(&mut self, root: P) -> &mut Self {
        self.setup.chroot = Some(root.as_ref().to_owned());
        self
    }

    /// The child's user id: real, effective and saved, `setresuid(2)`. Needs CAP_SETUID unless it is one of the caller's.
    ///
    /// If the caller is root and nothing is said about groups, the child has no supplementary groups. Any other caller's,
    /// such as one's with CAP_SETUID alone, are kept, as `std::process` keeps them: see [`groups`](Self::groups).
    pub fn uid(&mut self, uid: u32) -> &mut Self {
        self.setup.user = Some(Name::Id(uid));
        self
    }

    /// The child's group id: real, effective and saved, `setresgid(2)`. Needs CAP_SETGID unless it is one of the caller's.
    ///
    /// The caller's supplementary groups are kept, unless [`groups`](Self::groups) or a user says otherwise.
    pub fn gid(&mut self, gid: u32) -> &mut Self {
        self.setup.group = Some(Name::Id(gid));
        self
    }

    /// The child's supplementary groups: `setgroups(2)`. Needs CAP_SETGID.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Self {
        self.setup.groups = Some(groups.to_owned());
        self
    }

    /// The child's user by name, looked up in the caller when the plan is made. A name of digits that no user has is an
    /// id; for that, [`uid`](Self::uid) says which groups there are. A user's primary group and its supplementary groups
    /// (`initgroups(3)`) come with it, unless others are asked for.
    pub fn user<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Self {
        self.setup.user = Some(Name::Name(name.as_ref().to_owned()));
        self.setup.init_groups = true;
        self
    }

    /// The child's group by name, looked up in the caller when the plan is made. A name of digits that no group has is
    /// an id.
    pub fn group_name<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Self {
        self.setup.group = Some(Name::Name(name.as_ref().to_owned()));
        self
    }

    /// The bits that are taken off the modes of files the program makes: `umask(2)`.
    pub fn umask(&mut self, mask: u32) -> &mut Self {
        self.setup.umask = Some(mask);
        self
    }

    /// A limit of the child: soft and hard, `prlimit(2)`. Raising a hard limit needs CAP_SYS_RESOURCE.
    ///
    /// It is set before the child changes its ids.
    pub fn rlimit(&mut self, resource: Resource, soft: u64, hard: u64) -> &mut Self {
        self.setup.rlimits.insert(resource as u32, (soft, hard));
        self
    }

    /// The child's scheduling policy and its static priority (1 to 99 for the real-time ones, else 0):
    /// `sched_setscheduler(2)`.
    pub fn scheduler(&mut self, policy: Scheduler, priority: u32) -> &mut Self {
        self.setup.scheduler = Some((Some(policy as i32), priority as i32));
        self
    }

    /// The processors that the child may run on, counted from 0: `sched_setaffinity(2)`.
    pub fn cpu_affinity<I: IntoIterator<Item = usize>>(&mut self, cpus: I) -> &mut Self {
        self.setup.affinity = Some(cpus.into_iter().collect());
        self
    }

    /// The child's I/O priority: class and level (0, the highest, to 7): `ioprio_set(2)`.
    pub fn io_priority(&mut self, class: IoClass, level: u32) -> &mut Self {
        self.setup.io_priority = Some((class as u32, level));
        self
    }

    /// The terminal at the child's descriptor `number` becomes its controlling terminal: `ioctl(2)` TIOCSCTTY. The child
    /// must begin a session: see [`setsid`](Self::setsid).
    pub fn controlling_terminal(&mut self, number: RawFd) -> &mut Self {
        self.setup.terminal = Some(number);
        self
    }

    /// The child's process group becomes the foreground group of the terminal at its descriptor `number`:
    /// `tcsetpgrp(3)`, four system calls.
    pub fn foreground(&mut self, number: RawFd) -> &mut Self {
        self.setup.foreground = Some(number);
        self
    }

    /// Neither the program nor its children can gain privileges by exec: `prctl(2)` PR_SET_NO_NEW_PRIVS.
    pub fn no_new_privs(&mut self, on: bool) -> &mut Self {
        self.setup.no_new_privs = on;
        self
    }

    /// The signal that the child gets when this process ends: `prctl(2)` PR_SET_PDEATHSIG, two system calls: the second
    /// makes sure that it has not ended already.
    ///
    /// The parent, for the kernel, is the *thread* that clones. Where that is not the process's first thread, the clone is
    /// left to a thread of this crate's (`forkless-keeper`, started when first needed), which lives as long as the process;
    /// that costs two switches of threads, some 15 µs. What belongs to a thread (processors, nice value, scheduler, and what
    /// it has unshared) the child then has from that one; a thread with a descriptor table of its own (CLONE_FILES
    /// unshared) is refused at the launch. [`thread_death_signal`](Self::thread_death_signal) is the kernel's
    /// own rule.
    ///
    /// The kernel forgets it when a set-user-id program is executed, or one that exec gives capabilities which the child had
    /// not permitted, as it gives them to root.
    pub fn parent_death_signal(&mut self, signal: i32) -> &mut Self {
        self.setup.parent_death_signal = Some(signal);
        self.setup.follows_thread = false;
        self
    }

    /// The signal that the child gets when the *thread* that launches it ends, be it long before the process does:
    /// `prctl(2)` PR_SET_PDEATHSIG. In place of [`parent_death_signal`](Self::parent_death_signal).
    pub fn thread_death_signal(&mut self, signal: i32) -> &mut Self {
        self.setup.parent_death_signal = Some(signal);
        self.setup.follows_thread = true;
        self
    }

    /// A system call in the child that this library does not know, by its number on this machine, after the ids have
    /// been changed and before the signals are set. Calls are made in the order in which they were added.
    ///
    /// `result`: the variable (0 to 14) that keeps what the call returns, for later ones.
    ///
    /// A child with a call that may write (`write(2)` and its like) may enter a cgroup by it, so it is a vfork'd one: see
    /// [`cgroup`](Self::cgroup).
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

    /// The descriptor that a [`call`](Self::call) has left in this variable is handed back to the caller:
    /// [`Child::take_handed_back`](crate::Child::take_handed_back). For what only the child can open: a mount, a namespace
    /// from inside, a file under its root. `unix(7)` SCM_RIGHTS.
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

    /// A failure of this step is noted in [`Child::missed`](crate::Child::missed), and the launch goes on.
    ///
    /// For the steps of settings; not for those that pass descriptors or execute the program. Calls that are one thing,
    /// such as those that make one mount, are skipped together and noted once. A plan in which more than 128 could be
    /// skipped is refused: each is noted.
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
    /// Does the child take on other ids? Then the kernel makes the memory that it shares with us non-dumpable.
    pub(crate) fn changes_ids(&self) -> bool {
        self.user.is_some() || self.group.is_some() || self.groups.is_some() || self.simple.changes_ids()
    }

    /// The same, by one of the caller's own calls?
    pub(crate) fn calls_for_ids(&self) -> bool {
        self.calls.iter().any(|call| CREDENTIALS.contains(&call.number))
    }

    /// The caller's descriptor of the child's directory.
    pub(crate) fn directory_number(&self) -> Option<RawFd> {
        self.directory_fd.as_ref().map(|fd| fd.as_raw_fd())
    }
}

/// A setting's type, whether it says anything, and its range.
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
            return Some(concat!("the ", stringify!($name), " is out of range: it is from ", $low, " to ", $high));
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
    (felt) => {
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
        /// What was asked for.
        #[derive(Debug, Default)]
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
            /// What is outside its range, in words.
            pub(crate) fn out_of_range(&self) -> Option<&'static str> {
                $(kind!(check $kind $(($($more)*))? $name self.$name);)*
                None
            }

            /// A setting that changes the memory of who makes the call, by its name.
            pub(crate) fn of_own_memory(&self) -> Option<&'static str> {
                [$((verdict!($memory) && self.$name.is_some(), stringify!($name))),*]
                    .into_iter()
                    .find_map(|(is, name)| is.then_some(name))
            }

            /// Is the child somebody else by one of them?
            pub(crate) fn changes_ids(&self) -> bool {
                [$(verdict!($ids) && self.$name.is_some()),*].contains(&true)
            }

            /// Would a shell feel one of them otherwise than the programs that it starts?
            pub(crate) fn is_felt_by_shells(&self) -> bool {
                [$(verdict!($shell) && self.$name.is_some()),*].contains(&true)
            }
        }
    };
}

crate::settings!(simple);
