//! Programs on a pseudo-terminal, driven by keys as a user would.

#![allow(dead_code, reason = "each test program uses only a part of it")]

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use forkless::{Child, Command, Pty, PtySize};
use rustix::{
    process::Pid,
    termios::{LocalModes, tcgetattr, tcgetpgrp},
};

/// What ends a test that hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

use testing::surroundings::word;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_forkless");

pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_Z: &str = "\x1a";
pub(crate) const CTRL_BACKSLASH: &str = "\x1c";
pub(crate) const CTRL_D: &str = "\x04";

/// The prompt of the shells. Typed lines do not contain it.
pub(crate) const PROMPT: &str = "ready$ ";

/// A program on a terminal.
pub(crate) struct Session {
    pub(crate) pty: Pty,
    pub(crate) child: Child,
    output: Receiver<Vec<u8>>,
    /// All that was shown.
    shown: String,
    /// How much of it was expected so far.
    seen: usize,
}

impl Session {
    /// Starts the program as the leader of a session with a new terminal.
    pub(crate) fn start(words: &[&str]) -> Self {
        let pty = Pty::open(PtySize::new(24, 80)).expect("a terminal");
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir("/tmp").pty(&pty);
        // No colours, no bracketed paste, no history.
        for (name, value) in
            [("TERM", "dumb"), ("INPUTRC", "/dev/null"), ("HISTFILE", ""), ("ENV", ""), ("F", &word(BINARY))]
        {
            command.env(name, value);
        }
        command.env("PS1", PROMPT).env("LC_ALL", "C");
        let child = command.spawn().expect("the program starts");
        let (sender, output) = channel();
        let mut reader = pty.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { pty, child, output, shown: String::new(), seen: 0 }
    }

    /// An interactive shell, `bash` or `dash`, at its first prompt.
    pub(crate) fn shell(name: &str) -> Self {
        let words: &[&str] = if name == "bash" { &["bash", "--norc", "--noprofile", "-i"] } else { &[name, "-i"] };
        let mut session = Self::start(words);
        session.expect(PROMPT);
        session
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.pty.write_all(keys.as_bytes()).expect("write");
    }

    /// Types a line.
    pub(crate) fn line(&mut self, line: &str) {
        self.keys(line);
        self.keys("\n");
    }

    /// Runs a line whose program says that it is up.
    pub(crate) fn starts(&mut self, line: &str) {
        self.line(line);
        self.expect("is-up");
    }

