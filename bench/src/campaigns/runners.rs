//! Runners of many short commands: `forkless xargs` and `forkless parallel` beside others. Their jobs get the numbers 1, 2, 3 …
//! [METHODOLOGY](../../METHODOLOGY.md#runners).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    race::{CampaignContestant, race},
    record::{Figure, Table},
    session::{Common, Session, cpus, does_work, numbers, output, versions},
};

/// Compare forkless xargs and parallel with other runners of many short commands.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Make fewer jobs and rounds: takes about five minutes
    #[arg(long)]
    quick: bool,

    /// Make longer and more rounds, and runs of a million jobs: takes more than an hour
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// Make a few jobs of each, as a test
    #[arg(long, hide = true, conflicts_with_all = ["quick", "full"])]
    smoke: bool,

    /// Shell for the lines of GNU parallel and forkless parallel, as if they were called from it
    #[arg(long, value_name = "FILE", default_value = "/bin/sh")]
    shell: PathBuf,
}

/// How much to measure.
struct Effort {
    /// The most jobs of a run.
    jobs: u64,
    /// The longest that a run should take, in seconds: a slow runner gets fewer jobs.
    longest: f64,
    rounds: usize,
    /// Jobs of each runner that leave marks.
    marks: u64,
    starts: usize,
    calls: [u64; 2],
    many: Option<u64>,
}

impl Effort {
    fn of(options: &Options) -> Self {
        // More rounds make the medians more stable than more jobs do.
        let usual =
            Self { jobs: 20_000, longest: 2.5, rounds: 5, marks: 6_000, starts: 40, calls: [200, 1_200], many: None };
        match options {
            Options { smoke: true, .. } => {
                Self { jobs: 40, longest: 1.0, rounds: 2, marks: 40, starts: 2, calls: [10, 30], many: Some(50) }
            }
            Options { quick: true, .. } => {
                Self { jobs: 2_000, longest: 1.0, rounds: 3, marks: 2_000, starts: 20, ..usual }
            }
            Options { full: true, .. } => {
                Self { longest: 10.0, rounds: 9, starts: 300, many: Some(1_000_000), ..usual }
            }
            _ => usual,
        }
    }
}

/// The name, the words of the command, and a command that fails if the runner is not installed. `SLOTS`, `JOBS` and
/// `PROGRAM` are replaced; `LIST` becomes the numbers; a name in brackets is a program that is built here.
type Runner = (&'static str, &'static str, &'static [&'static str]);

/// The first one, a loop over posix_spawn and waitpid(-1), is the baseline. forkless-jobs is the library, from a small process and
/// from one with 1 GiB of memory; it prints its time.
const RUNNERS: [Runner; 12] = [
    ("posix_spawn loop", "[loop] SLOTS JOBS PROGRAM", &[]),
    ("xargs", "xargs -n 1 -P SLOTS PROGRAM", &["xargs", "--version"]),
    ("busybox xargs", "busybox xargs -n 1 -P SLOTS PROGRAM", &["busybox", "true"]),
    ("moreutils parallel", "parallel.moreutils -j SLOTS PROGRAM -- LIST", &["parallel.moreutils", "true", "--", "1"]),
    ("GNU parallel -u", "parallel -j SLOTS -u PROGRAM {}", &["sh", "-c", "parallel --version | grep -q GNU"]),
    ("GNU parallel -k", "parallel -j SLOTS -k PROGRAM {}", &["sh", "-c", "parallel --version | grep -q GNU"]),
    ("rust-parallel", "rust-parallel -j SLOTS PROGRAM", &["rust-parallel", "--version"]),
    ("forkless xargs", "[forkless] xargs -n 1 -P SLOTS PROGRAM", &[]),
    ("forkless parallel -u", "[forkless] parallel -j SLOTS -u PROGRAM {}", &[]),
    ("forkless parallel -k", "[forkless] parallel -j SLOTS -k PROGRAM {}", &[]),
    ("forkless-jobs", "[many] 0 SLOTS JOBS PROGRAM", &[]),
    ("forkless-jobs, 1 GiB", "[many] 1024 SLOTS JOBS PROGRAM", &[]),
];

const SOURCES: [(&str, &str); 4] = [
    ("loop.c", include_str!("../../runners/loop.c")),
    ("measure.c", include_str!("../../runners/measure.c")),
    ("mark.c", include_str!("../../runners/mark.c")),
    ("exit0.c", include_str!("../../c/target.c")),
];

