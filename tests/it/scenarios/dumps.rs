//! Signals that dump core, to children before their exec, on a kernel before 5.16, where such a dump ends the parent: on a
//! real one, or as if this were one. On a later one, as it is, the host lives without any care.

use crate::elf::Programs;
use crate::observe::{self, eventually};
use forkless::{BpfInstruction, Child, Command, Stdio, Step};
use forkless_tests::filter::{Answer, Refusal};
use std::fs::{self, OpenOptions};
use std::io::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// signal(7).
const DUMPING: [i32; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

fn bits(signals: &[i32]) -> u64 {
    signals.iter().fold(0, |bits, signal| bits | 1 << (signal - 1))
}

/// The mask of this name in `/proc/PID/status`.
fn mask(pid: i32, name: &str) -> u64 {
    named(&fs::read_to_string(format!("/proc/{pid}/status")).expect("status"), name)
}

fn named(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).expect("a mask");
    u64::from_str_radix(line, 16).expect("hexadecimal")
}

/// A child that sleeps before its exec, in `open(2)`.
fn held(program: &Path, fifo: &Path) -> (Command, Child, i32) {
    let mut command = Command::new(program);
    command.fd(Stdio::open(fifo, libc::O_RDONLY, 0), 5);
    let child = command.launch().expect("launch");
    let mut pid = 0;
    eventually("a child asleep before exec", || {
        pid = observe::opening_child().unwrap_or(0);
        pid != 0
    });
    (command, child, pid)
}

/// The step and the signal in the error.
fn death(error: &Error) -> Option<(Step, Option<i32>)> {
    let error = error.get_ref()?.downcast_ref::<forkless::Error>()?;
    Some((error.step(), error.signal()))
}

/// Unless the kernel's real behaviour is requested: `scenario NAME real`.
fn assume_old_kernel(args: &[String]) {
    if args.is_empty() {
        forkless::internal::assume_old_kernel();
    }
}

/// Whether the library takes care: as for an old kernel, or because this is one.
fn is_careful(args: &[String]) -> bool {
    assume_old_kernel(args);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse::<u32>());
    let mut number = || numbers.next().and_then(Result::ok).expect("a number");
    args.is_empty() || (number(), number()) < (5, 16)
}

/// The signals that the library handles in a child, if it takes care.
fn handled(care: bool, signals: &[i32]) -> u64 {
    if care { bits(signals) } else { 0 }
}

scenario!(before_linux_5_16_a_signal_that_dumps_core_ends_the_child_without_a_dump);
/// Each of the signals ends the child and is reported, and the host lives.
pub fn before_linux_5_16_a_signal_that_dumps_core_ends_the_child_without_a_dump(args: &[String]) {
    let care = is_careful(args);
    let programs = Programs::new();
    let (program, fifo) = (programs.exits(6), programs.fifo("hold"));
    for signal in DUMPING {
        let (_command, mut child, pid) = held(&program, &fifo);
        assert_eq!(mask(pid, "SigCgt"), handled(care, &DUMPING), "handled in the child");
        assert_eq!(mask(pid, "SigBlk"), mask(observe::pid(), "SigBlk"), "blocked in the child");
        // Our own child, which nobody has reaped.
        forkless_tests::process::kill(pid, signal);
        let error = child.wait().expect_err("killed before its exec");
        assert_eq!(death(&error), Some((Step::Open, Some(signal))), "{error}");
    }
    observe::assert_no_orphans();
}

scenario!(before_linux_5_16_a_program_starts_with_the_right_actions_and_mask);
/// Ignored and blocked signals stay so, and the program starts with the requested dispositions and mask.
pub fn before_linux_5_16_a_program_starts_with_the_right_actions_and_mask(args: &[String]) {
    let care = is_careful(args);
    // SAFETY: this thread's mask, and an action without a handler.
    unsafe {
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTRAP);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    let programs = Programs::new();
    let (missing, fifo) = (programs.path("missing"), programs.fifo("hold"));
    // Neither an ignored signal nor one that is blocked ends the child.
    let (_command, mut child, pid) = held(&missing, &fifo);
    assert_eq!(mask(pid, "SigCgt"), handled(care, &DUMPING) & !bits(&[libc::SIGQUIT, libc::SIGXFSZ]));
    // Our own child, which nobody has reaped.
    forkless_tests::process::kill(pid, libc::SIGQUIT);
    drop(OpenOptions::new().write(true).open(&fifo).expect("open"));
    assert_eq!(child.wait().expect_err("no such program").kind(), std::io::ErrorKind::NotFound);
    for (mask, default) in [(false, false), (true, true)] {
        let mut command = Command::new("/bin/cat");
        command.arg("/proc/self/status").inherit_signal_mask(mask);
        if default {
            command.signal_default(libc::SIGXFSZ);
        }
        let output = command.output().expect("output");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let has = |name: &str, signals: &[i32]| {
            assert_eq!(named(&text, name) & bits(&DUMPING), bits(signals), "{name} in\n{text}");
        };
        has("SigCgt", &[]);
        has("SigBlk", if mask { &[libc::SIGTRAP] } else { &[] });
        has("SigIgn", if default { &[libc::SIGQUIT] } else { &[libc::SIGQUIT, libc::SIGXFSZ] });
    }
}

