//! Limits of time and of the kernel's resources, the log, and what is left when a run ends early.

testing::usual_surroundings!();

mod common;

use common::{again_with_threads, run};
use forkless_jobs::{
    Done, Ended, Ending, Events, Flow, Halt, HaltOn, HaltWhen, Job, Limit, Log, Nothing, Options, Output, Standard,
    Summary, Timeout, from_iter,
};
use std::time::Duration;

fn sh(script: impl AsRef<str>) -> Job {
    Job::program("sh", ["-c", script.as_ref()])
}

#[derive(Default)]
struct Ends(Vec<(u64, (i32, i32), bool)>);

impl Events for Ends {
    fn finished(&mut self, ended: &Ended) -> Flow {
        self.0.push((ended.place.seq, ended.ending.numbers(), ended.timed_out));
        Flow::Continue
    }
}

fn run_all(options: Options, jobs: impl IntoIterator<Item = Job>) -> (Summary, Ends) {
    let mut ends = Ends::default();
    let summary = run(options, &mut from_iter(jobs), &mut ends, &mut Standard::new()).expect("a run");
    (summary, ends)
}

/// The shell, which ignores SIGTERM, and its child, which waits with it.
#[test]
fn a_timeout_ends_the_whole_group() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("pid");
    let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; wait; wait; sleep 1000", file.display());
    let mut options = Options::default().slots(2);
    options.groups = true;
    options.timeout = Some(Timeout::After(Duration::from_millis(500)));
    options.termination = vec![(15, Duration::from_millis(50)), (9, Duration::ZERO)];
    let (summary, ends) = run_all(options, [sh(script), sh("exit 0")]);
    assert_eq!((summary.ran, summary.failed), (2, 1));
    assert_eq!(ends.0, [(2, (0, 0), false), (1, (0, 9), true)]);
    let child: i32 = std::fs::read_to_string(file).expect("a pid").trim().parse().expect("a number");
    // The signal has been sent. The process may take a moment to go.
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit(')').next().unwrap_or_default().trim().chars().next()
    };
    while !matches!(state(), None | Some('Z' | 'X')) {
        std::thread::yield_now();
    }
}

/// The shell ends at SIGTERM; what it has started ignores that, and is killed.
#[test]
fn nothing_of_a_group_is_left_when_its_leader_ends_first() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut options = Options::default().slots(1);
    options.groups = true;
    options.timeout = Some(Timeout::After(Duration::from_millis(300)));
    let mut writer = Some(writer);
    options.setup = Some(Box::new(move |command, _| {
        command.fd(writer.take().expect("one job"), 5);
    }));
    let (summary, _) = run_all(options, [sh("(trap '' TERM; sleep 1000) & wait")]);
    assert_eq!(summary.failed, 1);
    // The last process that has the pipe is gone.
    assert_eq!(std::io::read_to_string(reader).expect("the end"), "");
}

#[test]
fn a_job_that_stops_itself_is_ended_by_the_timeout() {
    // On a busy machine, SIGTERM may end it before it has stopped.
    let ended_in = |seconds: f64| {
        let mut options = Options::default().slots(1);
        options.timeout = Some(Timeout::After(Duration::from_secs_f64(seconds)));
        let (summary, ends) = run_all(options, [sh("kill -STOP $$"), sh("exit 0")]);
        assert_eq!((summary.ran, ends.0[0].2), (2, true));
        ends.0[0].1
    };
    let ends: Vec<_> = [0.2, 2.0, 10.0].into_iter().map(ended_in).take_while(|end| *end != (0, 9)).collect();
    assert!(ends.len() < 3, "SIGKILL has not ended it: {ends:?}");
}

#[test]
fn a_timeout_in_percent_follows_the_median() {
    let mut options = Options::default().slots(1);
    options.timeout = Some(Timeout::Percent(300.0));
    let jobs = ["sleep 0.1", "sleep 0.1", "sleep 0.1", "sleep 60", "exit 0"].map(sh);
    let (summary, ends) = run_all(options, jobs);
    assert_eq!((summary.ran, summary.failed), (5, 1));
    assert!(ends.0[3].2);
}

