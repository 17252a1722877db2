//! Tests of awaited children: on a runtime with one thread, where anything that blocks would stop other tasks, and on
//! one with several.

testing::usual_surroundings!();

use forkless::tokio::{Child, Command, Prepared, Stdio};
use forkless::{Capture, Error, Step};
use std::future::Future;
use std::io::{ErrorKind, Result};
use std::os::unix::process::ExitStatusExt;
use std::panic::resume_unwind;
use std::process::ExitStatus;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A generous limit: only a hang exceeds it.
const LIMIT: Duration = Duration::from_secs(100);

/// Usually long enough for a child to reach its wait. If it is too short, no test fails.
const SHORT: Duration = Duration::from_millis(20);

/// Runs a test in its own thread: if the test blocks its runtime, the runtime's own timeout cannot stop it.
fn bounded<F: Future<Output = ()>>(mut runtime: Builder, test: impl FnOnce() -> F + Send + 'static) {
    let (over, end) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _over = over;
        runtime.enable_all().build().expect("a runtime").block_on(test());
    });
    assert!(end.recv_timeout(LIMIT * forkless_tests::patience::factor()) != Err(RecvTimeoutError::Timeout), "it hangs");
    if let Err(panic) = thread.join() {
        resume_unwind(panic);
    }
}

macro_rules! on_both_runtimes {
    ($($name:ident)*) => {
        mod on_one_thread {
            $(#[test]
            fn $name() {
                super::bounded(super::Builder::new_current_thread(), super::$name);
            })*
        }

        mod on_several_threads {
            $(#[test]
            fn $name() {
                super::bounded(super::Builder::new_multi_thread(), super::$name);
            })*
        }
    };
}

on_both_runtimes! {
    statuses_come_from_every_way_to_run
    waiting_does_not_block_other_tasks
    a_dropped_wait_can_be_repeated
    whichever_ends_first_is_selected
    terminate_sends_a_signal_and_then_sigkill
    failures_name_the_step
    failures_after_launch_are_returned_by_wait
    long_outputs_are_read_concurrently
    input_to_a_child_that_has_closed_it_is_an_error
    a_thousand_children_at_most_64_at_a_time
    dropped_futures_kill_with_kill_on_drop
    children_get_any_descriptor_at_any_number
    blocking_children_can_be_awaited
    settings_are_available_through_the_async_command
    captures_have_input_limits_and_a_timeout
    a_capture_leaves_the_runtime_to_other_tasks
    a_dropped_capture_ends_its_program
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

async fn wait(started: Result<Child>) -> Result<ExitStatus> {
    started?.wait().await
}

async fn statuses_come_from_every_way_to_run() {
    let mut command = sh("exit 3");
    let prepared = command.prepare().expect("prepare");
    let codes = [
        command.status().await,
        command.output().await.map(|output| output.status),
        wait(command.spawn()).await,
        wait(command.launch()).await,
        prepared.status().await,
        prepared.output().await.map(|output| output.status),
        wait(prepared.spawn()).await,
        wait(prepared.launch()).await,
        Prepared::from(command.into_forkless().prepare().expect("prepare")).status().await,
    ]
    .map(|status| status.expect("a status").code());
    assert_eq!(codes, [Some(3); 9]);
    // The prepared command's own redirections take precedence.
    let output = sh("cat; echo out; echo err >&2").stderr(Stdio::null()).prepare().expect("prepare").output().await;
    let output = output.expect("output");
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b""[..]));
    let mut child = sh("read line; exit $line").stdin(Stdio::piped()).spawn().expect("spawn");
    assert_eq!(child.id(), Some(child.as_forkless().id()));
    child.stdin.as_mut().expect("a pipe").write_all(b"5\n").await.expect("write");
    assert_eq!(child.wait().await.expect("wait").code(), Some(5));
    assert_eq!(child.try_wait().expect("wait").and_then(|status| status.code()), Some(5));
    assert_eq!(child.id(), None);
    assert!(child.as_forkless().usage().is_some());
}

/// Another task of the same runtime lets the child end. If the wait blocked the thread, it would never return.
async fn waiting_does_not_block_other_tasks() {
    let mut child = sh("read line; exit $line").stdin(Stdio::piped()).spawn().expect("spawn");
    let mut input = child.stdin.take().expect("a pipe");
    let waiting = tokio::spawn(async move { child.wait().await });
    let mut output = Command::new("cat");
    let mut cat = output.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn");
    let mut words = cat.stdin.take().expect("a pipe");
    let reading = tokio::spawn(cat.wait_with_output());
    tokio::time::sleep(SHORT).await;
    assert!(!waiting.is_finished() && !reading.is_finished());
    input.write_all(b"6\n").await.expect("write");
    words.write_all(b"hello").await.expect("write");
    drop(words);
    assert_eq!(waiting.await.expect("a task").expect("wait").code(), Some(6));
    assert_eq!(reading.await.expect("a task").expect("output").stdout, b"hello");
}

