//! The pipe by which an event loop is told that the program has been executed.

use crate::observe::eventually;
use forkless::{Child, Command, Error, Launcher, Stdio, Step};
use forkless_tests::filter::{Answer, Refusal, refuse_in_all_threads};
use forkless_tests::process::{has_no_closefrom, is_hidden_from_children};
use std::os::fd::AsRawFd;

scenario!(exec_is_reported_by_a_pipe);
/// The pipe that exec closes becomes readable at the exec and at a failure, however descriptors are passed; never before, and not only at
/// the end.
pub fn exec_is_reported_by_a_pipe(_: &[String]) {
    let within = |child: &Child, seconds: i32| {
        let fd = child.exec_pipe().expect("a pipe").as_raw_fd();
        let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, whose descriptor the handle keeps open.
        unsafe { libc::poll(&raw mut one, 1, seconds * 1000) == 1 }
    };
    let report = |change: fn(&mut Command) -> &mut Command| {
        let mut command = Command::new("sleep");
        command.arg("1000").exec_pipe(true).kill_on_drop(true).stdout(Stdio::piped());
        let mut child = change(&mut command).launch().expect("launch");
        // A launch may already know.
        assert!(child.exec_pipe().is_none() || within(&child, 20), "the exec is not reported: {}", child.route());
        child.wait_exec().expect("exec");
        assert!(child.exec_pipe().is_none(), "it stays open");
        // The kernel releases the old memory a moment before it shows the new one: exec_mmap() in fs/exec.c.
        eventually("the program", || {
            let program = std::fs::read_link(format!("/proc/{}/exe", child.id())).expect("exe");
            program.ends_with("sleep") || program.ends_with("coreutils")
        });
        child.route().to_string()
    };
    let all = || {
        let routes = [
            report(|command| command),
            report(|command| command.inherit_all(true)),
            report(|command| command.launcher(Launcher::Fork)),
            report(|command| command.launcher(Launcher::PosixSpawn).inherit_all(has_no_closefrom())),
        ];
        let mut none = Command::new("true");
        none.current_dir("/no/such/directory").exec_pipe(true);
        if let Ok(mut child) = none.launch() {
            assert!(within(&child, 20), "the failure is not reported");
            let error = child.wait_exec().expect_err("a failure");
            assert_eq!(Error::of(&error).map(Error::step), Some(Step::Chdir));
        }
        routes
    };
    let first = all();
    refuse_in_all_threads(&[Refusal::of(libc::SYS_pidfd_getfd, Answer::Errno(libc::EPERM))]).expect("a filter");
    all();
    let refused = all();
    assert_ne!(first[0], refused[0], "the filter is not felt");
    assert!(refused[0].contains("/proc") || is_hidden_from_children(), "{}", refused[0]);
}