/// Both wait for their second try. The first one ends at once, and with it the run.
#[test]
fn no_job_that_waits_is_launched_after_the_run_has_halted() {
    let launches = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = launches.clone();
    let mut options = Options::default().slots(2);
    options.tries = 2;
    options.halt = Some(Halt { when: HaltWhen::Soon, on: HaltOn::Fail, limit: Limit::Count(1) });
    options.setup = Some(Box::new(move |_, _| counted.set(counted.get() + 1)));
    // A NUL is refused before any launch. Threads would launch both at once.
    let mut source = from_iter((0..2).map(|_| Job::program("no\0program", [""; 0])));
    let mut ends = Ends::default();
    let summary = forkless_jobs::run(options, &mut source, &mut ends, &mut Standard::new()).expect("a run");
    assert_eq!((summary.not_started, summary.skipped, ends.0.len(), launches.get()), (1, 1, 1, 3), "{summary:?}");
}

/// No clock reaches them. The run that is delayed is stopped.
#[test]
fn times_that_never_come_are_no_error() {
    for timeout in
        [Timeout::After(Duration::MAX), Timeout::After(Duration::from_secs(1 << 62)), Timeout::Percent(1e300)]
    {
        let mut options = Options::default().slots(1);
        options.timeout = Some(timeout);
        let (summary, _) = run_all(options, (0..5).map(|_| sh("exit 0")));
        assert!(summary.is_success() && summary.ran == 5, "{summary:?}");
    }
    struct Stop(forkless_jobs::Control);
    impl Events for Stop {
        fn finished(&mut self, _: &Ended) -> Flow {
            self.0.stop_soon();
            Flow::Continue
        }
    }
    let control = forkless_jobs::Control::new().expect("a control");
    let mut options = Options::default().slots(1);
    options.delay = Duration::MAX;
    options.control = Some(control.clone());
    let mut source = from_iter((0..2).map(|_| sh("exit 0")));
    let summary = run(options, &mut source, &mut Stop(control), &mut Standard::new()).expect("a run");
    assert_eq!(summary.ran, 1, "{summary:?}");
}

#[test]
fn a_run_halts_at_its_limit() {
    let halt = |when, on, limit| Some(Halt { when, on, limit });
    let scripts = ["exit 0", "exit 3", "exit 0", "exit 4", "exit 0", "exit 5"];
    let cases = [
        (halt(HaltWhen::Soon, HaltOn::Fail, Limit::Count(2)), 4, Some((4, 0))),
        (halt(HaltWhen::Now, HaltOn::Success, Limit::Count(2)), 3, Some((0, 0))),
        (halt(HaltWhen::Now, HaltOn::Done, Limit::Count(5)), 5, Some((0, 0))),
        (halt(HaltWhen::Now, HaltOn::Fail, Limit::Count(4)), 6, None),
        // The number of jobs of an iterator is not known.
        (halt(HaltWhen::Now, HaltOn::Fail, Limit::Percent(1.0)), 6, None),
    ];
    for (halt, ran, by) in cases {
        let mut options = Options::default().slots(1);
        options.halt = halt;
        let (summary, _) = run_all(options, scripts.map(sh));
        assert_eq!((summary.ran, summary.halted_by), (ran, by), "{halt:?}");
        assert_eq!(summary.is_complete(), ran == 6, "{halt:?}");
    }
}

#[test]
fn halt_now_ends_the_jobs_that_run() {
    let mut options = Options::default().slots(3);
    options.groups = true;
    options.halt = Some(Halt { when: HaltWhen::Now, on: HaltOn::Fail, limit: Limit::Count(1) });
    let (summary, ends) = run_all(options, ["sleep 60", "sleep 60", "sleep 0.1; exit 3"].map(sh));
    assert_eq!((summary.ran, summary.failed, summary.halted_by), (3, 3, Some((3, 0))));
    assert_eq!(ends.0[0].1, (3, 0));
    assert!(ends.0[1..].iter().all(|end| end.1 == (0, 15)), "{:?}", ends.0);
}

