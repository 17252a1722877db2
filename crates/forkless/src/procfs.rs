//! All access to `/proc`: every path below it that this library opens is made here. (A child's are in
//! [`forkless_core::procfs`].)
//!
//! A procfs shows the processes of one PID namespace, and the one at `/proc` may be that of another namespace than the
//! caller's: after `unshare --pid --fork` without a new `/proc`, or in a container with the host's. `/proc/self` and
//! `/proc/thread-self` are the caller there too, but a *number* may be that of an unrelated process. So another process
//! is reached only by [`Process`], which first proves that this procfs is that of the caller's namespace.
//!
//! Source: proc(5); proc_self_get_link() in fs/proc/self.c, proc_pid_status() in fs/proc/array.c: NSpid has a number for each
//! namespace from that of the procfs down to the one of the process.

use crate::kept::Kept;
use crate::process;
use forkless_core::sys::{self, errno};
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatfs, openat, readlinkat_raw, statx};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The error for a procfs of another PID namespace. No file of `/proc` fails with it.
pub(crate) const FOREIGN: i32 = errno::EXDEV;

/// The explanation of [`FOREIGN`] for users.
pub(crate) const FOREIGN_WORDS: &str =
    "the /proc that is mounted here is that of another PID namespace: mount one of this namespace";

/// Where a procfs is usually mounted.
pub(crate) const ROOT: &str = "/proc";

/// The link to the caller's program.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// The PID namespace of the caller.
pub(crate) const OWN_PIDS: &CStr = c"/proc/self/ns/pid";

/// The PID namespace of the calling thread's children.
pub(crate) const PIDS_FOR_CHILDREN: &CStr = c"/proc/thread-self/ns/pid_for_children";

/// The status of the calling thread.
pub(crate) const THREADS_STATUS: &CStr = c"/proc/thread-self/status";

/// The path of a file of the calling process; for many files that means its first thread.
pub(crate) fn own(name: &str) -> String {
    format!("/proc/self/{name}")
}

/// The path of a file of the calling thread.
pub(crate) fn thread(name: &str) -> String {
    format!("/proc/thread-self/{name}")
}

/// The path of a file that belongs to no process.
#[cfg(all(feature = "warm", target_arch = "x86_64", target_env = "gnu"))]
pub(crate) fn systems(name: &str) -> String {
    format!("/proc/{name}")
}

/// Replaces the text of this module's errors by an explanation.
pub(crate) fn explain(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(FOREIGN) => io::Error::new(error.kind(), FOREIGN_WORDS),
        Some(errno::ENOENT) => io::Error::new(error.kind(), "no procfs is mounted at /proc"),
        _ => error,
    }
}

/// Whether the procfs at `/proc` is that of the caller's PID namespace.
pub(crate) fn is_ours() -> bool {
    proven().is_ok()
}

/// A process by its number in the caller's PID namespace.
#[derive(Debug)]
pub(crate) struct Process(OwnedFd);