async fn a_dropped_wait_can_be_repeated() {
    let mut command = sh("read line; exit 7");
    let mut child = command.stdin(Stdio::piped()).spawn().expect("spawn");
    // Kept open here, because a wait closes the pipe in the handle.
    let mut input = child.stdin.take().expect("a pipe");
    for _ in 0..5 {
        assert!(timeout(Duration::from_millis(1), child.wait()).await.is_err());
        assert!(child.try_wait().expect("wait").is_none() && child.id().is_some());
    }
    // Dropped in one task and repeated in another, which must be the one that is woken.
    let waiting = tokio::spawn(async move { (child.wait().await, child) });
    tokio::time::sleep(SHORT).await;
    input.write_all(b"\n").await.expect("write");
    let (status, mut child) = waiting.await.expect("a task");
    assert_eq!(status.expect("wait").code(), Some(7));
    // Dropped after the child's end, before it was returned.
    assert_eq!(timeout(Duration::ZERO, child.wait()).await.expect("at once").expect("wait").code(), Some(7));
    let mut child = Command::new("true").spawn().expect("spawn");
    while timeout(Duration::ZERO, child.wait()).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(child.wait().await.expect("wait").success());
}

async fn whichever_ends_first_is_selected() {
    let mut slow = Command::new("sleep").arg("60").kill_on_drop(true).spawn().expect("spawn");
    let mut quick = Command::new("true").spawn().expect("spawn");
    tokio::select! {
        _ = slow.wait() => panic!("a minute cannot be over"),
        status = quick.wait() => assert!(status.expect("wait").success()),
    }
    assert!(slow.try_wait().expect("wait").is_none());
}

async fn terminate_sends_a_signal_and_then_sigkill() {
    const SIGTERM: i32 = 15;
    let mut willing = Command::new("sleep").arg("60").spawn().expect("spawn");
    assert_eq!(willing.terminate(SIGTERM, LIMIT).await.expect("terminate").signal(), Some(SIGTERM));
    let mut deaf = sh("trap '' TERM; echo deaf; for n in $(seq 5000); do sleep 0.01; done");
    let mut deaf = deaf.stdout(Stdio::piped()).spawn().expect("spawn");
    deaf.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 5]).await.expect("read");
    assert_eq!(deaf.terminate(SIGTERM, SHORT).await.expect("terminate").signal(), Some(9));
    assert_eq!(deaf.terminate(SIGTERM, SHORT).await.expect("over").signal(), Some(9));
    // A stopped child must be continued to receive the signal.
    let mut stopped = Command::new("sleep").arg("60").spawn().expect("spawn");
    stopped.signal(19).expect("signal");
    assert_eq!(stopped.terminate(SIGTERM, LIMIT).await.expect("terminate").signal(), Some(SIGTERM));
    let mut child = Command::new("sleep").arg("60").spawn().expect("spawn");
    assert_eq!(child.signal(1000).expect_err("no such signal").kind(), ErrorKind::InvalidInput);
    child.kill().await.expect("kill");
    assert_eq!(child.wait().await.expect("wait").signal(), Some(9));
}

async fn failures_name_the_step() {
    for error in [
        Command::new("/no/such/program").spawn().expect_err("spawn"),
        Command::new("/no/such/program").stdin(Stdio::piped()).spawn().expect_err("spawn"),
        Command::new("/no/such/program").status().await.expect_err("status"),
        Command::new("/no/such/program").output().await.expect_err("output"),
        Command::new("/no/such/program").prepare().expect("prepare").status().await.expect_err("status"),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Exec), "{error}");
    }
    let error = Command::new("true").current_dir("/no/such").status().await.expect_err("status");
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Chdir), "{error}");
    let error = Command::new("nul\0byte").launch().expect_err("launch");
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Check), "{error}");
}