#[test]
fn a_log_has_a_line_for_each_job_and_a_second_run_does_the_rest() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let jobs = || ["exit 0", "exit 3", "echo a\necho b", "kill -9 $$", "exit 0"].map(sh);
    let mut options = Options::default().slots(1).output(Output::Group);
    options.log = Some(Log::create(&path).expect("a log"));
    options.halt = Some(Halt { when: HaltWhen::Soon, on: HaltOn::Done, limit: Limit::Count(4) });
    run_all(options, jobs());
    let text = std::fs::read_to_string(&path).expect("the log");
    let columns: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(columns[0].join(" "), "Seq Host Starttime JobRuntime Send Receive Exitval Signal Command");
    let found: Vec<_> = columns[1..].iter().map(|of| (of[0], of[1], of[4], of[5], of[6], of[7], of[8])).collect();
    assert_eq!(
        found,
        [
            ("1", ":", "0", "0", "0", "0", "sh -c exit 0"),
            ("2", ":", "0", "0", "3", "0", "sh -c exit 3"),
            ("3", ":", "0", "4", "0", "0", "sh -c echo a\0echo b"),
            ("4", ":", "0", "0", "0", "9", "sh -c kill -9 $$"),
        ]
    );
    for (succeeded, expected) in [(false, vec![5]), (true, vec![2, 4])] {
        let mut options = Options::default().slots(1);
        options.done = Done::read(&path, succeeded).expect("the log");
        options.log = Some(Log::append(&path).expect("the log"));
        let (summary, ends) = run_all(options, jobs());
        assert_eq!(ends.0.iter().map(|end| end.0).collect::<Vec<_>>(), expected);
        assert_eq!(summary.done_before, 5 - expected.len() as u64);
        assert!(summary.is_complete());
    }
}

/// As with GNU parallel: they run again with the same log. One that still succeeds is done.
#[test]
fn jobs_that_the_end_of_the_run_cuts_short_are_not_in_the_log() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let mut options = Options::default().slots(3);
    options.groups = true;
    options.log = Some(Log::create(&path).expect("a log"));
    options.halt = Some(Halt { when: HaltWhen::Now, on: HaltOn::Fail, limit: Limit::Count(1) });
    let ready = place.path().join("ready");
    let orderly = format!("trap 'exit 0' TERM; touch {0}; while :; do sleep 0.01; done", ready.display());
    let failing = format!("until test -e {}; do sleep 0.01; done; exit 3", ready.display());
    run_all(options, ["sleep 60", &orderly, &failing].map(sh));
    let text = std::fs::read_to_string(&path).expect("the log");
    let mut logged: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    logged.sort_unstable();
    assert_eq!(logged, ["2", "3"], "{text}");
}

#[test]
fn a_timeout_is_minus_one_in_the_log() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let mut options = Options::default().slots(1);
    options.timeout = Some(Timeout::After(Duration::from_millis(50)));
    options.log = Some(Log::create(&path).expect("a log").host("shard-3"));
    run_all(options, [Job::program("sleep", ["60"])]);
    let text = std::fs::read_to_string(&path).expect("the log");
    let columns: Vec<&str> = text.lines().nth(1).expect("a line").split('\t').collect();
    assert_eq!((columns[1], columns[6], columns[7]), ("shard-3", "-1", "15"));
}

/// `/dev/full` takes nothing: the jobs run all the same, and the run tells at its end.
#[test]
fn a_full_disk_under_the_log_loses_no_job() {
    let mut options = Options::default().slots(2);
    options.log = Some(Log::append("/dev/full").expect("a log"));
    let (summary, ends) = run_all(options, (0..20).map(|_| sh("exit 0")));
    assert_eq!((summary.ran, summary.failed, ends.0.len()), (20, 0, 20));
    assert!(summary.errors.len() == 1 && !summary.is_success(), "{summary:?}");
}

#[test]
fn a_delay_separates_the_launches() {
    struct Starts(Vec<std::time::Instant>);
    impl Events for Starts {
        fn started(&mut self, _: &Job, _: forkless_jobs::JobPlace, _: u32) {
            self.0.push(std::time::Instant::now());
        }
    }
    let mut options = Options::default().slots(4);
    options.delay = Duration::from_millis(30);
    let mut starts = Starts(Vec::new());
    run(options, &mut from_iter((0..4).map(|_| sh("exit 0"))), &mut starts, &mut Standard::new()).expect("a run");
    assert!(starts.0.windows(2).all(|two| two[1] - two[0] >= Duration::from_millis(30)), "{:?}", starts.0);
}

/// It would wait for an hour.
#[test]
fn a_delay_ends_with_the_last_job() {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut options = Options::default().slots(4);
        options.delay = Duration::from_secs(3600);
        let (summary, ends) = run_all(options, [sh("exit 0")]);
        let _ = send.send((summary.ran, summary.failed, ends.0.len()));
    });
    assert_eq!(receive.recv_timeout(Duration::from_secs(15)), Ok((1, 0, 1)), "it waits after the last job");
}

