//! Ctrl-Z: children that are stopped between clone and exec, and a process group that launches while it is stopped and
//! continued.

use crate::elf::Programs;
use crate::foreign;
use crate::launched::Command;
use crate::observe::{self, Dice, eventually};
use forkless::{Child, Stdio};
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_one(_: i32) {
    HANDLED.fetch_add(1, Relaxed);
}

fn handle(signal: i32) {
    // SAFETY: the handler only counts.
    unsafe { libc::signal(signal, count_one as *const () as libc::sighandler_t) };
}

/// Stops the one child that is not a zombie as soon as it is asleep (in `open(2)` of a FIFO); gives its pid.
fn stop_the_child() -> i32 {
    let mut pid = 0;
    eventually("a child asleep before exec", || {
        pid = observe::opening_child().unwrap_or(0);
        pid != 0
    });
    signal(pid, libc::SIGSTOP);
    eventually("the child stopped", || observe::state_of(pid) == Some('T'));
    pid
}

fn signal(pid: i32, signal: i32) {
    // Our own child, which nobody has reaped.
    forkless_tests::process::kill(pid, signal);
}

/// Lets a child that is held by a FIFO go on, once it runs.
fn open_writing(fifo: &Path) {
    drop(OpenOptions::new().write(true).open(fifo).expect("open"));
}

/// A command whose child is held before exec until someone opens the FIFO for writing.
fn held(program: &Path, fifo: &Path) -> forkless::Command {
    let mut command = Command::new(program);
    command.fd(Stdio::open(fifo, libc::O_RDONLY, 0), 5);
    command
}

scenario!(spawn_does_not_wait_for_a_stopped_child, spawn_does_not_wait_for_a_stopped_child_by_fork["launcher=fork"]);
/// `spawn` does not wait for a child that is stopped before exec; it is accounted for when it goes on. Nor does `wait_spawn`.
pub fn spawn_does_not_wait_for_a_stopped_child(_: &[String]) {
    let programs = Programs::new();
    let (good, missing) = (programs.exits(6), programs.path("missing"));
    for n in 0..12 {
        let fifo = programs.fifo(&format!("hold-{n}"));
        let mut command = held(if n % 3 == 2 { &missing } else { &good }, &fifo);
        if n % 2 == 1 {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        }
        let stopper = thread::spawn(stop_the_child);
        let mut spawn = || {
            if n < 6 {
                return command.spawn();
            }
            let mut child = command.launch_holding()?;
            child.wait_spawn().map(|()| child)
        };
        let mut child = observe::within("a spawn whose child is stopped", || spawn().expect("spawn"));
        let pid = stopper.join().expect("stopped");
        assert_eq!(child.id() as i32, pid);
        assert_eq!(observe::state_of(pid), Some('T'), "the child is still stopped");
        assert!(!child.wait_exec_timeout(Duration::from_millis(20)).expect("no failure yet"));
        assert!(child.try_wait().expect("no failure yet").is_none());
        drop(command);
        // Others can be launched meanwhile.
        assert_eq!(Command::new(&good).status().expect("status").code(), Some(6));
        signal(pid, libc::SIGCONT);
        open_writing(&fifo);
        if n % 3 == 2 {
            assert_eq!(child.wait().expect_err("a late failure").kind(), std::io::ErrorKind::NotFound);
        } else {
            child.wait_exec().expect("exec");
            assert_eq!(child.wait().expect("wait").code(), Some(6));
        }
    }
    observe::assert_no_orphans();
}

