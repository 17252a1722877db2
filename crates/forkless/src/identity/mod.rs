//! The attributes that a child inherits from the thread that clones it. If that is not the calling thread, but a
//! zygote's helper or a thread of this crate, the child must still have those that the caller would have given it.
//!
//! There are three kinds:
//! - Attributes that a process can change in itself: the child *takes them on*. The list is
//!   [`what`](forkless_core::zygote_child::what), and the working
//!   directory, umask and ignored signals. [`observe`] reads the caller's values, [`mark_differences`] skips those
//!   that the helper has too, and the child sets the others (`forkless_core::zygote_child`).
//! - Attributes that it cannot change, or not back, and that others can read: those of the caller are *compared* with those of the
//!   helper. If they differ, another helper is started. They are the rights in its [status](difference_of_rights), its [`Identity`] and its
//!   [`Namespaces`].
//! - Attributes that only their owner can read in full: [`Inherited`] compares those that the caller has with those that it had when
//!   it started the helper.
//!
//! A zygote compares the rights before it sends a launch, and the others, if the helper may run on another CPU, while the helper makes the
//! child, which waits for the result.
//!
//! An attribute in no list has the value of the helper in the child. `tests/attributes.toml` has them all.
//!
//! [`mark_differences`]: forkless_core::attributes::mark_differences
//! [`observe`]: forkless_core::attributes::observe

pub(crate) mod filters;
pub(crate) mod inherited;
pub(crate) mod namespaces;

use crate::kept::Kept;
use crate::kernel;
use crate::procfs::{self, Process, Status, whole, whole_kept};
use forkless_core::sys;
use inherited::Inherited;
use namespaces::{NamespaceName, Namespaces, Tasks};
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, statat, statx};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

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

/// The text of `/proc/PID/cgroup`. `None` if it could not be read, or if a path has the maximum length that the kernel reports: the real path
/// may be longer, and is not known then. (Some kernels truncate the path, others refuse the read.)
fn cgroup(text: io::Result<Vec<u8>>) -> Option<Vec<u8>> {
    const PATH_MAX: usize = 4096;
    let text = text.ok()?;
    // `hierarchy:controllers:path`, and no line feed in any of them.
    let path_of = |line: &[u8]| line.splitn(3, |&byte| byte == b':').nth(2).map_or(0, <[u8]>::len);
    let is_cut = text.split(|&byte| byte == b'\n').any(|line| path_of(line) >= PATH_MAX - 1);
    (!is_cut).then_some(text)
}

/// The usual length of `/proc/PID/cgroup`.
const CGROUP: usize = 512;

/// Files of a process in `/proc`.
pub(crate) struct Files {
    cgroup: Kept<File>,
    oom_score_adj: Kept<File>,
    tasks: Tasks,
}

impl Files {
    pub(crate) fn of(pid: i32, process: &Process) -> io::Result<Self> {
        let open = |name: &str| process.file(name, OFlags::RDONLY).map(Kept::new);
        Ok(Self { cgroup: open("cgroup")?, oom_score_adj: open("oom_score_adj")?, tasks: Tasks::of(pid, process)? })
    }

    /// The namespaces that a thread's children get.
    pub(crate) fn namespaces(&self, thread: i32) -> io::Result<Namespaces> {
        self.tasks.namespaces(thread)
    }
}

/// The caller's, which stay open because each launch reads them.
pub(crate) struct CallersFiles {
    pub(crate) files: Files,
    /// The first thread's.
    status: Kept<File>,
    inherited: inherited::InheritedFiles,
}

impl CallersFiles {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            files: Files::of(sys::getpid(), &Process::open(sys::getpid())?)?,
            status: Kept::new(File::open(procfs::own("status"))?),
            inherited: inherited::InheritedFiles::of_caller(),
        })
    }

    /// The calling thread's status.
    pub(crate) fn status(&self) -> io::Result<Status> {
        match is_first_thread() {
            true => self.status.get().and_then(Status::of_file).or_else(|_| Status::of_caller()),
            false => Status::of_caller(),
        }
    }

    /// What a child inherits that the calling thread clones now. `before`: the same at an earlier time.
    pub(crate) fn inherited(&self, status: &Status, before: Option<&Inherited>) -> Inherited {
        Inherited::of_caller(status, &self.inherited, before)
    }
}

/// Whether this is the process's first thread: the open files are that one's.
fn is_first_thread() -> bool {
    sys::gettid() == sys::getpid()
}

/// The first difference in the ids, capabilities and filters of two statuses, as errors name it.
pub(crate) fn difference_of_rights(one: &Status, other: &Status) -> Option<&'static str> {
    let labels = LINES.map(|(label, _)| label);
    let (one, other) = (one.values(labels), other.values(labels));
    (0..LINES.len()).find(|&n| one[n] != other[n]).map(|at| LINES[at].1)
}

