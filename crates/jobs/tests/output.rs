//! Captured output: its order, its bounds, and jobs that make it difficult.

testing::usual_surroundings!();

mod common;

use common::{again_with_threads, run};
use forkless_jobs::{
    Control, Done, Ended, Events, Flow, Job, Log, Nothing, Options, Output, Sink, Stdin, Stream, Summary, from_iter,
};
use std::io;
use std::time::Duration;

fn sh(script: impl AsRef<str>) -> Job {
    Job::program("sh", ["-c", script.as_ref()])
}

/// Keeps what is written, and in which order jobs have been written.
#[derive(Default)]
struct Collect {
    pieces: Vec<(u64, bool, Vec<u8>)>,
    written: Vec<u64>,
}

impl Collect {
    fn text(&self, err: bool) -> String {
        let bytes = self.pieces.iter().filter(|piece| piece.1 == err).flat_map(|piece| piece.2.clone()).collect();
        String::from_utf8(bytes).expect("UTF-8")
    }
}

impl Sink for Collect {
    fn write(&mut self, seq: u64, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.pieces.push((seq, stream == Stream::Err, bytes.to_vec()));
        Ok(())
    }

    fn written(&mut self, ended: &Ended) -> io::Result<()> {
        self.written.push(ended.place.seq);
        Ok(())
    }
}

fn collect(options: Options, jobs: impl IntoIterator<Item = Job>) -> (Summary, Collect) {
    let mut sink = Collect::default();
    let summary = run(options, &mut from_iter(jobs), &mut Nothing, &mut sink).expect("a run");
    (summary, sink)
}

fn ordered(slots: usize) -> Options {
    let mut options = Options::default().slots(slots).output(Output::Group);
    options.keep_order = true;
    options
}

/// Sizes from nothing to more than a pipe and the memory for output, the first jobs being the slowest.
#[test]
fn output_comes_in_order_whatever_its_size() {
    let sizes: Vec<usize> = (0..120).map(|n| [0, 1, 10, 4096, 65_536, 65_537, 300_000, 7][n % 8]).collect();
    let job = |(n, size): (usize, &usize)| {
        let pause = if n.is_multiple_of(16) { "sleep 0.05; " } else { "" };
        sh(format!("{pause}printf '%s\\n' {n}; head -c {size} /dev/zero | tr '\\0' x; echo; echo e{n} >&2"))
    };
    let mut options = ordered(8);
    options.memory = 100_000;
    let (summary, sink) = collect(options, sizes.iter().enumerate().map(job));
    assert!(summary.is_success(), "{summary:?}");
    assert_eq!(sink.written, (1..=120).collect::<Vec<_>>());
    let expected: String = sizes.iter().enumerate().map(|(n, &size)| format!("{n}\n{}\n", "x".repeat(size))).collect();
    assert!(sink.text(false) == expected);
    assert_eq!(sink.text(true), (0..120).map(|n| format!("e{n}\n")).collect::<String>());
}

/// A few jobs may be ahead of the slow one, and no more.
#[test]
fn the_window_bounds_how_far_jobs_run_ahead() {
    struct Ahead {
        first_ended: bool,
        ended: usize,
    }
    impl Events for Ahead {
        fn finished(&mut self, ended: &Ended) -> Flow {
            self.first_ended |= ended.place.seq == 1;
            self.ended += 1;
            assert!(self.first_ended || self.ended <= 6, "{} jobs have ended before the first", self.ended);
            Flow::Continue
        }
    }
    let mut options = ordered(2);
    options.window = 5;
    let jobs = (0..30).map(|n| sh(if n == 0 { "sleep 0.3; echo 0".to_owned() } else { format!("echo {n}") }));
    let mut sink = Collect::default();
    let mut events = Ahead { first_ended: false, ended: 0 };
    let summary = run(options, &mut from_iter(jobs), &mut events, &mut sink).expect("a run");
    assert!(summary.is_success());
    assert_eq!(sink.text(false), (0..30).map(|n| format!("{n}\n")).collect::<String>());
}

