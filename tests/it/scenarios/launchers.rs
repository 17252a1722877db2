//! What a forked child can do in addition to its plan.

use crate::elf::Programs;
use crate::foreign;
use crate::observe::{self, eventually};
use forkless::{Command, Error, Launcher, Stdio, Step};
use forkless_tests::filter::{Answer, Refusal, refuse};
use forkless_tests::state::errno_after;
use forkless_tests::table::parent::limit_soft;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, thread};

fn forked(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.launcher(Launcher::Fork);
    command
}

/// With a closure.
fn with(mut command: Command, work: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Command {
    // SAFETY: what the closures of this file do is allowed after fork with glibc.
    unsafe { command.pre_exec(work) };
    command
}

/// The step and the errno of an error of the library.
fn failure(command: &mut Command) -> (Step, Option<i32>) {
    let error = command.spawn().expect_err("it should fail");
    let error = Error::of(&error).expect("an error of ours");
    (error.step(), error.errno())
}

fn write(text: &str) -> io::Result<()> {
    // SAFETY: writes these bytes to the child's standard output.
    let written = unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
    if written == text.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Set by a handler of `pthread_atfork(3)`, in the copy.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_fork() {
    FORKED.store(true, Relaxed);
}

scenario!(pre_exec_closures_run_in_order);
/// Closures come in their order, after the rest of the plan, in memory of the child's own, by way of libc's fork.
pub fn pre_exec_closures_run_in_order(_: &[String]) {
    // SAFETY: the handler stores one word.
    unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
    let ignored = observe::ignored_signals() & !(1 << (libc::SIGPIPE - 1));
    let counter = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&counter);
    let mut command = forked("/bin/echo");
    command.arg("program").current_dir("/usr").umask(0o71).setsid(true).stdout(Stdio::piped()).env("ONLY", "child's");
    command.signal_block(libc::SIGUSR2);
    let command = with(command, move || {
        seen.fetch_add(1, Relaxed);
        // SAFETY: the umask is put back by nobody, and looked at by nobody else; the others read.
        let (mask, session) = unsafe { (libc::umask(0o71), libc::getsid(0) == libc::getpid()) };
        let status = fs::read_to_string("/proc/self/status")?;
        let signals =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim().to_owned();
        let environment = std::env::var_os("ONLY").is_none();
        let directory = std::env::current_dir()?;
        write(&format!(
            "{} {mask:o} {session} {} {} {environment} {}\n",
            directory.display(),
            signals("SigBlk:"),
            signals("SigIgn:"),
            FORKED.load(Relaxed),
        ))
    });
    let mut n = 0;
    let mut command = with(command, move || {
        n += 1;
        write(&format!("second {n}\n"))
    });
    for _ in 0..2 {
        let output = command.output().expect("output");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let signals = format!("0000000000000800 {ignored:016x}");
        assert_eq!(text, format!("/usr 71 true {signals} true true\nsecond 1\nprogram\n"));
    }
    assert_eq!(counter.load(Relaxed), 0, "a closure changed the caller's memory");
    assert!(!FORKED.load(Relaxed));
    let prepared = command.prepare().expect("prepare");
    drop(command);
    assert_eq!(prepared.output().expect("output").status.code(), Some(0));
    observe::assert_no_orphans();
}

scenario!(pre_exec_closures_may_fail_panic_or_exit);
/// Errors, panics and endings of closures.
pub fn pre_exec_closures_may_fail_panic_or_exit(_: &[String]) {
    let programs = Programs::new();
    let six = programs.exits(6);
    let denied = || Err(io::Error::from_raw_os_error(libc::EACCES));
    assert_eq!(failure(&mut with(forked(&six), denied)), (Step::PreExec, Some(libc::EACCES)));
    let second = with(with(forked(&six), || Ok(())), denied).spawn().expect_err("the second one's");
    assert_eq!(second.kind(), ErrorKind::PermissionDenied);
    assert!(second.to_string().contains("pre_exec closure 2: Permission denied"), "{second}");
    // As std has it.
    let wordy = || Err(io::Error::other("words do not come over"));
    assert_eq!(failure(&mut with(forked(&six), wordy)), (Step::PreExec, Some(libc::EINVAL)));
    let panics = with(forked(&six), || panic!("on purpose")).spawn().expect_err("a panic");
    assert!(panics.to_string().contains("pre_exec closure 1: it has panicked"), "{panics}");
    // Later forms tell the same.
    let mut late = with(forked(&six), denied).launch().expect("launched");
    assert_eq!(late.wait().expect_err("late").kind(), ErrorKind::PermissionDenied);
    let status = with(forked(&six), denied).status().expect_err("status");
    assert_eq!(status.kind(), ErrorKind::PermissionDenied);
    // If a closure ends the child, that is the child's own end.
    let exits = || std::process::exit(7);
    assert_eq!(with(forked(&six), exits).spawn().expect("spawn").wait().expect("wait").code(), Some(7));
    assert_eq!(with(forked(&six), exits).status().expect("status").code(), Some(7));
    let aborts = || std::process::abort();
    let status = with(forked(&six), aborts).spawn().expect("spawn").wait().expect("wait");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    assert_eq!(with(forked(&six), || Ok(())).status().expect("status").code(), Some(6));
    observe::assert_no_orphans();
}

scenario!(pre_exec_closures_may_do_unusual_things);
/// A closure may close every descriptor, and leave a process behind that never ends: the launch is seen to end all the same,
/// and its failure to have failed.
pub fn pre_exec_closures_may_do_unusual_things(_: &[String]) {
    let programs = Programs::new();
    let close_all = || {
        // SAFETY: the child's own table.
        unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
        Ok(())
    };
    assert_eq!(with(forked(programs.exits(6)), close_all).status().expect("status").code(), Some(6));
    let mut missing = with(forked(programs.path("missing")), close_all);
    assert_eq!(failure(&mut missing), (Step::Exec, Some(libc::ENOENT)));
    let left = Arc::new(AtomicI32::new(0));
    let (mut read, write) = io::pipe().expect("a pipe");
    let mut command = forked(programs.exits(6));
    command.fd(write, 9);
    let mut command = with(command, move || {
        // SAFETY: the copy waits for its end and does nothing else.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                loop {
                    libc::pause();
                }
            }
            left.store(pid, Relaxed);
            libc::write(9, (&raw const pid).cast(), 4);
        }
        Ok(())
    });
    assert_eq!(command.spawn().expect("spawn").wait().expect("wait").code(), Some(6));
    let mut pid = [0; 4];
    io::Read::read_exact(&mut read, &mut pid).expect("a pid");
    // The process that the closure has left behind, which nobody else ends.
    assert!(forkless_tests::process::kill(i32::from_ne_bytes(pid), libc::SIGKILL));
}