#[test]
fn the_end_of_a_source_that_fails_is_reported() {
    struct Broken(u32);
    impl forkless_jobs::JobSource for Broken {
        fn next(&mut self, _: forkless_jobs::JobPlace) -> std::io::Result<forkless_jobs::Next> {
            self.0 += 1;
            if self.0 < 4 { Ok(forkless_jobs::Next::Job(sh("exit 0"))) } else { Err(std::io::Error::other("broken")) }
        }
    }
    let options = Options::default().slots(1);
    let summary = run(options, &mut Broken(0), &mut Nothing, &mut Standard::new()).expect("a run");
    assert_eq!((summary.ran, summary.unread, summary.errors.len()), (3, true, 1));
    assert!(!summary.is_success());
}

/// A program that is missing is tried as often as one that fails.
#[test]
fn a_missing_program_is_tried_again() {
    struct Tries(u32, u32);
    impl Events for Tries {
        fn retried(&mut self, _: &Ended) {
            self.0 += 1;
        }

        fn finished(&mut self, ended: &Ended) -> Flow {
            assert!(matches!(ended.ending, Ending::NotStarted(_)));
            self.1 = ended.tries;
            Flow::Continue
        }
    }
    let mut options = Options::default().slots(1);
    options.tries = 3;
    let mut tries = Tries(0, 0);
    let jobs = [Job::program("no-such-program-at-all", [""; 0])];
    run(options, &mut from_iter(jobs), &mut tries, &mut Standard::new()).expect("a run");
    assert_eq!((tries.0, tries.1), (2, 3));
}

/// With more memory demanded than any machine has, no job starts until the run is stopped.
#[test]
fn no_job_starts_while_memory_is_short_or_the_load_is_high() {
    let limits: [fn(&mut Options); 2] =
        [|options| options.min_memory = Some(u64::MAX), |options| options.max_load = Some(-1.0)];
    for limit in limits {
        struct Stop(forkless_jobs::Control);
        impl Events for Stop {
            fn started(&mut self, _: &Job, _: forkless_jobs::JobPlace, _: u32) {
                panic!("a job was launched");
            }

            fn tick(&mut self, _: &forkless_jobs::Progress) {
                self.0.stop_soon();
            }
        }
        let control = forkless_jobs::Control::new().expect("a control");
        let mut options = Options::default();
        limit(&mut options);
        options.control = Some(control.clone());
        options.tick = Some(Duration::from_millis(400));
        let source = &mut from_iter([sh("exit 0")]);
        let summary = run(options, source, &mut Stop(control), &mut Standard::new()).expect("a run");
        assert_eq!((summary.ran, summary.unread), (0, true));
    }
}

/// A user that may have one process, and has it: whatever else it is to execute fails with EAGAIN.
struct Crowded(forkless::Child);

impl Crowded {
    const USER: u32 = 200_001;

    fn set(options: &mut Options) -> Self {
        let mut first = forkless::Command::new("sleep");
        let first = first.arg("1000").uid(Self::USER).gid(Self::USER).spawn().expect("sleep");
        options.setup = Some(Box::new(|command, _| {
            command.rlimit(forkless::Resource::Processes, 0, 0).uid(Self::USER).gid(Self::USER);
        }));
        Self(first)
    }
}

impl Drop for Crowded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: {test}: only root can start a job as another user");
    }
    is_root
}

#[test]
fn a_job_that_waits_for_the_kernel_is_skipped_when_the_run_is_stopped() {
    struct Stop(forkless_jobs::Control);
    impl Events for Stop {
        fn tick(&mut self, _: &forkless_jobs::Progress) {
            self.0.stop_soon();
        }
    }
    if !is_root("a_job_that_waits_for_the_kernel_is_skipped_when_the_run_is_stopped") {
        return;
    }
    let control = forkless_jobs::Control::new().expect("a control");
    let mut options = Options::default().slots(3);
    let _crowded = Crowded::set(&mut options);
    options.control = Some(control.clone());
    options.tick = Some(Duration::from_millis(300));
    let source = &mut from_iter([Job::program("true", [""; 0])]);
    let summary = run(options, source, &mut Stop(control), &mut Standard::new()).expect("a run");
    assert_eq!((summary.ran, summary.skipped, summary.total), (0, 1, 1), "{summary:?}");
    assert!(!summary.is_complete());
}