#[test]
fn without_order_the_output_of_a_job_is_in_one_piece() {
    let jobs = (0..20).map(|n| sh(format!("for i in 1 2 3; do echo {n}; done; echo {n} >&2")));
    let (summary, sink) = collect(Options::default().slots(4).output(Output::Group), jobs);
    assert!(summary.is_success());
    let lines: Vec<String> = sink.text(false).lines().map(str::to_owned).collect();
    assert!(lines.chunks(3).all(|three| three.iter().all(|line| *line == three[0])), "{lines:?}");
    assert_eq!(lines.len(), 60);
}

/// The job is over although a process that it has left behind holds its output open, and writes for ever.
#[test]
fn a_job_ends_with_its_process_whoever_holds_its_output() {
    let script = "echo first; (trap '' PIPE; while echo more 2>/dev/null; do :; done) & echo last; kill -9 $$";
    let (summary, sink) = collect(ordered(1), [sh(script), sh("sleep 60 & echo second")]);
    assert_eq!((summary.ran, summary.failed), (2, 1));
    let text = sink.text(false);
    assert!(text.starts_with("first\n") && text.contains("last\n") && text.ends_with("second\n"), "{text}");
}

/// What comes from another process when the job's own one has been reaped, as from bash's `exec > >(tee log)`.
#[test]
fn output_that_comes_after_the_end_of_a_job_is_read_within_the_linger() {
    let late =
        |to: &str| format!("(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo late {to}) & echo first; exit 3");
    for output in [Output::Group, Output::Lines] {
        let mut options = ordered(2).output(output);
        options.linger = Duration::from_secs(60);
        let (summary, sink) = collect(options, [sh(late("")), sh(late(">&2")), sh("echo second")]);
        assert_eq!((summary.ran, summary.failed), (3, 2));
        assert_eq!((sink.text(false).as_str(), sink.text(true).as_str()), ("first\nlate\nfirst\nsecond\n", "late\n"));
    }
    let mut options = ordered(1);
    options.linger = Duration::ZERO;
    let (_, sink) = collect(options, [sh("echo first; sleep 60 &")]);
    assert_eq!(sink.text(false), "first\n");
}

/// A stop at once, as by a second SIGTERM, does not wait for it.
#[test]
fn a_stop_at_once_ends_the_linger() {
    struct Stop(Control);
    impl Events for Stop {
        fn tick(&mut self, _: &forkless_jobs::Progress) {
            self.0.stop_now();
        }
    }
    let control = Control::new().expect("a control");
    let mut options = ordered(1);
    (options.linger, options.tick) = (Duration::from_secs(600), Some(Duration::from_millis(300)));
    options.control = Some(control.clone());
    let (mut events, mut sink) = (Stop(control), Collect::default());
    let summary = run(options, &mut from_iter([sh("sleep 60 & echo first")]), &mut events, &mut sink).expect("a run");
    assert_eq!((summary.ran, sink.text(false).as_str()), (1, "first\n"));
}

#[test]
fn a_job_that_closes_its_output_is_waited_for() {
    let (summary, sink) =
        collect(ordered(2), [sh("echo a; exec >&- 2>&-; sleep 0.1; exit 3"), sh("printf 'half\\0line'")]);
    assert_eq!((summary.ran, summary.failed), (2, 1));
    assert_eq!(sink.text(false), "a\nhalf\0line");
}

#[test]
fn tags_come_before_each_line() {
    let mut jobs: Vec<Job> = ["echo one; echo two", "printf three"].map(sh).into();
    jobs[0].tag = b"A\t".to_vec();
    jobs[1].tag = b"B\t".to_vec();
    jobs[1].head = b"the second:\n".to_vec();
    let (_, sink) = collect(ordered(2), jobs);
    assert_eq!(sink.text(false), "A\tone\nA\ttwo\nthe second:\nB\tthree");
}

