//! Children on pseudo-terminals. `FORKLESS_TEST_SCALE` multiplies the number of rounds of the tests that count.

use forkless::{Child, Command, Error, Pty, PtySize, RawMode, Stdio, Step};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

mod alone;

/// Ends the whole program if the test that holds it hangs.
struct Bound(#[expect(dead_code, reason = "what counts is when it is dropped")] Sender<()>);

fn bound() -> Bound {
    let (sender, receiver) = channel::<()>();
    thread::spawn(move || {
        if receiver.recv_timeout(Duration::from_secs(300)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a test of terminals hangs");
            std::process::abort();
        }
    });
    Bound(sender)
}

fn scaled(count: usize) -> usize {
    let scale = std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    (count as f64 * scale).ceil() as usize
}

/// A terminal without echo; none, and a word about it, where there are none.
fn terminal(test: &str) -> Option<Pty> {
    match Pty::open(PtySize::default()) {
        Ok(pty) => {
            pty.echo(false).expect("modes");
            Some(pty)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            eprintln!("SKIPPED: {test} because there are no terminals here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

macro_rules! terminal {
    () => {
        match terminal(thread::current().name().unwrap_or("a test")) {
            Some(pty) => (pty, bound()),
            None => return,
        }
    };
}

fn shell(pty: &Pty, script: &str) -> Command {
    let mut command = Command::new("sh");
    // Whoever runs the tests may ignore them, as a shell's background jobs do, and no trap is heeded then.
    command.args(["-c", script]).pty(pty).signal_default(1).signal_default(2).signal_default(3);
    command
}

/// Everything up to the end, and how it ended.
fn run(pty: &Pty, script: &str) -> (String, i32) {
    let mut child = shell(pty, script).spawn().expect("spawn");
    let text = rest(pty);
    (text, child.wait().expect("wait").into_raw())
}

fn rest(mut pty: &Pty) -> String {
    let mut text = Vec::new();
    pty.read_to_end(&mut text).expect("the end");
    String::from_utf8(text).expect("text")
}

/// Reads until this has come.
fn expect(mut pty: &Pty, wanted: &str) {
    let mut text = Vec::new();
    while !text.ends_with(wanted.as_bytes()) {
        let mut byte = [0];
        assert_eq!(pty.read(&mut byte).expect("read"), 1, "the end, after {:?}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
}

fn type_in(mut pty: &Pty, text: &str) {
    pty.write_all(text.as_bytes()).expect("write");
}

// ---- what the child is on ----

#[test]
fn the_child_sees_its_terminal() {
    let (pty, _bound) = terminal!();
    pty.resize(PtySize::new(33, 101)).expect("resize");
    let path = pty.path().expect("a name").into_os_string().into_string().expect("text");
    // The fourth and fifth of these fields are the session and the terminal, as a device number: pts have 136.
    let stat = "read -r line </proc/$$/stat; set -- ${line##*) }; echo $(($4 - $$)) $5";
    let (text, status) = run(&pty, &format!("stty size; tty; tty <&1; tty <&2; {stat}"));
    let number: u32 = path.rsplit('/').next().and_then(|number| number.parse().ok()).expect("a number");
    let device = (136 << 8) + (number & 0xff) + (number >> 8 << 20);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, ["33 101", &path, &path, &path, &format!("0 {device}")]);
    assert_eq!(status, 0);
}

#[test]
fn sizes_are_kept() {
    let (pty, _bound) = terminal!();
    let size = PtySize { rows: 1, columns: 65535, x_pixels: 7, y_pixels: 9 };
    pty.resize(size).expect("resize");
    assert_eq!(pty.size().expect("size"), size);
    assert_eq!(PtySize::of(pty.follower().expect("open")).expect("size"), size);
    assert!(PtySize::of(File::open("/dev/null").expect("open")).is_err());
}

#[test]
fn a_new_size_is_a_signal() {
    let (pty, _bound) = terminal!();
    let mut child =
        shell(&pty, "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.01; done").spawn().expect("spawn");
    expect(&pty, "ready\r\n");
    pty.resize(PtySize::new(40, 100)).expect("resize");
    assert_eq!(rest(&pty), "40 100\r\n");
    assert_eq!(child.wait().expect("wait").code(), Some(3));
}

#[test]
fn what_is_set_otherwise_is_left_alone() {
    let (pty, _bound) = terminal!();
    let script = "[ -t 0 ] && [ ! -t 1 ] && [ -t 2 ] && echo out && echo err >&2";
    for before in [true, false] {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        if before {
            command.stdout(Stdio::piped()).pty(&pty);
        } else {
            command.pty(&pty).stdout(Stdio::piped());
        }
        let mut child = command.spawn().expect("spawn");
        assert_eq!(rest(&pty), "err\r\n");
        let mut text = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("read");
        assert_eq!(text, "out\n");
        assert!(child.wait().expect("wait").success());
    }
}

/// As for programs that ask for a password though their input is something else.
#[test]
fn without_a_stream_on_it_the_terminal_is_the_controlling_one() {
    let (pty, _bound) = terminal!();
    let script = "ls -l /proc/self/fd | grep -c pts; echo asked >/dev/tty; read answer </dev/tty; echo $answer";
    let mut command = shell(&pty, script);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // It does not have it open all the time.
    let held = pty.follower().expect("open");
    let mut child = command.spawn().expect("spawn");
    expect(&pty, "asked\r\n");
    type_in(&pty, "secret\n");
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("read");
    assert_eq!(text, "0\nsecret\n");
    assert!(child.wait().expect("wait").success());
    drop(held);
    assert_eq!(rest(&pty), "");
    for pidfd in [true, false] {
        let script = "echo one; exec <&- >&- 2>&-; sleep 0.05; head -c 50000 /dev/zero >/dev/tty";
        let mut child = shell(&pty, script).pidfd(pidfd).spawn().expect("spawn");
        let mut text = Vec::new();
        let status = pty.read_until_exit(&mut child, Duration::ZERO, &mut text);
        assert!(status.expect("status").success());
        assert_eq!(text.len(), 50005);
    }
}

#[test]
fn a_plan_names_the_terminal() {
    let (pty, _bound) = terminal!();
    let steps = shell(&pty, "true").prepare().expect("prepare").steps().join("\n");
    for part in ["take the pseudo-terminal as fd 0", "as fd 1", "as fd 2", "setsid", "take the terminal of fd 0"] {
        assert!(steps.contains(part), "{part}: {steps}");
    }
}

// ---- keys ----

#[test]
fn keys_are_signals_to_the_foreground() {
    let (pty, _bound) = terminal!();
    let mut child =
        shell(&pty, "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.01; done").spawn().expect("spawn");
    expect(&pty, "ready\r\n");
    type_in(&pty, "\x03");
    assert_eq!(rest(&pty), "caught\r\n");
    assert_eq!(child.wait().expect("wait").code(), Some(7));
    for (key, signal) in [("\x03", 2), ("\x1c", 3)] {
        let mut child = shell(&pty, "ulimit -c 0; echo ready; exec sleep 60").spawn().expect("spawn");
        expect(&pty, "ready\r\n");
        type_in(&pty, key);
        assert_eq!(child.wait().expect("wait").signal(), Some(signal));
    }
}

#[test]
fn the_foreground_group_is_known() {
    let (pty, _bound) = terminal!();
    assert_eq!(pty.foreground_group().expect("none yet"), None);
    let mut child = shell(&pty, "echo ready; read line").spawn().expect("spawn");
    expect(&pty, "ready\r\n");
    assert_eq!(pty.foreground_group().expect("the child's"), Some(child.id()));
    type_in(&pty, "\n");
    assert!(child.wait().expect("wait").success());
    assert_eq!(rest(&pty), "");
    assert_eq!(pty.foreground_group().expect("none any more"), None);
}

/// A child on a terminal leads a session, and with it a process group.
#[test]
fn the_group_of_a_child_is_signalled() {
    let (pty, _bound) = terminal!();
    let mut child = Command::new("/bin/sh").args(["-c", "sleep 60 & echo it; wait"]).pty(&pty).spawn().expect("spawn");
    expect(&pty, "it");
    child.signal_group(9).expect("a group");
    assert_eq!(child.wait().expect("wait").signal(), Some(9));
    // The end of the output comes when the sleep has ended, too.
    rest(&pty);
}

#[test]
fn echo_is_as_asked() {
    let (pty, _bound) = terminal!();
    for (echo, text) in [(true, "word\r\ngot word\r\n"), (false, "got word\r\n")] {
        pty.echo(echo).expect("modes");
        let mut child = shell(&pty, "echo ready; read word; echo got $word").spawn().expect("spawn");
        expect(&pty, "ready\r\n");
        type_in(&pty, "word\n");
        assert_eq!(rest(&pty), text);
        assert!(child.wait().expect("wait").success());
    }
}

#[test]
fn in_raw_mode_bytes_are_bytes() {
    let (pty, _bound) = terminal!();
    pty.make_raw().expect("modes");
    let bytes: Vec<u8> = (0..=255).collect();
    let mut child = Command::new("head").args(["-c", "256"]).pty(&pty).spawn().expect("spawn");
    (&pty).write_all(&bytes).expect("write");
    let mut back = Vec::new();
    (&pty).read_to_end(&mut back).expect("the end");
    assert_eq!(back, bytes);
    assert!(child.wait().expect("wait").success());
    let mut child = shell(&pty, "echo ready; sleep 60").spawn().expect("spawn");
    expect(&pty, "ready\n");
    assert_eq!(pty.send_eof().expect_err("raw").kind(), io::ErrorKind::InvalidInput);
    child.kill().expect("kill");
    child.wait().expect("wait");
}

#[test]
fn modes_are_copied() {
    let (pty, _bound) = terminal!();
    let other = Pty::open(PtySize::default()).expect("open");
    other.make_raw().expect("modes");
    pty.copy_modes(other.follower().expect("open")).expect("modes");
    assert!(run(&pty, "stty -a | grep -c -e ' -icanon'").0.starts_with('1'));
    assert!(pty.copy_modes(File::open("/dev/null").expect("open")).is_err());
}

#[test]
fn input_has_an_end() {
    let (pty, _bound) = terminal!();
    // As a newline is no part of it, a line without one needs two.
    for (text, ends) in [("one\ntwo\n", 1), ("one\ntwo", 2)] {
        let mut child = shell(&pty, "echo ready; wc -lc").spawn().expect("spawn");
        expect(&pty, "ready\r\n");
        type_in(&pty, text);
        for _ in 0..ends {
            pty.send_eof().expect("an end");
        }
        let words = rest(&pty);
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, [text.matches('\n').count().to_string(), text.len().to_string()]);
        assert!(child.wait().expect("wait").success());
    }
}

// ---- the end ----

/// A child that writes and exits at once: every byte arrives, whoever is quicker.
#[test]
fn the_tail_is_never_lost() {
    let (pty, _bound) = terminal!();
    pty.make_raw().expect("modes");
    let sizes = [1, 100, 4095, 4096, 4097, 8192, 20_000, 100_000];
    for round in 0..scaled(800) {
        let size = sizes[round % sizes.len()];
        let mut command = Command::new("head");
        command.args(["-c", &size.to_string(), "/dev/zero"]).pty(&pty);
        let mut bytes = Vec::new();
        let mut child = if round % 3 == 0 { command.launch() } else { command.spawn() }.expect("spawn");
        let status = match round % 4 {
            0 | 1 => {
                (&pty).read_to_end(&mut bytes).expect("the end");
                child.wait()
            }
            _ => pty.read_until_exit(&mut child, Duration::ZERO, &mut bytes),
        };
        assert!(status.expect("wait").success());
        assert_eq!(bytes.len(), size, "round {round}");
    }
}

/// The kernel's end may come before the data: it looks for them first, and then whether anybody has the terminal open.
/// A reader that does not sleep falls between the two now and then.
#[test]
fn an_end_is_an_end() {
    let _bound = bound();
    const TEXT: &[u8] = b"the last words";
    if terminal("an end is an end").is_none() {
        return;
    }
    let (followers, given) = channel::<File>();
    thread::spawn(move || given.into_iter().for_each(|mut follower| follower.write_all(TEXT).expect("write")));
    for round in 0..scaled(20_000) {
        let pty = Pty::open(PtySize::default()).expect("open");
        pty.make_raw().expect("modes");
        pty.set_nonblocking(true).expect("non-blocking");
        followers.send(pty.follower().expect("open").into()).expect("the writer");
        let (mut text, mut buffer) = (Vec::new(), [0; 64]);
        loop {
            match (&pty).read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&buffer[..count]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
            }
        }
        assert_eq!(text, TEXT, "round {round}");
    }
}

#[test]
fn there_is_no_end_before_the_beginning() {
    let (pty, _bound) = terminal!();
    pty.set_nonblocking(true).expect("non-blocking");
    assert_eq!((&pty).read(&mut [0]).expect_err("nothing yet").kind(), io::ErrorKind::WouldBlock);
    pty.set_nonblocking(false).expect("blocking");
    // A reader that is there first.
    let reader = pty.clone();
    let reader = thread::spawn(move || rest(&reader));
    thread::sleep(Duration::from_millis(20));
    let mut child = shell(&pty, "echo one; sleep 0.05; echo two").spawn().expect("spawn");
    assert_eq!(reader.join().expect("the reader"), "one\r\ntwo\r\n");
    assert!(child.wait().expect("wait").success());
    // And after the end there may be a new beginning.
    assert_eq!(rest(&pty), "");
    assert_eq!(run(&pty, "echo three"), ("three\r\n".into(), 0));
}

#[test]
fn the_background_is_not_waited_for() {
    let (pty, _bound) = terminal!();
    // One that writes for ever must not be read for ever.
    for (script, noise) in [("sleep 60 &", false), ("yes &", true)] {
        for pidfd in [true, false] {
            let script = format!("trap '' HUP; {script} echo $! >&3; printf %05000d 7");
            let (mut ours, theirs) = io::pipe().expect("a pipe");
            let mut command = shell(&pty, &script);
            command.fd(OwnedFd::from(theirs), 3).pidfd(pidfd);
            let mut child = command.spawn().expect("spawn");
            drop(command);
            let mut text = Vec::new();
            let status = pty.read_until_exit(&mut child, Duration::from_millis(30), &mut text).expect("read");
            assert!(status.success());
            let written = text.iter().filter(|&&byte| byte == b'0').count();
            assert!(written == 4999 && (noise || text.len() == 5000), "{written} of {}", text.len());
            let mut pid = [0; 16];
            let count = ours.read(&mut pid).expect("a pid");
            let pid: i32 = String::from_utf8_lossy(&pid[..count]).trim().parse().expect("a pid");
            kill(pid, Signal::KILL);
            rest(&pty);
        }
    }
}

#[test]
fn a_failure_to_start_is_told_by_the_reader() {
    let (pty, _bound) = terminal!();
    // It may be known at once.
    let launched = Command::new("/no/such/program").pty(&pty).launch();
    let error = launched.and_then(|mut child| pty.read_until_exit(&mut child, Duration::MAX, &mut io::sink()));
    let error = error.expect_err("no such program");
    assert_eq!(Error::of(&error).expect("ours").step(), Step::Exec);
}

fn kill(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("kill");
}

// ---- hanging up ----

#[test]
fn a_dropped_terminal_is_hung_up() {
    let (pty, _bound) = terminal!();
    let ready = |pty: &Pty, script: &str| -> Child {
        let child = shell(pty, script).spawn().expect("spawn");
        expect(pty, "ready\r\n");
        child
    };
    let mut child = ready(&pty, "echo ready; exec sleep 60");
    let clone = pty.clone();
    drop(pty);
    assert!(child.try_wait().expect("wait").is_none());
    drop(clone);
    assert_eq!(child.wait().expect("wait").signal(), Some(1));
    // Nothing that remembers the terminal holds it.
    let pty = Pty::open(PtySize::default()).expect("open");
    let mut command = shell(&pty, "trap 'exit 9' HUP; echo ready; while :; do sleep 0.01; done");
    let prepared = command.prepare().expect("prepare");
    let mut child = prepared.spawn().expect("spawn");
    expect(&pty, "ready\r\n");
    drop(pty);
    assert_eq!(child.wait().expect("wait").code(), Some(9));
    for error in [command.spawn().expect_err("closed"), prepared.status().expect_err("closed")] {
        assert_eq!(Error::of(&error).expect("ours").step(), Step::Check);
        assert!(error.to_string().contains("has been closed"), "{error}");
    }
}

// ---- many ----

#[test]
fn prepared_runs_have_a_terminal_each_time() {
    let (pty, _bound) = terminal!();
    let prepared = shell(&pty, "tty; exit 4").prepare().expect("prepare");
    let line = format!("{}\r\n", pty.path().expect("a name").display());
    for _ in 0..20 {
        assert_eq!(prepared.status().expect("status").code(), Some(4));
        assert_eq!(rest(&pty), line);
        let output = prepared.output().expect("output");
        assert_eq!((output.status.code(), output.stdout), (Some(4), vec![]));
        assert_eq!(rest(&pty), line);
    }
}

#[test]
fn two_terminals_are_two() {
    let (one, _bound) = terminal!();
    let other = Pty::open(PtySize::new(5, 6)).expect("open");
    let script = "echo ready; read word; echo $word $(stty size)";
    let mut children: Vec<Child> = [&one, &other].map(|pty| shell(pty, script).spawn().expect("spawn")).into();
    other.echo(false).expect("modes");
    for pty in [&one, &other] {
        expect(pty, "ready\r\n");
    }
    type_in(&other, "second\n");
    type_in(&one, "first\n");
    assert_eq!(rest(&other), "second 5 6\r\n");
    assert_eq!(rest(&one), "first 24 80\r\n");
    for child in &mut children {
        assert!(child.wait().expect("wait").success());
    }
}

#[test]
fn a_terminal_has_one_session_at_a_time() {
    let (pty, _bound) = terminal!();
    let mut child = shell(&pty, "echo ready; read line").spawn().expect("spawn");
    expect(&pty, "ready\r\n");
    // Root may steal it, but is not asked to.
    let error = shell(&pty, "true").spawn().expect_err("taken");
    let detail = Error::of(&error).expect("ours");
    assert_eq!((detail.step(), detail.errno()), (Step::Terminal, Some(1)), "{error}");
    assert!(error.to_string().contains("another session"), "{error}");
    type_in(&pty, "\n");
    assert!(child.wait().expect("wait").success());
    assert_eq!(run(&pty, "echo next"), ("next\r\n".into(), 0));
}

#[test]
fn contradictions_are_refused() {
    let (pty, _bound) = terminal!();
    let refused = |command: &mut Command, word: &str| {
        let error = command.spawn().expect_err("refused");
        assert_eq!(Error::of(&error).expect("ours").step(), Step::Check);
        assert!(error.to_string().contains(word), "{error}");
    };
    refused(shell(&pty, "true").process_group(0), "process_group");
    refused(shell(&pty, "true").controlling_terminal(0), "pty");
}

/// Root's child of another user has the terminal all the same, but not by its name, unless that is given to it.
#[test]
fn the_owner_can_be_changed() {
    const NOBODY: u32 = 65534;
    let (pty, _bound) = terminal!();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: the owner can be changed because it needs root");
        return;
    }
    for (owned, text) in [(false, "here\r\ntheirs\r\n"), (true, "here\r\nmine\r\n")] {
        if owned {
            rustix::fs::fchown(pty.follower().expect("open"), Some(rustix::fs::Uid::from_raw(NOBODY)), None)
                .expect("chown");
        }
        let mut command = shell(&pty, "echo here >/dev/tty; if [ -w $(tty) ]; then echo mine; else echo theirs; fi");
        let mut child = command.uid(NOBODY).gid(NOBODY).spawn().expect("spawn");
        assert_eq!(rest(&pty), text);
        assert!(child.wait().expect("wait").success());
    }
}

// ---- our own terminal ----

#[test]
fn raw_mode_ends_with_its_guard() {
    let (pty, _bound) = terminal!();
    let ours = pty.follower().expect("open");
    let modes = || format!("{:?}", rustix::termios::tcgetattr(&ours).expect("modes"));
    let before = modes();
    let raw = RawMode::enter(ours.as_fd()).expect("raw");
    let while_raw = modes();
    assert_ne!(while_raw, before);
    raw.suspend().expect("suspend");
    assert_eq!(modes(), before);
    raw.resume().expect("resume");
    assert_eq!(modes(), while_raw);
    drop(raw);
    assert_eq!(modes(), before);
    let panic = thread::scope(|scope| {
        let within = scope.spawn(|| {
            let _raw = RawMode::enter(ours.as_fd()).expect("raw");
            assert_eq!(modes(), while_raw);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        within.join()
    });
    assert!(panic.is_err());
    assert_eq!(modes(), before);
    assert!(RawMode::enter(File::open("/dev/null").expect("open")).is_err());
}