impl Process {
    /// Another process, or the caller.
    ///
    /// # Errors
    /// [`FOREIGN`]; `ENOENT` if there is no such process, or it is hidden.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        let proc = proven()?;
        Ok(Self(openat(proc, pid.to_string(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// A file of it, opened with these flags and close-on-exec.
    pub(crate) fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.0, name, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// The contents of a short file.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        whole(&self.file(name, OFlags::RDONLY)?, 1024)
    }

    /// Device and inode of what a link leads to.
    #[cfg(all(feature = "warm", target_arch = "x86_64", target_env = "gnu"))]
    pub(crate) fn identity(&self, link: &str) -> io::Result<((u32, u32), u64)> {
        let found = statx(&self.0, link, AtFlags::empty(), StatxFlags::INO)?;
        Ok(((found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
    }

    /// The number of its open descriptors.
    #[cfg(any(test, all(feature = "warm", target_arch = "x86_64", target_env = "gnu")))]
    pub(crate) fn count_descriptors(&self) -> io::Result<usize> {
        let directory = OwnedFd::from(self.file("fd", OFlags::RDONLY | OFlags::DIRECTORY)?);
        let mut list = rustix::fs::Dir::new(directory)?;
        let entries = std::iter::from_fn(|| list.read()).flatten();
        Ok(entries.filter(|entry| entry.file_name().to_bytes().first().is_some_and(u8::is_ascii_digit)).count())
    }
}

/// The numbers of all processes that this procfs shows.
pub(crate) fn all_processes() -> io::Result<Vec<i32>> {
    let mut list = rustix::fs::Dir::read_from(proven()?)?;
    let mut found = Vec::new();
    while let Some(entry) = list.read() {
        found.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(found)
}

/// The [process](process::generation) for which a mount was proven, and that mount's ID. The kernel never uses an ID again.
static PROVEN_FOR: AtomicU32 = AtomicU32::new(0);
static PROVEN: AtomicU64 = AtomicU64::new(0);

/// The directory `/proc`, if it is a procfs of the caller's PID namespace. Each mount is proven once, by reading a file.
fn proven() -> io::Result<OwnedFd> {
    const PROC_SUPER_MAGIC: i64 = 0x9fa0;
    // STATX_MNT_ID_UNIQUE, from Linux 6.8 on, which the crate does not name.
    const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let proc = openat(CWD, c"/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let found = statx(&proc, c"", AtFlags::EMPTY_PATH, MNT_ID_UNIQUE).ok();
    let mount = found.filter(|found| found.stx_mask & MNT_ID_UNIQUE.bits() != 0).map(|found| found.stx_mnt_id);
    let process = process::generation();
    // Acquire: `PROVEN` was stored before it.
    let is_known = PROVEN_FOR.load(Ordering::Acquire) == process && mount == Some(PROVEN.load(Ordering::Relaxed));
    if is_known {
        return Ok(proc);
    }
    if fstatfs(&proc)?.f_type != PROC_SUPER_MAGIC {
        // An empty directory: no procfs is mounted.
        return Err(io::Error::from_raw_os_error(errno::ENOENT));
    }
    if !is_showing_caller_alone(proc.as_fd())? {
        return Err(io::Error::from_raw_os_error(FOREIGN));
    }
    if let Some(mount) = mount {
        PROVEN.store(mount, Ordering::Relaxed);
        PROVEN_FOR.store(process, Ordering::Release);
    }
    Ok(proc)
}

/// Whether a procfs knows the caller by one number only, its own: then it is that of the caller's PID namespace. By chance the
/// caller may have the same number in two namespaces, so the number alone proves nothing.
fn is_showing_caller_alone(proc: std::os::fd::BorrowedFd<'_>) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let status = match openat(proc, c"self/status", flags, Mode::empty()) {
        Ok(status) => Status::of_file(&status.into())?,
        // A namespace beside or below the caller's does not have the caller.
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let me = sys::getpid().to_string();
    Ok(match status.values(["NSpid:"]) {
        [Some(pids)] => pids.trim_ascii() == me.as_bytes(),
        // Before Linux 4.1.
        [None] => {
            let mut link = [0; 16];
            readlinkat_raw(proc, c"self", &mut link)
                .is_ok_and(|length| length == me.len() && link.starts_with(me.as_bytes()))
        }
    })
}

/// Reads a short file of `/proc` by one read. Several reads could return the states of several moments.
pub(crate) fn whole(file: &File, usual: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(usual);
    loop {
        rustix::io::pread(file, spare_capacity(&mut text), 0)?;
        if text.len() < text.capacity() {
            return Ok(text);
        }
        // The buffer is full, so there may be more. The length depends on the number of groups and the depth of the
        // cgroup.
        let more = 2 * text.len();
        text.clear();
        text.reserve(more);
    }
}

/// [`whole`] of a file that stays open.
pub(crate) fn whole_kept(file: &Kept<File>, usual: usize) -> io::Result<Vec<u8>> {
    whole(file.get()?, usual)
}

/// A `/proc/PID/status` without its first line, the program's name, which may contain any bytes.
pub(crate) struct Status {
    text: Vec<u8>,
    from: usize,
}

impl Status {
    /// The calling thread's.
    pub(crate) fn of_caller() -> io::Result<Self> {
        Self::of_file(&File::open(thread("status"))?)
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

    pub(crate) fn number(value: Option<&[u8]>, base: u32) -> Option<u64> {
        u64::from_str_radix(std::str::from_utf8(value?).ok()?.trim(), base).ok()
    }

    /// The umask, and the ignored signals (bit n-1 is signal n).
    pub(crate) fn umask_and_ignored(&self) -> (Option<u32>, Option<u64>) {
        let [umask, ignored] = self.values(["Umask:", "SigIgn:"]);
        (Self::number(umask, 8).map(|mask| mask as u32), Self::number(ignored, 16))
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
    }

    #[test]
    fn the_caller_is_found_by_its_number() {
        let caller = Process::open(sys::getpid()).expect("/proc");
        assert!(caller.read("stat").expect("stat").starts_with(sys::getpid().to_string().as_bytes()));
        assert!(caller.count_descriptors().expect("descriptors") >= 3);
        assert!(all_processes().expect("processes").contains(&sys::getpid()));
        assert_eq!(Process::open(0).expect_err("no process").raw_os_error(), Some(errno::ENOENT));
    }
}
