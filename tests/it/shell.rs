//! Command lines that are run without a shell: they behave as with `sh -c`, except for the documented differences.

testing::usual_surroundings!();

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use forkless::{Reason, ShellCommand, ShellRoute, Step};

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// None if `/bin/sh` is a shell that this test does not know.
fn fuzz(args: &[&str]) -> Option<Output> {
    let shell = args.iter().position(|word| *word == "--shell").map_or("/bin/sh", |at| args[at + 1]);
    if forkless::shell("ls").shell_path(shell).route() != ShellRoute::Direct {
        say(&format!("SKIPPED: lines without a shell, because {shell} is neither dash nor bash 5.1 to 5.3\n"));
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
        // At least one line was compared.
        assert!(!text(&found.stdout).contains("executed in both ways 0,"), "{}", text(&found.stdout));
    }
}

#[test]
fn lines_are_the_same_without_a_shell() {
    is_same(&["--seed", "20", "--executed", "2000", "--seconds", "200"]);
}

fn bash() -> Option<&'static str> {
    let bash = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|bash| Path::new(bash).exists());
    if bash.is_none() {
        say("SKIPPED: lines without bash, because there is none\n");
    }
    bash
}

#[test]
fn lines_are_the_same_without_bash() {
    let Some(bash) = bash() else { return };
    is_same(&["--seed", "24", "--executed", "400", "--seconds", "200", "--shell", bash]);
}

/// bash has other rules under this name.
#[test]
fn lines_are_the_same_without_a_bash_that_is_called_sh() {
    let place = tempfile::tempdir().expect("a directory");
    let shell = place.path().join("sh");
    let Some(bash) = bash() else { return };
    symlink(bash, &shell).expect("a link");
    is_same(&["--seed", "21", "--executed", "400", "--seconds", "200", "--shell", shell.to_str().expect("text")]);
}

/// Each word in the shell's file may be a variable that it heeds.
#[test]
fn no_variable_that_a_shell_knows_is_passed_on_otherwise() {
    for shell in ["/bin/sh"].into_iter().chain(bash()) {
        is_same(&["--names", "--shell", shell]);
    }
}

/// A login shell and a restricted one start like bash, but read files or refuse what bash does.
#[test]
fn a_bash_of_another_name_runs_its_lines_itself() {
    let Some(bash) = bash() else { return };
    for name in ["-bash", "rbash", "login"] {
        let mut line = forkless::shell("ls");
        line.shell_path(bash).settings().arg0(name).env("SHLVL", "1");
        assert_eq!(line.route(), ShellRoute::Shell(Reason::Shell), "{name}");
    }
    let mut line = forkless::shell("ls");
    line.shell_path(bash).settings().env("SHLVL", "0");
    assert_ne!(line.route(), ShellRoute::Direct, "a bash that no shell has started may read ~/.bashrc");
}

/// A third shell: the rules are those of POSIX, not of one shell.
#[test]
fn lines_have_the_same_result_with_busybox() {
    let Some(busybox) = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists()) else {
        say("SKIPPED: lines beside busybox, because there is none\n");
        return;
    };
    is_same(&["--seed", "23", "--executed", "500", "--seconds", "200", "--against", busybox]);
}

/// Negative control: a broken rule is detected.
#[test]
fn a_broken_rule_is_detected() {
    let Some(found) = fuzz(&["--seed", "22", "--executed", "300", "--seconds", "200", "--control"]) else { return };
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
}

#[test]
fn real_lines_have_the_same_result() {
    const COMMANDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases/commands.txt");
    for shell in ["/bin/sh"].into_iter().chain(bash()) {
        is_same(&["--commands", COMMANDS, "--shell", shell]);
    }
}

/// The shell reports failures: the message is the shell's, and so are the effects of the parts before it.
#[test]
fn failures_are_reported_by_the_shell() {
    let place = tempfile::tempdir().expect("a directory");
    let mut line = forkless::shell("no-such-program >made");
    // A directory in PATH that may not be searched would change the error.
    line.settings().current_dir(place.path()).env("PATH", "/usr/bin:/bin");
    if !is_direct(&line, "what a shell says of a program that is not there") {
        return;
    }
    let told = line.output().expect("a shell");
    assert_eq!(told.status.code(), Some(127));
    assert_eq!(line.taken(), Some(&ShellRoute::Shell(Reason::Failed(Step::Exec))));
    assert!(place.path().join("made").exists());
    assert!(text(&told.stderr).contains("not found"), "{}", text(&told.stderr));
}

