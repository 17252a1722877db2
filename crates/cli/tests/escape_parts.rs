//! The parts of `forkless run --sandbox`: each is required, and options widen the sandbox by what they name. Run as root and
//! as an ordinary user.

testing::usual_surroundings!();

mod callers;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Output, Stdio},
};

use callers::{Caller, binary, directory, field, skipped};

fn run(caller: Caller, options: &[&str], script: &str) -> Output {
    caller.output(&[&["--sandbox"], options, &["sh", "-c", script]].concat())
}

fn text(caller: Caller, options: &[&str], script: &str) -> String {
    let output = run(caller, options, script);
    assert!(output.status.success(), "{caller:?} {options:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Each system call that a part of the sandbox needs, and how the error names the part, which may depend on the user.
const PARTS: [(&str, &str); 18] = [
    ("clone", "the init of a sandbox"),
    ("setsid", "setsid"),
    ("sethostname", "host name"),
    ("ioctl", "loopback device"),
    ("open_tree", "mount \"/usr\""),
    ("mount_setattr", "mount \"/usr\""),
    ("mkdirat", "make the directory"),
    ("mknodat", "mount of /dev/null"),
    ("symlinkat", "symbolic link"),
    ("move_mount", "mount"),
    ("openat2", "mount of|symbolic link"),
    ("mount", "mount"),
    ("pivot_root", "pivot_root"),
    ("umount2", "pivot_root"),
    ("capset", "capabilities"),
    ("prlimit64", "limit"),
    ("seccomp", "seccomp"),
    ("prctl", "PR_SET_DUMPABLE|capabilities"),
];

#[test]
fn part_that_fails_is_named_and_the_program_does_not_run() {
    for caller in Caller::with_user_namespaces("part_that_fails_is_named_and_the_program_does_not_run") {
        for (call, part) in PARTS {
            let filter = format!("--system-call-filter=~{call}");
            let options = [
                "--no-new-privs",
                &filter,
                "--launcher=fork",
                binary(),
                "run",
                "--sandbox",
                "--ro-bind",
                "/usr",
                "/shown",
            ];
            if call == "seccomp" {
                // The outer forkless installs the filter by it, and the inner one would inherit the error.
                continue;
            }
            let output = caller.output(&[&["--inherit-all"], &options[..], &["echo", "it ran"]].concat());
            let words = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{caller:?} {call}: {output:?}");
            assert!(part.split('|').any(|part| words.contains(part)), "{caller:?} {call}: {words}");
            assert!(output.stdout.is_empty(), "{caller:?} {call}: {output:?}");
        }
        for call in if caller == Caller::Root { &["setgroups", "setresuid", "setresgid"][..] } else { &[] } {
            let filter = format!("--system-call-filter=~{call}");
            let words =
                caller.failure(&["--inherit-all", "--no-new-privs", &filter, binary(), "run", "--sandbox", "true"]);
            assert!(words.contains(&call.replace("res", "")), "{words}");
        }
    }
}

#[test]
fn kernel_without_landlock_is_reported_and_strict_requires_it() {
    for caller in Caller::with_user_namespaces("kernel_without_landlock_is_reported_and_strict_requires_it") {
        let run = |profile: &str| {
            let filter = "--system-call-filter=~landlock_create_ruleset:ENOSYS";
            caller.output(&["--inherit-all", "--no-new-privs", filter, binary(), "run", profile, "echo", "it ran"])
        };
        let output = run("--sandbox");
        assert_eq!(output.stdout, b"it ran\n", "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("no Landlock"), "{output:?}");
        let output = run("--sandbox=strict");
        assert!(output.status.code() == Some(125) && output.stdout.is_empty(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("sandbox: Landlock"), "{output:?}");
    }
}

#[test]
fn program_has_ids_of_an_ordinary_user_and_no_capabilities() {
    for caller in Caller::with_user_namespaces("program_has_ids_of_an_ordinary_user_and_no_capabilities") {
        let status = text(caller, &[], "cat /proc/self/status");
        let uid = if caller == Caller::Root { 65534 } else { caller.uid() };
        assert_eq!(field(&status, "Uid"), Some([uid.to_string().as_str(); 4].join("\t")), "{status}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(&status, set).as_deref(), Some("0000000000000000"), "{set}");
        }
        assert_eq!(field(&status, "NoNewPrivs").as_deref(), Some("1"));
        assert_eq!(field(&status, "Seccomp").as_deref(), Some("2"));
    }
}

#[test]
fn exit_code_and_output_are_those_of_the_program() {
    for caller in Caller::with_user_namespaces("exit_code_and_output_are_those_of_the_program") {
        let code = |script: &str| run(caller, &[], script).status.code();
        assert_eq!(code("exit 7"), Some(7));
        assert_eq!(run(caller, &[], "kill -9 $$").status.signal(), Some(libc::SIGKILL));
        assert_eq!(caller.output(&["--sandbox", "/no/such/program"]).status.code(), Some(127));
        assert_eq!(caller.output(&["--sandbox", "/etc/passwd"]).status.code(), Some(126));
        assert_eq!(caller.output(&["--sandbox", "--timeout=100ms", "sleep", "600"]).status.code(), Some(124));
        let output = run(caller, &["--capture"], "echo out; echo err >&2");
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        let output = caller.output(&["--sandbox", "--shell", "echo $((1 + 2)); exit 4"]);
        assert_eq!((&output.stdout[..], output.status.code()), (&b"3\n"[..], Some(4)));
    }
}

/// A sandboxed program that has printed its first line.
fn started(caller: Caller, script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = caller.forkless(&["--sandbox", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n", "{caller:?}");
    (child, output)
}

#[test]
fn signal_sent_to_forkless_reaches_the_program() {
    for caller in Caller::with_user_namespaces("signal_sent_to_forkless_reaches_the_program") {
        let script = "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
        let (mut child, mut output) = started(caller, script);
        forkless_core::sys::kill(child.id() as i32, libc::SIGTERM).expect("a signal");
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("text");
        assert_eq!((rest.as_str(), child.wait().expect("ends").code()), ("got\n", Some(9)), "{caller:?}");
    }
}

#[test]
fn stopped_forkless_stops_the_program_until_it_continues() {
    for caller in Caller::with_user_namespaces("stopped_forkless_stops_the_program_until_it_continues") {
        let directory = directory();
        let file = directory.path().join("file");
        let path = directory.path().to_str().expect("text");
        let script = format!("echo ready; while :; do echo >>{path}/file; sleep 0.01; done");
        let mut command = caller.forkless(&["--sandbox", "--bind", path, path, "sh", "-c", &script]);
        // A group of its own: that of the tests may be orphaned, and the kernel does not stop it then.
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().expect("it starts");
        let size = || fs::metadata(&file).map_or(0, |data| data.len());
        let grows = |from: u64| {
            while size() <= from {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        grows(0);
        let pid = child.id() as i32;
        forkless_core::sys::kill(pid, libc::SIGTSTP).expect("a signal");
        let mut status = 0;
        forkless_core::sys::wait4(pid, &mut status, libc::WUNTRACED as u32, None).expect("it stops");
        assert!(libc::WIFSTOPPED(status), "{status}");
        // Init may have yet to stop the program.
        let mut before = size();
        loop {
            std::thread::sleep(std::time::Duration::from_millis(200));
            match size() {
                now if now == before => break,
                now => before = now,
            }
        }
        forkless_core::sys::kill(pid, libc::SIGCONT).expect("a signal");
        grows(before);
        forkless_core::sys::kill(pid, libc::SIGTERM).expect("a signal");
        assert_eq!(child.wait().expect("ends").signal(), Some(libc::SIGTERM), "{caller:?}");
    }
}

#[test]
fn nothing_outlives_the_program_or_forkless() {
    for caller in Caller::with_user_namespaces("nothing_outlives_the_program_or_forkless") {
        // The end of the output says that nobody has it open any more. Without the sandbox, the orphan keeps it open.
        let script = "setsid sleep 600 & echo ready; wait";
        let (mut child, mut output) = started(caller, script);
        child.kill().expect("a signal");
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("the end");
        assert_eq!(child.wait().expect("ends").signal(), Some(libc::SIGKILL));
        let (mut child, mut output) = started(caller, "setsid sleep 600 & echo ready; exit 3");
        output.read_to_string(&mut rest).expect("the end");
        assert_eq!(child.wait().expect("ends").code(), Some(3));
    }
}

/// The program has been reaped before it: it sees that by the number of its parent.
#[test]
fn what_is_left_in_a_sandbox_gets_time_to_end() {
    const LATE: &str = "(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo late) & echo first; exit 3";
    for caller in Caller::with_user_namespaces("what_is_left_in_a_sandbox_gets_time_to_end") {
        for options in [&["--linger=60"][..], &["--linger=60", "--capture"]] {
            let output = run(caller, options, LATE);
            assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"first\nlate\n"[..]), "{output:?}");
        }
        // It ends at once, at the end of the linger, and by a signal.
        assert_eq!(text(caller, &["--linger=0"], "sleep 1000 & echo first"), "first\n");
        assert_eq!(text(caller, &["--linger=0.1"], "sleep 1000 & echo first"), "first\n");
        let mut command =
            caller.forkless(&["--sandbox", "--linger=1000", "sh", "-c", "sleep 1000 & echo $$; exec >&-"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("forkless starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        while child.try_wait().expect("a status").is_none() {
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn init_reaps_orphans() {
    for caller in Caller::with_user_namespaces("init_reaps_orphans") {
        let script = "for i in 1 2 3 4 5; do (true & true &) ; done; \
                      while grep -l '^State:.Z' /proc/[0-9]*/status; do sleep 0.05; done 2>/dev/null; echo clean";
        assert!(text(caller, &[], script).ends_with("clean\n"));
    }
}

#[test]
fn bind_shows_a_directory_without_devices_and_setuid_programs() {
    let directory = directory();
    fs::write(directory.path().join("file"), "here\n").expect("write");
    fs::set_permissions(directory.path().join("file"), fs::Permissions::from_mode(0o666)).expect("chmod");
    let path = directory.path().to_str().expect("text");
    for caller in Caller::with_user_namespaces("bind_shows_a_directory_without_devices_and_setuid_programs") {
        let hidden = run(caller, &[], &format!("cat {path}/file"));
        assert!(!hidden.status.success(), "{hidden:?}");
        let script = format!("cat {path}/file; echo more >>{path}/file || echo fixed");
        assert_eq!(text(caller, &["--ro-bind", path, path], &script), "here\nfixed\n");
        let script = "cat /new/place/file; echo >/new/place/added && rm /new/place/added; cat /proc/self/mounts";
        let seen = text(caller, &["--bind", path, "/new/place"], script);
        let line = seen.lines().find(|line| line.contains(" /new/place ")).expect("a mount");
        assert!(seen.starts_with("here\n") && line.contains("rw,nosuid,nodev"), "{line}");
        let file = format!("{path}/file");
        // A file's mount point is made wherever the sandbox has a file system of its own.
        let places = ["/a/b/c", "/tmp/c", "/tmp/a/b/c", "/var/tmp/c", "/dev/shm/c", "/dev/c", "/dev/a/b/c", "/run/c"];
        for place in places.into_iter().chain(["/var/run/d", "/var/run/a/b/c"]) {
            assert_eq!(text(caller, &["--ro-bind", &file, place], &format!("cat {place}")), "here\n", "{place}");
        }
        let script = "echo x >/dev/also-null && cat /dev/also-null; ls /dev/host/null; touch /dev/x || echo fixed";
        let binds = ["--dev-bind", "/dev/null", "/dev/also-null", "--dev-bind", "/dev", "/dev/host"];
        assert_eq!(text(caller, &binds, script), "/dev/host/null\nfixed\n");
        assert!(text(caller, &["--tmpfs", "/scratch"], "echo x >/scratch/y; cat /scratch/y").contains('x'));
        assert_eq!(text(caller, &["--ro-bind", path, "/var/run/e"], "cat /run/e/file"), "here\n");
        let words = caller.failure(&["--sandbox", "--bind", "/no/such/source", "/x", "true"]);
        assert!(words.contains("/no/such/source"), "{words}");
    }
}

/// Otherwise a hook of git, say, would run outside later.
#[test]
fn what_is_read_only_keeps_its_place_in_a_directory_that_may_be_written_to() {
    for caller in Caller::with_user_namespaces("what_is_read_only_keeps_its_place") {
        let directory = directory();
        let path = directory.path().to_str().expect("text");
        for name in ["", "a", "a/b", "a/b/hooks"] {
            let made = directory.path().join(name);
            let _ = fs::create_dir(&made);
            fs::set_permissions(&made, fs::Permissions::from_mode(0o777)).expect("chmod");
        }
        let script = format!(
            "cd {path}; for one in a a/b a/b/hooks; do mv $one $one-moved 2>/dev/null && echo $one; done; \
             echo >a/b/hooks/new || echo fixed; echo >a/b/new && rm a/b/new && echo written"
        );
        let hooks = format!("{path}/a/b/hooks");
        for binds in [vec![], vec!["--bind", path, "/elsewhere"]] {
            let rules = [&binds[..], &["--bind", path, path, "--ro-bind", &hooks, &hooks]].concat();
            assert_eq!(text(caller, &rules, &script), "fixed\nwritten\n");
        }
        // The program could put a directory in the place of a link.
        std::os::unix::fs::symlink("a", directory.path().join("link")).expect("a link");
        let place = format!("{path}/link/b");
        let words = caller.failure(&["--sandbox", "--bind", path, path, "--ro-bind", path, &place, "true"]);
        assert!(words.contains("symbolic link") && words.contains("/link"), "{words}");
        assert!(directory.path().join("a/b/hooks").is_dir());
    }
}

/// A read-only mount does not keep anybody from writing to a FIFO: only Landlock does.
#[test]
fn fifo_in_a_read_only_directory_cannot_be_written_to() {
    const TEST: &str = "fifo_in_a_read_only_directory_cannot_be_written_to";
    let directory = directory();
    let fifo = directory.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o666)).expect("chmod");
    let path = directory.path().to_str().expect("text");
    for caller in Caller::with_user_namespaces(TEST) {
        let script = |place: &str| format!("echo x 1<>{place}/fifo");
        assert!(caller.output(&["sh", "-c", &script(path)]).status.success(), "the control");
        // A bind over /tmp or /dev/shm hides a directory in which the program might have written. /dev has writable devices.
        for place in ["/shown", "/tmp", "/dev/shm"] {
            let more: [&[&str]; 6] = [
                &[],
                &["--dir", "/x"],
                &["--symlink", "/etc", "/x"],
                &["--tmpfs", "/x"],
                &["--proc", "/x", "--dev", "/y"],
                &["--mount", "tmpfs", "size=1m", "/x"],
            ];
            for more in more {
                let output = run(caller, &[&["--ro-bind", path, place], more].concat(), &script(place));
                let words = String::from_utf8_lossy(&output.stderr).into_owned();
                let is_refused = !output.status.success() && words.contains("ermission denied");
                assert!(is_refused || words.contains("no Landlock"), "{more:?} {place}: {output:?}");
            }
            let output = run(caller, &["--ro-bind", path, place], &script(place));
            if String::from_utf8_lossy(&output.stderr).contains("no Landlock") {
                skipped(TEST, "this kernel has no Landlock");
                break;
            }
            assert!(!output.status.success(), "{place}: {output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains("ermission denied"), "{place}: {output:?}");
        }
    }
}

/// Of file systems that options mount, those that are writable can be written to, also with Landlock.
#[test]
fn new_file_systems_can_be_written_to() {
    let directory = directory();
    for name in ["lower", "upper", "work"] {
        fs::create_dir(directory.path().join(name)).expect("mkdir");
        fs::set_permissions(directory.path().join(name), fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    let path = directory.path().to_str().expect("text");
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| format!("{path}/{name}"));
    for caller in Caller::with_user_namespaces("new_file_systems_can_be_written_to") {
        let script = "echo a >/x/file && cat /x/file && mkdir -p /x/b/c";
        for options in
            [&["--tmpfs", "/x"][..], &["--mount", "tmpfs", "size=1m,mode=777", "/x"], &["--size=1M", "--tmpfs", "/x"]]
        {
            assert_eq!(text(caller, options, script), "a\n", "{caller:?} {options:?}");
        }
        let read_only = run(caller, &["--mount", "tmpfs", "ro", "/x"], script);
        assert!(!read_only.status.success(), "{caller:?} {read_only:?}");
        let devices = "echo x >/x/null && ls -d /x/pts/ptmx && echo y >/x/shm/y && cat /x/shm/y";
        assert_eq!(text(caller, &["--dev", "/x"], devices), "/x/pts/ptmx\ny\n");
        assert_eq!(text(caller, &["--proc", "/x"], "ls -d /x/1 /x/keys; cat /x/keys || true"), "/x/1\n/x/keys\n");
        let overlay = ["--overlay-src", &lower, "--overlay", &upper, &work, "/x"];
        let output = run(caller, &overlay, "echo a >/x/file");
        let is_stored = fs::remove_file(directory.path().join("upper/file")).is_ok();
        let is_refused =
            output.status.code() == Some(125) && String::from_utf8_lossy(&output.stderr).contains("overlay");
        assert!(is_stored && output.status.success() || is_refused, "{caller:?} {output:?}");
        let wrong = caller.failure(&["--sandbox", "--mount", "tmpfs", "no-such=1", "/x", "true"]);
        assert!(wrong.contains("no-such") && wrong.contains("/x"), "{wrong}");
    }
}

/// A mount point below a directory of the host that every sandbox shows.
#[test]
fn no_mount_point_is_made_on_the_host() {
    const SHOWN: &str = "/usr/local/src";
    if !std::path::Path::new(SHOWN).is_dir() {
        skipped("no_mount_point_is_made_on_the_host", &format!("there is no {SHOWN}"));
        return;
    }
    for caller in Caller::with_user_namespaces("no_mount_point_is_made_on_the_host") {
        let directory = directory();
        let own = directory.path().to_str().expect("text");
        // As if this were a directory of the caller's.
        let own_user: &[&str] = if caller == Caller::Root { &[] } else { &["--unshare-user"] };
        let outer = [own_user, &["--unshare-mount", "--inherit-all", "--bind", own, SHOWN, binary(), "run"]].concat();
        let sandbox = ["--sandbox", "--chdir", "/", "--ro-bind", "/etc", "/usr/local/src/new/dir", "true"];
        let output = caller.output(&[&outer[..], &sandbox].concat());
        assert_eq!(output.status.code(), Some(125), "{caller:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("/usr/local/src/new"), "{caller:?}: {output:?}");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0, "{caller:?}");
        // Nor where the program may write.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("chmod");
        let words = caller.failure(&[
            "--sandbox",
            "--chdir",
            "/",
            "--bind",
            own,
            "/w",
            "--ro-bind",
            "/etc",
            "/w/new/dir",
            "true",
        ]);
        assert!(words.contains("/w/new") && words.contains("--dir"), "{words}");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0, "{caller:?}");
    }
}

#[test]
fn links_are_made_wherever_the_sandbox_has_a_file_system() {
    let directory = directory();
    let path = directory.path().to_str().expect("text");
    for caller in Caller::with_user_namespaces("links_are_made_wherever_the_sandbox_has_a_file_system") {
        for place in ["/x", "/run/a/x", "/tmp/x", "/var/lib/x", "/var/run/x", "/dev/shm/x", "/w/x"] {
            let options = ["--bind", path, "/w", "--symlink", "/etc/hostname", place];
            assert_eq!(text(caller, &options, &format!("readlink {place}")), "/etc/hostname\n", "{caller:?} {place}");
        }
        fs::remove_file(directory.path().join("x")).expect("the last one");
        let taken = caller.failure(&["--sandbox", "--chdir", "/", "--symlink", "/a", "/usr/bin", "true"]);
        assert!(taken.contains("/usr/bin"), "{taken}");
    }
}

#[test]
fn program_by_descriptor_and_oom_score() {
    let directory = directory();
    let copy = directory.path().join("copy");
    fs::copy("/bin/echo", &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("chmod");
    let copy = copy.to_str().expect("text");
    for caller in Caller::with_user_namespaces("program_by_descriptor_and_oom_score") {
        for profile in ["--sandbox", "--sandbox=strict"] {
            let shown = caller.output(&[profile, "--chdir", "/", "--fexec", copy, "name", "here"]);
            let is_old = String::from_utf8_lossy(&shown.stderr).contains("Landlock");
            assert!(shown.stdout == b"here\n" || is_old, "{caller:?} {profile}: {shown:?}");
        }
        let script = format!("exec {} run --sandbox --chdir / --exec-fd 8 name here 8<{copy}", binary());
        let mut command = caller.shell("bash");
        let output = command.args(["-c", &script]).output().expect("it starts");
        assert_eq!(output.stdout, b"here\n", "{caller:?}: {output:?}");
        let score = text(caller, &["--oom-score-adj", "700"], "cat /proc/self/oom_score_adj");
        assert_eq!(score, "700\n", "{caller:?}");
    }
    let lower = Caller::Ordinary.output(&["--sandbox", "--chdir", "/", "--oom-score-adj", "-900", "true"]);
    let words = String::from_utf8_lossy(&lower.stderr).into_owned();
    assert!(lower.status.code() == Some(125) && words.contains("oom_score_adj -900"), "{lower:?}");
}

#[test]
fn directories_of_daemons_are_not_shown() {
    for caller in Caller::with_user_namespaces("directories_of_daemons_are_not_shown") {
        let script =
            "ls -d /opt /nix/var/nix/daemon-socket /var/run/docker.sock /usr/local/var/* 2>/dev/null; echo end";
        assert_eq!(text(caller, &[], script), "end\n", "{caller:?}");
    }
}

#[test]
fn an_error_in_a_chroot_or_without_proc_names_the_cause() {
    let Some(root) = Caller::root_with("an_error_in_a_chroot_or_without_proc_names_the_cause", 21) else { return };
    let directory = directory();
    let place = directory.path().to_str().expect("text");
    for name in ["lower", "new"] {
        fs::create_dir(directory.path().join(name)).expect("mkdir");
    }
    // A directory of the root's file system, with the same programs.
    let new = format!("{place}/new");
    let inner = [binary(), "run", "--sandbox", "--chdir", "/", "true"];
    let chroot = ["--inherit-all", "--bind", "/", &new, "--chroot", &format!("{new}/.")];
    let mounted = root.output(&[&chroot[..], &inner].concat());
    let words = String::from_utf8_lossy(&mounted.stderr).into_owned();
    assert!(mounted.status.code() == Some(125) && words.contains("chroot"), "{mounted:?}");
    let without = ["--inherit-all", "--fexec", binary(), "--unshare-mount", "--umount", "/proc", "forkless", "run"];
    let without = root.output(&[&without[..], &inner[2..]].concat());
    let words = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(without.status.code() == Some(125) && words.contains("needs a /proc"), "{without:?}");
}

#[test]
fn root_may_show_what_only_root_can_reach() {
    let Some(root) = Caller::root_with("root_may_show_what_only_root_can_reach", 21) else { return };
    let directory = directory();
    fs::create_dir(directory.path().join("inner")).expect("mkdir");
    fs::write(directory.path().join("inner/file"), "here\n").expect("write");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).expect("chmod");
    let inner = directory.path().join("inner");
    assert_eq!(text(root, &["--ro-bind", inner.to_str().expect("text"), "/w"], "cat /w/file"), "here\n");
    // Another user of the host, with its files.
    for groups in ["--groups=7", "--groups=7,12346,7"] {
        let shown = text(root, &["--reuid=12345", "--regid=12346", groups], "id -u; id -g; id -G");
        assert_eq!(shown, "12345\n12346\n12346 7\n", "{groups}");
    }
}

#[test]
fn symbolic_link_at_a_mount_point_stays_in_the_sandbox() {
    let directory = directory();
    let (outside, inside) = (directory.path().join("outside"), directory.path().join("inside"));
    for path in [&outside, &inside] {
        fs::create_dir(path).expect("mkdir");
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    fs::write(outside.join("file"), "here\n").expect("write");
    symlink(&outside, inside.join("link")).expect("a link");
    for caller in Caller::with_user_namespaces("symbolic_link_at_a_mount_point_stays_in_the_sandbox") {
        let inside = inside.to_str().expect("text");
        let output = run(caller, &["--bind", inside, "/w", "--tmpfs", "/w/link"], "ls /w/link/");
        // Where the link leads does not exist in the sandbox.
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 1, "{caller:?}");
    }
}

#[test]
fn hidden_working_directory_is_an_error_with_the_remedy() {
    let directory = directory();
    for caller in Caller::with_user_namespaces("hidden_working_directory_is_an_error_with_the_remedy") {
        let here = |options: &[&str]| {
            let mut command = caller.forkless(&[&["--sandbox"], options, &["pwd"]].concat());
            command.current_dir(directory.path()).output().expect("it starts")
        };
        let output = here(&[]);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(125), "{output:?}");
        assert!(words.contains("show it: forkless run --sandbox --read . pwd\n"), "{output:?}");
        let elsewhere = here(&["--chdir", directory.path().to_str().expect("text")]);
        let line = format!("--sandbox --read {0} --chdir {0} pwd\n", directory.path().display());
        assert!(String::from_utf8_lossy(&elsewhere.stderr).contains(&line), "{elsewhere:?}");
        let wanted = format!("{}\n", directory.path().display());
        assert_eq!(String::from_utf8_lossy(&here(&["--read=."]).stdout), wanted);
        assert_eq!(here(&["--chdir", "/"]).stdout, b"/\n");
        // A directory that does not exist any more is no obstacle either.
        let (gone, mut command) = (callers::directory(), caller.shell("sh"));
        command.args(["-c", "read line; exec \"$0\" run --sandbox --chdir / pwd", binary()]);
        command.current_dir(gone.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        gone.close().expect("removed");
        child.stdin.take().expect("a pipe").write_all(b"\n").expect("a line");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.stdout, b"/\n", "{caller:?}: {output:?}");
    }
}

#[test]
fn environment_is_a_documented_list() {
    for caller in Caller::with_user_namespaces("environment_is_a_documented_list") {
        let names = |options: &[&str]| {
            let mut command = caller.forkless(&[&["--sandbox"], options, &["env"]].concat());
            command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/root").env("LC_ALL", "C").env("SECRET", "x");
            let output = command.env("TERM", "dumb").env("LD_PRELOAD", "").output().expect("it starts");
            let mut lines: Vec<_> =
                String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(names(&[]), ["HOME=/tmp", "LC_ALL=C", "PATH=/usr/bin:/bin", "TERM=dumb"]);
        assert!(names(&["--keep-env=SECRET,OTHER"]).contains(&"SECRET=x".to_owned()));
        assert!(names(&["--env=NEW=1"]).contains(&"NEW=1".to_owned()));
        assert_eq!(names(&["--ignore-environment", "--env=NEW=1"]), ["NEW=1"]);
    }
}

#[test]
fn read_write_project_and_hide_are_those_of_the_library() {
    for caller in Caller::with_user_namespaces("read_write_project_and_hide_are_those_of_the_library") {
        let kept = directory();
        fs::create_dir_all(kept.path().join("a/.cargo")).expect("directories");
        for name in ["a/.env", "a/code", "a/.cargo/config.toml"] {
            fs::write(kept.path().join(name), name).expect("a file");
            fs::set_permissions(kept.path().join(name), fs::Permissions::from_mode(0o666)).expect("its mode");
        }
        let path = kept.path().display().to_string();
        let script = format!(
            "cd {path}/a; cat .env || echo hidden; for it in code .cargo/config.toml; do (: >>$it) && echo $it; done; true"
        );
        let seen = |options: &[&str]| text(caller, &[&["--chdir=/"], options].concat(), &script);
        assert_eq!(seen(&["--read", &path]), "a/.env");
        assert_eq!(seen(&["--write", &path]), "a/.envcode\n.cargo/config.toml\n");
        assert_eq!(seen(&["--project", &format!("{path}/a"), "--hide=**/.env"]), "hidden\ncode\n");
        assert_eq!(caller.stdout(&["--sandbox", "--read", &path, "--chdir", &path, "pwd"]).trim_end(), path);
    }
}

#[test]
fn share_net_keeps_the_network_of_the_caller() {
    let devices = fs::read_to_string("/proc/net/dev").expect("devices").lines().count();
    for caller in Caller::with_user_namespaces("share_net_keeps_the_network_of_the_caller") {
        let count = |options: &[&str]| text(caller, options, "cat /proc/net/dev").lines().count();
        assert_eq!((count(&[]), count(&["--share-net"])), (3, devices), "{caller:?}");
    }
}

#[test]
fn strict_executes_nothing_from_writable_directories() {
    for caller in Caller::with_user_namespaces("strict_executes_nothing_from_writable_directories") {
        let script = "cp /bin/true /tmp/true && /tmp/true";
        assert_eq!(run(caller, &[], script).status.code(), Some(0));
        let output = caller.output(&["--sandbox=strict", "sh", "-c", script]);
        if output.status.code() == Some(125) {
            skipped(
                "strict_executes_nothing_from_writable_directories",
                "this kernel has no Landlock, or an older one",
            );
            continue;
        }
        assert_eq!(output.status.code(), Some(126), "{output:?}");
    }
}

#[test]
fn options_that_would_weaken_the_sandbox_silently_are_refused() {
    for caller in Caller::with_user_namespaces("options_that_would_weaken_the_sandbox_silently_are_refused") {
        for option in [
            "--best-effort=landlock",
            "--launcher=fork",
            "--map-root-user",
            "--chroot=/usr",
            "--foreground",
            "--pidfd-autokill",
        ] {
            let words = caller.failure(&["--sandbox", option, "true"]);
            assert!(words.contains("--sandbox"), "{option}: {words}");
        }
        let words = caller.failure(&["--sandbox", "--share-net", "--unshare-net", "true"]);
        assert!(words.contains("--share-net"), "{words}");
        // An ordinary user cannot drop groups, and nobody would notice that they are still there.
        let groups = ["--sandbox", "--clear-groups", "sh", "-c", "true"];
        let output = caller.output(&groups);
        assert_eq!(output.status.code(), Some(if caller == Caller::Root { 0 } else { 125 }), "{output:?}");
        let words = caller.failure(&["--sandbox", "--reuid=root", "--init-groups", "true"]);
        assert!(words.contains("--init-groups"), "{words}");
        let words = caller.failure(&["--sandbox", "--bind", "/usr", "/../", "true"]);
        assert!(words.contains("sandbox: root"), "{words}");
        // A second filter adds to the first one.
        let output = run(caller, &["--system-call-filter=~uname"], "uname; unshare -U true");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).matches("ermitted").count(), 2, "{output:?}");
        // Also one that allows everything, and logs it: one instruction, "return SECCOMP_RET_LOG".
        let directory = directory();
        let path = directory.path().join("log");
        let instruction = [&6_u16.to_ne_bytes()[..], &[0, 0], &0x7ffc_0000_u32.to_ne_bytes()].concat();
        fs::write(&path, instruction).expect("write");
        let output = run(caller, &["--seccomp", path.to_str().expect("text")], "unshare -U true");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}

#[test]
fn terminal_of_the_caller_is_not_that_of_the_program() {
    for caller in Caller::with_user_namespaces("terminal_of_the_caller_is_not_that_of_the_program") {
        let look = "if (: </dev/tty) 2>/dev/null; then echo has; else echo has not; fi";
        assert_eq!(caller.stdout(&["--pty", "sh", "-c", look]).trim(), "has");
        let words = ["--pty", "--inherit-all", binary(), "run", "--sandbox", "sh", "-c", look];
        assert_eq!(caller.stdout(&words).trim(), "has not");
    }
}

#[test]
fn mounts_are_read_only_except_those_of_the_program() {
    const WRITABLE: [&str; 2] = ["/tmp", "/dev/shm"];
    for caller in Caller::with_user_namespaces("mounts_are_read_only_except_those_of_the_program") {
        let mounts = text(caller, &[], "cat /proc/self/mounts");
        assert!(mounts.lines().count() > 8, "{mounts}");
        for line in mounts.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let (place, options): (_, Vec<_>) = (words[1], words[3].split(',').collect());
            let has = |option: &str| options.contains(&option);
            let is_device = place.starts_with("/dev") || place.starts_with("/proc/");
            // A device, whose mount has one file, and pseudo-terminals can be written to on any mount.
            let is_open = WRITABLE.contains(&place) || place.starts_with("/dev/");
            assert!(has("ro") || is_open, "{caller:?}: {line}");
            assert!(has("nosuid") || place.starts_with("/proc/"), "{caller:?}: {line}");
            assert!(has("nodev") || is_device, "{caller:?}: {line}");
        }
    }
}

#[test]
fn init_has_no_privileges_and_a_filter() {
    for caller in Caller::with_user_namespaces("init_has_no_privileges_and_a_filter") {
        // It gives them up while the program starts.
        let script = "i=0; until grep -q '^Seccomp:.2' /proc/1/status || [ $((i += 1)) -gt 500 ]; do sleep 0.02; done; \
                      cat /proc/1/status";
        let status = text(caller, &[], script);
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(&status, set).as_deref(), Some("0000000000000000"), "{set}");
        }
        assert_eq!(field(&status, "NoNewPrivs").as_deref(), Some("1"));
        // The program itself is another process in another session.
        let ids = text(caller, &[], "cut -d' ' -f1,6 /proc/self/stat /proc/1/stat");
        let ids: Vec<_> = ids.lines().map(|line| line.split_once(' ').expect("two numbers")).collect();
        assert!(ids[0].1 != ids[1].1 && ids[1] == ("1", "1"), "{ids:?}");
    }
}
