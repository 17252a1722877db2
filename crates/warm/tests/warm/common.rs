//! What the tests share: the library, a warm set, and a run in a process of its own.

use forkless::warm::{Warm, WarmOptions};
use forkless::{Child, Command, Prepared, Route, Stdio};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// The installed library, at least three seconds old: templates are not made of files that have just changed.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let directory = base.join("warm");
        let path = directory.join("libforkless_warm.so");
        if std::env::var_os(SCENARIO).is_none() {
            testing::dist::warm_once(&directory, &base.join("warm-build")).expect("the library");
        }
        grow_old(&path);
        path
    })
}

/// Waits until a file is old enough for a template.
pub(crate) fn grow_old(path: &Path) {
    use std::os::unix::fs::MetadataExt;
    let file = path.metadata().expect("a file");
    let newest = Duration::from_secs(file.ctime().max(file.mtime()) as u64 + 4);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    std::thread::sleep(newest.saturating_sub(now));
}

/// A set whose templates serve for ever: a test may be stopped at any place for any time.
pub(crate) fn warm() -> Warm {
    options().open().expect("a library")
}

/// The same, for a test that sets one limit.
pub(crate) fn options() -> WarmOptions {
    let mut options = WarmOptions::new();
    options.library(library()).idle(Duration::MAX).life(Duration::MAX).launches(u32::MAX);
    options
}

/// A command without cargo's variables for the loader.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_remove("LD_LIBRARY_PATH");
    command
}

/// Captures all output of a launch.
pub(crate) fn prepared(command: &mut Command) -> Prepared {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).prepare().expect("a plan")
}

pub(crate) fn is_warm(child: &Child) -> bool {
    let is_warm = matches!(child.route(), Route::Warm);
    assert_eq!(is_warm, child.cold_reason().is_none(), "{}", child.route());
    is_warm
}

/// Starts the template and launches by it, and returns the output. The error: why the launch is cold.
pub(crate) fn by_template(warm: &Warm, prepared: &Prepared) -> Result<Output, String> {
    let started = warm.start(prepared);
    let child = warm.spawn(prepared).expect("a child");
    let why = child.cold_reason().map(str::to_owned);
    let output = child.wait_with_output().expect("its output");
    match why {
        None => Ok(output),
        Some(why) => Err(started.err().map_or(why, |error| error.to_string())),
    }
}

/// The variable that says which scenario a process of its own runs.
pub(crate) const SCENARIO: &str = "FORKLESS_WARM_SCENARIO";

/// Runs `work` in another process of this test program, in the test of this name.
pub(crate) fn in_own_process(test: &str, work: impl FnOnce()) {
    library();
    if std::env::var_os(SCENARIO).is_some_and(|name| name == test) {
        work();
        println!("the scenario has ended well");
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().expect("a program"))
        .args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, test)
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    let is_well = output.status.success() && text.contains("the scenario has ended well");
    assert!(is_well, "{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Whether the test is to be skipped, because a caller with a seccomp filter launches cold before Linux 5.16.
pub(crate) fn is_cold_with_filter() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|text| text.parse::<u32>().unwrap_or(0));
    let is_old = (numbers.next(), numbers.next()) < (Some(5), Some(16));
    if is_old {
        println!("SKIPPED: warm launches by a caller with a filter because this kernel is older than 5.16");
    }
    is_old
}

/// How many times as long as usual anything may take: `FORKLESS_TEST_SLOW`, for a slow machine.
pub(crate) fn slow() -> u32 {
    std::env::var("FORKLESS_TEST_SLOW").ok().and_then(|times| times.parse().ok()).unwrap_or(1).max(1)
}

/// Waits until `holds`. The limit is only for a test that has failed: what is waited for has no limit of its own.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(50) * slow(), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
