//! Brings the process into the state that a case needs.

use super::model::simple;
use super::{Parent, decode, elf, errno, signal, syscall};
use crate::filter::{self, Answer, Refusal};
use forkless::{Pty, PtySize};
use std::ffi::CString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where a case is played.
#[derive(Debug, Clone)]
pub struct Place {
    /// The case's own directory.
    pub dir: PathBuf,
    /// The helper program that reports its state.
    pub probe: PathBuf,
}

impl Place {
    /// A text of a case with its placeholders filled in.
    pub fn text(&self, text: &str) -> String {
        text.replace("{dir}", &self.dir.to_string_lossy()).replace("{probe}", &self.probe.to_string_lossy())
    }

    /// The same, as bytes.
    pub fn bytes(&self, text: &str) -> std::ffi::OsString {
        decode(&self.text(text))
    }

    /// A file of the case's directory, unless the name is a path of its own.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(self.bytes(name))
    }
}

/// The descriptor at which the helper's complaints go out, above all that cases use.
pub const COMPLAINTS: RawFd = 700;

/// Moves standard error to where no case closes it, and panics' messages with it. Other descriptors that this process
/// was started with are closed.
pub fn keep_complaints() {
    // SAFETY: nothing has been opened here yet; a copy of standard error at a number that nothing else has.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        libc::dup3(2, COMPLAINTS, libc::O_CLOEXEC);
    }
    std::panic::set_hook(Box::new(|panic| complain(&format!("{panic}\n"))));
}

/// Writes to where standard error was.
pub fn complain(text: &str) {
    // SAFETY: writes the text's bytes.
    unsafe { libc::write(COMPLAINTS, text.as_ptr().cast(), text.len()) };
}

/// Applies the state of the case, except for its limits.
pub fn become_it(parent: &Parent, place: &Place) -> io::Result<()> {
    for (name, what) in &parent.files {
        make(place, name, what)?;
    }
    for (key, value) in &parent.env {
        // SAFETY: the helper has one thread.
        unsafe { std::env::set_var(key, place.bytes(value)) };
    }
    for key in &parent.env_remove {
        // SAFETY: as above.
        unsafe { std::env::remove_var(key) };
    }
    let directory = parent.cwd.as_deref().unwrap_or("{dir}");
    std::env::set_current_dir(place.file(directory))?;
    if parent.nobody {
        become_nobody()?;
    }
    if parent.undumpable {
        // SAFETY: a flag of this process.
        check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) })?;
    }
    signals(parent)?;
    descriptors(parent, place)
}

/// Sets the limits that the case asks for.
pub fn limit_it(parent: &Parent) -> io::Result<()> {
    if let Some(limit) = parent.nofile {
        limit_soft(libc::RLIMIT_NOFILE, limit)?;
    }
    if parent.full {
        while open(Path::new("/dev/null")).is_ok() {}
    }
    if let Some(limit) = parent.nproc {
        limit_soft(libc::RLIMIT_NPROC, limit)?;
    }
    if let Some(room) = parent.room {
        // What this process itself will need is in the heap before the limit is there.
        grow_heap();
        let statm = fs::read_to_string("/proc/self/statm")?;
        let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
        // SAFETY: reads a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        limit_soft(libc::RLIMIT_AS, pages * page + room)?;
    }
    Ok(())
}

/// Leaves some free MiB in the heap, for good.
fn grow_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: settings of malloc.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 25);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 26);
    }
    drop(std::hint::black_box(vec![1u8; 4 << 20]));
}

/// Makes a file: `probe` (a link to it), `dir`, `text TEXT` (not executable), `script TEXT` (executable, `TEXT` as it
/// is), `locked DIR` (a directory nobody but root may enter), `exits CODE` (a program that needs no other file),
/// `exits-if-closed CODE FD` (the same; it exits with 9 if the descriptor is open),
/// `link TARGET` (a symbolic link to it).
pub fn make(place: &Place, name: &str, what: &str) -> io::Result<()> {
    let path = place.file(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let (kind, text) = what.split_once(' ').unwrap_or((what, ""));
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
    match kind {
        "probe" => symlink(&place.probe, &path),
        "dir" => fs::create_dir_all(&path),
        "text" => fs::write(&path, place.text(text)).and_then(|()| mode(0o644)),
        "script" => fs::write(&path, place.text(text)).and_then(|()| mode(0o755)),
        "exits" => fs::write(&path, elf::program(text.parse().expect("a code"))).and_then(|()| mode(0o755)),
        "exits-if-closed" => {
            let (code, fd) = text.split_once(' ').expect("a code and a descriptor");
            let number = |text: &str| text.parse().expect("a number");
            fs::write(&path, elf::program_if_closed(number(code), number(fd))).and_then(|()| mode(0o755))
        }
        "link" => symlink(place.text(text), &path),
        "locked" => fs::create_dir_all(&path).and_then(|()| mode(0o000)),
        _ => Err(io::Error::other(format!("{what} is nothing that can be made"))),
    }
}

/// The name of the cgroup that cases use.
pub fn cgroup_name() -> String {
    format!("forkless-test-{}", std::process::id())
}

/// Where cgroups of version 2 are mounted.
pub fn cgroup_mount() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = fields.find(|fields| fields.get(2) == Some(&"cgroup2")).map(|fields| fields[1].into());
    mount.ok_or_else(|| io::Error::other("no version 2 cgroup hierarchy is mounted"))
}

