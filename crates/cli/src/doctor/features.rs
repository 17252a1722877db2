//! What launches rest on, found by trying it: with the library's own probe, and with small launches and harmless calls.
//!
//! Nothing is believed because of a version number, since containers and service managers refuse what the kernel has.

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

/// What a probe found.
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

    /// From the library's probe, which tells no more.
    fn told(has: impl Into<Option<bool>>, why_not_tried: &str) -> Self {
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

/// Name, first kernel, purpose, what happens without.
type Words = (&'static str, &'static str, &'static str, &'static str);

/// What every launch rests on, in the order in which a launch uses it.
const LAUNCHES: [Words; 6] = [
    (
        "CLONE_VM",
        "2.0",
        "a child shares the caller's memory until exec: no page table is copied",
        "nothing can be launched by Clone; posix_spawn and fork may be left",
    ),
    (
        "clone3",
        "5.5",
        "the child has none of the caller's signal handlers (CLONE_CLEAR_SIGHAND)",
        "signals are blocked around each clone, and 64 more system calls are made in the child",
    ),
    (
        "close_range",
        "5.9",
        "the child makes itself a small descriptor table (CLOSE_RANGE_UNSHARE)",
        "the whole descriptor table is copied for each child: slow with thousands of open files",
    ),
    (
        "pidfd_getfd",
        "5.6",
        "descriptors are passed whatever their number",
        "pipes are opened anew through /proc, and for others the table is copied up to their number",
    ),
    (
        "PIDFD_THREAD",
        "6.9",
        "the same from a thread that is not the first",
        "launches from other threads than the first pass descriptors as without pidfd_getfd",
    ),
    (
        "pidfd_open",
        "5.3",
        "waiting with a time limit, for many children, and in a runtime",
        "waits with a limit look again and again; WaitSet and forkless::tokio do not work",
    ),
];

/// What some settings and promises rest on.
const SETTINGS: [Words; 11] = [
    (
        "PIDFD_GET_INFO",
        "6.15",
        "an exit status that nobody else can take away (PIDFD_INFO_EXIT)",
        "a status is lost, with an error that says so, if others reap our children",
    ),
    ("CLONE_INTO_CGROUP", "5.7", "a child is born in its control group", "Command::cgroup is an error"),
    ("CLONE_AUTOREAP", "7.1", "the kernel reaps a child that nobody waits for", "Command::autoreap is an error"),
    (
        "CLONE_PIDFD_AUTOKILL",
        "7.1",
        "the kernel kills a child whose caller ends, however it ends",
        "Command::pidfd_autokill and run --pidfd-autokill are errors",
    ),
    (
        "CLONE_NNP",
        "7.1",
        "CLONE_PIDFD_AUTOKILL without CAP_SYS_ADMIN, for a child with no_new_privs",
        "Command::pidfd_autokill with no_new_privs is an error",
    ),
    ("execveat", "3.19", "a program is executed by its descriptor", "Command::program_fd is an error"),
    ("memfd", "3.17", "captured output and programs are kept in memory", "Capture::memory_file is an error"),
    (
        "user namespaces",
        "3.8",
        "an ordinary user has sandboxes: namespaces, mounts",
        "run --unshare-user and what needs it are errors",
    ),
    ("Landlock", "5.13", "files that a program may use are limited", "run --landlock-access is an error"),
    ("seccomp", "4.14", "system calls that a program may use are limited", "run --system-call-filter is an error"),
    (
        "/proc",
        "1.0",
        "id maps, pipes without pidfd_getfd, this report",
        "id maps, and much of this report, are missing",
    ),
];

/// All of them.
pub(crate) fn probe(support: Option<Support>) -> Vec<Feature> {
    let make = |needed_for| {
        move |((name, since, purpose, without), found): (Words, Found)| Feature {
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
        return std::array::from_fn(|_| Found::untried("no process could be made just now"));
    };
    let shares = |has: bool| Some(has).filter(|_| support.shared_memory);
    const NO_CHILD: &str = "there is no child to try it";
    const COPIED: &str = "not used where the table is copied";
    let why = if support.shared_memory { COPIED } else { NO_CHILD };
    [
        Found::told(support.shared_memory, ""),
        Found::told(shares(support.clone3), NO_CHILD),
        Found::told(shares(support.close_range), NO_CHILD),
        Found::told(support.pidfd_getfd, why),
        Found::told(support.pidfd_thread, why),
        Found::of(pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map(drop).map_err(io::Error::from)),
    ]
}

/// In the order of [`SETTINGS`].
fn setting_probes(support: Option<Support>) -> [Found; 11] {
    let launches = support.is_some_and(|support| support.shared_memory);
    let trial = if launches { Trial::find() } else { None };
    let by_launch = |probe: fn(&Trial) -> Found| match &trial {
        Some(trial) => probe(trial),
        None => Found::untried("nothing can be launched to try it"),
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
            // That another way had to be found says nothing about why.
            Trial::Named => Found::of(Trial::open().and_then(|trial| trial.run(|_| ()))),
        }),
        if trial.is_some() { in_memory(Trial::in_memory()) } else { Found::of(Trial::in_memory().map(drop)) },
        by_launch(user_namespaces),
        landlock(),
        seccomp(),
        Found::of(is_proc()),
    ]
}

