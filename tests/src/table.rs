//! The behaviour table: what is asked of a launch, and what the child must find.
//!
//! A case is an entry in `tests/cases/*.toml`; [`play`] plays it through every front end in one process of its own,
//! which has first been put into the state the case asks for ([`parent`]) and, for another [`Route`], under a filter.
//! A new option costs a field in [`Ask`], a line in [`ask`], and its cases.
//!
//! In all texts `{dir}` stands for the case's own directory, `{probe}` for the helper program that reports what it
//! sees; `\xNN` is a byte, which the TOML's '…' strings pass on as it is.

use crate::observe::Observed;
use forkless::Launcher;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::{fs, io};

pub use settings::Settings;

pub mod ask;
pub mod check;
pub mod launchers;
pub mod model;
pub mod parent;
pub mod play;
pub mod settings;

#[path = "../it/scenarios/elf.rs"]
#[expect(clippy::new_without_default, reason = "a part of another program too")]
pub mod elf;

/// The report of the probe.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The arguments, `argv[0]` first, without those that steer the probe.
    pub argv: Vec<String>,
    /// The environment's entries in their order.
    pub env: Vec<String>,
    /// The working directory.
    pub cwd: String,
    /// The file mode creation mask, octal.
    pub umask: String,
    /// The open descriptors: `TARGET r`, `TARGET w` or `TARGET rw`.
    pub fds: BTreeMap<String, String>,
    /// `getpid(2)`.
    pub pid: i32,
    /// `getppid(2)`.
    pub ppid: i32,
    /// `getsid(2)`.
    pub sid: i32,
    /// `getpgrp(2)`.
    pub pgid: i32,
    /// Blocked signals.
    pub blocked: Vec<i32>,
    /// Ignored signals.
    pub ignored: Vec<i32>,
    /// Signals with a handler. Before glibc 2.34 libpthread handles 32 and 33 before main, and unblocks them.
    pub caught: Vec<i32>,
    /// The results of its actions.
    pub read: Option<String>,
    /// Everything else.
    pub set: Observed,
}

/// One behaviour.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name of the case: what it shows. Unique in the table.
    pub name: String,
    /// The routes it is played on; all of [`ROUTES`] if not given. A route may also be spelled out, as
    /// [`parent::refuse`] reads it: `clone3 EPERM, close_range KILL`. With `later:` in front the filter comes after a
    /// first launch, and not before it.
    pub routes: Option<Vec<String>>,
    /// Routes besides.
    #[serde(default)]
    pub more_routes: Vec<String>,
    /// Routes it is not played on.
    #[serde(default)]
    pub not_on: Vec<String>,
    /// The front ends it is played through; all of [`play::FRONT_ENDS`] if not given.
    pub front_ends: Option<Vec<String>>,
    /// `any`: the way the launch takes is not checked.
    pub way: Option<String>,
    /// What has to be there for it to be played: see [`parent::unmet`]. `root`, and capabilities unless it becomes an
    /// ordinary user, are asked for before the parent becomes what the case asks for, all else after.
    #[serde(default)]
    pub needs: Vec<String>,
    /// The state of the parent.
    #[serde(default)]
    pub parent: Parent,
    /// The command's settings.
    #[serde(default)]
    pub ask: Ask,
    /// What the child must find, beyond what is true of every child.
    #[serde(default)]
    pub child: Find,
    /// The launch must fail like this.
    pub error: Option<Failure>,
    /// What still fails in the parent's condition and under the filter is not tried again: no good launch afterwards.
    #[serde(default)]
    pub no_good_after: bool,
}

