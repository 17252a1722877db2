//! `forkless parallel` and `xargs` lose no job, whatever happens: kills, signals, limits, much input and much output.
//! `FORKLESS_TEST_SCALE` multiplies kills, jobs and sizes; 10 makes 500 kills in a run of 5,000 jobs.

testing::usual_surroundings!();

mod marks;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use marks::{Place, peak, scaled, send, send_all, wait_for};
use rustix::process::{Pid, Signal, kill_process_group};

/// Kills of a run, and jobs in it, at scale 1.
const KILLS: usize = 50;
const JOBS: usize = 500;
const SLOTS: usize = 8;

/// The run of all jobs, which goes on where the last one ended.
fn resume(place: &Place, jobs: usize) -> Command {
    let slots = SLOTS.to_string();
    let mark = place.path("mark");
    let mark = mark.to_str().expect("UTF-8");
    let mut command = place.forkless(&["parallel", "-j", &slots, "--joblog", "log", "--resume", mark, "{}"]);
    command.stdin(place.numbers(jobs)).stdout(Stdio::null());
    command
}

/// Who gets the signals.
enum Target {
    Run,
    /// Children that have not made their own group get them, too.
    ProcessGroup,
}

/// Interrupts a run time and again by signals at random moments, then lets it end. A job that is in the log never runs again, and
/// every job runs.
fn interrupted_runs_lose_nothing(to: Target, signals: &[&[Signal]], interruptions: usize, jobs: usize) {
    let place = Place::new();
    let mut before: BTreeSet<usize> = BTreeSet::new();
    let mut counted = BTreeMap::new();
    let (mut hits, mut bound) = (0, 30_000);
    for turn in 0..interruptions {
        let mut child = resume(&place, jobs).process_group(0).stderr(Stdio::null()).spawn().expect("forkless starts");
        thread::sleep(Duration::from_micros(fastrand::u64(..bound)));
        let signals = signals[turn % signals.len()];
        for signal in signals {
            match to {
                Target::Run => send(&child, *signal),
                // Not reaped yet, so the group exists.
                Target::ProcessGroup => kill_process_group(Pid::from_child(&child), *signal).expect("a group"),
            }
        }
        let status = child.wait().expect("ends");
        // A job in flight may leave its mark later than the run ends.
        wait_for("the end of the jobs in flight", || place.processes().is_empty());
        let logged = place.logged();
        check_step(&place, &before, &counted, turn);
        if logged.len() < jobs {
            hits += 1;
            assert!(!status.success(), "turn {turn}: {} of {jobs} jobs are done, and it reports success", logged.len());
        }
        // Spread the interruptions over the jobs.
        let is_ahead = logged.len() * interruptions > jobs * (turn + 1);
        bound = if is_ahead { bound * 2 / 3 } else { bound * 5 / 4 }.clamp(1_000, 2_000_000);
        (before, counted) = (logged, place.marks());
    }
    // On a machine whose speed changes, most may come late.
    assert!(hits * 5 > interruptions, "only {hits} of {interruptions} interruptions came before the end");
    let output = resume(&place, jobs).output().expect("forkless starts");
    assert!(output.status.success(), "{output:?}");
    check_step(&place, &before, &counted, interruptions);
    assert_eq!(place.logged(), (1..=jobs).collect());
    let marks = place.marks();
    let missing: Vec<usize> = (1..=jobs).filter(|job| !marks.contains_key(job)).collect();
    assert!(missing.is_empty(), "jobs {missing:?} are in the log and did not run");
    let again: usize = marks.values().map(|count| count - 1).sum();
    assert!(again <= 2 * SLOTS * interruptions, "{again} jobs ran again");
    println!("{interruptions} interruptions, {hits} before the end; {again} of {jobs} jobs ran again");
}

/// Checks that no job that was in the log before has run since, and that every job in the log has run.
fn check_step(place: &Place, before: &BTreeSet<usize>, counted: &BTreeMap<usize, usize>, turn: usize) {
    let marks = place.marks();
    for job in before {
        assert_eq!(marks.get(job), counted.get(job), "turn {turn}: job {job} was in the log and ran again");
    }
    for job in place.logged() {
        assert!(marks.contains_key(&job), "turn {turn}: job {job} is in the log and did not run");
    }
}

