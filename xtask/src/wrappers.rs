//! Measures `forkless run` beside the wrappers that it replaces: env, nice, setpriv, prlimit, timeout and bwrap. All run the
//! same program, in turn, in one process: [bench/METHODOLOGY.md](../../bench/METHODOLOGY.md#wrappers).

use crate::background::machine;
use crate::dist;
use crate::noshell::median;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::sys::wait::waitpid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What to measure, and where to write the record.
#[derive(clap::Args)]
pub struct Options {
    /// Run each command this many times
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the record to bench/record/DATE-wrappers
    #[arg(long)]
    record: bool,
}

#[path = "../../crates/cli/src/run/sandbox/calls.rs"]
mod calls;
#[path = "../../crates/cli/src/run/sandbox/filter.rs"]
#[allow(dead_code)]
mod filter;

/// The filter of `forkless run --sandbox`, as bwrap reads it: an array of `struct sock_filter`.
fn filter_of_sandbox() -> Vec<u8> {
    let bytes = |rule: forkless::BpfInstruction| {
        let [a, b] = rule.code.to_ne_bytes();
        let [c, d, e, f] = rule.k.to_ne_bytes();
        [a, b, rule.jt, rule.jf, c, d, e, f]
    };
    filter::program().into_iter().flat_map(bytes).collect()
}

/// The program that every wrapper runs.
const PROGRAM: &str = "/bin/true";

/// The files and namespaces of `forkless run --sandbox`.
const BWRAP: &str = "--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup --new-session \
                     --die-with-parent --ro-bind /usr /usr --ro-bind /etc /etc --ro-bind-try /opt /opt --symlink usr/bin /bin \
                     --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev \
                     --tmpfs /tmp --tmpfs /dev/shm --remount-ro / --cap-drop ALL --chdir /";

/// The largest size of the stripped command that is the target, and the largest resident size of a wrapper.
const STRIPPED_MB: u32 = 8;
const RSS_KIB: u32 = 3072;

/// What is done, by whom, the words before the program, and for ours the largest part of the other's cost that is the target.
type Job = (&'static str, &'static str, &'static str, Option<f64>);

/// In each job the other wrapper comes first.
const JOBS: [Job; 12] = [
    ("run a program", "env", "env", None),
    ("run a program", "forkless", "forkless run", Some(1.0)),
    ("nice value", "nice", "nice -n 1", None),
    ("nice value", "forkless", "forkless run --nice 1", Some(1.0)),
    ("no new privileges", "setpriv", "setpriv --no-new-privs", None),
    ("no new privileges", "forkless", "forkless run --no-new-privs", Some(1.0)),
    ("limit of open files", "prlimit", "prlimit --nofile=100:100", None),
    ("limit of open files", "forkless", "forkless run --nofile 100", Some(1.0)),
    ("timeout", "timeout", "timeout 5", None),
    ("timeout", "forkless", "forkless run --timeout 5", Some(1.0)),
    ("sandbox", "bwrap", "bwrap", None),
    ("sandbox", "forkless", "forkless run --sandbox --chdir /", Some(0.8)),
];

/// A command with its figures. The first is the program alone.
#[derive(Serialize)]
struct Row {
    job: &'static str,
    wrapper: &'static str,
    command: String,
    /// Medians and 99th percentiles, in microseconds: from the launch to the end, and the CPU time of all processes.
    wall: [f64; 2],
    cpu: [f64; 2],
    /// The median of the page faults of all processes, without those that read from a disk. Unlike times, other work on the
    /// machine does not change them.
    faults: u64,
    /// The wrapper's largest resident size while a program runs under it, in KiB.
    rss_kib: u64,
    /// What the wrapper adds to the program alone, by what the other one of the job adds: wall, CPU. For the others 1.
    ratio: Option<[f64; 2]>,
    target: Option<f64>,
    #[serde(skip)]
    words: Vec<String>,
    /// Wall and CPU time in microseconds, and page faults.
    #[serde(skip)]
    times: Vec<[f64; 3]>,
}

#[derive(Serialize)]
struct Record {
    version: u32,
    machine: BTreeMap<String, String>,
    rounds: u32,
    program: &'static str,
    stripped_bytes: u64,
    rows: Vec<Row>,
    skipped: Vec<String>,
}

/// Builds, measures, prints a table, and writes the record.
///
/// # Errors
/// If cargo fails, or a wrapper fails.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--release", "--locked", "-p", "forkless-cli"];
    dist::run(Command::new(cargo).args(build).current_dir(dist::root()))?;
    let built = std::path::absolute(target)?.join("release/forkless");
    let record = measure(&built, options.rounds)?;
    let table = record.table();
    print!("{table}");
    if options.record {
        let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
        let place = dist::root().join(format!("bench/record/{}-wrappers", String::from_utf8(date.stdout)?.trim()));
        fs::create_dir_all(&place)?;
        fs::write(place.join("wrappers.txt"), table)?;
        fs::write(place.join("wrappers.json"), crate::json::lines(&record)?)?;
    }
    Ok(())
}

