//! Parent-death signals, with threads other than the main thread: each child belongs to a thread of its own, which lives as long as
//! the child.

use crate::creator::{assert_no_parents, parents};
use crate::elf::Programs;
use crate::hosts::in_a_copy;
use crate::observe::{self, eventually, skip};
use forkless::{Child, Command, Error, Stdio, Step};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Which child dies with which thread.
#[derive(Clone, Copy)]
enum With {
    Process,
    Thread,
}

/// A `cat` with pipes on both sides.
fn cat(with: With) -> Child {
    let mut command = Command::new("/bin/cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    match with {
        With::Process => command.parent_death_signal(libc::SIGKILL),
        With::Thread => command.thread_death_signal(libc::SIGKILL),
    };
    command.spawn().expect("spawn")
}

/// What a thread gives that has ended, for the kernel too.
fn in_thread<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        // SAFETY: a number.
        let number = unsafe { libc::gettid() };
        (number, act())
    });
    let (number, answer) = thread.join().expect("a thread");
    eventually("the thread's end", || fs::metadata(format!("/proc/self/task/{number}")).is_err());
    answer
}

/// Says something through a `cat` and ends it: one that has been killed says nothing more.
fn assert_lives(mut cat: Child) {
    cat.stdin.take().expect("a pipe").write_all(b"alive").expect("write");
    let output = cat.wait_with_output().expect("output");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"alive"[..]));
}

scenario!(a_child_survives_the_thread_that_launched_it);
/// The launching thread ends; a child of the kernel's own rule, launched by it too, shows that this is noticed.
/// With a negative control: the kernel's own rule.
pub fn a_child_survives_the_thread_that_launched_it(_: &[String]) {
    for _ in 0..observe::scaled(20) {
        let (lives, mut dies) = in_thread(|| (cat(With::Process), cat(With::Thread)));
        assert_eq!(dies.wait().expect("wait").signal(), Some(libc::SIGKILL), "the child that goes with the thread");
        assert_lives(lives);
    }
    // The first thread needs no other.
    assert_lives(cat(With::Process));
    assert_no_parents();
    observe::assert_no_orphans();
}

scenario!(a_child_gets_the_signal_when_the_process_ends);
/// The process ends, of itself or not, after the thread that launched.
pub fn a_child_gets_the_signal_when_the_process_ends(_: &[String]) {
    // SAFETY: orphaned descendants become children of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    for killed in [false, true] {
        let mut host = process::Command::new("/proc/self/exe")
            .arg("death::host")
            .stdin(process::Stdio::piped())
            .stdout(process::Stdio::piped())
            .spawn()
            .expect("a host");
        let mut line = String::new();
        BufReader::new(host.stdout.take().expect("a pipe")).read_line(&mut line).expect("the child's number");
        let child: i32 = line.trim().parse().expect("a number");
        assert!(observe::state_of(child).is_some_and(|state| state != 'Z'), "the child before its host's end");
        if killed {
            host.kill().expect("kill");
        }
        drop(host.stdin.take());
        host.wait().expect("wait");
        let mut status = 0;
        // SAFETY: the kernel writes a status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(process::ExitStatus::from_raw(status).signal(), Some(libc::SIGUSR1), "killed: {killed}");
    }
}

part!(host);
/// The host of [`a_child_gets_the_signal_when_the_process_ends`]: ends when its standard input does.
pub fn host(_: &[String]) {
    let child = in_thread(|| {
        let mut command = Command::new("/bin/sleep");
        command.arg("100").stdin(Stdio::null()).stdout(Stdio::null());
        command.signal_default(libc::SIGUSR1).parent_death_signal(libc::SIGUSR1).spawn().expect("spawn")
    });
    println!("{}", child.id());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::mem::forget(child);
}

