//! The attributes that a child inherits from the thread that clones it. If that is not the calling thread, but a
//! zygote's helper or a thread of this crate, the child must still have those that the caller would have given it.
//!
//! There are two kinds:
//! - Attributes that a process can change in itself: the child *takes them on*. The list is
//!   [`what`](forkless_core::zygote_child::what), and the working
//!   directory, umask and ignored signals. [`observe`] reads the caller's values, [`mark_differences`] skips those
//!   that the helper has too, and the child sets the others (`forkless_core::zygote_child`).
//! - Attributes that it cannot change, or not back: they are *compared*. If they differ, another helper or thread is
//!   started. [`Identity`] is compared before each launch. [`Namespaces`] costs more: a zygote compares it while the
//!   child is being made, and only for callers that can enter namespaces, which takes CAP_SYS_ADMIN. (A caller that has
//!   entered a user namespace is noticed by its name, one that has entered a mount namespace by its root, which has
//!   another mount ID, and one that gave up CAP_SYS_ADMIN by its capabilities.)
//!
//! An attribute in neither list has the value of the helper or thread in the child.
//!
//! [`mark_differences`]: forkless_core::attributes::mark_differences
//! [`observe`]: forkless_core::attributes::observe

pub(crate) mod filters;
pub(crate) mod namespaces;

use crate::kernel;
use forkless_core::planted;
use forkless_core::sys::{self, prctl, uapi};
use namespaces::{Name, Namespaces, Tasks};
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, CWD, StatxFlags, stat, statx};
use std::fs::File;
use std::io;
use std::thread::{self, ThreadId};

/// Lines of `/proc/PID/status`, and their names in errors.
const LINES: [(&str, &str); 11] = [
    ("Uid:", "user ids"),
    ("Gid:", "group ids"),
    ("Groups:", "supplementary groups"),
    ("CapInh:", "inheritable capabilities"),
    ("CapPrm:", "permitted capabilities"),
    ("CapEff:", "effective capabilities"),
    ("CapBnd:", "bounding set"),
    ("CapAmb:", "ambient capabilities"),
    ("NoNewPrivs:", "no_new_privs"),
    ("Seccomp:", "seccomp mode"),
    ("Seccomp_filters:", "seccomp filters"),
];

/// Reads a short file of `/proc` by one read. Several reads could return the states of several moments.
fn whole(file: &File, usual: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(usual);
    loop {
        rustix::io::pread(file, spare_capacity(&mut text), 0)?;
        if text.len() < text.capacity() || planted!("zygote-status-cut") {
            return Ok(text);
        }
        // The buffer is full, so there may be more. The length depends on the number of groups and the depth of the
        // cgroup.
        let more = 2 * text.len();
        text.clear();
        text.reserve(more);
    }
}

/// The lines of `/proc/PID/cgroup`. `None` if a path has the maximum length that the kernel reports: the real path
/// may be longer, and is not known then. (Some kernels truncate the path, others refuse the read.)
fn cgroup(file: &File) -> Option<Vec<u8>> {
    const PATH_MAX: usize = 4096;
    let text = whole(file, 512).ok()?;
    // `hierarchy:controllers:path`, and no line feed in any of them.
    let path_of = |line: &[u8]| line.splitn(3, |&byte| byte == b':').nth(2).map_or(0, <[u8]>::len);
    let is_cut = text.split(|&byte| byte == b'\n').any(|line| path_of(line) >= PATH_MAX - 1);
    (!is_cut || planted!("zygote-cgroup-cut-accepted")).then_some(text)
}

/// A `/proc/PID/status` without its first line, the program's name, which may contain any bytes.
pub(crate) struct Status {
    text: Vec<u8>,
    from: usize,
}

impl Status {
    /// The calling thread's.
    pub(crate) fn of_caller() -> io::Result<Self> {
        Self::read("/proc/thread-self/status")
    }

    fn read(path: &str) -> io::Result<Self> {
        Self::of_file(&File::open(path)?)
    }