/// Half lines of two jobs that write in turn never mix.
#[test]
fn lines_come_whole_and_as_they_are_written() {
    let place = tempfile::tempdir().expect("a directory");
    let turn = place.path().display().to_string();
    let wait = |name: &str| format!("until test -e {turn}/{name}; do sleep 0.01; done");
    let one = format!("printf 'one '; touch {turn}/a; {}; echo more; echo last >&2; touch {turn}/c", wait("b"));
    let two = format!("{}; printf 'two '; touch {turn}/b; {}; printf 'end'", wait("a"), wait("c"));
    let (summary, sink) = collect(Options::default().slots(2).output(Output::Lines), [sh(one), sh(two)]);
    assert!(summary.is_success());
    assert_eq!((sink.text(false).as_str(), sink.text(true).as_str()), ("one more\ntwo end", "last\n"));
}

/// The job that is due writes at once; the other one's lines wait, and come when the first one has ended.
#[test]
fn lines_in_order_wait_only_for_earlier_jobs() {
    struct Wait<'a>(Collect, &'a std::path::Path);
    impl Sink for Wait<'_> {
        fn write(&mut self, seq: u64, stream: Stream, bytes: &[u8]) -> io::Result<()> {
            if self.0.text(false).is_empty() {
                std::fs::write(self.1, "").expect("a mark");
            }
            self.0.write(seq, stream, bytes)
        }
    }
    let place = tempfile::tempdir().expect("a directory");
    let mark = place.path().join("written");
    let first = format!("echo first; until test -e {}; do sleep 0.01; done; echo rest", mark.display());
    let mut options = ordered(2).output(Output::Lines);
    options.keep_order = true;
    let mut sink = Wait(Collect::default(), &mark);
    let jobs = [sh(first), sh("echo second; printf third")];
    let summary = run(options, &mut from_iter(jobs), &mut Nothing, &mut sink).expect("a run");
    assert!(summary.is_success());
    assert_eq!(sink.0.text(false), "first\nrest\nsecond\nthird");
}

#[test]
fn a_job_reads_what_it_is_given() {
    let bytes = |n: usize| (0..n).map(|n| b'a' + (n % 23) as u8).collect::<Vec<_>>();
    let sizes = [0, 10, 65_536, 1_000_000];
    let jobs = sizes.map(|size| Job { stdin: Stdin::Bytes(bytes(size)), ..sh("cat; echo") });
    // It wants none of it.
    let deaf = Job { stdin: Stdin::Bytes(bytes(1_000_000)), ..sh("echo deaf") };
    let (summary, sink) = collect(ordered(3), jobs.into_iter().chain([deaf]));
    assert!(summary.is_success(), "{summary:?}");
    let expected: Vec<u8> = sizes.iter().flat_map(|&size| [bytes(size), b"\n".to_vec()].concat()).collect();
    assert!(sink.text(false).into_bytes() == [expected, b"deaf\n".to_vec()].concat());
}

#[test]
fn results_are_kept_in_files_too() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("deep/er");
    let job = Job { results: Some(directory.clone()), tag: b"t\t".to_vec(), ..sh("echo out; echo err >&2") };
    let (summary, sink) = collect(ordered(1), [job]);
    assert!(summary.is_success());
    assert_eq!(sink.text(false), "t\tout\n");
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect("a file");
    assert_eq!((read("stdout").as_str(), read("stderr").as_str(), read("seq").as_str()), ("out\n", "err\n", "1"));
}

/// The output of the tries that failed does not come.
#[test]
fn only_the_last_try_is_heard() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("tries").display().to_string();
    let script = format!("echo x >> {file}; wc -l < {file}; test $(wc -l < {file}) -ge 3");
    let mut options = ordered(2);
    options.tries = 4;
    let (summary, sink) = collect(options, [sh(script), sh("echo other")]);
    assert_eq!((summary.ran, summary.failed), (2, 0));
    assert_eq!(sink.text(false), "3\nother\n");
}

