//! How many requests for memory a job costs the runner.

testing::usual_surroundings!();

use forkless_jobs::{Job, Nothing, Options, Output, Sink, Stream, from_iter, run};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every request goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the place comes from `alloc`, so from the system's allocator.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(size, Ordering::Relaxed);
        // SAFETY: the place comes from `alloc`, so from the system's allocator.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Away;

impl Sink for Away {
    fn write(&mut self, _: u64, _: Stream, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Requests and bytes for each job, without those that a run makes once.
fn per_job(output: Output, job: fn() -> Job) -> (f64, f64) {
    let cost = |jobs: usize| {
        let before = (COUNT.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
        let options = Options::default().slots(1).output(output);
        let summary = run(options, &mut from_iter((0..jobs).map(|_| job())), &mut Nothing, &mut Away).expect("a run");
        assert!(summary.is_success(), "{summary:?}");
        (COUNT.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1)
    };
    cost(10);
    // What all lines have in common is looked up again every second: a run that takes longer, as on a busy machine, is repeated.
    let quick = |jobs: usize| {
        let mut found = (0, 0);
        for _ in 0..8 {
            let start = Instant::now();
            found = cost(jobs);
            if start.elapsed() < Duration::from_secs(1) {
                break;
            }
        }
        found
    };
    let (few, many) = (quick(10), quick(40));
    ((many.0 - few.0) as f64 / 30.0, (many.1 - few.1) as f64 / 30.0)
}

/// What is counted: its name, where output goes, and the job.
type Kind = (&'static str, Output, fn() -> Job);

const KINDS: [Kind; 5] = [
    ("a program", Output::Inherit, || Job::program("/bin/true", ["x"])),
    ("a captured program", Output::Group, || Job::program("/bin/true", ["x"])),
    ("a line", Output::Inherit, || Job::line("/bin/true x")),
    ("a program with a variable", Output::Inherit, || {
        let mut job = Job::program("/bin/true", ["x"]);
        job.env.push(("SLOT".into(), "1".into()));
        job
    }),
    ("a captured line with variables", Output::Group, || {
        let mut job = Job::line("/bin/true x");
        job.env = ["PID", "HOST", "LOGIN", "SEQ", "SLOT"].map(|name| (name.into(), "1".into())).into();
        job
    }),
];

/// In the environment of the process that counts.
const COUNTS: &str = "FORKLESS_TEST_COUNTS";

/// The costs of each kind of job, from a process with so many variables.
fn costs(variables: usize) -> Vec<(f64, f64)> {
    let mut command = std::process::Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", "--nocapture", "a_job_makes_few_requests_for_memory"]);
    command.env_clear().env(COUNTS, "1").env("PATH", "/usr/bin:/bin");
    // Without it, a shell would set it, and a line would not get the environment as it is.
    command.env("PWD", std::env::current_dir().expect("a directory"));
    command.envs((0..variables).map(|n| (format!("VARIABLE_{n}"), "x".repeat(80))));
    let output = command.output().expect("the program");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}");
    let figures = text.lines().filter_map(|line| line.split_once("cost: ")?.1.split_once(' '));
    figures.map(|(count, bytes)| (count.parse().expect("a number"), bytes.parse().expect("a number"))).collect()
}

/// One test: another one would count at the same time.
#[test]
fn a_job_makes_few_requests_for_memory() {
    if std::env::var_os(COUNTS).is_some() {
        for (_, output, job) in KINDS {
            let (count, bytes) = per_job(output, job);
            println!("cost: {count} {bytes}");
        }
        return;
    }
    let (few, many) = (costs(10), costs(1000));
    println!("with 10 variables {few:?}, with 1000 {many:?}");
    assert_eq!((few.len(), many.len()), (KINDS.len(), KINDS.len()));
    // A few requests are made from time to time, whatever the number of jobs.
    for kind in [0, 1] {
        let (count, bytes) = (many[kind].0 - few[kind].0, many[kind].1 - few[kind].1);
        assert!(count.abs() < 1.0 && bytes.abs() < 1000.0, "{}: more in a larger environment", KINDS[kind].0);
    }
    for ((name, ..), ((count, _), most)) in KINDS.iter().zip(few.iter().zip([25.0, 26.0, 42.0, 36.0, 70.0])) {
        assert!(count <= &most, "{name}: {count} requests for memory");
    }
    // A job with a variable of its own gets a copy of the environment, and a list of its places, in one piece each.
    // So does a line with variables: what a shell would make of the environment is known from the line before.
    assert!([3, 4].iter().all(|&kind| many[kind].0 - few[kind].0 <= 8.0), "{few:?} {many:?}");
}
