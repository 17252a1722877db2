//! The namespaces that a thread's children get.

use crate::kept::Kept;
use crate::procfs::Process;
use forkless_core::sys::{self, uapi};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The namespaces that a child gets from the thread that clones it. The user namespace is read apart:
/// [`Tasks::user_namespace`].
const KINDS: [&str; 7] = ["net", "mnt", "ipc", "uts", "cgroup", "pid_for_children", "time_for_children"];

/// The name of a namespace: `net:[4026531840]`.
pub(crate) type NamespaceName = [u8; 40];

/// The names of namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Namespaces([NamespaceName; KINDS.len()]);

/// The links of a process's threads.
pub(crate) struct Tasks {
    /// `/proc/<pid>/ns`: the first thread's.
    directory: Kept<OwnedFd>,
    first: i32,
}

impl Tasks {
    /// Those of the process `pid`.
    pub(crate) fn of(pid: i32, process: &Process) -> io::Result<Self> {
        let directory = process.file("ns", OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(Self { directory: Kept::moved_away(directory.into()), first: pid })
    }

    /// The namespaces that a thread's children get: seven system calls.
    ///
    /// Source: namespaces(7).
    pub(crate) fn namespaces(&self, thread: i32) -> io::Result<Namespaces> {
        let directory = self.directory.get()?;
        let mut found = Namespaces([[0; size_of::<NamespaceName>()]; KINDS.len()]);
        for (kind, name) in KINDS.iter().zip(&mut found.0) {
            *name = self.name(directory, thread, kind)?;
        }
        Ok(found)
    }

    /// The user namespace of a thread. A process that has entered another one may look the same in every other way: with
    /// the same numbers of users inside, and all capabilities or none.
    pub(crate) fn user_namespace(&self, thread: i32) -> io::Result<NamespaceName> {
        Ok(self.name(self.directory.get()?, thread, "user")?)
    }

    /// Zeroes if this kernel does not have this kind of namespace.
    fn name(&self, directory: &OwnedFd, thread: i32, kind: &str) -> Result<NamespaceName, Errno> {
        let (mut name, mut path) = ([0; 40], Path::new());
        match thread == self.first {
            true => path.set(format_args!("{kind}\0")),
            false => path.set(format_args!("../task/{thread}/ns/{kind}\0")),
        }
        let args = [
            directory.as_raw_fd() as usize,
            path.bytes.as_ptr() as usize,
            name.as_mut_ptr() as usize,
            name.len(),
            0,
            0,
        ];
        // SAFETY: the path ends in NUL, and the kernel writes at most the length of the buffer.
        match unsafe { sys::syscall(uapi::__NR_readlinkat, args) } {
            Ok(_) | Err(sys::errno::ENOENT) => Ok(name),
            Err(error) => Err(Errno::from_raw_os_error(error)),
        }
    }
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
