//! Small system calls of the caller. Each is safe to call: it reads or sets numbers, and the kernel writes only to
//! memory that the function owns.
//!
//! They enter the kernel without libc and its `errno`, like the rest of a launch.
//!
//! Sources: prctl(2), setns(2), kcmp(2), getsid(2), tcgetsid(3), unix(7), prlimit(2), getcpu(2), uname(2), capget(2), sigpending(2).

use forkless_core::sys::{self, Result, errno, uapi};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(crate) use forkless_core::sys::signal::{SIGCONT, SIGKILL};

/// The signals that libc itself uses. With one of them it makes every thread change its IDs, and waits for each thread.
pub(crate) const LIBCS: u64 = if cfg!(target_env = "musl") { 0b111 << 31 } else { 0b11 << 31 };

/// Linux 7.1, like the two below: the kernel reaps the child when it ends. Needs an exit signal of 0, and excludes
/// `CLONE_PARENT`.
pub(crate) const CLONE_AUTOREAP: u64 = 1 << 34;

/// The child has no_new_privs from the start.
pub(crate) const CLONE_NNP: u64 = 1 << 35;

/// The child is killed when the last descriptor of the pidfd that the clone made is closed. Needs `CLONE_PIDFD`,
/// [`CLONE_AUTOREAP`], and [`CLONE_NNP`] or CAP_SYS_ADMIN.
pub(crate) const CLONE_PIDFD_AUTOKILL: u64 = 1 << 36;

/// `pidfd_open(2)` of a process.
pub(crate) fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: a new descriptor that nothing else owns.
    sys::pidfd_open(pid, 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Options of `prctl(2)` that take a number and no address.
#[derive(Clone, Copy)]
pub(crate) enum Prctl {
    /// PR_GET_DUMPABLE
    Dumpable = sys::prctl::PR_GET_DUMPABLE as isize,
    /// PR_SET_DUMPABLE
    SetDumpable = sys::prctl::PR_SET_DUMPABLE as isize,
    /// PR_CAPBSET_READ
    IsInBoundingSet = sys::prctl::PR_CAPBSET_READ as isize,
}

/// `prctl(2)`.
pub(crate) fn prctl(option: Prctl, value: usize) -> Result<usize> {
    // SAFETY: none of the options takes an address.
    unsafe { sys::syscall(uapi::__NR_prctl, [option as usize, value, 0, 0, 0, 0]) }
}

/// `setns(2)`: later children of the calling thread are in this PID namespace.
pub(crate) fn join_pid_namespace(namespace: RawFd) -> Result<()> {
    let kind = uapi::CLONE_NEWPID as usize;
    // SAFETY: no memory is touched, and the calling thread stays in its own namespace. A number that is not open is
    // an error.
    unsafe { sys::syscall(uapi::__NR_setns, [namespace as usize, kind, 0, 0, 0, 0]) }.map(drop)
}

/// `kcmp(2)`: whether the calling thread shares its memory with another process.
pub(crate) fn has_shared_memory(pid: i32) -> Result<bool> {
    const KCMP_VM: usize = 1;
    let args = [sys::gettid() as usize, pid as usize, KCMP_VM, 0, 0, 0];
    // SAFETY: no memory is touched.
    unsafe { sys::syscall(uapi::__NR_kcmp, args) }.map(|order| order == 0)
}

/// `getsid(2)`; 0 names the caller.
pub(crate) fn session(pid: i32) -> Result<i32> {
    // SAFETY: no memory is touched.
    unsafe { sys::syscall(uapi::__NR_getsid, [pid as usize, 0, 0, 0, 0, 0]) }.map(|session| session as i32)
}

/// `tcgetsid(3)` of the caller's controlling terminal; 0 if the session's leader is outside of this PID namespace, which
/// rustix's function does not expect.
pub(crate) fn terminal_session(terminal: BorrowedFd<'_>) -> Result<i32> {
    const TIOCGSID: usize = 0x5429;
    let mut session = 0i32;
    let args = [terminal.as_raw_fd() as usize, TIOCGSID, &raw mut session as usize, 0, 0, 0];
    // SAFETY: the kernel writes four bytes, to `session`.
    unsafe { sys::syscall(uapi::__NR_ioctl, args) }.map(|_| session)
}

/// The process that made a pair of sockets, `SO_PEERCRED` of `unix(7)`; 0 if it is outside of this PID namespace, which
/// rustix's function does not expect.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<i32> {
    const SOL_SOCKET: usize = 1;
    const SO_PEERCRED: usize = 17;
    // Of `struct ucred`: pid, uid, gid.
    let mut credentials = [0i32; 3];
    let mut size = size_of_val(&credentials) as u32;
    let (into, size) = (&raw mut credentials as usize, &raw mut size as usize);
    let args = [socket.as_raw_fd() as usize, SOL_SOCKET, SO_PEERCRED, into, size, 0];
    // SAFETY: the kernel writes at most `size` bytes, to `credentials`.
    unsafe { sys::syscall(uapi::__NR_getsockopt, args) }.map(|_| credentials[0])
}

