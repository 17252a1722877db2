//! What other code in the process sees of launches, and which statuses it can take.

use crate::elf::Programs;
use crate::foreign;
use crate::launched::Command;
use crate::observe::{self, eventually, skip};
use forkless::{Child, Error, Stdio, Step};
use forkless_tests::filter::{Answer, Refusal, refuse};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

/// SIGCHLDs handled.
static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_one(_: i32) {
    SEEN.fetch_add(1, Relaxed);
}

fn on_sigchld(handler: libc::sighandler_t) {
    // SAFETY: the handler only counts; the others are SIG_IGN and SIG_DFL.
    unsafe { libc::signal(libc::SIGCHLD, handler) };
}

scenario!(a_failed_launch_is_invisible);
/// Neither a handler nor a loop of `waitpid(-1)` sees a launch that fails; both see a fork whose exec fails.
pub fn a_failed_launch_is_invisible(_: &[String]) {
    let programs = Programs::new();
    let missing = programs.path("missing");
    on_sigchld(count_one as *const () as libc::sighandler_t);
    let stop = AtomicBool::new(false);
    let found = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                match foreign::wait(-1, libc::WNOHANG) {
                    Err(libc::ECHILD) => {}
                    // Even "a child, but nothing to report" would be a sight of it.
                    _ => {
                        found.fetch_add(1, Relaxed);
                    }
                }
            }
        });
        for _ in 0..100 {
            fail_in_every_way(&programs.exits(0), &missing);
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(SEEN.load(Relaxed), 0, "SIGCHLDs from launches that failed");
    assert_eq!(found.load(Relaxed), 0, "sights of launches that failed by waitpid(-1)");
    assert_eq!(foreign::wait(-1, libc::WNOHANG), Err(libc::ECHILD));
    // The handler and the loop are not blind.
    let pid = foreign::fork_exec(&missing);
    eventually("SIGCHLD from a fork", || SEEN.load(Relaxed) == 1);
    assert_eq!(foreign::wait(-1, 0), Ok((pid, 127 << 8)));
    observe::assert_no_orphans();
}

fn fail_in_every_way(program: &Path, missing: &Path) {
    let bad_directory = || {
        let mut command = Command::new(program);
        command.current_dir(missing);
        command
    };
    assert!(Command::new(missing).spawn().is_err());
    assert!(Command::new(missing).status().is_err());
    assert!(Command::new(missing).output().is_err());
    assert!(Command::new(missing).launch().and_then(|mut child| child.wait()).is_err());
    assert!(Command::new(missing).stdin(Stdio::piped()).launch().and_then(|mut child| child.wait_exec()).is_err());
    assert!(bad_directory().spawn().is_err());
    assert!(bad_directory().status().is_err());
    // SAFETY: nothing is open there.
    assert!(Command::new(program).fd(unsafe { Stdio::fd(7777) }, 3).spawn().is_err());
    assert!(Command::new(missing).prepare().expect("prepare").status().is_err());
    drop(Command::new(missing).launch());
}

scenario!(a_good_launch_is_visible);
/// A launch that works raises SIGCHLD at its end, like any child, and `waitpid(-1)` sees it.
pub fn a_good_launch_is_visible(_: &[String]) {
    let programs = Programs::new();
    on_sigchld(count_one as *const () as libc::sighandler_t);
    for n in 1..=50 {
        assert!(Command::new(programs.exits(0)).status().expect("status").success());
        eventually("SIGCHLD", || SEEN.load(Relaxed) == n);
    }
    let child = Command::new(programs.exits(4)).spawn().expect("spawn");
    assert_eq!(foreign::wait(-1, 0), Ok((child.id() as i32, 4 << 8)));
}

