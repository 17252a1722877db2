//! The figures of a run as tables, as JSON and as a picture.

use super::contestants::Runner;
use super::measure::Run;
use super::picture;
use crate::background::machine;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What the jobs run, and how many at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Case {
    pub(super) program: &'static str,
    pub(super) slots: usize,
}

impl Case {
    pub(super) fn words(self) -> String {
        let program = if self.program == "exit0" { "static program that only exits" } else { self.program };
        format!("{program}, -j{}", self.slots)
    }
}

/// One runner in one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) case: Case,
    pub(super) runner: &'static str,
    #[serde(skip)]
    pub(super) is_ours: bool,
    /// Jobs in a round.
    jobs: u64,
    /// Rounds that do not count, because the runner failed, or lost a job or its output.
    lost: usize,
    pub(super) jobs_per_s: f64,
    /// The rate by that of the posix_spawn loop.
    pub(super) to_loop: f64,
    /// Wall time of a job: median of the rounds, and their 99th percentile.
    us_p50: f64,
    us_p99: f64,
    /// CPU time of a job: with the runner's, and the runner's alone.
    pub(super) cpu_us: f64,
    pub(super) own_cpu_us: f64,
    /// The largest process of all rounds.
    pub(super) rss_kib: u64,
}

impl Row {
    /// `baseline`: the time of a job of the posix_spawn loop, in microseconds.
    pub(super) fn new(case: Case, runner: Runner, runs: &[Run], lost: usize, baseline: f64) -> Row {
        let times: Vec<f64> = runs.iter().map(Run::us_per_job).collect();
        let per_job = |of: fn(&Run) -> f64| median(runs.iter().map(|run| of(run) / run.jobs as f64));
        let us_p50 = median(times.iter().copied());
        Row {
            case,
            runner: runner.name(),
            is_ours: runner.is_ours(),
            jobs: runs.iter().map(|run| run.jobs).min().unwrap_or(0),
            lost,
            jobs_per_s: 1e6 / us_p50,
            to_loop: baseline / us_p50,
            us_p50,
            us_p99: percentile(times, 99),
            cpu_us: per_job(|run| run.tree_us),
            own_cpu_us: per_job(|run| run.own_us),
            rss_kib: runs.iter().map(|run| run.rss_kib).max().unwrap_or(0),
        }
    }
}

/// A run of one job.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Start {
    runner: &'static str,
    p50_ms: f64,
    p99_ms: f64,
}

impl Start {
    pub(super) fn new(runner: &'static str, times: Vec<f64>) -> Start {
        Start { runner, p50_ms: median(times.iter().copied()), p99_ms: percentile(times, 99) }
    }
}

/// A figure with its target.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    figure: String,
    value: f64,
    relation: &'static str,
    target: f64,
    met: bool,
}

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Record {
    version: u32,
    machine: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    jobs: u64,
    longest_s: f64,
    rounds: usize,
    /// Every runner has run jobs that leave marks, and none was lost or ran twice.
    pub(super) checked: bool,
    pub(super) rows: Vec<Row>,
    pub(super) starts: Vec<Start>,
    /// System calls of the runner for each job.
    pub(super) calls: Vec<(String, f64)>,
    /// Resident size in KiB with a million jobs.
    pub(super) million: Vec<(String, u64)>,
    targets: Vec<Figure>,
    /// What runners of other projects failed at or lost, and how often.
    losses: BTreeMap<String, usize>,
    pub(super) skipped: Vec<String>,
}

impl Record {
    pub(super) fn new(jobs: u64, longest: Duration, rounds: usize, versions: Vec<(String, String)>) -> Record {
        let (machine, versions) = (machine::look(), versions.into_iter().collect());
        let (rows, starts, calls, million) = Default::default();
        let (targets, losses, skipped) = Default::default();
        Record {
            version: 1,
            machine,
            versions,
            jobs,
            longest_s: longest.as_secs_f64(),
            rounds,
            checked: false,
            rows,
            starts,
            calls,
            million,
            targets,
            losses,
            skipped,
        }
    }

    /// Notes and prints that something is not measured.
    pub(super) fn skip(&mut self, what: String) {
        println!("SKIPPED: {what}");
        self.skipped.push(what);
    }