    /// That of an open `/proc/PID/task/TID/status`.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        let text = whole(file, 4096)?;
        let from = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
        Ok(Self { text, from })
    }

    /// The values of these labels, which must be in the order of the file.
    pub(crate) fn values<const N: usize>(&self, labels: [&str; N]) -> [Option<&[u8]>; N] {
        let mut lines = self.text[self.from..].split(|&byte| byte == b'\n');
        labels.map(|label| {
            let mut rest = lines.clone();
            let found = rest.find_map(|line| line.strip_prefix(label.as_bytes()));
            // If a kernel does not have this label, the search for the next one starts at the same place.
            found.inspect(|_| lines = rest)
        })
    }

    fn number(value: Option<&[u8]>, base: u32) -> Option<u64> {
        u64::from_str_radix(std::str::from_utf8(value?).ok()?.trim(), base).ok()
    }

    /// The umask, and the ignored signals (bit n-1 is signal n).
    pub(crate) fn umask_and_ignored(&self) -> (Option<u32>, Option<u64>) {
        let [umask, ignored] = self.values(["Umask:", "SigIgn:"]);
        (Self::number(umask, 8).map(|mask| mask as u32), Self::number(ignored, 16))
    }

    /// Whether the thread can enter namespaces.
    pub(crate) fn enters_namespaces(&self) -> bool {
        const CAP_SYS_ADMIN: u32 = 21;
        let [effective] = self.values(["CapEff:"]);
        Self::number(effective, 16).is_none_or(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
    }
}

/// Files in `/proc` that stay open, because each launch reads them.
pub(crate) struct Files {
    cgroup: File,
    oom_score_adj: File,
    tasks: Tasks,
}

impl Files {
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/{name}"));
        let tasks = Tasks::of(pid).map_err(io::Error::from_raw_os_error)?;
        Ok(Self { cgroup: open("cgroup")?, oom_score_adj: open("oom_score_adj")?, tasks })
    }

    /// The namespaces that a thread's children get.
    pub(crate) fn namespaces(&self, thread: i32) -> sys::Result<Namespaces> {
        self.tasks.namespaces(thread)
    }
}

/// The attributes that are compared before each launch.
pub(crate) struct Identity {
    status: Status,
    /// `None` if it cannot be read, as are the others.
    session: Option<i32>,
    user_namespace: Option<Name>,
    root: Option<Place>,
    /// See [`cgroup`].
    cgroup: Option<Vec<u8>>,
    oom_score_adj: Option<Vec<u8>>,
    hidden: Hidden,
}

impl Identity {
    /// Those of the calling thread. The error is that of reading `/proc/thread-self/cgroup`.
    pub(crate) fn of_caller(status: Status, files: &Files) -> io::Result<Self> {
        // The open file is that of the main thread, but each thread may be in another cgroup.
        let is_first = sys::gettid() == sys::getpid();
        let is_first = is_first || planted!("zygote-cgroup-of-the-first-thread");
        let cgroup = if is_first { cgroup(&files.cgroup) } else { cgroup(&File::open("/proc/thread-self/cgroup")?) };
        let hidden = Hidden::of_caller(&status, thread::current().id())?;
        Ok(Self::of_files(status, 0, "/", files, cgroup, hidden))
    }

    /// Those of another process. `hidden`: the caller's when it started that process.
    pub(crate) fn of(pid: i32, hidden: Hidden) -> io::Result<Self> {
        let status = Status::read(&format!("/proc/{pid}/status"))?;
        let files = Files::of(pid)?;
        Ok(Self::of_files(status, pid, &format!("/proc/{pid}/root/"), &files, cgroup(&files.cgroup), hidden))
    }

    fn of_files(status: Status, pid: i32, root: &str, files: &Files, cgroup: Option<Vec<u8>>, hidden: Hidden) -> Self {
        let thread = if pid == 0 { sys::gettid() } else { pid };
        Self {
            status,
            user_namespace: files.tasks.user_namespace(thread).ok(),
            session: kernel::session(pid).ok(),
            root: place(root),
            cgroup,
            oom_score_adj: whole(&files.oom_score_adj, 16).ok(),
            hidden,
        }
    }

    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// The first difference, as errors name it.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let labels = LINES.map(|(label, _)| label);
        let (ours, theirs) = (self.status.values(labels), other.status.values(labels));
        if let Some(at) = (0..LINES.len()).find(|&n| ours[n] != theirs[n]) {
            return Some(LINES[at].1);
        }
        let in_another = self.user_namespace.is_none() || self.user_namespace != other.user_namespace;
        let others = [
            (in_another && !planted!("zygote-user-namespace-not-compared"), "user namespace"),
            (self.session.is_none() || self.session != other.session, "session"),
            (
                self.root.is_none() && !planted!("unread-root-accepted") || self.root != other.root,
                "root directory or mount namespace",
            ),
            (self.cgroup.is_none() || self.cgroup != other.cgroup, "cgroup"),
            (self.oom_score_adj.is_none() || self.oom_score_adj != other.oom_score_adj, "oom_score_adj"),
        ];
        let found = others.into_iter().find(|(differs, _)| *differs).map(|(_, words)| words);
        found.or_else(|| self.hidden.difference(&other.hidden))
    }
}

/// Device, inode and mount of a directory.
pub(crate) type Place = (u64, u64, u64);

