//! The options of `forkless bench`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};

use super::{
    campaigns::Campaign, compare::CompareOptions, condition::OUTPUTS, contestant::Contestant, report::ReportOptions,
};

/// Compare methods to launch a process on this machine.
///
/// Launches a static program that only exits, or PROGRAM, with each method in turn, while the launching process has more
/// and more memory, mappings, open files and threads. Prints a summary, and writes tables and an HTML report.
#[derive(Parser, Debug)]
#[command(name = "forkless-bench", bin_name = "forkless bench", version, max_term_width = 80, after_help = EXAMPLES)]
#[command(override_usage = "forkless bench [OPTIONS] [PROGRAM [ARGS]...]\n       forkless bench report|compare …")]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) with_records: Option<WithRecords>,

    /// Measure fewer conditions and launches: takes half a minute
    #[arg(help_heading = SELECTION, long)]
    pub(crate) quick: bool,

    /// Measure everything, up to 8 GiB of memory if that is available, 60,000 mappings and the limit of open files: takes about
    /// 15 minutes
    #[arg(help_heading = SELECTION, long, conflicts_with = "quick")]
    pub(crate) full: bool,

    /// Measure only these parts [default: all but warm]
    #[arg(help_heading = SELECTION, long, value_name = "PART", value_delimiter = ',')]
    pub(crate) only: Vec<Part>,

    /// Measure only these methods [default: all that are installed]
    #[arg(help_heading = SELECTION, long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) launchers: Vec<Contestant>,

    /// Set the sizes of the parent's memory, in MiB [default: 0,100,1024; quick: 0,1024; full: to 8192]
    #[arg(help_heading = CONDITIONS, long, value_name = "MIB", value_delimiter = ',')]
    pub(crate) memory: Option<Vec<u64>>,

    /// Set the numbers of additional mappings of the parent [default: 0,10000; full: to 60000]
    #[arg(help_heading = CONDITIONS, long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) mappings: Option<Vec<u64>>,

    /// Set the numbers of open files of the parent, reduced to the limit if necessary
    /// [default: 3,1000,15000; quick: 3,15000; full: to the limit]
    #[arg(help_heading = CONDITIONS, long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) fds: Option<Vec<u64>>,

    /// Set the numbers of threads that launch concurrently [default: 1, 2, 4 … 2 × CPUs; quick: 1 and 2 × CPUs]
    #[arg(help_heading = CONDITIONS, long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) threads: Option<Vec<usize>>,

    /// Set the numbers of other threads that cause page faults [default: CPUs; full: 1, CPUs, 2 × CPUs]
    #[arg(help_heading = CONDITIONS, long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) faulting: Option<Vec<usize>>,

    /// Set the sizes that are added to the environment, in KiB [default: 100; full: 100,1024]
    #[arg(help_heading = CONDITIONS, long, value_name = "KIB", value_delimiter = ',')]
    pub(crate) environment: Option<Vec<u64>>,

    /// Set the numbers of directories in PATH before that of the program [default: 10; full: 1,10,100]
    #[arg(help_heading = CONDITIONS, long, value_name = "COUNT", value_delimiter = ',')]
    pub(crate) path_misses: Option<Vec<u64>>,

    /// Set the number of children alive, reduced to the limits if necessary [default: 10000; quick: 2000; full: 30000]
    #[arg(help_heading = CONDITIONS, long, value_name = "COUNT")]
    pub(crate) children: Option<usize>,

    /// Measure for SECONDS, shared among all methods and conditions, without setup and the part "alive" [default: 56; quick: 8;
    /// full: 440]
    #[arg(help_heading = SELECTION, long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time: Option<Duration>,

    /// Limit the launches of each method under each condition
    #[arg(help_heading = SELECTION, long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) samples: u64,

    /// Write the results as JSON to FILE (-: to standard output, instead of the summary)
    #[arg(help_heading = OUTPUT, long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the results as CSV to FILE (-: to standard output, instead of the summary)
    #[arg(help_heading = OUTPUT, long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Write results.json, results.csv, alive.csv, table.txt, the plots and index.html to DIR
    #[arg(help_heading = OUTPUT, long, value_name = "DIR", default_value = "target/bench")]
    pub(crate) out: PathBuf,

    /// Also measure libc's functions under this libforkless_preload.so (see cargo xtask dist)
    #[arg(help_heading = SELECTION, long, value_name = "FILE")]
    pub(crate) preload: Option<PathBuf>,

    /// Print the tables of all conditions before the summary, as table.txt has them (default: the summary alone, 25 lines at most)
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) tables: bool,

    /// Also judge the results by the performance targets of the project
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) targets: bool,

    /// Do not show the progress
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) no_progress: bool,

    /// Measure the methods for forkless doctor, which may use MIB of memory, and print JSON
    #[arg(long, hide = true, value_name = "MIB")]
    pub(crate) brief: Option<u64>,

    /// Print the man page
    #[arg(long, hide = true)]
    pub(crate) man: bool,

    /// Print the completions of the last word; used by forkless completions
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true, value_name = "WORD", exclusive = true)]
    pub(crate) complete: Option<Vec<OsString>>,

    /// Run as an engine; used by the bench itself (bench/engines/README.md)
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) serve: Option<Contestant>,

    /// Program to launch; must exit with 0 [default: a program that only exits]
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  forkless bench --quick
  forkless bench --only memory --launchers floor,posix_spawn --memory 0,1024
  forkless bench --only fds --tables
  forkless bench --json - --out results ls -l
  forkless bench compare old/results.json new/results.json";
