//! How children and their groups are stopped, terminated and killed, and what is reported.

use crate::foreign;
use crate::hosts::in_a_copy;
use crate::observe::{self, eventually, skip};
use crate::set::failing;
use crate::storms;
use forkless::{Capture, Change, Child, Command, Pipeline, Stdio, WaitSet};
use forkless_tests::filter::{Answer, Refusal, refuse};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(30);

const SIGKILL: i32 = libc::SIGKILL;
const SIGTERM: i32 = libc::SIGTERM;
const SIGSTOP: i32 = libc::SIGSTOP;
const SIGCONT: i32 = libc::SIGCONT;

fn sh(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

fn sleeper() -> Command {
    let mut command = Command::new("/bin/sleep");
    command.arg("1000");
    command
}

/// Starts the command and waits for its first line. The rest of the pipe shows which processes still have it.
fn started(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("spawn");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    (child, out)
}

/// Waits until no process has the pipe open.
fn all_gone(mut out: BufReader<std::process::ChildStdout>) {
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "");
}

fn change(child: &mut Child) -> Option<Change> {
    child.wait_change(Some(LONG)).expect("a change")
}

scenario!(stops_and_continuations_are_reported_in_order);
/// Stops, continuations and ends, with and without a pidfd, and with whatever SIGCHLD does.
pub fn stops_and_continuations_are_reported_in_order(_: &[String]) {
    for flags in [0, libc::SA_NOCLDSTOP] {
        // SAFETY: the default action, with flags.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()), 0);
        }
        for pidfd in [true, false] {
            changes_in_order(pidfd);
        }
    }
    observe::assert_no_orphans();
}

fn changes_in_order(pidfd: bool) {
    let mut child = sleeper().pidfd(pidfd).spawn().expect("spawn");
    let begun = Instant::now();
    assert_eq!(child.wait_change(Some(MOMENT)).expect("nothing"), None);
    assert!(begun.elapsed() >= MOMENT, "it came back too early");
    assert_eq!(child.wait_change(Some(Duration::ZERO)).expect("nothing"), None);
    for signal in [SIGSTOP, libc::SIGTSTP] {
        child.signal(signal).expect("signal");
        assert_eq!(change(&mut child), Some(Change::Stopped(signal)));
        // Told once; and a stop is no end.
        assert_eq!(child.wait_change(Some(Duration::ZERO)).expect("nothing"), None);
        assert!(child.try_wait().expect("wait").is_none());
        child.signal(SIGCONT).expect("signal");
        assert_eq!(child.wait_change(None).expect("a change"), Some(Change::Continued));
    }
    // Older state changes are not reported.
    child.signal(SIGSTOP).expect("signal");
    eventually("the stop", || observe::state_of(child.id() as i32) == Some('T'));
    child.signal(SIGCONT).expect("signal");
    eventually("the continuation", || observe::state_of(child.id() as i32) != Some('T'));
    assert_eq!(change(&mut child), Some(Change::Continued));
    // Killed while stopped.
    child.signal(SIGSTOP).expect("signal");
    assert_eq!(change(&mut child), Some(Change::Stopped(SIGSTOP)));
    child.kill().expect("kill");
    for _ in 0..2 {
        let Some(Change::Ended(status)) = change(&mut child) else { panic!("it was killed") };
        assert_eq!(status.signal(), Some(SIGKILL));
    }
    assert!(child.usage().is_some());
    // A program that cannot be executed is an error as that of a wait.
    let mut missing = failing(Command::new("/no/such/program").pidfd(pidfd));
    assert_eq!(missing.wait_change(Some(LONG)).expect_err("no program").kind(), ErrorKind::NotFound);
}

scenario!(changes_taken_by_another_reaper_are_reported_as_ends);
/// Another part of the program takes the news, or the child.
pub fn changes_taken_by_another_reaper_are_reported_as_ends(_: &[String]) {
    for pidfd in [true, false] {
        let mut child = sleeper().pidfd(pidfd).spawn().expect("spawn");
        let pid = child.id() as i32;
        child.signal(SIGSTOP).expect("signal");
        assert_eq!(foreign::wait(pid, libc::WUNTRACED), Ok((pid, SIGSTOP << 8 | 0x7f)));
        assert_eq!(child.wait_change(Some(MOMENT)).expect("nothing"), None);
        child.kill().expect("kill");
        assert_eq!(foreign::wait(pid, 0), Ok((pid, SIGKILL)));
        match child.wait_change(None) {
            Ok(Some(Change::Ended(status))) => assert_eq!((status.signal(), pidfd), (Some(SIGKILL), true)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(!pidfd || !observe::is_kernel_at_least(6, 15), "{error}");
                assert_eq!(forkless::Error::of(&error).and_then(forkless::Error::errno), Some(libc::ECHILD));
            }
        }
    }
    observe::assert_no_orphans();
}

