//! System calls on processes that touch no memory, and what a test needs before it starts a process.

use forkless::{Command, Launcher};
use forkless_core::sys;
use std::io;
use std::os::unix::fs::PermissionsExt;

/// `kill(2)`; a negative number is a process group. Was the signal sent?
pub fn kill(pid: i32, signal: i32) -> bool {
    sys::kill(pid, signal).is_ok()
}

/// A directory for the temporary files of helpers. A helper may become another user, and then cannot remove what it made.
pub fn scratch() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o1777)).expect("one's own directory");
    scratch
}

/// Has this process the effective user id of root?
pub fn is_root() -> bool {
    // SAFETY: reads a number.
    unsafe { libc::geteuid() == 0 }
}

/// Is the kernel at least this one?
pub fn is_kernel_at_least(major: u32, minor: u32) -> bool {
    // SAFETY: all zeroes is a valid utsname, which the kernel fills with texts that end in NUL.
    let release = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        // A case may leave no descriptor for /proc, or refuse uname.
        match libc::uname(&mut names) {
            0 => std::ffi::CStr::from_ptr(names.release.as_ptr()).to_string_lossy().into_owned(),
            _ => std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("osrelease"),
        }
    };
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Has this process a filter on a kernel where the library therefore hides its memory from its children, which cannot fetch
/// descriptors from it then? (`launch/dumps.rs`.)
pub fn is_hidden_from_children() -> bool {
    // SAFETY: reads a number.
    !is_kernel_at_least(5, 16) && unsafe { libc::prctl(libc::PR_GET_SECCOMP) } != 0
}

/// Gives the calling thread the policy SCHED_DEADLINE: 3 of each 10 ms. `reset`: its children have the usual policy; otherwise it can
/// have none.
pub fn run_by_deadline(reset: bool) -> io::Result<()> {
    const MILLISECOND: u64 = 1_000_000;
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_DEADLINE as u32,
        sched_flags: if reset { libc::SCHED_FLAG_RESET_ON_FORK as u64 } else { 0 },
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 3 * MILLISECOND,
        sched_deadline: 10 * MILLISECOND,
        sched_period: 10 * MILLISECOND,
    };
    // SAFETY: the kernel reads the structure.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether `Launcher::PosixSpawn` needs `inherit_all`: before glibc 2.34, and with musl.
pub fn has_no_closefrom() -> bool {
    let plan = Command::new("true").launcher(Launcher::PosixSpawn).prepare();
    plan.is_err_and(|error| error.to_string().contains("closefrom"))
}