scenario!(
    exit_statuses_are_kept_where_sigchld_is_ignored,
    statuses_are_kept_where_sigchld_is_ignored_by_fork["launcher=fork"]
);
/// With SIGCHLD ignored the kernel discards statuses; those of children with a pidfd are kept.
pub fn exit_statuses_are_kept_where_sigchld_is_ignored(_: &[String]) {
    if !observe::is_kernel_at_least(6, 15) {
        return skip("exit statuses under SIGCHLD=SIG_IGN", "this kernel is older than 6.15");
    }
    let programs = Programs::new();
    let seven = programs.exits(7);
    on_sigchld(libc::SIG_IGN);
    let prepared = Command::new(&seven).prepare().expect("prepare");
    for n in 0..observe::scaled(500) {
        let status = match n % 6 {
            0 => Command::new(&seven).status(),
            1 => Command::new(&seven).output().map(|output| output.status),
            2 => Command::new(&seven).spawn().and_then(|mut child| child.wait()),
            3 => Command::new(&seven).launch().and_then(|mut child| child.wait()),
            4 => prepared.status(),
            _ => poll(Command::new(&seven).spawn().expect("spawn")),
        };
        assert_eq!(status.expect("a status in spite of SIG_IGN").code(), Some(7), "launch {n}");
    }
    let mut killed = Command::new("/bin/sleep").arg("60").spawn().expect("spawn");
    killed.kill().expect("kill");
    let status = killed.wait().expect("wait");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    let mut blind = Command::new(&seven).pidfd(false).spawn().expect("spawn");
    expect_echild(blind.wait());
    expect_echild(blind.wait());
    // Failed launches say why, ignored or not.
    let error = Command::new(programs.path("missing")).status().expect_err("missing");
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Exec));
    on_sigchld(libc::SIG_DFL);
    observe::assert_no_orphans();
}

fn expect_echild(answer: std::io::Result<std::process::ExitStatus>) {
    let error = answer.expect_err("the status is gone");
    match Error::of(&error) {
        Some(detail) => assert_eq!((detail.errno(), detail.step()), (Some(libc::ECHILD), Step::Wait)),
        None => assert_eq!(error.raw_os_error(), Some(libc::ECHILD)),
    }
}

/// `try_wait` until there is an answer.
fn poll(mut child: Child) -> std::io::Result<std::process::ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::yield_now();
    }
}

scenario!(exit_statuses_are_kept_from_a_foreign_reaper);
/// A thread that reaps whatever it finds takes no status from a handle with a pidfd.
pub fn exit_statuses_are_kept_from_a_foreign_reaper(_: &[String]) {
    let kept = observe::is_kernel_at_least(6, 15);
    if !kept {
        skip("exit statuses in spite of a foreign reaper", "this kernel is older than 6.15");
    }
    let programs = Programs::new();
    let seven = programs.exits(7);
    let (stop, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut lost, mut rounds) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                if matches!(foreign::wait(-1, libc::WNOHANG), Ok((pid, _)) if pid > 0) {
                    taken.fetch_add(1, Relaxed);
                }
            }
        });
        for n in 0..observe::scaled(3000) {
            let answer = match n % 3 {
                0 => Command::new(&seven).spawn().and_then(|mut child| child.wait()),
                1 => Command::new(&seven).spawn().and_then(poll),
                _ => Command::new(&seven).launch().and_then(|mut child| child.wait()),
            };
            rounds += 1;
            match answer {
                Ok(status) => assert_eq!(status.code(), Some(7)),
                Err(error) => {
                    let detail = Error::of(&error).expect("an error of this crate");
                    assert_eq!((detail.step(), detail.errno()), (Step::Wait, Some(libc::ECHILD)), "{error}");
                    lost += 1;
                }
            }
        }
        stop.store(true, Relaxed);
    });
    assert!(taken.load(Relaxed) > 0, "the reaper took nothing, so nothing was tested");
    eprintln!("the reaper took {} of {rounds}", taken.load(Relaxed));
    if kept {
        assert_eq!(lost, 0, "exit statuses lost of {rounds}");
    }
    forkless::reap_orphans();
    without_pidfd_says_so(&seven);
    observe::assert_no_orphans();
}

fn without_pidfd_says_so(program: &Path) {
    let mut blind = Command::new(program).pidfd(false).spawn().expect("spawn");
    assert_eq!(foreign::wait(blind.id() as i32, 0), Ok((blind.id() as i32, 7 << 8)));
    expect_echild(blind.wait());
}

