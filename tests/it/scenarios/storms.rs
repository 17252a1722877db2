//! Launches amid signals, kills and busy threads.

use crate::elf::Programs;
use crate::foreign;
use crate::launched::Command;
use crate::observe::{self, Dice};
use forkless::{Error, Stdio};
use forkless_core::sys::{self, uapi};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The process whose handlers may run.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Handlers run by the owner.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

/// Handlers run by anyone else: counted where a copy of the owner's memory counts too.
static ASTRAY: AtomicPtr<AtomicUsize> = AtomicPtr::new(std::ptr::null_mut());

fn count_astray() -> &'static AtomicUsize {
    // SAFETY: set before there was a handler, and never unmapped.
    unsafe { &*ASTRAY.load(Relaxed) }
}

/// How often a handler has run in a child.
pub(crate) fn astray() -> usize {
    count_astray().load(Relaxed)
}

extern "C" fn watch(_: i32) {
    let count = if observe::pid() == OWNER.load(Relaxed) { &HANDLED } else { count_astray() };
    count.fetch_add(1, Relaxed);
    // What a careless handler does: the interrupted code must not depend on errno.
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = libc::EXDEV };
}

pub(crate) fn handle(signal: i32) {
    OWNER.store(observe::pid(), Relaxed);
    if ASTRAY.load(Relaxed).is_null() {
        // SAFETY: a new mapping of zeroes, which is a count.
        let word = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(word, libc::MAP_FAILED);
        ASTRAY.store(word.cast(), Relaxed);
    }
    // SAFETY: the handler makes one system call and counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = watch as *const () as usize;
        // Without SA_RESTART: every interruptible call of the launch path is interrupted.
        action.sa_flags = 0;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

pub(crate) fn start_timer(timer: libc::c_int, micros: i64) {
    let every = libc::timeval { tv_sec: 0, tv_usec: micros };
    let value = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: reads the timer's value.
    assert_eq!(unsafe { libc::setitimer(timer, &value, std::ptr::null_mut()) }, 0);
}

scenario!(
    launches_succeed_in_a_storm_of_signals,
    launches_succeed_in_a_storm_of_signals_by_other_launchers["launcher=fork"]["launcher=posix_spawn"]
);
/// Every launch is right while signals with handlers pour in, and no handler runs in a child.
pub fn launches_succeed_in_a_storm_of_signals(_: &[String]) {
    let programs = Programs::new();
    let missing = programs.path("missing");
    for signal in [libc::SIGUSR1, libc::SIGALRM, libc::SIGPROF] {
        handle(signal);
    }
    start_timer(libc::ITIMER_REAL, 700);
    start_timer(libc::ITIMER_PROF, 1000);
    let done = AtomicBool::new(false);
    // Made before there are children: one of another thread would keep it open for writing.
    let nine = programs.exits(9);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (nine, missing, done) = (&nine, &missing, &done);
            scope.spawn(move || {
                let mut n = thread;
                while !done.load(Relaxed) {
                    one_right_launch(nine, missing, n);
                    n += 1;
                }
            });
        }
        let sender = scope.spawn(|| {
            while !done.load(Relaxed) {
                // To this process, which handles it.
                forkless_tests::process::kill(observe::pid(), libc::SIGUSR1);
                // Without a pause the thread that gets them does nothing but handle them.
                thread::sleep(Duration::from_micros(50));
            }
        });
        thread::sleep(observe::storm_time());
        done.store(true, Relaxed);
        sender.join().expect("sender");
    });
    start_timer(libc::ITIMER_REAL, 0);
    start_timer(libc::ITIMER_PROF, 0);
    eprintln!("{} handlers ran", HANDLED.load(Relaxed));
    assert!(HANDLED.load(Relaxed) > 100, "hardly a handler ran, so nothing was tested");
    assert_eq!(astray(), 0, "handlers that ran in a child");
    observe::assert_no_orphans();
}

