//! PID 1 of the sandbox: starts the program, forwards signals to it, reaps, and ends with it and what it has left behind, for
//! which it waits a while. When it ends, the kernel kills
//! everything that is left in the sandbox.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use forkless::{BpfInstruction, Command, internal::filter};
use forkless_core::sys;
use rustix::event::Timespec;

use super::{
    super::{failure::Failure, options::Ids},
    Sandbox, Status, failed,
    root::{self, Trees},
};

/// The exit code of a program that a signal has killed.
const SIGNALLED: i32 = 128;

/// Returns the exit code.
pub(super) fn run(
    sandbox: &Sandbox<'_>,
    command: &mut Command,
    trees: &Trees,
    go: BorrowedFd<'_>,
    status: &Status,
) -> Result<u8, Failure> {
    let mut word = [0];
    match rustix::io::read(go, &mut word) {
        Ok(1) => {}
        // The parent has failed, and has printed why.
        _ => return Ok(super::FAILED),
    }
    expect_children();
    become_user(&sandbox.ids)?;
    close_memory()?;
    die_with_parent(go)?;
    leave_session();
    set_hostname(sandbox)?;
    if !sandbox.options.sandbox.share_net {
        raise_loopback()?;
    }
    root::build(sandbox, command, trees)?;
    if sandbox.empties_bounding_set() {
        // Before the program is cloned, which inherits it.
        empty_bounding_set()?;
    }
    let mut child = command.launch()?;
    child.wait_exec()?;
    status.executed.store(1, Ordering::Release);
    let program = child.id() as i32;
    // Its descriptor is closed with all others, and its destructor makes calls that the filter of init refuses.
    std::mem::forget(child);
    if !sandbox.empties_bounding_set() {
        empty_bounding_set()?;
    }
    confine()?;
    Ok(serve(program, status, sandbox.options.linger()))
}

/// One call that changes this process alone.
fn call(part: &str, number: libc::c_long, args: [usize; 6]) -> Result<usize, Failure> {
    // SAFETY: the callers pass numbers, and addresses of their own objects that outlive the call.
    unsafe { sys::syscall(number as u32, args) }.map_err(|errno| failed(part, super::error_of(errno)))
}

/// The caller may ignore SIGCHLD. Then nobody would learn how the program ended.
fn expect_children() {
    // SAFETY: the default action runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Root becomes the program's user before it makes a file: files of users that are not mapped cannot be made. It keeps the
/// capabilities over the new namespaces.
fn become_user(ids: &Ids) -> Result<(), Failure> {
    let Ids { uid, gid, groups } = ids;
    // The keys of the caller's session are not the program's. Where keyctl(2) is refused, it is refused to the program, too.
    let _ = call("keyring", libc::SYS_keyctl, [1, 0, 0, 0, 0, 0]);
    if let Some(groups) = groups {
        call("groups", libc::SYS_setgroups, [groups.len(), groups.as_ptr() as usize, 0, 0, 0, 0])?;
        let gid = *gid as usize;
        call("group", libc::SYS_setresgid, [gid, gid, gid, 0, 0, 0])?;
        let uid = *uid as usize;
        call("user", libc::SYS_setresuid, [uid, uid, uid, 0, 0, 0])?;
    }
    Ok(())
}

/// No process without capabilities can trace init, or reach its memory, files and descriptors by procfs.
fn close_memory() -> Result<(), Failure> {
    call("init", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as usize, 0, 0, 0, 0, 0]).map(drop)
}

/// After the IDs: a change of IDs clears the request.
fn die_with_parent(go: BorrowedFd<'_>) -> Result<(), Failure> {
    let set = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    set.map_err(|error| failed("parent-death signal", error))?;
    // The parent may have died before that.
    let mut file = [rustix::event::PollFd::new(&go, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut file, Some(&now)) {
        Ok(0) => Ok(()),
        _ => Err(failed("parent-death signal", "forkless has died")),
    }
}

/// The terminal sends no signals to a session that is not its own, and nobody in it can type into the terminal. Forkless
/// forwards the signals that it gets.
fn leave_session() {
    // A clone never leads a process group, so this cannot fail.
    let _ = rustix::process::setsid();
}

fn set_hostname(sandbox: &Sandbox<'_>) -> Result<(), Failure> {
    let name = sandbox.options.namespaces.hostname().map_or(&b"sandbox"[..], |name| name.as_encoded_bytes());
    call("host name", libc::SYS_sethostname, [name.as_ptr() as usize, name.len(), 0, 0, 0, 0]).map(drop)
}

/// Brings the loopback device up.
fn raise_loopback() -> Result<(), Failure> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let failed = |error: io::Error| failed("loopback device", error);
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let socket = socket.map_err(|error| failed(error.into()))?;
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as _, b'o' as _]);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
    // SAFETY: the kernel reads the request, which outlives the call.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) };
    if answer < 0 { Err(failed(io::Error::last_os_error())) } else { Ok(()) }
}