/// Which directory this is. `None` if it cannot be reached.
pub(crate) fn place(path: &str) -> Option<Place> {
    // STATX_MNT_ID needs Linux 5.8. Before that the ID is 0.
    let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
    match statx(CWD, path, AtFlags::NO_AUTOMOUNT, wanted) {
        Ok(found) => {
            let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
            Some((device, found.stx_ino, found.stx_mnt_id))
        }
        // Some sandboxes refuse the newer call. Then the mount is not known.
        Err(_) => stat(path).ok().map(|found| (found.st_dev, found.st_ino, 0)),
    }
}

/// Restrictions that a thread can put on itself, and that only the thread itself can read: no file of `/proc` shows them
/// to others. Exec keeps them, so a helper that was executed has those that its starter had then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hidden {
    securebits: i64,
    /// Memory-deny-write-execute, and whether it is inherited.
    mdwe: i64,
    /// The thread that these seccomp filters belong to. `None`: to all threads that have as many. See [`filters`].
    filters_of: Option<ThreadId>,
}

impl Hidden {
    /// Those of the calling thread, whose status this is, and which has its filters from `thread`.
    pub(crate) fn of_caller(status: &Status, thread: ThreadId) -> io::Result<Self> {
        const PR_GET_MDWE: u32 = 66;
        // Exec clears it.
        const SECBIT_KEEP_CAPS: i64 = 1 << 4;
        let get = |option: u32| {
            // SAFETY: returns a number. An older kernel answers with an error, always the same.
            let answer = unsafe { sys::syscall(uapi::__NR_prctl, [option as usize, 0, 0, 0, 0, 0]) };
            answer.map_or(-1, |value| value as i64)
        };
        Ok(Self {
            securebits: get(prctl::PR_GET_SECUREBITS) & !SECBIT_KEEP_CAPS,
            mdwe: get(PR_GET_MDWE),
            filters_of: filters::owner(status, thread),
        })
    }

    fn difference(&self, other: &Self) -> Option<&'static str> {
        let found = [
            (
                self.securebits < 0 || self.securebits != other.securebits && !planted!("securebits-not-compared"),
                "securebits",
            ),
            (self.mdwe != other.mdwe && !planted!("mdwe-not-compared"), "MDWE setting"),
            (self.filters_of != other.filters_of, "seccomp filters"),
        ];
        found.into_iter().find(|(differs, _)| *differs).map(|(_, words)| words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_order_and_past_missing_ones() {
        let text =
            b"Name:\tUid: 7\nUmask:\t0027\nUid:\t1 2 3 4\nSigIgn:\t0000000000001000\nCapEff:\t0000000000200000\n";
        let status = Status { text: text.to_vec(), from: 12 };
        assert_eq!(status.umask_and_ignored(), (Some(0o27), Some(1 << 12)));
        let [uid, none, effective] = status.values(["Uid:", "Gid:", "CapEff:"]);
        assert_eq!((uid, none), (Some(&b"\t1 2 3 4"[..]), None));
        assert_eq!(effective, Some(&b"\t0000000000200000"[..]));
        assert!(status.enters_namespaces());
    }

    #[test]
    fn one_and_the_same_process_does_not_differ() {
        let pid = sys::getpid();
        let files = Files::of(pid).expect("/proc");
        let caller = Identity::of_caller(Status::of_caller().expect("/proc"), &files).expect("/proc");
        let hidden = caller.hidden.clone();
        assert_eq!(caller.difference(&Identity::of(pid, hidden.clone()).expect("/proc")), None);
        let mut other = Identity::of(pid, hidden).expect("/proc");
        other.session = other.session.map(|session| session + 1);
        assert_eq!(caller.difference(&other), Some("session"));
    }

    #[test]
    fn what_cannot_be_read_of_either_differs() {
        let pid = sys::getpid();
        let files = Files::of(pid).expect("/proc");
        let read = || Identity::of_caller(Status::of_caller().expect("/proc"), &files).expect("/proc");
        let differs = |unread: fn(&mut Identity)| {
            let (mut caller, mut other) = (read(), read());
            unread(&mut caller);
            unread(&mut other);
            caller.difference(&other)
        };
        assert_eq!(differs(|_| ()), None);
        assert_eq!(differs(|identity| identity.session = None), Some("session"));
        assert_eq!(differs(|identity| identity.root = None), Some("root directory or mount namespace"));
        assert_eq!(differs(|identity| identity.cgroup = None), Some("cgroup"));
        assert_eq!(differs(|identity| identity.oom_score_adj = None), Some("oom_score_adj"));
        assert_eq!(differs(|identity| identity.hidden.securebits = -1), Some("securebits"));
    }
}
