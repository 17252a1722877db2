//! Disturbances of the host's launches: signals, other reapers, forks, filters. And planted faults, which a run must
//! detect.

use crate::forms::Fixtures;
use crate::{foreign, observe};
use forkless::{Command, Stdio};
use forkless_tests::filter::{Answer, Refusal, refuse};
use std::os::unix::process::ExitStatusExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts that the host shares with everything that it forks or clones.
#[derive(Default)]
pub(crate) struct Page {
    /// Handlers that ran in the host, and in anything else.
    pub(crate) handled: AtomicU64,
    pub(crate) astray: AtomicU64,
    pub(crate) continued: AtomicU64,
    pub(crate) reaped: AtomicU64,
    pub(crate) copies: AtomicU64,
    pub(crate) by_copies: AtomicU64,
}

/// The process whose handlers may run.
static OWNER: AtomicI32 = AtomicI32::new(0);

pub(crate) fn page() -> &'static Page {
    static PAGE: OnceLock<&'static Page> = OnceLock::new();
    PAGE.get_or_init(|| {
        OWNER.store(observe::pid(), Relaxed);
        // SAFETY: a new mapping of zeroes, which are counts; it is never unmapped.
        unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast::<Page>()
        }
    })
}

extern "C" fn watch(signal: i32) {
    let page = page();
    let count = match signal {
        _ if observe::pid() != OWNER.load(Relaxed) => &page.astray,
        libc::SIGCONT => &page.continued,
        _ => &page.handled,
    };
    count.fetch_add(1, Relaxed);
    // What a careless handler does: the interrupted code must not depend on errno.
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = libc::EXDEV };
}

/// Without SA_RESTART: every interruptible call of the launch path is interrupted.
fn handle(signal: i32) {
    page();
    // SAFETY: the handler makes one system call and counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = watch as *const () as usize;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// The supervisor stops the host now and then.
pub(crate) fn count_continues() {
    handle(libc::SIGCONT);
}

/// For the supervisor: how far the host is.
pub(crate) fn progress(launches: u64) {
    println!("@ {launches}");
}

fn set_timer(timer: libc::c_int, micros: i64) {
    let every = libc::timeval { tv_sec: 0, tv_usec: micros };
    let value = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: reads the timer's value.
    assert_eq!(unsafe { libc::setitimer(timer, &value, std::ptr::null_mut()) }, 0);
}

/// Signals with handlers, from timers and from elsewhere, to whichever thread.
pub(crate) fn signals(done: &AtomicBool) {
    [libc::SIGUSR1, libc::SIGALRM, libc::SIGPROF].into_iter().for_each(handle);
    set_timer(libc::ITIMER_REAL, 3000);
    set_timer(libc::ITIMER_PROF, 5000);
    while !done.load(Relaxed) {
        // SAFETY: to this process, which handles it.
        unsafe { libc::kill(observe::pid(), libc::SIGUSR1) };
        std::thread::sleep(Duration::from_micros(300));
    }
    set_timer(libc::ITIMER_REAL, 0);
    set_timer(libc::ITIMER_PROF, 0);
}

/// Reaps whatever can be reaped.
pub(crate) fn reap(done: &AtomicBool) {
    while !done.load(Relaxed) {
        match foreign::wait(-1, libc::WNOHANG) {
            Ok((pid, _)) if pid > 0 => drop(page().reaped.fetch_add(1, Relaxed)),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Forks the host again and again; each copy launches on its own.
pub(crate) fn fork_host(done: &AtomicBool, shared: &Fixtures) {
    while !done.load(Relaxed) {
        // SAFETY: glibc lets a forked copy allocate; the copy leaves without the host's exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            OWNER.store(observe::pid(), Relaxed);
            let code = if use_copy(shared) { 0 } else { 1 };
            // SAFETY: ends the copy.
            unsafe { libc::_exit(code) };
        }
        assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
        let status = loop {
            match foreign::wait(pid, 0) {
                Err(libc::EINTR) => {}
                answer => break answer.expect("our own child").1,
            }
        };
        page().copies.fetch_add(1, Relaxed);
        if status != 0 {
            shared.tally.wrong(format!("a forked copy ended with {}", std::process::ExitStatus::from_raw(status)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// In a copy, which says nothing by the tally: its lock may have been another thread's at the fork.
fn use_copy(shared: &Fixtures) -> bool {
    let places = &shared.places;
    let code = |code: i32, answer: std::io::Result<std::process::ExitStatus>| {
        page().by_copies.fetch_add(1, Relaxed);
        answer.is_ok_and(|status| status.code() == Some(code))
    };
    let right = code(8, Command::new(places.exits(8)).status())
        && code(3, shared.prepared[3].spawn().and_then(|mut child| child.wait()))
        && code(4, shared.watched[4].launch().and_then(|mut child| child.wait()))
        && Command::new(&places.missing).spawn().is_err()
        // The zygote is the original's.
        && shared.zygote.launch(&shared.prepared[1]).is_err();
    let mut waits = Command::new(&places.echo);
    drop(waits.args(["", "wait"]).stdin(Stdio::piped()).stdout(Stdio::null()).launch());
    let output = Command::new(&places.echo).arg("of a copy").output();
    right && output.is_ok_and(|output| output.stdout == b"of a copy")
}

/// Refuses calls in this thread, for as long as it lives. Launches go on by the documented ways round them; `setsid` is refused
/// to all, for the failures that are expected.
pub(crate) fn filter(which: u64) {
    let no = |call, errno| Refusal::of(call, Answer::Errno(errno));
    let mut refusals = vec![no(libc::SYS_setsid, libc::EPERM)];
    match which % 4 {
        0 => refusals.push(no(libc::SYS_clone3, libc::ENOSYS)),
        1 => refusals.push(no(libc::SYS_close_range, libc::ENOSYS)),
        2 => refusals.extend([no(libc::SYS_pidfd_getfd, libc::EPERM), no(libc::SYS_openat2, libc::ENOSYS)]),
        _ => refusals.extend([no(libc::SYS_clone3, libc::EPERM), no(libc::SYS_close_range, libc::EPERM)]),
    }
    refuse(&refusals).expect("a filter");
}

/// A fault of this name, which the run must find.
pub(crate) fn plant(name: &str) {
    match name {
        // The forms do it.
        "answer" => {}
        "descriptor" => std::mem::forget(std::fs::File::open("/dev/null").expect("a file")),
        "thread" => {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
        }
        "memory" => std::mem::forget(std::hint::black_box(vec![1u8; 64 << 20])),
        "mappings" => (0..1000).for_each(|n| {
            let protection = if n % 2 == 0 { libc::PROT_READ } else { libc::PROT_NONE };
            // SAFETY: a new mapping where the kernel likes.
            unsafe {
                libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
            };
        }),
        "handler" => drop(page().astray.fetch_add(1, Relaxed)),
        // Its parent, which is ours, ends at once; it goes on.
        "orphan" => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "sleep 300 >/dev/null 2>&1 &"]).status().expect("a shell");
        }
        _ => panic!("{name} is no fault"),
    }
}
