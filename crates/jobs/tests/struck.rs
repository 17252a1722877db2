//! Jobs whose child a signal kills before it can run the program, as Ctrl-C does that reaches the whole process group.

testing::usual_surroundings!();

mod common;

use common::{again_with_threads, run};
use forkless::{CallArg, Stdio, Step};
use forkless_core::sys::uapi as nr;
use forkless_jobs::{
    Control, Ended, Ending, Events, Flow, Job, JobPlace, Log, Options, Standard, Stdin, Summary, from_iter,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

#[derive(Default)]
struct Ends(Vec<(u64, (i32, i32))>);

impl Events for Ends {
    fn finished(&mut self, ended: &Ended) -> Flow {
        if let Ending::NotStarted(error) = &ended.ending {
            let of_launch = forkless::Error::of(error).is_some_and(|error| error.step() != Step::Wait);
            assert!(of_launch, "{error:?}");
        }
        self.0.push((ended.place.seq, ended.ending.numbers()));
        Flow::Continue
    }
}

/// Runs two jobs in turn. The signal kills so many of the first children. Returns the number of launches, too.
fn run_with_kills(
    log: &Path,
    signal: Signal,
    times: u32,
    stop: Option<Control>,
    stdin: fn() -> Stdin,
) -> (Summary, Ends, u32) {
    let launches = Rc::new(Cell::new(0));
    let counted = launches.clone();
    let mut options = Options::default().slots(1);
    options.groups = true;
    options.log = Some(Log::create(log).expect("a log"));
    options.control = stop.clone();
    options.setup = Some(Box::new(move |command, _| {
        counted.set(counted.get() + 1);
        if counted.get() <= times {
            // SAFETY: the calls only end the child.
            unsafe {
                command.call(nr::__NR_getpid, [], Some(0));
                command.call(nr::__NR_kill, [CallArg::Variable(0), CallArg::Number(signal.as_raw() as u64)], None);
            }
            if let Some(control) = &stop {
                control.stop_soon();
            }
        }
    }));
    let job = |_| {
        let mut job = Job::program("true", [""; 0]);
        job.stdin = stdin();
        job
    };
    let mut ends = Ends::default();
    let jobs: Vec<Job> = (0..2).map(job).collect();
    let summary = run(options, &mut from_iter(jobs), &mut ends, &mut Standard::new()).expect("a run");
    (summary, ends, launches.get())
}

/// Whether this process ignores the signal, and so its children do: a shell starts jobs in the background so.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a mask");
    mask & 1 << (signal.as_raw() - 1) != 0
}

fn logged(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).expect("the log");
    text.lines().skip(1).filter_map(|line| Some(line.split('\t').next()?.to_owned())).collect()
}

#[test]
fn a_job_whose_child_is_killed_before_its_exec_is_launched_again() {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("log");
    let signals = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
    for signal in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
        let (summary, ends, launches) = run_with_kills(&log, signal, 2, None, || Stdin::Bytes(b"input".to_vec()));
        assert!(summary.is_success(), "{signal:?}: {summary:?}");
        assert_eq!((launches, ends.0), (4, vec![(1, (0, 0)), (2, (0, 0))]), "{signal:?}");
        assert_eq!(logged(&log), ["1", "2"], "{signal:?}");
    }
}

#[test]
fn a_job_whose_child_is_killed_before_its_exec_as_the_run_ends_is_not_run() {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("log");
    let control = Control::new().expect("a control");
    let (summary, ends, launches) = run_with_kills(&log, Signal::TERM, 1, Some(control), || Stdin::Null);
    assert_eq!((launches, ends.0), (1, vec![]));
    assert_eq!((summary.ran, summary.failed, summary.skipped, summary.unread), (0, 0, 1, true), "{summary:?}");
    assert!(!summary.is_complete());
    assert_eq!(logged(&log), [""; 0]);
}

/// There is an end to it, and the job has no line in the log.
#[test]
fn a_job_whose_children_are_all_killed_before_their_exec_fails() {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("log");
    let (summary, ends, launches) = run_with_kills(&log, Signal::TERM, 10, None, || Stdin::Null);
    assert_eq!((launches, ends.0), (11, vec![(1, (126, 0)), (2, (0, 0))]));
    assert_eq!((summary.ran, summary.not_started, summary.failed), (1, 1, 1), "{summary:?}");
    assert_eq!(logged(&log), ["2"]);
}

/// Kills the first child while it waits for a FIFO, before its exec.
struct Strike(PathBuf, Option<File>, Ends, Vec<&'static str>);

impl Events for Strike {
    fn withdrawn(&mut self, _: JobPlace) {
        self.3.push("withdrawn");
    }

    fn started(&mut self, _: &Job, _: JobPlace, pid: u32) {
        self.3.push("started");
        if self.1.is_none() {
            kill_process(Pid::from_raw(pid as i32).expect("a child"), Signal::TERM).expect("it waits");
            // If the child has the signal blocked, it goes on, and dies when it unblocks it.
            self.1 = Some(File::options().read(true).write(true).open(&self.0).expect("a FIFO"));
        }
    }

    fn finished(&mut self, ended: &Ended) -> Flow {
        self.2.finished(ended)
    }
}

/// The launch has returned, and the input has been written. `Bytes` can be written again; what a stream has got is gone.
#[test]
fn a_job_whose_child_is_killed_after_the_launch_has_returned_is_not_in_the_log_before_it_has_run() {
    for is_streamed in [false, true] {
        let place = tempfile::tempdir().expect("a directory");
        let (log, fifo) = (place.path().join("log"), place.path().join("fifo"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        let mut options = Options::default().slots(1);
        options.groups = true;
        options.log = Some(Log::create(&log).expect("a log"));
        let (path, launches) = (fifo.clone(), Rc::new(Cell::new(0)));
        let counted = launches.clone();
        options.setup = Some(Box::new(move |command, _| {
            counted.set(counted.get() + 1);
            if counted.get() == 1 {
                command.fd(Stdio::open(&path, 0, 0), 5);
            }
        }));
        let mut first = Job::program("sh", ["-c", "read line; test \"$line\" = input"]);
        let bytes = b"input\n".to_vec();
        first.stdin = if is_streamed { Stdin::Stream(bytes) } else { Stdin::Bytes(bytes) };
        let jobs = [first, Job::program("true", [""; 0])];
        let mut events = Strike(fifo, None, Ends::default(), Vec::new());
        let summary = run(options, &mut from_iter(jobs), &mut events, &mut Standard::new()).expect("a run");
        let ends = events.2.0;
        if is_streamed {
            assert_eq!((launches.get(), ends), (2, vec![(1, (126, 0)), (2, (0, 0))]));
            assert_eq!(events.3, ["started", "started"]);
            assert_eq!((summary.not_started, summary.is_complete()), (1, false), "{summary:?}");
            assert_eq!(logged(&log), ["2"]);
        } else {
            assert_eq!((launches.get(), ends), (3, vec![(1, (0, 0)), (2, (0, 0))]));
            assert_eq!(events.3, ["started", "withdrawn", "started", "started"]);
            assert!(summary.is_success(), "{summary:?}");
            assert_eq!(logged(&log), ["1", "2"]);
        }
    }
}

#[test]
fn the_same_again_with_threads() {
    again_with_threads();
}