/// No program can get a capability of an executable file.
fn empty_bounding_set() -> Result<(), Failure> {
    const PR_CAPBSET_DROP: usize = libc::PR_CAPBSET_DROP as usize;
    for capability in 0..64 {
        if call("init", libc::SYS_prctl, [PR_CAPBSET_DROP, capability, 0, 0, 0, 0]).is_err() {
            // No such capability: there are none after it.
            return if capability == 0 { Err(failed("bounding set", "it cannot be changed")) } else { Ok(()) };
        }
    }
    Ok(())
}

/// Gives up everything that init had to start the program: it shares the sandbox with it.
fn confine() -> Result<(), Failure> {
    // _LINUX_CAPABILITY_VERSION_3, and the calling process; then two halves of three empty sets.
    let (header, sets) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    call("init", libc::SYS_capset, [header.as_ptr() as usize, sets.as_ptr() as usize, 0, 0, 0, 0])?;
    call("init", libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0])?;
    let rules: Vec<BpfInstruction> = filter::init();
    let program = libc::sock_fprog { len: rules.len() as u16, filter: rules.as_ptr().cast_mut().cast() };
    // All descriptors are those of the host. The program has its own copies.
    call("init", libc::SYS_close_range, [0, u32::MAX as usize, 0, 0, 0, 0])?;
    const SECCOMP_SET_MODE_FILTER: usize = 1;
    call("init", libc::SYS_seccomp, [SECCOMP_SET_MODE_FILTER, 0, &raw const program as usize, 0, 0, 0]).map(drop)
}

/// The end of the program.
struct ProgramEnd {
    status: i32,
    /// What it has left behind may run until then; `None`: for ever.
    until: Option<Instant>,
}

impl ProgramEnd {
    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Waits for signals and children until the program has ended, and for `linger` at most until all others have. Makes only the
/// calls that `filter::init` allows.
fn serve(program: i32, status: &Status, linger: Duration) -> u8 {
    let all = u64::MAX;
    let mut ended: Option<ProgramEnd> = None;
    loop {
        let left =
            ended.as_ref().and_then(|ended| ended.until).map(|until| until.saturating_duration_since(Instant::now()));
        // A time that the kernel cannot count means no limit.
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        let limit = limit.as_ref().map_or(0, |limit| &raw const *limit as usize);
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let args = [&raw const all as usize, info.as_mut_ptr() as usize, limit, 8, 0, 0];
        // SAFETY: the kernel reads the set and the time, and writes to `info`; all outlive the call.
        let signal = unsafe { sys::syscall(libc::SYS_rt_sigtimedwait as u32, args) };
        let mut status_of = 0;
        // Children that come faster than they are reaped do not keep it from its time.
        let is_alone = loop {
            match sys::wait4(-1, &mut status_of, libc::WNOHANG as u32, None) {
                Ok(0) => break false,
                Ok(pid) if pid == program => {
                    status.word.store(status_of + 1, Ordering::Release);
                    ended = Some(ProgramEnd { status: status_of, until: Instant::now().checked_add(linger) });
                }
                Ok(_) if ended.as_ref().is_some_and(ProgramEnd::is_late) => break false,
                Ok(_) => {}
                Err(_) => break true,
            }
        };
        // SAFETY: zeroed, and then written by the kernel.
        let from = unsafe { info.assume_init().si_pid() };
        // 0: the sender is outside of this PID namespace. The program gets no other process to send signals.
        let signal = signal.ok().map(|signal| signal as i32).filter(|signal| *signal != libc::SIGCHLD && from == 0);
        match (&ended, signal) {
            (None, Some(signal)) => forward(program, signal),
            (None, None) => {}
            (Some(ended), signal) => {
                let is_late = ended.is_late();
                // Nobody is left to forward it to.
                let is_killed = signal.is_some_and(|signal| !HARMLESS.contains(&signal));
                if is_alone || is_late || is_killed {
                    return code(ended.status);
                }
            }
        }
    }
}

/// Signals that end no program by default.
const HARMLESS: [i32; 4] = [libc::SIGTSTP, libc::SIGCONT, libc::SIGWINCH, libc::SIGURG];

fn forward(program: i32, signal: i32) {
    // In a session without a terminal the kernel discards the other signals that stop.
    let is_stop = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
    let signal = if is_stop { libc::SIGSTOP } else { signal };
    // It leads a session, and so a process group, unless it has just not got there.
    if sys::kill(-program, signal).is_err() {
        let _ = sys::kill(program, signal);
    }
}

fn code(status: i32) -> u8 {
    let code = if libc::WIFSIGNALED(status) { SIGNALLED + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    code as u8
}
