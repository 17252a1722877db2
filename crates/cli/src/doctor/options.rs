//! The options of `forkless doctor`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use crate::run::amount;

/// Say what this machine has for launching, and which way suits
///
/// Probes the kernel, reads the limits, and says which launcher suits PROGRAM and a caller like the one described, and
/// why. PROGRAM is not run.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES, override_usage = "forkless doctor [OPTIONS] [PROGRAM [ARGS]...]")]
pub(crate) struct DoctorOptions {
    /// As JSON, for programs (see docs/doctor.md)
    #[arg(long)]
    pub(crate) json: bool,

    /// Also write the chart as a picture (- for standard output, which then has nothing else)
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Do not mark in the chart which way was taken
    #[arg(long)]
    pub(crate) no_path: bool,

    /// Measure each launcher on this machine, for some seconds: the default
    #[arg(long, overrides_with = "no_measure")]
    pub(crate) measure: bool,

    /// Do not
    #[arg(long)]
    pub(crate) no_measure: bool,

    /// The caller is like the running process PID: its memory, threads, open files
    #[arg(help_heading = CALLER, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,

    /// The caller has that many threads
    #[arg(help_heading = CALLER, long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) threads: Option<u64>,

    /// The caller has that much memory of its own, in bytes (suffixes K, M, G, T)
    #[arg(help_heading = CALLER, long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,

    /// The caller has that many open files
    #[arg(help_heading = CALLER, long, value_name = "COUNT")]
    pub(crate) files: Option<u64>,

    /// Code of the caller's own is to run in the child before the exec, as with pre_exec
    #[arg(help_heading = CALLER, long)]
    pub(crate) closures: bool,

    /// No child may share the caller's memory, not even until its exec
    #[arg(help_heading = CALLER, long)]
    pub(crate) no_shared_memory: bool,

    /// The program to be launched, with its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) words: Vec<OsString>,
}

const CALLER: &str = "The caller (default: a process like this one)";

const EXIT_CODES: &str = "\
Exit code:
  0    everything that launches rest on is here
  1    something is missing, or a limit is near: what that costs is said first
  2    a bad option, no such program or process, or the answer could not be written";

fn size(word: &str) -> Result<u64, String> {
    match amount(word) {
        Ok(u64::MAX) | Err(_) => Err(format!("{word:?} is no size: must be a number, with K, M, G or T")),
        fits => fits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("2G"), Ok(2 << 30));
        assert!(size("unlimited").is_err() && size("1X").is_err() && size("18446744073709551615").is_err());
    }
}