/// Attributes that are compared at each launch.
pub(crate) struct Identity {
    /// `None` if it cannot be read, as are the others.
    session: Option<i32>,
    user_namespace: Option<NamespaceName>,
    root: Option<DirectoryId>,
    /// See [`cgroup`].
    cgroup: Option<Vec<u8>>,
    oom_score_adj: Option<Vec<u8>>,
}

impl Identity {
    /// Those of the calling thread. The error is that of reading `/proc/thread-self/cgroup`.
    pub(crate) fn of_caller(files: &CallersFiles) -> io::Result<Self> {
        // Each thread may be in another cgroup.
        let text = match is_first_thread() {
            true => whole_kept(&files.files.cgroup, CGROUP),
            false => whole(&File::open(procfs::thread("cgroup"))?, CGROUP),
        };
        Ok(Self::of_files(0, directory_id(CWD, "/"), &files.files, cgroup(text)))
    }

    /// Those of a helper, whose files these are.
    pub(crate) fn of(pid: i32, process: &Process, files: &Files) -> io::Result<Self> {
        let root = directory_id(process.file("root", OFlags::PATH | OFlags::DIRECTORY)?.as_fd(), "");
        Ok(Self::of_files(pid, root, files, cgroup(whole_kept(&files.cgroup, CGROUP))))
    }

    fn of_files(pid: i32, root: Option<DirectoryId>, files: &Files, cgroup: Option<Vec<u8>>) -> Self {
        let thread = if pid == 0 { sys::gettid() } else { pid };
        Self {
            user_namespace: files.tasks.user_namespace(thread).ok(),
            session: kernel::session(pid).ok(),
            root,
            cgroup,
            oom_score_adj: whole_kept(&files.oom_score_adj, 16).ok(),
        }
    }

    /// The first difference, as errors name it.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let in_another = self.user_namespace.is_none() || self.user_namespace != other.user_namespace;
        let others = [
            (in_another, "user namespace"),
            (self.session.is_none() || self.session != other.session, "session"),
            (self.root.is_none() || self.root != other.root, "root directory or mount namespace"),
            (self.cgroup.is_none() || self.cgroup != other.cgroup, "cgroup"),
            (self.oom_score_adj.is_none() || self.oom_score_adj != other.oom_score_adj, "oom_score_adj"),
        ];
        others.into_iter().find(|(differs, _)| *differs).map(|(_, words)| words)
    }
}

/// Device, inode and mount of a directory.
type DirectoryId = (u64, u64, u64);

/// Which directory this is: a path, or "" for the one that is open. `None` if it cannot be reached.
fn directory_id(at: BorrowedFd<'_>, path: &str) -> Option<DirectoryId> {
    // STATX_MNT_ID needs Linux 5.8. Before that the ID is 0.
    let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
    match statx(at, path, AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH, wanted) {
        Ok(found) => {
            let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
            Some((device, found.stx_ino, found.stx_mnt_id))
        }
        // Some sandboxes refuse the newer call. Then the mount is not known.
        Err(_) => statat(at, path, AtFlags::EMPTY_PATH).ok().map(|found| (found.st_dev, found.st_ino, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_caller(files: &CallersFiles) -> Identity {
        Identity::of_caller(files).expect("/proc")
    }

    #[test]
    fn one_and_the_same_process_does_not_differ() {
        let pid = sys::getpid();
        let files = CallersFiles::open().expect("/proc");
        let caller = of_caller(&files);
        let process = Process::open(pid).expect("/proc");
        let mut other = Identity::of(pid, &process, &Files::of(pid, &process).expect("/proc")).expect("/proc");
        assert_eq!(caller.difference(&other), None);
        other.session = other.session.map(|session| session + 1);
        assert_eq!(caller.difference(&other), Some("session"));
    }

    #[test]
    fn what_cannot_be_read_of_either_differs() {
        let files = CallersFiles::open().expect("/proc");
        let differs =
            |unread: fn(Identity) -> Identity| unread(of_caller(&files)).difference(&unread(of_caller(&files)));
        assert_eq!(differs(|identity| identity), None);
        assert_eq!(differs(|identity| Identity { session: None, ..identity }), Some("session"));
        assert_eq!(differs(|identity| Identity { root: None, ..identity }), Some("root directory or mount namespace"));
        assert_eq!(differs(|identity| Identity { cgroup: None, ..identity }), Some("cgroup"));
        assert_eq!(differs(|identity| Identity { oom_score_adj: None, ..identity }), Some("oom_score_adj"));
        let inherited = || files.inherited(&files.status().expect("/proc"), None);
        assert_eq!(inherited().difference(&inherited()), None);
        let unread = [inherited(), inherited()].map(|mut inherited| {
            inherited.values[0] = -1;
            inherited
        });
        assert_eq!(unread[0].difference(&unread[1]), Some("securebits"));
    }
}