scenario!(pre_exec_closures_may_allocate);
/// Closures allocate in the midst of other threads that do.
pub fn pre_exec_closures_may_allocate(_: &[String]) {
    let programs = Programs::new();
    let six = programs.exits(6);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    drop(std::hint::black_box((0..64).map(|n| vec![0u8; n * 97]).collect::<Vec<_>>()));
                }
            });
        }
        for _ in 0..observe::scaled(300) {
            let work = || {
                let all: Vec<String> = (0..100).map(|n| format!("{n}").repeat(n)).collect();
                if all.len() == 100 { Ok(()) } else { Err(io::Error::other("lost")) }
            };
            assert_eq!(with(forked(&six), work).status().expect("status").code(), Some(6));
        }
        done.store(true, Relaxed);
    });
    observe::assert_no_orphans();
}

scenario!(pre_exec_without_fork_is_refused);
/// Closures, and settings that only one launcher has, are refused by name when the plan is made.
pub fn pre_exec_without_fork_is_refused(_: &[String]) {
    for launcher in [None, Some(Launcher::Clone), Some(Launcher::PosixSpawn)] {
        let mut command = with(Command::new("/bin/true"), || Ok(()));
        if let Some(launcher) = launcher {
            command.launcher(launcher);
        }
        for error in [command.prepare().err(), command.spawn().err(), command.status().err(), command.output().err()] {
            let error = error.expect("a refusal");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(text.contains("launcher(Launcher::Fork)") && text.contains("setsid(true)"), "{text}");
        }
        // The same command with the setting.
        assert!(command.launcher(Launcher::Fork).status().expect("status").success());
    }
    observe::assert_no_orphans();
}

scenario!(a_child_killed_early_is_reported);
/// A child that is killed before it can say anything is no launch, and not waited for for ever.
pub fn a_child_killed_early_is_reported(_: &[String]) {
    let programs = Programs::new();
    let fifo = programs.fifo("hold");
    let mut command = forked(programs.exits(6));
    command.fd(Stdio::open(&fifo, libc::O_RDONLY, 0), 5);
    let killer = thread::spawn(|| {
        eventually("a child asleep before exec", || {
            // Our own child, which nobody has reaped.
            observe::opening_child().is_some_and(|pid| forkless_tests::process::kill(pid, libc::SIGKILL))
        });
    });
    let error = command.spawn().expect_err("killed");
    killer.join().expect("killer");
    assert_eq!(Error::of(&error).map(|error| (error.step(), error.errno())), Some((Step::Open, None)), "{error}");
    observe::assert_no_orphans();
}

extern "C" fn die() {
    // SAFETY: ends the process that calls it.
    unsafe { libc::kill(observe::pid(), libc::SIGKILL) };
}

scenario!(a_child_killed_at_once_is_reported);
/// A child that is killed before its robust list is registered never reports: the parent finds that it is gone.
pub fn a_child_killed_at_once_is_reported(_: &[String]) {
    // SAFETY: the handler makes system calls alone, in the copy.
    unsafe { libc::pthread_atfork(None, None, Some(die)) };
    let error = observe::within("a spawn whose child is killed", || forked("/bin/true").spawn().expect_err("killed"));
    assert_eq!(Error::of(&error).map(|error| (error.step(), error.errno())), Some((Step::Clone, None)), "{error}");
    observe::assert_no_orphans();
}