#[test]
fn killed_runs_are_resumed_without_a_lost_or_repeated_job() {
    interrupted_runs_lose_nothing(Target::Run, &[&[Signal::KILL]], scaled(KILLS), scaled(JOBS));
}

#[test]
fn interrupted_runs_are_resumed_without_a_lost_or_repeated_job() {
    let signals: [&[Signal]; 5] =
        [&[Signal::INT], &[Signal::TERM], &[Signal::HUP], &[Signal::INT, Signal::INT], &[Signal::TERM, Signal::TERM]];
    interrupted_runs_lose_nothing(Target::Run, &signals, scaled(KILLS / 2), scaled(JOBS / 2));
}

/// As by Ctrl-C, timeout(1) and Slurm.
#[test]
fn runs_whose_process_group_is_interrupted_are_resumed_without_a_lost_or_repeated_job() {
    let signals: [&[Signal]; 3] = [&[Signal::INT], &[Signal::TERM], &[Signal::HUP]];
    interrupted_runs_lose_nothing(Target::ProcessGroup, &signals, scaled(KILLS / 2), scaled(JOBS / 2));
}

/// Jobs with children of their own, of which one ignores SIGTERM.
const FAMILY: &str = "touch started-{}; (trap '' TERM; sleep 1000) & sleep 1000; true";