    /// Notes an error of a runner of another project, which does not end the measurement. None: there is no answer.
    ///
    /// # Errors
    /// Those of the other runners.
    pub(super) fn tolerate<T>(&mut self, runner: Runner, what: &str, answer: Result<T>) -> Result<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if runner.is_peer() => {
                eprintln!("{}, {what}: {error:#}", runner.name());
                *self.losses.entry(format!("{}, {what}: {}", runner.name(), error.root_cause())).or_default() += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn row(&self, runner: Runner, case: Case) -> Option<&Row> {
        self.rows.iter().find(|row| row.runner == runner.name() && row.case == case)
    }

    /// Compares the figures with the targets of the project.
    pub(super) fn judge(&mut self) {
        let mut figures = Vec::new();
        let mut cases: Vec<Case> = self.rows.iter().map(|row| row.case).collect();
        cases.dedup();
        for case in cases.into_iter().filter(|case| case.program != "/bin/echo") {
            self.judge_case(case, &mut figures);
        }
        for row in self.rows.iter().filter(|row| row.case.program == "/bin/echo") {
            if row.runner == Runner::ForklessParallelOrdered.name()
                && let Some(plain) = self.row(Runner::ForklessParallel, row.case)
            {
                figures.push(Figure::at_least(
                    "ordered capture of echo by none",
                    row.jobs_per_s / plain.jobs_per_s,
                    0.9,
                ));
            }
        }
        let start_of = |name: &str| self.starts.iter().find(|start| start.runner == name);
        for runner in [Runner::ForklessXargs, Runner::ForklessParallelOrdered] {
            if let Some((start, shell)) = start_of(runner.name()).zip(start_of("sh -c")) {
                let words = format!("start of one job, {}, less a shell's, ms", runner.name());
                figures.push(Figure::at_most(words, start.p50_ms - shell.p50_ms, 3.0));
            }
            if let Some((name, calls)) = self.calls.iter().find(|(name, _)| name == runner.name())
                && runner == Runner::ForklessXargs
            {
                figures.push(Figure::at_most(format!("system calls per job, {name}"), *calls, 8.0));
            }
            if let Some((name, size)) = self.million.iter().find(|(name, _)| name == runner.name()) {
                figures.push(Figure::at_most(
                    format!("resident size with many jobs, {name}, MB"),
                    megabytes(*size),
                    8.0,
                ));
            }
        }
        self.targets = figures;
    }

    fn judge_case(&self, case: Case, figures: &mut Vec<Figure>) {
        let words = case.words();
        for (runner, rate) in [(Runner::ForklessXargs, 1.0), (Runner::ForklessParallelOrdered, 0.97)] {
            let Some((row, baseline)) = self.row(runner, case).zip(self.row(Runner::Loop, case)) else { continue };
            let name = runner.name();
            figures.push(Figure::at_least(format!("rate of {name} by the loop's ({words})"), row.to_loop, rate));
            figures.push(Figure::at_most(format!("CPU of {name} alone, µs per job ({words})"), row.own_cpu_us, 60.0));
            let cpu = row.cpu_us / baseline.cpu_us;
            figures.push(Figure::at_most(format!("CPU of {name} with its jobs by the loop's ({words})"), cpu, 1.02));
            if case.program == "exit0" {
                figures.push(Figure::at_most(
                    format!("resident size of {name}, MB ({words})"),
                    megabytes(row.rss_kib),
                    5.0,
                ));
            }
        }
        let ordered = self.row(Runner::ForklessParallelOrdered, case).zip(self.row(Runner::GnuParallelOrdered, case));
        if let Some(((ours, theirs), baseline)) = ordered.zip(self.row(Runner::Loop, case)) {
            // With a program that takes long itself, no runner can be much faster than another one.
            let most = baseline.jobs_per_s / theirs.jobs_per_s;
            let words = format!("rate of forkless parallel -k by GNU parallel's ({words}; the loop's is {most:.1})");
            figures.push(Figure::at_least(words, ours.jobs_per_s / theirs.jobs_per_s, 9.0));
        }
        if let Some((large, small)) = self.row(Runner::LibraryLarge, case).zip(self.row(Runner::Library, case)) {
            let words = format!("rate of the library from 1 GiB by its own from a small process ({words})");
            figures.push(Figure::at_least(words, large.jobs_per_s / small.jobs_per_s, 0.97));
        }
    }

    /// The tables.
    pub(super) fn markdown(&self) -> String {
        let mut text = "# Runners of many short commands\n\nWritten by `cargo xtask runners`; ".to_owned();
        let about: Vec<String> = self.machine.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let versions: Vec<String> = self.versions.iter().map(|(name, version)| format!("{name}: {version}")).collect();
        let _ = writeln!(
            text,
            "[how](../../METHODOLOGY.md#runners).\n\n{}.\n\n{}.\n",
            about.join(", "),
            versions.join(", ")
        );
        let checked = if self.checked {
            "Every runner ran each of its jobs exactly once, by their marks, but for those under Losses."
        } else {
            "NOT CHECKED"
        };
        let _ = writeln!(
            text,
            "{} rounds of {} jobs; fewer for a runner that needs more than {} s for so many: see the column \"jobs\". {checked}",
            self.rounds, self.jobs, self.longest_s
        );
        let mut cases: Vec<Case> = self.rows.iter().map(|row| row.case).collect();
        cases.dedup();
        for case in cases {
            let _ = write!(text, "\n## {}\n\n{ROWS}", case.words());
            self.rows.iter().filter(|row| row.case == case).for_each(|row| text.push_str(&row.line()));
        }
        if !self.losses.is_empty() {
            text.push_str("\n## Losses\n\nRounds that do not count.\n\n| what | times |\n| --- | --: |\n");
            self.losses.iter().for_each(|(what, times)| _ = writeln!(text, "| {what} | {times} |"));
        }
        text.push_str("\n## One job\n\n| runner | p50 ms | p99 ms |\n| --- | --: | --: |\n");
        for Start { runner, p50_ms, p99_ms } in &self.starts {
            let _ = writeln!(text, "| {runner} | {p50_ms:.2} | {p99_ms:.2} |");
        }
        text.push_str(
            "\n## System calls of the runner's first thread for each job\n\n| runner | calls |\n| --- | --: |\n",
        );
        self.calls.iter().for_each(|(name, calls)| _ = writeln!(text, "| {name} | {calls:.1} |"));
        if !self.million.is_empty() {
            text.push_str("\n## Resident size with many jobs\n\n| runner | MB |\n| --- | --: |\n");
            self.million.iter().for_each(|(name, size)| _ = writeln!(text, "| {name} | {:.1} |", megabytes(*size)));
        }
        text.push_str("\n## Targets\n\n| figure | measured | target | |\n| --- | --: | --: | --- |\n");
        for Figure { figure, value, relation, target, met } in &self.targets {
            let met = if *met { "met" } else { "**not met**" };
            let _ = writeln!(text, "| {figure} | {value:.3} | {relation} {target} | {met} |");
        }
        text.push_str("\n## Not measured\n\n");
        self.skipped.iter().for_each(|line| _ = writeln!(text, "- {line}"));
        text
    }

    /// Writes `runners.md`, `runners.json` and `runners.svg`.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(super) fn write(&self, out: &Path) -> Result<()> {
        fs::create_dir_all(out).with_context(|| format!("{}", out.display()))?;
        fs::write(out.join("runners.md"), self.markdown())?;
        fs::write(out.join("runners.json"), crate::json::lines(self)?)?;
        fs::write(out.join("runners.svg"), picture::svg(&self.rows))?;
        Ok(())
    }
}