/// The parent's condition.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parent {
    /// Files in the case's directory: name to what it is (see [`parent::make`]).
    pub files: BTreeMap<String, String>,
    /// Standard streams that are closed.
    pub close: Vec<i32>,
    /// Numbers at which files of the case's directory are open, close-on-exec but for 0 to 2.
    pub open: BTreeMap<String, String>,
    /// The same, not close-on-exec.
    pub leak: BTreeMap<String, String>,
    /// Every number below this is in use.
    pub fill: i32,
    /// Signals that are ignored.
    pub ignore: Vec<String>,
    /// Signals at their default.
    pub default: Vec<String>,
    /// Signals with a handler.
    pub handle: Vec<String>,
    /// Signals that are blocked.
    pub block: Vec<String>,
    /// Soft RLIMIT_NOFILE.
    pub nofile: Option<u64>,
    /// Every number below that limit is in use.
    pub full: bool,
    /// RLIMIT_NPROC.
    pub nproc: Option<u64>,
    /// RLIMIT_AS: so many bytes more than are mapped.
    pub room: Option<u64>,
    /// Variables set in the environment.
    pub env: BTreeMap<String, String>,
    /// Variables removed.
    pub env_remove: Vec<String>,
    /// The working directory; the case's own if not given.
    pub cwd: Option<String>,
    /// An ordinary user.
    pub nobody: bool,
    /// Not dumpable: an ordinary user's child may not look into it.
    pub undumpable: bool,
    /// Open are both ends of a pseudo-terminal, at 30 and 31.
    pub terminal: bool,
    /// Has a `Pty` for the child.
    pub pty: bool,
    /// In a UTS namespace of its own, with the one it came from open at 32.
    pub left_uts: bool,
    /// In a mount namespace of its own, with this directory of the case's read-only.
    pub read_only: Option<String>,
    /// `alive` or `dead`: open at 33 is the PID namespace of a process that has none but itself in it.
    pub other_pids: Option<String>,
}

/// What is asked: `Command`'s words.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "Command's own names")]
pub struct Ask {
    pub program: String,
    pub or_else: Vec<String>,
    pub args: Vec<String>,
    /// So many further arguments `x`.
    pub many_args: usize,
    /// So long a further argument.
    pub long_arg: usize,
    pub arg0: Option<String>,
    pub env: BTreeMap<String, String>,
    pub env_remove: Vec<String>,
    pub env_clear: bool,
    pub cwd: Option<String>,
    /// Number to source: see [`ask::stdio`].
    pub fd: BTreeMap<String, String>,
    pub setsid: bool,
    pub process_group: Option<i32>,
    pub signal_default: Vec<String>,
    pub signal_ignore: Vec<String>,
    pub signal_inherit: Vec<String>,
    pub signal_block: Vec<String>,
    pub inherit_mask: bool,
    pub inherit_all: bool,
    pub pidfd: Option<bool>,
    pub set: Settings,
    /// The actions of the probe.
    pub then: Vec<String>,
    /// What is written to its standard input where that is a pipe and the front end gives the other end.
    pub feed: String,
    /// The program is not the probe, or ends before it reports: no arguments to steer it, no report.
    pub silent: bool,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            program: "{probe}".into(),
            or_else: vec![],
            args: vec![],
            many_args: 0,
            long_arg: 0,
            arg0: None,
            env: BTreeMap::new(),
            env_remove: vec![],
            env_clear: false,
            cwd: None,
            fd: BTreeMap::new(),
            setsid: false,
            process_group: None,
            signal_default: vec![],
            signal_ignore: vec![],
            signal_inherit: vec![],
            signal_block: vec![],
            inherit_mask: true,
            inherit_all: false,
            pidfd: None,
            set: Settings::default(),
            then: vec![],
            feed: String::new(),
            silent: false,
        }
    }
}