scenario!(a_forked_child_that_fails_is_visible);
/// A forked child that fails raises SIGCHLD, as std's does, and the error is the launch's all the same.
pub fn a_forked_child_that_fails_is_visible(_: &[String]) {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: i32) {
        SEEN.fetch_add(1, Relaxed);
    }
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGCHLD, count as *const () as libc::sighandler_t) };
    assert_eq!(failure(&mut forked("/no/such/program")).1, Some(libc::ENOENT));
    eventually("SIGCHLD", || SEEN.load(Relaxed) == 1);
    // SAFETY: back to the default.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    assert_eq!(failure(&mut forked("/no/such/program")).1, Some(libc::ENOENT));
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    assert_eq!(foreign::wait(-1, libc::WNOHANG), Err(libc::ECHILD));
}

scenario!(a_forked_child_is_waited_for_without_free_descriptors);
/// Where neither robust futexes nor a descriptor for `/proc` can be had, a child that is slow before exec is waited for all
/// the same: else it is believed to run the program while it still plays its plan.
pub fn a_forked_child_is_waited_for_without_free_descriptors(_: &[String]) {
    let programs = Programs::new();
    let good = programs.exits(6);
    let refused = Refusal::of(libc::SYS_set_robust_list, Answer::Errno(libc::ENOSYS));
    refuse(&[refused]).expect("a filter");
    limit_soft(libc::RLIMIT_NOFILE, 64).expect("a limit");
    let mut full = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        full.push(file);
    }
    for session in [false, true] {
        let slow = |program: &Path| {
            let mut command = with(forked(program), || {
                thread::sleep(Duration::from_millis(30));
                Ok(())
            });
            command.pidfd(false);
            if session {
                command.setsid(true);
            }
            command
        };
        assert_eq!(failure(&mut slow(Path::new("/no/such/program"))), (Step::Exec, Some(libc::ENOENT)));
        let mut child = slow(&good).spawn().expect("spawn");
        assert_eq!(child.wait().expect("wait").code(), Some(6));
    }
    // The program itself is not waited for.
    let mut sleeper = forked("sleep");
    let mut child =
        observe::within("a spawn of a program that sleeps", || sleeper.arg("100").pidfd(false).spawn().expect("spawn"));
    assert_eq!(child.try_wait().expect("it runs"), None);
    child.kill().expect("kill");
    assert_eq!(child.wait().expect("wait").signal(), Some(libc::SIGKILL));
    drop(full);
    observe::assert_no_orphans();
}

scenario!(a_panic_does_not_leave_the_child);
/// Control: a closure that unwound into the caller's copy would go on with the caller's work. `catch_unwind` here stands for
/// a caller that survives panics.
pub fn a_panic_does_not_leave_the_child(_: &[String]) {
    let me = observe::pid();
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let programs = Programs::new();
        with(forked(programs.exits(6)), || panic!("on purpose")).status().map(|_| ())
    }));
    // A copy that came here would write its own file.
    let mark = Path::new("/proc/self").read_link().expect("one's own pid");
    assert_eq!(mark.to_string_lossy().parse(), Ok(me), "a copy of the caller goes on with its work");
    assert!(answer.expect("no panic in the caller").is_err());
    observe::assert_no_orphans();
}

scenario!(
    the_first_launch_may_be_the_init_of_a_pid_namespace,
    the_first_launch_under_a_filter_may_be_the_init_of_a_pid_namespace["filtered"]
);
/// After unshare(2) of a PID namespace the first launch makes its init, with or without a seccomp filter.
pub fn the_first_launch_may_be_the_init_of_a_pid_namespace(arguments: &[String]) {
    // SAFETY: of this process, which has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) } != 0 {
        return observe::skip("the init of a PID namespace", &io::Error::last_os_error().to_string());
    }
    if !arguments.is_empty() {
        refuse(&[Refusal::of(libc::SYS_close_range, Answer::Errno(libc::EPERM))]).expect("a filter");
    }
    let mut init = Command::new("sh");
    init.args(["-c", "echo $$; read wait"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut started = None;
    let errno = errno_after(libc::EXDEV, || started = Some(init.spawn()));
    assert_eq!(errno, libc::EXDEV);
    let mut init = started.expect("an answer").expect("the init");
    assert_eq!(init.lines().next().expect("a line").expect("read").1, b"1");
    let second = Command::new("sh").args(["-c", "echo $$"]).output().expect("a second process");
    assert_ne!(second.stdout, b"1\n");
    init.wait().expect("wait");
    // The kernel creates no process in a namespace whose init has ended.
    let error = Command::new("true").spawn().expect_err("a process without an init");
    assert_eq!(Error::of(&error).and_then(Error::errno), Some(libc::ENOMEM), "{error}");
}