/// The same without a build and a record, for tests. Returns the table.
///
/// # Errors
/// As [`compare`].
pub fn smoke(built: &Path) -> Result<String> {
    Ok(measure(built, 3)?.table())
}

fn measure(built: &Path, rounds: u32) -> Result<Record> {
    // The init of bwrap outlives bwrap by a moment.
    set_child_subreaper(true)?;
    // As it is installed.
    let ours = std::env::temp_dir().join(format!("forkless-wrappers-{}", std::process::id()));
    dist::run(Command::new("strip").arg("-o").arg(&ours).arg(built))?;
    let filter = ours.with_extension("filter");
    fs::write(&filter, filter_of_sandbox())?;
    let measured = measure_stripped(&ours, rounds, &filter);
    let _ = fs::remove_file(&ours);
    let _ = fs::remove_file(&filter);
    measured
}

fn measure_stripped(ours: &Path, rounds: u32, filter: &Path) -> Result<Record> {
    let mut record = Record {
        version: 1,
        machine: machine::look(),
        rounds,
        program: PROGRAM,
        stripped_bytes: fs::metadata(ours)?.len(),
        rows: vec![Row::new("floor", "none", PROGRAM, Vec::new(), None)],
        skipped: Vec::new(),
    };
    for (job, wrapper, command, target) in JOBS {
        let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        if wrapper == "forkless" {
            words[0] = ours.to_str().context("a path that is no text")?.to_owned();
        }
        if wrapper == "bwrap" {
            words.extend(BWRAP.split_whitespace().map(str::to_owned));
            words.extend(["--seccomp".to_owned(), FILTER_FD.to_string()]);
        }
        let row = Row::new(job, wrapper, command, words, target);
        match row.run(filter) {
            Ok(_) => record.rows.push(row),
            Err(error) => record.skipped.push(format!("{command}: {error:#}")),
        }
    }
    for round in 0..rounds as usize {
        let count = record.rows.len();
        for turn in 0..count {
            // None always follows the same one, nor is always first.
            let index =
                if round % 2 == 0 { (turn + round) % count } else { (2 * count - turn - round % count) % count };
            let times = record.rows[index].run(filter)?;
            record.rows[index].times.push(times);
        }
    }
    for row in &mut record.rows {
        row.rss_kib = row.resident(filter)?;
    }
    record.summarize();
    Ok(record)
}

/// The number at which bwrap gets its filter.
const FILTER_FD: i32 = 9;

impl Row {
    fn new(job: &'static str, wrapper: &'static str, command: &str, words: Vec<String>, target: Option<f64>) -> Self {
        let command = command.to_owned();
        let (wall, cpu, faults, rss_kib, ratio, times) = Default::default();
        Self { job, wrapper, command, wall, cpu, faults, rss_kib, ratio, target, words, times }
    }

    /// The wrapper, with this program.
    fn command(&self, program: &[&str], filter: &Path) -> Result<forkless::Command> {
        let mut words = self.words.iter().map(String::as_str).chain(program.iter().copied());
        let mut command = forkless::Command::new(words.next().context("no program")?);
        command.args(words);
        if self.wrapper == "bwrap" {
            let file = File::open(filter).with_context(|| format!("{}", filter.display()))?;
            command.fd(forkless::Stdio::copy_of(file.as_fd())?, FILTER_FD);
        }
        Ok(command)
    }

    /// Wall and CPU time of one run in microseconds, and its page faults.
    fn run(&self, filter: &Path) -> Result<[f64; 3]> {
        let mut command = self.command(&[PROGRAM], filter)?;
        let (cpu_before, faults_before) = use_of_children()?;
        let start = Instant::now();
        let mut child = command.spawn()?;
        let status = child.wait()?;
        let wall = start.elapsed();
        ensure!(status.success(), "{status}");
        let (cpu, faults) = use_of_children()?;
        let [wall, cpu] = [wall, cpu - cpu_before].map(|time| time.as_secs_f64() * 1e6);
        Ok([wall, cpu, (faults - faults_before) as f64])
    }

