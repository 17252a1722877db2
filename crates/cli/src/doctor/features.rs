//! Kernel features, found by trying them: with the library's own probe, small launches and harmless system calls.
//!
//! Version numbers are not used: containers and service managers refuse system calls that the kernel has.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use forkless::{Error, Namespace, Support};
use rustix::process::{PidfdFlags, pidfd_open};

use super::{
    report::{Feature, Need, State},
    trial::Trial,
};

/// The result of a probe.
struct Found {
    state: State,
    detail: Option<String>,
}

impl Found {
    fn here(detail: impl Into<Option<String>>) -> Self {
        Self { state: State::Here, detail: detail.into() }
    }

    fn missing(why: impl ToString) -> Self {
        Self { state: State::Missing, detail: Some(why.to_string()) }
    }

    fn untried(why: &str) -> Self {
        Self { state: State::Untried, detail: Some(why.to_owned()) }
    }

    /// A result of the library's probe, which gives no reason.
    fn reported(has: impl Into<Option<bool>>, why_not_tried: &str) -> Self {
        match has.into() {
            Some(true) => Self::here(None),
            Some(false) => Self { state: State::Missing, detail: None },
            None => Self::untried(why_not_tried),
        }
    }

    fn of(answer: io::Result<()>) -> Self {
        match answer {
            Ok(()) => Self::here(None),
            Err(error) => Self::missing(reason(&error)),
        }
    }
}

/// Name, first kernel version, purpose, consequence of its absence.
type FeatureText = (&'static str, &'static str, &'static str, &'static str);

/// Features that every launch uses, in the order of use.
const LAUNCHES: [FeatureText; 6] = [
    (
        "CLONE_VM",
        "2.0",
        "a child shares the caller's memory until exec, so no page table is copied",
        "the Clone launcher fails; posix_spawn and fork may still work",
    ),
    (
        "clone3",
        "5.5",
        "the kernel resets signal handlers in the child (CLONE_CLEAR_SIGHAND)",
        "signals are blocked around each clone, and the child makes 64 more system calls",
    ),
    (
        "close_range",
        "5.9",
        "the child gets a small file-descriptor table (CLOSE_RANGE_UNSHARE)",
        "each child copies the whole file-descriptor table: slow with thousands of open files",
    ),
    (
        "pidfd_getfd",
        "5.6",
        "the child inherits descriptors of any number without a copy of the table",
        "the child opens pipes again through /proc, and copies the table up to the number of any other descriptor",
    ),
    (
        "PIDFD_THREAD",
        "6.9",
        "pidfd_getfd in launches from threads other than the main thread",
        "launches from other threads work as without pidfd_getfd",
    ),
    (
        "pidfd_open",
        "5.3",
        "wait with a timeout, for many children, or in an async runtime",
        "a wait with a timeout polls; WaitSet and forkless::tokio fail",
    ),
];

/// Features that some settings and guarantees need.
const SETTINGS: [FeatureText; 11] = [
    (
        "PIDFD_GET_INFO",
        "6.15",
        "the exit status survives if other code reaps the child (PIDFD_INFO_EXIT)",
        "if other code reaps the child, wait returns an error instead of its status",
    ),
    ("CLONE_INTO_CGROUP", "5.7", "start a child in its cgroup", "Command::cgroup fails"),
    ("CLONE_AUTOREAP", "7.1", "the kernel reaps a child that is not waited for", "Command::autoreap fails"),
    (
        "CLONE_PIDFD_AUTOKILL",
        "7.1",
        "the kernel kills a child when its caller ends, even by SIGKILL",
        "Command::pidfd_autokill and run --pidfd-autokill fail",
    ),
    (
        "CLONE_NNP",
        "7.1",
        "CLONE_PIDFD_AUTOKILL without CAP_SYS_ADMIN, for a child with no_new_privs",
        "Command::pidfd_autokill with no_new_privs fails",
    ),
    ("execveat", "3.19", "execute a program by its descriptor", "Command::program_fd fails"),
    ("memfd", "3.17", "keep captured output and programs in memory", "Capture::memory_file fails"),
    (
        "user namespaces",
        "3.8",
        "sandboxes for ordinary users: namespaces, mounts",
        "run --unshare-user and the options that need it fail",
    ),
    ("Landlock", "5.13", "restrict which files a program can access", "run --landlock-access fails"),
    ("seccomp", "4.14", "restrict which system calls a program can make", "run --system-call-filter fails"),
    (
        "/proc",
        "1.0",
        "ID maps, pipes without pidfd_getfd, parts of this report",
        "ID maps fail, and parts of this report are missing",
    ),
];

