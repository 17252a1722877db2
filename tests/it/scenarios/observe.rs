//! What a scenario observes of its own process, and its time limits.

use forkless_core::sys::{self, errno, uapi};
pub use forkless_tests::process::is_kernel_at_least;
use std::fs;
use std::time::{Duration, Instant};

/// `getpid(2)`, not by libc: right in every kind of child.
pub fn pid() -> i32 {
    // SAFETY: reads a number.
    unsafe { sys::syscall(uapi::__NR_getpid, [0; 6]) }.unwrap_or(0) as i32
}

/// `write(2)`, not by libc.
pub fn write_raw(fd: i32, text: &[u8]) {
    // SAFETY: the kernel reads the text.
    let _ = unsafe { sys::syscall(uapi::__NR_write, [fd as usize, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

/// `FORKLESS_TEST_SCALE` times `count`: the dial of tests that count (default 1).
pub fn scaled(count: usize) -> usize {
    let scale = std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    ((count as f64 * scale) as usize).max(1)
}

/// `FORKLESS_TEST_SECONDS`: the dial of tests that go on for a time (default 2).
pub fn storm_time() -> Duration {
    let seconds = std::env::var("FORKLESS_TEST_SECONDS").ok().and_then(|text| text.parse::<f64>().ok());
    Duration::from_secs_f64(seconds.unwrap_or(2.0))
}

/// Is a procfs mounted? Hosts without one see less of themselves.
fn has_proc() -> bool {
    std::path::Path::new("/proc/self").exists()
}

/// Numbers of open descriptors.
pub fn open_fds() -> Vec<i32> {
    if !has_proc() {
        // SAFETY: asks whether a number is open.
        return (0..20_000).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).collect();
    }
    let listing = fs::read_dir("/proc/self/fd").expect("/proc/self/fd");
    let mut fds: Vec<i32> = listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // The listing's own number is closed by now.
    // SAFETY: asks whether a number is open.
    fds.retain(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
    fds.sort_unstable();
    fds
}

/// Children of every thread, zombies included. Without a procfs they are not listed: [`is_childless`] knows all the same.
pub fn children() -> Vec<i32> {
    let mut found = Vec::new();
    if !has_proc() {
        return found;
    }
    for task in fs::read_dir("/proc/self/task").expect("/proc/self/task").flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// Is there no child at all, of whatever kind, running or not?
pub fn is_childless() -> bool {
    let mut info = sys::SignalInfo::EMPTY;
    let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | uapi::__WALL;
    sys::waitid(uapi::P_ALL, 0, &mut info, options, None) == Err(errno::ECHILD) && children().is_empty()
}

/// Lines of `/proc/self/maps`; 0 without a procfs.
pub fn mappings() -> usize {
    if !has_proc() {
        return 0;
    }
    fs::read_to_string("/proc/self/maps").expect("/proc/self/maps").lines().count()
}

/// Resident memory in KiB; 0 without a procfs.
pub fn resident_kib() -> u64 {
    if !has_proc() {
        return 0;
    }
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}

/// Waits until `is` holds; panics if it does not within a generous time.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + forkless_tests::patience::limit(20);
    while !is() {
        assert!(Instant::now() < deadline, "never came to be: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs something that must end; if it hangs, this process exits with a message.
pub fn within<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let (over, limit) = std::sync::mpsc::channel::<()>();
    let late = format!("never came to an end: {what}\n");
    let guard = std::thread::spawn(move || {
        if limit.recv_timeout(forkless_tests::patience::limit(20)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            write_raw(2, late.as_bytes());
            sys::exit(1);
        }
    });
    let answer = act();
    drop(over);
    guard.join().expect("guard");
    answer
}

/// All dropped children are reaped, and there is no child of any kind.
pub fn assert_no_orphans() {
    eventually("dropped children reaped", || forkless::reap_orphans() == 0);
    // The kernel reaps a child of a caller that ignores SIGCHLD a moment after its pidfd shows the end.
    eventually("no child is left", is_childless);
}

/// The state letter of a process (`R`, `S`, `T`, `Z` …).
pub fn state_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A child that is asleep in `open(2)`, as of a FIFO that nobody has opened for writing. One that has been forked may sleep before
/// it comes to that.
///
/// Source: proc_pid_syscall(5); where it is not told, whoever sleeps counts.
pub fn opening_child() -> Option<i32> {
    opening_children().first().copied()
}

/// All of these.
pub fn opening_children() -> Vec<i32> {
    let is_opening = |pid: &i32| {
        let pid = *pid;
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|number| number.parse().ok());
        let opens = |number: i64| matches!(number, libc::SYS_openat | libc::SYS_openat2);
        state_of(pid) == Some('S') && number.is_none_or(opens)
    };
    children().into_iter().filter(is_opening).collect()
}

/// Reports that something is not tested, and why.
pub fn skip(what: &str, why: &str) {
    eprintln!("SKIPPED: {what} because {why}");
}

/// A small generator of numbers (xorshift), one per thread.
pub struct Dice(u64);

impl Dice {
    /// `seed` must not be 0.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The signals that this process ignores: bit n-1 is signal n.
pub(crate) fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("one's own status");
    let text = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("SigIgn");
    u64::from_str_radix(text.trim(), 16).expect("a set of signals")
}
