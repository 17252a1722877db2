//! Measures runners of many short commands, in turn: [bench/METHODOLOGY.md](../../../bench/METHODOLOGY.md#runners) says how.

mod contestants;
mod measure;
mod picture;
mod record;

pub use contestants::Built;
pub(crate) use record::percentile;

use crate::dist;
use anyhow::{Context, Result, ensure};
use contestants::{Places, Runner, Work};
use measure::{Run, Tools};
use record::{Case, Record, Row, Start};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What to measure, and where to write the record.
#[derive(clap::Args)]
pub struct Options {
    /// Make fewer jobs and rounds: takes about five minutes
    #[arg(long)]
    quick: bool,
    /// Make longer and more rounds, and runs of a million jobs: takes more than an hour
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Write the record to bench/record/DATE-runners
    #[arg(long, conflicts_with = "out")]
    record: bool,
    /// Shell for the lines of GNU parallel and forkless parallel, as if they were called from it
    #[arg(long, value_name = "FILE", default_value = "/bin/sh")]
    shell: PathBuf,
    /// Write runners.md, runners.json and runners.svg to DIR
    #[arg(long, value_name = "DIR", default_value = "target/runners/record")]
    out: PathBuf,
}

/// How much to measure.
struct Effort {
    /// The most jobs of a run.
    jobs: u64,
    /// The longest that a run should take: a slow runner gets fewer jobs.
    longest: Duration,
    rounds: usize,
    /// Jobs of each runner that leave marks.
    marks: u64,
    starts: usize,
    calls: [u64; 2],
    million: Option<u64>,
}

impl Effort {
    fn of(options: &Options) -> Effort {
        // At most 15 minutes: five cases, twelve runners. More rounds make the medians more stable than more jobs do.
        let usual = Effort {
            jobs: 20_000,
            longest: Duration::from_millis(2_500),
            rounds: 5,
            marks: 6_000,
            starts: 40,
            calls: [200, 1_200],
            million: None,
        };
        let longest = Duration::from_secs;
        match (options.quick, options.full) {
            (true, _) => Effort { jobs: 2_000, longest: longest(1), rounds: 3, marks: 2_000, starts: 20, ..usual },
            (_, true) => Effort { longest: longest(10), rounds: 9, starts: 300, million: Some(1_000_000), ..usual },
            _ => usual,
        }
    }

    /// The jobs of a runner that needs so many microseconds for one.
    fn jobs_at(&self, us_per_job: f64) -> u64 {
        const STEP: u64 = 100;
        let fitting = (self.longest.as_secs_f64() * 1e6 / us_per_job) as u64;
        (fitting / STEP * STEP).max(2 * STEP).min(self.jobs)
    }
}

/// Builds, measures, writes the record and prints its tables.
///
/// # Errors
/// If cargo or cc fails, or a runner of this project or the baseline fails or loses a job. Those of others are in the record.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let built = Built::release(target)?;
    let place = std::path::absolute(target)?.join("runners");
    let out = if options.record {
        let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
        let shell = options
            .shell
            .file_name()
            .filter(|name| *name != "sh")
            .map_or_else(String::new, |name| format!("-{}", name.display()));
        dist::root().join(format!("bench/record/{}-runners{shell}", String::from_utf8(date.stdout)?.trim()))
    } else {
        options.out.clone()
    };
    let record = measure_all(&Effort::of(options), &options.shell, &place, built, true)?;
    record.write(&out)?;
    println!("{}", record.markdown());
    Ok(())
}

/// The same with few jobs and without installing anything, for tests. Returns what cannot be measured here.
///
/// # Errors
/// As [`compare`].
pub fn smoke(built: Built, out: &Path, place: &Path) -> Result<Vec<String>> {
    let longest = Duration::from_secs(1);
    let effort = Effort { jobs: 40, longest, rounds: 2, marks: 40, starts: 2, calls: [10, 30], million: Some(50) };
    let record = measure_all(&effort, Path::new("/bin/sh"), place, built, false)?;
    record.write(out)?;
    Ok(record.skipped)
}