scenario!(core_dumps_are_reported);
/// The flag of a dumped core comes by every way to wait.
pub fn core_dumps_are_reported(_: &[String]) {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with(['|', '/', '@']) {
        return skip("the flag of a dumped core", "this machine takes cores elsewhere");
    }
    let directory = tempfile::tempdir().expect("a directory");
    for limit in [1 << 20, 0] {
        let mut command = sh("kill -ABRT $$");
        command.rlimit(forkless::Resource::Core, limit, limit).current_dir(directory.path());
        let mut set = WaitSet::new().expect("a set");
        set.insert(command.spawn().expect("spawn"), ()).expect("insert");
        let in_set = set.wait().expect("wait").expect("an end").status.expect("a status");
        let Some(Change::Ended(told)) = change(&mut command.spawn().expect("spawn")) else { panic!("it ends") };
        let waited = command.spawn().expect("spawn").wait().expect("wait");
        let status = command.pidfd(false).status().expect("status");
        for status in [in_set, told, waited, status] {
            assert_eq!((status.signal(), status.core_dumped()), (Some(libc::SIGABRT), limit > 0), "limit {limit}");
        }
    }
    observe::assert_no_orphans();
}

scenario!(groups_are_signalled);
/// Signals to a group, with its leader running, ended, reaped.
pub fn groups_are_signalled(_: &[String]) {
    let mut loner = sleeper().kill_on_drop(true).spawn().expect("spawn");
    assert_eq!(loner.signal_group(SIGTERM).expect_err("no group").kind(), ErrorKind::InvalidInput);
    assert_eq!(loner.terminate_group(SIGTERM, MOMENT).expect_err("no group").kind(), ErrorKind::InvalidInput);
    assert!(loner.wait_timeout(MOMENT).expect("wait").is_none(), "it was signalled");
    drop(loner);
    for session in [true, false] {
        for pidfd in [true, false] {
            let mut command = sh("sleep 1000 & echo ready; wait; exit 1");
            if session {
                command.setsid(true)
            } else {
                command.process_group(0)
            };
            let (mut child, out) = started(command.pidfd(pidfd));
            for wrong in [-1, 65, 1000] {
                let error = child.signal_group(wrong).expect_err("no such signal");
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            }
            child.signal_group(0).expect("there is somebody");
            child.signal_group(SIGTERM).expect("signal");
            assert_eq!(child.wait().expect("wait").signal(), Some(SIGTERM));
            all_gone(out);
            assert_eq!(child.signal_group(1000).expect_err("no such signal").raw_os_error(), Some(libc::EINVAL));
        }
    }
    // One that has just been launched may not lead its group yet; it hears all the same.
    for _ in 0..observe::scaled(200) {
        let mut child = sleeper().process_group(0).launch().expect("launch");
        child.signal_group(SIGKILL).expect("signal");
        // Killed before exec it has failed to start.
        assert!(!child.wait_timeout(LONG).is_ok_and(|status| status.is_none()), "the signal was lost");
    }
    leader_gone(observe::is_kernel_at_least(6, 9));
    observe::assert_no_orphans();
}

/// The leader has been reaped; the group is found where the kernel finds it by a pidfd.
fn leader_gone(found: bool) {
    let mut command = sh("sleep 1000 & echo ready");
    let (mut child, out) = started(command.process_group(0));
    assert!(child.wait().expect("wait").success());
    if found {
        child.signal_group(SIGTERM).expect("signal");
        all_gone(out);
        child.signal_group(SIGTERM).expect("there is nobody left");
    } else {
        assert_eq!(child.signal_group(SIGTERM).expect_err("not by number").raw_os_error(), Some(libc::ECHILD));
        // The sleeper is in it, so the number is the group's.
        forkless_tests::process::kill(-(child.id() as i32), SIGTERM);
        all_gone(out);
    }
    // Without a pidfd the number may be another's.
    let (mut child, out) = started(sh("sleep 1000 & echo ready").process_group(0).pidfd(false));
    assert!(child.wait().expect("wait").success());
    assert_eq!(child.signal_group(SIGTERM).expect_err("not by number").raw_os_error(), Some(libc::ECHILD));
    forkless_tests::process::kill(-(child.id() as i32), SIGTERM);
    all_gone(out);
    // Nor where another has reaped it.
    for pidfd in [true, false] {
        let (mut child, out) = started(sh("sleep 1000 & echo ready").process_group(0).pidfd(pidfd));
        let pid = child.id() as i32;
        assert_eq!(foreign::wait(pid, 0), Ok((pid, 0)));
        match child.signal_group(SIGTERM) {
            Ok(()) => assert!(found && pidfd),
            Err(error) => {
                assert_eq!((error.raw_os_error(), found && pidfd), (Some(libc::ECHILD), false));
                forkless_tests::process::kill(-pid, SIGTERM);
            }
        }
        all_gone(out);
    }
}

