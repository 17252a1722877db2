//! The namespaces that a thread's children get.

use forkless_core::sys::{self, Result, uapi};
use rustix::fs::{Mode, OFlags};
use std::ffi::CString;
use std::fmt::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};

/// The namespaces that only a thread with CAP_SYS_ADMIN can enter. Not listed: a thread in another mount namespace has
/// another root directory, and the user namespace is compared always ([`Tasks::user_namespace`]).
const KINDS: [&str; 6] = ["net", "ipc", "uts", "cgroup", "pid_for_children", "time_for_children"];

/// The name of a namespace: `net:[4026531840]`.
pub(crate) type Name = [u8; 40];

/// The names of namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Namespaces([Name; KINDS.len()]);

/// `/proc/<pid>/task`, the directory from which a thread's links are read.
#[derive(Debug)]
pub(crate) struct Tasks(OwnedFd);

impl Tasks {
    /// Those of a process.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        open(&format!("/proc/{pid}/task")).map(Self)
    }

    /// The namespaces that a thread's children get: six system calls.
    ///
    /// Source: namespaces(7).
    pub(crate) fn namespaces(&self, thread: i32) -> Result<Namespaces> {
        let mut found = Namespaces([[0; size_of::<Name>()]; KINDS.len()]);
        for (kind, name) in KINDS.iter().zip(&mut found.0) {
            *name = self.name(thread, kind)?;
        }
        Ok(found)
    }

    /// The user namespace of a thread. A process that has entered another one may look the same in every other way: with
    /// the same numbers of users inside, and all capabilities or none.
    pub(crate) fn user_namespace(&self, thread: i32) -> Result<Name> {
        self.name(thread, "user")
    }

    /// Zeroes if this kernel does not have this kind of namespace.
    fn name(&self, thread: i32, kind: &str) -> Result<Name> {
        let (mut name, mut path) = ([0; 40], Path::new());
        path.set(format_args!("{thread}/ns/{kind}\0"));
        let args =
            [self.0.as_raw_fd() as usize, path.bytes.as_ptr() as usize, name.as_mut_ptr() as usize, name.len(), 0, 0];
        // SAFETY: the path ends in NUL, and the kernel writes at most the length of the buffer.
        match unsafe { sys::syscall(uapi::__NR_readlinkat, args) } {
            Ok(_) | Err(sys::errno::ENOENT) => Ok(name),
            Err(error) => Err(error),
        }
    }
}

fn open(path: &str) -> Result<OwnedFd> {
    /// A number that programs hardly use, but in the first word of the kernel's file-descriptor table.
    const AWAY: i32 = 48;
    let path = CString::new(path).expect("no NUL in it");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| error.raw_os_error())?;
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, AWAY).unwrap_or(fd))
}

/// A short path, built without an allocation.
struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl Path {
    fn new() -> Self {
        Self { bytes: [0; 64], length: 0 }
    }

    fn set(&mut self, text: std::fmt::Arguments<'_>) {
        self.length = 0;
        let _ = self.write_fmt(text);
    }
}

impl std::fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