/// Whether the line would run without a shell; if not, prints that the test is skipped.
fn is_direct(line: &ShellCommand, what: &str) -> bool {
    let route = line.route();
    if matches!(route, ShellRoute::Shell(Reason::Shell | Reason::Waits)) {
        say(&format!("SKIPPED: {what}, because of {route}\n"));
        return false;
    }
    assert_eq!(route, ShellRoute::Direct);
    true
}

/// A line that ran directly must not affect a later run of the same object by the shell.
#[test]
fn a_direct_run_does_not_affect_a_later_run_by_the_shell() {
    let mut line = forkless::shell("sh -c 'echo $PPID'");
    if !is_direct(&line, "a line that runs directly and then by the shell") {
        return;
    }
    let me = format!("{}\n", std::process::id());
    let parent = |line: &mut ShellCommand| text(&line.output().expect("output").stdout);
    assert_eq!(parent(&mut line), me);
    line.settings().rlimit(forkless::Resource::Files, 50, 50);
    assert_eq!(line.route(), ShellRoute::Shell(Reason::Setting));
    let waits = text(&Command::new("/bin/sh").args(["-c", "sh -c 'echo $PPID'"]).output().expect("a shell").stdout);
    assert_eq!(parent(&mut line) == me, waits == me, "the shell is the parent, if it waits");
}

/// Settings that would affect a shell too, or that a shell changes, are left to the shell.
#[test]
fn lines_with_settings_that_affect_a_shell_are_run_by_the_shell() {
    type Set = fn(&mut forkless::Command);
    let settings: [(Set, Reason); 9] = [
        (|settings| _ = settings.rlimit(forkless::Resource::Files, 50, 50), Reason::Setting),
        (|settings| _ = settings.chroot("/"), Reason::Setting),
        (|settings| _ = settings.uid(0), Reason::Setting),
        (|settings| _ = settings.groups(&[1]), Reason::Setting),
        (|settings| _ = settings.unshare(forkless::Namespace::Mount), Reason::Setting),
        (|settings| _ = settings.parent_death_signal(9), Reason::Setting),
        (|settings| _ = settings.securebits(1), Reason::Setting),
        (|settings| _ = settings.or_else("/bin/true"), Reason::Setting),
        (|settings| _ = settings.signal_block(libc::SIGCHLD), Reason::Blocked),
    ];
    if !is_direct(&forkless::shell("ls"), "settings that a shell would feel") {
        return;
    }
    for (n, (set, why)) in settings.into_iter().enumerate() {
        let mut line = forkless::shell("ls");
        set(line.settings());
        assert_eq!(line.route(), ShellRoute::Shell(why), "setting {n}");
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut line = forkless::shell("ls >made");
    line.settings().current_dir(place.path()).umask(0o277);
    assert_eq!(line.route(), ShellRoute::Shell(Reason::Umask), "the shell could not open the file again");
    // In a thread of another effective user.
    let route = std::thread::spawn(|| {
        // SAFETY: by the plain call it is this thread's alone.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65533, -1) };
        (changed == 0).then(|| forkless::shell("ls").route())
    });
    match route.join().expect("a thread") {
        Some(route) => assert_eq!(route, ShellRoute::Shell(Reason::Privileged)),
        None => say("SKIPPED: lines of a caller with another's privileges, because it needs root\n"),
    }
}

/// Writing the shell's message about a killed program does not block on a full pipe.
#[test]
fn writing_the_shells_message_does_not_block() {
    let (_read, mut write) = std::io::pipe().expect("a pipe");
    let full = write.try_clone().expect("a copy");
    // SAFETY: sets flags of a pipe that this test owns.
    unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&write), libc::F_SETFL, libc::O_NONBLOCK) };
    while std::io::Write::write(&mut write, &[b'x'; 4096]).is_ok() {}
    // SAFETY: as above.
    unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&write), libc::F_SETFL, 0) };
    let mut line = forkless::shell("sh -c 'kill -TERM $$'");
    if !is_direct(&line, "the words of a shell into a full pipe") {
        return;
    }
    line.settings().stderr(std::os::fd::OwnedFd::from(full));
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(line.status()));
    let status = wait.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for a reader");
    status.expect("a run");
}

