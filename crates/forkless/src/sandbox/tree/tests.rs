//! What is left of the processes of a program, after each way in which it can end.

use super::super::{REFUSES_SIGNALS, Sandbox, landlock};
use crate::kernel::SIGKILL;
use crate::{BpfInstruction, Capability, CapabilitySet, Capture, Command, Error, Namespace, Stdio, Step};
use forkless_core::sys::{errno, uapi};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// Whether this kernel can keep the promise.
fn can() -> bool {
    let can = landlock::version().unwrap_or(0) >= REFUSES_SIGNALS;
    if !can {
        eprintln!("SKIPPED: kill_tree: needs version {REFUSES_SIGNALS} of Landlock");
    }
    can
}

/// A shell whose processes have `mark` in their arguments.
fn tree(line: &str, mark: u32) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &line.replace("SLEEP", &format!("sleep {mark}"))]).kill_tree(true);
    command
}

/// How many processes run that have the mark, but for shells that are about to start them.
fn left(mark: u32) -> usize {
    let wanted = format!("sleep\0{mark}\0");
    let processes = std::fs::read_dir("/proc").expect("procfs").flatten();
    processes
        .filter(|one| std::fs::read(one.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes()))
        .count()
}

/// Waits until this many of them run.
fn wait_for(count: usize, mark: u32) {
    let begun = std::time::Instant::now();
    while left(mark) != count {
        assert!(begun.elapsed() < Duration::from_secs(10), "{} run, not {count}", left(mark));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_timeout_ends_all_that_was_started() {
    if !can() {
        return;
    }
    for (mark, line) in [
        (70_001, "setsid SLEEP & SLEEP"),
        // Its parents have ended.
        (70_002, "(setsid sh -c 'SLEEP & setsid SLEEP' &); SLEEP"),
        (70_003, "trap '' TERM HUP INT; SLEEP & SLEEP; SLEEP"),
        // In other process groups.
        (70_004, "set -m; SLEEP & SLEEP & SLEEP"),
        // Without end.
        (70_005, "while :; do (setsid SLEEP &); done"),
    ] {
        let mut command = tree(line, mark);
        let captured = command.capture(&Capture::new().timeout(Duration::from_millis(300))).expect("a launch");
        assert!(captured.timed_out, "{line}");
        assert_eq!(captured.status.signal(), Some(SIGKILL), "{line}");
        assert_eq!(left(mark), 0, "{line}");
    }
}

#[test]
fn the_end_of_the_program_ends_the_rest() {
    if !can() {
        return;
    }
    let status = tree("setsid SLEEP & sleep 0.2; exit 4", 70_011).status().expect("a launch");
    assert_eq!((status.code(), left(70_011)), (Some(4), 0));
    let status = tree("(setsid SLEEP &); sleep 0.2; kill -TERM $$", 70_012).status().expect("a launch");
    assert_eq!((status.signal(), left(70_012)), (Some(15), 0));
    // What ends soon may end by itself, as bash's `exec > >(tee log)`. On a busy machine it may come too late.
    let is_late = |_| tree("(sleep 0.05; echo late) & exit 0", 70_013).output().expect("a launch").stdout == b"late\n";
    assert!((0..50).any(is_late));
}

#[test]
fn the_handle_ends_all() {
    if !can() {
        return;
    }
    let line = "(setsid SLEEP &); SLEEP";
    for (mark, end) in [
        (70_021, (|mut child| child.kill()) as fn(crate::Child) -> std::io::Result<()>),
        (70_022, |mut child| child.signal_group(SIGKILL)),
        (70_023, |mut child| child.terminate(15, Duration::from_secs(10)).map(drop)),
        (70_024, |mut child| child.terminate_group(15, Duration::ZERO).map(drop)),
        (70_025, |mut child| {
            child.kill_on_drop(true);
            Ok(())
        }),
    ] {
        let child = tree(line, mark).setsid(true).spawn().expect("a launch");
        wait_for(2, mark);
        end(child).expect("the end");
        wait_for(0, mark);
    }
}

/// At any moment of its start: on its way to init, in init, and when the program has just begun.
#[test]
fn a_kill_comes_at_any_moment_and_waits_for_nothing() {
    if !can() {
        return;
    }
    for wait in 0..200 {
        let mut child = tree("(setsid SLEEP &); (setsid SLEEP &); SLEEP", 70_051).launch().expect("a launch");
        std::thread::sleep(Duration::from_micros(wait * 10));
        child.kill().expect("a kill");
        if let Ok(status) = child.wait() {
            assert_eq!(status.signal(), Some(SIGKILL));
        }
        assert_eq!(left(70_051), 0, "after {} µs", wait * 10);
    }
    // It is held up before init: nobody writes to the FIFO.
    let directory = std::env::temp_dir().join(format!("forkless-tree-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let fifo = directory.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
    let mut child = tree("", 0).fd(Stdio::open(&fifo, 0, 0), 0).launch().expect("a launch");
    child.kill().expect("a kill");
    assert!(child.wait().expect_err("no program").to_string().contains("signal 9"));
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn the_program_gets_signals_and_can_neither_send_one_outside_nor_end_its_init() {
    if !can() {
        return;
    }
    let mut command = tree("trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.01; done", 70_031);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("a launch");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("ready"));
    child.signal(15).expect("a signal");
    assert_eq!(lines.next().as_deref(), Some("got"));
    assert_eq!(child.wait().expect("an end").code(), Some(5));

    let outside = std::process::id();
    let line = format!("kill -0 $PPID || kill -9 $PPID || kill -0 {outside} || echo refused");
    let mut command = tree(&line, 70_032);
    assert_eq!(command.stderr(Stdio::null()).output().expect("a launch").stdout, b"refused\n");
}

#[test]
fn it_combines_with_sandboxes_and_namespaces() {
    if !can() {
        return;
    }
    for (mark, sandbox) in [(70_041, Sandbox::landlock()), (70_042, Sandbox::new())] {
        let sandbox = match sandbox.prepare().and_then(|sandbox| sandbox.check().map(|()| sandbox)) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                eprintln!("SKIPPED: {error}");
                continue;
            }
        };
        let mut command = tree("(setsid SLEEP &); SLEEP", mark);
        command.current_dir("/").sandbox(&sandbox);
        let captured = command.capture(&Capture::new().timeout(Duration::from_millis(300))).expect("a launch");
        assert!(captured.timed_out);
        wait_for(0, mark);
    }
    // The kernel ends a namespace with its init.
    let plan = |command: &mut Command| crate::plan::compile::compile(command, false).expect("a plan");
    assert!(plan(tree("", 0).unshare(Namespace::Pid)).inner.is_some_and(|inner| !inner.kills_tree));
    assert!(plan(&mut tree("", 0)).inner.is_some_and(|inner| inner.kills_tree));
    assert!(plan(tree("", 0).kill_tree(false)).inner.is_none());
}

/// The caller is this test in a process of its own.
#[test]
fn the_end_of_the_caller_ends_all() {
    const CALLER: &str = "FORKLESS_TREE_CALLER";
    let line = "(setsid SLEEP &); SLEEP; exit 0";
    let with_namespace = |mark| {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut command = tree(if mark == 0 { "exit 0" } else { line }, mark);
        command.unshare(Namespace::User).unshare(Namespace::Pid).map_uid(uid, uid, 1).map_gid(gid, gid, 1);
        command
    };
    if let Ok(mark) = std::env::var(CALLER) {
        let mark = mark.parse().expect("a number");
        let mut command = if mark == 70_062 { with_namespace(mark) } else { tree(line, mark) };
        command.status().expect("a launch");
        return;
    }
    for mark in [70_061, 70_062] {
        let can = if mark == 70_061 { can() } else { with_namespace(0).status().is_ok() };
        if !can {
            eprintln!("SKIPPED: no namespaces");
            continue;
        }
        let mut caller = Command::new(std::env::current_exe().expect("this program"));
        caller.args(["--exact", "sandbox::tree::tests::the_end_of_the_caller_ends_all"]).env(CALLER, mark.to_string());
        let mut caller = caller.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a caller");
        wait_for(2, mark);
        caller.kill().expect("a kill");
        caller.wait().expect("an end");
        wait_for(0, mark);
    }
}

#[test]
fn what_init_cannot_do_is_refused() {
    if !can() {
        return;
    }
    let refused = |command: &mut Command| command.status().expect_err("refused").to_string();
    assert!(refused(tree("", 0).pidfd_autokill(true)).contains("kill_tree: pidfd_autokill"));
    assert!(refused(tree("", 0).thread_death_signal(SIGKILL)).contains("kill_tree: thread_death_signal"));
    let file = std::fs::File::open("/bin/true").expect("true");
    assert!(refused(tree("", 0).program_fd(file)).contains("kill_tree: program_fd"));
    assert!(tree("exit 0", 0).parent_death_signal(SIGKILL).status().expect("a launch").success());
    let error = Command::new("/no/such").kill_tree(true).status().expect_err("no such program");
    let error = Error::of(&error).expect("an error of this library");
    assert_eq!((error.step(), error.errno()), (Step::Exec, Some(errno::ENOENT)));
}

/// A program with CAP_SETUID can start processes of other users, for which init needs CAP_KILL.
#[test]
fn processes_of_another_user_end_too_or_nothing_is_started() {
    if !can() || !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: kill_tree of another user: needs root");
    }
    let line = "setsid setpriv --reuid=65534 SLEEP & setpriv --reuid=65534 SLEEP";
    let mut command = tree(line, 70_071);
    let captured = command.capture(&Capture::new().timeout(Duration::from_millis(500))).expect("a launch");
    assert!(captured.timed_out);
    assert_eq!(left(70_071), 0);
    let without = |capability: Capability| {
        let kept = CapabilitySet::from_bits(!(1 << capability as u64));
        tree("exit 0", 0).bounding_set(kept).status()
    };
    let error = without(Capability::Kill).expect_err("it could not be killed");
    let error = Error::of(&error).expect("an error of this library");
    assert_eq!((error.step(), error.errno()), (Step::Capabilities, Some(errno::EPERM)), "{error}");
    assert!(without(Capability::Setuid).expect("a launch").success());
}

/// Init kills all that it may signal, which without a domain are all processes of the user.
#[test]
fn nothing_is_killed_where_landlock_only_seems_to_work() {
    if !can() {
        return;
    }
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ERRNO: u32 = 0x0005_0000;
    const KILL_PROCESS: u32 = 0x8000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let one = |code, jt, jf, k| BpfInstruction { code, jt, jf, k };
    let filter = [
        one(LOAD, 0, 0, 0),
        one(JUMP_EQUAL, 0, 1, uapi::__NR_landlock_restrict_self),
        // As if it had succeeded.
        one(RETURN, 0, 0, ERRNO),
        // kill(-1, …): this test would be over, and much else.
        one(JUMP_EQUAL, 0, 3, uapi::__NR_kill),
        one(LOAD, 0, 0, 16),
        one(JUMP_EQUAL, 0, 1, u32::MAX),
        one(RETURN, 0, 0, KILL_PROCESS),
        one(RETURN, 0, 0, ALLOW),
    ];
    let error = tree("exit 0", 0).seccomp(filter).status().expect_err("no domain");
    let error = Error::of(&error).expect("an error of this library");
    assert_eq!((error.step(), error.errno()), (Step::Landlock, Some(errno::EOPNOTSUPP)), "{error}");
}