/// The cgroup of this process's own, made if need be: see [`remove_cgroup`].
pub fn cgroup_directory() -> io::Result<PathBuf> {
    let path = cgroup_mount()?.join(cgroup_name());
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(path),
    }
}

/// Removes [`cgroup_directory`].
pub fn remove_cgroup() {
    let _ = cgroup_directory().and_then(fs::remove_dir);
}

/// Why a case cannot be played by this process, if one of its needs is not met: a setting of one value, `root`, `user namespaces`, `landlock`,
/// `cgroups`, `mounted cgroups`, `overlays`, `devices`, `terminals`, `2 CPUs`, `CAP_…`.
pub fn unmet(needs: &[String]) -> Option<String> {
    needs.iter().find_map(|need| {
        let (is_met, why) = match need.as_str() {
            "root" => (crate::process::is_root(), "it needs root"),
            "user namespaces" => (
                in_fork(|| {
                    // SAFETY: changes the forked process, which then ends.
                    unsafe { libc::unshare(libc::CLONE_NEWUSER) == 0 }
                }),
                "user namespaces are refused here",
            ),
            "landlock" => {
                // SAFETY: asks for the version.
                let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1) };
                (version > 0, "this kernel has no Landlock")
            }
            "cgroups" => {
                let made = cgroup_directory().is_ok();
                remove_cgroup();
                (made, "no version 2 cgroup can be created here")
            }
            "mounted cgroups" => (cgroup_mount().is_ok(), "no version 2 cgroup hierarchy is mounted here"),
            "overlays" => (in_fork(can_overlay), "no overlay can be mounted here"),
            "devices" => {
                let there = |name: &&str| Path::new("/dev").join(name).exists();
                (
                    ["null", "zero", "full", "random", "urandom", "tty"].iter().all(there),
                    "/dev does not have all devices",
                )
            }
            "terminals" => (terminal().is_ok_and(close_both), "no pseudo-terminal can be opened here"),
            "2 CPUs" => {
                (std::thread::available_parallelism().is_ok_and(|count| count.get() > 1), "there is only one CPU")
            }
            name if simple::is_there(name).is_some() => {
                (simple::is_there(name) == Some(true), "this kernel has not got that setting")
            }
            capability => {
                let wanted = crate::table::settings::capabilities(&[capability.to_owned()]).bits();
                let has = crate::observe::observe()["cap.effective"].clone();
                let has = u64::from_str_radix(has.trim_start_matches("0x"), 16).unwrap_or(0);
                (has & wanted == wanted, "the capability is missing")
            }
        };
        (!is_met).then(|| format!("{why} ({need})"))
    })
}

/// Mounts an overlay with directories below the current one, where an ordinary user's own namespaces are.
fn can_overlay() -> bool {
    let names = ["lower", "upper", "work", "all"].map(|name| format!("overlay-{name}"));
    // SAFETY: reads a number.
    let id = unsafe { libc::geteuid() };
    let (user, more) = if id == 0 { (0, "") } else { (libc::CLONE_NEWUSER, ",userxattr") };
    // SAFETY: reads a number.
    let group = unsafe { libc::getegid() };
    let maps = [("uid_map", format!("0 {id} 1")), ("setgroups", "deny".into()), ("gid_map", format!("0 {group} 1"))];
    // SAFETY: changes the forked process, which then ends.
    let own = unsafe { libc::unshare(libc::CLONE_NEWNS | user) } == 0
        && (id == 0 || maps.iter().all(|(file, text)| fs::write(format!("/proc/self/{file}"), text).is_ok()));
    let made = names.iter().all(|name| fs::create_dir(name).is_ok());
    let [lower, upper, work, all] = &names;
    let data = CString::new(format!("lowerdir={lower},upperdir={upper},workdir={work}{more}")).expect("no NUL");
    let target = CString::new(all.as_str()).expect("no NUL");
    let mount = || {
        // SAFETY: texts that end in NUL; private first, so that nothing of it is seen outside.
        unsafe {
            let private = libc::MS_REC | libc::MS_PRIVATE;
            libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0
                && libc::mount(c"overlay".as_ptr(), target.as_ptr(), c"overlay".as_ptr(), 0, data.as_ptr().cast()) == 0
        }
    };
    own && made && mount()
}