/// What the child must find. Whatever is not given must be as with any child: the parent's directory, session, group,
/// umask, environment and signal mask, `argv` as asked, no descriptor beyond 0 to 2, ignored what the parent ignores but
/// for SIGPIPE.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Find {
    /// The arguments, where they are not those asked for.
    pub argv: Option<Vec<String>>,
    /// How many arguments there are, where they are many.
    pub argc: Option<usize>,
    /// Variables that are there.
    pub env: BTreeMap<String, String>,
    /// Variables that must not exist.
    pub no_env: Vec<String>,
    /// All entries, sorted.
    pub env_exactly: Option<Vec<String>>,
    /// The directory.
    pub cwd: Option<String>,
    /// Number to target: see [`check::target`].
    pub fd: BTreeMap<String, String>,
    /// Pairs of numbers that must be one and the same pipe, socket or file.
    pub same: Vec<[i32; 2]>,
    /// Leads its own session.
    pub own_session: bool,
    /// Leads its own group.
    pub own_group: bool,
    /// Blocked signals, where they are not those of the parent.
    pub blocked: Option<Vec<String>>,
    /// Ignored signals.
    pub ignored: Option<Vec<String>>,
    /// What it read.
    pub read: Option<String>,
    /// Name to value of what [`crate::observe`] knows, and `umask`: `other` than the parent's, `any`,
    /// `at N`, as what the parent has open there, or `new`, a cgroup that the parent has made.
    pub set: Observed,
    /// The steps that failed and were passed over.
    pub skipped: Vec<String>,
    /// What the descriptors handed back refer to.
    pub handed_back: Vec<String>,
    /// It is process 1, and does not see its parent.
    pub in_pid_namespace: bool,
    /// It is not process 1 of another PID namespace, and does not see its parent.
    pub in_joined_pids: bool,
    /// What it wrote to the socket pairs whose other end the front end gives.
    pub socket: String,
    /// What `output` captures.
    pub stdout: String,
    /// What `output` captures.
    pub stderr: String,
    /// Exit code.
    pub exit: i32,
    /// Or the signal that ends it.
    pub signal: Option<i32>,
    /// File to text: what is in files of the case's directory afterwards.
    pub files: BTreeMap<String, String>,
}

/// How a launch must fail.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// `Step`'s name.
    pub step: String,
    /// The errno's name; if not given, the last one that the route names, or none for a call that kills and for a
    /// request that is itself at fault.
    pub errno: Option<String>,
    /// `io::ErrorKind`'s name.
    pub kind: Option<String>,
    /// Parts of the message.
    #[serde(default)]
    pub text: Vec<String>,
    /// The whole message.
    pub message: Option<String>,
}

/// A way to launch, which a filter forces by refusing calls.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Its name.
    pub name: &'static str,
    /// The refusals, behind the launcher if it is another one than the usual.
    pub refusals: &'static str,
}

/// Every case is played on these.
pub const ROUTES: [Route; 10] = [
    Route { name: "normal", refusals: "" },
    Route { name: "no clone3", refusals: "clone3 ENOSYS" },
    Route { name: "no close_range", refusals: "close_range EPERM" },
    Route { name: "no pidfd_getfd", refusals: "pidfd_getfd EPERM" },
    Route { name: "no pidfd_open", refusals: "pidfd_open ENOSYS" },
    Route {
        name: "nothing new",
        refusals: "clone3 EPERM, close_range ENOSYS, pidfd_getfd ENOSYS, pidfd_open ENOSYS, pidfd_send_signal ENOSYS",
    },
    Route { name: BEFORE_5_16, refusals: "" },
    Route { name: "fork", refusals: "fork:" },
    Route {
        name: "fork with nothing new",
        refusals: "fork: clone3 ENOSYS, close_range EPERM, pidfd_open ENOSYS, set_robust_list ENOSYS",
    },
    Route { name: "posix_spawn", refusals: "posix_spawn:" },
];

/// Those that a case is played on that names its routes, if `normal` is among them.
pub const OTHER_LAUNCHERS: [&str; 3] = [BEFORE_5_16, "fork", "posix_spawn"];

/// Nothing is refused, and a core dump of a child is believed to be the end of its parent.
pub const BEFORE_5_16: &str = "kernel before 5.16";

/// A route's launcher.
pub fn launcher(route: &str) -> Launcher {
    match known(route).split_once(':') {
        Some(("fork", _)) => Launcher::Fork,
        Some(("posix_spawn", _)) => Launcher::PosixSpawn,
        _ => Launcher::Clone,
    }
}

fn known(route: &str) -> &str {
    ROUTES.iter().find(|known| known.name == route).map_or(route, |known| known.refusals)
}
/// Before the refusals of a route where the host refuses these already, and the case installs no filter.
pub const GIVEN: &str = "given:";

/// A route of its own, on which nothing is refused: every launch is a zygote's.
pub const BY_ZYGOTE: &str = "by a zygote";

