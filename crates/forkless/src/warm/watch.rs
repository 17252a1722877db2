//! Watches a program while it is loaded, before it is made a template: what the loader and the constructors of libraries
//! do must be the same for each launch.
//!
//! The program is executed once, as its template would be, under a seccomp filter that stops it at each system call and
//! notifies this process, `seccomp_unotify(2)`. The calls of a loader are let through, and the paths in them are noted.
//! Any other call ends the watch: the program stays cold. The watch ends where `libforkless_warm.so` makes its first
//! call; the program's own code never runs.

use super::files::{LOADER, Stamp};
use crate::child::Child;
use crate::kernel::SIGKILL;
use crate::launch::cloned::waits_for_the_exec;
use crate::procfs::{self, Process};
use crate::request::command::{CallArg, Command};
use crate::request::stdio::Stdio;
use forkless_core::sys::{self, errno, uapi};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The CPU time that the loading of a program may take. It is no real time: on a busy machine any program takes long.
const LOADING: Duration = Duration::from_secs(1);

/// How long a guard waits for a program that does not run: it is stopped, or its files come from a slow file system.
const WAITING: Duration = Duration::from_secs(30);

/// Interval at which the guard looks at the two limits.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why the watch of a program did not reach the library's first call.
pub(super) enum Unwatched {
    /// The reason holds as long as the file is the same.
    Lasting(String),
    /// The reason may pass.
    Passing(&'static str),
}

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Notice {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct WatchAnswer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const SECCOMP_IOCTL_NOTIF_RECV: usize = 0xc050_2100;
const SECCOMP_IOCTL_NOTIF_SEND: usize = 0xc018_2101;
const SECCOMP_USER_NOTIF_FLAG_CONTINUE: u32 = 1;

/// The kernel's ABI: sizes that are part of the numbers above.
const _: () = assert!(size_of::<Notice>() == 0x50 && size_of::<WatchAnswer>() == 0x18);

/// The filter: all calls notify, except sendmsg(2), by which the child sends the listener. No library has a descriptor
/// with which that call could do anything else.
static FILTER: [[u16; 4]; 8] = [
    // Load the architecture; if it is not x86-64, kill.
    [0x20, 0, 4, 0],
    [0x15, 0x0400, 0x003e, 0xc000],
    // Load the number; kill for x32 (0x40000000 and above).
    [0x20, 0, 0, 0],
    [0x35, 0x0002, 0x0000, 0x4000],
    [0x15, 0x0002, uapi::__NR_sendmsg as u16, 0],
    // Notify, kill, allow.
    [0x06, 0, 0x0000, 0x7fc0],
    [0x06, 0, 0x0000, 0x8000],
    [0x06, 0, 0x0000, 0x7fff],
];

/// A program that is being watched.
struct WatchedProgram<'a> {
    child: Child,
    listener: OwnedFd,
    library: &'a Path,
    paths: Vec<PathBuf>,
    has_executed: bool,
}

/// What a call of the watched program means.
enum Verdict {
    Goes,
    /// The library has begun.
    Stopped,
    Refused(Unwatched),
}

impl Verdict {
    fn refused(why: String) -> Self {
        Self::Refused(Unwatched::Lasting(why))
    }
}

/// Runs a template's command under watch up to the library's first call. Returns the paths that were looked at. The error
/// is the reason why the program stays cold.
pub(super) fn watch(mut command: Command, library: &Path) -> Result<Vec<PathBuf>, Unwatched> {
    const SHORT: Unwatched = Unwatched::Passing("its loading cannot be watched at the moment");
    let kind = SocketType::SEQPACKET;
    let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let (_ours, theirs) = pair.map_err(|_| SHORT)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).fd(theirs, 3);
    command.kill_on_drop(true);
    for signal in (1..=64).filter(|signal| ![9, 19].contains(signal)) {
        command.signal_block(signal).signal_default(signal);
    }
    /// struct sock_fprog.
    #[repr(C)]
    struct Program {
        count: u16,
        filter: *const [u16; 4],
    }
    let program = Program { count: FILTER.len() as u16, filter: FILTER.as_ptr() };
    const PR_SET_NO_NEW_PRIVS: u64 = 38;
    const SECCOMP_SET_MODE_FILTER: u64 = 1;
    const NEW_LISTENER: u64 = 8;
    let number = CallArg::Number;
    const PR_SET_PDEATHSIG: u64 = 1;
    // SAFETY: the calls change only the child, and write no memory. `FILTER` is static, and `program` lives until the
    // listener has come.
    unsafe {
        let zero = || number(0);
        // Before the filter: when this process has died, nobody answers a call, and the child would wait for ever. The
        // command's own death signal comes later. The second call fails if this thread has ended before the first one.
        command.call(
            uapi::__NR_prctl,
            [number(PR_SET_PDEATHSIG), number(SIGKILL as u64), zero(), zero(), zero()],
            None,
        );
        let (process, thread) = (sys::getpid() as u64, sys::gettid() as u64);
        command.call(uapi::__NR_tgkill, [number(process), number(thread), zero()], None);
        command.call(uapi::__NR_prctl, [number(PR_SET_NO_NEW_PRIVS), number(1), zero(), zero(), zero()], None);
        let at = number(&raw const program as u64);
        command.call(uapi::__NR_seccomp, [number(SECCOMP_SET_MODE_FILTER), number(NEW_LISTENER), at], Some(0));
    }
    let prepared = command.hand_back(0).prepare().map_err(|error| unwatched(&error))?;
    drop(command);
    if let Some(why) = waits_for_the_exec(prepared.plan()) {
        return Err(Unwatched::Passing(why));
    }
    // Not `spawn`: it would wait for an exec that waits for this thread.
    let mut child = prepared.launch().map_err(|error| unwatched(&error))?;
    drop(prepared);
    let listener = child.take_handed_back().map_err(|error| unwatched(&error))?;
    let listener = match listener {
        Some(listener) => listener,
        None => return Err(child.wait().map_or_else(|error| unwatched(&error), |_| SHORT)),
    };
    let mut watched = WatchedProgram { child, listener, library, paths: Vec::new(), has_executed: false };
    let answer = watched.follow();
    let _ = watched.child.kill();
    let _ = watched.child.wait();
    answer.map(|()| watched.paths)
}