scenario!(before_linux_5_16_a_signal_at_its_default_is_guarded_until_exec);
/// A signal that is set to its default has its handler too until exec, which here goes on for as long as the program is busy.
pub fn before_linux_5_16_a_signal_at_its_default_is_guarded_until_exec(args: &[String]) {
    assume_old_kernel(args);
    let programs = Programs::new();
    let program = programs.exits(6);
    let writer = OpenOptions::new().append(true).open(&program).expect("open");
    let mut command = Command::new(&program);
    let mut child = command.signal_default(libc::SIGQUIT).retry_busy(Duration::from_secs(60)).launch().expect("launch");
    let pid = child.id() as i32;
    let pause = format!("{} ", libc::SYS_nanosleep);
    eventually("a child at its last step", || {
        fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with(&pause))
    });
    assert_eq!(mask(pid, "SigCgt"), bits(&DUMPING), "handled in the child");
    drop(writer);
    assert_eq!(child.wait().expect("wait").code(), Some(6));
}

fn dumpable() -> i32 {
    // SAFETY: reads a number.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }
}

scenario!(before_linux_5_16_the_memory_cannot_be_dumped_while_a_filter_may_kill);
/// A filter that kills the child: its memory is not dumpable meanwhile, and is again afterwards.
pub fn before_linux_5_16_the_memory_cannot_be_dumped_while_a_filter_may_kill(args: &[String]) {
    let care = is_careful(args);
    let programs = Programs::new();
    let (program, fifo) = (programs.exits(6), programs.fifo("hold"));
    let filter =
        &forkless_tests::filter::programs(&[Refusal::of(libc::SYS_execve, Answer::Kill)]).expect("a filter")[0];
    let mut command = Command::new(&program);
    command.no_new_privs(true);
    command.seccomp(filter.iter().map(|word| BpfInstruction { code: word.code, jt: word.jt, jf: word.jf, k: word.k }));
    command.fd(Stdio::open(&fifo, libc::O_RDONLY, 0), 5);
    assert_eq!(dumpable(), 1);
    thread::scope(|scope| {
        let launcher = scope.spawn(|| command.spawn().expect_err("killed by its filter"));
        eventually("a child asleep before exec", || observe::opening_child().is_some());
        let meanwhile = dumpable();
        drop(OpenOptions::new().write(true).open(&fifo).expect("open"));
        let error = launcher.join().expect("launcher");
        assert_eq!(meanwhile, i32::from(!care), "while the child is there");
        assert_eq!(death(&error).map(|(step, _)| step), Some(Step::Exec), "{error}");
    });
    assert_eq!(dumpable(), 1, "afterwards");
    // The host's own filter, which kills the probe and every child that makes its own table.
    forkless_tests::filter::refuse(&[Refusal::of(libc::SYS_close_range, Answer::Kill)]).expect("a filter");
    assert_eq!(Command::new(&program).status().expect("by another way").code(), Some(6));
    assert_eq!(dumpable(), 1, "in the end");
    observe::assert_no_orphans();
}

scenario!(before_linux_5_16_the_probe_is_killed_by_a_filter_without_a_dump);
/// A filter that is there before the first launch, and kills the probe.
pub fn before_linux_5_16_the_probe_is_killed_by_a_filter_without_a_dump(args: &[String]) {
    assume_old_kernel(args);
    let programs = Programs::new();
    let program = programs.exits(6);
    forkless_tests::filter::refuse(&[Refusal::of(libc::SYS_close_range, Answer::Kill)]).expect("a filter");
    assert_eq!(Command::new(&program).status().expect("by another way").code(), Some(6));
    assert_eq!(dumpable(), 1, "afterwards");
}

scenario!(a_core_dump_kills_processes_that_share_memory);
/// Negative control, as far as this kernel allows: [`control`] in a process of its own.
pub fn a_core_dump_kills_processes_that_share_memory(_: &[String]) {
    let status = std::process::Command::new("/proc/self/exe").arg("dumps::control").status().expect("a process");
    assert_eq!(status.success(), observe::is_kernel_at_least(5, 16), "{status}");
}

part!(control);
/// A child in shared memory without this library's care, to which SIGQUIT is sent.
pub fn control(_: &[String]) {
    extern "C" fn child(_: *mut libc::c_void) -> i32 {
        // SAFETY: sleeps.
        unsafe { libc::syscall(libc::SYS_ppoll, 0, 0, 0, 0, 0) as i32 }
    }
    let mut stack = vec![0u128; 4096];
    // SAFETY: the child keeps to its stack, which is there until it has ended; the pid is its own until it is waited for.
    unsafe {
        let top = stack.as_mut_ptr().add(4095).cast();
        let pid = libc::clone(child, top, libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut());
        libc::kill(pid, libc::SIGQUIT);
        let (_, status) = crate::foreign::wait(pid, 0).expect("wait");
        assert_eq!(libc::WTERMSIG(status), libc::SIGQUIT);
    }
}
