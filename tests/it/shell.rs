//! Lines that are run without a shell: nothing differs from `sh -c`, but for what is said to.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use forkless::{Reason, ShellRoute, Step};

/// Past the test harness, which keeps what good tests say.
fn say(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// None where `/bin/sh` is a shell whose ways are not known.
fn fuzz(args: &[&str]) -> Option<Output> {
    let shell = args.iter().position(|word| *word == "--shell").map_or("/bin/sh", |at| args[at + 1]);
    if forkless::shell("ls").shell_path(shell).route() != ShellRoute::Direct {
        say(&format!("SKIPPED: lines without a shell, because {shell} is neither dash nor bash 5.2 called sh\n"));
        return None;
    }
    let mut fuzz = Command::new(env!("CARGO_BIN_EXE_shellfuzz"));
    let found = fuzz.args(["--probe", env!("CARGO_BIN_EXE_shellprobe")]).args(args).output().expect("shellfuzz");
    if found.status.code() == Some(77) {
        say(&text(&found.stdout));
        return None;
    }
    Some(found)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_same(args: &[&str]) {
    if let Some(found) = fuzz(args) {
        assert!(found.status.success(), "{}{}", text(&found.stdout), text(&found.stderr));
        // Something was compared.
        assert!(!text(&found.stdout).contains("executed in both ways 0,"), "{}", text(&found.stdout));
    }
}

#[test]
fn lines_are_the_same_without_a_shell() {
    is_same(&["--seed", "20", "--executed", "2000", "--seconds", "200"]);
}

#[test]
fn lines_are_the_same_without_bash() {
    let place = tempfile::tempdir().expect("a directory");
    let shell = place.path().join("sh");
    let Some(bash) = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|bash| Path::new(bash).exists()) else {
        say("SKIPPED: lines without bash, because there is none\n");
        return;
    };
    symlink(bash, &shell).expect("a link");
    is_same(&["--seed", "21", "--executed", "400", "--seconds", "200", "--shell", shell.to_str().expect("text")]);
}

/// A third reader of the same lines: the rules are POSIX's, not those of one shell.
#[test]
fn lines_are_those_that_busybox_reads() {
    let Some(busybox) = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists()) else {
        say("SKIPPED: lines beside busybox, because there is none\n");
        return;
    };
    is_same(&["--seed", "23", "--executed", "500", "--seconds", "200", "--against", busybox]);
}

/// Broken on purpose, a rule is found to be.
#[test]
fn a_broken_rule_is_found() {
    let Some(found) = fuzz(&["--seed", "22", "--executed", "300", "--seconds", "200", "--control"]) else { return };
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
}

#[test]
fn real_lines_are_the_same() {
    is_same(&["--commands", concat!(env!("CARGO_MANIFEST_DIR"), "/cases/commands.txt")]);
}

/// What cannot be done is the shell's to tell: the message is its own, and what it does before that is done.
#[test]
fn failures_are_told_by_the_shell() {
    let place = tempfile::tempdir().expect("a directory");
    let mut line = forkless::shell("no-such-program >made 2>told");
    // A directory in PATH that may not be searched would be another reason.
    line.settings().current_dir(place.path()).env("PATH", "/usr/bin:/bin");
    if line.route() != ShellRoute::Direct {
        return;
    }
    assert_eq!(line.status().expect("a shell").code(), Some(127));
    assert_eq!(line.taken(), Some(&ShellRoute::Shell(Reason::Failed(Step::Exec))));
    assert!(place.path().join("made").exists());
    assert!(fs::read_to_string(place.path().join("told")).expect("told").contains("not found"));
}

/// Whatever bash can do itself, or takes for a word of its language, is left to the shell.
#[test]
fn what_bash_does_itself_is_left_to_it() {
    let Ok(list) = Command::new("bash").args(["--norc", "-c", "compgen -b; compgen -k"]).output() else {
        say("SKIPPED: what bash does itself, because there is none\n");
        return;
    };
    let list = text(&list.stdout);
    assert!(list.lines().count() > 50, "{list}");
    // `exec` is taken at its word.
    for word in list.lines().filter(|word| *word != "exec") {
        let route = forkless::shell(format!("{word} a")).route();
        assert!(matches!(route, ShellRoute::Shell(Reason::Syntax(_))), "{word}: {route}");
    }
}

/// A signal that kills the program is told as the shell tells it, by each way to wait.
#[test]
fn deaths_are_told_as_the_shell_tells_them() {
    const LINE: &str = "sh -c 'kill -TERM $$'";
    let shell = Command::new("/bin/sh").args(["-c", LINE]).output().expect("a shell");
    let mut line = forkless::shell(LINE);
    let direct = line.output().expect("a run");
    assert_eq!((direct.status, text(&direct.stderr)), (shell.status, text(&shell.stderr)));
    let mut child = line.spawn().expect("a child");
    assert_eq!(child.wait().expect("an end"), shell.status);
    assert_eq!(child.wait().expect("the same end"), shell.status);
    let (mut child, ending) = line.spawn().expect("a child").into_parts();
    let status = child.wait().expect("an end");
    if line.route() == ShellRoute::Direct {
        assert_eq!(status.signal(), Some(15));
    }
    assert_eq!(ending.status(status).expect("a status"), shell.status);
}