scenario!(groups_are_signalled_before_linux_6_9);
/// A kernel that knows no flags of `pidfd_send_signal`.
pub fn groups_are_signalled_before_linux_6_9(_: &[String]) {
    let flags = Refusal::of(libc::SYS_pidfd_send_signal, Answer::Errno(libc::EINVAL)).with_bits(3, 4);
    refuse(&[flags]).expect("a filter");
    let (mut child, out) = started(sh("sleep 1000 & echo ready; wait").process_group(0));
    child.signal_group(SIGTERM).expect("signal");
    assert_eq!(child.wait().expect("wait").signal(), Some(SIGTERM));
    all_gone(out);
    leader_gone(false);
    // Whoever is left is killed when the child has ended, since the group cannot be found later.
    let script = "(trap '' TERM; echo ready; while :; do sleep 0.01; done) & exec sleep 1000";
    for pidfd in [true, false] {
        let (mut child, out) = started(sh(script).process_group(0).pidfd(pidfd));
        assert_eq!(child.terminate_group(SIGTERM, LONG).expect("terminate").signal(), Some(SIGTERM));
        all_gone(out);
    }
    observe::assert_no_orphans();
}

scenario!(terminate_sends_sigkill_after_the_grace);
/// Asked, then killed.
pub fn terminate_sends_sigkill_after_the_grace(_: &[String]) {
    // A wait closes the child's standard input.
    let mut child = Command::new("true").stdin(Stdio::piped()).spawn().expect("spawn");
    assert!(child.wait().expect("wait").success() && child.stdin.is_none(), "its input is open still");
    for pidfd in [true, false] {
        let mut willing = sleeper().pidfd(pidfd).spawn().expect("spawn");
        assert_eq!(willing.terminate(SIGTERM, LONG).expect("terminate").signal(), Some(SIGTERM));
        assert_eq!(willing.terminate(SIGTERM, LONG).expect("it is over").signal(), Some(SIGTERM));
        let (mut deaf, out) = started(sh("trap '' TERM; echo ready; while :; do sleep 0.01; done").pidfd(pidfd));
        assert_eq!(deaf.terminate(SIGTERM, MOMENT).expect("terminate").signal(), Some(SIGKILL));
        all_gone(out);
        // A stopped child is continued, so that it receives the signal.
        let (mut stopped, _out) =
            started(sh("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done").pidfd(pidfd));
        stopped.signal(SIGSTOP).expect("signal");
        assert_eq!(change(&mut stopped), Some(Change::Stopped(SIGSTOP)));
        assert_eq!(stopped.terminate(SIGTERM, LONG).expect("terminate").code(), Some(7));
        // One that waits for its input to end is not kept waiting.
        let mut reader = sh("trap '' TERM; echo ready; cat; exit 8");
        let (mut reader, _out) = started(reader.stdin(Stdio::piped()).pidfd(pidfd));
        assert_eq!(reader.terminate(SIGCONT, LONG).expect("terminate").code(), Some(8));
        let mut wrong = sleeper().kill_on_drop(true).pidfd(pidfd).spawn().expect("spawn");
        assert_eq!(wrong.terminate(1000, LONG).expect_err("no such signal").raw_os_error(), Some(libc::EINVAL));
        assert!(wrong.try_wait().expect("wait").is_none());
    }
    observe::assert_no_orphans();
}