async fn failures_after_launch_are_returned_by_wait() {
    // Or by the launch itself, if the child was faster.
    let (mut late, mut seen) = (0, 0);
    for n in 0..200 {
        let Ok(mut child) = Command::new("/no/such/program").launch() else { continue };
        late += 1;
        let error = match n % 3 {
            0 => child.wait_with_output().await.expect_err("no output"),
            1 => {
                assert_eq!(child.wait().await.expect_err("no end").kind(), ErrorKind::NotFound);
                assert_eq!(child.id(), None);
                child.wait().await.expect_err("no end")
            }
            _ => loop {
                match child.try_wait_exec() {
                    Ok(executed) => assert!(!executed, "it cannot have been executed"),
                    Err(error) => break error,
                }
                seen += 1;
                tokio::task::yield_now().await;
            },
        };
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    eprintln!("{late} of 200 failures came after the launch; {seen} looks were too early");
    assert!(Command::new("true").spawn().expect("spawn").try_wait_exec().expect("executed"));
}

/// In either order: reading one stream to its end before the other would never return.
async fn long_outputs_are_read_concurrently() {
    const LENGTH: usize = 16 << 20;
    for (one, other) in [("", ">&2"), (">&2", "")] {
        let script = format!("head -c {LENGTH} /dev/zero {one}; head -c {LENGTH} /dev/zero {other}");
        let output = sh(&script).output().await.expect("output");
        assert_eq!((output.stdout.len(), output.stderr.len()), (LENGTH, LENGTH));
        assert!(output.stdout == output.stderr && output.status.success());
    }
}

async fn input_to_a_child_that_has_closed_it_is_an_error() {
    let mut child = sh("exec <&-; echo closed; read line <&1");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn");
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 7]).await.expect("read");
    let error = child.stdin.as_mut().expect("a pipe").write_all(b"too late").await.expect_err("nobody reads it");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    child.kill().await.expect("kill");
    // More data than a pipe holds, to a child that reads little of it: its end wakes the writer.
    let mut child =
        Command::new("head").args(["-c", "5"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn");
    let mut input = child.stdin.take().expect("a pipe");
    let writing = tokio::spawn(async move { input.write_all(&vec![b'x'; 1 << 20]).await });
    assert_eq!(child.wait_with_output().await.expect("output").stdout, b"xxxxx");
    assert_eq!(writing.await.expect("a task").expect_err("nobody reads it").kind(), ErrorKind::BrokenPipe);
}

async fn a_thousand_children_at_most_64_at_a_time() {
    async fn one(n: usize) -> Option<i32> {
        let mut command = sh(&format!("exit {}", n % 50));
        let status = match n % 4 {
            0 => command.status().await,
            1 => command.output().await.map(|output| output.status),
            2 => command.spawn().expect("spawn").wait().await,
            _ => command.launch().expect("launch").wait().await,
        };
        status.expect("a status").code()
    }
    let (mut running, mut done) = (JoinSet::new(), 0);
    for n in 0..1000 {
        running.spawn(async move { assert_eq!(one(n).await, Some((n % 50) as i32)) });
        if running.len() == 64 {
            running.join_next().await.expect("a task").expect("a status");
            done += 1;
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a status");
        done += 1;
    }
    assert_eq!(done, 1000);
}

/// The child holds a pipe: end of file on it means that the child has ended.
async fn dropped_futures_kill_with_kill_on_drop() {
    fn held(script: &str, kill: bool) -> (Command, std::io::PipeReader) {
        let (read, write) = std::io::pipe().expect("a pipe");
        let mut command = sh(script);
        command.fd(std::os::fd::OwnedFd::from(write), 3).kill_on_drop(kill);
        (command, read)
    }
    async fn end_of(read: std::io::PipeReader) -> String {
        let stream = std::process::ChildStdout::from(std::os::fd::OwnedFd::from(read));
        let mut found = String::new();
        let mut stream = forkless::tokio::ChildStdout::from_std(stream).expect("a stream");
        let end = timeout(Duration::from_secs(20), stream.read_to_string(&mut found)).await;
        end.expect("a child lives on").expect("read");
        found
    }
    let (mut command, read) = held("exec sleep 1000", true);
    drop(command.spawn().expect("spawn"));
    drop(command);
    assert_eq!(end_of(read).await, "");
    let (mut command, read) = held("exec sleep 1000", true);
    assert!(timeout(SHORT, command.status()).await.is_err());
    drop(command);
    assert_eq!(end_of(read).await, "");
    let (mut command, read) = held("exec sleep 1000", true);
    drop(command.output());
    let mut prepared = command.kill_on_drop(false).prepare().expect("prepare");
    drop(prepared.kill_on_drop(true).launch());
    drop((command, prepared));
    assert_eq!(end_of(read).await, "");
    // The setting is shared with the blocking command, however the command was created.
    let (mut command, read) = held("exec sleep 1000", false);
    command.as_forkless_mut().kill_on_drop(true);
    assert!(command.get_kill_on_drop());
    drop(command.spawn().expect("spawn"));
    let mut blocking = command.into_forkless();
    drop(Child::from_forkless(blocking.spawn().expect("spawn")).expect("watch"));
    drop(Prepared::from(blocking.prepare().expect("prepare")).launch().expect("launch"));
    drop(Command::from(blocking).launch().expect("launch"));
    assert_eq!(end_of(read).await, "");
    // What has left the session holds the pipe, too.
    let (mut command, read) = held("setsid sleep 1000 & sleep 1000", true);
    command.as_forkless_mut().kill_tree(true);
    if let Ok(Err(error)) = timeout(SHORT, command.status()).await {
        assert!(error.to_string().contains("Landlock"), "{error}");
        eprintln!("SKIPPED: kill_tree: {error}");
    }
    drop(command);
    assert_eq!(end_of(read).await, "");
    let group = |dir: &&&str| std::fs::OpenOptions::new().write(true).open(format!("{dir}/cgroup.procs")).is_ok();
    match ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().find(group) {
        Some(parent) => {
            let mut command = sh("setsid sleep 1000 & echo done");
            command.stdout(Stdio::piped()).as_forkless_mut().cgroup_parent(parent);
            assert_eq!(command.output().await.expect("output").stdout, b"done\n");
            let child = command.spawn().expect("spawn");
            assert_eq!(child.wait_with_output().await.expect("output").stdout, b"done\n");
        }
        None => eprintln!("SKIPPED: a cgroup for each launch: none is writable here"),
    }
    // Without kill_on_drop they are not killed.
    let (mut command, read) = held("sleep 0.1; echo lived >&3", false);
    drop(command.status());
    drop(command.spawn().expect("spawn"));
    drop(command);
    assert_eq!(end_of(read).await, "lived\nlived\n");
}

async fn children_get_any_descriptor_at_any_number() {
    let mut command = sh("cat <&5; echo done >&5");
    let mut child = command.fd(Stdio::socketpair(), 5).spawn().expect("spawn");
    let socket = std::os::unix::net::UnixStream::from(child.take_socket(5).expect("a socket"));
    assert!(child.take_socket(5).is_none());
    socket.shutdown(std::net::Shutdown::Write).expect("shutdown");
    assert!(child.wait().await.expect("wait").success());
    assert_eq!(std::io::read_to_string(socket).expect("read"), "done\n");
    // A socket that the caller does not take is closed, or this would never return.
    assert!(sh("cat <&5").fd(Stdio::socketpair(), 5).status().await.expect("status").success());
}

async fn blocking_children_can_be_awaited() {
    for pidfd in [true, false] {
        let mut command = forkless::Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).pidfd(pidfd);
        let mut child = Child::from_forkless(command.spawn().expect("spawn")).expect("watched");
        child.stdin.as_mut().expect("a pipe").write_all(b"over").await.expect("write");
        assert_eq!(child.wait_with_output().await.expect("output").stdout, b"over");
        let mut child = command.spawn().expect("spawn");
        assert!(child.wait().expect("wait").success());
        assert!(Child::from_forkless(child).expect("over").wait().await.expect("wait").success());
    }
    // Awaiting uses a pidfd, whatever the command's setting.
    let mut command = Command::new("true");
    command.as_forkless_mut().pidfd(false);
    let mut child = command.spawn().expect("spawn");
    assert!(child.as_forkless().pidfd().is_some());
    assert!(child.wait().await.expect("wait").success());
}

async fn settings_are_available_through_the_async_command() {
    let mut command = sh("ulimit -n");
    command.as_forkless_mut().rlimit(forkless::Resource::Files, 77, 77);
    assert_eq!(command.output().await.expect("output").stdout, b"77\n");
    // A seccomp filter that kills the child in exec is distinguished from a program that was killed.
    let kill = |number| {
        let word = |code, k| forkless::BpfInstruction { code, jt: 0, jf: 0, k };
        let test = forkless::BpfInstruction { code: 0x15, jt: 0, jf: 1, k: number };
        [word(0x20, 0), test, word(0x06, 0x8000_0000), word(0x06, 0x7fff_0000)]
    };
    let mut command = Command::new("true");
    command.as_forkless_mut().no_new_privs(true).seccomp(kill(libc::SYS_execve as u32));
    for error in [
        command.spawn().expect_err("spawn"),
        command.status().await.expect_err("status"),
        wait(command.launch()).await.expect_err("wait"),
    ] {
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Exec), "{error}");
    }
}