scenario!(a_sandbox_ends_with_the_caller_that_made_it);
/// A sandbox ends with its caller, also if a forked copy of the caller lives on and has its descriptors.
pub fn a_sandbox_ends_with_the_caller_that_made_it(_: &[String]) {
    // SAFETY: orphaned descendants become children of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    for killed in [false, true] {
        let mut host = process::Command::new("/proc/self/exe")
            .arg("death::sandbox_host")
            .stdin(process::Stdio::piped())
            .stdout(process::Stdio::piped())
            .spawn()
            .expect("a host");
        let mut line = String::new();
        BufReader::new(host.stdout.take().expect("a pipe")).read_line(&mut line).expect("the numbers");
        let numbers: Vec<i32> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [init, copy] = numbers[..] else {
            eprintln!("SKIPPED: no sandbox of namespaces here");
            host.wait().expect("wait");
            return;
        };
        if killed {
            host.kill().expect("kill");
        }
        drop(host.stdin.take());
        host.wait().expect("wait");
        // Linux before 6.5 has no SO_PEERPIDFD: there the last copy counts.
        // SAFETY: a signal to a process of this test.
        let end_copy = || unsafe { libc::kill(copy, libc::SIGKILL) };
        if !has_peer_pidfd() {
            end_copy();
        }
        let mut status = 0;
        // SAFETY: the kernel writes a status.
        assert_eq!(unsafe { libc::waitpid(init, &raw mut status, 0) }, init);
        assert_eq!(process::ExitStatus::from_raw(status).code(), Some(137), "killed: {killed}");
        end_copy();
    }
}

/// Whether a socket tells a pidfd of its maker.
fn has_peer_pidfd() -> bool {
    const SO_PEERPIDFD: i32 = 77;
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let (mut pidfd, mut length) = (-1, 4);
    // SAFETY: the kernel writes a number.
    let answer = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&one);
        libc::getsockopt(fd, libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut pidfd).cast(), &raw mut length)
    };
    answer == 0
}

part!(sandbox_host);
/// The host of [`a_sandbox_ends_with_the_caller_that_made_it`]: ends when its standard input does.
pub fn sandbox_host(_: &[String]) {
    let launched = forkless::Sandbox::new().prepare().and_then(|sandbox| {
        let mut command = Command::new("/bin/sleep");
        command.arg("100").stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/").sandbox(&sandbox).spawn()
    });
    let Ok(child) = launched else { return println!() };
    // SAFETY: the copy only waits.
    let copy = unsafe { libc::fork() };
    if copy == 0 {
        loop {
            std::thread::park();
        }
    }
    println!("{} {copy}", child.id());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::mem::forget(child);
}

scenario!(a_program_does_not_start_when_its_host_has_died);
/// A host that dies before its child asks for the signal would never send it: the program does not start.
pub fn a_program_does_not_start_when_its_host_has_died(_: &[String]) {
    // SAFETY: orphaned descendants become children of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let programs = Programs::new();
    let (fifo, mark) = (programs.fifo("hold"), programs.path("mark"));
    let mut host = process::Command::new("/proc/self/exe")
        .arg("death::held_host")
        .args([&fifo, &mark])
        .stdin(process::Stdio::piped())
        .stdout(process::Stdio::piped())
        .spawn()
        .expect("a host");
    let mut line = String::new();
    BufReader::new(host.stdout.take().expect("a pipe")).read_line(&mut line).expect("the child's number");
    let child: i32 = line.trim().parse().expect("a number");
    host.kill().expect("kill");
    host.wait().expect("wait");
    let _open = File::options().read(true).write(true).open(&fifo).expect("open");
    let mut status = 0;
    // SAFETY: the kernel writes a status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) }, child);
    assert!(!mark.exists(), "the program was started");
    assert_eq!(process::ExitStatus::from_raw(status).code(), Some(127));
}