#[test]
fn a_dry_run_shows_the_jobs_and_runs_none() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("ran").display().to_string();
    let mut options = ordered(2);
    options.dry_run = true;
    let (summary, sink) = collect(options, (0..500).map(|n| sh(format!("echo {n} > {file}"))));
    assert_eq!(summary.total, 500);
    let expected: String = (0..500).map(|n| format!("sh -c echo {n} > {file}\n")).collect();
    assert_eq!(sink.text(false), expected);
    assert!(!std::path::Path::new(&file).exists());
}

/// A sink that is closed ends the run, and the jobs with it.
#[test]
fn a_closed_sink_ends_the_run() {
    struct Closed;
    impl Sink for Closed {
        fn write(&mut self, _: u64, _: Stream, _: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let mut options = ordered(2).output(Output::Group);
    options.groups = true;
    let jobs = [sh("echo x"), sh("sleep 60"), sh("sleep 60")];
    let summary = run(options, &mut from_iter(jobs), &mut Nothing, &mut Closed).expect("a run");
    assert_eq!(summary.stopped, Some(Flow::Now));
    assert_eq!(summary.errors.len(), 1);
    assert!(!summary.is_success());
}

/// Output that a full disk has not taken: a later run with the same log must run its job again.
#[test]
fn a_job_whose_output_cannot_be_written_is_not_in_the_log() {
    /// Takes the output of the first job only.
    #[derive(Default)]
    struct Full(Vec<u8>);
    impl Sink for Full {
        fn write(&mut self, _: u64, _: Stream, bytes: &[u8]) -> io::Result<()> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
        fn flush(&mut self) -> io::Result<()> {
            match std::mem::take(&mut self.0).as_slice() {
                b"2\n" => Err(io::ErrorKind::StorageFull.into()),
                _ => Ok(()),
            }
        }
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let mut options = ordered(1).output(Output::Group);
    options.log = Some(Log::create(&path).expect("a log"));
    let jobs = (1..=9).map(|n| sh(format!("echo {n}")));
    let summary = run(options, &mut from_iter(jobs), &mut Nothing, &mut Full::default()).expect("a run");
    assert_eq!((summary.stopped, summary.errors.len()), (Some(Flow::Soon), 1), "{summary:?}");
    let done = Done::read(&path, false).expect("the log");
    assert_eq!((1..=9).filter(|&seq| done.contains(seq)).collect::<Vec<_>>(), [1]);
}

/// A temporary file that cannot be made: nothing is lost, no further job starts, and the run tells.
#[test]
fn output_without_a_place_is_kept_and_reported() {
    let mut options = ordered(2);
    (options.memory, options.temporary) = (10, "/no/such/directory".into());
    let jobs = (0..50).map(|n| sh(format!("{}head -c 100000 /dev/zero", if n == 0 { "sleep 0.3;" } else { "" })));
    let (summary, sink) = collect(options, jobs);
    assert_eq!(sink.text(false).len() as u64, summary.ran * 100_000);
    assert!(summary.ran < 50 && !summary.is_complete() && summary.errors.len() == 1, "{summary:?}");
}

/// Lines of 50,000 bytes, which are read in pieces.
#[test]
fn lines_without_a_place_are_kept_and_those_that_are_due_need_none() {
    const SCRIPT: &str = "for n in 1 2 3 4 5 6 7 8 9; do printf '%050000d\\n' $n; done";
    let place = tempfile::tempdir().expect("a directory");
    let mark = place.path().join("mark");
    let first = sh(format!("until test -e {}; do sleep 0.01; done; echo first", mark.display()));
    let second = sh(format!("{SCRIPT}; touch {}", mark.display()));
    let run = |keep_order, jobs: Vec<Job>| {
        let mut options = ordered(2).output(Output::Lines);
        (options.memory, options.temporary, options.keep_order) = (10, "/no/such/directory".into(), keep_order);
        collect(options, jobs)
    };
    let (summary, sink) = run(true, vec![first, second]);
    let expected: String = (1..10).map(|n| format!("{n:050000}\n")).collect();
    assert!(sink.text(false) == format!("first\n{expected}"), "{} bytes", sink.text(false).len());
    assert!(summary.ran == 2 && summary.errors.len() == 1, "{summary:?}");
    let (summary, sink) = run(false, vec![sh(SCRIPT)]);
    assert!(sink.text(false) == expected, "{} bytes", sink.text(false).len());
    assert!(summary.is_success(), "{summary:?}");
}

/// In the environment of the process that takes all descriptors.
const TAKES_ALL: &str = "FORKLESS_TEST_TAKES_ALL";

/// Jobs and their runner may have all descriptors when output must go to the temporary file. In a process of its own, because
/// other tests need descriptors.
#[test]
fn output_that_waits_has_a_descriptor_when_no_other_is_left() {
    if std::env::var_os(TAKES_ALL).is_none() {
        let line =
            "ulimit -n 64; exec \"$0\" --exact --nocapture output_that_waits_has_a_descriptor_when_no_other_is_left";
        let mut shell = std::process::Command::new("sh");
        let output =
            shell.args(["-c", line]).arg(std::env::current_exe().expect("a program")).env(TAKES_ALL, "1").output();
        let output = output.expect("sh");
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    struct Take {
        place: std::path::PathBuf,
        taken: Vec<std::fs::File>,
        starts: u64,
        ticks: u32,
    }
    impl Events for Take {
        fn started(&mut self, _: &Job, place: forkless_jobs::JobPlace, _: u32) {
            self.starts = self.starts.max(place.seq);
        }

        fn finished(&mut self, ended: &Ended) -> Flow {
            if ended.place.seq == 2 {
                self.taken.clear();
                std::fs::write(self.place.join("end"), "").expect("a file");
            }
            Flow::Continue
        }

        /// Takes all descriptors, then also those that the launch has given back, and lets the second job write.
        fn tick(&mut self, _: &forkless_jobs::Progress) {
            if self.starts < 2 || self.place.join("end").exists() {
                return;
            }
            self.ticks += 1;
            self.taken.pop();
            if self.ticks == 5 {
                std::fs::write(self.place.join("full"), "").expect("a file");
            }
            self.taken.extend(std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()));
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().to_owned();
    let until = |name: &str| format!("until test -e {}; do sleep 0.01; done", place.join(name).display());
    let mut options = ordered(2);
    (options.memory, options.tick) = (10, Some(Duration::from_millis(5)));
    // More than a pipe holds: it ends when a part of it is in the file.
    let jobs = [sh(until("end")), sh(format!("{}; head -c 200000 /dev/zero", until("full")))];
    let (mut events, mut sink) = (Take { place, taken: Vec::new(), starts: 0, ticks: 0 }, Collect::default());
    let summary = run(options, &mut from_iter(jobs), &mut events, &mut sink).expect("a run");
    assert!(summary.is_success(), "{summary:?}");
    assert_eq!(sink.text(false).len(), 200_000);
}

/// What waits for a job that is killed is still written.
#[test]
fn output_that_waits_is_written_when_the_run_is_stopped() {
    let control = Control::new().expect("a control");
    struct Stop(Control, u32);
    impl Events for Stop {
        fn finished(&mut self, _: &Ended) -> Flow {
            self.1 += 1;
            if self.1 == 3 {
                self.0.stop_now();
            }
            Flow::Continue
        }
    }
    let mut options = ordered(2);
    options.groups = true;
    options.control = Some(control.clone());
    options.termination = vec![(15, Duration::from_secs(20)), (9, Duration::ZERO)];
    let mut sink = Collect::default();
    let jobs = ["sleep 60", "echo 2", "echo 3", "echo 4", "echo 5"].map(sh);
    let summary = run(options, &mut from_iter(jobs), &mut Stop(control, 0), &mut sink).expect("a run");
    assert!(sink.text(false).starts_with("2\n3\n4\n"), "{}", sink.text(false));
    assert_eq!((summary.failed, summary.unread), (1, true), "{summary:?}");
}

#[test]
fn the_same_again_with_threads() {
    again_with_threads();
}
