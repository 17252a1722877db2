//! `forkless run --pty`, with and without a terminal for forkless itself. `FORKLESS_TEST_SCALE` multiplies rounds.

testing::usual_surroundings!();

mod callers;

use std::{
    fs::File,
    io::{Read, Write},
    process::Stdio,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use callers::{Caller, shown, skipped};
use forkless::{Child, Command, Pty, PtySize};
use rustix::{
    io::ioctl_fionread,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
    termios::{LocalModes, tcgetattr},
};

/// Aborts the test program if a test hangs.
struct Bound(#[expect(dead_code, reason = "what counts is when it is dropped")] Sender<()>);

fn bound() -> Bound {
    let (sender, receiver) = channel::<()>();
    thread::spawn(move || {
        if receiver.recv_timeout(Duration::from_secs(300)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a test has not ended after 300 s");
            std::process::abort();
        }
    });
    Bound(sender)
}

/// The callers to test with; none if pseudo-terminals are not available.
fn callers(test: &str) -> (Vec<Caller>, Bound) {
    if let Err(error) = Pty::open(PtySize::default()) {
        skipped(test, &format!("cannot open a pseudo-terminal: {error}"));
        return (Vec::new(), bound());
    }
    (Caller::all(test), bound())
}

/// `forkless run` on a terminal.
struct Session {
    pty: Pty,
    child: Child,
}

impl Session {
    fn start(caller: Caller, words: &[&str]) -> Self {
        let pty = Pty::open(PtySize::new(33, 101)).expect("a terminal");
        let program = File::open(env!("CARGO_BIN_EXE_forkless")).expect("the binary");
        let mut command = Command::new("forkless");
        command.program_fd(program).arg("run").args(words).current_dir("/").pty(&pty);
        if rustix::process::geteuid().as_raw() != caller.uid() {
            command.uid(caller.uid()).gid(caller.uid());
        }
        let child = command.spawn().expect("forkless starts");
        Self { pty, child }
    }

    /// Reads until the output ends with `wanted`.
    fn expect(&mut self, wanted: &str) {
        let mut text = Vec::new();
        while !text.ends_with(wanted.as_bytes()) {
            let mut byte = [0];
            let count = self.pty.read(&mut byte).expect("read");
            assert_eq!(count, 1, "the end, after {:?}", String::from_utf8_lossy(&text));
            text.push(byte[0]);
        }
    }

    fn type_in(&mut self, text: &str) {
        self.pty.write_all(text.as_bytes()).expect("write");
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.pty).expect("modes").local_modes.contains(LocalModes::ICANON)
    }

    /// Waits until the terminal is in raw mode; false if the program ended before.
    fn wait_raw(&mut self) -> bool {
        while !self.is_raw() {
            if self.child.try_wait().expect("wait").is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Waits for raw mode, or for its end: the program may start before forkless has changed the mode.
    fn wait_until(&self, raw: bool) {
        while self.is_raw() != raw {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("alive");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).expect("a pid")
    }

    fn rest(&mut self) -> String {
        let mut text = Vec::new();
        self.pty.read_to_end(&mut text).expect("the end");
        String::from_utf8(text).expect("text")
    }

    /// The remaining output and the exit code, after checking that the terminal modes are restored.
    fn end(mut self, modes: &str) -> (String, i32) {
        let text = self.rest();
        assert_eq!(modes, self.modes());
        (text, shown(self.child.wait().expect("wait")))
    }

    fn modes(&self) -> String {
        format!("{:?}", tcgetattr(&self.pty).expect("modes"))
    }
}

/// The modes of a new terminal.
fn new_modes() -> String {
    format!("{:?}", tcgetattr(Pty::open(PtySize::default()).expect("a terminal")).expect("modes"))
}

fn scaled(count: usize) -> usize {
    let scale = std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    (count as f64 * scale).ceil() as usize
}

// ---- forkless without a terminal ----

#[test]
fn pty_gives_the_program_a_terminal() {
    let (callers, _bound) = callers("pty_gives_the_program_a_terminal");
    for caller in callers {
        let script = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size && echo here >/dev/tty; exit 7";
        let output = caller.forkless(&["--pty", "sh", "-c", script]).stdin(Stdio::null()).output().expect("starts");
        assert_eq!(
            (output.stdout.as_slice(), output.status.code()),
            (&b"24 80\r\nhere\r\n"[..], Some(7)),
            "{output:?}"
        );
        assert_eq!(caller.stdout(&["--pty=10x200", "stty", "size"]), "10 200\r\n");
        let script = "[ ! -t 0 ] && [ -t 1 ] && [ ! -t 2 ] && echo shown && echo apart >&2";
        let output = caller.output(&["--pty", "--stdin=null", "--stderr=inherit", "sh", "-c", script]);
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"shown\r\n"[..], &b"apart\n"[..]));
    }
}

#[test]
fn pty_does_not_change_exit_codes() {
    let (callers, _bound) = callers("pty_does_not_change_exit_codes");
    let Some(caller) = callers.last() else { return };
    let code = |words: &[&str]| {
        let output = caller.forkless(words).stdin(Stdio::null()).output().expect("starts");
        shown(output.status)
    };
    assert_eq!(code(&["--pty", "sh", "-c", "exit 255"]), 255);
    assert_eq!(code(&["--pty", "sh", "-c", "kill -TERM $$"]), 143);
    assert_eq!(code(&["--pty", "/no/such/program"]), 127);
    assert_eq!(code(&["--pty", "/"]), 126);
    assert_eq!(code(&["--pty", "--timeout=200ms", "sleep", "60"]), 124);
    for wrong in ["--pty=0x0", "--pty=80", "--ctty", "--process-group"] {
        assert_eq!(code(&["--pty", wrong, "true"]), 125, "{wrong}");
    }
}

#[test]
fn every_reader_sees_the_end_of_input() {
    let (callers, _bound) = callers("every_reader_sees_the_end_of_input");
    let Some(caller) = callers.last() else { return };
    // Two readers, an incomplete line, and a reader that flushes its input.
    let flush = "perl -MPOSIX -e 'select undef, undef, undef, 0.05; tcflush(0, TCIFLUSH)'; cat; echo end";
    let cases = [
        ("cat; cat; echo end", "one\ntwo\n", "one\r\ntwo\r\nend\r\n"),
        ("cat; echo; cat; echo end", "one\ntwo", "one\r\ntwo\r\nend\r\n"),
        ("cat; echo end", "", "end\r\n"),
        (flush, "", "end\r\n"),
    ];
    let has_perl = caller.output(&["sh", "-c", "command -v perl"]).status.success();
    if !has_perl {
        skipped("flushed input", "perl is not installed");
    }
    for (script, input, shown) in cases.into_iter().filter(|(script, ..)| has_perl || *script != flush) {
        let mut command = caller.forkless(&["--pty", "sh", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("write");
        let output = child.wait_with_output().expect("wait");
        assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{script}");
        assert!(output.status.success());
    }
}

#[test]
fn no_input_or_output_is_lost() {
    let (callers, _bound) = callers("no_input_or_output_is_lost");
    for caller in callers {
        for round in 0..scaled(25) {
            let size = [1, 4096, 8192, 12_289, 300_000][round % 5].to_string();
            let output = caller.forkless(&["--pty", "head", "-c", &size, "/dev/zero"]).stdin(Stdio::null()).output();
            let output = output.expect("starts");
            assert_eq!((output.stdout.len().to_string(), output.status.code()), (size, Some(0)), "round {round}");
        }
        // Everything written is read back: more than all buffers in between hold.
        let lines: String = (0..40_000).map(|number| format!("line {number}\n")).collect();
        let mut command = caller.forkless(&["--pty", "sh", "-c", "stty -onlcr; cat"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let (mut input, text) = (child.stdin.take().expect("a pipe"), lines.clone());
        let writer = thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().expect("wait");
        writer.join().expect("the writer").expect("write");
        // The first few may be shown before stty has run.
        assert_eq!(String::from_utf8_lossy(&output.stdout).replace('\r', ""), lines);
    }
}

#[test]
fn program_gets_sighup_when_the_output_is_closed() {
    let (callers, _bound) = callers("program_gets_sighup_when_the_output_is_closed");
    let Some(caller) = callers.last() else { return };
    let mut child =
        caller.forkless(&["--pty", "yes"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
    child.stdout.take().expect("a pipe").read_exact(&mut [0; 4]).expect("read");
    assert_eq!(shown(child.wait().expect("wait")), 128 + 1);
    let full = File::options().write(true).open("/dev/full").expect("open");
    let output =
        caller.forkless(&["--pty", "echo", "x"]).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output();
    let output = output.expect("starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(words.contains("No space left on device"), "{words}");
}

/// Signals and the timeout work although nothing reads the output.
#[test]
fn signals_work_while_the_output_is_full() {
    let (callers, _bound) = callers("signals_work_while_the_output_is_full");
    let Some(caller) = callers.last() else { return };
    let mut command = caller.forkless(&["--pty", "cat", "/dev/zero"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
    let unread = child.stdout.take().expect("a pipe");
    // Wait until the pipe is full.
    let mut held = 0;
    while held == 0 || ioctl_fionread(&unread).expect("a count") != held {
        held = ioctl_fionread(&unread).expect("a count");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(child.try_wait().expect("wait").is_none());
    // The first signal ends the program. forkless then still writes the output, until the next one ends it.
    let status = loop {
        kill_process(Pid::from_child(&child), Signal::TERM).expect("not waited for");
        thread::sleep(Duration::from_millis(20));
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
    };
    assert_eq!(shown(status), 143);
}

// ---- forkless on a terminal ----

#[test]
fn terminal_is_raw_while_the_program_runs_and_restored_afterwards() {
    let (callers, _bound) = callers("terminal_is_raw_while_the_program_runs_and_restored_afterwards");
    for caller in callers {
        let modes = new_modes();
        let mut session =
            Session::start(caller, &["--pty", "sh", "-c", "stty size; read word; echo got $word; exit 3"]);
        session.expect("33 101\r\n");
        session.wait_until(true);
        session.type_in("word\r");
        // Echoed by the program's terminal, which has the modes of the outer one.
        assert_eq!(session.end(&modes), ("word\r\ngot word\r\n".into(), 3), "{caller:?}");
        // Restored after every kind of end.
        let session = Session::start(caller, &["--pty", "/no/such/program"]);
        let (text, code) = session.end(&modes);
        assert!(text.starts_with("forkless: failed to start") && code == 127, "{text}");
        // Try again with a longer timeout if it expires before the test has seen raw mode.
        let seen = ["300ms", "1s", "3s", "10s"].into_iter().find(|time| {
            let mut session = Session::start(caller, &["--pty", "--timeout", time, "sleep", "60"]);
            let seen = session.wait_raw();
            assert_eq!(session.end(&modes), (String::new(), 124));
            seen
        });
        assert!(seen.is_some(), "never raw");
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let mut session = Session::start(caller, &["--pty", "sh", "-c", "ulimit -c 0; echo ready; exec sleep 60"]);
            session.expect("ready\r\n");
            session.wait_until(true);
            session.signal(signal);
            assert_eq!(session.end(&modes), (String::new(), code));
        }
    }
}

#[test]
fn control_keys_reach_the_program() {
    let (callers, _bound) = callers("control_keys_reach_the_program");
    let Some(&caller) = callers.last() else { return };
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.01; done";
    let mut session = Session::start(caller, &["--pty", "sh", "-c", script]);
    session.expect("ready\r\n");
    session.wait_until(true);
    session.type_in("\x03");
    let (text, code) = session.end(&new_modes());
    assert!(text.ends_with("caught\r\n") && code == 9, "{text} {code}");
    // The modes of the program's terminal, not of the outer one, decide what a key does.
    let mut session =
        Session::start(caller, &["--pty", "sh", "-c", "stty raw -echo; echo ready; head -c 3 | od -An -tx1"]);
    session.expect("ready\n");
    session.wait_until(true);
    session.type_in("\x03\x1a\x04");
    let (text, code) = session.end(&new_modes());
    assert_eq!((text.trim(), code), ("03 1a 04", 0));
}

#[test]
fn resize_of_the_terminal_is_relayed() {
    let (callers, _bound) = callers("resize_of_the_terminal_is_relayed");
    let Some(&caller) = callers.last() else { return };
    let script = "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.01; done";
    let mut session = Session::start(caller, &["--pty", "sh", "-c", script]);
    session.expect("33 101\r\n");
    session.pty.resize(PtySize::new(44, 55)).expect("resize");
    assert_eq!(session.end(&new_modes()).0, "44 55\r\n");
    // A fixed size does not change.
    let script = "stty size; read word; stty size";
    let mut session = Session::start(caller, &["--pty=5x6", "sh", "-c", script]);
    session.expect("5 6\r\n");
    session.wait_until(true);
    session.pty.resize(PtySize::new(44, 55)).expect("resize");
    session.type_in("\r");
    assert!(session.end(&new_modes()).0.ends_with("5 6\r\n"));
}

/// Stopped by a signal that it can catch, forkless also restores the modes: `job_control`, which has a shell for that.
#[test]
fn forkless_continues_in_raw_mode() {
    let (callers, _bound) = callers("forkless_continues_in_raw_mode");
    let Some(&caller) = callers.last() else { return };
    let mut session = Session::start(caller, &["--pty", "sh", "-c", "echo ready; read word; stty size"]);
    session.expect("ready\r\n");
    session.wait_until(true);
    let raw = session.modes();
    session.signal(Signal::STOP);
    let stopped = waitid(WaitId::Pid(session.pid()), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).expect("wait");
    assert!(stopped.is_some_and(|status| status.stopped()));
    // A shell may change modes and size meanwhile.
    session.pty.copy_modes(Pty::open(PtySize::default()).expect("a terminal")).expect("modes");
    session.pty.resize(PtySize::new(12, 34)).expect("resize");
    session.signal(Signal::CONT);
    session.wait_until(true);
    assert_eq!(session.modes(), raw);
    session.type_in("\r");
    let (text, code) = session.end(&new_modes());
    assert!(text.ends_with("12 34\r\n") && code == 0, "{text} {code}");
}

#[test]
fn hangup_of_the_terminal_ends_the_program() {
    let (callers, _bound) = callers("hangup_of_the_terminal_ends_the_program");
    let Some(&caller) = callers.last() else { return };
    let mut session = Session::start(caller, &["--pty", "sh", "-c", "echo ready; exec sleep 60"]);
    session.expect("ready\r\n");
    session.wait_until(true);
    let Session { pty, mut child } = session;
    drop(pty);
    assert_eq!(shown(child.wait().expect("wait")), 129);
}

/// A background job does not touch the terminal and is not stopped; it takes the terminal in the foreground.
#[test]
fn background_job_uses_the_terminal_only_in_the_foreground() {
    let (callers, _bound) = callers("background_job_uses_the_terminal_only_in_the_foreground");
    if callers.is_empty() {
        return;
    }
    let binary = testing::surroundings::word(env!("CARGO_BIN_EXE_forkless"));
    let pty = Pty::open(PtySize::default()).expect("a terminal");
    pty.echo(false).expect("modes");
    let script = format!(
        "set -m; {binary} run --pty sh -c 'echo one; sleep 0.3; echo two' & wait $!; echo code $?; \
         {binary} run --pty sh -c 'echo three; read word; echo got $word' & read go; echo four; fg >/dev/null; echo code $?"
    );
    let child = Command::new("sh").args(["-c", &script]).pty(&pty).spawn().expect("a shell");
    let mut session = Session { pty, child };
    // In the background both terminals convert LF to CR LF.
    session.expect("one\r\r\n");
    assert!(!session.is_raw());
    session.expect("two\r\r\ncode 0\r\nthree\r\r\n");
    assert!(!session.is_raw());
    session.type_in("go\n");
    session.expect("four\r\n");
    session.wait_until(true);
    session.type_in("word\r");
    session.expect("got word\r\n");
    session.expect("code 0\r\n");
    assert!(!session.is_raw());
    assert!(session.child.wait().expect("wait").success());
}

/// Three nested sessions relay input and output.
#[test]
fn pty_sessions_nest() {
    let (callers, _bound) = callers("pty_sessions_nest");
    // The first caller is the user who runs the tests, and can access the binary.
    let Some(&caller) = callers.first() else { return };
    let binary = env!("CARGO_BIN_EXE_forkless");
    // Wait until both inner terminals are in raw mode: otherwise the key would be echoed twice.
    let script = "p=$PPID; for n in 1 2; do
            until stty -a </proc/$p/fd/0 | grep -q -e ' -icanon'; do sleep 0.01; done
            p=$(sed -n 's/^PPid:[^0-9]*//p' /proc/$p/status)
        done; stty size; read word; echo got $word; exit 6";
    let words = ["--pty", binary, "run", "--pty", binary, "run", "--pty", "sh", "-c", script];
    let mut session = Session::start(caller, &words);
    session.expect("33 101\r\n");
    session.wait_until(true);
    session.type_in("word\r");
    let (text, code) = session.end(&new_modes());
    assert!(text.ends_with("got word\r\n") && code == 6, "{text} {code}");
}