part!(held_host);
/// The host of [`a_program_does_not_start_when_its_host_has_died`]: its child is held before it asks for the signal.
pub fn held_host(args: &[String]) {
    let [fifo, mark] = args else { panic!("FIFO MARK") };
    let mut command = Command::new("/bin/touch");
    command.arg(mark).fd(Stdio::open(fifo, libc::O_RDONLY, 0), 5).parent_death_signal(libc::SIGKILL);
    let child = command.launch().expect("launch");
    eventually("a child asleep before exec", || observe::opening_child().is_some());
    println!("{}", child.id());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

scenario!(a_forked_process_launches_from_any_thread);
/// A forked copy has no thread of the original, and makes its own.
pub fn a_forked_process_launches_from_any_thread(_: &[String]) {
    let ours = in_thread(|| cat(With::Process));
    for _ in 0..observe::scaled(5) {
        in_a_copy(|| {
            // By its only thread, and by another one.
            assert_lives(cat(With::Process));
            assert_eq!(parents().len(), 0);
            let lives = in_thread(|| cat(With::Process));
            assert_eq!(parents().len(), 1);
            assert_lives(lives);
            assert_no_parents();
        });
    }
    assert_eq!(parents().len(), 1);
    assert_lives(ours);
    assert_no_parents();
    observe::assert_no_orphans();
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_one(_: i32) {
    HANDLED.fetch_add(1, Relaxed);
}

/// Sets the calling thread's mask to these signals.
fn set_mask(mask: u64) {
    // SAFETY: the kernel reads 8 bytes; libc would leave out two signals.
    assert_eq!(
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0usize, 8usize) },
        0
    );
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A mask or a set of pending signals, of `/proc/…/status`.
fn set_of(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a set of signals");
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("a set of signals")
}

scenario!(the_thread_that_clones_handles_no_signal_and_children_inherit_the_callers_mask);
/// A signal for the process, which every other thread blocks, is not taken by the thread that clones; and the child's mask is the
/// caller's, not that thread's.
pub fn the_thread_that_clones_handles_no_signal_and_children_inherit_the_callers_mask(_: &[String]) {
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGUSR1, count_one as *const () as libc::sighandler_t) };
    set_mask(bit(libc::SIGUSR1));
    thread::spawn(|| {
        let mine = bit(libc::SIGUSR1) | bit(libc::SIGHUP) | bit(64);
        set_mask(mine);
        let mut command = Command::new("/bin/cat");
        command.arg("/proc/self/status").parent_death_signal(libc::SIGKILL);
        let child_mask = |command: &mut Command| {
            let output = command.output().expect("output");
            set_of(&String::from_utf8_lossy(&output.stdout), "SigBlk")
        };
        assert_eq!(child_mask(&mut command), mine, "the caller's mask");
        command.signal_block(libc::SIGTERM);
        assert_eq!(child_mask(&mut command), mine | bit(libc::SIGTERM), "the caller's mask and more");
        command.inherit_signal_mask(false);
        assert_eq!(child_mask(&mut command), bit(libc::SIGTERM), "nothing else is blocked on request");
        assert_eq!(set_of(&fs::read_to_string("/proc/thread-self/status").expect("status"), "SigBlk"), mine);
    })
    .join()
    .expect("the thread");
    assert_no_parents();
    let lives = in_thread(|| cat(With::Process));
    let [parent] = &*parents() else { panic!("there is one thread") };
    let blocked = set_of(&fs::read_to_string(parent.join("status")).expect("status"), "SigBlk");
    let libcs = if cfg!(target_env = "musl") { bit(32) | bit(33) | bit(34) } else { bit(32) | bit(33) };
    // A filter that traps the thread's calls sends it SIGSYS.
    let free = bit(libc::SIGKILL) | bit(libc::SIGSTOP) | bit(libc::SIGSYS) | libcs;
    assert_eq!(blocked, !free, "what the thread blocks: {blocked:#x}");
    // A signal for this process.
    assert!(forkless_tests::process::kill(std::process::id() as i32, libc::SIGUSR1));
    let pending = set_of(&fs::read_to_string("/proc/self/status").expect("status"), "ShdPnd");
    assert_eq!((HANDLED.load(Relaxed), pending), (0, bit(libc::SIGUSR1)), "nobody takes it");
    set_mask(0);
    assert_eq!(HANDLED.load(Relaxed), 1, "the one who waited for it does");
    assert_lives(lives);
}

scenario!(the_host_can_change_its_ids);
/// The host changes its ids by libc, which has every thread do so and waits for each.
pub fn the_host_can_change_its_ids(_: &[String]) {
    let lives = in_thread(|| cat(With::Process));
    // Should it wait for ever.
    forkless_tests::patience::end_after(20);
    // SAFETY: no id is changed.
    unsafe {
        assert_eq!(libc::setresuid(!0, !0, !0), 0);
        assert_eq!(libc::setresgid(!0, !0, !0), 0);
    }
    assert_lives(lives);
}

