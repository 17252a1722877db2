//! Runs a runner once: times, counts of jobs, and system calls.

use super::contestants::{Places, Runner, Work};
use crate::dist;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs of `bench/runners`, and files that all runs share.
pub(super) struct Tools {
    place: PathBuf,
    /// The shell of the runners that start one.
    shell: PathBuf,
}

/// One run of a runner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) jobs: u64,
    pub(super) wall_ns: f64,
    /// CPU time of the runner with all jobs, and of the runner alone.
    pub(super) tree_us: f64,
    pub(super) own_us: f64,
    /// The largest process of the runner and its jobs.
    pub(super) rss_kib: u64,
}

impl Run {
    pub(super) fn us_per_job(&self) -> f64 {
        self.wall_ns / 1e3 / self.jobs as f64
    }
}

impl Tools {
    /// # Errors
    /// If cc fails.
    pub(super) fn build(place: &Path, shell: &Path) -> Result<Tools> {
        fs::create_dir_all(place).with_context(|| format!("{}", place.display()))?;
        let place = fs::canonicalize(place)?;
        let sources = dist::root().join("bench/runners");
        for (name, options) in [("loop", &[][..]), ("measure", &[]), ("mark", &["-static"])] {
            let mut cc = Command::new("cc");
            cc.args(["-O2", "-Wall", "-Wextra"]).args(options).arg("-o").arg(place.join(name));
            dist::run(cc.arg(sources.join(format!("{name}.c"))))?;
        }
        let mut cc = Command::new("cc");
        cc.args(["-static", "-nostdlib", "-o"]).arg(place.join("exit0"));
        dist::run(cc.arg(dist::root().join("bench/c/target.c")))?;
        Ok(Tools { place, shell: shell.to_owned() })
    }

    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// The static program that only exits.
    pub(super) fn exit0(&self) -> PathBuf {
        self.place.join("exit0")
    }

    /// Runs it, and checks its exit status and that as many processes were started as it had jobs.
    ///
    /// # Errors
    /// If it fails or has not run every job.
    pub(super) fn run(&self, places: &Places, runner: Runner, work: Work) -> Result<Run> {
        self.measure(places, runner, work).with_context(|| format!("{}, {work:?}", runner.name()))
    }

    /// As called from that shell.
    fn surround(&self, command: &mut Command) {
        // What GNU parallel remembers must not go to the user's directory.
        command
            .env("PARALLEL_HOME", self.place.join("gnu-parallel"))
            .env("PARALLEL_SHELL", &self.shell)
            .env("SHLVL", "1");
    }

