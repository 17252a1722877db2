//! What a process is that no child of it can change back: compared between a caller and its zygote.
//!
//! In two parts, by what a look costs. [`Identity`] is compared before each launch. [`Namespaces`] are compared while the child
//! is being made, and only for callers that can enter others: who has CAP_SYS_ADMIN. (Who makes itself a user namespace gets
//! that by it, or had it before; who has entered a mount namespace has another root, by the number of its mount.)

use super::namespaces::{Namespaces, Tasks};
use forkless_core::sys::{self, uapi};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Lines of `/proc/PID/status`, with what they are in words.
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

/// A `/proc/PID/status`, but for its first line: a program's name, which may be any bytes.
pub(crate) struct Status {
    text: [u8; 4096],
    from: usize,
    to: usize,
}

impl Status {
    /// The calling thread's.
    pub(crate) fn of_caller() -> io::Result<Self> {
        Self::read("/proc/thread-self/status")
    }

    fn read(path: &str) -> io::Result<Self> {
        let mut status = Self { text: [0; 4096], from: 0, to: 0 };
        status.to = File::open(path)?.read(&mut status.text)?;
        status.from = status.text[..status.to].iter().position(|&byte| byte == b'\n').unwrap_or(status.to);
        Ok(status)
    }

    /// The values of these labels, which stand in this order.
    fn values<const N: usize>(&self, labels: [&str; N]) -> [Option<&[u8]>; N] {
        let mut lines = self.text[self.from..self.to].split(|&byte| byte == b'\n');
        labels.map(|label| {
            let mut rest = lines.clone();
            let found = rest.find_map(|line| line.strip_prefix(label.as_bytes()));
            // A kernel without it does not hide the next one.
            found.inspect(|_| lines = rest)
        })
    }

    fn number(value: Option<&[u8]>, base: u32) -> Option<u64> {
        u64::from_str_radix(std::str::from_utf8(value?).ok()?.trim(), base).ok()
    }

    /// The mask for new files, and the signals that are ignored (bit n-1 is signal n).
    pub(crate) fn umask_and_ignored(&self) -> (Option<u32>, Option<u64>) {
        let [umask, ignored] = self.values(["Umask:", "SigIgn:"]);
        (Self::number(umask, 8).map(|mask| mask as u32), Self::number(ignored, 16))
    }

    /// Can the thread enter namespaces?
    pub(crate) fn enters_namespaces(&self) -> bool {
        const CAP_SYS_ADMIN: u32 = 21;
        let [effective] = self.values(["CapEff:"]);
        Self::number(effective, 16).is_none_or(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
    }
}

/// A short text of the kernel's.
#[derive(Clone, PartialEq, Eq)]
struct Text {
    bytes: [u8; 256],
    length: usize,
}

impl Text {
    /// Read from a file that is kept open.
    fn of(file: &File) -> Self {
        let mut text = Self { bytes: [0; 256], length: 0 };
        text.length = file.read_at(&mut text.bytes, 0).unwrap_or(0);
        text
    }
}

/// Files of this process that are kept open to be read at each launch.
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

    /// The namespaces that children of a thread are born in.
    pub(crate) fn namespaces(&self, thread: i32) -> sys::Result<Namespaces> {
        self.tasks.namespaces(thread)
    }
}

/// What is compared before each launch.
pub(crate) struct Identity {
    status: Status,
    session: i32,
    /// Device, inode and mount of the root directory.
    root: Option<(u64, u64, u64)>,
    cgroup: Text,
    oom_score_adj: Text,
}

impl Identity {
    /// That of the calling thread.
    pub(crate) fn of_caller(status: Status, files: &Files) -> Self {
        Self::of_files(status, 0, "/", files)
    }

    /// That of another process.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let status = Status::read(&format!("/proc/{pid}/status"))?;
        Ok(Self::of_files(status, pid, &format!("/proc/{pid}/root/"), &Files::of(pid)?))
    }

    fn of_files(status: Status, pid: i32, root: &str, files: &Files) -> Self {
        // SAFETY: reads a number.
        let session = unsafe { sys::syscall(uapi::__NR_getsid, [pid as usize, 0, 0, 0, 0, 0]) };
        // STATX_MNT_ID, Linux 5.8; before that the number is 0.
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let root = statx(CWD, root, AtFlags::NO_AUTOMOUNT, wanted).ok().map(|found| {
            let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
            (device, found.stx_ino, found.stx_mnt_id)
        });
        Self {
            status,
            session: session.unwrap_or(0) as i32,
            root,
            cgroup: Text::of(&files.cgroup),
            oom_score_adj: Text::of(&files.oom_score_adj),
        }
    }

    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// The first difference, in words.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let labels = LINES.map(|(label, _)| label);
        let (ours, theirs) = (self.status.values(labels), other.status.values(labels));
        if let Some(at) = (0..LINES.len()).find(|&n| ours[n] != theirs[n]) {
            return Some(LINES[at].1);
        }
        let others = [
            (self.session != other.session, "session"),
            (self.root != other.root, "root directory or mount namespace"),
            (self.cgroup != other.cgroup, "control group"),
            (self.oom_score_adj != other.oom_score_adj, "oom_score_adj"),
        ];
        others.into_iter().find(|(differs, _)| *differs).map(|(_, words)| words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_order_and_past_missing_ones() {
        let mut status = Status { text: [0; 4096], from: 0, to: 0 };
        let text =
            b"Name:\tUid: 7\nUmask:\t0027\nUid:\t1 2 3 4\nSigIgn:\t0000000000001000\nCapEff:\t0000000000200000\n";
        status.text[..text.len()].copy_from_slice(text);
        (status.from, status.to) = (12, text.len());
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
        let caller = Identity::of_caller(Status::of_caller().expect("/proc"), &files);
        assert_eq!(caller.difference(&Identity::of(pid).expect("/proc")), None);
        let mut other = Identity::of(pid).expect("/proc");
        other.session += 1;
        assert_eq!(caller.difference(&other), Some("session"));
    }
}