scenario!(eight_threads_launch_at_once);
/// Eight threads at once, the first launches of all of them: each child gets what its own launch passes it.
pub fn eight_threads_launch_at_once(_: &[String]) {
    const THREADS: usize = 8;
    let begin = Barrier::new(THREADS);
    thread::scope(|scope| {
        for n in 0..THREADS {
            let begin = &begin;
            scope.spawn(move || {
                let text = format!("of thread {n}");
                let file = temporary(&text);
                begin.wait();
                for _ in 0..observe::scaled(50) {
                    let file = file.try_clone().expect("dup");
                    (&file).seek(SeekFrom::Start(0)).expect("seek");
                    let mut command = Command::new("/bin/sh");
                    command.args(["-c", "cat <&7; cat"]).fd(file, 7).stdin(Stdio::piped()).stdout(Stdio::piped());
                    let mut child = command.parent_death_signal(libc::SIGKILL).launch().expect("launch");
                    child.stdin.take().expect("a pipe").write_all(b", piped").expect("write");
                    let output = child.wait_with_output().expect("output");
                    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{text}, piped"));
                    let error =
                        Command::new("/no/such/program").parent_death_signal(9).spawn().expect_err("none there");
                    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
                }
            });
        }
    });
    assert_no_parents();
    observe::assert_no_orphans();
}

fn temporary(text: &str) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("write");
    file.seek(SeekFrom::Start(0)).expect("seek");
    file
}

scenario!(a_thread_with_its_own_descriptor_table_passes_its_own_descriptors);
/// A thread with its own file-descriptor table passes its own descriptors, with both signals.
pub fn a_thread_with_its_own_descriptor_table_passes_its_own_descriptors(_: &[String]) {
    let open = observe::open_fds();
    in_thread(|| {
        // SAFETY: gives this thread a table of its own.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0, "unshare");
        for with in [With::Process, With::Thread] {
            assert_lives(cat(with));
        }
    });
    assert_no_parents();
    assert_eq!(observe::open_fds(), open);
    observe::assert_no_orphans();
}

scenario!(a_thread_that_can_start_no_thread_is_refused);
/// A thread that has unshared its PID namespace can start no thread: the launch is refused, and the error says what works.
pub fn a_thread_that_can_start_no_thread_is_refused(_: &[String]) {
    let error = in_thread(|| {
        // SAFETY: changes the namespace of this thread's later children.
        (unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0).then(|| {
            // The first child is the namespace's init.
            let mut init = cat(With::Thread);
            let error = Command::new("/bin/true").parent_death_signal(9).spawn().expect_err("no thread");
            assert!(Command::new("/bin/true").thread_death_signal(9).status().expect("status").success());
            init.kill().expect("kill");
            init.wait().expect("wait");
            error
        })
    });
    let Some(error) = error else {
        return skip("parent-death signals after unshare(CLONE_NEWPID)", "namespaces are refused here");
    };
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Clone));
    let text = error.to_string();
    assert!(text.contains("unshared its PID namespace") && text.contains("thread_death_signal"), "{text}");
    observe::assert_no_orphans();
}

scenario!(a_child_that_does_not_see_its_parent_gets_its_signal);
/// The same for the first thread, whose children do not see it: `getppid(2)` is 0.
pub fn a_child_that_does_not_see_its_parent_gets_its_signal(_: &[String]) {
    // SAFETY: changes the namespace of later children.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return skip("death signals of children that do not see their parent", "namespaces are refused here");
    }
    let mut init = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().expect("the init");
    assert_lives(cat(With::Process));
    assert_lives(cat(With::Thread));
    drop(init.stdin.take());
    init.wait().expect("wait");
}

scenario!(threads_launch_after_the_main_thread_has_ended);
/// The first thread has ended: it has no descriptors to compare with, and the others launch as before.
pub fn threads_launch_after_the_main_thread_has_ended(_: &[String]) {
    let main = observe::pid();
    // The kernel is probed while the main thread exists.
    assert!(Command::new("/bin/true").status().expect("status").success());
    thread::spawn(move || {
        eventually("the main thread's end", || observe::state_of(main) == Some('Z'));
        let answer = std::panic::catch_unwind(|| {
            let null = File::open("/dev/null").expect("open");
            let number = null.as_raw_fd();
            let mut command = Command::new("/bin/true");
            command.fd(null, number + 1).parent_death_signal(libc::SIGKILL);
            assert!(command.status().expect("status").success());
            assert_lives(in_thread(|| cat(With::Process)));
        });
        process::exit(if answer.is_ok() { 0 } else { 1 });
    });
    // SAFETY: ends this thread alone; nothing of it is borrowed by the other.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}