/// Jobs of the trial run, which sets the number to measure.
const WARM_UP: u64 = 1_000;

pub(super) fn measure(options: &Options) -> Result<()> {
    let mut session = Session::begin("runners", &options.common)?;
    session.unpack(&SOURCES)?;
    session.cc("loop", [""; 0])?;
    session.cc("measure", [""; 0])?;
    session.cc("mark", ["-static"])?;
    let exit0 = session.cc_tiny("exit0")?;
    let many = std::env::current_exe()?.with_file_name("examples").join("many");
    let field =
        Field { place: session.place.clone(), forkless: session.forkless()?, many, shell: options.shell.clone() };
    let mut runners = Vec::new();
    for runner in RUNNERS {
        match runner {
            (name, line, _) if line.contains("[many]") && !field.many.exists() => {
                session.record.skip(format!("{name} because cargo build --release --examples has not been run"));
            }
            (name, _, [program, words @ ..]) if !does_work(program, words) => {
                session.record.skip(format!("{name} because it is not installed"));
            }
            _ => runners.push(runner),
        }
    }
    let shell = fs::canonicalize(&options.shell)?.display().to_string();
    session.record.about.push(("called from".to_owned(), shell));
    session.record.about.extend(versions(&[
        ("xargs", "--version"),
        ("parallel", "--version"),
        ("rust-parallel", "--version"),
    ]));
    let effort = Effort::of(options);
    field.check(&runners, &effort)?;
    for (program, slots) in cases() {
        let path = if program == "exit0" { exit0.clone() } else { program.into() };
        let table = field.compare(&runners, &effort, (program, &path), slots)?;
        session.record.tables.push(table);
    }
    let waits: Vec<Runner> = runners.iter().filter(|(_, line, _)| !line.contains("[many]")).copied().collect();
    session.record.tables.push(field.starts(&waits, &exit0, effort.starts)?);
    if does_work("strace", &["-V"]) {
        session.record.tables.push(field.calls(&waits, &exit0, effort.calls)?);
    } else {
        session.record.skip("system calls because strace is not installed");
    }
    if let Some(jobs) = effort.many {
        let peers = ["posix_spawn loop", "xargs", "forkless xargs", "forkless parallel -k"];
        let some: Vec<Runner> = runners.into_iter().filter(|(name, ..)| peers.contains(name)).collect();
        session.record.tables.push(field.sizes(&some, &exit0, jobs)?);
    }
    session.end()
}

/// The programs, each with as many slots as CPUs and with eight.
fn cases() -> Vec<(&'static str, usize)> {
    let few = |program| [cpus(), 8].into_iter().map(move |slots| (program, slots));
    let mut cases: Vec<_> = ["/bin/true", "exit0"].into_iter().flat_map(few).chain([("/bin/echo", cpus())]).collect();
    cases.dedup();
    cases
}

/// What all runs share.
struct Field {
    place: PathBuf,
    forkless: PathBuf,
    many: PathBuf,
    shell: PathBuf,
}

/// The figures of a run, in microseconds per job but for the last two.
struct Run {
    wall: f64,
    /// CPU time of the runner with all jobs, and of the runner alone.
    tree: f64,
    own: f64,
    /// The largest process of the runner and its jobs, in MB.
    megabytes: f64,
    jobs: u64,
}