    /// The largest resident size of the wrapper: of its process while a shell below it, or in its place, waits.
    fn resident(&self, filter: &Path) -> Result<u64> {
        let mut command = self.command(&["/bin/sh", "-c", "echo ready; read -r line"], filter)?;
        command.stdin(forkless::Stdio::piped()).stdout(forkless::Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = [0; 6];
        let mut output = child.stdout.take().context("no output")?;
        std::io::Read::read_exact(&mut output, &mut line)?;
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        drop(child.stdin.take());
        if child.wait_timeout(Duration::from_secs(10))?.is_none() {
            child.kill()?;
            bail!("{} does not end", self.command);
        }
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(peak.trim().trim_end_matches(" kB").parse()?)
    }
}

/// The CPU time and the page faults of all processes that this one has waited for. Waits for those that the wrapper has left, too: they belong to
/// this process, and are part of the cost.
fn use_of_children() -> Result<(Duration, i64)> {
    while waitpid(None, None).is_ok() {}
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let all = usage.user_time() + usage.system_time();
    Ok((Duration::from_micros(all.num_microseconds().try_into()?), usage.minor_page_faults()))
}

impl Record {
    /// Medians, percentiles, and ratios of what the wrappers add.
    fn summarize(&mut self) {
        for row in &mut self.rows {
            for (figure, index) in [(&mut row.wall, 0), (&mut row.cpu, 1)] {
                let times: Vec<f64> = row.times.iter().map(|times| times[index]).collect();
                *figure = [median(times.clone()), percentile(times, 99)];
            }
            row.faults = median(row.times.iter().map(|times| times[2]).collect()) as u64;
        }
        let floor = [self.rows[0].wall[0], self.rows[0].cpu[0]];
        let added = |row: &Row| [row.wall[0] - floor[0], row.cpu[0] - floor[1]];
        let others: BTreeMap<_, _> =
            self.rows.iter().filter(|row| row.wrapper != "forkless").map(|row| (row.job, added(row))).collect();
        for row in self.rows.iter_mut().filter(|row| row.wrapper == "forkless") {
            let ours = added(row);
            row.ratio = others.get(row.job).map(|theirs| [ours[0] / theirs[0], ours[1] / theirs[1]]);
        }
    }

    fn table(&self) -> String {
        let mut text = String::new();
        let machine: Vec<_> = self.machine.values().map(String::as_str).collect();
        let _ = writeln!(text, "{}", machine.join(", "));
        let _ = writeln!(text, "{PROGRAM}, {} rounds in turn; bwrap has the filter of --sandbox", self.rounds);
        let _ =
            writeln!(text, "forkless is {:.1} MB stripped (target {STRIPPED_MB})\n", self.stripped_bytes as f64 / 1e6);
        let _ = writeln!(
            text,
            "{:<20}{:<34}{:>16}{:>16}{:>8}{:>9}  added, of the other's (target for RSS: {RSS_KIB})",
            "", "", "wall µs p50 p99", "CPU µs p50 p99", "faults", "RSS KiB"
        );
        for row in &self.rows {
            let pair = |figure: &[f64; 2]| format!("{:.0} {:.0}", figure[0], figure[1]);
            let target = row.target.map_or(String::new(), |target| format!(" (target {target})"));
            let ratio =
                row.ratio.map(|[wall, cpu]| format!("wall {wall:.2}, CPU {cpu:.2}{target}")).unwrap_or_default();
            let (wall, cpu) = (pair(&row.wall), pair(&row.cpu));
            let line = format!(
                "{:<20}{:<34}{wall:>16}{cpu:>16}{:>8}{:>9}  {ratio}",
                row.job, row.command, row.faults, row.rss_kib
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        self.skipped.iter().for_each(|what| _ = writeln!(text, "SKIPPED: {what}"));
        text
    }
}

/// The value below which this share of the numbers is.
fn percentile(mut numbers: Vec<f64>, percent: usize) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let place = (numbers.len() * percent / 100).min(numbers.len().saturating_sub(1));
    numbers.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_what_the_wrappers_add() {
        let row =
            |job, wrapper, times: [f64; 3]| Row { times: vec![times; 3], ..Row::new(job, wrapper, "", vec![], None) };
        let rows = vec![
            row("floor", "none", [100.0, 50.0, 7.0]),
            row("timeout", "timeout", [300.0, 150.0, 7.0]),
            row("timeout", "forkless", [200.0, 200.0, 7.0]),
            row("sandbox", "forkless", [200.0, 200.0, 7.0]),
        ];
        let mut record = Record {
            version: 1,
            machine: BTreeMap::new(),
            rounds: 3,
            program: PROGRAM,
            stripped_bytes: 1,
            rows,
            skipped: vec!["bwrap: missing".into()],
        };
        record.summarize();
        assert_eq!(record.rows[2].ratio, Some([0.5, 1.5]));
        assert_eq!((record.rows[1].ratio, record.rows[3].ratio, record.rows[1].faults), (None, None, 7));
        let table = record.table();
        assert!(table.contains("wall 0.50, CPU 1.50") && table.contains("SKIPPED: bwrap: missing"), "{table}");
    }

    #[test]
    fn percentile_is_one_of_the_numbers() {
        assert_eq!(percentile((1..=300).map(f64::from).collect(), 99), 298.0);
        assert_eq!(percentile(vec![2.0, 1.0], 99), 2.0);
    }
}
