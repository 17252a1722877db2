//! Supervised programs in tmux. With FORKLESS_RECORDING set to a file, the screens are written there.

testing::usual_surroundings!();

mod jobs;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use jobs::{BINARY, LIMIT, has};
use testing::surroundings::word;

/// A tmux server of its own, with one shell.
struct Tmux {
    directory: tempfile::TempDir,
    recording: String,
}

impl Tmux {
    fn start() -> Self {
        let tmux = Self { directory: tempfile::tempdir().expect("a directory"), recording: String::new() };
        let shell =
            format!("env -u TMUX PS1='$ ' HISTFILE= F={} INPUTRC=/dev/null bash --norc --noprofile -i", word(BINARY));
        tmux.call(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "12", &shell]);
        tmux
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn call(&self, words: &[&str]) -> Output {
        let output = Command::new("tmux").arg("-S").arg(self.socket()).args(words).output().expect("tmux");
        assert!(output.status.success(), "{words:?}: {output:?}");
        output
    }

    fn screen(&self) -> String {
        let text =
            String::from_utf8_lossy(&self.call(&["capture-pane", "-p"]).stdout).replace(&word(BINARY), "forkless");
        text.trim_end().to_owned()
    }

    /// Types keys by tmux's names, and waits until the last lines of the screen are these.
    fn keys(&mut self, keys: &[&str], wanted: &str) {
        self.call(&[&["send-keys"], keys].concat());
        let deadline = Instant::now() + LIMIT;
        while !self.screen().ends_with(wanted) {
            assert!(
                Instant::now() < deadline,
                "{keys:?}: no {wanted:?} on\n{}\n----\n{}",
                self.screen(),
                self.recording
            );
            thread::sleep(Duration::from_millis(20));
        }
        let shown = keys.join(" ");
        self.recording += &format!("---- keys: {shown}\n{}\n", self.screen());
    }

    /// An empty screen.
    fn clear(&mut self) {
        self.call(&["send-keys", "clear", "Enter"]);
        let deadline = Instant::now() + LIMIT;
        while self.screen() != "$" {
            assert!(Instant::now() < deadline, "not cleared:\n{}", self.screen());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.socket()).arg("kill-server").output();
    }
}

#[test]
fn keys_work_in_tmux() {
    if !has("keys_work_in_tmux", "tmux") || !has("keys_work_in_tmux", "bash") {
        return;
    }
    let mut tmux = Tmux::start();
    for options in ["", " --process-group", " --process-group --foreground", " --pty"] {
        tmux.clear();
        let line = format!("$F run --timeout 100{options} cat");
        tmux.keys(&[&line, "Enter"], "cat");
        tmux.keys(&["hello", "Enter"], "hello\nhello");
        // With --pty, Ctrl-Z goes to the program's own terminal, which has no shell.
        if options != " --pty" {
            tmux.keys(&["C-z"], &format!("[1]+  Stopped                 {line}\n$"));
            tmux.keys(&["echo the shell works", "Enter"], "the shell works\n$");
            tmux.keys(&["fg", "Enter"], &format!("$ fg\n{line}"));
            tmux.keys(&["again", "Enter"], "again\nagain");
        }
        tmux.keys(&["C-c"], "$");
        tmux.keys(&["echo $?", "Enter"], "130\n$");
    }
    // A script reads on after the terminal was lent.
    tmux.clear();
    let script = tmux.directory.path().join("script");
    let text = "$F run --process-group --foreground cat\nread -p 'word: ' word\necho \"got $word\"\n";
    fs::write(&script, text).expect("a script");
    tmux.call(&["send-keys", &format!("cd {}", tmux.directory.path().display()), "Enter"]);
    tmux.clear();
    tmux.keys(&["bash script", "Enter"], "bash script");
    tmux.keys(&["for cat", "Enter"], "for cat\nfor cat");
    tmux.keys(&["C-d"], "word:");
    tmux.keys(&["text", "Enter"], "got text\n$");
    if let Some(file) = std::env::var_os("FORKLESS_RECORDING") {
        fs::write(file, &tmux.recording).expect("the recording");
    }
}