impl Field {
    /// The command that measures a run: its input is the numbers.
    fn command_words(&self, (_, line, _): Runner, program: &Path, slots: usize, jobs: u64) -> Result<Vec<String>> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
        let mut words = Vec::new();
        for word in line.split(' ') {
            match word {
                "LIST" => words.extend((1..=jobs).map(|number| number.to_string())),
                "SLOTS" => words.push(slots.to_string()),
                "JOBS" => words.push(jobs.to_string()),
                "PROGRAM" => words.push(text(program)?),
                "[loop]" => words.push(text(&self.place.join("loop"))?),
                "[forkless]" => words.push(text(&self.forkless)?),
                "[many]" => words.push(text(&self.many)?),
                word => words.push(word.to_owned()),
            }
        }
        Ok(words)
    }

    /// The file with the numbers 1 to `jobs`.
    fn numbers(&self, jobs: u64) -> Result<PathBuf> {
        let path = self.place.join(format!("numbers-{jobs}"));
        fs::write(&path, (1..=jobs).map(|number| format!("{number}\n")).collect::<String>())?;
        Ok(path)
    }

    /// Sets the environment as if the command were called from `shell`.
    fn surround<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        // What GNU parallel remembers must not go to the user's directory.
        let memory = self.place.join("gnu-parallel");
        command.env("PARALLEL_HOME", memory).env("PARALLEL_SHELL", &self.shell).env("SHLVL", "1")
    }

    /// Runs a runner, and checks its exit status and that it started a process for each job.
    fn run(&self, runner: Runner, program: &Path, slots: usize, jobs: u64) -> Result<Run> {
        let mut measure = Command::new(self.place.join("measure"));
        measure.arg(self.numbers(jobs)?).arg(self.place.join("output")).arg(self.place.join("errors"));
        measure.args(self.command_words(runner, program, slots, jobs)?).env("MARKS", self.place.join("marks"));
        let [status, mut wall, tree, own, kib, processes] = numbers(self.surround(&mut measure))?[..] else {
            bail!("measure does not print six numbers")
        };
        let errors = fs::read_to_string(self.place.join("errors")).unwrap_or_default();
        ensure!(status == 0.0, "wait status {status}: {}", errors.lines().next().unwrap_or_default());
        ensure!(processes >= jobs as f64, "only {processes} processes for {jobs} jobs");
        if runner.1.contains("[many]") {
            // Without its setup: it prints the time behind the output of the jobs.
            let text = fs::read_to_string(self.place.join("output"))?;
            wall = text.split_whitespace().last().and_then(|word| word.parse().ok()).context("it printed no time")?;
        }
        let per_job = |figure: f64| figure / jobs as f64;
        Ok(Run { wall: per_job(wall / 1e3), tree: per_job(tree), own: per_job(own), megabytes: kib * 1.024e-3, jobs })
    }

    /// Checks that each job leaves a mark exactly once.
    fn check(&self, runners: &[Runner], effort: &Effort) -> Result<()> {
        for &runner in runners {
            let (marks, jobs) = (self.place.join("marks"), share(runner, effort.marks));
            fs::write(&marks, "")?;
            let checked = self.run(runner, &self.place.join("mark"), cpus(), jobs);
            let checked = checked.and_then(|_| same_numbers(&fs::read_to_string(&marks)?, jobs, false));
            match checked.with_context(|| format!("marks of the jobs of {}", runner.0)) {
                Err(error) if is_peer(runner) => eprintln!("{error:#}"),
                checked => checked?,
            }
        }
        Ok(())
    }

    fn compare(
        &self,
        runners: &[Runner],
        effort: &Effort,
        (name, program): (&str, &Path),
        slots: usize,
    ) -> Result<Table> {
        let mut all = Vec::new();
        for &runner in runners {
            // Also warms the caches. One that fails here fails again in each round.
            let few = share(runner, WARM_UP).min(effort.jobs);
            let fitting = self.run(runner, program, slots, few).map(|run| (effort.longest * 1e6 / run.wall) as u64);
            let jobs = fitting.unwrap_or(few).next_multiple_of(100).max(200).min(effort.jobs);
            all.push(contestant(runner, move || {
                let run = self.run(runner, program, slots, jobs)?;
                if name == "/bin/echo" {
                    let text = fs::read_to_string(self.place.join("output"))?;
                    let text = text.split("took ").next().unwrap_or_default();
                    same_numbers(text, jobs, runner.0.ends_with("-k"))?;
                }
                Ok(vec![1e6 / run.wall, run.wall, run.tree, run.own, run.megabytes, run.jobs as f64])
            }));
        }
        let title = format!("{}, -j{slots}", if name == "exit0" { "static program that only exits" } else { name });
        race(&title, effort.rounds, &mut all)?;
        let figures = [
            Figure::ratio(0, "jobs/s"),
            Figure::tail(1, "µs per job"),
            Figure::plain(2, "CPU µs"),
            Figure::plain(3, "CPU of the runner µs"),
            Figure::plain(4, "MB"),
            Figure::plain(5, "jobs"),
        ];
        Ok(Table::new(title, "Beside the posix_spawn loop. A slow runner gets fewer jobs.", &figures, &all))
    }

    /// A run with a single job, beside a shell that starts it.
    fn starts(&self, runners: &[Runner], exit0: &Path, rounds: usize) -> Result<Table> {
        let mut all = vec![CampaignContestant::new("sh -c", || {
            let start = std::time::Instant::now();
            output(Command::new("sh").args(["-c", "\"$0\" 1; exit $?"]).arg(exit0))?;
            Ok(vec![start.elapsed().as_secs_f64() * 1e3])
        })];
        let one =
            |runner| contestant(runner, move || Ok(vec![self.run(runner, exit0, 1, 1)?.wall / 1e3])).beside("sh -c");
        all.extend(runners.iter().map(|runner| one(*runner)));
        race("one job", rounds, &mut all)?;
        Ok(Table::new("One job", "Beside a shell that starts it.", &[Figure::tail(0, "ms")], &all))
    }

    /// System calls of the runner's first thread for each job: the difference of two runs.
    fn calls(&self, runners: &[Runner], exit0: &Path, counts: [u64; 2]) -> Result<Table> {
        let count = |runner: Runner, jobs: u64| -> Result<f64> {
            let report = self.place.join("calls");
            let mut strace = Command::new("strace");
            strace.args(["-c", "-o"]).arg(&report).args(self.command_words(runner, exit0, 2, jobs)?);
            let output = self.surround(&mut strace).stdin(fs::File::open(self.numbers(jobs)?)?).output()?;
            ensure!(output.status.success(), "under strace: {}", output.status);
            total_of(&fs::read_to_string(&report)?).context("no total of strace")
        };
        let one = |runner: Runner| {
            contestant(runner, move || {
                let [few, more] = counts.map(|jobs| share(runner, jobs));
                Ok(vec![(count(runner, more)? - count(runner, few)?) / (more - few).max(1) as f64])
            })
        };
        let mut all: Vec<_> = runners.iter().map(|runner| one(*runner)).collect();
        race("system calls", 1, &mut all)?;
        let about = "Of the runner's first thread, for each job. Beside the posix_spawn loop.";
        Ok(Table::new("System calls", about, &[Figure::ratio(0, "calls")], &all))
    }

    /// The largest resident size with so many jobs.
    fn sizes(&self, runners: &[Runner], exit0: &Path, jobs: u64) -> Result<Table> {
        let one = |runner| contestant(runner, move || Ok(vec![self.run(runner, exit0, cpus(), jobs)?.megabytes]));
        let mut all: Vec<_> = runners.iter().map(|runner| one(*runner)).collect();
        race("many jobs", 1, &mut all)?;
        Ok(Table::new("Many jobs", format!("Resident size with {jobs} jobs."), &[Figure::ratio(0, "MB")], &all))
    }
}

