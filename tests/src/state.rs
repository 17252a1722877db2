//! The state of a process that a launch must not change: recorded before, compared after.
//!
//! [`State::now`] records the calling process; [`State::assert_unchanged`] fails with a list of differences. The tests
//! of this module show that each part is compared.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::PathBuf;

/// One descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fd {
    /// The target of the link in `/proc/self/fd`.
    pub target: String,
    /// Is it close-on-exec?
    pub cloexec: bool,
}

/// The disposition of a signal, as of `rt_sigaction(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    /// 0: default, 1: ignored, else the handler's address.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Signals blocked while the handler runs.
    pub mask: u64,
}

/// Everything of the calling process, and of the calling thread, that a launch must leave as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The open descriptors.
    pub fds: BTreeMap<i32, Fd>,
    /// The thread's blocked signals; bit n-1 is signal n, libc's own two included.
    pub mask: u64,
    /// The dispositions of signals 1 to 64.
    pub actions: Vec<Action>,
    /// `prctl(PR_GET_DUMPABLE)`.
    pub dumpable: i32,
    /// `/proc/self/oom_score_adj`.
    pub oom_score_adj: String,
    /// The working directory.
    pub cwd: PathBuf,
    /// The file mode creation mask.
    pub umask: u32,
    /// Real, effective and saved user and group ids.
    pub ids: [u32; 6],
    /// Process group and session.
    pub groups: [i32; 2],
    /// Children of all threads, zombies included, by `/proc`; none where the kernel does not list them.
    pub children: Option<Vec<i32>>,
    /// The PID namespace of the thread's next children; empty: it has no process yet.
    pub pids_for_children: PathBuf,
    /// A child with news for `waitid(2)`, such as a zombie.
    pub waitable: Option<i32>,
    /// Memory mappings. Not part of the comparison: see [`State::assert_mappings`].
    pub mappings: usize,
}

/// glibc's own signals, whose actions it sets when the first thread is made: by the host, or for a launch that needs one.
const LIBCS: [usize; 2] = [32, 33];

impl State {
    /// The calling process as it is.
    pub fn now() -> Self {
        without_limits(Self::read_state)
    }

    /// The calling process as it is, and of what belongs to one thread that of another one.
    pub fn of_thread(thread: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        Self {
            mask: mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(!0),
            pids_for_children: fs::read_link(format!("/proc/self/task/{thread}/ns/pid_for_children"))
                .unwrap_or_default(),
            ..Self::now()
        }
    }

    fn read_state() -> Self {
        Self {
            fds: open_fds(),
            mask: signal_mask(),
            actions: (1..=64).map(signal_action).collect(),
            // SAFETY: reads a number.
            dumpable: unsafe { libc::prctl(libc::PR_GET_DUMPABLE) },
            oom_score_adj: fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default(),
            cwd: fs::read_link("/proc/self/cwd").unwrap_or_default(),
            umask: status_number("Umask:", 8).unwrap_or(0) as u32,
            ids: ids(),
            // SAFETY: read two numbers.
            groups: unsafe { [libc::getpgrp(), libc::getsid(0)] },
            children: children(),
            pids_for_children: fs::read_link("/proc/thread-self/ns/pid_for_children").unwrap_or_default(),
            waitable: waitable(),
            mappings: fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count()),
        }
    }

    /// The differences in `after`, one line each. Mappings are not compared.
    pub fn differences(&self, after: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for fd in self.fds.keys().chain(after.fds.keys().filter(|fd| !self.fds.contains_key(fd))) {
            compare(&mut found, &format!("fd {fd}"), &show(self.fds.get(fd)), &show(after.fds.get(fd)));
        }
        compare(&mut found, "signal mask", &format!("{:#x}", self.mask), &format!("{:#x}", after.mask));
        for (n, (old, new)) in self.actions.iter().zip(&after.actions).enumerate() {
            if LIBCS.contains(&(n + 1)) {
                continue;
            }
            compare(&mut found, &format!("action of signal {}", n + 1), &format!("{old:x?}"), &format!("{new:x?}"));
        }
        compare(&mut found, "dumpable", &self.dumpable, &after.dumpable);
        compare(&mut found, "oom_score_adj", &self.oom_score_adj.trim(), &after.oom_score_adj.trim());
        compare(&mut found, "cwd", &self.cwd.display(), &after.cwd.display());
        compare(&mut found, "umask", &format!("{:o}", self.umask), &format!("{:o}", after.umask));
        compare(&mut found, "ids", &format!("{:?}", self.ids), &format!("{:?}", after.ids));
        compare(&mut found, "group and session", &format!("{:?}", self.groups), &format!("{:?}", after.groups));
        compare(&mut found, "children", &format!("{:?}", self.children), &format!("{:?}", after.children));
        let pids = [self, after].map(|state| state.pids_for_children.display());
        compare(&mut found, "the children's PID namespace", &pids[0], &pids[1]);
        compare(&mut found, "waitable child", &format!("{:?}", self.waitable), &format!("{:?}", after.waitable));
        found
    }

    /// Fails unless the process is now as it was `before`, but for the number of mappings.
    #[track_caller]
    pub fn assert_unchanged(before: &Self) {
        let differences = before.differences(&Self::now());
        assert!(differences.is_empty(), "the process has changed:\n  {}", differences.join("\n  "));
    }

    /// Fails if there are more than `room` more mappings than before: a heap may grow, a leak grows without end.
    #[track_caller]
    pub fn assert_mappings(before: &Self, room: usize) {
        let now = Self::now().mappings;
        assert!(now <= before.mappings + room, "{} mappings have become {now}", before.mappings);
    }
}