fn one_right_launch(nine: &Path, missing: &Path, n: usize) {
    match n % 6 {
        0 => assert_eq!(Command::new(nine).status().expect("status").code(), Some(9)),
        1 => assert_eq!(Command::new(nine).spawn().expect("spawn").wait().expect("wait").code(), Some(9)),
        2 => assert_eq!(Command::new(nine).launch().expect("launch").wait().expect("wait").code(), Some(9)),
        3 => assert_eq!(Command::new(nine).output().expect("output").status.code(), Some(9)),
        4 => {
            let mut command = Command::new(nine);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            assert_eq!(command.spawn().expect("spawn").wait().expect("wait").code(), Some(9));
        }
        _ => {
            let error = Command::new(missing).spawn().expect_err("missing");
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

scenario!(a_handler_that_runs_in_a_child_is_detected);
/// The check of the handler is not blind: a child that keeps the handlers runs one, and is seen.
/// Negative control: a handler that runs in a child is detected.
pub fn a_handler_that_runs_in_a_child_is_detected(_: &[String]) {
    unsafe extern "C-unwind" fn wait_for_signal(_: *mut u64) -> ! {
        while astray() == 0 {
            std::hint::spin_loop();
        }
        sys::exit(0)
    }
    handle(libc::SIGUSR1);
    let mut stack = vec![0u64; 8192];
    let args = uapi::clone_args {
        flags: uapi::CLONE_VM as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.as_mut_ptr() as u64,
        stack_size: (stack.len() * 8) as u64,
        // SAFETY: all zeroes is a valid clone_args.
        ..unsafe { std::mem::zeroed() }
    };
    // SAFETY: the stack is the child's own until it is reaped below; the entry reads one atomic.
    let pid = unsafe { sys::clone3_call(&args, 64, wait_for_signal, stack.as_mut_ptr()) }.expect("clone3");
    // Our own child.
    forkless_tests::process::kill(pid, libc::SIGUSR1);
    foreign::wait(pid, 0).expect("wait");
    assert_eq!(astray(), 1, "a handler in a child was not seen");
}

scenario!(
    killed_children_do_not_slow_down_later_launches,
    killed_children_do_not_slow_down_later_launches_by_other_launchers["launcher=fork"]["launcher=posix_spawn"]
);
/// Children killed at any moment, by signals that the parent handles: each launch ends somehow and in time, and later
/// launches still go the best way.
pub fn killed_children_do_not_slow_down_later_launches(_: &[String]) {
    let programs = Programs::new();
    let nine = programs.exits(9);
    handle(libc::SIGUSR1);
    let best = |piped: bool| {
        let mut command = Command::new(&nine);
        if piped {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().expect("spawn");
        let route = child.route();
        assert_eq!(child.wait().expect("wait").code(), Some(9));
        route
    };
    let before = [best(false), best(true)];
    let done = AtomicBool::new(false);
    let (killed, unstarted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..3 {
            let (nine, done, killed, unstarted) = (&nine, &done, &killed, &unstarted);
            scope.spawn(move || {
                let mut n = thread;
                while !done.load(Relaxed) {
                    n += 1;
                    match launch_to_be_killed(nine, n) {
                        Some(true) => {
                            killed.fetch_add(1, Relaxed);
                        }
                        Some(false) => {
                            unstarted.fetch_add(1, Relaxed);
                        }
                        None => {}
                    }
                }
            });
        }
        let deadline = Instant::now() + observe::storm_time();
        while Instant::now() < deadline {
            // To the whole group: we handle it, the children, in which no handler is left, die of it.
            // The group is our own (the test made it).
            forkless_tests::process::kill(0, libc::SIGUSR1);
            thread::yield_now();
        }
        done.store(true, Relaxed);
    });
    let (killed, unstarted) = (killed.load(Relaxed), unstarted.load(Relaxed));
    eprintln!("{killed} children killed after exec, {unstarted} before");
    assert!(killed + unstarted > 0, "no child was killed, so nothing was tested");
    assert_eq!(astray(), 0, "handlers that ran in a child");
    assert_eq!(before, [best(false), best(true)], "the way of a launch before and after children were killed");
    observe::assert_no_orphans();
}

/// Was the program killed (true), the child before it (false), or nothing?
fn launch_to_be_killed(program: &Path, n: usize) -> Option<bool> {
    let mut command = Command::new(program);
    if n.is_multiple_of(2) {
        command.stdin(Stdio::piped());
    }
    let answer = match n / 2 % 3 {
        0 => command.spawn().and_then(|mut child| child.wait()),
        1 => command.launch().and_then(|mut child| child.wait()),
        _ => command.status(),
    };
    match answer {
        Ok(status) if status.code() == Some(9) => None,
        Ok(status) => {
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGUSR1));
            Some(true)
        }
        Err(error) => {
            assert!(Error::of(&error).is_some(), "{error}");
            assert!(error.to_string().contains("killed"), "{error}");
            Some(false)
        }
    }
}

scenario!(
    launches_succeed_among_busy_threads,
    launches_succeed_among_busy_threads_by_other_launchers["launcher=fork"]["launcher=posix_spawn"]
);
/// Launches give the right answers while other threads fault memory, open and close descriptors, and begin and end.
pub fn launches_succeed_among_busy_threads(_: &[String]) {
    let programs = Programs::new();
    let fds = observe::open_fds();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3 {
            let done = &done;
            scope.spawn(move || {
                let mut n = 0;
                while !done.load(Relaxed) {
                    let text = format!("{thread}:{n}");
                    let output =
                        Command::new("/usr/bin/printf").args(["%s-%s", &text, &text]).output().expect("output");
                    assert!(output.status.success());
                    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{text}-{text}"));
                    n += 1;
                }
            });
        }
        scope.spawn(|| fault_memory(&done));
        scope.spawn(|| juggle_descriptors(&done));
        scope.spawn(|| launch_and_end(&programs.exits(9), &done));
        thread::sleep(observe::storm_time());
        done.store(true, Relaxed);
    });
    assert_eq!(observe::open_fds(), fds);
    observe::assert_no_orphans();
}

