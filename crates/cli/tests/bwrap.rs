//! Options that `forkless run` has for command lines of bwrap(1).

testing::usual_surroundings!();

mod callers;

use std::{
    fs,
    io::Read,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use callers::Caller;

/// A directory that every user can enter, with the files `hello` and `empty`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("temporary directory");
        for (name, mode, text) in [("hello", 0o644, "hello\n"), ("empty", 0o644, "")] {
            fs::write(place.path().join(name), text).expect("writable");
            fs::set_permissions(place.path().join(name), fs::Permissions::from_mode(mode)).expect("ours");
        }
        fs::create_dir(place.path().join("d")).expect("writable");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        Self(place)
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    /// Runs a line of bash in it, in which `run` is `forkless run` in new namespaces, `box` in a sandbox.
    fn line(&self, caller: Caller, line: &str) -> Output {
        let mut shell = caller.shell("bash");
        let names = "run() { \"$0\" run --unshare-user --map-current-user --unshare-mount \"$@\"; }
            box() { \"$0\" run --sandbox --chdir / \"$@\"; }";
        shell.args(["-c", &format!("{names}\n{line}"), callers::binary()]).current_dir(self.path());
        shell.env("LC_ALL", "C").output().expect("bash")
    }

    fn shown(&self, caller: Caller, line: &str) -> String {
        let output = self.line(caller, line);
        assert!(output.status.success() && output.stderr.is_empty(), "{caller:?}: {line}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn error(&self, caller: Caller, line: &str) -> String {
        let output = self.line(caller, line);
        assert_eq!(output.status.code(), Some(125), "{caller:?}: {line}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }
}

fn able(test: &str) -> Vec<Caller> {
    Caller::with_user_namespaces(test)
}

#[test]
fn files_have_the_content_and_the_mode_that_were_given() {
    for caller in able("files_have_the_content_and_the_mode_that_were_given") {
        let place = Place::new();
        let files = "--tmpfs d --file 3 d/f --perms 640 --file 4 d/g --dir d/h --chmod 1755 d/h --chmod 600 d/f";
        let line = format!("run {files} sh -c 'cat d/f d/g; stat -c %a d/f d/g d/h' 3<hello 4<empty");
        assert_eq!(place.shown(caller, &line), "hello\n600\n640\n1755\n");
        assert_eq!(place.shown(caller, "run --tmpfs d --file 3 d/f stat -c %a d/f 3<hello"), "666\n");
        // More than a pipe holds, from one.
        let line = "seq 100000 | run --tmpfs d --file 0 d/f sh -c 'wc -c <d/f; tail -n 1 d/f'";
        assert_eq!(place.shown(caller, line), "588895\n100000\n");
        let line = "run --tmpfs d --file 3 d/f --file 4 d/f cat d/f 3</usr/bin/env 4<hello";
        assert_eq!(place.shown(caller, line), "hello\n", "an existing file is overwritten");
    }
}

#[test]
fn mounted_files_hide_a_file_and_nothing_else() {
    for caller in able("mounted_files_hide_a_file_and_nothing_else") {
        let place = Place::new();
        let shows = "sh -c 'cat empty; stat -c %a empty; (echo more >>empty) 2>/dev/null || echo refused; ls'";
        let line = format!("run --bind-data 3 empty {shows} 3<hello");
        assert_eq!(place.shown(caller, &line), "hello\n600\nd\nempty\nhello\n");
        let line = format!("run --perms 444 --ro-bind-data 3 empty {shows} 3<hello");
        assert_eq!(place.shown(caller, &line), "hello\n444\nrefused\nd\nempty\nhello\n");
        assert_eq!(fs::read(place.path().join("empty")).expect("a file"), b"", "the file itself is unchanged");
        // The program may be in such a file.
        let line = "run --perms 755 --ro-bind-data 3 empty ./empty 3< <(printf '#!/bin/sh\\necho ran\\n')";
        assert_eq!(place.shown(caller, line), "ran\n");
    }
}

#[test]
fn files_that_cannot_be_made_are_errors() {
    for caller in able("files_that_cannot_be_made_are_errors") {
        let place = Place::new();
        for (line, wrong) in [
            ("run --size 4096 --tmpfs d --file 3 d/f true 3</usr/bin/bash", "No space left"),
            ("run --tmpfs d --symlink /etc/hostname d/l --chmod 777 d/l true", "symbolic links"),
            ("run --tmpfs d --symlink ../hello d/l --file 3 d/l true 3<empty", "symbolic links"),
            ("run --chmod 777 d/none true", "No such file"),
            ("run --bind-data 3 d/none true 3<hello", "No such file"),
            ("run --tmpfs d --file 99 d/f true", "--file: fd 99 is not open"),
            ("run --ro-bind-data 99 empty true", "--ro-bind-data: fd 99 is not open"),
            ("box --file 3 /usr/new true 3<hello", "Read-only"),
        ] {
            let error = place.error(caller, line);
            assert!(error.contains(wrong), "{line}: {error}");
        }
        assert_eq!(fs::read_to_string(place.path().join("hello")).expect("a file"), "hello\n");
    }
}

#[test]
fn sandboxes_have_such_files_too() {
    for caller in able("sandboxes_have_such_files_too") {
        let place = Place::new();
        let files = "--file 3 /tmp/f --perms 644 --bind-data 4 /tmp/g --ro-bind-data 5 /opt/x/y --chmod 700 /tmp/f";
        let program = "sh -c 'cat /tmp/f /tmp/g /opt/x/y; stat -c %a /tmp/f /tmp/g; echo more >>/tmp/g; wc -l </tmp/g
            (echo x >/opt/x/y) 2>/dev/null || echo refused'";
        let line = format!("box {files} {program} 3<hello 4<hello 5<hello");
        assert_eq!(place.shown(caller, &line), "hello\nhello\nhello\n700\n644\n2\nrefused\n");
        let script = "3< <(printf '#!/bin/sh\\necho ran\\n')";
        let line = format!("--perms 755 --ro-bind-data 3 /tmp/p /tmp/p {script}");
        assert_eq!(place.shown(caller, &format!("box {line}")), "ran\n");
        let strict = place.line(caller, &format!("\"$0\" run --sandbox=strict --chdir / {line}"));
        assert!(!strict.status.success() && strict.stdout.is_empty(), "{strict:?}");
    }
}

/// What the documentation has for a whole root.
#[test]
fn documented_root_has_only_what_is_mounted() {
    let page = include_str!("../../../docs/run.md").split_once("\n## Command lines of bwrap\n").expect("a section").1;
    let block = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    assert!(block.contains("--pivot-root root --chdir / ls /\n"), "{block}");
    for caller in able("documented_root_has_only_what_is_mounted") {
        let place = Place::new();
        fs::create_dir(place.path().join("root")).expect("writable");
        let block = block.replace("mkdir root && forkless", "\"$0\"");
        assert_eq!(place.shown(caller, &block), "bin\nlib\nlib64\nproc\nusr\n");
    }
}

#[test]
fn command_lines_of_bwrap_get_a_remark() {
    const REMARK: &str = "forkless: unlike with bwrap, the program keeps the root of the host";
    for caller in able("command_lines_of_bwrap_get_a_remark") {
        let place = Place::new();
        for (line, expected) in [
            ("run --unshare-all --ro-bind /usr /usr true", true),
            ("run --unshare-pid --ro-bind /usr /usr --proc /proc --dev /dev true", true),
            ("run --quiet --unshare-all --ro-bind /usr /usr true", false),
            ("run --unshare-all true", false),
            ("run --ro-bind /usr /usr true", false),
            ("box --unshare-all --ro-bind /usr /usr true", false),
        ] {
            let output = place.line(caller, line);
            let shown = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && shown.starts_with(REMARK) == expected, "{line}: {output:?}");
        }
    }
}

/// The PIDs of the processes with this in their command line.
fn with_mark(mark: &str) -> Vec<String> {
    let has_mark = |entry: &fs::DirEntry| {
        fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.windows(mark.len()).any(|it| it == mark.as_bytes()))
    };
    let found = fs::read_dir("/proc").expect("procfs").flatten().filter(has_mark);
    found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn program_dies_with_the_process_that_started_forkless() {
    for (number, options) in ["", "--unshare-user --unshare-pid", "--sandbox --chdir /", "--capture"].iter().enumerate()
    {
        let mark = format!("1{:07}{number}", std::process::id());
        let forkless = testing::surroundings::word(env!("CARGO_BIN_EXE_forkless"));
        let words = "sh -c 'echo up >&2; exec sleep \"$0\"'";
        // The shell waits, so that it is the parent.
        let script = format!("{forkless} run --die-with-parent {options} {words} {mark}; true");
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", &script]).stderr(Stdio::piped()).spawn().expect("sh");
        let mut up = [0; 3];
        // Captured output comes at the end.
        let is_shown = *options != "--capture";
        if is_shown && shell.stderr.take().expect("a pipe").read_exact(&mut up).is_ok() && up != *b"up\n" {
            assert!(!options.is_empty(), "the program does not start");
            eprintln!("SKIPPED: {options}, because the program does not start");
            shell.wait().expect("it ended");
            continue;
        }
        let started = Instant::now();
        while with_mark(&mark).len() < 3 && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        shell.kill().expect("it runs");
        shell.wait().expect("it ended");
        let killed = Instant::now();
        while !with_mark(&mark).is_empty() {
            let left = with_mark(&mark);
            if killed.elapsed() > Duration::from_secs(20) {
                let _ = Command::new("kill").arg("-KILL").args(&left).status();
                panic!("{options}: {left:?} are left");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let refused = Command::new(env!("CARGO_BIN_EXE_forkless"))
        .args(["run", "--die-with-parent", "--launcher=posix_spawn", "true"])
        .output()
        .expect("forkless starts");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--die-with-parent"), "{refused:?}");
}