/// Nobody waits for a program that opens a pipe for ever: such files are the shell's.
#[test]
fn a_pipe_is_not_opened_here() {
    let place = tempfile::tempdir().expect("a directory");
    let fifo = place.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let mut line = forkless::shell(format!("cat <{}", fifo.display()));
    line.settings().stdout(forkless::Stdio::piped());
    let child = line.spawn().expect("a shell");
    fs::write(&fifo, "through").expect("a reader");
    assert_eq!(child.wait_with_output().expect("output").stdout, b"through");
}

/// What the shell says of a program that was killed goes where the program's standard error went, whatever has become of that
/// name by then.
#[test]
fn a_file_that_takes_the_place_of_standard_error_is_not_written_to() {
    for planted in ["ln -s victim err", "mkfifo err"] {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name);
        fs::write(path("victim"), "precious").expect("a file");
        fs::write(path("plant"), format!("rm err\n{planted}\nkill -KILL $$\n")).expect("a script");
        let mut line = forkless::shell("sh plant 2>err");
        line.settings().current_dir(place.path());
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(line.status()));
        let status = wait.recv_timeout(std::time::Duration::from_secs(100)).expect("an end").expect("a shell");
        let shell =
            Command::new("/bin/sh").args(["-c", "sh -c 'kill -KILL $$' 2>/dev/null"]).status().expect("a shell");
        assert_eq!(status, shell, "{planted}");
        assert_eq!(fs::read_to_string(path("victim")).expect("a file"), "precious", "{planted}");
    }
}

/// Appended to a file that has been made shorter, or written over what the program wrote at another place: as the shell does it.
#[test]
fn the_shells_words_are_where_it_puts_them() {
    for line in ["sh plant 2>err", "sh plant 2>>err", "sh plant >err 2>&1"] {
        let told = |run: &dyn Fn(&Path)| {
            let place = tempfile::tempdir().expect("a directory");
            fs::write(place.path().join("plant"), "echo long enough >&2\n: >err\nkill -KILL $$\n").expect("a script");
            run(place.path());
            fs::read(place.path().join("err")).expect("a file")
        };
        let ours = told(&|place| {
            let mut line = forkless::shell(line);
            line.settings().current_dir(place);
            line.status().expect("a run");
        });
        let theirs = told(&|place| {
            Command::new("/bin/sh").args(["-c", line]).current_dir(place).status().expect("a shell");
        });
        assert_eq!(text(&ours), text(&theirs), "{line}");
    }
}

/// In another root, `/bin/sh` is what is there.
#[test]
fn the_shell_of_another_root_is_looked_at_anew() {
    let place = tempfile::tempdir().expect("a directory");
    fs::create_dir(place.path().join("bin")).expect("a directory");
    fs::write(place.path().join("bin/busybox"), "").expect("a file");
    symlink("busybox", place.path().join("bin/sh")).expect("a link");
    let line = || {
        let mut line = forkless::shell("ls");
        line.settings().current_dir("/").env("PATH", "/bin:/usr/bin");
        line.route()
    };
    if line() != ShellRoute::Direct {
        say("SKIPPED: the shell of another root, because this one's is not known\n");
        return;
    }
    // In a thread that has a root of its own.
    let inside = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: changes this thread alone.
            match unsafe { libc::unshare(libc::CLONE_FS) } {
                0 => std::os::unix::fs::chroot(place.path()).map(|()| line()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
        thread.join().expect("a thread")
    });
    match inside {
        Ok(route) => assert_eq!(route, ShellRoute::Shell(Reason::Shell)),
        Err(error) => say(&format!("SKIPPED: the shell of another root, because there can be none: {error}\n")),
    }
    assert_eq!(line(), ShellRoute::Direct);
}

/// A shell that is replaced is looked at anew as well.
#[test]
fn a_shell_that_is_replaced_is_looked_at_anew() {
    let place = tempfile::tempdir().expect("a directory");
    let shell = place.path().join("sh");
    let route = || forkless::shell("ls").shell_path(&shell).route();
    for name in ["dash", "busybox"] {
        fs::write(place.path().join(name), "").expect("a file");
    }
    symlink("dash", &shell).expect("a link");
    assert_eq!(route(), ShellRoute::Direct);
    fs::remove_file(&shell).expect("a link");
    symlink("busybox", &shell).expect("a link");
    assert_eq!(route(), ShellRoute::Shell(Reason::Shell));
}