fn in_fork(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the helper has one thread; the child only makes system calls.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(!act() as i32);
        }
        let mut status = 0;
        libc::waitpid(pid, &raw mut status, 0) == pid && status == 0
    }
}

/// The two ends of a new pseudo-terminal, close-on-exec.
fn terminal() -> io::Result<[RawFd; 2]> {
    // SAFETY: opens a terminal of our own; the name is written into the buffer.
    unsafe {
        let master = libc::open(c"/dev/ptmx".as_ptr(), libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        check(master)?;
        let mut name = [0; 64];
        check(libc::unlockpt(master))?;
        match libc::ptsname_r(master, name.as_mut_ptr(), name.len()) {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        let slave = libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        check(slave)?;
        Ok([master, slave])
    }
}

fn close_both(ends: [RawFd; 2]) -> bool {
    // SAFETY: just opened.
    ends.into_iter().all(|end| unsafe { libc::close(end) } == 0)
}

/// The terminal of this process's children.
pub fn pty() -> &'static Pty {
    static PTY: OnceLock<Pty> = OnceLock::new();
    PTY.get_or_init(|| Pty::open(PtySize::default()).expect("a pseudo-terminal"))
}

/// From root to an ordinary user; an ordinary user stays what it is.
pub fn become_nobody() -> io::Result<()> {
    const NOBODY: u32 = 65534;
    // SAFETY: the helper has one thread; the dumpable flag, which the change of user clears, is set again.
    unsafe {
        if libc::geteuid() == 0 {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(NOBODY, NOBODY, NOBODY))?;
            check(libc::setresuid(NOBODY, NOBODY, NOBODY))?;
            check(libc::prctl(libc::PR_SET_DUMPABLE, 1))?;
        }
    }
    Ok(())
}

/// Whatever this process was started with: every signal at its default, but for SIGPIPE, which Rust programs ignore.
pub fn reset_signals() {
    for number in 1..=64 {
        // SAFETY: no handler; the kernel reads a kernel_sigaction, of at most 32 bytes. libc hides two signals.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, number, [0u64; 4].as_ptr(), 0usize, 8usize) };
    }
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

extern "C" fn handler(_: i32) {}

fn signals(parent: &Parent) -> io::Result<()> {
    reset_signals();
    let actions = [
        (&parent.ignore, libc::SIG_IGN),
        (&parent.default, libc::SIG_DFL),
        (&parent.handle, handler as extern "C" fn(i32) as libc::sighandler_t),
    ];
    for (names, action) in actions {
        for name in names {
            // SAFETY: the handler does nothing.
            if unsafe { libc::signal(signal(name), action) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
    }
    let mask = parent.block.iter().fold(0u64, |mask, name| mask | 1 << (signal(name) - 1));
    // SAFETY: the kernel reads 8 bytes; libc would leave out two signals.
    check(unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0usize, 8usize) } as i32)
}

fn descriptors(parent: &Parent, place: &Place) -> io::Result<()> {
    for &fd in &parent.close {
        // SAFETY: a standard stream that nobody of this process needs.
        check(unsafe { libc::close(fd) })?;
    }
    for (files, cloexec) in [(&parent.open, libc::O_CLOEXEC), (&parent.leak, 0)] {
        for (number, name) in files {
            let number: RawFd = number.parse().expect("a descriptor's number");
            let cloexec = if number > 2 { cloexec } else { 0 };
            let fd = open(&place.file(name))?;
            // SAFETY: a new descriptor, and a number that the case gives to it.
            unsafe {
                if fd == number {
                    check(libc::fcntl(fd, libc::F_SETFD, if cloexec != 0 { libc::FD_CLOEXEC } else { 0 }))?;
                } else {
                    check(libc::dup3(fd, number, cloexec))?;
                    libc::close(fd);
                }
            }
        }
    }
    if parent.terminal {
        for (end, number) in terminal()?.into_iter().zip([30, 31]) {
            // SAFETY: a new descriptor, and a number that no case with a terminal uses.
            unsafe {
                check(libc::dup3(end, number, libc::O_CLOEXEC))?;
                libc::close(end);
            }
        }
    }
    if parent.pty {
        pty();
    }
    if parent.left_uts {
        let fd = fs::File::open("/proc/self/ns/uts")?;
        // SAFETY: a number that no case with such a parent uses; a namespace of this process's own.
        unsafe {
            check(libc::dup3(fd.as_raw_fd(), 32, libc::O_CLOEXEC))?;
            check(libc::unshare(libc::CLONE_NEWUTS))?;
        }
    }
    if let Some(directory) = &parent.read_only {
        mount_read_only(&place.file(directory))?;
    }
    if let Some(init) = &parent.other_pids {
        let fd = other_pids(init == "alive")?;
        // SAFETY: a number that no case with such a parent uses.
        check(unsafe { libc::dup3(fd.as_raw_fd(), 33, libc::O_CLOEXEC) })?;
    }
    if parent.fill > 0 {
        fill_below(parent.fill)?;
    }
    Ok(())
}

fn mount_read_only(directory: &Path) -> io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let (kind, nothing) = (c"tmpfs".as_ptr(), std::ptr::null());
    // SAFETY: texts that end in NUL; what is mounted is seen in a namespace of this process's own alone.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        check(libc::mount(nothing, c"/".as_ptr(), nothing, libc::MS_REC | libc::MS_PRIVATE, nothing.cast()))?;
        check(libc::mount(kind, path.as_ptr(), kind, libc::MS_RDONLY, nothing.cast()))
    }
}

