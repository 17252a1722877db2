//! Output, log and `--resume` agree, wherever a run ends: a job is in the log exactly if its output is out.

testing::usual_surroundings!();

mod marks;

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    process::{Child, Stdio},
};

use marks::{Place, apart, send_all, wait_for, with_small_disk};
use rustix::process::Signal;

/// A job waits until it may go on. Its output is three lines, written at once.
const JOB: &str = "touch started-$1; until test -e go-$1; do sleep 0.01; done\n\
                   printf 'begin %s\\nbody\\nend %s\\n' $1 $1; test ! -e fail-$1\n";

/// The jobs in the order of their ends. Output in order waits for some of them, and some have been written.
const ENDS: [usize; 4] = [3, 1, 4, 2];

/// How output comes.
const MODES: [&str; 5] = ["", "-k", "-u", "--line-buffer", "-k --line-buffer"];

/// What ends a run.
enum Event {
    Signals(&'static [Signal]),
    /// `--halt now`, by the next job that ends.
    Halt,
}

fn start(place: &Place, mode: &str, options: &[&str]) -> Child {
    let mut words = vec!["parallel", "-j4", "--joblog", "log", "--resume"];
    words.extend(mode.split_whitespace().chain(options.iter().copied()));
    words.extend(["sh", "job", "{}", ":::", "1", "2", "3", "4"]);
    let out = OpenOptions::new().append(true).create(true).open(place.path("out")).expect("a file");
    place.forkless(&words).stdout(out).stderr(Stdio::null()).spawn().expect("forkless starts")
}

/// How often the output of a job is complete.
fn written(place: &Place, job: usize) -> usize {
    let text = fs::read_to_string(place.path("out")).expect("the output");
    text.lines().filter(|line| *line == format!("end {job}")).count()
}

/// Waits until the run has so few children, and has done all that was to do after the end of the others.
fn wait_until_handled(child: &Child, left: usize) {
    let proc = |name: &str| fs::read_to_string(format!("/proc/{0}/{name}", child.id())).unwrap_or_default();
    wait_for("the end of a job", || {
        let children = proc(&format!("task/{}/children", child.id()));
        let sleeps = proc("stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
        children.split_whitespace().count() == left && sleeps
    });
}

fn check(mode: &str, event: &Event, step: usize) {
    let what = match event {
        Event::Signals(signals) => format!("{mode:?}, {signals:?} after {step} ends"),
        Event::Halt => format!("{mode:?}, --halt after {step} ends"),
    };
    let place = Place::new();
    fs::write(place.path("job"), JOB).expect("a script");
    let mut child = start(&place, mode, if matches!(event, Event::Halt) { &["--halt", "now,fail=1"] } else { &[] });
    wait_for("four jobs", || (1..=4).all(|job| place.path(&format!("started-{job}")).exists()));
    let end = |job: usize| fs::write(place.path(&format!("go-{job}")), "").expect("a file");
    for (count, job) in ENDS[..step].iter().enumerate() {
        end(*job);
        wait_until_handled(&child, 3 - count);
    }
    match event {
        Event::Signals(signals) => send_all(&mut child, signals),
        Event::Halt => {
            fs::write(place.path(&format!("fail-{}", ENDS[step])), "").expect("a file");
            end(ENDS[step]);
        }
    }
    child.wait().expect("a status");
    place.kill_all();
    let logged = place.logged();
    for &job in &logged {
        assert_eq!(written(&place, job), 1, "{what}: job {job} is in the log");
    }
    (1..=4).for_each(end);
    let status = start(&place, mode, &[]).wait().expect("a status");
    assert!(status.code().is_some_and(|code| code <= 1), "{what}: {status:?}");
    assert_eq!(place.logged(), (1..=4).collect(), "{what}: the log in the end");
    for job in 1..=4 {
        let count = written(&place, job);
        assert!(count >= 1, "{what}: the output of job {job} is lost");
        assert!(count == 1 || !logged.contains(&job), "{what}: job {job} was in the log and ran again");
    }
}

#[test]
fn a_job_is_in_the_log_exactly_if_its_output_is_out_wherever_the_run_ends() {
    let events = [
        Event::Signals(&[Signal::KILL]),
        Event::Signals(&[Signal::INT]),
        Event::Signals(&[Signal::TERM, Signal::TERM]),
        Event::Halt,
    ];
    for mode in MODES {
        for event in &events {
            (0..ENDS.len()).for_each(|step| check(mode, event, step));
        }
    }
}

/// How much a job writes where a disk takes some jobs, and where it takes none.
const SOME: usize = 100_000;
const ALL: usize = 40_000_000;

/// The first job ends after the second one, however that ends. The end of a job's output is its number.
const LONG_JOB: &str = "test $1 != 2 || { exec 9> lock; flock 9; touch locked; }\n\
                        test $1 != 1 || { until test -e locked; do sleep 0.01; done; flock lock true; }\n\
                        head -c $2 /dev/zero; echo \"$1\"\n";

/// A full disk under standard output, the temporary file and the results; the next run has a larger disk.
#[test]
fn a_job_is_in_the_log_exactly_if_its_output_is_out_whichever_disk_is_full() {
    let has_disks = apart(&Place::new()).is_some();
    let results = ("--results disk/out/", "cat disk/out/1/*/stdout");
    let cases = [
        ("> disk/out", "cat disk/out", SOME),
        ("--tmpdir disk > out1", "cat out1", ALL),
        ("--tmpdir /no/such/directory > out1", "cat out1", ALL),
        (results.0, results.1, SOME),
    ];
    for mode in ["", "-k", "--line-buffer", "-k --line-buffer"] {
        // Without order, lines need no temporary file.
        let fits = |first: &str| mode != "--line-buffer" || !first.contains("tmpdir");
        // Each is a file of its own, which fits where a limit takes the place of a disk.
        let fits = |first: &str| fits(first) && (has_disks || !first.contains("results"));
        for (first, shown, size) in cases.into_iter().filter(|(first, ..)| fits(first)) {
            let (what, place) = (format!("{mode:?} {first}"), Place::new());
            fs::write(place.path("job"), LONG_JOB).expect("a script");
            let run = |options: &str, size: usize, shown: &str| {
                let line = format!("seq 8 | \"$F\" parallel -j2 --joblog log --resume {mode} {options}");
                format!("{line} sh job {{}} {size}; c=$?; {shown} | tr -d '\\0' | grep -a '[0-9]' > ends; exit $c")
            };
            // Redirections may come first, too.
            let output = with_small_disk(&place, 256, &run(first, size, shown));
            assert!(!output.status.success(), "{what}: {output:?}");
            let ends = || -> BTreeSet<usize> {
                let text = fs::read_to_string(place.path("ends")).expect("a file");
                text.lines().map(|line| line.parse().expect("a number")).collect()
            };
            let (logged, mut out) = (place.logged(), ends());
            assert!(logged.is_subset(&out), "{what}: {logged:?} are in the log, and the output of {out:?} is out");
            // The second job may not run again.
            fs::write(place.path("locked"), "").expect("a file");
            let output = place.run(&run("> out2", SOME, "cat out2"));
            assert!(output.status.success(), "{what}: {output:?}");
            out.append(&mut ends());
            assert_eq!((place.logged(), out), ((1..=8).collect(), (1..=8).collect()), "{what}");
        }
    }
}
