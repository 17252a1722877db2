//! Children that block before exec, in open(2) of a FIFO: what they still use of the host, and which signals reach
//! them.

use crate::elf::Programs;
use crate::foreign;
use crate::hosts::in_a_copy;
use crate::launched::Command;
use crate::leaks::churn;
use crate::observe::{self, Dice, eventually, opening_child};
use crate::storms;
use forkless::{Child, Error, Stdio};
use forkless_tests::filter::{Answer, Refusal, refuse};
use forkless_tests::process;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// A command whose child blocks until the FIFO is opened for writing.
fn held(program: impl AsRef<Path>, fifo: &Path) -> forkless::Command {
    let mut command = Command::new(program.as_ref());
    command.fd(Stdio::open(fifo, libc::O_RDONLY, 0), 5);
    command
}

/// Lets the child go on, be it there or not: for writing alone the FIFO could not be opened without it.
fn let_go(fifo: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(fifo).expect("open")
}

/// Whether a launch waits for the exec under a filter, so that no child can be held; says that `what` is skipped then.
fn is_launch_long_under_a_filter(what: &str) -> bool {
    let is_long = !process::is_kernel_at_least(5, 16);
    if is_long {
        observe::skip(what, "before Linux 5.16 a launch under a filter waits for the exec");
    }
    is_long
}

/// Waits until there is a child in its opening of a FIFO.
fn child_in_open() -> i32 {
    let mut pid = 0;
    eventually("a child asleep before exec", || {
        pid = opening_child().unwrap_or(0);
        pid != 0
    });
    pid
}