/// Probes all features.
pub(crate) fn probe(support: Option<Support>) -> Vec<Feature> {
    let make = |needed_for| {
        move |((name, since, purpose, without), found): (FeatureText, Found)| Feature {
            name,
            state: found.state,
            needed_for,
            since,
            purpose,
            without,
            detail: found.detail,
        }
    };
    let launches = LAUNCHES.into_iter().zip(launch_probes(support)).map(make(Need::Launches));
    let settings = SETTINGS.into_iter().zip(setting_probes(support)).map(make(Need::Settings));
    launches.chain(settings).collect()
}

/// In the order of [`LAUNCHES`].
fn launch_probes(support: Option<Support>) -> [Found; 6] {
    let Some(support) = support else {
        return std::array::from_fn(|_| Found::untried("no process can be created"));
    };
    let shares = |has: bool| Some(has).filter(|_| support.shared_memory);
    const NO_CHILD: &str = "needs a child that shares memory";
    const COPIED: &str = "not used without close_range";
    let why = if support.shared_memory { COPIED } else { NO_CHILD };
    [
        Found::reported(support.shared_memory, ""),
        Found::reported(shares(support.clone3), NO_CHILD),
        Found::reported(shares(support.close_range), NO_CHILD),
        Found::reported(support.pidfd_getfd, why),
        Found::reported(support.pidfd_thread, why),
        Found::of(pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map(drop).map_err(io::Error::from)),
    ]
}

/// In the order of [`SETTINGS`].
fn setting_probes(support: Option<Support>) -> [Found; 11] {
    let launches = support.is_some_and(|support| support.shared_memory);
    let trial = if launches { Trial::find() } else { None };
    let by_launch = |probe: fn(&Trial) -> Found| match &trial {
        Some(trial) => probe(trial),
        None => Found::untried("needs a launch, which does not work here"),
    };
    let in_memory = |trial: io::Result<Trial>| Found::of(trial.and_then(|trial| trial.run(|_| ())));
    [
        by_launch(kept_status),
        clone3_flags(0),
        clone3_flags(AUTOREAP),
        clone3_flags(AUTOREAP | libc::CLONE_PIDFD as u64 | NNP | PIDFD_AUTOKILL),
        clone3_flags(NNP),
        by_launch(|trial| match trial {
            Trial::Memory(_) | Trial::Open(_) => Found::here(None),
            // `Trial::find` fell back to a path for some other reason, so try execveat itself.
            Trial::Named => Found::of(Trial::open().and_then(|trial| trial.run(|_| ()))),
        }),
        if trial.is_some() { in_memory(Trial::in_memory()) } else { Found::of(Trial::in_memory().map(drop)) },
        by_launch(user_namespaces),
        landlock(),
        seccomp(),
        Found::of(is_proc()),
    ]
}

/// The error without the prefix "failed to start …".
fn reason(error: &io::Error) -> String {
    match Error::of(error) {
        Some(error) => {
            let words = error.to_string();
            words.strip_prefix(&format!("failed to start {:?}: ", error.program())).unwrap_or(&words).to_owned()
        }
        None => error.to_string(),
    }
}

/// Waits for a child, then asks for its status again.
///
/// Source: `pidfd_info` in linux/pidfd.h.
fn kept_status(trial: &Trial) -> Found {
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    /// `_IOWR(0xff, 11, struct pidfd_info)`, of 64 bytes in its first version, of which the first 8 are the mask.
    const PIDFD_GET_INFO: u64 = 0xc040_ff0b;
    let ended = trial.command().and_then(|mut command| {
        let mut child = command.pidfd(true).spawn()?;
        child.wait().map(|_| child)
    });
    let child = match ended {
        Ok(child) => child,
        Err(error) => return Found::missing(reason(&error)),
    };
    let Some(pidfd) = child.pidfd() else { return Found::missing("the kernel has no pidfds") };
    let mut info = [PIDFD_INFO_EXIT, 0, 0, 0, 0, 0, 0, 0];
    match ioctl(pidfd, PIDFD_GET_INFO, &mut info) {
        Err(error) => Found::missing(error),
        Ok(()) if info[0] & PIDFD_INFO_EXIT != 0 => Found::here(None),
        Ok(()) => Found::missing("it reports running processes only"),
    }
}