fn fault_memory(done: &AtomicBool) {
    const LENGTH: usize = 4 << 20;
    while !done.load(Relaxed) {
        // SAFETY: a new mapping, written inside its bounds, protected, and unmapped by nobody else.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), LENGTH, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            for page in (0..LENGTH).step_by(4096) {
                at.cast::<u8>().add(page).write_volatile(1);
            }
            libc::madvise(at, LENGTH / 2, libc::MADV_DONTNEED);
            libc::mprotect(at, LENGTH / 4, libc::PROT_READ);
            libc::munmap(at, LENGTH);
        }
    }
}

fn juggle_descriptors(done: &AtomicBool) {
    let mut dice = Dice::new(3);
    let mut held = Vec::new();
    while !done.load(Relaxed) {
        // SAFETY: descriptors that are this function's own.
        unsafe {
            let fd = if dice.below(2) == 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR)
            } else {
                libc::fcntl(2, libc::F_DUPFD, dice.below(900) as i32)
            };
            assert!(fd >= 0, "descriptor");
            held.push(fd);
            if held.len() > 40 {
                libc::close(held.swap_remove(dice.below(40) as usize));
            }
        }
    }
    for fd in held {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// Threads that launch and end at once; their children, still running perhaps, are waited for by another.
fn launch_and_end(program: &Path, done: &AtomicBool) {
    let (sender, receiver) = mpsc::channel();
    while !done.load(Relaxed) {
        thread::scope(|scope| {
            for _ in 0..4 {
                let sender = sender.clone();
                scope.spawn(move || {
                    let mut command = Command::new(program);
                    sender.send(command.stdin(Stdio::piped()).launch().expect("launch")).expect("send");
                });
            }
        });
        for mut child in receiver.try_iter() {
            assert_eq!(child.wait().expect("wait").code(), Some(9));
        }
    }
}