/// A route's refusals, by its name or as it is spelled out.
pub fn refusals(route: &str) -> &str {
    if route == BY_ZYGOTE {
        return "";
    }
    let route = ["later:", GIVEN].iter().find_map(|start| route.strip_prefix(start)).unwrap_or(route).trim();
    let known = known(route);
    ["fork:", "posix_spawn:"].iter().find_map(|launcher| known.strip_prefix(launcher)).unwrap_or(known)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Case>,
}

/// All cases of all files in `directory`.
pub fn load(directory: &Path) -> io::Result<Vec<Case>> {
    let mut files: Vec<_> =
        fs::read_dir(directory)?.map(|file| file.map(|file| file.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let table: Table = toml::from_str(&fs::read_to_string(&file)?)
            .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
        cases.extend(table.case);
    }
    Ok(cases)
}

/// Bytes as text: what is not printable UTF-8 becomes `\xNN`, a backslash is doubled.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str(r"\\"),
                c if c.is_ascii_control() => text.push_str(&format!(r"\x{:02x}", c as u32)),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!(r"\x{byte:02x}"));
        }
    }
    text
}

/// The reverse of [`encode`].
pub fn decode(text: &str) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let hex = rest.get(at + 2..at + 4).filter(|_| rest[at + 1..].starts_with('x'));
        let skip = match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                4
            }
            None => {
                bytes.push(b'\\');
                2
            }
        };
        rest = rest.get(at + skip..).unwrap_or("");
    }
    bytes.extend_from_slice(rest.as_bytes());
    OsString::from_vec(bytes)
}