scenario!(terminate_group_sends_sigkill_after_the_grace);
/// The same for a group.
pub fn terminate_group_sends_sigkill_after_the_grace(_: &[String]) {
    let deaf = "(trap '' TERM; echo ready; while :; do sleep 0.01; done) &";
    for pidfd in [true, false] {
        // All of it is willing, and stopped.
        let (mut child, out) = started(sh("sleep 1000 & echo ready; wait").process_group(0).pidfd(pidfd));
        child.signal_group(SIGSTOP).expect("signal");
        assert_eq!(change(&mut child), Some(Change::Stopped(SIGSTOP)));
        assert_eq!(child.terminate_group(SIGTERM, LONG).expect("terminate").signal(), Some(SIGTERM));
        all_gone(out);
        // A grandchild is deaf; the child ends.
        let mut command = sh(&format!("{deaf} exec sleep 1000"));
        let (mut child, out) = started(command.process_group(0).pidfd(pidfd));
        assert_eq!(child.terminate_group(SIGTERM, MOMENT).expect("terminate").signal(), Some(SIGTERM));
        all_gone(out);
        // The child is deaf too.
        let mut command = sh(&format!("trap '' TERM; {deaf} while :; do sleep 0.01; done"));
        let (mut child, out) = started(command.process_group(0).pidfd(pidfd));
        assert_eq!(child.terminate_group(SIGTERM, MOMENT).expect("terminate").signal(), Some(SIGKILL));
        all_gone(out);
    }
    // The child ends, and a grandchild takes its time: it gets it.
    if observe::is_kernel_at_least(6, 9) {
        let slow =
            "(trap 'sleep 0.2; echo done; exit' TERM; echo ready; while :; do sleep 0.01; done) & exec sleep 1000";
        let (mut child, mut out) = started(sh(slow).process_group(0));
        assert_eq!(child.terminate_group(SIGTERM, LONG).expect("terminate").signal(), Some(SIGTERM));
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("read");
        assert_eq!(rest, "done\n");
        // A member that has ended and is not reaped, here by this process, is no reason to wait.
        let mut leader = sleeper().process_group(0).spawn().expect("spawn");
        let mut member = sleeper().process_group(leader.id() as i32).spawn().expect("spawn");
        let begun = Instant::now();
        assert_eq!(leader.terminate_group(SIGTERM, LONG).expect("terminate").signal(), Some(SIGTERM));
        assert!(begun.elapsed() < LONG, "it waited for a zombie");
        assert_eq!(member.wait().expect("wait").signal(), Some(SIGTERM));
    } else {
        skip("time for a group whose leader has ended", "this kernel is older than 6.9");
    }
    observe::assert_no_orphans();
}

scenario!(a_forked_process_that_drops_a_handle_kills_no_child);
/// A forked copy that drops a handle leaves the child, which is the original's, alone: it answers still.
pub fn a_forked_process_that_drops_a_handle_kills_no_child(_: &[String]) {
    for pidfd in [true, false] {
        let mut command = Command::new("/bin/cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).pidfd(pidfd).kill_on_drop(true);
        let mut child = Some(command.spawn().expect("spawn"));
        in_a_copy(|| drop(child.take()));
        let mut child = child.expect("ours");
        child.stdin.take().expect("a pipe").write_all(b"alive").expect("write");
        let output = child.wait_with_output().expect("output");
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"alive"[..]), "with a pidfd: {pidfd}");
    }
    observe::assert_no_orphans();
}

scenario!(dropped_handles_kill_with_kill_on_drop);
/// By command, prepared command, and handle; in a panic; in pipelines, each program as it says.
pub fn dropped_handles_kill_with_kill_on_drop(_: &[String]) {
    // It waits until it is let go, at the latest by `said`.
    let held = |kill: bool| {
        let ((read, write), (go, hold)) = (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
        let mut command = sh("read go <&4; echo lived >&3");
        command.fd(OwnedFd::from(write), 3).fd(OwnedFd::from(go), 4).kill_on_drop(kill);
        (command, (read, hold))
    };
    let said = |(mut read, hold): (PipeReader, PipeWriter)| {
        drop(hold);
        // A child launched a moment ago keeps its plan, and with it our end of the pipe, until it has been looked after.
        eventually("orphans reaped", || forkless::reap_orphans() == 0);
        let mut text = String::new();
        read.read_to_string(&mut text).expect("read");
        text
    };
    for (kill, expected) in [(true, ""), (false, "lived\n")] {
        let (mut command, read) = held(kill);
        drop(command.spawn().expect("spawn"));
        drop(command);
        assert_eq!(said(read), expected, "spawned");
        let (mut command, read) = held(kill);
        drop(command.prepare().expect("prepare").launch().expect("launch"));
        drop(command);
        assert_eq!(said(read), expected, "prepared and launched");
        let (mut command, read) = held(!kill);
        let mut child = command.pidfd(false).spawn().expect("spawn");
        child.kill_on_drop(kill);
        drop((child, command));
        assert_eq!(said(read), expected, "by its handle");
        let (mut command, read) = held(kill);
        let child = command.spawn().expect("spawn");
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _child = child;
            std::panic::resume_unwind(Box::new("planned"));
        }));
        assert!(panic.is_err());
        drop(command);
        assert_eq!(said(read), expected, "in a panic");
        let (mut command, read) = held(kill);
        let mut pipeline = Pipeline::new();
        pipeline.command(&mut command).expect("a program").command(&mut sh("exec sleep 0.1")).expect("a program");
        drop(pipeline.spawn().expect("spawn"));
        drop((pipeline, command));
        assert_eq!(said(read), expected, "in a pipeline");
        // One that has been waited for is left alone, and so are statuses.
        let (mut command, (read, hold)) = held(kill);
        drop(hold);
        assert!(command.status().expect("status").success());
        let mut child = command.spawn().expect("spawn");
        assert!(child.wait().expect("wait").success());
        drop((child, command));
        assert_eq!(std::io::read_to_string(read).expect("read"), "lived\nlived\n");
    }
    observe::assert_no_orphans();
}