/// The reason alone, where the error is a launch's.
fn reason(error: &io::Error) -> String {
    match Error::of(error) {
        Some(error) => {
            let words = error.to_string();
            words.strip_prefix(&format!("failed to start {:?}: ", error.program())).unwrap_or(&words).to_owned()
        }
        None => error.to_string(),
    }
}

/// A child that has been waited for, and is asked for its status once more.
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
    let Some(pidfd) = child.pidfd() else { return Found::missing("there are no pidfds") };
    let mut info = [PIDFD_INFO_EXIT, 0, 0, 0, 0, 0, 0, 0];
    match ioctl(pidfd, PIDFD_GET_INFO, &mut info) {
        Err(error) => Found::missing(error),
        Ok(()) if info[0] & PIDFD_INFO_EXIT != 0 => Found::here(None),
        Ok(()) => Found::missing("it tells of the living only"),
    }
}

fn ioctl(pidfd: BorrowedFd<'_>, request: u64, info: &mut [u64; 8]) -> io::Result<()> {
    // SAFETY: the kernel reads and writes the 64 bytes that the request's number says, which `info` has.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), request as _, info.as_mut_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `CLONE_AUTOREAP`, `CLONE_NNP` and `CLONE_PIDFD_AUTOKILL` of linux/sched.h. The last needs the first two, and a pidfd.
const AUTOREAP: u64 = 1 << 34;
const NNP: u64 = 1 << 35;
const PIDFD_AUTOKILL: u64 = 1 << 36;

/// Into a group that does not exist: a kernel that knows that flag and the given ones says EBADF, and makes no child.
///
/// Source: `cgroup_css_set_fork()` in kernel/cgroup/cgroup.c.
fn clone3_flags(flags: u64) -> Found {
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    let mut pidfd = -1_i32;
    // Flags first, the pidfd's place second, the group eleventh and last: clone_args in linux/sched.h.
    let mut args = [0_u64; 11];
    (args[0], args[1], args[10]) = (CLONE_INTO_CGROUP | flags, &raw mut pidfd as u64, i32::MAX as u64);
    // SAFETY: no memory is shared, and were there a child after all, it would end here at once.
    let answer = unsafe {
        let answer = libc::syscall(libc::SYS_clone3, args.as_mut_ptr(), size_of_val(&args));
        if answer == 0 {
            libc::_exit(0);
        }
        answer
    };
    match io::Error::last_os_error() {
        _ if answer > 0 => {
            // SAFETY: our own child, which nobody else knows of.
            unsafe { libc::waitpid(answer as libc::pid_t, ptr::null_mut(), libc::__WALL) };
            Found::missing("the kernel takes no notice of it")
        }
        error if error.raw_os_error() == Some(libc::EBADF) => Found::here(None),
        error => Found::missing(error),
    }
}

/// With a map and a mount namespace, as a sandbox has them: some systems allow one that may do nothing.
fn user_namespaces(trial: &Trial) -> Found {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Found::of(trial.run(|command| {
        command.unshare(Namespace::User).unshare(Namespace::Mount).map_uid(0, uid, 1).map_gid(0, gid, 1);
    }))
}

/// `landlock_create_ruleset(2)`, which tells the version of its interface.
fn landlock() -> Found {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag nothing is read or made.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, LANDLOCK_CREATE_RULESET_VERSION)
    };
    if answer < 0 { Found::missing(io::Error::last_os_error()) } else { Found::here(format!("ABI {answer}")) }
}

/// `seccomp(2)`: may filters answer with an errno?
fn seccomp() -> Found {
    const SECCOMP_GET_ACTION_AVAIL: u32 = 2;
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads the four bytes of `action`, and sets nothing.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0_u32, &raw const action) };
    if answer < 0 { Found::missing(io::Error::last_os_error()) } else { Found::here(None) }
}

/// Is /proc what it should be?
pub(crate) fn is_proc() -> io::Result<()> {
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    let kind = rustix::fs::statfs("/proc")?.f_type as u64;
    if kind == PROC_SUPER_MAGIC {
        Ok(())
    } else {
        Err(io::Error::other("something else, or nothing, is mounted there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a probe says, the list is whole, and a word that a name stands for is there once.
    #[test]
    fn every_feature_is_in_the_list_whatever_the_library_finds() {
        for support in [None, Some(Support::NONE), Some(Support::ALL)] {
            let list = probe(support);
            assert_eq!(list.len(), LAUNCHES.len() + SETTINGS.len());
            for feature in &list {
                assert_eq!(list.iter().filter(|other| other.name == feature.name).count(), 1);
                let told = feature.state != State::Untried || feature.detail.is_some();
                assert!(told, "{} is not tried, and nobody says why", feature.name);
            }
        }
        let missed = |support| probe(support).iter().filter(|f| f.is_missed()).map(|f| f.name).collect::<Vec<_>>();
        assert!(missed(Some(Support::NONE)).contains(&"CLONE_VM"));
        assert!(!missed(Some(Support::ALL)).contains(&"CLONE_VM"));
        assert!(!missed(None).contains(&"CLONE_VM"), "what could not be tried is not missing");
    }
}
