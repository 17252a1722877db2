//! Runs of jobs with inherited output.

testing::usual_surroundings!();

mod common;

use common::{again_with_threads, run};
use forkless_jobs::{
    Control, Ended, Ending, Events, Flow, Input, Job, JobPlace, JobSource, Next, Nothing, Options, Standard, Summary,
    from_iter,
};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

fn sh(script: impl AsRef<str>) -> Job {
    Job::program("sh", ["-c", script.as_ref()])
}

fn run_all(options: Options, jobs: impl IntoIterator<Item = Job>) -> Summary {
    run(options, &mut from_iter(jobs), &mut Nothing, &mut Standard::new()).expect("a run")
}

/// Keeps the ends of all jobs.
#[derive(Default)]
struct Ends(Vec<(u64, (i32, i32), u32)>);

impl Events for Ends {
    fn finished(&mut self, ended: &Ended) -> Flow {
        self.0.push((ended.place.seq, ended.ending.numbers(), ended.tries));
        Flow::Continue
    }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn every_job_runs_once() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("ran");
    let jobs = (0..200).map(|n| sh(format!("echo {n} >> {}", file.display())));
    let summary = run_all(Options::default().slots(7), jobs);
    assert_eq!(summary.to_string(), "ran 200, failed 0, skipped 0 of 200");
    assert!(summary.is_success());
    let mut found: Vec<u32> = lines(&file).iter().map(|line| line.parse().expect("a number")).collect();
    found.sort_unstable();
    assert_eq!(found, (0..200).collect::<Vec<_>>());
}

#[test]
fn failures_are_counted_with_their_endings() {
    let jobs = ["exit 0", "exit 3", "kill -9 $$", "exit 0"].map(sh);
    let missing = Job::program("no-such-program-at-all", ["x"]);
    let mut ends = Ends::default();
    let source = &mut from_iter(jobs.into_iter().chain([missing]));
    let summary = run(Options::default().slots(1), source, &mut ends, &mut Standard::new()).expect("a run");
    let numbers: Vec<_> = ends.0.iter().map(|(seq, ending, _)| (*seq, *ending)).collect();
    assert_eq!(numbers, [(1, (0, 0)), (2, (3, 0)), (3, (0, 9)), (4, (0, 0)), (5, (127, 0))]);
    assert_eq!((summary.ran, summary.failed, summary.not_started, summary.total), (4, 3, 1, 5));
    assert!(!summary.is_complete());
}

#[test]
fn a_job_is_tried_again_until_it_succeeds() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("tries");
    let script = format!("echo x >> {0}; test $(wc -l < {0}) -ge 3", file.display());
    let mut ends = Ends::default();
    let mut options = Options::default().slots(2);
    options.tries = 5;
    let summary = run(options, &mut from_iter([sh(script)]), &mut ends, &mut Standard::new()).expect("a run");
    assert_eq!((summary.ran, summary.failed), (1, 0));
    assert_eq!(ends.0, [(1, (0, 0), 3)]);
}

/// No more jobs than slots, and the slots have the lowest numbers.
#[test]
fn slots_bound_the_jobs_at_once() {
    struct Peak(usize, usize);
    impl Events for Peak {
        fn started(&mut self, _: &Job, place: JobPlace, _: u32) {
            self.0 += 1;
            assert!(self.0 <= 3 && (1..=3).contains(&place.slot), "{} jobs, slot {}", self.0, place.slot);
            self.1 = self.1.max(self.0);
        }

        fn finished(&mut self, _: &Ended) -> Flow {
            self.0 -= 1;
            Flow::Continue
        }
    }
    let mut peak = Peak(0, 0);
    let jobs = (0..30).map(|_| Job::program("true", [""; 0]));
    run(Options::default().slots(3), &mut from_iter(jobs), &mut peak, &mut Standard::new()).expect("a run");
    assert_eq!(peak.1, 3);
}

/// One job for each line of a descriptor.
struct Lines(Input);

