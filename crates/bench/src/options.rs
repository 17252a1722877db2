//! The options of `forkless bench`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::{compare::CompareOptions, condition::OUTPUTS, contestant::Contestant, report::ReportOptions};

/// Measure every way to launch a process, on this machine.
///
/// Runs a static program that only exits, or PROGRAM, by each way in turn, under growing memory, mappings, open files
/// and threads of the launching process.
#[derive(Args, Debug)]
#[command(override_usage = "forkless bench [OPTIONS] [PROGRAM [ARGS]...]\n       forkless bench report|compare …")]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct BenchOptions {
    #[command(subcommand)]
    pub(crate) with_records: Option<WithRecords>,

    /// Fewer conditions and fewer launches: done in half a minute
    #[arg(long)]
    pub(crate) quick: bool,

    /// Everything, up to 8 GiB of memory where that is free, 60,000 mappings and all files that are allowed: a quarter of an hour or so
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,

    /// Only these parts of the bench
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub(crate) only: Vec<Part>,

    /// Only these contestants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) launchers: Vec<Contestant>,

    /// Memory of the parent to try, in MiB [default: 0,100,1024; quick: 0,1024; full: to 8192]
    #[arg(long, value_name = "MIB", value_delimiter = ',')]
    pub(crate) memory: Option<Vec<u64>>,

    /// Additional mappings of the parent to try [default: 0,10000; full: to 60000]
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) mappings: Option<Vec<u64>>,

    /// Open files of the parent to try; the most the limit allows where that is less
    /// [default: 3,1000,15000; quick: 3,15000; full: to the limit]
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) fds: Option<Vec<u64>>,

    /// Threads launching at once to try [default: 1, 2, 4 … 2 × cores; quick: 1 and 2 × cores]
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) threads: Option<Vec<usize>>,

    /// Other threads that touch memory meanwhile, to try [default: as many as cores; full: 1, cores, 2 × cores]
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) faulting: Option<Vec<usize>>,

    /// Larger environments to try, in KiB more than ours [default: 100; full: 100,1024]
    #[arg(long, value_name = "KIB", value_delimiter = ',')]
    pub(crate) environment: Option<Vec<u64>>,

    /// Directories of PATH to try before the one with the program [default: 10; full: 1,10,100]
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) path_misses: Option<Vec<u64>>,

    /// Children alive of which one ends, at most what the limits allow [default: 10000; quick: 2000; full: 30000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) children: Option<usize>,

    /// Seconds to measure for, shared among all cells; setting up and the children alive come on top [default: 56; quick: 8; full: 440]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time: Option<Duration>,

    /// At most this many launches per contestant and condition
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) samples: u64,

    /// Write the figures as JSON (- for standard output, which then has no table)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the figures as CSV (- for standard output, which then has no table)
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Where to put results.json, results.csv, alive.csv, table.txt, the plots and index.html
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub(crate) out: PathBuf,

    /// The library libforkless_preload.so (cargo xtask dist), to measure what it makes of libc's functions
    #[arg(long, value_name = "FILE")]
    pub(crate) preload: Option<PathBuf>,

    /// No progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,

    /// Serve as an engine (crates/bench/engines/README.md): how the bench starts itself
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) serve: Option<Contestant>,

    /// Program to launch, which must exit with 0, instead of one that only exits
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// What is done with records instead of measuring. A program of such a name needs a path, or `--` before it.
#[derive(Subcommand, Debug)]
pub(crate) enum WithRecords {
    Report(ReportOptions),
    Compare(CompareOptions),
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Memory of the parent
    Memory,
    /// Mappings of the parent
    Mappings,
    /// Open files of the parent, without and with three pipes to the child
    Fds,
    /// Threads launching at once
    Threads,
    /// Other threads that touch memory meanwhile
    Faulting,
    /// Environments that are larger
    Environment,
    /// Programs that are searched for in PATH
    Path,
    /// Settings of the child, in a small and in a large parent
    Settings,
    /// Capturing what the child writes
    Output,
    /// Many children alive of which one ends
    Alive,
    /// Launches from tasks of a tokio runtime
    Tokio,
    /// Output, alive, tokio and all else that the handle does
    Handle,
}

impl BenchOptions {
    /// The contestants that were asked for, each once, in the order of the tables.
    pub(crate) fn contestants(&self) -> Vec<Contestant> {
        let wanted = |c: &Contestant| self.launchers.is_empty() || self.launchers.contains(c);
        Contestant::ALL.into_iter().filter(wanted).collect()
    }

    /// Whether the part was asked for.
    pub(crate) fn measures(&self, part: Part) -> bool {
        let is_handle = matches!(part, Part::Output | Part::Alive | Part::Tokio) && self.only.contains(&Part::Handle);
        // Each contestant is a process of its own in these, and it takes a while to start them all.
        let is_usual = !self.quick || !matches!(part, Part::Environment | Part::Path);
        self.only.is_empty() && is_usual || self.only.contains(&part) || is_handle
    }

    /// Whether there is a sweep, which begins at the small parent.
    pub(crate) fn sweeps(&self) -> bool {
        let sweeps =
            [Part::Memory, Part::Mappings, Part::Fds, Part::Threads, Part::Faulting, Part::Environment, Part::Path];
        sweeps.into_iter().any(|part| self.measures(part))
    }

    /// Time to share among the cells.
    pub(crate) fn measuring_time(&self) -> Duration {
        self.time.unwrap_or(Duration::from_secs(match (self.quick, self.full) {
            (true, _) => 8,
            (false, false) => 56,
            (false, true) => 440,
        }))
    }

    /// Bytes that the child writes, where that is measured.
    pub(crate) fn outputs(&self) -> Vec<u64> {
        let [few, many] = OUTPUTS;
        if self.full { vec![few, 64 << 10, 1 << 20, many] } else { vec![few, many] }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(value) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("must be more than 0".to_owned()),
    }
}