/// The reason why a launch under watch failed. It lasts if the kernel has no such filters, or does not allow one.
/// Anything else may pass: a limit of processes, descriptors or memory.
fn unwatched(error: &std::io::Error) -> Unwatched {
    let lasts = matches!(error.raw_os_error(), Some(errno::EINVAL | errno::EPERM | errno::EACCES | errno::ENOSYS));
    match lasts {
        true => Unwatched::Lasting(format!("its loading cannot be watched: {error}")),
        false => Unwatched::Passing("its loading cannot be watched at the moment"),
    }
}

impl WatchedProgram<'_> {
    fn follow(&mut self) -> Result<(), Unwatched> {
        let (started, mut looked) = (Instant::now(), Instant::now());
        let interval = Timespec::try_from(POLL_INTERVAL).ok();
        loop {
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
            let ready = match poll(&mut fds, interval.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Err(Unwatched::Passing("its loading cannot be watched at the moment")),
                Ok(ready) => ready,
            };
            // Also while it makes calls: a constructor may wait for something in a loop.
            if looked.elapsed() >= POLL_INTERVAL {
                looked = Instant::now();
                if cpu_time(self.child.id()) >= LOADING {
                    return Err(Unwatched::Lasting("its loading takes too long".into()));
                }
                if started.elapsed() >= WAITING {
                    return Err(Unwatched::Passing("its loading takes too long at the moment"));
                }
            }
            if ready == 0 {
                continue;
            }
            if !fds[0].revents().contains(PollFlags::IN) {
                return Err(match self.wait_for_sigkill() {
                    true => Unwatched::Passing("it was killed while it was loaded"),
                    false => Unwatched::Lasting(
                        "it ends while it is loaded, or does not start as programs of libc do".into(),
                    ),
                });
            }
            let mut notice = Notice::default();
            let args =
                [self.listener.as_raw_fd() as usize, SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice as usize, 0, 0, 0];
            // SAFETY: the kernel writes one notice.
            match unsafe { sys::syscall(uapi::__NR_ioctl, args) } {
                Ok(_) => {}
                Err(errno::EINTR | errno::ENOENT) => continue,
                Err(error) => return Err(unwatched(&std::io::Error::from_raw_os_error(error))),
            }
            match self.judge(&notice) {
                Verdict::Goes => {
                    let answer =
                        WatchAnswer { id: notice.id, value: 0, error: 0, flags: SECCOMP_USER_NOTIF_FLAG_CONTINUE };
                    let args = [
                        self.listener.as_raw_fd() as usize,
                        SECCOMP_IOCTL_NOTIF_SEND,
                        &raw const answer as usize,
                        0,
                        0,
                        0,
                    ];
                    // SAFETY: the kernel reads the answer. An error: the child has been killed.
                    let _ = unsafe { sys::syscall(uapi::__NR_ioctl, args) };
                }
                Verdict::Stopped => return Ok(()),
                Verdict::Refused(why) => return Err(why),
            }
        }
    }

    /// Whether it has ended by SIGKILL, which the OOM killer sends too.
    fn wait_for_sigkill(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        self.child.wait().is_ok_and(|status| status.signal() == Some(SIGKILL))
    }

    fn judge(&mut self, notice: &Notice) -> Verdict {
        let number = notice.number as u32;
        if !self.has_executed {
            // Until then this library's own code runs.
            self.has_executed = number == uapi::__NR_execve;
            return Verdict::Goes;
        }
        let args = notice.args;
        // 0 to 2 are the streams, which are others in each launch; 3 is the template's socket.
        let is_own = |fd: u64| fd as i32 > 3;
        let goes = match number {
            uapi::__NR_getsockopt if args[0] == 3 && self.is_in_library(notice.instruction) => return Verdict::Stopped,
            uapi::__NR_brk | uapi::__NR_mprotect | uapi::__NR_munmap | uapi::__NR_arch_prctl => true,
            uapi::__NR_set_tid_address | uapi::__NR_set_robust_list | uapi::__NR_rseq => true,
            uapi::__NR_read | uapi::__NR_pread64 | uapi::__NR_fstat | uapi::__NR_lseek | uapi::__NR_close => {
                is_own(args[0])
            }
            uapi::__NR_mmap => {
                let (kind, locked) = (args[3] as u32 & uapi::MAP_TYPE, args[3] as u32 & uapi::MAP_LOCKED);
                kind == uapi::MAP_PRIVATE && locked == 0
            }
            uapi::__NR_futex => args[1] as u32 & 0x7f == uapi::FUTEX_WAKE,
            // libc's malloc: a random number by which it recognizes its own memory.
            uapi::__NR_getrandom => args[1] == 8 && args[2] == u64::from(uapi::GRND_NONBLOCK),
            // The limit of the stack is compared at each launch.
            uapi::__NR_prlimit64 => args[0] == 0 && args[1] == u64::from(uapi::RLIMIT_STACK) && args[2] == 0,
            // libcap asks how many capabilities there are. The bounding set is compared at each launch.
            uapi::__NR_prctl => args[0] as u32 == sys::prctl::PR_CAPBSET_READ,
            uapi::__NR_openat if args[2] as u32 & (uapi::O_ACCMODE | uapi::O_CREAT | uapi::O_TRUNC) == 0 => {
                return self.looks_at(notice.pid, args[1], true);
            }
            uapi::__NR_open if args[1] as u32 & (uapi::O_ACCMODE | uapi::O_CREAT | uapi::O_TRUNC) == 0 => {
                return self.looks_at(notice.pid, args[0], true);
            }
            uapi::__NR_access | uapi::__NR_stat => return self.looks_at(notice.pid, args[0], false),
            uapi::__NR_faccessat | uapi::__NR_faccessat2 => return self.looks_at(notice.pid, args[1], false),
            uapi::__NR_newfstatat if args[3] as u32 & uapi::AT_EMPTY_PATH != 0 => {
                is_own(args[0]) && self.text(notice.pid, args[1]).is_some_and(|path| path.is_empty())
            }
            // The directory of the program, for $ORIGIN in the paths of its libraries. Each launch compares where its path leads.
            uapi::__NR_readlink => self.is_program(notice, args[0]),
            uapi::__NR_readlinkat => self.is_program(notice, args[1]),
            uapi::__NR_newfstatat if args[3] == 0 => return self.looks_at(notice.pid, args[1], false),
            uapi::__NR_statfs => {
                // libselinux asks where SELinux's file system is mounted.
                let path = self.text(notice.pid, args[0]).unwrap_or_default();
                let known = [&b"/sys/fs/selinux"[..], b"/selinux"].contains(&&*path);
                let path = PathBuf::from(OsString::from_vec(path));
                let is_absent = Stamp::of(&path).is_some_and(|stamp| !stamp.exists());
                self.paths.push(path);
                known && is_absent
            }
            _ => false,
        };
        match goes {
            true => Verdict::Goes,
            false if self.is_in_loader(notice.instruction) => {
                match number {
                    // It reports that it cannot load the program: a library is missing, or there is no memory.
                    uapi::__NR_write | uapi::__NR_writev | uapi::__NR_exit_group => {
                        Verdict::Refused(Unwatched::Passing("the dynamic loader cannot load it"))
                    }
                    _ => Verdict::refused(format!("the dynamic loader makes system call {number}")),
                }
            }
            // Since glibc 2.34 libpthread is a part of libc, which makes no such calls.
            false if self.is_in(notice.instruction, |line| line.contains("/libpthread-2.")) => Verdict::refused(
                "the program needs glibc 2.34 or later: an older libpthread sets signal handlers".into(),
            ),
            false => Verdict::refused(format!("a library makes system call {number} while it is loaded")),
        }
    }

    /// Whether the loader reads the link to the program.
    fn is_program(&self, notice: &Notice, path: u64) -> bool {
        self.is_in_loader(notice.instruction)
            && self.text(notice.pid, path).is_some_and(|path| path == procfs::OWN_PROGRAM.as_bytes())
    }

    /// Notes the path of a call.
    fn looks_at(&mut self, pid: u32, address: u64, is_opened: bool) -> Verdict {
        let Some(path) = self.text(pid, address) else {
            return Verdict::Refused(Unwatched::Passing("its memory cannot be read while it is loaded"));
        };
        let shown = String::from_utf8_lossy(&path).into_owned();
        if !path.starts_with(b"/") {
            return Verdict::refused(format!("a library looks at a relative path while it is loaded: {shown:?}"));
        }
        let is_virtual = [&b"/proc/"[..], b"/sys/", b"/dev/"].iter().any(|start| path.starts_with(start));
        if is_opened && is_virtual && !is_known_virtual(&path) {
            return Verdict::refused(format!("a library reads {shown} while it is loaded"));
        }
        if !is_virtual || !is_opened {
            self.paths.push(PathBuf::from(OsString::from_vec(path)));
        }
        Verdict::Goes
    }

    /// A string in the program's memory.
    fn text(&self, pid: u32, address: u64) -> Option<Vec<u8>> {
        let memory = Process::open(pid as i32).and_then(|process| process.file("mem", OFlags::RDONLY)).ok()?;
        let mut text = Vec::new();
        // Page by page: what follows the last page may not be mapped.
        while text.len() < 4096 {
            let at = address + text.len() as u64;
            let mut part = vec![0; 4096 - (at % 4096) as usize];
            let length = memory.read_at(&mut part, at).ok().filter(|&length| length > 0)?;
            match part[..length].iter().position(|&byte| byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&part[..end]);
                    return Some(text);
                }
                None => text.extend_from_slice(&part[..length]),
            }
        }
        None
    }

    /// Whether the preloaded library has made a call.
    fn is_in_library(&self, instruction: u64) -> bool {
        self.library.to_str().is_some_and(|library| self.is_in(instruction, |line| line.ends_with(library)))
    }

    /// Whether the dynamic loader's own code has made a call.
    fn is_in_loader(&self, instruction: u64) -> bool {
        let loader = std::fs::canonicalize(LOADER).ok();
        let loader = loader.as_deref().and_then(Path::to_str);
        loader.is_some_and(|loader| self.is_in(instruction, |line| line.ends_with(loader)))
    }

    /// Whether an address is in a mapping that is meant, by its line in `/proc/PID/maps`.
    fn is_in(&self, instruction: u64, is_meant: impl Fn(&str) -> bool) -> bool {
        let maps = Process::open(self.child.id() as i32).and_then(|process| process.file("maps", OFlags::RDONLY));
        let Ok(maps) = maps.and_then(std::io::read_to_string) else { return false };
        maps.lines().filter(|line| is_meant(line)).any(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            range.is_some_and(|(first, end)| {
                let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
                (number(first)..number(end)).contains(&instruction)
            })
        })
    }
}

/// The CPU time of a process: `clock_getcpuclockid(3)`.
fn cpu_time(pid: u32) -> Duration {
    const SCHEDULED: i32 = 2;
    let clock = !(pid as i32) << 3 | SCHEDULED;
    let mut time = [0u64; 2];
    let args = [clock as isize as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one struct timespec.
    match unsafe { sys::syscall(uapi::__NR_clock_gettime, args) } {
        Ok(_) => Duration::new(time[0], time[1] as u32),
        Err(_) => Duration::ZERO,
    }
}

/// Files of virtual file systems that cannot change what a constructor sees while the system runs. libselinux reads which
/// file systems the kernel has, and only looks for selinuxfs, which is in the kernel from its start or never.
fn is_known_virtual(path: &[u8]) -> bool {
    let has_selinux =
        || std::fs::read_to_string(procfs::systems("filesystems")).map_or(true, |text| text.contains("selinuxfs"));
    path == b"/proc/filesystems" && !has_selinux()
}
