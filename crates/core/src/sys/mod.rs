//! System calls without libc.
//!
//! A libc wrapper writes `errno`, which in the child is the caller's. It may be a cancellation point, and a preloaded
//! library or a sanitizer may have replaced it. So both sides of a launch make system calls here.
//!
//! # Safety
//! A system call does what its manual page says to the memory and the descriptors it is given; each caller is
//! responsible for that.
//!
//! Sources: syscall(2) for the register conventions, clone(2), futex(2), close_range(2), pidfd_open(2), pidfd_getfd(2).

#[cfg_attr(miri, path = "miri.rs")]
#[cfg_attr(all(target_arch = "aarch64", not(miri)), path = "aarch64.rs")]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), path = "x86_64.rs")]
mod arch;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("forkless supports x86-64 and aarch64: see docs/platforms.md for what another architecture needs");

#[cfg(not(target_os = "linux"))]
compile_error!("forkless is for Linux: it requires clone3, close_range and pidfds");

pub use linux_raw_sys::general as uapi;

/// Options of `prctl(2)` and their values, by the kernel's names.
pub use linux_raw_sys::prctl;

/// Modes of `set_mempolicy(2)`, by the kernel's names.
pub use linux_raw_sys::mempolicy;

use uapi::*;

/// The result of a system call: a value, or an errno as a positive number.
pub type Result<T> = core::result::Result<T, i32>;

/// Signals by the kernel's names, with the sign and width that `kill(2)` uses.
pub mod signal {
    macro_rules! signals { ($($name:ident)*) => { $(#[doc = concat!("`", stringify!($name), "`, signal(7)")]
        pub const $name: i32 = linux_raw_sys::general::$name as i32;)* } }
    signals! {
        SIGABRT SIGBUS SIGCHLD SIGCONT SIGFPE SIGILL SIGKILL SIGPIPE SIGQUIT SIGSEGV SIGSTOP SIGSYS SIGTRAP SIGTTOU SIGXCPU SIGXFSZ
    }

    /// Its bit in a set of signals.
    pub const fn bit(signal: i32) -> u64 {
        1 << (signal - 1)
    }
}

/// Error numbers, with the type that `io::Error` uses.
pub mod errno {
    macro_rules! errnos { ($($name:ident)*) => { $(#[doc = concat!("`", stringify!($name), "`, errno(3)")]
        pub const $name: i32 = linux_raw_sys::errno::$name as i32;)* } }
    errnos! { EPERM ENOENT EINTR E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES ENOTDIR EINVAL EMFILE ETXTBSY ENOSYS
    EBUSY EEXIST EXDEV ENAMETOOLONG ELOOP ENODEV ENFILE ESTALE ETIMEDOUT ESRCH EISDIR ENOSPC
    EOPNOTSUPP }
}

/// Splits the kernel's return value (`-4095..=-1` is an error) into a value and an errno.
#[inline(always)]
fn split(ret: isize) -> Result<usize> {
    if (-4095..0).contains(&ret) { Err(-ret as i32) } else { Ok(ret as usize) }
}

/// A system call of up to six arguments, by number.
#[inline(always)]
pub unsafe fn syscall(nr: u32, args: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller is responsible for what this call does.
    split(unsafe { arch::syscall6(nr as usize, args) })
}

/// Creates a child with `clone3(2)`. The child calls `entry(argument)` on the stack in `args` and never returns.
///
/// Returns the child's pid. With `CLONE_VM` the child runs concurrently with the caller in the same memory.
#[inline]
pub unsafe fn clone3_call<A>(args: &clone_args, size: usize, entry: Entry<A>, argument: *mut A) -> Result<i32> {
    // SAFETY: the stack in `args` is the child's own (caller), and `entry` never returns (its type).
    let ret = unsafe { arch::clone3(args, size, entry as usize, argument as usize) };
    split(ret).map(|pid| pid as i32)
}

/// The same with `clone(2)`, for kernels and filters that refuse `clone3`. `stack_top` is the end of the child's stack.
#[inline]
pub unsafe fn clone_call<A>(
    flags: u64,
    stack_top: usize,
    pidfd: *mut i32,
    child_tid: *mut u32,
    entry: Entry<A>,
    argument: *mut A,
) -> Result<i32> {
    // SAFETY: as for `clone3_call`.
    let ret = unsafe {
        arch::clone(flags as usize, stack_top, pidfd as usize, child_tid as usize, entry as usize, argument as usize)
    };
    split(ret).map(|pid| pid as i32)
}

/// The entry function of a child.
pub type Entry<A> = unsafe extern "C-unwind" fn(*mut A) -> !;

