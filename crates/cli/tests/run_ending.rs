//! The end of a program of `forkless run`: what a timeout ends, and what a report says.

testing::usual_surroundings!();

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The exit code as a shell shows it.
fn code(words: &[&str]) -> i32 {
    let status = Command::new(env!("CARGO_BIN_EXE_forkless")).arg("run").args(words).status().expect("it starts");
    status.code().or_else(|| Some(128 + status.signal()?)).expect("an end")
}

/// As timeout(1) ends its group: without a terminal, and on one, where the processes stay in the group of forkless; also those
/// whose parent has ended, and of which one makes others all the time.
#[test]
fn a_timeout_ends_all_that_the_program_has_started() {
    let forkless = env!("CARGO_BIN_EXE_forkless");
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let child = "sh -c 'echo $$ >>$OUT; trap \"\" HUP; sleep 60; sleep 60'";
    let scripts = [
        format!("{child} & {child} & wait"),
        format!("({child} &); ({child} &); sleep 60"),
        format!("{child} | {child}"),
        format!("while :; do {child} & sleep 0.05; done"),
    ];
    for script in scripts {
        for outer in [&[][..], &[forkless, "run", "--pty", "--"]] {
            let _ = fs::remove_file(&out);
            let timed = [forkless, "run", "--timeout", "0.6", "-k", "5", "--", "sh", "-c", &script];
            let words = [&["setsid", "-w"], outer, &timed].concat();
            let mut command = Command::new(words[0]);
            let output = command.args(&words[1..]).env("OUT", &out).stdin(Stdio::null()).output().expect("it starts");
            assert_eq!(output.status.code(), Some(124), "{words:?}: {output:?}");
            let pids = fs::read_to_string(&out).expect("the children");
            assert!(pids.lines().count() >= 2, "{words:?}: {pids}");
            let is_alive = |pid: &&str| {
                let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                state.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
            };
            let until = Instant::now() + Duration::from_secs(5);
            while pids.lines().any(|pid| is_alive(&pid)) {
                assert!(Instant::now() < until, "{words:?}: {:?}", pids.lines().filter(is_alive).collect::<Vec<_>>());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// What has left the session, and whose parents have ended: after the end of the program, a timeout, and SIGKILL to forkless.
#[test]
fn nothing_of_a_tree_is_left() {
    let left = |mark: &str| {
        let of = format!("sleep\0{mark}\0");
        let lines = fs::read_dir("/proc").expect("procfs").flatten().map(|one| fs::read(one.path().join("cmdline")));
        lines.flatten().filter(|line| line == of.as_bytes()).count()
    };
    let wait_for = |count: usize, mark: &str| {
        let until = Instant::now() + Duration::from_secs(10);
        while left(mark) != count {
            assert!(Instant::now() < until, "{} of {mark} run, not {count}", left(mark));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let forkless = |options: &[&str], script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
        command.args(["run", "--kill-tree"]).args(options).args(["sh", "-c", script]).stdin(Stdio::null());
        command
    };
    let output = forkless(&[], "exit 3").output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("Landlock") {
        return eprintln!("SKIPPED: {message}");
    }
    assert_eq!(output.status.code(), Some(3), "{message}");
    let status = forkless(&[], "(setsid sleep 71001 &); sleep 0.3; exit 4").status().expect("it starts");
    assert_eq!((status.code(), left("71001")), (Some(4), 0));
    for (mark, options, code) in [
        ("71002", &["--timeout=0.4"][..], 124),
        ("71003", &["--timeout=0.4", "--signal=KILL"], 137),
        ("71004", &["--timeout=0.4", "--pty"], 124),
        ("71005", &["--timeout=0.4", "--capture"], 124),
    ] {
        let script = format!("(setsid sleep {mark} &); sleep {mark}; sleep {mark}");
        assert_eq!(forkless(options, &script).status().expect("it starts").code(), Some(code), "{options:?}");
        assert_eq!(left(mark), 0, "{options:?}");
    }
    let mut killed = forkless(&[], "(setsid sleep 71006 &); sleep 71006").spawn().expect("it starts");
    wait_for(2, "71006");
    killed.kill().expect("a kill");
    killed.wait().expect("an end");
    wait_for(0, "71006");
}

#[test]
fn a_report_says_how_the_program_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("report");
    let report = |words: &[&str]| {
        let _ = fs::remove_file(&file);
        let code = code(&[&["--report", file.to_str().expect("text")], words].concat());
        let line = fs::read_to_string(&file).expect("a report");
        assert_eq!(line.lines().count(), 1, "{line}");
        let report: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(report["exit_code"], code, "{words:?}: {line}");
        report
    };
    let exited = report(&["A=1", "sh", "-c", "exit 3"]);
    assert_eq!(
        (&exited["program"], &exited["program_exit_code"], &exited["signal"]),
        (&"sh".into(), &3.into(), &().into())
    );
    assert!(
        exited["started"] == true && exited["error"].is_null() && exited["usage"]["max_rss_kib"].as_u64() > Some(0)
    );
    let killed = report(&["sh", "-c", "kill -USR1 $$"]);
    assert_eq!(
        (&killed["signal"], &killed["signal_name"], &killed["exit_code"]),
        (&10.into(), &"SIGUSR1".into(), &138.into())
    );
    let late = report(&["--timeout", "0.1", "sleep", "60"]);
    assert_eq!(
        (&late["timed_out"], &late["timeout_signal"], &late["exit_code"]),
        (&true.into(), &15.into(), &124.into())
    );
    let missing = report(&["no-such-program-anywhere"]);
    assert_eq!(
        (&missing["started"], &missing["error"]["errno"], &missing["exit_code"]),
        (&false.into(), &2.into(), &127.into())
    );
    assert!(missing["error"]["step"] == "exec" && missing["usage"].is_null(), "{missing}");
    let wrong = report(&["--chdir", "/no/such", "true"]);
    assert!(wrong["error"]["step"] == "chdir" && wrong["exit_code"] == 125, "{wrong}");
    let boxed = report(&["--sandbox", "--chdir", "/", "sh", "-c", "exit 4"]);
    assert!(boxed["program_exit_code"] == 4 || boxed["exit_code"] == 125, "{boxed}");
    let script = format!(
        "{} run --report fd:7 true 7>{}",
        testing::surroundings::word(env!("CARGO_BIN_EXE_forkless")),
        file.to_str().expect("text")
    );
    assert!(Command::new("bash").args(["-c", &script]).status().expect("bash").success());
    assert!(fs::read_to_string(&file).expect("a report").contains("\"exit_code\":0"));
    let kept = ["--explain", "--report", file.to_str().expect("text"), "true"];
    assert_eq!(code(&kept), 0);
    assert!(fs::read_to_string(&file).expect("a report").contains("\"exit_code\":0"), "--explain leaves the file");
    assert_eq!(code(&["--report", "/no/such/file", "true"]), 125);
    assert_eq!(code(&["--report", "/dev/full", "true"]), 125);
    assert_eq!(code(&["--report", "fd:77", "true"]), 125);
}

#[test]
fn json_status_has_the_child_and_its_exit_code_if_it_was_executed() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("status");
    let status = |options: &str, program: &str| {
        let script = format!("exec \"$0\" run {options} --json-status-fd 7 {program} 7>status");
        let mut shell = Command::new("bash");
        let output = shell.args(["-c", &script, env!("CARGO_BIN_EXE_forkless")]).current_dir(&directory).output();
        let text = fs::read_to_string(&file).expect("a file");
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        (output.expect("bash"), objects, text)
    };
    let (output, objects, text) = status("", "sh -c 'echo $$; exit 42'");
    let pid: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a PID");
    assert_eq!((&objects[0]["child-pid"], &objects[1]["exit-code"]), (&pid.into(), &42.into()), "{text}");
    // As scripts search for it.
    assert!(objects.len() == 2 && text.contains("\"exit-code\": 42}"), "{text}");
    let (_, killed, text) = status("", "sh -c 'kill -KILL $$'");
    assert_eq!((killed.len(), &killed[1]["exit-code"]), (2, &137.into()), "{text}");
    for options in ["", "--sandbox --chdir /"] {
        let (output, objects, text) = status(options, "/no/such/program");
        assert!(!output.status.success() && !text.contains("exit-code") && objects.len() < 2, "{options}: {text}");
    }
    let (output, objects, text) = status("--sandbox --chdir /", "sh -c 'exit 5'");
    assert!(output.status.code() == Some(125) || objects[1]["exit-code"] == 5, "{text}");
    let (output, _, _) = status("--explain", "true");
    assert!(output.status.success() && fs::read_to_string(&file).expect("a file").is_empty());
    assert_eq!(code(&["--json-status-fd", "77", "true"]), 125);
    // A reader that has gone does not stop the program.
    let script = "\"$0\" run --json-status-fd 7 sh -c 'exit 6' 7>/dev/full";
    let output = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_forkless")]).output().expect("bash");
    assert_eq!(output.status.code(), Some(6), "{output:?}");
}

#[test]
fn report_on_a_sandbox_that_could_not_execute_the_program_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("report");
    code(&["--report", file.to_str().expect("text"), "--sandbox", "--chdir", "/", "/no/such/program"]);
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).expect("a report")).expect("JSON");
    assert!(report["started"] == false && report["program_exit_code"].is_null(), "{report}");
}

#[test]
fn options_may_come_from_descriptors() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("one"), "--chdir\0/\0--env\0A=a b\nc\0").expect("writable");
    fs::write(directory.path().join("two"), "--env\0A=last\0").expect("writable");
    let run = |line: &str| {
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("\"$0\" run {line}"), env!("CARGO_BIN_EXE_forkless")]).current_dir(&directory);
        shell.output().expect("bash")
    };
    let shown = |line: &str| String::from_utf8(run(line).stdout).expect("text");
    assert_eq!(shown("--args 3 sh -c 'echo \"$PWD $A\"' 3<one"), "/ a b\nc\n");
    assert_eq!(shown("--args 3 --args=4 sh -c 'echo \"$PWD $A\"' 3<one 4<two"), "/ last\n");
    assert_eq!(shown("echo --args 3"), "--args 3\n");
    let failed = run("--args 3 true 3</dev/zero");
    assert!(failed.status.code() == Some(125) && String::from_utf8_lossy(&failed.stderr).contains("--args: "));
}