scenario!(memory_of_a_child_that_cannot_be_waited_for_is_kept);
/// If a filter refuses to wait, it is unknown whether a child has ended. A dropped handle then leaves the child all
/// memory that it uses: its plan, and its stack, which no other child gets.
pub fn memory_of_a_child_that_cannot_be_waited_for_is_kept(_: &[String]) {
    if is_launch_long_under_a_filter("a held child whose end is unknown") {
        return;
    }
    let programs = Programs::new();
    let fifo = programs.fifo("hold");
    assert!(Command::new(programs.exits(0)).status().expect("status").success());
    refuse(&[libc::SYS_wait4, libc::SYS_waitid].map(|call| Refusal::of(call, Answer::Errno(libc::EPERM))))
        .expect("a filter");
    let long: String = (0..3000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let mut out = {
        let mut command = held("/bin/sh", &fifo);
        command.args(["-c", "printf '%s %s' \"$1\" \"$LONG\"", "sh", &long]).env("LONG", &long);
        let mut child = command.stdout(Stdio::piped()).launch().expect("launch");
        child_in_open();
        child.stdout.take().expect("a pipe")
    };
    let stacks = forkless::mapped_stacks();
    assert_eq!(stacks, 1, "no other stack is kept");
    churn(&mut Dice::new(7), 20_000);
    // It cannot be waited for; it ends by itself.
    std::mem::forget(Command::new(programs.exits(0)).launch().expect("another launch"));
    assert_eq!(forkless::mapped_stacks(), stacks + 1, "the other child is on the stack of the one that is held");
    churn(&mut Dice::new(8), 20_000);
    let _open = let_go(&fifo);
    let mut text = String::new();
    out.read_to_string(&mut text).expect("read");
    assert_eq!(text, format!("{long} {long}"), "what the child found after its handle was dropped");
}

scenario!(
    a_signal_ends_a_child_before_exec_and_runs_no_handler_of_the_host,
    a_signal_ends_a_forked_child_before_exec_and_runs_no_handler_of_the_host["launcher=fork"]
);
/// A signal that the host handles ends a child before its exec. The host's handler does not run there.
pub fn a_signal_ends_a_child_before_exec_and_runs_no_handler_of_the_host(_: &[String]) {
    let programs = Programs::new();
    storms::handle(libc::SIGUSR1);
    for way in ["clone3", "clone"] {
        if way == "clone" {
            if is_launch_long_under_a_filter("a launch by clone") {
                return;
            }
            refuse(&[Refusal::of(libc::SYS_clone3, Answer::Errno(libc::ENOSYS))]).expect("a filter");
        }
        let fifo = programs.fifo(way);
        let mut child = held(programs.exits(6), &fifo).launch().expect("launch");
        let pid = child_in_open();
        // SAFETY: our own child, which nobody has reaped.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR1) }, 0);
        // A child that blocks all signals gets it when it has its own mask.
        let _open = let_go(&fifo);
        let answer = child.wait();
        assert_eq!(storms::astray(), 0, "handlers that ran in a child by {way}");
        let error = answer.expect_err("killed before its exec");
        assert_eq!(Error::of(&error).and_then(Error::signal), Some(libc::SIGUSR1), "{way}: {error}");
    }
    observe::assert_no_orphans();
}

scenario!(a_forked_process_reuses_the_stacks_of_its_parents_children);
/// A forked copy of the host finds the stacks of the host's children free.
pub fn a_forked_process_reuses_the_stacks_of_its_parents_children(_: &[String]) {
    let programs = Programs::new();
    let fifo = programs.fifo("hold");
    let children: Vec<Child> = (0..3).map(|_| held(programs.exits(6), &fifo).launch().expect("launch")).collect();
    let stacks = forkless::mapped_stacks();
    in_a_copy(|| {
        drop(children);
        let program = programs.exits(7);
        for _ in 0..3 {
            assert_eq!(Command::new(&program).status().expect("status").code(), Some(7));
        }
        assert_eq!(forkless::mapped_stacks(), stacks, "the stacks of the original's children are lost to the copy");
    });
    let _open = let_go(&fifo);
    observe::assert_no_orphans();
}

scenario!(a_launch_is_woken_by_the_child_that_has_its_descriptors);
/// A launch sleeps until its child has the descriptors that it is passed. The child wakes it: a filter kills the one that does.
pub fn a_launch_is_woken_by_the_child_that_has_its_descriptors(_: &[String]) {
    let programs = Programs::new();
    let mut command = Command::new(programs.exits(6));
    command.stdout(Stdio::piped());
    assert_eq!(command.launch().and_then(|mut child| child.wait()).expect("a launch").code(), Some(6));
    // Ours alone is not private to the process.
    let wake = Refusal::of(libc::SYS_futex, Answer::Kill).with_value(1, libc::FUTEX_WAKE as u64);
    refuse(&[wake]).expect("a filter");
    let answer = command.launch().and_then(|mut child| child.wait());
    let error = answer.expect_err("the child wakes nobody");
    assert_eq!(Error::of(&error).and_then(Error::signal), Some(libc::SIGSYS), "{error}");
    observe::assert_no_orphans();
}

scenario!(the_parent_notices_that_a_child_has_left);
/// A spawn only waits until its child has left the host's memory.
pub fn the_parent_notices_that_a_child_has_left(_: &[String]) {
    let mut child = observe::within("a spawn of a program that sleeps", || {
        Command::new("/bin/sleep").arg("1000").spawn().expect("spawn")
    });
    assert!(child.wait_exec_timeout(Duration::ZERO).expect("a program"), "it has left");
    child.kill().expect("kill");
    child.wait().expect("wait");
    observe::assert_no_orphans();
}

scenario!(a_launch_returns_when_the_child_has_its_descriptors);
/// A launch returns when its child has the descriptors that it is passed, however long that then takes to its exec.
pub fn a_launch_returns_when_the_child_has_its_descriptors(_: &[String]) {
    let programs = Programs::new();
    let fifo = programs.fifo("hold");
    let mut child = observe::within("a launch of a child that is held", || {
        held(programs.exits(6), &fifo).stdout(Stdio::piped()).launch().expect("launch")
    });
    child_in_open();
    let _open = let_go(&fifo);
    assert_eq!(child.wait().expect("wait").code(), Some(6));
    observe::assert_no_orphans();
}

scenario!(a_failed_clone_leaks_no_stack);
/// A clone that fails leaves its stack to the next launch.
pub fn a_failed_clone_leaks_no_stack(_: &[String]) {
    let programs = Programs::new();
    assert!(Command::new(programs.exits(0)).status().expect("status").success());
    let stacks = forkless::mapped_stacks();
    let calls = [libc::SYS_clone3, libc::SYS_clone];
    refuse(&calls.map(|call| Refusal::of(call, Answer::Errno(libc::EAGAIN)))).expect("a filter");
    for _ in 0..5 {
        let error = Command::new(programs.exits(0)).status().expect_err("no process can be made");
        assert_eq!(Error::of(&error).and_then(Error::errno), Some(libc::EAGAIN), "{error}");
    }
    assert_eq!(forkless::mapped_stacks(), stacks, "a stack for each clone that failed");
    assert_eq!(foreign::wait(-1, libc::WNOHANG), Err(libc::ECHILD));
}