/// `exit_group(2)`: ends the calling process. In a child of `clone` that is only the child.
///
/// If a filter refuses it with an error: `exit(2)`, and then an instruction that is always fatal.
#[inline]
pub fn exit(code: i32) -> ! {
    // SAFETY: ends the caller; none of its code runs afterwards.
    unsafe {
        let _ = syscall(__NR_exit_group, [code as usize, 0, 0, 0, 0, 0]);
        let _ = syscall(__NR_exit, [code as usize, 0, 0, 0, 0, 0]);
        arch::trap()
    }
}

/// `nanosleep(2)`: shorter if a signal is handled, and not at all if a filter refuses the call. (The standard library's
/// sleep panics then.)
pub fn pause(time: core::time::Duration) {
    let time = uapi::__kernel_timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos() as i64 };
    // SAFETY: the kernel reads the time.
    let _ = unsafe { syscall(__NR_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// `close_range(2)`: first unshare the caller's file-descriptor table, without the range (linux/close_range.h).
pub const CLOSE_RANGE_UNSHARE: u32 = 2;

/// `close_range(2)`: set close-on-exec instead of closing. Linux 5.11.
pub const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

/// `close_range(2)`.
#[inline]
pub unsafe fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: the caller answers for the descriptors.
    unsafe { syscall(__NR_close_range, [first as usize, last as usize, flags as usize, 0, 0, 0]) }.map(drop)
}

/// `close(2)`. The descriptor is closed whatever the result.
#[inline]
pub unsafe fn close(fd: i32) -> Result<()> {
    // SAFETY: the caller answers for the descriptor.
    unsafe { syscall(__NR_close, [fd as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `dup3(2)`: `to` becomes a duplicate of `from`; `flags` is 0 or `O_CLOEXEC`.
#[inline]
pub unsafe fn dup3(from: i32, to: i32, flags: u32) -> Result<i32> {
    // SAFETY: the caller answers for the descriptors.
    unsafe { syscall(__NR_dup3, [from as usize, to as usize, flags as usize, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// `fcntl(2)` with a number as its argument.
#[inline]
pub unsafe fn fcntl(fd: i32, command: u32, argument: usize) -> Result<i32> {
    // SAFETY: the caller answers for the descriptor.
    unsafe { syscall(__NR_fcntl, [fd as usize, command as usize, argument, 0, 0, 0]) }.map(|value| value as i32)
}

/// `fcntl(2)` F_GETFD: FD_CLOEXEC or 0.
#[inline]
pub fn descriptor_flags(fd: i32) -> Result<i32> {
    // SAFETY: only reads a flag.
    unsafe { fcntl(fd, F_GETFD, 0) }
}

/// `openat(2)` from the working directory. `path` ends in NUL.
#[inline]
pub unsafe fn open(path: *const u8, flags: u32, mode: u32) -> Result<i32> {
    let at = AT_FDCWD as isize as usize;
    // SAFETY: `path` is NUL-terminated (caller).
    unsafe { syscall(__NR_openat, [at, path as usize, flags as usize, mode as usize, 0, 0]) }.map(|fd| fd as i32)
}

/// `openat2(2)` from the working directory with RESOLVE_NO_MAGICLINKS: ELOOP if a component is a magic link of procfs.
/// `path` ends in NUL.
#[inline]
pub unsafe fn open_without_magic(path: *const u8, flags: u32, mode: u32) -> Result<i32> {
    // openat2 refuses a mode that is not used, and invalid mode bits, which open(2) ignores.
    let makes = flags & (O_CREAT | O_TMPFILE & !O_DIRECTORY) != 0;
    let mode = if makes { mode & 0o7777 } else { 0 };
    let how = open_how { flags: flags.into(), mode: mode.into(), resolve: RESOLVE_NO_MAGICLINKS.into() };
    let at = AT_FDCWD as isize as usize;
    // SAFETY: `path` is NUL-terminated (caller); the kernel reads the structure.
    unsafe { syscall(__NR_openat2, [at, path as usize, &raw const how as usize, size_of::<open_how>(), 0, 0]) }
        .map(|fd| fd as i32)
}

/// `fstatfs(2)`: whether the file is in procfs.
#[inline]
pub fn is_in_procfs(fd: i32) -> Result<bool> {
    // Not zeroed first: that would compile to a call of memset.
    let mut found = core::mem::MaybeUninit::<statfs>::uninit();
    // SAFETY: the kernel writes one statfs.
    unsafe { syscall(__NR_fstatfs, [fd as usize, found.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
    // SAFETY: the kernel has filled it; only this field is read.
    Ok(unsafe { (*found.as_ptr()).f_type } == PROC_SUPER_MAGIC.into())
}

/// `fstat(2)`: device and inode of the file.
#[inline]
pub fn identity(fd: i32) -> Result<[u64; 2]> {
    // Not zeroed first: that would compile to a call of memset.
    let mut found = core::mem::MaybeUninit::<stat>::uninit();
    // SAFETY: the kernel writes one stat.
    unsafe { syscall(__NR_fstat, [fd as usize, found.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
    // SAFETY: the kernel has filled it; only these fields are read.
    Ok(unsafe { [(*found.as_ptr()).st_dev, (*found.as_ptr()).st_ino] })
}

/// `read(2)` of up to `len` bytes to `buffer`.
#[inline]
pub unsafe fn read(fd: i32, buffer: *mut u8, len: usize) -> Result<usize> {
    // SAFETY: the caller answers for the buffer.
    unsafe { syscall(__NR_read, [fd as usize, buffer as usize, len, 0, 0, 0]) }
}

/// `pidfd_open(2)`; the descriptor is close-on-exec. `flags` is 0 or [`PIDFD_THREAD`].
#[inline]
pub fn pidfd_open(pid: i32, flags: u32) -> Result<i32> {
    // SAFETY: makes a new descriptor, touches nothing else.
    unsafe { syscall(__NR_pidfd_open, [pid as usize, flags as usize, 0, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// `pidfd_open(2)`: a pidfd of any thread (Linux 6.9; linux/pidfd.h).
pub const PIDFD_THREAD: u32 = 0x80;

/// `pidfd_getfd(2)`: a close-on-exec duplicate of another process's descriptor.
#[inline]
pub fn pidfd_getfd(pidfd: i32, fd: i32) -> Result<i32> {
    // SAFETY: makes a new descriptor, touches nothing else.
    unsafe { syscall(__NR_pidfd_getfd, [pidfd as usize, fd as usize, 0, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// `getppid(2)`; 0 if the parent is outside of this PID namespace. It cannot fail, but a filter may refuse it.
#[inline]
pub fn parent() -> Result<i32> {
    // SAFETY: reads a number.
    unsafe { syscall(__NR_getppid, [0; 6]) }.map(|pid| pid as i32)
}

/// The same; 0 also if it is refused.
#[inline]
pub fn getppid() -> i32 {
    parent().unwrap_or_default()
}

/// `getpid(2)`.
#[inline]
pub fn getpid() -> i32 {
    // SAFETY: reads a number, cannot fail.
    unsafe { syscall(__NR_getpid, [0; 6]) }.unwrap_or(0) as i32
}

/// `getpgrp(2)`; 0 if the group's leader is outside of this PID namespace, or if a seccomp filter refuses the call.
#[inline]
pub fn getpgrp() -> i32 {
    // SAFETY: reads a number.
    unsafe { syscall(__NR_getpgid, [0; 6]) }.unwrap_or(0) as i32
}

/// `getrlimit(2)` of the caller, for a resource such as [`uapi::RLIMIT_NOFILE`]: soft and hard
/// limit. [`u64::MAX`] is no limit.
///
/// # Errors
/// A seccomp filter refuses prlimit64(2).
pub fn getrlimit(resource: u32) -> Result<[u64; 2]> {
    let mut found = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { syscall(__NR_prlimit64, [0, resource as usize, 0, found.as_mut_ptr() as usize, 0, 0]) }?;
    Ok(found)
}

/// `setrlimit(2)` of the caller: soft and hard limit.
///
/// # Errors
/// Those of the call, such as EPERM for a hard limit that would rise.
pub fn setrlimit(resource: u32, limit: &[u64; 2]) -> Result<()> {
    // SAFETY: the kernel reads two words.
    unsafe { syscall(__NR_prlimit64, [0, resource as usize, limit.as_ptr() as usize, 0, 0, 0]) }.map(drop)
}

/// `getsid(2)` of the caller; 0 if the session's leader is outside of this PID namespace, or if a seccomp filter refuses the
/// call.
#[inline]
pub fn getsid() -> i32 {
    // SAFETY: reads a number.
    unsafe { syscall(__NR_getsid, [0; 6]) }.unwrap_or(0) as i32
}

/// `gettid(2)`.
#[inline]
pub fn gettid() -> i32 {
    // SAFETY: reads a number, cannot fail.
    unsafe { syscall(__NR_gettid, [0; 6]) }.unwrap_or(0) as i32
}

/// `wait4(2)`: returns the pid (0 with `WNOHANG` and nothing to report).
#[inline]
pub fn wait4(pid: i32, status: &mut i32, options: u32, usage: Option<&mut rusage>) -> Result<i32> {
    let usage = usage.map_or(0, |u| u as *mut _ as usize);
    // SAFETY: the kernel writes a status and a usage, both borrowed for the call.
    unsafe { syscall(__NR_wait4, [pid as isize as usize, status as *mut _ as usize, options as usize, usage, 0, 0]) }
        .map(|pid| pid as i32)
}

/// `waitid(2)`. `info` is cleared first, so that a `pid` of 0 means "nothing to report".
#[inline]
pub fn waitid(kind: u32, id: i32, info: &mut SignalInfo, options: u32, usage: Option<&mut rusage>) -> Result<()> {
    *info = SignalInfo::EMPTY;
    let usage = usage.map_or(0, |u| u as *mut _ as usize);
    let args = [kind as usize, id as usize, info as *mut _ as usize, options as usize, usage, 0];
    // SAFETY: the kernel writes 128 bytes, the size of SignalInfo, and a usage, both borrowed for the call.
    unsafe { syscall(__NR_waitid, args) }.map(drop)
}

/// `kill(2)`. The caller is responsible for the pid: a process, or a negative number for a group.
#[inline]
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: no memory of the caller's is touched.
    unsafe { syscall(__NR_kill, [pid as isize as usize, signal as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `pidfd_send_signal(2)`.
#[inline]
pub fn pidfd_send_signal(pidfd: i32, signal: i32) -> Result<()> {
    // SAFETY: a pidfd refers to one process for ever; nothing else is affected.
    unsafe { syscall(__NR_pidfd_send_signal, [pidfd as usize, signal as usize, 0, 0, 0, 0]) }.map(drop)
}

/// `pidfd_send_signal(2)` PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9: to the group whose leader the pidfd refers to, even if
/// the leader has ended.
#[inline]
pub fn pidfd_signal_group(pidfd: i32, signal: i32) -> Result<()> {
    const PIDFD_SIGNAL_PROCESS_GROUP: usize = 4;
    let args = [pidfd as usize, signal as usize, 0, PIDFD_SIGNAL_PROCESS_GROUP, 0, 0];
    // SAFETY: a pidfd refers to one process, and its group, for ever; nothing else is affected.
    unsafe { syscall(__NR_pidfd_send_signal, args) }.map(drop)
}

/// `rt_sigprocmask(2)` with SIG_SETMASK; returns the previous mask. Bit n-1 is signal n.
#[inline]
pub fn set_signal_mask(mask: u64) -> Result<u64> {
    let mut old = 0u64;
    let (new, previous) = (&raw const mask as usize, &raw mut old as usize);
    // SAFETY: both words live for the call and are the 8 bytes the kernel expects.
    unsafe { syscall(__NR_rt_sigprocmask, [SIG_SETMASK as usize, new, previous, 8, 0, 0]) }?;
    Ok(old)
}

/// `rt_sigprocmask(2)`: reads the mask.
#[inline]
pub fn signal_mask() -> Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes the 8 bytes; nothing is changed.
    unsafe { syscall(__NR_rt_sigprocmask, [SIG_BLOCK as usize, 0, &raw mut mask as usize, 8, 0, 0]) }?;
    Ok(mask)
}

/// `rt_sigprocmask(2)` with SIG_BLOCK.
#[inline]
pub fn block_signals(mask: u64) -> Result<()> {
    // SAFETY: the word lives for the call and is the 8 bytes the kernel expects.
    unsafe { syscall(__NR_rt_sigprocmask, [SIG_BLOCK as usize, &raw const mask as usize, 0, 8, 0, 0]) }.map(drop)
}

/// `rt_sigaction(2)`: reads the action of `signal`.
#[inline]
pub fn signal_action(signal: u32) -> Result<kernel_sigaction> {
    // SAFETY: all zeroes is a valid kernel_sigaction (default action, no flags).
    let mut action: kernel_sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one kernel_sigaction.
    unsafe { syscall(__NR_rt_sigaction, [signal as usize, 0, &raw mut action as usize, 8, 0, 0]) }?;
    Ok(action)
}

/// `rt_sigaction(2)`: sets the action of `signal`.
#[inline]
pub unsafe fn set_signal_action(signal: u32, action: &kernel_sigaction) -> Result<()> {
    // SAFETY: the caller answers for the action; the kernel copies it.
    unsafe { syscall(__NR_rt_sigaction, [signal as usize, action as *const _ as usize, 0, 8, 0, 0]) }.map(drop)
}

/// The result of `waitid(2)`, with the layout of `siginfo_t` for SIGCHLD.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct SignalInfo {
    /// SIGCHLD, or 0.
    pub signo: i32,
    /// Unused here.
    pub errno: i32,
    /// One of CLD_EXITED, CLD_KILLED, CLD_DUMPED, CLD_STOPPED, CLD_CONTINUED.
    pub code: i32,
    pad: i32,
    /// The child, or 0 if there is nothing to report.
    pub pid: i32,
    /// Its real user ID.
    pub uid: u32,
    /// Exit code or signal.
    pub status: i32,
    rest: [u32; 25],
}

impl SignalInfo {
    /// Nothing to report.
    pub const EMPTY: Self = Self { signo: 0, errno: 0, code: 0, pad: 0, pid: 0, uid: 0, status: 0, rest: [0; 25] };
}

const _: () = assert!(size_of::<SignalInfo>() == 128);