async fn captures_have_input_limits_and_a_timeout() {
    let much = vec![b'x'; 5 << 20];
    let copied = Command::new("cat").capture(&Capture::new().input(much.clone())).await.expect("capture");
    assert!(copied.stdout[..] == much[..] && copied.status.success() && copied.input_left == 0);
    let both =
        sh("yes out | head -c 300000; yes err | head -c 300000 >&2").capture(&Capture::new()).await.expect("capture");
    assert_eq!([both.stdout.len(), both.stderr.len()], [300_000; 2]);
    let merged = sh("echo out; echo err >&2").capture(&Capture::new().merged(true)).await.expect("capture");
    assert_eq!(&merged.stdout[..], b"out\nerr\n");
    let cut = Command::new("yes").capture(&Capture::new().limit(10).kill_at_limit(true)).await.expect("capture");
    assert_eq!((cut.stdout.len(), cut.status.signal()), (10, Some(9)));
    let how = Capture::new().timeout(Duration::from_millis(200)).terminate(15, Duration::from_secs(50));
    let late = sh("trap 'echo ended; exit 3' TERM; while :; do sleep 0.01; done").capture(&how).await.expect("capture");
    assert!(late.timed_out && late.status.code() == Some(3) && late.stdout[..] == *b"ended\n", "{late:?}");
    let held = sh("sleep 1000 & echo $!").capture(&Capture::new().linger(SHORT)).await.expect("capture");
    assert!(held.held_open && held.status.success());
    forkless::Command::new("kill").arg(held.text()).status().expect("kill");
    let file = sh("echo in memory").capture(&Capture::new().memory_file(true)).await.expect("capture");
    assert_eq!(&file.stdout[..], b"in memory\n");
    let unread = Command::new("true").capture(&Capture::new().input(much)).await.expect("capture");
    assert!(unread.status.success() && unread.input_left > 0);
    let none = Command::new("/no/such/program").capture(&Capture::new()).await.expect_err("no program");
    assert_eq!(none.kind(), ErrorKind::NotFound);
    let prepared = Command::new("cat").prepare().expect("prepare");
    let mut all = JoinSet::new();
    for n in 0..200 {
        all.spawn(prepared.capture(&Capture::new().input(n.to_string()).timeout(LIMIT)));
    }
    let mut seen: Vec<usize> =
        all.join_all().await.into_iter().map(|one| one.expect("capture").text().parse().expect("a number")).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..200));
}