    fn measure(&self, places: &Places, runner: Runner, work: Work) -> Result<Run> {
        let mut measure = Command::new(self.place.join("measure"));
        measure.arg(self.numbers(work.jobs)?).arg(self.place.join("output")).arg(self.place.join("errors"));
        measure.args(places.words(runner, work)?).env("MARKS", self.place.join("marks"));
        self.surround(&mut measure);
        let output = measure.output().context("measure")?;
        ensure!(output.status.success(), "measure: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let figures: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [status, wall_ns, tree_us, own_us, rss_kib, processes] = figures[..] else { bail!("measure: {text}") };
        let errors = fs::read_to_string(self.place.join("errors")).unwrap_or_default();
        ensure!(status == 0.0, "wait status {status}: {}", errors.lines().next().unwrap_or_default());
        ensure!(processes >= work.jobs as f64, "only {processes} processes for {} jobs", work.jobs);
        let itself = fs::read_to_string(self.place.join("output"))?;
        let wall_ns = if runner.times_itself() { last_number(&itself)? } else { wall_ns };
        Ok(Run { jobs: work.jobs, wall_ns, tree_us, own_us, rss_kib: rss_kib as u64 })
    }

    /// Runs jobs that leave marks, and checks that every job has left exactly one.
    ///
    /// # Errors
    /// If a job was lost or ran twice.
    pub(super) fn check_marks(&self, places: &Places, runner: Runner, slots: usize, jobs: u64) -> Result<()> {
        let marks = self.place.join("marks");
        fs::write(&marks, "")?;
        self.run(places, runner, Work { program: &self.place.join("mark"), slots, jobs })?;
        let text = fs::read_to_string(&marks)?;
        same_numbers(&text, jobs, false).with_context(|| format!("marks of the jobs of {}", runner.name()))
    }

    /// Checks the output of the last run, whose jobs were `echo`.
    ///
    /// # Errors
    /// If a line is missing, or out of order where the order was promised.
    pub(super) fn check_output(&self, runner: Runner, jobs: u64) -> Result<()> {
        let text = fs::read_to_string(self.place.join("output"))?;
        // The library's example prints its time behind the output of the jobs.
        let text = if runner.times_itself() { text.rsplit_once("took ").map_or("", |(lines, _)| lines) } else { &text };
        same_numbers(text, jobs, runner.is_ordered()).with_context(|| format!("output of {}", runner.name()))
    }

    /// The wall time in nanoseconds of a shell that starts one job.
    ///
    /// # Errors
    /// If it fails.
    pub(super) fn shell(&self) -> Result<f64> {
        let mut measure = Command::new(self.place.join("measure"));
        measure.arg("/dev/null").arg(self.place.join("output")).arg(self.place.join("errors"));
        let output = measure.args(["sh", "-c", "\"$0\" 1; exit $?"]).arg(self.exit0()).output().context("measure")?;
        let text = String::from_utf8(output.stdout)?;
        let mut figures = text.split_whitespace();
        ensure!(figures.next() == Some("0"), "sh: {text}");
        figures.next().and_then(|wall| wall.parse().ok()).context("measure")
    }

    /// The file with the numbers 1 to `jobs`.
    fn numbers(&self, jobs: u64) -> Result<PathBuf> {
        let path = self.place.join(format!("numbers-{jobs}"));
        if !path.exists() {
            let lines: Vec<String> = (1..=jobs).map(|number| number.to_string()).collect();
            fs::write(&path, lines.join("\n") + "\n")?;
        }
        Ok(path)
    }

    /// System calls of the runner's first thread for each job: the difference of two runs. None without strace.
    ///
    /// # Errors
    /// If the runner fails under it.
    pub(super) fn calls(&self, places: &Places, runner: Runner, counts: [u64; 2]) -> Result<Option<f64>> {
        let mut totals = Vec::new();
        for jobs in counts {
            let work = Work { program: &self.exit0(), slots: 2, jobs };
            let report = self.place.join("calls");
            let mut strace = Command::new("strace");
            strace.args(["-c", "-o"]).arg(&report).args(places.words(runner, work)?);
            self.surround(&mut strace);
            let output = match strace.stdin(fs::File::open(self.numbers(jobs)?)?).output() {
                Err(_) => return Ok(None),
                Ok(output) => output,
            };
            ensure!(output.status.success(), "{} under strace: {output:?}", runner.name());
            totals.push(total_of(&fs::read_to_string(&report)?).context("no total of strace")?);
        }
        Ok(Some((totals[1] - totals[0]) / (counts[1] - counts[0]) as f64))
    }
}

/// The number of calls in the last line of `strace -c`.
fn total_of(report: &str) -> Option<f64> {
    let line = report.lines().find(|line| line.trim_end().ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

fn last_number(text: &str) -> Result<f64> {
    text.split_whitespace().last().and_then(|word| word.parse().ok()).context("the runner printed no time")
}

/// Does every number from 1 to `jobs` have one line?
fn same_numbers(text: &str, jobs: u64, ordered: bool) -> Result<()> {
    let mut numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    if !ordered {
        numbers.sort_unstable();
    }
    let wrong = numbers.iter().zip(1..).position(|(number, expected)| *number != expected);
    ensure!(text.lines().count() as u64 == jobs && numbers.len() as u64 == jobs, "{} of {jobs} lines", numbers.len());
    ensure!(wrong.is_none(), "line {} is wrong", wrong.map_or(0, |line| line + 1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{same_numbers, total_of};

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
        assert_eq!(total_of("100.00    0.018282           9      1829           total\n"), Some(1829.0));
        assert_eq!(total_of(""), None);
    }
}