/// Builtins and keywords of bash are left to the shell.
#[test]
fn builtins_of_bash_are_run_by_bash() {
    let Ok(list) = Command::new("bash").args(["--norc", "-c", "compgen -b; compgen -k"]).output() else {
        say("SKIPPED: what bash does itself, because there is none\n");
        return;
    };
    let list = text(&list.stdout);
    assert!(list.lines().count() > 50, "{list}");
    // `exec` is handled without a shell.
    for word in list.lines().filter(|word| *word != "exec") {
        let route = forkless::shell(format!("{word} a")).route();
        assert!(matches!(route, ShellRoute::Shell(Reason::Syntax(_))), "{word}: {route}");
    }
}

/// A fatal signal is reported as by the shell, by each way to wait.
#[test]
fn deaths_by_signals_are_reported_as_by_the_shell() {
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

/// Opening a FIFO may block for ever: lines that do are left to the shell.
#[test]
fn lines_that_open_a_fifo_are_run_by_the_shell() {
    let place = tempfile::tempdir().expect("a directory");
    let fifo = place.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let mut line = forkless::shell(format!("cat <{}", fifo.display()));
    line.settings().stdout(forkless::Stdio::piped());
    assert_ne!(line.route(), ShellRoute::Direct);
    let child = line.spawn().expect("a shell");
    fs::write(&fifo, "through").expect("a reader");
    assert_eq!(child.wait_with_output().expect("output").stdout, b"through");
}

/// The shell's message about a killed program goes to the program's standard error, even if its path now names another
/// file.
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
        let status = wait.recv_timeout(forkless_tests::patience::limit(100)).expect("an end").expect("a shell");
        let shell =
            Command::new("/bin/sh").args(["-c", "sh -c 'kill -KILL $$' 2>/dev/null"]).status().expect("a shell");
        assert_eq!(status, shell, "{planted}");
        assert_eq!(fs::read_to_string(path("victim")).expect("a file"), "precious", "{planted}");
    }
}

/// Appended to a file that was truncated, or written over the program's output at another offset: as by the shell.
#[test]
fn the_shells_message_is_written_where_the_shell_writes_it() {
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

/// With another root directory, `/bin/sh` is the shell of that root.
#[test]
fn the_shell_of_another_root_is_identified_again() {
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
    // In a thread with its own root directory.
    let inside = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: affects only this thread.
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

/// One file with different names in two roots: its name decides which shell it is.
#[test]
fn a_shell_with_another_name_in_another_root_is_identified_again() {
    let place = tempfile::tempdir().expect("a directory");
    let [known, other] = ["known", "other"].map(|root| place.path().join(root));
    for root in [&known, &other] {
        fs::create_dir_all(root.join("bin")).expect("a directory");
    }
    fs::write(known.join("bin/dash"), "").expect("a file");
    symlink("dash", known.join("bin/sh")).expect("a link");
    fs::hard_link(known.join("bin/dash"), other.join("bin/sh")).expect("a second name");
    let inside = |root: &Path| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: affects only this thread.
                let own = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
                (own && std::os::unix::fs::chroot(root).is_ok()).then(|| {
                    std::env::set_current_dir("/").expect("a directory");
                    let mut line = forkless::shell("ls");
                    line.settings().env_clear().env("PATH", "/bin");
                    line.route()
                })
            });
            thread.join().expect("a thread")
        })
    };
    let Some(route) = inside(&known) else {
        return say("SKIPPED: one file as the shell of two roots, because it needs root\n");
    };
    assert_eq!(route, ShellRoute::Direct);
    assert_eq!(inside(&other), Some(ShellRoute::Shell(Reason::Shell)));
}

/// A shell that is replaced is identified again.
#[test]
fn a_replaced_shell_is_identified_again() {
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
    // The same file with another name.
    let again = place.path().join("again");
    fs::write(place.path().join("dash"), "").expect("a file");
    symlink("dash", &again).expect("a link");
    let route = || forkless::shell("ls").shell_path(&again).route();
    assert_eq!(route(), ShellRoute::Direct);
    // File times have the resolution of the timer tick.
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::rename(place.path().join("dash"), place.path().join("busybox")).expect("another name");
    fs::remove_file(&again).expect("a link");
    symlink("busybox", &again).expect("a link");
    assert_eq!(route(), ShellRoute::Shell(Reason::Shell));
}