const SELECTION: &str = "Selection";
const CONDITIONS: &str = "Conditions";
const OUTPUT: &str = "Output";

/// Subcommands: those that use records, and campaigns. A program with such a name needs a path, or `--` before it.
#[derive(Subcommand, Debug)]
pub(crate) enum WithRecords {
    Report(ReportOptions),
    Compare(CompareOptions),
    #[command(flatten)]
    Campaign(Campaign),
}

/// A part of the bench that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Memory of the parent
    Memory,
    /// Mappings of the parent
    Mappings,
    /// Open files of the parent, without and with three pipes to the child
    Fds,
    /// Threads that launch concurrently
    Threads,
    /// Other threads of the parent that cause page faults
    Faulting,
    /// Size of the environment
    Environment,
    /// Search for the program in PATH
    Path,
    /// Settings of the child, from a small and a large parent
    Settings,
    /// Capture of the child's output
    Output,
    /// Exit of one of many children
    Alive,
    /// Launches from tasks of a tokio runtime
    Tokio,
    /// Warm programs, experimental: only if it is named
    Warm,
    /// The parts output, alive and tokio
    Handle,
}

impl BenchOptions {
    /// The selected methods, each once, in the order of the tables.
    pub(crate) fn contestants(&self) -> Vec<Contestant> {
        let wanted = |c: &Contestant| self.launchers.is_empty() || self.launchers.contains(c);
        Contestant::ALL.into_iter().filter(wanted).collect()
    }

    /// Whether the part is selected.
    pub(crate) fn has_part(&self, part: Part) -> bool {
        let is_handle = matches!(part, Part::Output | Part::Alive | Part::Tokio) && self.only.contains(&Part::Handle);
        // These parts start a separate process for each method, which takes too long for --quick.
        let is_usual = !self.quick || !matches!(part, Part::Environment | Part::Path);
        self.only.is_empty() && is_usual && part != Part::Warm || self.only.contains(&part) || is_handle
    }

    /// Whether any sweep is selected. Each starts at the small parent.
    pub(crate) fn is_sweep(&self) -> bool {
        let sweeps =
            [Part::Memory, Part::Mappings, Part::Fds, Part::Threads, Part::Faulting, Part::Environment, Part::Path];
        sweeps.into_iter().any(|part| self.has_part(part))
    }

    /// The time to share among all methods and conditions.
    pub(crate) fn measuring_time(&self) -> Duration {
        self.time.unwrap_or(Duration::from_secs(match (self.quick, self.full) {
            (true, _) => 8,
            (false, false) => 56,
            (false, true) => 440,
        }))
    }

    /// The sizes of the child's output, in bytes.
    pub(crate) fn outputs(&self) -> Vec<u64> {
        let [few, many] = OUTPUTS;
        if self.full { vec![few, 64 << 10, 1 << 20, many] } else { vec![few, many] }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(value) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("must be more than 0".to_owned()),
    }
}