scenario!(
    spawn_does_not_wait_for_a_stopped_child_while_signals_come,
    spawn_does_not_wait_for_a_stopped_child_among_signals_by_fork["launcher=fork"]
);
/// The same while a signal handler runs every millisecond.
pub fn spawn_does_not_wait_for_a_stopped_child_while_signals_come(_: &[String]) {
    let programs = Programs::new();
    let fifo = programs.fifo("hold");
    handle(libc::SIGALRM);
    let every = libc::timeval { tv_sec: 0, tv_usec: 1000 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: reads the timer's value.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) }, 0);
    let stopper = thread::spawn(move || {
        // The signals are for the thread that launches.
        // SAFETY: changes this thread's mask by an initialised set.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGALRM);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        stop_the_child()
    });
    let mut child = held(&programs.exits(6), &fifo).spawn().expect("spawn returns though the child is stopped");
    let pid = stopper.join().expect("stopped");
    assert_eq!(observe::state_of(pid), Some('T'), "the child is still stopped");
    signal(pid, libc::SIGCONT);
    open_writing(&fifo);
    assert_eq!(child.wait().expect("wait").code(), Some(6));
    assert!(HANDLED.load(Relaxed) > 0);
}

scenario!(posix_spawn_waits_for_a_stopped_child);
/// `posix_spawn`, which waits as vfork does, is held for as long as its child is stopped.
/// Negative control: `posix_spawn` does wait.
pub fn posix_spawn_waits_for_a_stopped_child(_: &[String]) {
    let programs = Programs::new();
    let (program, fifo) = (programs.exits(6), programs.fifo("hold"));
    let returned = AtomicBool::new(false);
    thread::scope(|scope| {
        let spawner = scope.spawn(|| {
            let pid = foreign::posix_spawn(&program, Some(&fifo)).expect("posix_spawn");
            returned.store(true, Relaxed);
            foreign::wait(pid, 0).expect("wait")
        });
        let pid = stop_the_child();
        // Its way is free, and still it does not return, however long one waits.
        let writer = scope.spawn(|| open_writing(&fifo));
        thread::sleep(Duration::from_millis(200));
        assert!(!returned.load(Relaxed), "posix_spawn returned though its child was stopped before exec");
        signal(pid, libc::SIGCONT);
        writer.join().expect("writer");
        assert_eq!(spawner.join().expect("spawner"), (pid, 6 << 8));
    });
}

scenario!(
    a_stopped_and_continued_group_launches,
    a_stopped_and_continued_group_launches_by_other_launchers["launcher=fork"]["launcher=posix_spawn"]
);
/// A group that launches all the time while it, or only its children, are stopped and continued. Every stop is followed
/// by a continue, so in the end nothing may be left stopped.
pub fn a_stopped_and_continued_group_launches(_: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(6);
    handle(libc::SIGTSTP);
    let stopper = Stopper::start();
    let done = AtomicBool::new(false);
    let launched = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (program, done, launched) = (&program, &done, &launched);
            scope.spawn(move || {
                let mut n = thread;
                while !done.load(Relaxed) {
                    one_launch(program, n);
                    n += 1;
                    launched.fetch_add(1, Relaxed);
                }
            });
        }
        let own = scope.spawn(|| stop_only_children(stopper.pid, &done));
        thread::sleep(observe::storm_time());
        // However late the stopper has begun.
        eventually("a SIGTSTP", || HANDLED.load(Relaxed) > 0);
        stopper.end();
        done.store(true, Relaxed);
        own.join().expect("stopper");
    });
    eprintln!("{} launches, {} SIGTSTPs handled", launched.load(Relaxed), HANDLED.load(Relaxed));
    observe::assert_no_orphans();
}

fn one_launch(program: &Path, n: usize) {
    let mut command = Command::new(program);
    if n.is_multiple_of(2) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    }
    let status = match n / 2 % 4 {
        0 => command.spawn().and_then(|mut child| wait_running(&mut child)),
        1 => command.launch().and_then(|mut child| wait_running(&mut child)),
        2 => command.status(),
        _ => command.output().map(|output| output.status),
    };
    assert_eq!(status.expect("a launch amid stops").code(), Some(6));
}

/// Waits for a child that must end; reports its state if it does not.
fn wait_running(child: &mut Child) -> std::io::Result<std::process::ExitStatus> {
    match child.wait_timeout(forkless_tests::patience::limit(20))? {
        Some(status) => Ok(status),
        None => panic!("pid {} does not end; state {:?}", child.id(), observe::state_of(child.id() as i32)),
    }
}

/// Stops and continues children of this process, but the stopper, each by a pidfd, until `done`.
fn stop_only_children(stopper: i32, done: &AtomicBool) {
    let mut dice = Dice::new(11);
    while !done.load(Relaxed) {
        for pid in observe::children().into_iter().filter(|&pid| pid != stopper) {
            // SAFETY: makes a descriptor, or fails.
            let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
            // Still our child after the pidfd was made: then the pidfd is that child's.
            if pidfd >= 0 && observe::children().contains(&pid) {
                let send = |signal: i32| forkless_core::sys::pidfd_send_signal(pidfd, signal);
                let _ = send(libc::SIGSTOP);
                thread::sleep(Duration::from_micros(dice.below(20_000)));
                let _ = send(libc::SIGCONT);
            }
            // SAFETY: ours.
            unsafe { libc::close(pidfd) };
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// A process outside the group that stops and continues all of it.
struct Stopper {
    pid: i32,
}

impl Stopper {
    /// Must be called while there is one thread only.
    fn start() -> Self {
        let group = observe::pid();
        // SAFETY: the child makes system calls only, and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: moves the child out of the group, and lets it die with its parent.
            unsafe {
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            handle(libc::SIGTERM);
            Self::send(group);
        }
        assert!(pid > 0, "fork");
        Self { pid }
    }

    fn send(group: i32) -> ! {
        let mut dice = Dice::new(5);
        let begun = Instant::now();
        while HANDLED.load(Relaxed) == 0 && begun.elapsed() < Duration::from_secs(600) {
            let stop = if dice.below(3) == 0 { libc::SIGSTOP } else { libc::SIGTSTP };
            // The group is our parent's, which lives as long as we do.
            forkless_tests::process::kill(-group, stop);
            thread::sleep(Duration::from_micros(dice.below(20_000)));
            forkless_tests::process::kill(-group, libc::SIGCONT);
            thread::sleep(Duration::from_micros(dice.below(3000)));
        }
        // SAFETY: ends the copy without the original's exit handlers.
        unsafe { libc::_exit(0) }
    }

    /// After the last continue.
    fn end(&self) {
        signal(self.pid, libc::SIGTERM);
        assert_eq!(foreign::wait(self.pid, 0), Ok((self.pid, 0)));
        assert!(fs::metadata(format!("/proc/{}", self.pid)).is_err());
    }
}