macro_rules! named {
    ($(#[$doc:meta])* $function:ident: $($name:ident)*) => {
        $(#[$doc])*
        pub fn $function(name: &str) -> i32 {
            $(if name == stringify!($name) { return libc::$name; })*
            name.parse().unwrap_or_else(|_| panic!("{name} is not known to {}", stringify!($function)))
        }
    };
}

named! {
    /// An errno by its name or number.
    errno: E2BIG EACCES EAGAIN EBADF ECHILD EEXIST EINVAL EIO EISDIR ELOOP EMFILE ENAMETOOLONG EBUSY ENFILE ENODEV ENOENT
    ENOEXEC ENOMEM ENOSPC EOVERFLOW ENOTTY EOPNOTSUPP EBADFD ENOSYS ENOTDIR ENXIO EPERM ESRCH ETXTBSY EXDEV
}

named! {
    /// A signal by its name or number.
    signal: SIGHUP SIGINT SIGQUIT SIGUSR1 SIGUSR2 SIGPIPE SIGTERM SIGCHLD SIGCONT SIGWINCH SIGKILL SIGSTOP SIGTSTP
}

/// The system calls of launches, and of what is traced of them. Newer calls have the place of those that are not there.
const CALLS: &[(&str, i64)] = {
    macro_rules! known {
        ($($call:ident $number:ident)*) => { &[("poll", OLD[0]), ("open", OLD[1]), ("dup2", OLD[2]), $((stringify!($call), libc::$number)),*] };
    }
    known! {
        clone SYS_clone clone3 SYS_clone3 close SYS_close close_range SYS_close_range pidfd_open SYS_pidfd_open
        pidfd_getfd SYS_pidfd_getfd pidfd_send_signal SYS_pidfd_send_signal mmap SYS_mmap mprotect SYS_mprotect munmap
        SYS_munmap mremap SYS_mremap madvise SYS_madvise brk SYS_brk dup SYS_dup dup3 SYS_dup3 fcntl SYS_fcntl openat
        SYS_openat openat2 SYS_openat2 mount_setattr SYS_mount_setattr rt_sigaction SYS_rt_sigaction rt_sigprocmask
        SYS_rt_sigprocmask rt_sigreturn SYS_rt_sigreturn chdir SYS_chdir fchdir SYS_fchdir setsid SYS_setsid setpgid
        SYS_setpgid getpgid SYS_getpgid getsid SYS_getsid execve SYS_execve execveat SYS_execveat pipe2 SYS_pipe2
        socketpair SYS_socketpair wait4 SYS_wait4 waitid SYS_waitid futex SYS_futex getppid SYS_getppid getpid
        SYS_getpid gettid SYS_gettid ppoll SYS_ppoll kill SYS_kill tgkill SYS_tgkill exit SYS_exit exit_group
        SYS_exit_group getpriority SYS_getpriority setpriority SYS_setpriority write SYS_write writev SYS_writev read
        SYS_read readlinkat SYS_readlinkat pread64 SYS_pread64 set_robust_list SYS_set_robust_list setresuid
        SYS_setresuid setresgid SYS_setresgid setgroups SYS_setgroups umask SYS_umask uname SYS_uname ioctl SYS_ioctl
        fstatfs SYS_fstatfs statfs SYS_statfs fstat SYS_fstat newfstatat SYS_newfstatat statx SYS_statx lseek SYS_lseek
        getdents64 SYS_getdents64 kcmp SYS_kcmp prctl SYS_prctl prlimit64 SYS_prlimit64 sched_setscheduler
        SYS_sched_setscheduler sched_getscheduler SYS_sched_getscheduler sched_getparam SYS_sched_getparam
        keyctl SYS_keyctl get_mempolicy SYS_get_mempolicy
        sched_setparam SYS_sched_setparam sched_setattr SYS_sched_setattr sched_getattr SYS_sched_getattr
        sched_setaffinity SYS_sched_setaffinity sched_getaffinity SYS_sched_getaffinity sched_yield SYS_sched_yield
        ioprio_set SYS_ioprio_set ioprio_get SYS_ioprio_get personality SYS_personality nanosleep SYS_nanosleep
        clock_nanosleep SYS_clock_nanosleep clock_gettime SYS_clock_gettime getuid SYS_getuid geteuid SYS_geteuid getgid
        SYS_getgid getegid SYS_getegid getresuid SYS_getresuid getresgid SYS_getresgid getgroups SYS_getgroups capset
        SYS_capset capget SYS_capget chroot SYS_chroot pivot_root SYS_pivot_root mount SYS_mount umount2 SYS_umount2
        open_tree SYS_open_tree move_mount SYS_move_mount fsopen SYS_fsopen fsconfig SYS_fsconfig fsmount SYS_fsmount
        mkdirat SYS_mkdirat symlinkat SYS_symlinkat mknodat SYS_mknodat linkat SYS_linkat unlinkat SYS_unlinkat
        renameat2 SYS_renameat2 sethostname SYS_sethostname setns SYS_setns unshare SYS_unshare seccomp SYS_seccomp
        landlock_restrict_self SYS_landlock_restrict_self sendmsg SYS_sendmsg recvmsg SYS_recvmsg sendto SYS_sendto
        recvfrom SYS_recvfrom socket SYS_socket connect SYS_connect bind SYS_bind getsockopt SYS_getsockopt setsockopt
        SYS_setsockopt shutdown SYS_shutdown memfd_create SYS_memfd_create ftruncate SYS_ftruncate getrandom
        SYS_getrandom rseq SYS_rseq set_tid_address SYS_set_tid_address sigaltstack SYS_sigaltstack restart_syscall
        SYS_restart_syscall eventfd2 SYS_eventfd2 epoll_create1 SYS_epoll_create1 epoll_ctl SYS_epoll_ctl epoll_pwait
        SYS_epoll_pwait getcwd SYS_getcwd faccessat SYS_faccessat faccessat2 SYS_faccessat2 membarrier SYS_membarrier
        fallocate SYS_fallocate set_mempolicy SYS_set_mempolicy getcpu SYS_getcpu
    }
};

#[cfg(target_arch = "x86_64")]
const OLD: [i64; 3] = [libc::SYS_poll, libc::SYS_open, libc::SYS_dup2];
#[cfg(not(target_arch = "x86_64"))]
const OLD: [i64; 3] = [libc::SYS_ppoll, libc::SYS_openat, libc::SYS_dup3];

/// A system call by its name.
pub fn syscall(name: &str) -> i64 {
    let found = CALLS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name} is not a system call of a launch")).1
}

/// A system call's name.
pub fn name_of(number: i64) -> String {
    let found = CALLS.iter().find(|(_, known)| *known == number);
    found.map_or_else(|| format!("call {number}"), |(name, _)| (*name).to_owned())
}