/// A filter that answers `execve(2)` with EAGAIN, as the kernel does where a user has too many processes.
fn refuses_to_execute() -> [forkless::BpfInstruction; 4] {
    const EAGAIN: u32 = 11;
    let execve = if cfg!(target_arch = "x86_64") { 59 } else { 221 };
    let instruction = |code, jt, jf, k| forkless::BpfInstruction { code, jt, jf, k };
    [
        // The number of the call; the next instruction decides for one of the last two.
        instruction(0x20, 0, 0, 0),
        instruction(0x15, 0, 1, execve),
        instruction(0x06, 0, 0, 0x0005_0000 | EAGAIN),
        instruction(0x06, 0, 0, 0x7fff_0000),
    ]
}

/// The kernel refuses to execute the program, after the job's standard input has been written. A pipe holds the first input;
/// it does not hold the second one.
#[test]
fn a_job_that_the_kernel_refused_late_gets_its_whole_input() {
    let place = tempfile::tempdir().expect("a directory");
    for (count, tries) in [(3, 1), (1_000_000, 1), (3, 2), (1_000_000, 2)] {
        let file = place.path().join("count");
        let out = std::fs::File::create(&file).expect("a file");
        let launches = std::rc::Rc::new(std::cell::Cell::new(0));
        let counted = launches.clone();
        let mut options = Options::default().slots(1);
        options.setup = Some(Box::new(move |command, _| {
            if counted.get() == 0 {
                command.no_new_privs(true).seccomp(refuses_to_execute());
            }
            counted.set(counted.get() + 1);
            command.stdout(out.try_clone().expect("a file"));
        }));
        options.tries = tries;
        let mut job = Job::program("wc", ["-c"]);
        job.stdin = forkless_jobs::Stdin::Bytes(vec![b'x'; count]);
        let (summary, ends) = run_all(options, [job]);
        assert!(summary.is_success(), "{summary:?}");
        assert_eq!((launches.get(), ends.0.len()), (2, 1), "the kernel refuses the first launch");
        assert_eq!(std::fs::read_to_string(&file).expect("a file").trim(), count.to_string());
    }
}

#[test]
fn a_job_that_the_kernel_never_starts_ends_the_run_and_is_counted() {
    if !is_root("a_job_that_the_kernel_never_starts_ends_the_run_and_is_counted") {
        return;
    }
    let mut options = Options::default().slots(3);
    let _crowded = Crowded::set(&mut options);
    options.patience = Duration::from_millis(300);
    let (summary, ends) = run_all(options, (0..4).map(|_| Job::program("true", [""; 0])));
    assert_eq!((summary.ran, summary.not_started, summary.failed, summary.unread), (0, 1, 1, true), "{summary:?}");
    assert_eq!(ends.0.iter().map(|end| end.1).collect::<Vec<_>>(), [(126, 0)]);
    assert!(!summary.is_complete());
}

/// The shell waits for its child, which alone ends at the signal.
#[test]
fn the_end_of_a_run_is_signalled_to_the_whole_group() {
    struct Stop(forkless_jobs::Control, std::path::PathBuf, Ends);
    impl Events for Stop {
        fn tick(&mut self, _: &forkless_jobs::Progress) {
            if self.1.exists() {
                self.0.stop_now();
            }
        }

        fn finished(&mut self, ended: &Ended) -> Flow {
            self.2.finished(ended)
        }
    }
    let place = tempfile::tempdir().expect("a directory");
    let up = place.path().join("up");
    let child = format!("trap 'exit 0' TERM; touch {}; while :; do sleep 0.01; done", up.display());
    let script = format!("trap : TERM; ({child}) & wait; wait; exit 7");
    let control = forkless_jobs::Control::new().expect("a control");
    let mut options = Options::default().slots(1);
    options.groups = true;
    options.control = Some(control.clone());
    options.tick = Some(Duration::from_millis(10));
    // The second signal only ends a test that has failed.
    options.termination = vec![(15, Duration::from_secs(40)), (9, Duration::ZERO)];
    let mut events = Stop(control, up, Ends::default());
    run(options, &mut from_iter([sh(script)]), &mut events, &mut Standard::new()).expect("a run");
    assert_eq!(events.2.0, [(1, (7, 0), false)]);
}

#[test]
fn the_same_again_with_threads() {
    again_with_threads();
}