impl JobSource for Lines {
    fn next(&mut self, _: JobPlace) -> io::Result<Next> {
        loop {
            if let Some(end) = self.0.bytes().iter().position(|&byte| byte == b'\n') {
                let line = String::from_utf8_lossy(&self.0.bytes()[..end]).into_owned();
                self.0.consume(end + 1);
                return Ok(Next::Job(sh(line)));
            }
            match self.0.fill()? {
                forkless_jobs::Filled::Data => {}
                forkless_jobs::Filled::Later => return Ok(Next::Later),
                forkless_jobs::Filled::End => return Ok(Next::End),
            }
        }
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// The second line is written only when the first one's job has run.
#[test]
fn jobs_start_as_their_input_comes() {
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let place = tempfile::tempdir().expect("a directory");
    let first = place.path().join("first");
    let line = format!("echo >> {}\n", first.display());
    let feeder = std::thread::spawn(move || {
        writer.write_all(line.as_bytes()).expect("a line");
        let end = Instant::now() + Duration::from_secs(20);
        while !first.exists() && Instant::now() < end {
            std::thread::yield_now();
        }
        writer.write_all(b"exit 3\nexit 0").expect("lines");
        first.exists()
    });
    let summary = run(Options::default().slots(4), &mut Lines(Input::new(reader)), &mut Nothing, &mut Standard::new());
    assert!(feeder.join().expect("the feeder"), "the first job has waited for more input");
    assert_eq!(summary.expect("a run").to_string(), "ran 2, failed 1, skipped 0 of 2");
}

#[test]
fn an_event_stops_the_run_and_the_rest_is_counted() {
    struct Stop;
    impl Events for Stop {
        fn finished(&mut self, ended: &Ended) -> Flow {
            if matches!(ended.ending, Ending::Exited(7)) { Flow::Soon } else { Flow::Continue }
        }
    }
    let jobs = (0..10).map(|n| sh(if n == 4 { "exit 7" } else { "exit 0" }));
    let summary =
        run(Options::default().slots(1), &mut from_iter(jobs), &mut Stop, &mut Standard::new()).expect("a run");
    assert_eq!((summary.ran, summary.unread, summary.stopped), (5, true, Some(Flow::Soon)));
    assert!(!summary.is_complete());
}

#[test]
fn slots_change_while_it_runs() {
    let control = Control::new().expect("a control");
    struct Grow(Control, usize);
    impl Events for Grow {
        fn started(&mut self, _: &Job, place: JobPlace, _: u32) {
            self.1 = self.1.max(place.slot);
        }

        fn finished(&mut self, ended: &Ended) -> Flow {
            if ended.place.seq == 5 {
                self.0.add_slots(3);
            }
            assert!(ended.place.slot == 1 || ended.place.seq > 5);
            Flow::Continue
        }
    }
    let mut options = Options::default().slots(1);
    options.control = Some(control.clone());
    let mut grow = Grow(control, 0);
    let jobs = (0..60).map(|_| Job::program("true", [""; 0]));
    let summary = run(options, &mut from_iter(jobs), &mut grow, &mut Standard::new()).expect("a run");
    assert_eq!((summary.ran, grow.1), (60, 4));
}

/// Keeps the starts that were not withdrawn, and the ends.
#[derive(Default)]
struct Starts(Vec<u64>, Vec<(i32, u32)>);

impl Events for Starts {
    fn started(&mut self, _: &Job, place: JobPlace, _: u32) {
        self.0.push(place.seq);
    }

    fn withdrawn(&mut self, place: JobPlace) {
        assert_eq!(self.0.pop(), Some(place.seq));
    }

    fn finished(&mut self, ended: &Ended) -> Flow {
        self.1.push((ended.ending.numbers().0, ended.tries));
        Flow::Continue
    }
}

/// Whether the program exists is known only when it has been executed, and the run does not wait for that.
#[test]
fn a_line_without_a_program_is_reported_by_the_shell() {
    let place = tempfile::tempdir().expect("a directory");
    let errors = place.path().join("errors");
    let missing = Job::line(format!("/no/such/program x 2>> {}", errors.display()).into_bytes());
    let jobs = [missing, Job::line(b"/bin/true".to_vec()), Job::line(b"/etc/passwd 2> /dev/null".to_vec())];
    let mut starts = Starts::default();
    let summary = run(Options::default().slots(1), &mut from_iter(jobs), &mut starts, &mut Standard::new());
    let summary = summary.expect("a run");
    assert_eq!(summary.to_string(), "ran 3, failed 2, skipped 0 of 3");
    assert_eq!((starts.0, starts.1), (vec![1, 2, 3], vec![(127, 1), (0, 1), (126, 1)]));
    // Once, in the shell's words.
    let reported = lines(&errors);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with("/bin/sh: ") || reported[0].starts_with("sh: "), "{reported:?}");
}

#[test]
fn the_same_again_with_threads() {
    again_with_threads();
}
