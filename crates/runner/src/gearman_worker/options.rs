//! The options of `forkless gearman-worker`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;

use crate::parallel::values;

const QUEUES: &str = "Queues";
const LIMITS: &str = "Limits";
const SAFETY: &str = "Safety";

/// Run command lines from the queues of a Gearman server, many at once in one process
///
/// The workload of a job is a line for /bin/sh -c, which runs without a shell where the result is the same. The reply is its
/// standard output; standard error comes as a warning, and an exit code other than 0 as a failure. SIGTERM ends the worker
/// when the jobs that run have ended; the second one ends them.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER,
    override_usage = "forkless gearman-worker HOST:PORT --function NAME | --checks [OPTIONS]"
)]
pub struct GearmanWorkerOptions {
    /// Run the lines of the queue NAME; may be repeated
    #[arg(help_heading = QUEUES, long, short = 'f', value_name = "NAME")]
    pub(super) function: Vec<String>,

    /// Run the checks of mod_gearman in QUEUES (default: service,host,eventhandler), and send results to check_results
    #[arg(help_heading = QUEUES, long, value_name = "QUEUES", num_args = 0..=1, require_equals = true, value_delimiter = ',',
          default_missing_value = "service,host,eventhandler")]
    pub(super) checks: Vec<String>,

    /// Decrypt checks and encrypt results by mod_gearman's KEY, which other users see in the list of processes
    #[arg(help_heading = QUEUES, long, value_name = "KEY", conflicts_with = "key_file")]
    pub(super) key: Option<OsString>,

    /// Like --key, with the key in the first line of FILE
    #[arg(help_heading = QUEUES, long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,

    /// Name of this worker in results and in the server's list (default: the host's name)
    #[arg(help_heading = QUEUES, long, value_name = "NAME")]
    pub(super) name: Option<String>,

    /// Run up to N jobs at once: 8, 200%, +2; 0: as many as descriptors permit (default: one for each CPU; with --checks
    /// four, because a check mostly waits)
    #[arg(help_heading = LIMITS, long, short = 'j', value_name = "N")]
    pub(super) jobs: Option<String>,

    /// End a job after DURATION, with its process group (default: never; checks: the limit that their server sets, else 60 s)
    #[arg(help_heading = LIMITS, long, value_name = "DURATION", value_parser = values::duration)]
    pub(super) timeout: Option<Duration>,

    /// Keep SIZE bytes of a job's output, and drop the rest
    #[arg(help_heading = LIMITS, long, value_name = "SIZE", default_value = "1M", value_parser = values::size)]
    pub(super) max_output: u64,

    /// Do not run checks that are older than DURATION when they come (default: run all)
    #[arg(help_heading = LIMITS, long, value_name = "DURATION", value_parser = values::duration)]
    pub(super) max_age: Option<Duration>,

    /// Run only the program PATH, or those below it if it ends in /, and no shell; may be repeated
    #[arg(help_heading = SAFETY, long, value_name = "PATH")]
    pub(super) allow: Vec<PathBuf>,

    /// Connect to servers on other machines, too. Everybody who can reach such a server can run commands here
    #[arg(help_heading = SAFETY, long)]
    pub(super) remote: bool,

    /// The server, such as localhost:4730
    #[arg(value_name = "HOST:PORT")]
    pub(super) server: String,
}

const AFTER: &str = "\
Exit code:
  0  ended by a signal, after all jobs and results were delivered
  1  ended by a signal, but replies or results could not be delivered
  2  a wrong option";
