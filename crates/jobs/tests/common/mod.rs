//! Runs whose jobs are launched by the run's own thread, or by threads of their own.
#![allow(dead_code)] // Each program uses a part.

use forkless::Command;
use forkless_jobs::{Events, JobSource, Options, Prepare, Sink, Summary};
use std::fs::File;
use std::io;
use std::process::Stdio;

/// The number of threads that launch.
const THREADS: &str = "FORKLESS_JOBS_THREADS";

pub(crate) fn threads(count: usize) -> Vec<Prepare> {
    let prepare = |_| -> Prepare { Box::new(|_: &mut Command| ()) };
    (0..count).map(prepare).collect()
}

pub(crate) fn run(
    mut options: Options,
    source: &mut dyn JobSource,
    events: &mut dyn Events,
    sink: &mut dyn Sink,
) -> io::Result<Summary> {
    if let Some(count) = std::env::var_os(THREADS) {
        options.threads = threads(count.to_string_lossy().parse().expect("a number"));
    }
    forkless_jobs::run(options, source, events, sink)
}

/// Runs the other tests of this program again, with threads that launch.
pub(crate) fn again_with_threads() {
    let slow: u32 = std::env::var("FORKLESS_TEST_SLOW").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let mut tests = std::process::Command::new("timeout");
    tests.args(["-s", "KILL"]).arg((240 * slow).to_string()).arg(std::env::current_exe().expect("this program"));
    tests.args(["--skip", "the_same_again_with_threads"]).env(THREADS, "3").stdin(Stdio::null());
    // Not a pipe: a test may leave a process that sleeps.
    let place = tempfile::tempdir().expect("a directory");
    let said = place.path().join("said");
    let out = File::create(&said).expect("a file");
    tests.stderr(out.try_clone().expect("a file")).stdout(out);
    let status = tests.status().expect("timeout(1)");
    let text = std::fs::read_to_string(&said).expect("the file");
    assert!(status.success() && text.contains("test result: ok.") && !text.contains(" 0 passed"), "{status}\n{text}");
}