    /// Presses a key that ends the job in the foreground.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys(keys);
        self.prompt();
    }

    /// The program, cat, reads a line and writes it.
    pub(crate) fn echoes(&mut self, line: &str) {
        self.input(line);
        self.expect(&format!("{line}\r\n{line}"));
    }

    /// Stops the job in the foreground.
    pub(crate) fn stop(&mut self) {
        self.keys(CTRL_Z);
        self.expect("Stopped");
        self.prompt();
    }

    /// Continues the last job in the foreground, until it shows this.
    pub(crate) fn continues(&mut self, shown: &str) {
        self.line("fg");
        self.expect(shown);
    }

    /// Types a line for a program. The shell must have set the terminal up for it: bash itself reads in another mode, and a
    /// change of the mode spoils what was typed before.
    pub(crate) fn input(&mut self, line: &str) {
        let deadline = Instant::now() + LIMIT;
        while !tcgetattr(&self.pty).expect("modes").local_modes.contains(LocalModes::ICANON) {
            assert!(Instant::now() < deadline, "no program reads:\n{}", self.shown);
            thread::sleep(Duration::from_millis(5));
        }
        self.line(line);
    }

    /// Waits until the text is shown, after what was expected before. Returns what was shown up to there.
    pub(crate) fn expect(&mut self, wanted: &str) -> String {
        let seen = self.seen;
        self.expect_first(&[wanted]);
        self.shown[seen..self.seen].to_owned()
    }

    /// Waits until one of the texts is shown; the first of them.
    pub(crate) fn expect_first<'a>(&mut self, wanted: &[&'a str]) -> &'a str {
        match self.find_within(wanted, LIMIT) {
            Ok(text) => text,
            Err(RecvTimeoutError::Timeout) => panic!("no {wanted:?} after {LIMIT:?}:\n{}", self.shown),
            Err(RecvTimeoutError::Disconnected) => panic!("the end before {wanted:?}:\n{}", self.shown),
        }
    }

    fn find_within<'a>(&mut self, wanted: &[&'a str], limit: Duration) -> Result<&'a str, RecvTimeoutError> {
        let deadline = Instant::now() + limit;
        loop {
            let rest = &self.shown[self.seen..];
            let found = wanted.iter().filter_map(|text| rest.find(text).map(|at| (at, *text))).min();
            if let Some((at, text)) = found {
                self.seen += at + text.len();
                return Ok(text);
            }
            let bytes = self.output.recv_timeout(deadline.saturating_duration_since(Instant::now()))?;
            self.shown += &String::from_utf8_lossy(&bytes);
        }
    }

    /// Waits until this program leads the foreground group and sleeps. A Ctrl-Z that is pressed while forkless lends it the
    /// terminal may be lost, as one is that is pressed while a shell continues a job: a SIGCONT discards it.
    pub(crate) fn has_foreground(&self, program: &str) {
        let is_so = || -> Option<bool> {
            let group = tcgetpgrp(&self.pty).ok()?.as_raw_pid();
            let text = fs::read_to_string(format!("/proc/{group}/stat")).ok()?;
            let (start, rest) = text.rsplit_once(") ")?;
            Some(start.ends_with(&format!("({program}")) && rest.starts_with('S'))
        };
        let deadline = Instant::now() + LIMIT;
        while is_so() != Some(true) {
            assert!(Instant::now() < deadline, "{program} is not in the foreground:\n{}", self.shown);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the prompt of the shell.
    pub(crate) fn prompt(&mut self) -> String {
        self.expect(PROMPT)
    }

    /// The exit status of the last command, as the shell shows it.
    pub(crate) fn status(&mut self) -> i32 {
        // In pieces, so that the echo of the line is no answer.
        self.line("echo sta''tus=$?.");
        self.expect("status=");
        let text = self.expect(".");
        self.prompt();
        text.trim_end_matches('.').parse().unwrap_or_else(|_| panic!("a number: {}", self.shown))
    }

    /// Runs a line and waits for the next prompt. Returns what was shown.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.line(line);
        self.prompt()
    }

    pub(crate) fn transcript(&self) -> String {
        self.shown.replace(&word(BINARY), "forkless").replace('\r', "")
    }

    /// Waits until a child of the program, such as a job of the shell, is stopped.
    pub(crate) fn child_stops(&mut self) {
        self.wait_for("a stopped child", |states| states.contains(&'T'));
    }

    /// Waits until no child of the program is stopped. A shell shows a job before it continues it.
    pub(crate) fn children_run(&mut self) {
        self.wait_for("running children", |states| !states.contains(&'T'));
    }

    /// The first child of the program, such as the job of a shell.
    pub(crate) fn first_child(&self) -> Pid {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("alive");
        let first = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        first.and_then(Pid::from_raw).expect("a child")
    }

    /// Waits until the program has no children but zombies.
    pub(crate) fn children_end(&mut self) {
        self.wait_for("the end of all children", |states| states.iter().all(|state| *state == 'Z'));
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&[char]) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is_so(&states_of_children(self.child.id())) {
            assert!(Instant::now() < deadline, "no {what}:\n{}", self.shown);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end of the program.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait_timeout(LIMIT).expect("wait").unwrap_or_else(|| panic!("it runs on:\n{}", self.shown))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if thread::panicking() {
            let session = self.child.id().to_string();
            let processes = std::process::Command::new("ps")
                .args(["-ww", "-o", "pid,pgid,tpgid,stat,args", "-s", &session])
                .output()
                .map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
            eprintln!("---- shown:\n{}\n---- processes:\n{processes}----", self.transcript());
        }
        let _ = self.child.kill();
    }
}

/// The states of the children of a process, as proc(5) shows them.
fn states_of_children(pid: u32) -> Vec<char> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let state = |pid: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        text.rsplit_once(") ")?.1.chars().next()
    };
    children.split_whitespace().filter_map(state).collect()
}

/// The shells to test with.
pub(crate) fn shells(test: &str) -> Vec<&'static str> {
    if let Err(error) = Pty::open(PtySize::default()) {
        eprintln!("SKIPPED: {test}, because a pseudo-terminal cannot be opened: {error}");
        return Vec::new();
    }
    ["bash", "dash"].into_iter().filter(|name| has(test, name)).collect()
}

/// Is the program installed? Otherwise a test is skipped.
pub(crate) fn has(test: &str, program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or(OsString::from("/usr/bin")))
        .any(|directory| File::open(directory.join(program)).is_ok());
    if !found {
        eprintln!("SKIPPED: {test} with {program}, because it is not installed");
    }
    found
}

/// The status as a shell shows it.
pub(crate) fn shown(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).expect("an end")
}
