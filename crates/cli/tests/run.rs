//! `forkless run` from the user's side: exit codes, messages, and the state in which the program starts.

testing::usual_surroundings!();

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::unix::{ffi::OsStringExt, fs::PermissionsExt, process::ExitStatusExt},
    path::Path,
    process::{Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

/// `forkless run` with these arguments.
fn forkless(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.arg("run").args(words);
    command
}

fn output(words: &[&str]) -> Output {
    forkless(words).output().expect("forkless starts")
}

/// The exit status as a shell shows it: 128+n after signal n.
fn code(words: &[&str]) -> i32 {
    shown(output(words).status)
}

fn shown(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).expect("an end")
}

/// Its output, after checking that it exited with 0.
fn stdout(words: &[&str]) -> String {
    let output = output(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn stderr(words: &[&str]) -> String {
    String::from_utf8(output(words).stderr).expect("text")
}

/// Runs a shell script with a timeout that expires after its first line, and again with a longer one if it expired before.
fn timed_out(options: &[&str], script: &str) -> Output {
    let run = |time: &str| output(&[&["--timeout", time], options, &["sh", "-c", script]].concat());
    let soon = ["100ms", "300ms", "1s", "3s"].into_iter().map(run).find(|output| output.stdout.contains(&b'\n'));
    soon.unwrap_or_else(|| run("20s"))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

// ---- exit codes ----

#[test]
fn exit_code_is_that_of_the_program() {
    for wanted in [0, 1, 7, 125, 255] {
        assert_eq!(code(&["sh", "-c", &format!("exit {wanted}")]), wanted);
    }
}

#[test]
fn forkless_dies_by_the_signal_that_killed_its_program() {
    for (name, number) in [("TERM", libc::SIGTERM), ("KILL", libc::SIGKILL), ("PIPE", libc::SIGPIPE), ("40", 40)] {
        let script = format!("ulimit -c 0; kill -{name} $$");
        let ended = |options: &[&str]| output(&[options, &["sh", "-c", &script]].concat()).status;
        assert_eq!(ended(&["--supervise"]).signal(), Some(number));
        assert_eq!(ended(&["--signal-exit-code"]).code(), Some(128 + number));
        assert_eq!(ended(&["--supervise", "--signal-exit-code", "--timeout=60"]).code(), Some(128 + number));
    }
    // forkless itself dumps no core, where it could.
    let directory = directory();
    let script = format!(
        "ulimit -c 1000; cd {}; {} run --supervise sh -c 'ulimit -c 0; kill -QUIT $$'",
        text(directory.path()),
        testing::surroundings::word(env!("CARGO_BIN_EXE_forkless"))
    );
    let status = Command::new("sh").args(["-c", &format!("{script}; exit $?")]).status().expect("a shell");
    assert_eq!(status.code(), Some(131));
    assert_eq!(fs::read_dir(directory.path()).expect("list").count(), 0);
}

#[test]
fn program_in_place_of_forkless_is_killed_itself() {
    assert_eq!(output(&["sh", "-c", "kill -TERM $$"]).status.signal(), Some(libc::SIGTERM));
    assert_eq!(output(&["sh", "-c", "kill -KILL $$"]).status.signal(), Some(libc::SIGKILL));
}

#[test]
fn program_not_found_exits_with_127() {
    assert_eq!(code(&["no-such-program-anywhere"]), 127);
    assert_eq!(code(&["/no/such/program"]), 127);
    assert_eq!(code(&[""]), 127);
    let words = stderr(&["no-such-program-anywhere"]);
    assert!(words.starts_with("forkless: failed to start \"no-such-program-anywhere\": "), "{words}");
    assert!(words.contains("No such file or directory"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}

#[test]
fn program_that_cannot_be_executed_exits_with_126() {
    let directory = directory();
    let plain = directory.path().join("plain");
    fs::write(&plain, "no\0program").expect("write");
    assert_eq!(code(&[text(&plain)]), 126);
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).expect("chmod");
    assert_eq!(code(&[text(&plain)]), 126, "wrong format");
    assert_eq!(code(&[text(directory.path())]), 126, "a directory");
}

#[test]
fn failure_of_forkless_exits_with_125() {
    assert_eq!(code(&["--no-such-option", "true"]), 125);
    assert_eq!(code(&[]), 125);
    assert_eq!(code(&["A=1"]), 125);
    assert_eq!(code(&["--chdir", "/no/such/directory", "true"]), 125);
    assert_eq!(code(&["--stdin", "/no/such/file", "true"]), 125);
    assert_eq!(code(&["--timeout", "soon", "true"]), 125);
    assert_eq!(code(&["--signal", "NONSENSE", "true"]), 125);
    assert_eq!(code(&["--fd", "5=987", "true"]), 125);
    assert_eq!(code(&["--setsid", "--process-group", "true"]), 125);
    assert!(stderr(&["--chdir", "/no/such/directory", "true"]).contains("/no/such/directory"));
}

#[test]
fn help_exits_with_0() {
    let text = stdout(&["--help"]);
    for option in ["--ignore-environment", "--kill-after", "--preserve-status", "127"] {
        assert!(text.contains(option), "{option}");
    }
}

// ---- arguments ----

#[test]
fn options_after_the_program_are_passed_to_it() {
    assert_eq!(stdout(&["echo", "--usage", "-i", "A=b"]), "--usage -i A=b\n");
    assert_eq!(stdout(&["--", "echo", "x"]), "x\n");
}

#[test]
fn arguments_and_variables_may_be_invalid_utf8() {
    let odd = OsString::from_vec(vec![b'a', 0xff, b'b']);
    let output = forkless(&["printf", "%s"]).arg(&odd).output().expect("forkless starts");
    assert_eq!(output.stdout, b"a\xffb");
    let mut variable = OsString::from("ODD=");
    variable.push(&odd);
    let output =
        forkless(&[]).arg(variable).args(["sh", "-c", "printf %s \"$ODD\""]).output().expect("forkless starts");
    assert_eq!(output.stdout, b"a\xffb");
}

// ---- environment, directory, name ----

#[test]
fn environment_options_set_unset_and_clear_variables() {
    assert_eq!(stdout(&["-i", "/usr/bin/env"]), "");
    assert_eq!(stdout(&["-i", "A=1", "B=x=y", "/usr/bin/env"]), "A=1\nB=x=y\n");
    assert_eq!(stdout(&["-i", "--env", "A=1", "A=2", "/usr/bin/env"]), "A=2\n");
    let output = forkless(&["-u", "GONE", "sh", "-c", "echo ${GONE-unset} $KEPT"])
        .env("GONE", "1")
        .env("KEPT", "2")
        .output()
        .expect("forkless starts");
    assert_eq!(output.stdout, b"unset 2\n");
    // Only `-u` itself may be meant as that of sudo(8).
    assert_eq!(stdout(&["--unset", "nobody", "-u", "GONE", "echo", "-u", "nobody"]), "-u nobody\n");
}

#[test]
fn chdir_and_argv0_are_applied() {
    assert_eq!(stdout(&["-C", "/", "pwd"]), "/\n");
    assert_eq!(stdout(&["-a", "other", "sh", "-c", "echo $0"]), "other\n");
}

// ---- files ----

#[test]
fn standard_streams_are_redirected() {
    let directory = directory();
    let path = directory.path().join("log");
    let both = "echo out; echo err >&2";
    assert_eq!(stdout(&["--stdout", text(&path), "--stderr", "stdout", "sh", "-c", both]), "");
    assert_eq!(fs::read_to_string(&path).expect("log"), "out\nerr\n");
    stdout(&["--stdout", &format!("append:{}", text(&path)), "echo", "more"]);
    assert_eq!(fs::read_to_string(&path).expect("log"), "out\nerr\nmore\n");
    assert_eq!(stdout(&["--stdin", text(&path), "head", "-n1"]), "out\n");
    assert_eq!(stdout(&["--stderr=stdout", "sh", "-c", both]), "out\nerr\n");
    assert_eq!(stdout(&["--stdout=null", "echo", "x"]), "");
    let output = output(&["--stdout=fd:2", "--stderr=null", "echo", "x"]);
    assert_eq!((output.stdout, output.stderr), (b"".to_vec(), b"x\n".to_vec()));
}

#[test]
fn redirections_are_relative_to_the_callers_working_directory() {
    let directory = directory();
    fs::write(directory.path().join("here"), "found").expect("write");
    let output =
        forkless(&["--stdin=here", "-C", "/", "cat"]).current_dir(directory.path()).output().expect("forkless starts");
    assert_eq!(output.stdout, b"found");
}

/// Forkless has some descriptors open for itself, such as that of the terminal: they are not for the program.
#[test]
fn fd_passes_only_what_forkless_has_inherited() {
    // The outer forkless closes what another test has open without close-on-exec.
    let alone = |words: &[&str]| output(&[&[env!("CARGO_BIN_EXE_forkless"), "run"], words].concat());
    for option in ["--pty", "--timeout=60", "--capture", "--usage", "--nice=1"] {
        for number in 3..12 {
            let output = alone(&[option, &format!("--fd=20={number}"), "true"]);
            let words = format!("forkless: --fd: fd {number} is not open; open it for forkless, ");
            assert_eq!(output.status.code(), Some(125), "{option} {number}: {output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).starts_with(&words), "{option} {number}: {output:?}");
        }
        let output = alone(&[option, "--chdir-fd=4", "true"]);
        assert!(String::from_utf8_lossy(&output.stderr).contains("--chdir-fd: fd 4 is not open"), "{output:?}");
    }
}

#[test]
fn fd_opens_files_at_descriptor_numbers() {
    let directory = directory();
    let path = directory.path().join("file");
    let request = format!("7=w:{}", text(&path));
    stdout(&["--fd", &request, "sh", "-c", "echo seven >&7"]);
    assert_eq!(fs::read_to_string(&path).expect("file"), "seven\n");
    let request = format!("8=r:{}", text(&path));
    assert_eq!(stdout(&["--fd", &request, "sh", "-c", "cat <&8"]), "seven\n");
    assert_eq!(stdout(&["--fd", "9=1", "sh", "-c", "echo nine >&9"]), "nine\n");
    assert_eq!(stdout(&["--fd", "6=null", "sh", "-c", "echo void >&6"]), "");
}

#[test]
fn other_descriptors_are_inherited_only_on_request() {
    // The shell opens descriptor 5, which forkless inherits.
    let look = |option: &str| {
        let script =
            format!("exec \"$0\" run {option} sh -c 'test -e /dev/fd/5 && echo open || echo closed' 5</dev/null");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_forkless")]);
        String::from_utf8(shell.output().expect("sh").stdout).expect("text")
    };
    assert_eq!(look(""), "closed\n");
    assert_eq!(look("--inherit-all"), "open\n");
    assert_eq!(look("--fd 5=5"), "open\n");
}

#[test]
fn setting_a_descriptor_twice_is_an_error() {
    for words in [["--stdout=null", "--fd=1=2"], ["--fd=7=1", "--open=7=r:/dev/null"]] {
        let refused = stderr(&[&words[..], &["true"]].concat());
        assert!(refused.contains("is already set by"), "{refused}");
        assert_eq!(code(&[&words[..], &["true"]].concat()), 125);
    }
}

#[test]
fn capture_prints_output_when_the_program_has_ended() {
    let mut command = forkless(&["--capture", "sh", "-c", "echo early; echo err >&2; read -r line; echo late"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let stdout = child.stdout.as_ref().expect("a pipe");
    let mut ready = [rustix::event::PollFd::new(stdout, rustix::event::PollFlags::IN)];
    let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    assert_eq!(rustix::event::poll(&mut ready, Some(&moment)), Ok(0), "output before the program has ended");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.stdout, output.stderr), (b"early\nlate\n".to_vec(), b"err\n".to_vec()));
}

#[test]
fn capture_on_failure_prints_output_only_after_a_failure() {
    let script = |end: &str| output(&["--capture=on-failure", "sh", "-c", &format!("echo out; echo err >&2; {end}")]);
    let quiet = script("exit 0");
    assert_eq!((quiet.status.code(), quiet.stdout.len(), quiet.stderr.len()), (Some(0), 0, 0), "{quiet:?}");
    for (end, code) in [("exit 7", 7), ("kill -TERM $$", 143)] {
        let output = script(end);
        assert_eq!(shown(output.status), code);
        assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()), "{end}");
    }
    let late = timed_out(&["--capture=on-failure"], "echo out; exec sleep 60");
    assert_eq!((late.status.code(), late.stdout.as_slice()), (Some(124), &b"out\n"[..]), "{late:?}");
}

#[test]
fn capture_skips_redirected_streams() {
    let directory = directory();
    let path = directory.path().join("log");
    let both = "echo out; echo err >&2; echo out again";
    let output = output(&["--capture", "--stdout", text(&path), "sh", "-c", both]);
    assert_eq!((output.stdout, output.stderr), (b"".to_vec(), b"err\n".to_vec()));
    assert_eq!(fs::read_to_string(&path).expect("log"), "out\nout again\n");
    assert_eq!(stdout(&["--capture", "--stderr=stdout", "sh", "-c", both]), "out\nerr\nout again\n");
    assert!(stderr(&["--capture", "--stdout=null", "--fd=2=null", "true"]).contains("--capture: both"));
    assert!(stderr(&["--capture=never", "true"]).contains("--capture"));
    assert!(stderr(&["--limit-output=5", "true"]).contains("--capture"));
}

#[test]
fn capture_keeps_large_output_up_to_the_limit() {
    // More than a pipe holds, on both streams at once.
    let script = "head -c 3000000 /dev/zero & head -c 2000000 /dev/zero >&2; wait";
    let all = output(&["--capture", "sh", "-c", script]);
    assert_eq!((all.status.code(), all.stdout.len(), all.stderr.len()), (Some(0), 3_000_000, 2_000_000));
    let some = output(&["--capture", "--limit-output=1K", "sh", "-c", script]);
    assert_eq!((some.status.code(), some.stdout.len()), (Some(0), 1024));
    let words = String::from_utf8(some.stderr[1024..].to_vec()).expect("text");
    let dropped = ["2998976 bytes of standard output", "1998976 bytes of standard error"];
    assert!(dropped.iter().all(|part| words.contains(part)), "{words}");
}

#[test]
fn capture_does_not_wait_for_background_processes() {
    // The shell ends, while sleep keeps both pipes open.
    let start = Instant::now();
    assert_eq!(stdout(&["--capture", "sh", "-c", "sleep 60 & echo said"]), "said\n");
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// What comes from another process when the program has been reaped, as from bash's `exec > >(tee log)`.
#[test]
fn capture_reads_on_within_the_linger() {
    let late = "(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo late; echo err >&2) & echo first; exit 3";
    let output = output(&["--capture", "--linger=60", "sh", "-c", late]);
    assert_eq!(
        (output.status.code(), output.stdout, output.stderr),
        (Some(3), b"first\nlate\n".into(), b"err\n".into())
    );
    assert_eq!(stdout(&["--capture", "--linger=0", "sh", "-c", "sleep 60 & echo said"]), "said\n");
    assert!(stderr(&["--linger=1s", "true"]).contains("--linger requires --capture or --sandbox"));
}

#[test]
fn capture_that_cannot_be_printed_exits_with_125() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = forkless(&["--capture", "echo", "lost"]).stdout(full).output().expect("forkless starts");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the captured output"), "{output:?}");
}

#[test]
fn or_else_runs_the_first_program_that_is_found() {
    let missing = "no-such-program-anywhere";
    assert_eq!(
        stdout(&["--or-else", "/no/such/program", "--or-else", "sh", missing, "-c", "echo $0"]),
        format!("{missing}\n")
    );
    assert_eq!(stdout(&["--or-else", "false", "echo", "first"]), "first\n");
    assert_eq!(code(&["--or-else", "/no/such/program", missing]), 127);
}

#[test]
fn retry_busy_waits_for_a_program_open_for_writing() {
    let directory = directory();
    let program = directory.path().join("program");
    fs::copy("/bin/true", &program).expect("copy");
    let writer = fs::OpenOptions::new().write(true).open(&program).expect("open");
    assert_eq!(code(&["--retry-busy=0", text(&program)]), 126);
    assert!(stderr(&["--retry-busy=1ms", text(&program)]).contains("Text file busy"));
    let mut waiting = forkless(&["--retry-busy=60", text(&program)]).spawn().expect("forkless starts");
    // Longer than the default of 100 ms.
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiting.try_wait().expect("a child").is_none());
    drop(writer);
    assert_eq!(waiting.wait().expect("ends").code(), Some(0));
}

// ---- session and signals ----

/// A field of /proc/self/stat counted after the name: 0 state, 1 parent, 2 group, 3 session.
const STAT: &str = "read -r line </proc/$$/stat; set -- ${line##*) }; echo $$ $3 $4";

fn numbers(words: &[&str]) -> Vec<u32> {
    stdout(words).split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn setsid_and_process_group_are_applied() {
    let plain = numbers(&["sh", "-c", STAT]);
    assert_ne!(plain[0], plain[1]);
    let session = numbers(&["--setsid", "sh", "-c", STAT]);
    assert_eq!((session[1], session[2]), (session[0], session[0]));
    let group = numbers(&["--process-group", "sh", "-c", STAT]);
    assert_eq!(group[1], group[0]);
    assert_eq!(group[2], plain[2]);
}

/// A signal set of the program, from /proc.
fn signal_set(options: &[&str], field: &str) -> u64 {
    let mut words = options.to_vec();
    words.extend(["grep", field, "/proc/self/status"]);
    let line = stdout(&words);
    let digits = line.split_whitespace().nth(1).expect("a set");
    u64::from_str_radix(digits, 16).expect("hexadecimal")
}

#[test]
fn signals_are_reset_ignored_and_blocked() {
    let bit = |signal: u64| 1 << (signal - 1);
    // Rust's runtime ignores SIGPIPE in forkless; the program must not inherit that.
    assert_eq!(signal_set(&[], "SigIgn") & bit(13), 0);
    assert_eq!(signal_set(&[], "SigBlk"), 0);
    assert_ne!(signal_set(&["--ignore-signal=USR1,HUP"], "SigIgn") & bit(10), 0);
    assert_ne!(signal_set(&["--ignore-signal=USR1,HUP"], "SigIgn") & bit(1), 0);
    assert_ne!(signal_set(&["--block-signal=USR2"], "SigBlk") & bit(12), 0);
    assert_eq!(signal_set(&["--ignore-signal", "--default-signal=TERM"], "SigIgn") & bit(15), 0);
}

#[test]
fn inherited_ignored_sigint_stays_ignored() {
    let script = "trap '' INT; exec \"$0\" run grep SigIgn /proc/self/status";
    let output = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_forkless")]).output().expect("sh");
    let line = String::from_utf8(output.stdout).expect("text");
    let set = u64::from_str_radix(line.split_whitespace().nth(1).expect("a set"), 16).expect("hexadecimal");
    assert_ne!(set & 2, 0, "{line}");
}

/// A signal set of the program if forkless is started by a shell that first runs `shell`.
fn signal_set_after(shell: &str, options: &str, field: &str) -> u64 {
    let script = format!("{shell}; exec \"$0\" run {options} grep {field} /proc/self/status");
    let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_forkless")]).output().expect("sh");
    let line = String::from_utf8(output.stdout).expect("text");
    let digits = line.split_whitespace().nth(1).unwrap_or_else(|| panic!("{options}: {line}"));
    u64::from_str_radix(digits, 16).expect("hexadecimal")
}

#[test]
fn inherit_signal_keeps_inherited_dispositions() {
    let bit = |signal: u64| 1 << (signal - 1);
    let ignored = |shell: &str, options: &str| signal_set_after(shell, options, "SigIgn");
    // SIGPIPE as the caller has it, although Rust's runtime changed it in forkless.
    assert_eq!(ignored("trap '' PIPE", "") & bit(13), 0);
    assert_ne!(ignored("trap '' PIPE", "--inherit-signal=PIPE") & bit(13), 0);
    assert_ne!(ignored("trap '' PIPE", "--inherit-signal") & bit(13), 0);
    assert_eq!(ignored("trap - PIPE", "--inherit-signal=PIPE") & bit(13), 0);
    // A listed signal overrides "all".
    let options = "--ignore-signal --inherit-signal=USR1,USR2";
    let set = ignored("trap '' USR1", options);
    assert_eq!((set & bit(10) != 0, set & bit(12) != 0, set & bit(1) != 0), (true, false, true), "{set:x}");
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let forkless = &testing::surroundings::word(env!("CARGO_BIN_EXE_forkless"));
    for (words, wanted) in [
        ("run --help", 125),
        ("run -h", 125),
        ("xargs --help", 1),
        ("parallel --help", 255),
        ("--help", 2),
        ("--version", 2),
    ] {
        let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let output = Command::new(forkless).args(words.split(' ')).stdout(full).output().expect("it starts");
        assert_eq!(output.status.code(), Some(wanted), "{words}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(text, "forkless: cannot write to standard output: No space left on device\n", "{words}");
    }
}

/// As env(1) and xargs(1) have it: the program gets no stream, so that it sees that its output is lost.
#[test]
fn a_closed_stream_stays_closed() {
    let forkless = &testing::surroundings::word(env!("CARGO_BIN_EXE_forkless"));
    let look = r#"'for n in 0 1 2; do [ -e /proc/self/fd/$n ] && printf %s $n >>"$0"; done; :'"#;
    for closed in [&["<&-"][..], &[">&-"], &["2>&-"], &["<&-", ">&-"], &["<&-", ">&-", "2>&-"]] {
        for command in [
            "env",
            "$F run",
            "$F run --supervise",
            "$F run --timeout 9",
            "$F run --sandbox --chdir / --bind $D $D",
            "$F run --launcher=fork",
            "$F run --inherit-all",
            "xargs",
            "$F xargs",
        ] {
            let directory = directory();
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("chmod");
            let input = command.contains("xargs");
            if input && closed.contains(&"<&-") {
                continue;
            }
            let feed = if input { "echo x |" } else { "" };
            let script = format!("{feed} {command} sh -c {look} $D/out {}", closed.join(" "));
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).env("F", forkless).env("D", directory.path());
            let status = shell.status().expect("a shell");
            let found = fs::read_to_string(directory.path().join("out")).unwrap_or_default();
            let is_open = |number: &&str| {
                !closed.iter().any(|word| {
                    word.starts_with(if *number == "0" {
                        "<"
                    } else if *number == "1" {
                        ">"
                    } else {
                        "2"
                    })
                })
            };
            let wanted: String = ["0", "1", "2"].into_iter().filter(is_open).collect();
            assert!(status.success() && found == wanted, "{script}: {found} instead of {wanted}, {status:?}");
        }
    }
    for (command, wanted) in
        [("$F run", 1), ("$F run --timeout 9", 1), ("echo a | $F xargs", 123), ("echo a | xargs", 123)]
    {
        let mut shell = Command::new("sh");
        let script = format!("{command} /bin/echo lost >&- 2>/dev/null");
        let status = shell.args(["-c", &script]).env("F", forkless).status().expect("a shell");
        assert_eq!(status.code(), Some(wanted), "{script}");
    }
}

#[test]
fn a_text_file_without_interpreter_line_is_run_by_the_shell() {
    let directory = directory();
    let path = directory.path().join("bare");
    fs::write(&path, "echo \"$1\"\n").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    for options in [&[][..], &["--supervise"], &["--timeout=9"], &["--sandbox", "--ro-bind", ".", "."]] {
        let mut command = forkless(&[options, &[text(&path), "one"]].concat());
        let output = command.current_dir(&directory).output().expect("it starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "one\n", "{options:?}: {output:?}");
    }
    fs::write(&path, "\x7fELF and more").expect("write");
    let output = forkless(&[text(&path)]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(126), "{output:?}");
}

#[test]
fn signal_mask_is_inherited_unless_emptied() {
    let forkless = &testing::surroundings::word(env!("CARGO_BIN_EXE_forkless"));
    let look = |options: &[&str]| {
        let inner =
            [&["--block-signal=USR1", forkless, "run"], options, &["grep", "SigBlk", "/proc/self/status"]].concat();
        let line = stdout(&inner);
        u64::from_str_radix(line.split_whitespace().nth(1).expect("a set"), 16).expect("hexadecimal")
    };
    assert_eq!(look(&[]), 1 << 9);
    assert_eq!(look(&["--block-signal=USR2"]), 1 << 9 | 1 << 11);
    assert_eq!(look(&["--empty-signal-mask"]), 0);
    assert_eq!(look(&["--empty-signal-mask", "--block-signal=USR2"]), 1 << 11);
}

/// Starts `forkless run` and waits until the program has written a line.
fn started(words: &[&str]) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut child = forkless(words).stdout(Stdio::piped()).spawn().expect("forkless starts");
    let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    (child, reader)
}

fn kill(child: &std::process::Child, signal: i32) {
    let pid = rustix::process::Pid::from_child(child);
    let signal = rustix::process::Signal::from_named_raw(signal).expect("a signal");
    rustix::process::kill_process(pid, signal).expect("alive");
}

#[test]
fn int_is_relayed_to_a_program_in_a_new_session() {
    let script = "trap 'exit 8' INT; echo ready; while :; do sleep 0.02; done";
    let (mut child, _reader) = started(&["--setsid", "sh", "-c", script]);
    kill(&child, libc::SIGINT);
    assert_eq!(child.wait().expect("ends").code(), Some(8));
}

// ---- timeout ----

#[test]
fn timeout_kills_the_program_and_exits_with_124() {
    let start = Instant::now();
    assert_eq!(code(&["--timeout", "50ms", "sleep", "60"]), 124);
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(code(&["--timeout", "60", "true"]), 0);
    assert_eq!(code(&["--timeout", "0", "sh", "-c", "sleep 0.1; exit 3"]), 3);
}

#[test]
fn preserve_status_exits_with_the_programs_code_on_timeout() {
    assert_eq!(code(&["--timeout=50ms", "--preserve-status", "sleep", "60"]), 143);
    let polite = "trap 'exit 4' USR1; echo ready; while :; do sleep 0.02; done";
    assert_eq!(timed_out(&["--signal=USR1", "--preserve-status"], polite).status.code(), Some(4));
    assert_eq!(timed_out(&["--signal=USR1"], polite).status.code(), Some(124));
}

#[test]
fn kill_after_kills_a_program_that_ignores_the_signal() {
    let deaf = "trap '' TERM; echo ready; while :; do sleep 0.02; done";
    assert_eq!(timed_out(&["--kill-after=50ms"], deaf).status.code(), Some(137));
    assert_eq!(code(&["--timeout=50ms", "--signal=KILL", "sleep", "60"]), 137);
}

#[test]
fn timeout_ends_a_stopped_program() {
    assert_eq!(timed_out(&[], "echo ready; kill -STOP $$").status.code(), Some(124));
}

#[test]
fn timeout_signals_the_whole_process_group() {
    // The inner sleep keeps the pipe open: output() returns only when it has ended, too.
    let start = Instant::now();
    assert_eq!(code(&["--timeout=200ms", "--process-group", "sh", "-c", "sleep 60; true"]), 124);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn missing_program_with_timeout_exits_with_127() {
    assert_eq!(code(&["--timeout=10", "no-such-program-anywhere"]), 127);
}

// ---- reports ----

#[test]
fn usage_and_route_go_to_standard_error() {
    let output = output(&["--usage", "--route", "echo", "x"]);
    assert_eq!(output.stdout, b"x\n");
    let text = String::from_utf8(output.stderr).expect("text");
    for part in ["forkless: route: ", "forkless: usage of \"echo\"", "wall time", "page faults"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(output.status.into_raw(), 0);
}

// ---- lines for a shell ----

#[test]
fn shell_line_runs_as_with_a_shell() {
    let directory = directory();
    let file = text(directory.path()).to_owned() + "/a file";
    assert_eq!(stdout(&["--shell", &format!("env A='b c' printenv A >'{file}' 2>&1")]), "");
    assert_eq!(fs::read_to_string(&file).expect("the line made it"), "b c\n");
    assert_eq!(stdout(&["--shell", "echo $((1 + 1)) | cat"]), "2\n");
    assert_eq!(code(&["--shell", "exit 7"]), 7);
    let missing = output(&["--shell", "no-such-program-here"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("not found"), "{missing:?}");
    assert_eq!(code(&["--shell", "ls", "ls"]), 125);
    assert_eq!(code(&["--shell", "sh -c 'kill -TERM $$'"]), 143);
}

#[test]
fn shell_line_runs_as_with_the_shell_that_is_named() {
    if !std::path::Path::new("/bin/bash").exists() {
        eprintln!("SKIPPED: lines for bash, because there is none");
        return;
    }
    let bash = |line| stdout(&["--env", "SHLVL=1", "--shell-path=/bin/bash", "--shell", line]);
    assert_eq!(bash("echo {1..3} $0"), "1 2 3 /bin/bash\n");
    assert_eq!(bash("printenv _ SHLVL"), "/usr/bin/printenv\n1\n");
    let explain = ["--explain", "--env=SHLVL=1", "--shell-path=/bin/bash", "--shell"];
    let explained =
        |line: &str| stdout(&[&explain[..], &[line]].concat()).lines().last().unwrap_or_default().to_owned();
    assert_eq!(explained("printenv _"), "directly");
    assert_eq!(explained("printenv _ >/dev/null"), "by the shell: a shell that waits for this program");
    assert_eq!(code(&["--shell-path=/bin/bash", "true"]), 125);
    assert_eq!(code(&["--shell-path=/no/such/shell", "--shell", "ls"]), 127);
    assert_eq!(stdout(&["--sandbox", "--chdir=/", "--shell-path=/bin/bash", "--shell", "echo {a,b}"]), "a b\n");
}

#[test]
fn explain_prints_whether_a_line_needs_a_shell() {
    let explained = |line: &str| stdout(&["--explain", "--shell", line]).lines().last().unwrap_or_default().to_owned();
    assert_eq!(explained("ls | wc"), "by the shell: a pipeline");
    let plain = explained("ls /");
    let shells = ["directly", "by the shell: a shell whose behaviour is not known"];
    assert!(shells.contains(&plain.as_str()), "{plain}");
}
