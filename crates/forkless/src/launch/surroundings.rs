//! What a child inherits from the thread that clones it, and that is not in a plan: compared before a child that was cloned
//! earlier, or by another process, is launched in place of one that is cloned now.
//!
//! There are three parts, by what a look at them costs. The first ([`Identity`]) and the second ([`Namespaces`], for who can
//! enter any) are compared at every launch. The third ([`Settings`]) is compared if it was not a short while ago.
//!
//! Not compared, since the kernel tells nobody: Landlock domains, keyrings, labels of security modules, memory policies.
//!
//! Source: copy_process() in kernel/fork.c.

pub(crate) use forkless_core::park::Identity;
use forkless_core::sys::{self, Result, uapi};
use rustix::fs::{Mode, OFlags};
use std::ffi::CString;
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

/// The namespaces that one thread of several can enter. Who has entered another mount namespace has directories of its
/// own, which is seen by those; and no thread of several can enter a user namespace.
const KINDS: [&str; 6] = ["net", "ipc", "uts", "cgroup", "pid_for_children", "time_for_children"];

/// The names of namespaces: `net:[4026531840]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Namespaces([[u8; 40]; KINDS.len()]);

impl Namespaces {
    /// Nobody's.
    pub(crate) const NONE: Self = Self([[0; 40]; KINDS.len()]);
}

/// `/proc/<pid>/task`, from which a thread is looked at.
#[derive(Debug)]
pub(crate) struct Tasks(OwnedFd);

impl Tasks {
    /// Those of this process.
    pub(crate) fn own() -> Result<Self> {
        open("/proc/self/task").map(Self)
    }

    /// Those of another.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        open(&format!("/proc/{pid}/task")).map(Self)
    }

    /// The namespaces that children of a thread are born in: six system calls.
    ///
    /// Source: namespaces(7).
    pub(crate) fn namespaces(&self, thread: i32) -> Result<Namespaces> {
        let mut found = Namespaces([[0; 40]; KINDS.len()]);
        let mut path = Path::new();
        for (kind, name) in KINDS.iter().zip(&mut found.0) {
            path.set(format_args!("{thread}/ns/{kind}\0"));
            let args =
                [self.0.as_raw_fd() as usize, path.bytes.as_ptr() as usize, name.as_mut_ptr() as usize, 40, 0, 0];
            // SAFETY: the path ends in NUL; the kernel writes at most the length of the name.
            match unsafe { sys::syscall(uapi::__NR_readlinkat, args) } {
                // This kernel has no namespaces of the kind.
                Ok(_) | Err(sys::errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Are the children of a thread born in another process-id namespace than its own?
    pub(crate) fn is_outside(&self, thread: i32) -> Result<bool> {
        let read = |name: &str| {
            let error = |error: rustix::io::Errno| error.raw_os_error();
            rustix::fs::readlinkat(&self.0, format!("{thread}/ns/{name}"), Vec::new()).map_err(error)
        };
        match read("pid_for_children") {
            Err(sys::errno::ENOENT) => Ok(false),
            children => Ok(children? != read("pid")?),
        }
    }

    /// The rest: some thirty system calls. `process`: whose limits; 0 for the calling one, which may always ask for its own. What
    /// cannot be asked of another thread is the calling one's.
    pub(crate) fn settings(&self, process: i32, thread: i32) -> Result<Settings> {
        let mut text = [MaybeUninit::uninit(); 4096];
        let status = self.read(thread, "status", &mut text)?;
        let mut lines = Vec::new();
        for line in status.split_inclusive(|&byte| byte == b'\n') {
            if LINES.iter().any(|label| line.starts_with(label.as_bytes())) {
                lines.extend_from_slice(line);
            }
        }
        lines.extend_from_slice(self.read(thread, "cgroup", &mut text)?);
        let number = |nr: u32, args: [usize; 3]| {
            // SAFETY: questions about a thread, which change nothing.
            unsafe { sys::syscall(nr, [args[0], args[1], args[2], 0, 0, 0]) }
        };
        const PRIO_PROCESS: usize = 0;
        const IOPRIO_WHO_PROCESS: usize = 1;
        let scheduling = [
            number(uapi::__NR_getpriority, [PRIO_PROCESS, thread as usize, 0])?,
            match number(uapi::__NR_sched_getscheduler, [thread as usize, 0, 0])? {
                // What parked children are instead of ordinary.
                SCHED_BATCH => SCHED_OTHER,
                policy => policy,
            },
            number(uapi::__NR_ioprio_get, [IOPRIO_WHO_PROCESS, thread as usize, 0]).unwrap_or(0),
        ];
        const PR_GET_TIMERSLACK: usize = 30;
        const UNCHANGED: usize = 0xffff_ffff;
        let own =
            [number(uapi::__NR_prctl, [PR_GET_TIMERSLACK, 0, 0])?, number(uapi::__NR_personality, [UNCHANGED, 0, 0])?];
        let mut limits = [[0; 2]; LIMITS];
        for (kind, limit) in limits.iter_mut().enumerate() {
            let args = [process as usize, kind, 0, limit.as_mut_ptr() as usize, 0, 0];
            // SAFETY: the kernel writes one rlimit64, two words.
            unsafe { sys::syscall(uapi::__NR_prlimit64, args) }?;
        }
        Ok(Settings { lines, scheduling, own, limits })
    }

    fn read<'a>(&self, thread: i32, name: &str, buffer: &'a mut [MaybeUninit<u8>]) -> Result<&'a [u8]> {
        let error = |error: rustix::io::Errno| error.raw_os_error();
        let mut path = Path::new();
        path.set(format_args!("{thread}/{name}"));
        let file = rustix::fs::openat(&self.0, path.text(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        rustix::io::read(file.map_err(error)?, buffer).map(|(text, _)| &*text).map_err(error)
    }
}

fn open(path: &str) -> Result<OwnedFd> {
    /// Out of the way of the numbers that programs have plans for, and with them in one word of the kernel's table.
    const AWAY: i32 = 48;
    let path = CString::new(path).expect("no NUL in it");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| error.raw_os_error())?;
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, AWAY).unwrap_or(fd))
}

const SCHED_OTHER: usize = 0;
const SCHED_BATCH: usize = 3;

/// RLIMIT_CPU to RLIMIT_RTTIME.
const LIMITS: usize = 16;

/// The lines of `/proc/<pid>/status` that say what a child inherits, beside what [`Identity`] has.
const LINES: [&str; 7] = [
    "SigIgn:",
    "CapBnd:",
    "CapAmb:",
    "Seccomp_filters:",
    "Cpus_allowed:",
    "Mems_allowed:",
    "Speculation_Store_Bypass:",
];

/// Ignored signals, limits, priorities, control groups and the like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Settings {
    lines: Vec<u8>,
    scheduling: [usize; 3],
    own: [usize; 2],
    limits: [[u64; 2]; LIMITS],
}

/// Are a thread's directory, umask and descriptor table those of another thread of the process too? `kcmp(2)`.
pub(crate) fn shares_files_and_directory(thread: i32, other: i32) -> Result<bool> {
    const KCMP_FILES: usize = 2;
    const KCMP_FS: usize = 3;
    for what in [KCMP_FS, KCMP_FILES] {
        // SAFETY: compares, changes nothing.
        if unsafe { sys::syscall(uapi::__NR_kcmp, [thread as usize, other as usize, what, 0, 0, 0]) }? != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A short path, made without an allocation.
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

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
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