/// Also while programs write without end.
async fn a_capture_leaves_the_runtime_to_other_tasks() {
    let mut zeroes = sh("for n in 1 2 3 4 5 6; do cat /dev/zero & done; wait");
    let how = Capture::new().limit(10).timeout(Duration::from_millis(300));
    let endless = tokio::spawn(zeroes.process_group(0).capture(&how));
    let sleeping = tokio::spawn(Command::new("sleep").arg("0.3").capture(&Capture::new()));
    let mut turns = 0;
    while !endless.is_finished() || !sleeping.is_finished() {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(turns > 20, "{turns} turns");
    assert!(endless.await.expect("no panic").expect("capture").timed_out);
    assert!(sleeping.await.expect("no panic").expect("capture").status.success());
}

async fn a_dropped_capture_ends_its_program() {
    let (read, write) = std::io::pipe().expect("a pipe");
    let mut command = sh("sleep 1000 & wait");
    command.fd(std::os::fd::OwnedFd::from(write), 3).process_group(0);
    let capture = command.capture(&Capture::new());
    // One that was never polled.
    drop(command.capture(&Capture::new()));
    drop(command);
    assert!(timeout(SHORT, capture).await.is_err());
    let mut end = forkless::tokio::ChildStdout::from_std(std::os::fd::OwnedFd::from(read).into()).expect("a stream");
    let ended = timeout(LIMIT, end.read_to_end(&mut Vec::new())).await;
    assert_eq!(ended.expect("its group lives on").expect("read"), 0);
}

#[test]
fn handles_can_be_moved_between_tasks() {
    fn goes<T: Send + Sync + 'static>(_: &T) {}
    fn moves<T: Future + Send + 'static>(_: &T) {}
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let mut command = Command::new("true");
    goes(&command);
    goes(&command.prepare().expect("prepare"));
    goes(&command.spawn().expect("spawn"));
    moves(&command.status());
    moves(&command.output());
    moves(&command.capture(&Capture::new()));
    moves(&command.spawn().expect("spawn").wait_with_output());
}
