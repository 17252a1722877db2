//! `forkless gearman-worker` and `forkless parallel --gearman` with a real server, `gearmand`, and with its tools.
//! `FORKLESS_TEST_SCALE` multiplies the jobs of the crash test; 50 makes 50,000.

testing::usual_surroundings!();

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

const FORKLESS: &str = env!("CARGO_BIN_EXE_forkless");
/// Guards against a test that hangs. Nothing is measured with it.
const GUARD: Duration = Duration::from_secs(45);

/// Waits until something is true.
fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + GUARD;
    while !is_true() {
        assert!(Instant::now() < end, "it has not come true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id() as i32).expect("a number");
        kill_process(pid, signal).expect("a signal");
    }

    fn status(&mut self, what: &str) -> ExitStatus {
        let mut status = None;
        eventually(what, || {
            status = self.0.try_wait().expect("a status");
            status.is_some()
        });
        status.expect("a status")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server on a port of its own.
struct Server {
    port: u16,
    process: Option<Running>,
}

impl Server {
    /// `None`: no server is installed, which is reported.
    fn start(test: &str) -> Option<Self> {
        for (program, words) in [("gearmand", "--version"), ("gearman", "-H")] {
            if Command::new(program).arg(words).output().is_err() {
                println!("SKIPPED: {test}, because {program} is not installed");
                return None;
            }
        }
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let mut server = Self { port, process: None };
        server.begin();
        Some(server)
    }

    fn begin(&mut self) {
        eventually("the server listens", || {
            let mut command = Command::new("gearmand");
            command.args(["-L", "127.0.0.1", "-l", "stderr", "-p", &self.port.to_string()]);
            // Its pid file would be in /run.
            let directory = std::env::temp_dir().join(format!("forkless-gearmand-{}.pid", self.port));
            command.arg("-P").arg(&directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut process = Running(command.spawn().expect("gearmand"));
            let is_there = loop {
                if process.0.try_wait().expect("a status").is_some() {
                    // The port is still busy.
                    break false;
                }
                if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                    break true;
                }
                thread::sleep(Duration::from_millis(10));
            };
            let _ = fs::remove_file(directory);
            self.process = Some(process);
            is_there
        });
    }

    fn kill(&mut self) {
        self.process = None;
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn worker(&self, words: &[&str]) -> Running {
        let mut worker = Command::new(FORKLESS);
        worker.args(["gearman-worker", &self.address()]).args(words);
        Running(worker.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a worker"))
    }

    /// The client of gearman-tools.
    fn client(&self, words: &[&str]) -> Output {
        let mut client = Command::new("timeout");
        client.args(["60", "gearman", "-h", "127.0.0.1", "-p", &self.port.to_string()]).args(words);
        client.stdin(Stdio::null()).output().expect("gearman")
    }

    fn parallel(&self, queue: &str) -> Command {
        let mut command = Command::new(FORKLESS);
        command.args(["parallel", "--plain", "--gearman", &format!("{}{queue}", self.address())]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What the monitoring server's side gets for a check.
    fn check(&self, queue: &str, key: &str, check: &str) -> String {
        let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gearman/peer.py");
        let mut command = Command::new("timeout");
        command.args(["60", "python3"]).arg(peer).args([&self.port.to_string(), queue, key]);
        let mut peer = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        peer.stdin.take().expect("a pipe").write_all(check.as_bytes()).expect("written");
        let output = peer.wait_with_output().expect("output");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a process runs: it exists, and is no zombie.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

fn scaled(count: usize) -> usize {
    let scale = std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    ((count as f64 * scale) as usize).max(100)
}

#[test]
fn output_and_failure_reach_the_client_of_gearman_tools() {
    let Some(server) = Server::start("lines for a worker") else { return };
    let _worker = server.worker(&["--function", "line", "-j", "2"]);
    let good = server.client(&["-f", "line", "echo out; echo err >&2"]);
    assert!(good.status.success(), "{good:?}");
    assert_eq!((text(&good.stdout), text(&good.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
    let bad = server.client(&["-f", "line", "echo out; exit 3"]);
    assert!(!bad.status.success() && text(&bad.stdout) == "out\n", "{bad:?}");
    assert!(text(&bad.stderr).contains("forkless: exit code 3 after "), "{bad:?}");
    let killed = server.client(&["-f", "line", "kill -9 $$"]);
    assert!(text(&killed.stderr).contains("killed by signal 9"), "{killed:?}");
}

/// Each job waits until four have started: one at a time would wait for ever.
#[test]
fn one_worker_runs_jobs_at_once() {
    let Some(server) = Server::start("jobs at once") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let _worker = server.worker(&["--function", "line", "-j", "4"]);
    let meet =
        format!("cd {}; : > $0{{}}; until test $(ls | wc -l) -ge 4; do sleep 0.02; done", place.path().display());
    let mut command = server.parallel("/line");
    let output = command.args([&meet, ":::", "1", "2", "3", "4"]).output().expect("parallel");
    assert!(output.status.success(), "{output:?}");
}

/// A worker for checks has four slots for each CPU by default. Each job waits until so many have started.
#[test]
fn a_worker_for_checks_runs_four_for_each_cpu() {
    let Some(server) = Server::start("the default number of checks") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let count = 4 * thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let guard = GUARD.as_secs().to_string();
    let _worker = server.worker(&["--function", "line", "--checks", "--timeout", &guard]);
    let place = place.path().display();
    // Each job waits for all others, and gives up after a minute.
    let meet = format!(
        "cd {place}; : > at{{}}; for i in $(seq 600); do test $(ls | wc -l) -ge {count} && exit; sleep 0.1; done; exit 1"
    );
    let mut command = server.parallel("/line");
    let output = command.arg(&meet).arg(":::").args((1..=count).map(|job| job.to_string())).output().expect("parallel");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_job_that_times_out_ends_with_its_process_group() {
    let Some(server) = Server::start("timeouts") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("pid");
    let _worker = server.worker(&["--function", "line", "--timeout", "0.5"]);
    let line = format!("sleep 1000 & echo $! > {}; wait", file.display());
    let output = server.client(&["-f", "line", &line]);
    assert!(text(&output.stderr).contains("forkless: timed out after "), "{output:?}");
    let pid = fs::read_to_string(file).expect("the job has started");
    let end = Instant::now() + Duration::from_secs(20);
    while is_running(&pid) {
        if Instant::now() > end {
            let number = pid.trim().parse().ok().and_then(Pid::from_raw).expect("a number");
            let _ = kill_process(number, Signal::KILL);
            panic!("the job's own child still runs");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn output_is_cut_at_the_limit() {
    let Some(server) = Server::start("the limit of output") else { return };
    let _worker = server.worker(&["--function", "line", "--max-output", "1000"]);
    let output = server.client(&["-f", "line", "yes | head -c 3000000"]);
    assert_eq!(output.stdout.len(), 1000);
    assert!(
        text(&output.stderr).contains("the output is cut after 1000 bytes of 3000000"),
        "{:?}",
        text(&output.stderr)
    );
}

#[test]
fn only_allowed_programs_run() {
    let Some(server) = Server::start("the list of allowed programs") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let (allowed, other) = (place.path().join("allowed"), place.path().join("other"));
    for path in [&allowed, &other] {
        fs::copy("/bin/echo", path).expect("a program");
    }
    let mark = place.path().join("mark");
    let _worker = server.worker(&["--function", "line", "--allow", allowed.to_str().expect("text")]);
    let good = server.client(&["-f", "line", &format!("{} 'a b'", allowed.display())]);
    assert!(good.status.success() && text(&good.stdout) == "a b\n", "{good:?}");
    for line in [format!("{} x", other.display()), format!("{} x; : > {}", allowed.display(), mark.display())] {
        let bad = server.client(&["-f", "line", &line]);
        assert!(!bad.status.success() && bad.stdout.is_empty(), "{bad:?}");
        assert!(text(&bad.stderr).contains("forkless: refused: "), "{bad:?}");
    }
    assert!(!mark.exists());
}

#[test]
fn a_signal_lets_running_jobs_end_and_their_replies_go_out() {
    let Some(server) = Server::start("the end of a worker") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let (begun, go) = (place.path().join("begun"), place.path().join("go"));
    let mut worker = server.worker(&["--function", "line", "-j", "2"]);
    let line = format!(": > {}; until test -e {}; do sleep 0.02; done; echo done", begun.display(), go.display());
    let client = thread::scope(|scope| {
        let client = scope.spawn(|| server.client(&["-f", "line", &line]));
        eventually("the job has started", || begun.exists());
        worker.signal(Signal::TERM);
        fs::write(&go, "").expect("a file");
        client.join().expect("the client")
    });
    assert_eq!(text(&client.stdout), "done\n", "{client:?}");
    assert_eq!(worker.status("the worker ends").code(), Some(0));
}

/// The server is stopped while a long reply waits for it: the worker that was ended by a signal waits, too.
#[test]
fn a_reply_that_the_server_takes_late_is_delivered() {
    const LENGTH: usize = 12_000_000;
    let Some(server) = Server::start("a late reply") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let [begun, go, ended] = ["begun", "go", "ended"].map(|name| place.path().join(name));
    let mut worker = server.worker(&["--function", "line", "--max-output", "16M"]);
    let line = format!(
        ": > {}; until test -e {}; do sleep 0.02; done; head -c {LENGTH} /dev/zero | tr '\\0' x; : > {}",
        begun.display(),
        go.display(),
        ended.display()
    );
    let process = server.process.as_ref().expect("a server");
    let client = thread::scope(|scope| {
        let client = scope.spawn(|| server.client(&["-f", "line", &line]));
        eventually("the job has started", || begun.exists());
        worker.signal(Signal::TERM);
        process.signal(Signal::STOP);
        fs::write(&go, "").expect("a file");
        eventually("the job has written its output", || ended.exists());
        // Time for a worker that would not wait.
        thread::sleep(Duration::from_millis(500));
        process.signal(Signal::CONT);
        client.join().expect("the client")
    });
    assert_eq!((client.stdout.len(), client.status.code()), (LENGTH, Some(0)), "{}", text(&client.stderr));
    assert_eq!(worker.status("the worker ends").code(), Some(0));
}

/// Also one whose server has never answered.
#[test]
fn a_worker_with_nothing_to_deliver_ends_without_its_server() {
    let mut worker = Command::new(FORKLESS);
    worker.args(["gearman-worker", "127.0.0.1:1", "--function", "line"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut worker = Running(worker.spawn().expect("a worker"));
    let mut reader = BufReader::new(worker.0.stderr.take().expect("a pipe"));
    let mut messages = String::new();
    reader.read_line(&mut messages).expect("a message");
    worker.signal(Signal::TERM);
    reader.read_to_string(&mut messages).expect("messages");
    assert_eq!(worker.status("the worker ends").code(), Some(0), "{messages}");
    assert!(messages.contains("Connection refused") && messages.lines().count() == 1, "{messages}");
}

#[test]
fn servers_on_other_machines_need_an_option() {
    let mut worker = Command::new("timeout");
    worker
        .args(["-s", "KILL", "20", FORKLESS, "gearman-worker", "192.0.2.1:4730", "--function", "line"])
        .stdin(Stdio::null());
    let output = worker.output().expect("a worker");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("--remote permits it"), "{output:?}");
}

/// The path of a script.
fn plugin(place: &Path, name: &str, script: &str) -> PathBuf {
    let path = place.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&path, mode).expect("a mode");
    path
}

#[test]
fn checks_of_mod_gearman_have_their_results() {
    let Some(server) = Server::start("checks of mod_gearman") else { return };
    if Command::new("openssl").arg("version").output().is_err() || Command::new("python3").arg("-V").output().is_err() {
        println!("SKIPPED: checks of mod_gearman, because openssl or python3 is not installed");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let ok = plugin(place.path(), "ok", "echo \"OK - fine | a=$1\"; echo more; echo noise >&2");
    let critical = plugin(place.path(), "critical", "echo 'CRITICAL - bad'; exit 2");
    let odd = plugin(place.path(), "odd", "echo 'odd | a=1'; exit 42");
    let slow = plugin(place.path(), "slow", "sleep 1000");
    let killed = plugin(place.path(), "killed", "echo last words; kill -9 $$");
    let check = |sort: &str, timeout: u32, line: &str| {
        format!(
            "type={sort}\nresult_queue=check_results\nhost_name=web\n{}start_time=1700000000.0\n\
             core_time=1700000000.5\ntimeout={timeout}\ncommand_line={line}\n\n\n",
            if sort == "service" { "service_description=Disk\n" } else { "" }
        )
    };
    for key in ["", "should_be_changed", "a key that is longer than thirty-two bytes"] {
        let mut words = vec!["--checks", "--name", "here", "-j", "4"];
        if !key.is_empty() {
            words.extend(["--key", key]);
        }
        let mut worker = server.worker(&words);
        let result = |sort: &str, timeout: u32, line: &str| server.check(sort, key, &check(sort, timeout, line));
        let found = result("service", 60, &format!("{} 7", ok.display()));
        for line in [
            "host_name=web",
            "service_description=Disk",
            "core_start_time=1700000000.500000",
            "return_code=0",
            "exited_ok=1",
            "output=OK - fine | a=7\\nmore",
        ] {
            assert!(found.lines().any(|one| one == line), "{line}: {found}");
        }
        let found = result("host", 60, critical.to_str().expect("text"));
        assert!(found.contains("return_code=2\n") && found.contains("output=CRITICAL - bad\n"), "{found}");
        assert!(!found.contains("service_description"), "{found}");
        for (line, expected) in [
            ("/no/such/plugin -a", "output=CRITICAL: Return code of 127 is out of bounds. Make sure the plugin you're"),
            (
                odd.to_str().expect("text"),
                "output=CRITICAL: Return code of 42 is out of bounds. (worker: here)\\nodd | a=1\n",
            ),
            (
                killed.to_str().expect("text"),
                "of 137 is out of bounds. Plugin exited by signal SIGKILL. (worker: here)\\nlast words\n",
            ),
        ] {
            let found = result("service", 60, line);
            assert!(found.contains(expected) && found.contains("return_code=2\n"), "{found}");
        }
        let found = result("service", 1, slow.to_str().expect("text"));
        assert!(
            found.contains("return_code=2\noutput=(Service Check Timed Out On Worker: here)\n")
                || found.contains("output=(Service Check Timed Out On Worker: here)\n"),
            "{found}"
        );
        let mark = place.path().join("mark");
        let handler = format!("type=eventhandler\nstart_time=1.0\ncommand_line=: > {}\n\n\n", mark.display());
        assert_eq!(server.check("eventhandler", key, &handler), "complete\n");
        assert!(mark.exists());
        fs::remove_file(&mark).expect("removed");
        if !key.is_empty() {
            let other = server.check("eventhandler", "another key", &handler);
            assert_eq!((&*other, mark.exists()), ("failed\n", false), "a job with another key is not run");
            let open = server.check("eventhandler", "", &handler);
            assert_eq!((&*open, mark.exists()), ("failed\n", false), "nor one without encryption");
        }
        worker.signal(Signal::TERM);
        assert_eq!(worker.status("the worker ends").code(), Some(0));
    }
}

/// A check that is too old, and one of a program that is not allowed: neither runs, and each has its result.
#[test]
fn checks_that_do_not_run_have_results() {
    let Some(server) = Server::start("checks that do not run") else { return };
    if Command::new("python3").arg("-V").output().is_err() {
        println!("SKIPPED: checks that do not run, because python3 is not installed");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mark = place.path().join("mark");
    let touch = plugin(place.path(), "touch", &format!(": > {}", mark.display()));
    let check = |core_time: u64| {
        format!(
            "type=host\nresult_queue=check_results\nhost_name=web\ncore_time={core_time}.5\ncommand_line={}\n\n\n",
            touch.display()
        )
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    for (words, core_time, expected) in [
        (["--max-age", "3600"], now - 7200, Some("return_code=3\n")),
        (["--max-age", "3600"], now, None),
        (["--allow", "/bin/echo"], now, Some("return_code=3\n")),
    ] {
        let mut worker = server.worker(&[&["--checks", "--name", "here"], &words[..]].concat());
        let found = server.check("host", "", &check(core_time));
        assert_eq!(mark.exists(), expected.is_none(), "{words:?}: {found}");
        let _ = fs::remove_file(&mark);
        let output = match (expected, words[0]) {
            (None, _) => "output=(No output returned from plugin)\n".to_owned(),
            (_, "--max-age") => "output=(Could Not Start Check In Time)\n".to_owned(),
            _ => format!("output=UNKNOWN: not run: {}: not allowed (worker: here)\n", touch.display()),
        };
        assert!(found.contains(&output) && found.contains(expected.unwrap_or("return_code=0\n")), "{found}");
        worker.signal(Signal::TERM);
        assert_eq!(worker.status("the worker ends").code(), Some(0));
    }
}

#[test]
fn jobs_in_a_queue_have_order_log_and_exit_code() {
    let Some(server) = Server::start("parallel --gearman") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("log");
    let _worker = server.worker(&["--function", "forkless", "-j", "4"]);
    let mut command = server.parallel("");
    command.args(["-k", "--tag", "--summary", "--joblog"]).arg(&log);
    command.args(["echo {}; echo err >&2; exit {}", ":::", "0", "3", "0", "kill"]);
    let output = command.output().expect("parallel");
    assert_eq!(text(&output.stdout), "0\t0\n3\t3\n0\t0\nkill\tkill\n");
    assert!(text(&output.stderr).ends_with("ran 4, failed 2, skipped 0 of 4\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
    let lines = fs::read_to_string(&log).expect("a log");
    let numbers: Vec<(String, String)> = lines
        .lines()
        .skip(1)
        .map(|line| {
            let columns: Vec<_> = line.split('\t').collect();
            (columns[0].to_owned(), columns[6].to_owned())
        })
        .collect();
    assert!(numbers.contains(&("2".to_owned(), "3".to_owned())) && numbers.len() == 4, "{lines}");
    let mut command = server.parallel("");
    let output = command.args(["--timeout", "0.5", "sleep {}", ":::", "1000"]).output().expect("parallel");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("timed out"), "{output:?}");
}

/// A worker that knows nothing of forkless: `gearman -w` starts a shell for each job.
#[test]
fn another_worker_may_run_the_jobs() {
    let Some(server) = Server::start("parallel --gearman with gearman -w") else { return };
    let mut command = Command::new("gearman");
    command.args(["-w", "-h", "127.0.0.1", "-p", &server.port.to_string(), "-f", "other", "--", "sh"]);
    let _worker = Running(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("gearman"));
    let output =
        server.parallel("/other").args(["-k", "expr {} + 1", ":::", "1", "2", "3"]).output().expect("parallel");
    assert_eq!(text(&output.stdout), "2\n3\n4\n", "{output:?}");
}

#[test]
fn no_job_is_lost_when_the_server_is_killed_and_started_again() {
    let Some(mut server) = Server::start("a server that is killed") else { return };
    let jobs = scaled(1000);
    let place = tempfile::tempdir().expect("a directory");
    let (log, out, ran) = (place.path().join("log"), place.path().join("out"), place.path().join("ran"));
    let mut worker = server.worker(&["--function", "forkless", "-j", "4"]);
    let input = place.path().join("input");
    fs::write(&input, (1..=jobs).map(|n| format!("{n}\n")).collect::<String>()).expect("a file");
    let mut command = server.parallel("");
    command
        .args(["-k", "--joblog"])
        .arg(&log)
        .arg("-a")
        .arg(&input)
        .arg(format!("echo {{}} >> {}; echo {{}}", ran.display()));
    let mut run = Running(
        command.stdout(fs::File::create(&out).expect("a file")).stderr(Stdio::null()).spawn().expect("parallel"),
    );
    let count = |path: &Path| fs::read(path).unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count();
    for part in 1..=3 {
        let before = jobs * part / 4;
        let mut progress = count(&ran);
        while count(&ran) < before {
            eventually("the run goes on", || count(&ran) > progress);
            progress = count(&ran);
        }
        server.kill();
        server.begin();
    }
    let mut progress = count(&ran);
    let status = loop {
        if let Some(status) = run.0.try_wait().expect("a status") {
            break status;
        }
        eventually("the run goes on or ends", || count(&ran) > progress || matches!(run.0.try_wait(), Ok(Some(_))));
        progress = count(&ran);
    };
    assert!(status.success(), "{status:?}");
    let expected: String = (1..=jobs).map(|n| format!("{n}\n")).collect();
    assert!(fs::read_to_string(&out).expect("output") == expected, "the output is not in order, or not complete");
    assert_eq!(count(&log), jobs + 1, "a line for each job, once");
    worker.signal(Signal::TERM);
    assert_eq!(worker.status("the worker ends").code(), Some(0));
}

/// In turn, the run, a worker and the server are killed by SIGKILL; the run goes on from its log by `--resume`. In the end
/// every job is in the log, once. Those that have run twice were in flight at a kill.
#[test]
fn a_run_whose_parts_are_killed_again_and_again_loses_no_job() {
    /// Jobs that are in the queue at once, at most.
    const AHEAD: usize = 64;
    let Some(mut server) = Server::start("a run whose parts are killed") else { return };
    let jobs = scaled(1000);
    let kills = (jobs / 1000).clamp(9, 45);
    let place = tempfile::tempdir().expect("a directory");
    let [log, ran, input] = ["log", "ran", "input"].map(|name| place.path().join(name));
    fs::write(&input, (1..=jobs).map(|n| format!("{n}\n")).collect::<String>()).expect("a file");
    let start_worker = |server: &Server| server.worker(&["--function", "forkless", "-j", "4"]);
    let start_run = |server: &Server| {
        let mut command = server.parallel("");
        command.args(["-j", &AHEAD.to_string(), "--resume", "--joblog"]).arg(&log).arg("-a").arg(&input);
        command.arg(format!("echo {{}} >> {}", ran.display())).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("parallel"))
    };
    let logged = || -> Vec<usize> {
        let text = text(&fs::read(&log).unwrap_or_default());
        // A kill may leave a line without its end.
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let lines = whole.lines().filter(|line| !line.starts_with("Seq\t"));
        lines.filter_map(|line| line.split_once('\t')?.0.parse().ok()).collect()
    };
    let mut workers = [start_worker(&server), start_worker(&server)];
    let mut run = start_run(&server);
    for kill in 1..=kills {
        let until = jobs * kill / (kills + 1);
        let mut progress = logged().len();
        while progress < until {
            eventually("the run goes on", || logged().len() > progress);
            progress = logged().len();
        }
        match kill % 3 {
            0 => {
                server.kill();
                server.begin();
            }
            1 => {
                drop(run);
                run = start_run(&server);
            }
            // The jobs that it has started run on.
            _ => workers[kill % 2] = start_worker(&server),
        }
    }
    let mut progress = logged().len();
    let status = loop {
        let mut status = None;
        eventually("the run goes on or ends", || {
            status = run.0.try_wait().expect("a status");
            status.is_some() || logged().len() > progress
        });
        progress = logged().len();
        if let Some(status) = status {
            break status;
        }
    };
    assert!(status.success(), "{status:?}");
    let mut found = logged();
    found.sort_unstable();
    assert!(found == (1..=jobs).collect::<Vec<_>>(), "{} lines in the log of {jobs} jobs", found.len());
    let mut times = vec![0usize; jobs + 1];
    for line in text(&fs::read(&ran).expect("marks")).lines() {
        times[line.parse::<usize>().expect("a number")] += 1;
    }
    assert!(times[1..].iter().all(|&times| times > 0), "a job in the log has not run");
    let again: usize = times[1..].iter().map(|times| times - 1).sum();
    eprintln!("{jobs} jobs, {kills} kills: all in the log once; {again} ran once more");
    assert!(again <= kills * AHEAD, "{again} jobs ran again after {kills} kills");
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        assert_eq!(worker.status("the worker ends").code(), Some(0));
    }
}

/// The first commands of the pages about Gearman, with the address of the test's server.
#[test]
fn the_documented_commands_run_as_written() {
    let Some(server) = Server::start("the documented commands") else { return };
    let bin = Path::new(FORKLESS).parent().expect("a directory").display();
    let path = format!("{bin}:{}", std::env::var("PATH").expect("PATH"));
    let page = include_str!("../../../docs/gearman.md");
    let man = include_str!("../src/help/man/gearman-worker.md");
    let scale = include_str!("../../../docs/scale.md").split_once("\n### Gearman\n").expect("a section").1;
    let doubled = |number: usize| 2 * number;
    let numbers = |all: &mut dyn Iterator<Item = usize>| all.map(|number| format!("{number}\n")).collect::<String>();
    for (text_of, expected, end) in [
        (page, numbers(&mut (1..=1000)), "kill $!\n"),
        (man, numbers(&mut (2..=4)), ""),
        (scale, numbers(&mut (1..=1000).map(doubled)), "kill $!\ncat results\n"),
    ] {
        let place = tempfile::tempdir().expect("a directory");
        let block = text_of.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a command");
        let script = format!("{}{end}wait\n", block.replace("localhost:4730", &server.address()));
        assert!(script.contains("kill $!\n") && script.contains("gearman-worker 127.0.0.1:"), "{script}");
        let mut command = Command::new("timeout");
        command.args(["120", "sh", "-e", "-c", &script]).env("PATH", &path).stdin(Stdio::null());
        let output = command.current_dir(place.path()).output().expect("sh");
        assert!(output.status.success() && text(&output.stdout) == expected, "{script}{output:?}");
    }
    // The page's other example is a worker that serves until it is stopped.
    let place = tempfile::tempdir().expect("a directory");
    let key = place.path().join("key").display().to_string();
    fs::write(&key, "secret").expect("a file");
    let checks = man.split("```sh\n").nth(2).and_then(|rest| rest.split("```").next()).expect("a command");
    let checks = checks.replace("localhost:4730", &server.address()).replace("/etc/forkless/key", &key);
    let checks = checks.replace("/usr/lib/nagios/plugins/", &format!("{}/", place.path().display()));
    assert!(checks.contains("--checks") && checks.contains(&key) && man.matches("```sh\n").count() == 2, "{checks}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {checks}")]).env("PATH", &path).stdin(Stdio::null());
    let mut worker = Running(shell.spawn().expect("sh"));
    eventually("the worker serves the checks", || {
        assert_eq!(worker.0.try_wait().expect("a status"), None, "{checks}");
        let status =
            Command::new("gearadmin").args(["-h", "127.0.0.1", "-p", &server.port.to_string(), "--status"]).output();
        text(&status.expect("gearadmin, of gearman-tools").stdout).lines().any(|line| line.starts_with("service\t"))
    });
    worker.signal(Signal::TERM);
    assert_eq!(worker.status("the worker ends").code(), Some(0));
}
