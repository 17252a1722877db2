//! Unusual hosts: forked processes, a main thread that has ended, a thread with its own file-descriptor table, a new
//! PID namespace for children.

use crate::elf::Programs;
use crate::foreign;
use crate::launched::{Command, fewer};
use crate::observe::{self, eventually, skip};
use forkless::zygote::{Zygote, ZygoteOptions};
use forkless::{Error, Stdio, Step};
use forkless_core::sys::uapi;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

scenario!(a_forked_process_can_launch);
/// A forked copy of a process that has launched can launch, and ignores the state of the original process.
pub fn a_forked_process_can_launch(_: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(8);
    let mut ours = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn");
    // An orphan of the original's, which runs until the scenario is over.
    let mut orphan = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().expect("spawn");
    let hold = orphan.stdin.take();
    let pidfd = orphan.pidfd().map(|pidfd| pidfd.as_raw_fd());
    drop(orphan);
    assert_eq!(forkless::reap_orphans(), 1);
    in_a_copy(|| {
        // In the copy, the number of the orphan's pidfd may be another's.
        let file = File::open("/dev/null").expect("open");
        if let Some(number) = pidfd {
            // SAFETY: no handle of the copy has this number.
            assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
        }
        forkless::reap_orphans();
        // SAFETY: asks whether a number is open.
        let is_open = |number: i32| unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
        assert!(pidfd.is_none_or(is_open), "the copy has closed what is not its own");
        use_everything(&program);
        eventually("the copy has no orphans", || forkless::reap_orphans() == 0);
        observe::assert_no_orphans();
    });
    // The original process is unchanged.
    ours.stdin.take().expect("a pipe").write_all(b"still here").expect("write");
    assert_eq!(ours.wait_with_output().expect("output").stdout, b"still here");
    drop(hold);
    observe::assert_no_orphans();
}

/// Every way to launch, once; a handle is dropped.
fn use_everything(program: &Path) {
    assert_eq!(Command::new(program).status().expect("status").code(), Some(8));
    assert_eq!(Command::new(program).spawn().expect("spawn").wait().expect("wait").code(), Some(8));
    assert_eq!(Command::new("/bin/echo").arg("x").output().expect("output").stdout, b"x\n");
    assert!(Command::new("/no/such/program").spawn().is_err());
    drop(Command::new(program).launch().expect("launch"));
}

/// Runs `check` in a forked copy; its panic is this one's.
pub fn in_a_copy(check: impl FnOnce()) {
    // SAFETY: glibc lets a forked copy allocate; the copy runs the check and leaves without the original's exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        // SAFETY: ends the copy.
        unsafe { libc::_exit(if answer.is_ok() { 0 } else { 1 }) };
    }
    let mut status = None;
    eventually("the forked copy's end", || {
        status = match foreign::wait(pid, libc::WNOHANG) {
            Ok((found, status)) if found == pid => Some(status),
            _ => None,
        };
        status.is_some()
    });
    assert_eq!(status, Some(0), "the forked copy failed");
}

scenario!(processes_forked_during_launches_can_launch);
/// Copies forked in the middle of other threads' launches and drops.
pub fn processes_forked_during_launches_can_launch(_: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(8);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (program, done) = (&program, &done);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    match thread {
                        0 => drop(Command::new(program).launch().expect("launch")),
                        1 => drop(Command::new(program).stdout(Stdio::piped()).launch().expect("launch")),
                        _ => assert_eq!(Command::new(program).status().expect("status").code(), Some(8)),
                    }
                }
            });
        }
        let answer = std::panic::catch_unwind(|| {
            for _ in 0..fewer(observe::scaled(100)) {
                in_a_copy(|| {
                    use_everything(&program);
                    drop(Command::new(&program).launch().expect("launch"));
                    observe::assert_no_orphans();
                });
            }
        });
        done.store(true, Relaxed);
        answer.expect("the copies");
    });
    observe::assert_no_orphans();
}

scenario!(the_probe_is_right_in_a_storm_of_signals);
/// Processes whose first launch, with all that it finds out, falls into a storm of signals for the whole group: they
/// know the best way all the same.
pub fn the_probe_is_right_in_a_storm_of_signals(_: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(8);
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGUSR1, count_one as *const () as libc::sighandler_t) };
    let calm = std::process::Command::new("/proc/self/exe").arg("hosts::show_route").output().expect("output");
    let calm = String::from_utf8_lossy(&calm.stdout).into_owned();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                // The group is our own (the test made it).
                forkless_tests::process::kill(0, libc::SIGUSR1);
                // Without a pause the thread that gets them does nothing but handle them.
                thread::sleep(Duration::from_micros(1));
            }
        });
        let answer = std::panic::catch_unwind(|| {
            for _ in 0..fewer(observe::scaled(100)) {
                in_a_copy(|| {
                    let answer = Command::new(&program).status();
                    let step = answer.err().and_then(|error| Error::of(&error).map(Error::step));
                    assert_ne!(step, Some(Step::Probe), "a signal is no answer of the kernel's");
                    // Out of the storm.
                    // SAFETY: a group of the copy's own.
                    assert_eq!(unsafe { libc::setpgid(0, 0) }, 0);
                    assert_eq!(route_with_pipe(), calm, "the way of a launch after and without a storm");
                });
            }
        });
        done.store(true, Relaxed);
        answer.expect("the copies");
    });
    assert!(HANDLED.load(Relaxed) > 0);
}