fn ioctl(pidfd: BorrowedFd<'_>, request: u64, info: &mut [u64; 8]) -> io::Result<()> {
    // SAFETY: the request number encodes a size of 64 bytes, which is the size of `info`.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), request as _, info.as_mut_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `CLONE_AUTOREAP`, `CLONE_NNP` and `CLONE_PIDFD_AUTOKILL` of linux/sched.h. The last needs the first two, and a pidfd.
const AUTOREAP: u64 = 1 << 34;
const NNP: u64 = 1 << 35;
const PIDFD_AUTOKILL: u64 = 1 << 36;

/// Clones into a cgroup that does not exist: a kernel that supports all the flags returns EBADF and creates no child.
///
/// Source: `cgroup_css_set_fork()` in kernel/cgroup/cgroup.c.
fn clone3_flags(flags: u64) -> Found {
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    let mut pidfd = -1_i32;
    // Flags first, the address for the pidfd second, the cgroup eleventh and last: clone_args in linux/sched.h.
    let mut args = [0_u64; 11];
    (args[0], args[1], args[10]) = (CLONE_INTO_CGROUP | flags, &raw mut pidfd as u64, i32::MAX as u64);
    // SAFETY: without CLONE_VM no memory is shared. If the kernel does create a child, that child exits at once.
    let answer = unsafe {
        let answer = libc::syscall(libc::SYS_clone3, args.as_mut_ptr(), size_of_val(&args));
        if answer == 0 {
            libc::_exit(0);
        }
        answer
    };
    match io::Error::last_os_error() {
        _ if answer > 0 => {
            // SAFETY: waitpid accepts a null pointer for the status. No other code has the PID of this child.
            unsafe { libc::waitpid(answer as libc::pid_t, ptr::null_mut(), libc::__WALL) };
            Found::missing("the kernel ignores it")
        }
        error if error.raw_os_error() == Some(libc::EBADF) => Found::here(None),
        error => Found::missing(error),
    }
}

/// Also tries a map and a mount namespace: some systems allow a user namespace without any privileges in it.
fn user_namespaces(trial: &Trial) -> Found {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Found::of(trial.run(|command| {
        command.unshare(Namespace::User).unshare(Namespace::Mount).map_uid(0, uid, 1).map_gid(0, gid, 1);
    }))
}

/// The ABI version of Landlock, from `landlock_create_ruleset(2)`.
fn landlock() -> Found {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the kernel reads no memory and creates nothing.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, LANDLOCK_CREATE_RULESET_VERSION)
    };
    if answer < 0 { Found::missing(io::Error::last_os_error()) } else { Found::here(format!("ABI {answer}")) }
}

/// `seccomp(2)`: can filters return an errno?
fn seccomp() -> Found {
    const SECCOMP_GET_ACTION_AVAIL: u32 = 2;
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel only reads the four bytes of `action`.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0_u32, &raw const action) };
    if answer < 0 { Found::missing(io::Error::last_os_error()) } else { Found::here(None) }
}

/// Is procfs mounted on /proc?
pub(crate) fn is_proc() -> io::Result<()> {
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    let kind = rustix::fs::statfs("/proc")?.f_type as u64;
    if kind == PROC_SUPER_MAGIC { Ok(()) } else { Err(io::Error::other("procfs is not mounted there")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_listed_once_whatever_the_probe_returns() {
        for support in [None, Some(Support::NONE), Some(Support::ALL)] {
            let list = probe(support);
            assert_eq!(list.len(), LAUNCHES.len() + SETTINGS.len());
            for feature in &list {
                assert_eq!(list.iter().filter(|other| other.name == feature.name).count(), 1);
                let has_reason = feature.state != State::Untried || feature.detail.is_some();
                assert!(has_reason, "{} is untried without a reason", feature.name);
            }
        }
        let missed = |support| probe(support).iter().filter(|f| f.is_missed()).map(|f| f.name).collect::<Vec<_>>();
        assert!(missed(Some(Support::NONE)).contains(&"CLONE_VM"));
        assert!(!missed(Some(Support::ALL)).contains(&"CLONE_VM"));
        assert!(!missed(None).contains(&"CLONE_VM"), "an untried feature is not missing");
    }
}