/// `setpgid(2)`.
pub(crate) fn set_group(pid: i32, group: i32) -> Result<()> {
    // SAFETY: no memory is touched.
    unsafe { sys::syscall(uapi::__NR_setpgid, [pid as usize, group as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `getcpu(2)`: the number of the CPU that runs the calling thread.
pub(crate) fn cpu() -> Result<u32> {
    let mut cpu = 0u32;
    // SAFETY: the kernel writes four bytes, to `cpu`.
    unsafe { sys::syscall(uapi::__NR_getcpu, [&raw mut cpu as usize, 0, 0, 0, 0, 0]) }?;
    Ok(cpu)
}

/// `sched_setaffinity(2)`: the first 64 CPUs as bits.
pub(crate) fn set_affinity(pid: i32, cpus: u64) -> Result<()> {
    let args = [pid as usize, size_of::<u64>(), &raw const cpus as usize, 0, 0, 0];
    // SAFETY: the kernel reads eight bytes.
    unsafe { sys::syscall(uapi::__NR_sched_setaffinity, args) }.map(drop)
}

/// `uname(2)`: the kernel's release, such as `5.15.0-91-generic`, up to a zero byte.
pub(crate) fn release() -> Result<[u8; 65]> {
    let mut fields = [[0u8; 65]; 6];
    // SAFETY: the kernel writes six fields.
    unsafe { sys::syscall(uapi::__NR_uname, [fields.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) }?;
    Ok(fields[2])
}

/// `capget(2)` of the caller: effective, permitted and inheritable capabilities; none if it is refused.
pub(crate) fn capabilities() -> [u64; 3] {
    let mut header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    let args = [header.as_mut_ptr() as usize, data.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: version 3 of the call reads two words, of 32 bits each, and writes six.
    let _ = unsafe { sys::syscall(uapi::__NR_capget, args) };
    [0, 1, 2].map(|n| data[n] as u64 | (data[n + 3] as u64) << 32)
}

/// `getresuid(2)`: real, effective and saved user ID of the calling thread.
pub(crate) fn user_ids() -> [u32; 3] {
    ids(uapi::__NR_getresuid)
}

/// `getresgid(2)`: the same of the group.
pub(crate) fn group_ids() -> [u32; 3] {
    ids(uapi::__NR_getresgid)
}

/// All bits if it is refused.
fn ids(call: u32) -> [u32; 3] {
    let mut found = [u32::MAX; 3];
    let [real, effective, saved] = &mut found;
    let args = [&raw mut *real as usize, &raw mut *effective as usize, &raw mut *saved as usize, 0, 0, 0];
    // SAFETY: the kernel writes three numbers.
    let _ = unsafe { sys::syscall(call, args) };
    found
}

/// `sigpending(2)`: bit n-1 is signal n.
pub(crate) fn pending_signals() -> Result<u64> {
    let mut pending = 0u64;
    // SAFETY: the kernel writes the 8 bytes.
    unsafe { sys::syscall(uapi::__NR_rt_sigpending, [&raw mut pending as usize, size_of::<u64>(), 0, 0, 0, 0]) }?;
    Ok(pending)
}

/// `sigtimedwait(2)` without waiting: takes one pending signal of the set, if there is one.
pub(crate) fn take_signal(set: u64) {
    let now = uapi::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    let args = [&raw const set as usize, 0, &raw const now as usize, size_of::<u64>(), 0, 0];
    // SAFETY: the kernel reads the set and the time. The null address of the signal's information makes it write nothing.
    while unsafe { sys::syscall(uapi::__NR_rt_sigtimedwait, args) } == Err(errno::EINTR) {}
}
