//! A caller in a PID namespace that sees the procfs of the outer one, as after `unshare --pid --fork` without a new `/proc`: there the
//! numbers of the caller and of its children are those of strangers.

use crate::hosts::in_a_copy;
use crate::observe::{self, skip};
use forkless::{Command, Error, Namespace, Stdio, Step};
use forkless_tests::filter::{self, Answer, Refusal};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

/// The next process of the caller's PID namespace gets this number.
fn next_is(pid: i32) {
    fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("ns_last_pid");
}

/// Forks a process that runs `be`, which must leave a descriptor alone, and then sleeps until it is killed.
fn stranger(be: impl FnOnce(i32)) -> i32 {
    let (mut ready, mut tell) = std::io::pipe().expect("a pipe");
    // SAFETY: the process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        be(tell.as_raw_fd());
        tell.write_all(b"x").expect("write");
        loop {
            // SAFETY: sleeps.
            unsafe { libc::pause() };
        }
    }
    drop(tell);
    ready.read_exact(&mut [0]).expect("the stranger's word");
    pid
}

fn end(stranger: i32) {
    assert!(forkless_tests::process::kill(stranger, libc::SIGKILL));
    let mut status = 0;
    // SAFETY: the kernel writes a status.
    assert_eq!(unsafe { libc::waitpid(stranger, &raw mut status, 0) }, stranger);
}

/// Runs `work` as the init of a new PID namespace, in which `/proc` is that of the outer one.
fn in_a_namespace(what: &str, work: impl FnOnce()) {
    // SAFETY: changes the namespace of later children only.
    if unsafe { libc::geteuid() != 0 || libc::unshare(libc::CLONE_NEWPID) != 0 } {
        return skip(what, "namespaces are refused here");
    }
    in_a_copy(|| {
        assert_eq!(observe::pid(), 1);
        // The kernel is probed, so that later numbers are those of the children.
        assert!(Command::new("/bin/true").status().expect("status").success());
        work();
    });
}

scenario!(id_maps_are_not_written_for_a_stranger);
/// The ID maps of a child are not written for the stranger with its number.
pub fn id_maps_are_not_written_for_a_stranger(_: &[String]) {
    let map = |pid: i32| fs::read_to_string(format!("/proc/{pid}/uid_map")).expect("a map");
    let other = stranger(|_| {
        // SAFETY: of this process, which has one thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, 0);
    });
    assert_eq!(map(other), "");
    in_a_namespace("ID maps with a foreign procfs", || {
        let mut command = Command::new("/bin/true");
        command.unshare(Namespace::User).map_uid(0, 4242, 1);
        next_is(other);
        let error = command.status().expect_err("no map can be written");
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::IdMaps), "{error}");
        assert!(error.to_string().contains("another PID namespace"), "{error}");
        observe::assert_no_orphans();
    });
    assert_eq!(map(other), "", "the stranger has a map");
    end(other);
}

scenario!(pipes_of_a_stranger_are_not_opened);
/// A child's pipes are not opened through the stranger with the number of its parent.
pub fn pipes_of_a_stranger_are_not_opened(_: &[String]) {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"of another program").expect("write");
    let other = stranger(|tell| {
        for number in (3..80).filter(|number| *number != tell) {
            // SAFETY: descriptors of this process alone.
            unsafe { libc::dup2(file.as_raw_fd(), number) };
        }
    });
    in_a_namespace("pipes with a foreign procfs", || {
        next_is(other);
        in_a_copy(|| {
            assert_eq!(observe::pid(), other);
            filter::refuse(&[Refusal::of(libc::SYS_pidfd_getfd, Answer::Errno(libc::EPERM))]).expect("a filter");
            let output = Command::new("/bin/echo").arg("hello").output().expect("output");
            assert_eq!(output.stdout, b"hello\n");
            // High numbers, which would be opened through /proc.
            let _held: Vec<File> = (0..70).map(|_| File::open("/dev/null").expect("open")).collect();
            let mut command = Command::new("/bin/echo");
            command.arg("hello").stdout(Stdio::piped());
            assert_eq!(command.spawn().expect("spawn").wait_with_output().expect("output").stdout, b"hello\n");
        });
    });
    let mut contents = String::new();
    std::io::Seek::rewind(&mut file).expect("rewind");
    file.read_to_string(&mut contents).expect("read");
    assert_eq!(contents, "of another program");
    end(other);
}