part!(show_route);
/// Tells how launches with a pipe go here.
pub fn show_route(_: &[String]) {
    print!("{}", route_with_pipe());
}

fn route_with_pipe() -> String {
    let mut child = Command::new("/bin/true").stdin(Stdio::piped()).spawn().expect("spawn");
    assert!(child.wait().expect("wait").success());
    format!("{:?}", child.route())
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_one(_: i32) {
    HANDLED.fetch_add(1, Relaxed);
}

scenario!(threads_launch_after_the_main_thread_has_ended);
/// Another thread launches after the main thread, whose descriptors `pidfd_getfd(2)` would give, has ended.
pub fn threads_launch_after_the_main_thread_has_ended(_: &[String]) {
    let main = observe::pid();
    // The kernel is probed while the main thread exists.
    assert!(Command::new("/bin/true").status().expect("status").success());
    thread::spawn(move || {
        eventually("the main thread's end", || observe::state_of(main) == Some('Z'));
        let answer = std::panic::catch_unwind(|| {
            assert!(Command::new("/bin/true").status().expect("status").success());
            let output = Command::new("/bin/echo").arg("x").output().expect("output with pipes");
            assert_eq!(output.stdout, b"x\n");
            let null = File::open("/dev/null").expect("open");
            assert!(Command::new("/bin/true").fd(null, 7).status().expect("status with a descriptor").success());
        });
        std::process::exit(if answer.is_ok() { 0 } else { 1 });
    });
    // SAFETY: ends this thread alone; nothing of it is borrowed by the other.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

scenario!(a_thread_with_its_own_table_passes_its_own_descriptors);
/// A thread that has unshared its descriptor table passes its own descriptors, not the main thread's of the same number.
pub fn a_thread_with_its_own_table_passes_its_own_descriptors(_: &[String]) {
    if !observe::is_kernel_at_least(6, 9) {
        return skip("descriptors of a thread with its own table", "pidfds of threads came with Linux 6.9");
    }
    let wrong = temporary("the main thread's");
    let number = wrong.as_raw_fd();
    let text = thread::spawn(move || {
        // SAFETY: gives this thread a table of its own.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0, "unshare");
        let right = temporary("the launching thread's");
        // SAFETY: replaces the number in this thread's table only.
        assert_eq!(unsafe { libc::dup2(right.as_raw_fd(), number) }, number);
        let mut command = Command::new("/bin/cat");
        // SAFETY: open for as long as this thread runs.
        command.stdin(unsafe { Stdio::fd(number) }).stdout(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        let mut text = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("read");
        child.wait().expect("wait");
        text
    })
    .join()
    .expect("thread");
    assert_eq!(text, "the launching thread's");
    drop(wrong);
}

fn temporary(text: &str) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("write");
    file.seek(SeekFrom::Start(0)).expect("seek");
    file
}

scenario!(launches_into_a_new_pid_namespace);
/// After `unshare(CLONE_NEWPID)` the children are in another pid namespace, where the parent has no number.
pub fn launches_into_a_new_pid_namespace(_: &[String]) {
    if !forkless_tests::process::is_root() {
        return skip("launches into a new pid namespace", "that needs root");
    }
    let programs = Programs::new();
    // Probes, while the probe's child is not the new namespace's first.
    assert!(Command::new(programs.exits(0)).status().expect("status").success());
    // SAFETY: changes the namespace of later children only.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return skip("launches into a new pid namespace", "unshare is refused here");
    }
    // The first child is the namespace's init; as long as it lives others can follow.
    let mut init = Command::new("/bin/sleep").arg("60").spawn().expect("the first child");
    assert_eq!(Command::new("/bin/echo").arg("x").output().expect("output with pipes").stdout, b"x\n");
    let null = File::open("/dev/null").expect("open");
    assert!(Command::new("/bin/true").fd(null, 7).status().expect("status with a descriptor").success());
    init.kill().expect("kill");
    assert!(init.wait_timeout(forkless_tests::patience::limit(20)).expect("wait").is_some());
    observe::assert_no_orphans();
}

scenario!(a_process_with_the_hosts_reused_pid_passes_no_descriptor);
/// After `unshare(CLONE_NEWPID)` another process may have the host's number there. Its descriptors are not passed.
pub fn a_process_with_the_hosts_reused_pid_passes_no_descriptor(_: &[String]) {
    const WHAT: &str = "a stranger with the host's number";
    // SAFETY: a number.
    if unsafe { libc::geteuid() } != 0 {
        return skip(WHAT, "that needs root");
    }
    let number = temporary("the host's");
    let passed = || {
        // SAFETY: open until the end of the scenario.
        let stdin = unsafe { Stdio::fd(number.as_raw_fd()) };
        (&number).seek(SeekFrom::Start(0)).expect("seek");
        let output = Command::new("/bin/cat").stdin(stdin).output().expect("output");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(passed(), "the host's");
    // SAFETY: changes the namespace of later children only.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return skip(WHAT, "unshare is refused here");
    }
    let init = Command::new("/bin/sleep").arg("60").kill_on_drop(true).spawn().expect("the first process");
    let Some(stranger) = stranger(observe::pid(), number.as_raw_fd()) else {
        return skip(WHAT, "no process can have a number of its choice here");
    };
    assert_eq!(passed(), "the host's", "read from a descriptor of that number");
    // SAFETY: our own child, which nobody has reaped.
    assert_eq!(unsafe { libc::kill(stranger, libc::SIGKILL) }, 0);
    // First, since a namespace's first process ends when no other is left.
    foreign::wait(stranger, 0).expect("wait");
    drop(init);
    observe::assert_no_orphans();
}

/// A process of this number in the namespace of our children, with a file of its own at `fd`; its number here.
fn stranger(number: i32, fd: i32) -> Option<i32> {
    let file = temporary("the stranger's");
    let (mut ready, ours) = std::io::pipe().expect("a pipe");
    let args = uapi::clone_args {
        exit_signal: libc::SIGCHLD as u64,
        set_tid: &raw const number as u64,
        set_tid_size: 1,
        // SAFETY: all zeroes is a valid clone_args.
        ..unsafe { std::mem::zeroed() }
    };
    // SAFETY: as fork(2) of a process with one thread; the copy makes system calls alone, and is killed.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<uapi::clone_args>()) } as i32;
    if pid == 0 {
        // SAFETY: descriptors of the copy's own, close-on-exec as before; the first thing that is closed says that it is ready.
        unsafe {
            libc::dup3(file.as_raw_fd(), fd, libc::O_CLOEXEC);
            libc::close(ours.as_raw_fd());
            loop {
                libc::pause();
            }
        }
    }
    drop(ours);
    ready.read_to_end(&mut Vec::new()).expect("the stranger's word");
    (pid > 0).then_some(pid)
}

scenario!(a_forked_process_with_the_same_pid_is_another_process);
/// A copy that is forked into a new pid namespace, where it has the very number of the process it was forked from, is another process:
/// it has no thread that clones, no zygote and no children but its own.
pub fn a_forked_process_with_the_same_pid_is_another_process(_: &[String]) {
    const WHAT: &str = "a copy with the same pid";
    // SAFETY: a number; changes the namespace of later children only.
    if unsafe { libc::geteuid() != 0 || libc::unshare(libc::CLONE_NEWPID) != 0 } {
        return skip(WHAT, "namespaces are refused here");
    }
    in_a_copy(|| {
        assert_eq!(observe::pid(), 1);
        own_proc();
        let in_a_thread = || {
            let mut command = Command::new("/bin/true");
            let launch = || command.parent_death_signal(libc::SIGTERM).status().expect("status").success();
            thread::scope(|scope| assert!(scope.spawn(launch).join().expect("a thread")));
        };
        in_a_thread();
        let zygote = Zygote::start(&ZygoteOptions::new()).expect("a zygote");
        assert!(zygote.pid().is_some());
        // SAFETY: as above.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
        in_a_copy(|| {
            assert_eq!(observe::pid(), 1);
            assert_eq!(zygote.pid(), None, "the zygote is another process's");
            in_a_thread();
        });
    });
}

/// A `/proc` of the calling process's own namespaces.
fn own_proc() {
    let (none, root, proc) = (c"none".as_ptr(), c"/".as_ptr(), c"/proc".as_ptr());
    // SAFETY: mounts of a namespace that is this process's alone.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
        assert_eq!(libc::mount(none, root, std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE, std::ptr::null()), 0);
        assert_eq!(libc::mount(proc, proc, c"proc".as_ptr(), 0, std::ptr::null()), 0);
    }
}
