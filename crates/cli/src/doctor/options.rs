//! The options of `forkless doctor`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use crate::run::amount;

/// Check this machine and recommend a launcher
///
/// Probes the kernel, reads limits, measures the launchers, and recommends one for PROGRAM and for a caller like the one
/// described, with the reasons. PROGRAM is not run, except with --warm.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES, override_usage = "forkless doctor [OPTIONS] [PROGRAM [ARGS]...]")]
pub(crate) struct DoctorOptions {
    /// Print all features, times, limits and facts about this system, too, and the chart
    #[arg(long)]
    pub(crate) all: bool,

    /// Print the chart of the choice, too
    #[arg(long)]
    pub(crate) chart: bool,

    /// Print JSON instead of text (see docs/doctor.md)
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the chart as SVG to FILE, too (-: write only the chart, to standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Do not mark the path taken in the chart
    #[arg(long)]
    pub(crate) no_path: bool,

    /// Measure each launcher for a few seconds (default)
    #[arg(long, overrides_with = "no_measure")]
    pub(crate) measure: bool,

    /// Skip the measurements
    #[arg(long)]
    pub(crate) no_measure: bool,

    /// Report whether PROGRAM can be launched warm, and what that gains: runs it (experimental)
    #[arg(long, requires = "words", conflicts_with_all = ["svg", "no_path", "pid", "threads", "memory", "files", "closures"])]
    pub(crate) warm: bool,

    /// Assume the memory, threads and open files of the running process PID
    #[arg(help_heading = CALLER, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,

    /// Assume a caller with COUNT threads
    #[arg(help_heading = CALLER, long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) threads: Option<u64>,

    /// Assume a caller with SIZE bytes of private memory (suffixes K, M, G, T)
    #[arg(help_heading = CALLER, long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,

    /// Assume a caller with COUNT open files
    #[arg(help_heading = CALLER, long, value_name = "COUNT")]
    pub(crate) files: Option<u64>,

    /// Assume that code of the caller must run in the child before exec, as with pre_exec
    #[arg(help_heading = CALLER, long)]
    pub(crate) closures: bool,

    /// Forbid a child to share the caller's memory, even until exec
    #[arg(help_heading = CALLER, long)]
    pub(crate) no_shared_memory: bool,

    /// Program to launch and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) words: Vec<OsString>,
}

const CALLER: &str = "Caller (default: a process like this one)";

const EXIT_CODES: &str = "\
Exit code:
  0    all required kernel features are available
  1    a feature is missing or a limit is nearly reached; the report starts with
       the consequences. With --warm: PROGRAM cannot be launched warm
  2    bad option, no such program or process, or the report cannot be written";

fn size(word: &str) -> Result<u64, String> {
    match amount(word) {
        Ok(u64::MAX) | Err(_) => Err(format!("{word:?} is not a size: must be a number, optionally with K, M, G or T")),
        fits => fits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_accepts_suffixes_but_not_unlimited() {
        assert_eq!(size("2G"), Ok(2 << 30));
        assert!(size("unlimited").is_err() && size("1X").is_err() && size("18446744073709551615").is_err());
    }
}
