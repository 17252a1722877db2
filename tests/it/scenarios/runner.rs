//! Starts a scenario, waits for it with a time limit, and returns its output.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The longest any scenario may take without using its processor: one that goes on, on a busy machine, may take [`SLOWER`] times as
/// long. The dials of the race tests are added to it.
const LIMIT: Duration = Duration::from_secs(120);
const SLOWER: u32 = 5;

/// How a scenario ended, and what it wrote.
pub struct Ending {
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output and error together.
    pub text: String,
}

/// Runs a scenario to whatever end.
pub fn end(program: &Path, args: &[&str]) -> Ending {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("output");
    let file = File::create(&path).expect("create");
    // A process group of its own: some send signals to it, and all of it is killed in the end.
    let mut child = Command::new(program)
        .args(args)
        .process_group(0)
        .env("RUST_BACKTRACE", "0")
        .stdin(std::process::Stdio::null())
        .stdout(file.try_clone().expect("dup"))
        .stderr(file)
        .spawn()
        .expect("the scenario program starts");
    let status = wait(&mut child, args);
    let text = String::from_utf8_lossy(&fs::read(&path).expect("read")).into_owned();
    let Some(status) = status else { panic!("scenario {args:?} did not end within its time\n{text}") };
    for line in text.lines().filter(|line| line.starts_with("SKIPPED")) {
        // Written to the terminal directly, because the harness hides the output of passing tests.
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
    Ending { status, text }
}

fn wait(child: &mut Child, args: &[&str]) -> Option<ExitStatus> {
    let dial = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    let limit = LIMIT.mul_f64(dial("FORKLESS_TEST_SCALE").max(dial("FORKLESS_TEST_SLOW")).max(1.0))
        + Duration::from_secs_f64(dial("FORKLESS_TEST_SECONDS"));
    let begun = Instant::now();
    let (mut used, mut last_seen) = (0, begun);
    let group = child.id() as i32;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break Some(status);
        }
        if last_seen.elapsed() > Duration::from_secs(1) && used != time_used(group) {
            (used, last_seen) = (time_used(group), Instant::now());
        }
        if last_seen.elapsed() > limit || begun.elapsed() > limit * SLOWER {
            let _ = std::io::stderr().write_all(describe(group, args).as_bytes());
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // The group was made for the scenario above; whatever is left in it came from there.
    forkless_tests::process::kill(-group, libc::SIGKILL);
    if status.is_none() {
        let _ = child.wait();
    }
    status
}

/// The processor time of a process and of the children that it has waited for, in ticks: proc_pid_stat(5).
fn time_used(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    fields.skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Where each thread and each child of a process that hangs stands.
fn describe(pid: i32, args: &[&str]) -> String {
    let mut text = format!("scenario {args:?} hangs:\n");
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return text };
    for task in tasks.flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        text += &format!("  thread {}: {} {}", task.file_name().to_string_lossy(), read("wchan"), read("syscall"));
        for child in read("children").split_ascii_whitespace() {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            text += &format!("    child {}\n", stat.chars().take(60).collect::<String>());
        }
    }
    text
}