/// A process of ours, the first of its group, that has got this pid; none where nobody may choose one.
fn stranger(pid: i32) -> Option<std::process::Child> {
    // Root may choose pids in its namespace; as anyone else the write below is refused.
    let last = "/proc/sys/kernel/ns_last_pid";
    for _ in 0..200 {
        if fs::write(last, (pid - 1).to_string()).is_err() {
            skip("a kill after the pid was reused", "choosing a pid needs CAP_CHECKPOINT_RESTORE");
            return None;
        }
        let mut other = std::process::Command::new("/bin/sleep").arg("20").process_group(0).spawn().expect("spawn");
        if other.id() as i32 == pid {
            return Some(other);
        }
        other.kill().expect("kill");
        other.wait().expect("wait");
    }
    None
}

scenario!(a_handle_does_not_signal_a_process_with_a_reused_pid);
/// A handle with a pidfd does not signal another process that has got its child's pid, nor that one's group.
pub fn a_handle_does_not_signal_a_process_with_a_reused_pid(_: &[String]) {
    let programs = Programs::new();
    let mut child = Command::new(programs.exits(7)).process_group(0).spawn().expect("spawn");
    let pid = child.id() as i32;
    assert_eq!(foreign::wait(pid, 0), Ok((pid, 7 << 8)));
    child.kill().expect("a kill after a foreign reap does nothing");
    child.signal(libc::SIGTERM).expect("nor does another signal");
    let Some(mut victim) = stranger(pid) else { return };
    child.kill().expect("kill");
    let _ = child.signal_group(libc::SIGKILL);
    let mut lives = |what: &str| {
        thread::sleep(std::time::Duration::from_millis(20));
        assert!(victim.try_wait().expect("wait").is_none(), "{what}");
    };
    lives("the process with the reused pid was killed");
    // By number, where the kernel, or a filter, does not let it be done by pidfd.
    refuse(&[Refusal::of(libc::SYS_pidfd_send_signal, Answer::Errno(libc::ENOSYS))]).expect("a filter");
    child.kill().expect("kill");
    lives("the process with the reused pid was killed by number");
    child.signal_group(libc::SIGKILL).expect_err("there is no such group any more");
    lives("the group with the reused number was killed");
    if observe::is_kernel_at_least(6, 15) {
        let status = observe::within("a wait for a child that another has reaped", || child.wait().expect("wait"));
        assert_eq!(status.code(), Some(7), "the handle's status is its own child's");
    }
    drop(child);
    lives("the victim was reaped");
    // Control: a kill by pid hits it.
    // The victim is our own child and has not been reaped.
    forkless_tests::process::kill(pid, libc::SIGKILL);
    assert!(!victim.wait().expect("wait").success());
    watched_by_number(&programs.exits(7));
}

/// A handle without a pidfd whose child is gone does not signal a process with the reused pid.
fn watched_by_number(program: &Path) {
    let child = Command::new(program).pidfd(false).spawn().expect("spawn");
    let pid = child.id() as i32;
    assert_eq!(foreign::wait(pid, 0), Ok((pid, 7 << 8)));
    // Its own parent's child, and not ours: another process of the same number.
    let script = format!(
        "while :; do echo {} >/proc/sys/kernel/ns_last_pid || exit 3; sleep 20 & [ $! = {pid} ] && break; kill $!; done; echo up; wait",
        pid - 1
    );
    let mut other = std::process::Command::new("/bin/sh");
    other.args(["-c", &script]).process_group(0);
    let mut other = other.stdout(std::process::Stdio::piped()).spawn().expect("spawn");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(other.stdout.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("read");
    if line == "up\n" {
        let mut set = forkless::WaitSet::new().expect("a set");
        set.insert(child, ()).expect("insert");
        let ended = set.wait_timeout(std::time::Duration::from_secs(5)).expect("wait");
        expect_echild(ended.expect("a stranger is waited for").status);
    } else {
        skip("a set, after the pid was reused", "the pid could not be had");
    }
    // SAFETY: the group of the shell that was started above.
    unsafe { libc::kill(-(other.id() as i32), libc::SIGKILL) };
    other.wait().expect("wait");
}