scenario!(waits_are_interrupted_by_a_signal);
/// Waits that signals end lose nothing.
pub fn waits_are_interrupted_by_a_signal(_: &[String]) {
    storms::handle(libc::SIGALRM);
    storms::start_timer(libc::ITIMER_REAL, 5_000);
    for pidfd in [false, true] {
        let (go, hold) = std::io::pipe().expect("a pipe");
        let mut command = sh("read go; exit 3");
        let mut child = command.stdin(OwnedFd::from(go)).pidfd(pidfd).spawn().expect("spawn");
        // It goes on when some waits have been ended, at the first of which it cannot have gone on.
        let (mut interrupted, mut hold) = (0, Some(hold));
        let status = loop {
            match child.wait_interruptible() {
                Err(error) if error.kind() == ErrorKind::Interrupted => interrupted += 1,
                answer => break answer.expect("wait"),
            }
            if interrupted == 10 {
                hold = None;
            }
        };
        assert!(interrupted >= 10 && hold.is_none(), "with a pidfd: {pidfd}");
        assert_eq!((status.code(), child.wait_interruptible().expect("known").code()), (Some(3), Some(3)));
    }
    storms::start_timer(libc::ITIMER_REAL, 0);
    observe::assert_no_orphans();
}

scenario!(children_are_signalled_where_pidfd_send_signal_is_refused["38"]["1"]["13"]);
/// Where `pidfd_send_signal` is refused with the errno of the argument, as a filter that does not know it does.
/// A container's seccomp filter may return any of these errnos.
pub fn children_are_signalled_where_pidfd_send_signal_is_refused(args: &[String]) {
    let errno = args[0].parse().expect("an errno");
    refuse(&[Refusal::of(libc::SYS_pidfd_send_signal, Answer::Errno(errno))]).expect("a filter");
    let mut child = sleeper().spawn().expect("spawn");
    assert!(child.pidfd().is_some());
    child.kill().expect("kill");
    assert_eq!(child.wait().expect("wait").signal(), Some(SIGKILL));
    child.kill().expect("an ended child is no error");
    // Dropped.
    let (mut read, write) = std::io::pipe().expect("a pipe");
    drop(sleeper().fd(OwnedFd::from(write), 3).kill_on_drop(true).spawn().expect("spawn"));
    let mut text = String::new();
    read.read_to_string(&mut text).expect("read");
    eventually("orphans reaped", || forkless::reap_orphans() == 0);
    // Time-outs.
    let captured = sleeper().capture(&Capture::new().timeout(MOMENT)).expect("a capture");
    assert!(captured.timed_out && captured.status.signal() == Some(SIGKILL));
    assert_eq!(sleeper().spawn().expect("spawn").terminate(SIGTERM, LONG).expect("terminate").signal(), Some(SIGTERM));
    // A group, of which one is deaf.
    let deaf = "(trap '' TERM; echo ready; while :; do sleep 0.01; done) & exec sleep 1000";
    let (mut child, out) = started(sh(deaf).process_group(0));
    assert_eq!(child.terminate_group(SIGTERM, MOMENT).expect("terminate").signal(), Some(SIGTERM));
    all_gone(out);
    // No such signal, and a child that somebody else has reaped: its number is left alone.
    let mut child = Command::new("true").spawn().expect("spawn");
    let pid = child.id() as i32;
    assert_eq!(foreign::wait(pid, 0), Ok((pid, 0)));
    child.kill().expect("an ended child is no error");
    assert_eq!(child.signal(65).map_err(|error| error.raw_os_error()), Ok(()));
    let mut child = sleeper().spawn().expect("spawn");
    assert_eq!(child.signal(65).expect_err("no such signal").raw_os_error(), Some(libc::EINVAL));
    child.kill().expect("kill");
    child.wait().expect("wait");
    observe::assert_no_orphans();
}
