//! The namespaces that a thread's children get.

use forkless_core::sys::{self, Result, uapi};
use rustix::fs::{Mode, OFlags};
use std::ffi::CString;
use std::fmt::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};

/// The namespaces that one of several threads can enter. Not listed: a thread in another mount namespace has another
/// root directory, which is compared; and no thread of several can enter a user namespace.
const KINDS: [&str; 6] = ["net", "ipc", "uts", "cgroup", "pid_for_children", "time_for_children"];

/// The names of namespaces: `net:[4026531840]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Namespaces([[u8; 40]; KINDS.len()]);

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
        let mut found = Namespaces([[0; 40]; KINDS.len()]);
        let mut path = Path::new();
        for (kind, name) in KINDS.iter().zip(&mut found.0) {
            path.set(format_args!("{thread}/ns/{kind}\0"));
            let args =
                [self.0.as_raw_fd() as usize, path.bytes.as_ptr() as usize, name.as_mut_ptr() as usize, 40, 0, 0];
            // SAFETY: the path ends in NUL, and the kernel writes at most the length of the buffer.
            match unsafe { sys::syscall(uapi::__NR_readlinkat, args) } {
                // This kernel does not have this kind of namespace.
                Ok(_) | Err(sys::errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
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
