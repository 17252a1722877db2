//! Jobs that a thread launches while the run does something else.

testing::usual_surroundings!();

mod common;

use common::threads;
use forkless::Command;
use forkless_core::sys::{
    errno::{EAGAIN, ENOSYS},
    uapi as nr,
};
use forkless_jobs::{
    Control, Ended, Events, Flow, Halt, HaltOn, HaltWhen, Job, JobPlace, Limit, Nothing, Options, Standard, from_iter,
    run,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// `clone(2)`.
const CLONE_THREAD: u64 = 0x1_0000;

fn sh(script: &str) -> Job {
    Job::program("sh", ["-c", script])
}

#[derive(Default)]
struct Ends(Vec<(u64, (i32, i32))>);

impl Events for Ends {
    fn finished(&mut self, ended: &Ended) -> Flow {
        self.0.push((ended.place.seq, ended.ending.numbers()));
        Flow::Continue
    }
}

/// Each launch waits for the other one.
#[test]
fn launches_take_place_beside_each_other() {
    let both = Arc::new(Barrier::new(2));
    let mut options = Options::new(2);
    for _ in 0..2 {
        let both = Arc::clone(&both);
        options.threads.push(Box::new(move |_| {
            both.wait();
        }));
    }
    let jobs = (0..20).map(|_| Job::program("true", [""; 0]));
    let summary = run(options, &mut from_iter(jobs), &mut Nothing, &mut Standard::new()).expect("a run");
    assert_eq!(summary.to_string(), "ran 20, failed 0, skipped 0 of 20");
}

/// A run whose first job fails at once and whose second one is being launched then.
#[test]
fn a_job_that_is_being_launched_when_the_run_ends_is_ended_too() {
    let mut options = Options::new(2);
    options.halt = Some(Halt { when: HaltWhen::Now, on: HaltOn::Fail, limit: Limit::Count(1) });
    options.threads = threads(1);
    options.threads.push(Box::new(|_| thread::sleep(Duration::from_millis(500))));
    let mut ends = Ends::default();
    let jobs = [sh("exit 3"), Job::program("sleep", ["20"])];
    let summary = run(options, &mut from_iter(jobs), &mut ends, &mut Standard::new()).expect("a run");
    assert_eq!((summary.ran, ends.0), (2, vec![(1, (3, 0)), (2, (0, 15))]));
}

/// The signal comes while both jobs are being launched.
#[test]
fn a_job_that_is_being_launched_gets_the_signal() {
    let control = Control::new().expect("a control");
    let mut options = Options::new(2);
    options.control = Some(control.clone());
    let launching = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let (control, launching) = (control.clone(), Arc::clone(&launching));
        options.threads.push(Box::new(move |_| {
            if launching.fetch_add(1, Ordering::SeqCst) == 1 {
                control.signal(10);
            }
            thread::sleep(Duration::from_millis(500));
        }));
    }
    let mut ends = Ends::default();
    let jobs = (0..2).map(|_| Job::program("sleep", ["20"]));
    run(options, &mut from_iter(jobs), &mut ends, &mut Standard::new()).expect("a run");
    ends.0.sort_unstable();
    assert_eq!(ends.0, [(1, (0, 10)), (2, (0, 10))]);
}

/// Nothing else wakes the run: neither when it sleeps already, nor when the answer has come while the source was asked for
/// the next job.
#[test]
fn an_answer_wakes_the_run() {
    for launch in [20, 0].map(Duration::from_millis) {
        let watch = thread::spawn(move || {
            let mut options = Options::new(2);
            options.threads.push(Box::new(move |_| thread::sleep(launch)));
            let mut left = 1;
            let jobs = std::iter::from_fn(move || {
                thread::sleep(Duration::from_millis(10));
                left -= 1;
                (left >= 0).then(|| Job::program("true", [""; 0]))
            });
            run(options, &mut from_iter(jobs), &mut Nothing, &mut Standard::new())
        });
        let begun = Instant::now();
        while !watch.is_finished() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the run sleeps");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(watch.join().expect("a thread").expect("a run").ran, 1);
    }
}

#[test]
fn a_panic_ends_one_job() {
    let mut options = Options::new(2);
    options.threads.push(Box::new(|command: &mut Command| {
        assert!(!format!("{command:?}").contains("exit 1"), "a panic of the caller's function");
    }));
    let mut ends = Ends::default();
    let jobs = [sh("exit 0"), sh("exit 1"), sh("exit 2")];
    let summary = run(options, &mut from_iter(jobs), &mut ends, &mut Standard::new()).expect("a run");
    assert_eq!((summary.ran, summary.not_started), (2, 1));
    ends.0.sort_unstable();
    assert_eq!((ends.0[0], ends.0[2]), ((1, (0, 0)), (3, (2, 0))));
}

/// The next launch waits for a delay from this one.
#[test]
fn launches_with_a_delay_are_made_in_turn() {
    struct Starts(Vec<Instant>);
    impl Events for Starts {
        fn started(&mut self, _: &Job, _: JobPlace, _: u32) {
            self.0.push(Instant::now());
        }

        fn finished(&mut self, _: &Ended) -> Flow {
            Flow::Continue
        }
    }
    let mut options = Options::new(4);
    options.delay = Duration::from_millis(400);
    options.threads = threads(4);
    let mut starts = Starts(Vec::new());
    let jobs = (0..4).map(|_| Job::program("true", [""; 0]));
    run(options, &mut from_iter(jobs), &mut starts, &mut Standard::new()).expect("a run");
    let shortest = starts.0.windows(2).map(|two| two[1] - two[0]).min().expect("four");
    // A stopped machine may notice one start late.
    assert!(shortest >= Duration::from_millis(200), "{shortest:?}");
}

/// A filter refuses new threads, as a limit of processes does. It stays with the thread that has made it.
#[test]
fn where_no_thread_can_be_started_the_runs_own_thread_launches() {
    let watch = thread::spawn(|| {
        let wants_thread =
            SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(CLONE_THREAD), CLONE_THREAD);
        let rule = SeccompRule::new(vec![wants_thread.expect("a condition")]).expect("a rule");
        // The flags of clone3(2) are in memory, where a filter cannot see them; without it, clone(2) is used.
        for (call, rules, errno) in [(nr::__NR_clone3, vec![], ENOSYS), (nr::__NR_clone, vec![rule], EAGAIN)] {
            let architecture = std::env::consts::ARCH.try_into().expect("an architecture");
            let rules = [(i64::from(call), rules)].into();
            let filter =
                SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), architecture);
            let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
            seccompiler::apply_filter(&program).expect("a filter");
        }
        assert!(thread::Builder::new().spawn(|| ()).is_err(), "the filter is not felt");
        let mut options = Options::new(2);
        options.threads = threads(2);
        let jobs = (0..20).map(|_| Job::program("true", [""; 0]));
        run(options, &mut from_iter(jobs), &mut Nothing, &mut Standard::new())
    });
    let summary = watch.join().expect("a thread").expect("a run");
    assert_eq!(summary.to_string(), "ran 20, failed 0, skipped 0 of 20");
}