/// A new PID namespace of a child, which sleeps until this process ends, or has ended.
fn other_pids(alive: bool) -> io::Result<fs::File> {
    let (mut ready, ours) = io::pipe()?;
    // SAFETY: a fork without libc's part in it, which would note a pid; the child only makes system calls.
    let pid = unsafe {
        let flags = libc::CLONE_NEWPID | libc::SIGCHLD;
        let pid = libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) as i32;
        check(pid)?;
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // The last says that it will not outlive us; and nobody is to wait for what it holds.
            libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
            loop {
                libc::pause();
            }
        }
        pid
    };
    drop(ours);
    ready.read_to_end(&mut Vec::new())?;
    let namespace = fs::File::open(format!("/proc/{pid}/ns/pid"));
    if !alive {
        // Our own child, which nobody has reaped.
        crate::process::kill(pid, libc::SIGKILL);
        // SAFETY: as above; its status does not matter.
        check(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) })?;
    }
    namespace
}

/// Uses up every number below `limit`.
fn fill_below(limit: RawFd) -> io::Result<()> {
    loop {
        let fd = open(Path::new("/dev/null"))?;
        if fd >= limit {
            // SAFETY: just opened.
            return check(unsafe { libc::close(fd) });
        }
    }
}

/// Opens for reading and writing, close-on-exec; makes the file if need be. The number is the lowest free one.
pub fn open(path: &Path) -> io::Result<RawFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC, 0o666) };
    check(fd)?;
    Ok(fd)
}

/// The type of libc's numbers of limits.
#[cfg(target_env = "gnu")]
pub type LimitOfLibc = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub type LimitOfLibc = libc::c_int;

/// Sets a soft limit of this process.
pub fn limit_soft(resource: LimitOfLibc, limit: u64) -> io::Result<()> {
    // SAFETY: reads and writes a limit.
    unsafe {
        let mut now: libc::rlimit = std::mem::zeroed();
        check(libc::getrlimit(resource, &raw mut now))?;
        now.rlim_cur = limit;
        check(libc::setrlimit(resource, &raw const now))
    }
}

/// A libc answer as a result.
pub fn check(answer: i32) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts the process under a filter: `CALL ERRNO`, `CALL KILL` (`KILL_THREAD`, `TRAP`), each with `argN=VALUE` or `argN&BITS` behind it,
/// several of them with commas in between. Nothing for an empty text.
pub fn refuse(refusals: &str) -> io::Result<()> {
    let refusals = refusals_of(refusals);
    if refusals.is_empty() { Ok(()) } else { filter::refuse(&refusals).map_err(io::Error::other) }
}

/// The refusals that a text names, as [`refuse`] reads it.
pub fn refusals_of(text: &str) -> Vec<Refusal> {
    text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(refusal).collect()
}

fn refusal(text: &str) -> Refusal {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (&[call, answer], condition) = words.split_first_chunk().unwrap_or_else(|| panic!("{text:?} is no refusal"));
    let answer = match answer {
        "KILL" => Answer::Kill,
        "KILL_THREAD" => Answer::KillThread,
        "TRAP" => Answer::Trap,
        "HANG" => Answer::Wait,
        name => Answer::Errno(errno(name)),
    };
    let refusal = Refusal::of(syscall(call), answer);
    let Some(condition) = condition.first() else { return refusal };
    let number = |text: &str| text.parse::<i64>().expect("a number") as u64;
    let condition = condition.strip_prefix("arg").expect("argN=VALUE or argN&BITS");
    match condition.split_once('=') {
        Some((index, value)) => refusal.with_value(number(index) as u8, number(value)),
        None => {
            let (index, bits) = condition.split_once('&').expect("argN&BITS");
            refusal.with_bits(number(index) as u8, number(bits))
        }
    }
}