fn is_peer((name, ..): Runner) -> bool {
    !name.starts_with("forkless") && name != RUNNERS[0].0
}

fn contestant<'a>(runner: Runner, run: impl FnMut() -> Result<Vec<f64>> + 'a) -> CampaignContestant<'a> {
    CampaignContestant::new(runner.0, run).peer(is_peer(runner)).beside(RUNNERS[0].0)
}

/// The number of jobs of a trial or a trace, of which no time is reported: fewer for a slow runner.
fn share((name, ..): Runner, jobs: u64) -> u64 {
    if name.starts_with("GNU") { (jobs / 20).max(jobs.min(20)) } else { jobs }
}

/// The number of calls in the last line of `strace -c`.
fn total_of(report: &str) -> Option<f64> {
    let line = report.lines().find(|line| line.trim_end().ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Fails unless every number from 1 to `jobs` has one line.
fn same_numbers(text: &str, jobs: u64, ordered: bool) -> Result<()> {
    let mut numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    if !ordered {
        numbers.sort_unstable();
    }
    let lines = text.lines().count();
    ensure!(lines as u64 == jobs && numbers.len() == lines, "{lines} lines, {} numbers, {jobs} jobs", numbers.len());
    ensure!(numbers.into_iter().eq(1..=jobs), "a line is missing, twice there, or not in its place");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_doubled_and_disordered_jobs_are_found() {
        assert!(same_numbers("1\n2\n3\n", 3, true).is_ok());
        assert!(same_numbers("3\n1\n2\n", 3, false).is_ok());
        for (text, ordered) in [
            ("1\n2\n", false),
            ("1\n2\n2\n", false),
            ("3\n1\n2\n", true),
            ("1\n2\n3\n4\n", false),
            ("1\n2\n3\n\n", true),
        ] {
            assert!(same_numbers(text, 3, ordered).is_err(), "{text:?}");
        }
    }

    #[test]
    fn total_of_strace_is_the_number_of_calls() {
        let report = "% time     seconds  usecs/call     calls    errors syscall\n100.00    0.038424          17      2244        16 total\n";
        assert_eq!(total_of(report), Some(2244.0));
        assert_eq!(total_of(""), None);
    }
}