#[test]
fn an_interrupted_run_leaves_no_process() {
    for signals in [&[Signal::INT][..], &[Signal::INT, Signal::INT], &[Signal::TERM, Signal::TERM]] {
        let place = Place::new();
        let mut command = place.forkless(&["parallel", "-j4", FAMILY, ":::", "1", "2", "3", "4", "5", "6"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("forkless starts");
        wait_for("four jobs", || (1..=4).all(|job| place.path(&format!("started-{job}")).exists()));
        send_all(&mut child, signals);
        let status: ExitStatus = child.wait().expect("ends");
        assert!(!status.success(), "{signals:?}: {status:?}");
        wait_for("the end of all processes", || place.processes().is_empty());
        assert!(!place.path("started-5").exists(), "{signals:?}: another job was started");
    }
}

/// Jobs that leave a process in a session of its own.
#[test]
fn kill_tree_ends_all_that_jobs_have_left() {
    let leave = "setsid sleep 1000 >/dev/null 2>&1 & echo {}";
    let parallel = ["parallel", "-j2", leave, ":::", "1", "2", "3"];
    let xargs = ["xargs", "-n1", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $0"];
    for words in [&parallel[..], &xargs] {
        let run = |more: &[&str]| {
            let place = Place::new();
            let mut command = place.forkless(&[&words[..1], more, &words[1..]].concat());
            (command.stdin(place.numbers(3)).output().expect("forkless starts"), place)
        };
        let (output, place) = run(&[]);
        assert!(output.status.success() && place.processes().len() == 3, "{words:?}: {output:?}");
        place.kill_all();
        let (output, place) = run(&["--kill-tree"]);
        let text = String::from_utf8_lossy(&output.stderr);
        if text.contains("Linux 6.12") {
            return eprintln!("SKIPPED: --kill-tree, because {text}");
        }
        assert!(output.status.success() && output.stdout.len() == 6, "{words:?}: {output:?}");
        assert!(place.processes().is_empty(), "{words:?}: left: {:?}", place.processes());
    }
    // Also if forkless has no time to do it.
    let place = Place::new();
    let line = "setsid sh -c 'touch there; exec sleep 1000' & sleep 1000";
    let mut child = place.forkless(&["parallel", "--kill-tree", line, ":::", "1"]).spawn().expect("forkless starts");
    wait_for("the job", || place.path("there").exists());
    child.kill().expect("it is there");
    child.wait().expect("its end");
    wait_for("the end of all processes", || place.processes().is_empty());
}

/// Runs `-j50` within the limits; as another user if one is given.
fn run_within(place: &Place, limits: &[(forkless::Resource, u64)], user: Option<u32>, words: &[&str]) -> ExitStatus {
    let program = fs::File::open(env!("CARGO_BIN_EXE_forkless")).expect("the binary");
    let mut command = forkless::Command::new("forkless");
    command.program_fd(program).args(words).current_dir(place.directory.path());
    command.env("MARKS", place.path("marks")).env("PARALLEL_SHELL", "/bin/sh");
    command.stdin(forkless::Stdio::null()).stdout(forkless::Stdio::null());
    for (resource, limit) in limits {
        command.rlimit(*resource, *limit, *limit);
    }
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.status().expect("forkless starts")
}

#[test]
fn limits_of_processes_and_files_delay_jobs_and_lose_none() {
    let place = Place::new();
    let numbers: Vec<String> = (1..=300).map(|number| number.to_string()).collect();
    let mark = place.path("mark").to_str().expect("UTF-8").to_owned();
    // One process for each job, also if a shell starts it.
    let mut words = vec!["parallel", "-j50", "-k", "exec", &mark, "{}", ":::"];
    words.extend(numbers.iter().map(String::as_str));
    let files = [(forkless::Resource::Files, 24)];
    let status = run_within(&place, &files, None, &words);
    assert!(status.success(), "{status:?}");
    assert_eq!(place.marks(), (1..=300).map(|job| (job, 1)).collect(), "with 24 open files");
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: the limit of processes, because it needs a user without other processes, so root");
    }
    fs::write(place.path("marks"), "").expect("a file");
    // A user that no other test has.
    let user = 200_000 + std::process::id() % 100_000;
    let status = run_within(&place, &[(forkless::Resource::Processes, 5)], Some(user), &words);
    assert!(status.success(), "{status:?}");
    assert_eq!(place.marks(), (1..=300).map(|job| (job, 1)).collect(), "with 5 processes");
}

#[test]
fn input_of_any_length_needs_the_same_memory() {
    let place = Place::new();
    for words in [&["parallel", "-j2", "--dry-run", "echo", "{}"][..], &["xargs", "-n", "2000", "/bin/true"]] {
        let mut command = place.forkless(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("forkless starts");
        let mut input = child.stdin.take().expect("a pipe");
        let mut sizes = Vec::new();
        // More than a pipe holds, so that it reads.
        for count in [scaled(50_000).max(20_000), scaled(500_000).max(200_000)] {
            let lines: String = (0..1_000).map(|number| format!("value-{number}\n")).collect();
            for _ in 0..count / 1_000 {
                input.write_all(lines.as_bytes()).expect("it reads");
            }
            sizes.push(peak(&child).expect("it waits for input"));
        }
        drop(input);
        assert!(child.wait().expect("ends").success(), "{words:?}");
        // Ten times the input.
        assert!(sizes[1] < sizes[0] + 3_000, "{words:?}: {sizes:?} KiB");
    }
}

#[test]
fn ordered_output_of_any_size_needs_bounded_memory_and_leaves_no_file() {
    let place = Place::new();
    let (bytes, temporary) = (scaled(40 << 20), place.path("temporary"));
    fs::create_dir(&temporary).expect("a directory");
    // The first job waits for the end of the others, whose output must wait for it.
    let line = format!(
        "if test {{}} = 1; then until test -e done-2 && test -e done-3; do sleep 0.01; done; fi; \
         head -c {bytes} /dev/zero | tr '\\0' {{}}; touch done-{{}}"
    );
    let tmpdir = format!("--tmpdir={}", temporary.display());
    let mut command = place.forkless(&["parallel", "-j3", "-k", &tmpdir, &line, ":::", "1", "2", "3"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("forkless starts");
    let mut output = child.stdout.take().expect("a pipe");
    let (mut counts, mut last, mut buffer, mut sizes) = (Vec::new(), 0, vec![0; 1 << 16], Vec::new());
    loop {
        let count = output.read(&mut buffer).expect("output");
        for byte in &buffer[..count] {
            if *byte != last {
                counts.push((*byte, 0));
                last = *byte;
            }
            counts.last_mut().expect("a byte").1 += 1;
        }
        if count == 0 {
            break;
        }
        sizes.extend(peak(&child));
        assert_eq!(fs::read_dir(&temporary).expect("a directory").count(), 0, "a temporary file with a name");
    }
    let status = child.wait().expect("ends");
    assert!(status.success() && status.signal().is_none(), "{status:?}");
    assert_eq!(counts, [(b'1', bytes), (b'2', bytes), (b'3', bytes)]);
    let most = sizes.into_iter().max().expect("it was seen alive");
    assert!(most < 64_000, "{most} KiB");
}