fn measure_all(effort: &Effort, shell: &Path, place: &Path, built: Built, may_install: bool) -> Result<Record> {
    let tools = Tools::build(place, shell)?;
    let places = Places::find(tools.place(), built, may_install);
    let mut record = Record::new(effort.jobs, effort.longest, effort.rounds, places.versions(shell));
    let mut runners = Vec::new();
    for runner in Runner::ALL {
        match places.lacks(runner) {
            None => runners.push(runner),
            Some(why) => record.skip(format!("{} because {why}", runner.name())),
        }
    }
    record.skip("rush (of Go) because no package manager has a version that can be fetched".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    eprintln!("marks");
    for &runner in &runners {
        let answer = tools.check_marks(&places, runner, cores, runner.share(effort.marks));
        record.tolerate(runner, "marks", answer)?;
    }
    record.checked = true;
    let field = Field { effort, tools: &tools, places: &places, runners: &runners };
    for case in cases(cores) {
        let rows = field.race(case, &mut record)?;
        record.rows.extend(rows);
    }
    record.starts = field.starts(&mut record)?;
    for &runner in runners.iter().filter(|runner| !runner.times_itself()) {
        let answer = tools.calls(&places, runner, effort.calls.map(|jobs| runner.share(jobs)));
        if let Some(Some(calls)) = record.tolerate(runner, "system calls", answer)? {
            record.calls.push((runner.name().to_owned(), calls));
        }
    }
    if let Some(jobs) = effort.million {
        record.million = field.million(jobs, cores, &mut record)?;
    }
    record.judge();
    Ok(record)
}

/// The jobs by which the number of those that are measured is found.
const WARM_UP: u64 = 1_000;

/// The programs, each with as many slots as CPUs and with eight.
fn cases(cores: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for program in ["/bin/true", "exit0"] {
        cases.push(Case { program, slots: cores });
        if cores != 8 {
            cases.push(Case { program, slots: 8 });
        }
    }
    cases.push(Case { program: "/bin/echo", slots: cores });
    cases
}

/// All runners that take part.
struct Field<'a> {
    effort: &'a Effort,
    tools: &'a Tools,
    places: &'a Places,
    runners: &'a [Runner],
}

impl Field<'_> {
    fn program(&self, case: Case) -> PathBuf {
        if case.program == "exit0" { self.tools.exit0() } else { PathBuf::from(case.program) }
    }

    /// All runners in turn, round by round. None always follows the same one, nor is always first.
    fn race(&self, case: Case, record: &mut Record) -> Result<Vec<Row>> {
        let count = self.runners.len();
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); count];
        let program = self.program(case);
        let mut jobs = Vec::new();
        for &runner in self.runners {
            // Also warms the caches. One that fails here fails again below.
            let few = Work { program: &program, slots: case.slots, jobs: runner.share(WARM_UP).min(self.effort.jobs) };
            let run = self.tools.run(self.places, runner, few);
            jobs.push(run.map_or(few.jobs, |run| self.effort.jobs_at(run.us_per_job())));
        }
        for round in 0..self.effort.rounds {
            eprintln!("{}, -j{}: round {} of {}", case.program, case.slots, round + 1, self.effort.rounds);
            for turn in 0..count {
                let index =
                    if round % 2 == 0 { (turn + round) % count } else { (2 * count - turn - round % count) % count };
                let runner = self.runners[index];
                let work = Work { program: &program, slots: case.slots, jobs: jobs[index] };
                let run = self.tools.run(self.places, runner, work).and_then(|run| {
                    let echoes = case.program == "/bin/echo";
                    if echoes { self.tools.check_output(runner, work.jobs).map(|()| run) } else { Ok(run) }
                });
                runs[index].extend(record.tolerate(runner, &case.words(), run)?);
            }
        }
        let baseline = record::median(runs[0].iter().map(Run::us_per_job));
        ensure!(self.runners[0] == Runner::Loop && baseline > 0.0, "no baseline");
        let rows = self.runners.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty());
        let lost = |runs: &[Run]| self.effort.rounds - runs.len();
        Ok(rows.map(|(runner, runs)| Row::new(case, *runner, runs, lost(runs), baseline)).collect())
    }

    /// The wall time of a run with a single job, beside a shell that starts it.
    fn starts(&self, record: &mut Record) -> Result<Vec<Start>> {
        eprintln!("starts of one job");
        let one = Work { program: &self.tools.exit0(), slots: 1, jobs: 1 };
        let entrants: Vec<Runner> = self.runners.iter().filter(|runner| !runner.times_itself()).copied().collect();
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); entrants.len() + 1];
        for _ in 0..self.effort.starts {
            for (index, runner) in entrants.iter().enumerate() {
                let run = self.tools.run(self.places, *runner, one);
                times[index].extend(record.tolerate(*runner, "one job", run)?.map(|run| run.wall_ns / 1e6));
            }
            times[entrants.len()].push(self.tools.shell()? / 1e6);
        }
        let names = entrants.iter().map(|runner| runner.name()).chain(["sh -c"]);
        Ok(names.zip(times).map(|(name, times)| Start::new(name, times)).collect())
    }

    /// The largest resident size with so many jobs.
    fn million(&self, jobs: u64, slots: usize, record: &mut Record) -> Result<Vec<(String, u64)>> {
        let wanted = [Runner::Loop, Runner::Xargs, Runner::ForklessXargs, Runner::ForklessParallelOrdered];
        let mut sizes = Vec::new();
        for runner in wanted.into_iter().filter(|runner| self.runners.contains(runner)) {
            eprintln!("{jobs} jobs of {}", runner.name());
            let run = self.tools.run(self.places, runner, Work { program: &self.tools.exit0(), slots, jobs });
            let run = record.tolerate(runner, "many jobs", run)?;
            sizes.extend(run.map(|run| (runner.name().to_owned(), run.rss_kib)));
        }
        Ok(sizes)
    }
}
