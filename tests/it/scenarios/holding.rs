//! Launches that do not wait until the child has taken its ends of the pipes: the handle keeps them.

use crate::elf::Programs;
use crate::observe::{self, eventually, scaled};
use forkless::{
    Child, Command, Route, Stdio,
    internal::{DescriptorTable, Passing},
};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;

/// On one CPU, a child runs only when this thread sleeps.
fn on_one_cpu() {
    // SAFETY: a set of CPUs of this process, which sched_getcpu(3) is in.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
    }
}

fn shell(line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn table(child: &Child) -> DescriptorTable {
    let Route::Clone { table, .. } = child.route() else { panic!("{}", child.route()) };
    table
}

fn is_copied_below(child: &Child) -> bool {
    matches!(table(child), DescriptorTable::PrivateBelow(_))
}

scenario!(a_handle_keeps_the_ends_of_pipes_until_the_child_has_them);
/// What is opened after the launch gets no number that the child still needs.
pub fn a_handle_keeps_the_ends_of_pipes_until_the_child_has_them(_: &[String]) {
    on_one_cpu();
    let before = observe::open_fds();
    for _ in 0..scaled(200) {
        let mut child = shell("echo out; echo err >&2").launch_holding().expect("launch");
        assert!(is_copied_below(&child), "{}", child.route());
        child.let_go();
        let others: Vec<File> = (0..4).map(|_| File::open("/dev/null").expect("open")).collect();
        assert!(child.wait().expect("the program runs").success());
        drop(others);
        for (text, stream) in [
            ("out\n", Box::new(child.stdout.take().expect("a pipe")) as Box<dyn Read>),
            ("err\n", Box::new(child.stderr.take().expect("a pipe"))),
        ] {
            let mut found = String::new();
            let mut stream = stream;
            // To its end: no other copy of the child's end is left.
            stream.read_to_string(&mut found).expect("read");
            assert_eq!(found, text);
        }
        assert!(child.let_go());
    }
    assert_eq!(observe::open_fds(), before);
}

scenario!(a_handle_that_is_dropped_waits_until_the_child_has_its_pipes);
/// A handle that is dropped at once.
pub fn a_handle_that_is_dropped_waits_until_the_child_has_its_pipes(_: &[String]) {
    on_one_cpu();
    let programs = Programs::new();
    let before = observe::open_fds();
    for number in 0..scaled(50) {
        let marker = programs.path(&number.to_string());
        let line = format!("echo ran > {}", marker.display());
        drop(shell(&line).launch_holding().expect("launch"));
        eventually("the program of a dropped handle", || {
            forkless::reap_orphans();
            fs::read(&marker).is_ok_and(|text| text == b"ran\n")
        });
    }
    eventually("no zombie", || forkless::reap_orphans() == 0);
    assert_eq!(observe::open_fds(), before);
}

scenario!(a_childs_input_is_not_held_open);
/// A child that closes its input while it runs: this process does not hold that open.
pub fn a_childs_input_is_not_held_open(_: &[String]) {
    let mut command = shell("exec <&-; echo closed; exec sleep 60");
    let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).launch_holding().expect("launch");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("read");
    assert_eq!(line, "closed\n");
    let error = child.stdin.take().expect("a pipe").write(b"x").expect_err("nobody reads");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

scenario!(a_holding_launch_keeps_the_descriptors_of_its_command_open);
/// Descriptors that the command owns stay open until the child has them, although the command is dropped at once.
pub fn a_holding_launch_keeps_the_descriptors_of_its_command_open(_: &[String]) {
    on_one_cpu();
    let programs = Programs::new();
    let path = programs.path("text");
    fs::write(&path, "text\n").expect("write");
    let before = observe::open_fds();
    for _ in 0..scaled(100) {
        let file = File::open(&path).expect("open");
        let mut child = shell("cat <&7").fd(file, 7).launch_holding().expect("launch");
        assert!(is_copied_below(&child), "{}", child.route());
        // One of these gets the number of the file if that is closed.
        let others: Vec<File> = (0..4).map(|_| File::open("/dev/null").expect("open")).collect();
        assert!(child.wait().expect("the program runs").success());
        drop(others);
        let mut found = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut found).expect("read");
        assert_eq!(found, "text\n");
        drop(child);
        assert_eq!(observe::open_fds(), before);
    }
}

scenario!(descriptors_of_the_caller_are_passed_before_a_holding_launch_returns);
/// Descriptors with high numbers are passed as always, and so are those of the caller, which may close them.
pub fn descriptors_of_the_caller_are_passed_before_a_holding_launch_returns(_: &[String]) {
    let file = File::open("/dev/null").expect("open");
    // SAFETY: `file` stays open until the launch has returned.
    let callers = unsafe { Stdio::fd(file.as_raw_fd()) };
    let mut child = shell("test -e /dev/fd/7").fd(callers, 7).launch_holding().expect("launch");
    drop(file);
    assert!(!is_copied_below(&child), "{}", child.route());
    assert!(child.wait().expect("wait").success());
    let many: Vec<File> = (0..70).map(|_| File::open("/dev/null").expect("open")).collect();
    let mut child = shell("echo high").launch_holding().expect("launch");
    let high = table(&child);
    let refused = matches!(high, DescriptorTable::PrivateBelow(below) if below > 64);
    let fetched = matches!(high, DescriptorTable::Private(Passing::PidfdGetfd | Passing::Proc));
    assert!(refused || fetched || high == DescriptorTable::Copied, "{}", child.route());
    assert!(child.let_go() || refused, "the launch has waited");
    assert!(child.wait().expect("wait").success());
    drop(many);
}