const ROWS: &str = "\
| runner | jobs | jobs/s | × loop | µs per job p50 | p99 | CPU µs | CPU of the runner µs | MB | lost rounds |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |
";

impl Row {
    fn line(&self) -> String {
        let Row { runner, jobs, lost, jobs_per_s, to_loop, us_p50, us_p99, cpu_us, own_cpu_us, rss_kib, .. } = self;
        format!(
            "| {runner} | {jobs} | {jobs_per_s:.0} | {to_loop:.2} | {us_p50:.1} | {us_p99:.1} | {cpu_us:.1} | {own_cpu_us:.1} | {:.1} | {lost} |\n",
            megabytes(*rss_kib)
        )
    }
}

impl Figure {
    fn at_most(figure: String, value: f64, target: f64) -> Figure {
        Figure { figure, value, relation: "≤", target, met: value <= target }
    }

    fn at_least(figure: impl Into<String>, value: f64, target: f64) -> Figure {
        Figure { figure: figure.into(), value, relation: "≥", target, met: value >= target }
    }
}

fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

/// The median, by nearest rank.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(values.collect(), 50)
}

/// A percentile by nearest rank; 0 of nothing.
pub(crate) fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{Duration, Record, Runner, percentile};
    use anyhow::anyhow;

    #[test]
    fn what_others_lose_is_in_the_record_and_what_ours_lose_is_an_error() {
        let mut record = Record::new(10, Duration::from_secs(1), 3, Vec::new());
        let lost = || anyhow!("9 of 10 lines").context("output of a runner");
        for _ in 0..2 {
            let answer = record.tolerate::<()>(Runner::Moreutils, "/bin/echo, -j2", Err(lost()));
            assert!(matches!(answer, Ok(None)));
        }
        assert!(matches!(record.tolerate(Runner::Moreutils, "/bin/echo, -j2", Ok(7)), Ok(Some(7))));
        for runner in [Runner::Loop, Runner::ForklessXargs, Runner::Library] {
            assert!(record.tolerate::<()>(runner, "/bin/echo, -j2", Err(lost())).is_err());
        }
        let text = record.markdown();
        assert!(text.contains("| moreutils parallel, /bin/echo, -j2: 9 of 10 lines | 2 |"), "{text}");
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values = || vec![5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!((percentile(values(), 50), percentile(values(), 99)), (3.0, 5.0));
        assert_eq!((percentile(vec![7.0], 50), percentile(Vec::new(), 99)), (7.0, 0.0));
    }
}
