//! Hosts under gdb, lldb, strace, ltrace and perf: they run to their end, breakpoints work, and children are followed.

testing::usual_surroundings!();

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SCENARIO: &str = env!("CARGO_BIN_EXE_scenario");

/// The number of calls of the function with the breakpoint.
const LAUNCHES: usize = 12;

/// A generous limit: a debugger that exceeds it has lost its host.
const LIMIT: Duration = Duration::from_secs(300);

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Runs a tool; none, with a message, if it is not installed.
fn run(tool: &str, args: &[&str]) -> Option<Output> {
    let mut command = Command::new(tool);
    command.args(args).env("LC_ALL", "C").env("DEBUGINFOD_URLS", "");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => Some(end(child, tool)),
        Err(error) => {
            say(&format!("SKIPPED: a host under {tool} because that cannot be started: {error}\n"));
            None
        }
    }
}

/// Waits with a limit. Tracees end with the tool, or by their own limit.
fn end(mut child: Child, tool: &str) -> Output {
    let pid = child.id() as i32;
    let (over, limit) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let late = limit.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if late {
            // It has not been reaped: the channel would have been closed.
            forkless_tests::process::kill(pid, libc::SIGKILL);
        }
        late
    });
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("output");
    drop(over);
    assert!(!guard.join().expect("guard"), "{tool} does not end:\n{}", text(&output));
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Whether the tool can trace at all here.
fn does_trace(tool: &str, args: &[&str], word: &str) -> bool {
    let Some(output) = run(tool, args) else { return false };
    let works = output.status.success() && text(&output).contains(word);
    if !works {
        say(&format!("SKIPPED: a host under {tool} because that cannot trace /bin/true here: {}\n", text(&output)));
    }
    works
}

fn has_gdb() -> bool {
    does_trace("gdb", &["-nx", "-batch", "-ex", "run", "/bin/true"], "exited normally")
}

/// The program goes on by itself: gdb 18 in batch mode has no commands for a stop of another thread.
const AT_EACH_LAUNCH: &str = "\
set breakpoint pending on
set language c
set $hits = 0
dprintf forkless_test_launched,\"stopped at launch %d\\n\", $hits++
run debugged::run
";

/// gdb prints each stop at the breakpoint and continues.
const AT_THE_BREAKPOINT: &str = "\
set breakpoint pending on
set language c
break forkless_test_launched
commands
silent
printf \"stopped at launch %d\\n\", $hits++
";

#[test]
fn a_host_under_gdb_ends_and_stops_at_its_breakpoint_after_each_launch() {
    if !has_gdb() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = directory.path().join("script");
    fs::write(&script, AT_EACH_LAUNCH).expect("write");
    let args = ["-nx", "-batch", "-x", script.to_str().expect("UTF-8"), SCENARIO];
    let output = text(&run("gdb", &args).expect("it is here"));
    assert!(output.contains("exited normally"), "{output}");
    assert_eq!(output.matches("stopped at launch").count(), LAUNCHES, "{output}");
}

/// A debugger that attaches is noticed by the first launch after the cached check for a tracer has expired.
#[test]
fn gdb_attaches_to_a_host_that_launches_in_a_loop() {
    if !has_gdb() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [end_file, script, pause, paused] =
        ["end", "script", "pause", "paused"].map(|name| directory.path().join(name));
    let mut host = Command::new(SCENARIO);
    host.arg("debugged::repeatedly").arg(directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let host = host.spawn().expect("the scenario starts");
    let commands = format!(
        "set $hits = 0\n{AT_THE_BREAKPOINT}if $hits == 20\nshell touch {}\nend\ncontinue\nend\ncontinue\n",
        end_file.display()
    );
    fs::write(&script, commands).expect("write");
    // Between launches: some of them were made without a tracer.
    fs::write(&pause, "").expect("write");
    let begun = Instant::now();
    while !paused.exists() {
        assert!(begun.elapsed() < LIMIT, "the host does not pause");
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = host.id().to_string();
    let output = text(&run("gdb", &["-nx", "-batch", "-p", &id, "-x", script.to_str().expect("UTF-8")]).expect("gdb"));
    // Lets the host end, whatever gdb has done.
    let _ = fs::write(&end_file, "");
    let host = end(host, "the host");
    if output.contains("ptrace: Operation not permitted") {
        return say(
            "SKIPPED: gdb at a running host because no process may be attached to here: kernel.yama.ptrace_scope\n",
        );
    }
    assert!(output.contains("exited normally"), "{output}\n{}", text(&host));
    assert!(output.matches("stopped at launch").count() >= 20, "{output}");
}

#[test]
fn a_host_under_lldb_ends_and_stops_at_its_breakpoint_after_each_launch() {
    if !does_trace("lldb", &["--batch", "--no-lldbinit", "-o", "run", "/bin/true"], "exited with status = 0") {
        return;
    }
    let stop =
        "breakpoint set --name forkless_test_launched --auto-continue true --command 'thread backtrace --count 1'";
    let args = ["--batch", "--no-lldbinit", "-o", stop, "-o", "run", SCENARIO, "--", "debugged::run"];
    let output = text(&run("lldb", &args).expect("it is here"));
    assert!(output.contains("exited with status = 0"), "{output}");
    let stops = output.lines().filter(|line| line.contains("frame #0") && line.contains("forkless_test_launched"));
    assert!(stops.count() >= LAUNCHES, "{output}");
}

#[test]
fn strace_follows_children_into_their_programs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("trace");
    let to = file.to_str().expect("UTF-8");
    if !does_trace("strace", &["-f", "/bin/true"], "exited with 0") {
        return;
    }
    let calls = "trace=execve,exit,exit_group,write";
    let output = run("strace", &["-f", "-o", to, "-e", calls, SCENARIO, "debugged::run"]).expect("it is here");
    assert!(output.status.success(), "{}", text(&output));
    let trace = fs::read_to_string(&file).expect("read");
    // The system calls of the started programs, after execve.
    assert_eq!(trace.matches("exit_group(6)").count() + trace.matches(" exit(6)").count(), 6, "{trace}");
    assert_eq!(trace.matches("write(1, \"said\\n\"").count(), 2, "{trace}");
}

#[test]
fn a_host_under_ltrace_ends() {
    if !does_trace("ltrace", &["-f", "/bin/true"], "exited (status 0)") {
        return;
    }
    let output =
        run("ltrace", &["-f", "-e", "nothing_at_all", SCENARIO, "debugged::run", "/bin/true"]).expect("it is here");
    assert!(output.status.success() && text(&output).contains("12 launches"), "{}", text(&output));
}

#[test]
fn a_host_under_perf_ends() {
    if !does_trace("perf", &["stat", "-e", "task-clock", "/bin/true"], "task-clock") {
        return;
    }
    let args = ["stat", "-e", "task-clock", SCENARIO, "debugged::run"];
    let output = run("perf", &args).expect("it is here");
    assert!(output.status.success() && text(&output).contains("12 launches"), "{}", text(&output));
}