fn compare(found: &mut Vec<String>, what: &str, old: &dyn Display, new: &dyn Display) {
    let (old, new) = (old.to_string(), new.to_string());
    if old != new {
        found.push(format!("{what}: was {old}, is {new}"));
    }
}

fn show(fd: Option<&Fd>) -> String {
    match fd {
        None => "closed".into(),
        Some(Fd { target, cloexec }) => format!("{target}{}", if *cloexec { " (close-on-exec)" } else { "" }),
    }
}

/// The open descriptors, without the one that lists them.
fn open_fds() -> BTreeMap<i32, Fd> {
    let mut found = BTreeMap::new();
    // The numbers alone, all of them first: an entry would keep the listing's own descriptor open.
    let numbers: Vec<i32> = fs::read_dir("/proc/self/fd")
        .map(|all| all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
        .unwrap_or_default();
    for fd in numbers {
        // SAFETY: reads the descriptor's flags.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if flags >= 0 {
            let target =
                fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default().to_string_lossy().into_owned();
            found.insert(fd, Fd { target, cloexec: flags & libc::FD_CLOEXEC != 0 });
        }
    }
    found
}

fn signal_mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: the kernel writes 8 bytes; nothing is set.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0usize, &raw mut mask, 8usize) };
    mask
}

/// The action of a signal, without libc, which hides two of them.
fn signal_action(signal: i32) -> Action {
    // handler, flags, restorer (x86-64 only), mask: the last word of either layout is the mask.
    let mut words = [0u64; 4];
    // SAFETY: the kernel writes a kernel_sigaction, which is at most these 32 bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, 0usize, words.as_mut_ptr(), 8usize) };
    let mask = if cfg!(target_arch = "x86_64") { words[3] } else { words[2] };
    Action { handler: words[0], flags: words[1], mask }
}

fn ids() -> [u32; 6] {
    let mut ids = [0; 6];
    let [r, e, s, gr, ge, gs] = &mut ids;
    // SAFETY: write three numbers each.
    unsafe {
        libc::getresuid(r, e, s);
        libc::getresgid(gr, ge, gs);
    }
    ids
}

fn status_number(key: &str, radix: u32) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    u64::from_str_radix(line.trim(), radix).ok()
}

fn children() -> Option<Vec<i32>> {
    let mut found = Vec::new();
    fs::metadata("/proc/thread-self/children").ok()?;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread that has just ended has no children.
        let Ok(list) = fs::read_to_string(task.path().join("children")) else { continue };
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found.sort_unstable();
    Some(found)
}

fn waitable() -> Option<i32> {
    // SAFETY: all zeroes is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the kernel writes a siginfo_t; WNOWAIT leaves the child as it is.
    let answer = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) };
    // SAFETY: zeroed, or filled in for a child.
    let pid = unsafe { info.si_pid() };
    (answer == 0 && pid != 0).then_some(pid)
}

/// Does something that needs a descriptor and memory, also where the soft limits leave none.
pub fn without_limits<T>(act: impl FnOnce() -> T) -> T {
    let limits = [libc::RLIMIT_NOFILE, libc::RLIMIT_AS].map(|resource| {
        // SAFETY: read and write a limit of this process.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(resource, &raw mut limit);
            libc::setrlimit(resource, &libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
            (resource, limit)
        }
    });
    let answer = act();
    for (resource, limit) in limits {
        // SAFETY: as it was.
        unsafe { libc::setrlimit(resource, &raw const limit) };
    }
    answer
}

/// libc's `errno` after `act`, if it was `marker` before.
pub fn errno_after(marker: i32, act: impl FnOnce()) -> i32 {
    // SAFETY: the calling thread's own errno.
    unsafe {
        *libc::__errno_location() = marker;
        act();
        *libc::__errno_location()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd};

    /// Each part of the state that can be changed here, changed: the comparison must notice. Other tests of this
    /// binary run beside this one, so only the lines that were provoked are looked for.
    #[test]
    fn changes_are_noticed() {
        let notices = |before: &State, what: &str| {
            let found = before.differences(&State::now());
            assert!(found.iter().any(|line| line.starts_with(what)), "{what} not noticed: {found:?}");
        };
        let before = State::now();
        // A number that the files of other tests do not have before.
        let null = fs::File::open("/dev/null").unwrap();
        // SAFETY: a new descriptor, which has no other owner.
        let leaked = unsafe { fs::File::from_raw_fd(libc::fcntl(null.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 700)) };
        notices(&before, &format!("fd {}: was closed, is /dev/null", leaked.as_raw_fd()));
        let before = State::now();
        // SAFETY: this thread's mask, this test's file, a signal nobody uses; a child that only exits.
        unsafe {
            libc::fcntl(leaked.as_raw_fd(), libc::F_SETFD, 0);
            notices(&before, &format!("fd {}", leaked.as_raw_fd()));
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGWINCH);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            notices(&before, "signal mask");
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            libc::signal(libc::SIGWINCH, libc::SIG_IGN);
            notices(&before, "action of signal 28");
            libc::signal(libc::SIGWINCH, libc::SIG_DFL);
            let old = libc::umask(0o123);
            notices(&before, "umask");
            libc::umask(old);
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            notices(&before, "dumpable");
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(0);
            }
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid as u32, &raw mut info, libc::WEXITED | libc::WNOWAIT);
            notices(&before, "waitable child");
            if before.children.is_some() {
                notices(&before, "children");
            }
            libc::waitpid(pid, std::ptr::null_mut(), 0);
            // Of this thread alone, and only root may.
            if libc::unshare(libc::CLONE_NEWPID) == 0 {
                notices(&before, "the children's PID namespace");
            }
            assert_eq!(errno_after(77, || ()), 77);
            assert_eq!(errno_after(77, || assert_eq!(libc::close(-1), -1)), libc::EBADF);
        }
    }
}
