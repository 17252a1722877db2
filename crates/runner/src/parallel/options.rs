//! The options of `forkless parallel`: the names of GNU parallel's.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args};
use forkless_jobs::{Halt, Timeout};

use super::{refused::Refused, values, values::Trim};

const INPUT: &str = "Input";
const COMMAND: &str = "Command and replacement strings";
const JOBS: &str = "Jobs";
const OUTPUT: &str = "Output";
const LOG: &str = "Log and resumption";
// The first word of a heading is its help topic: it must differ from that of INPUT.
const PIPE: &str = "Blocks of input for --pipe";
const SEMAPHORE: &str = "Semaphore";
const SLURM: &str = "Slurm";

/// Run COMMAND for each line of input, several at once
///
/// The grammar is that of GNU parallel: values come from standard input, from files (-a, ::::) or from the command line
/// (:::), and take the places of {} and other replacement strings in COMMAND. Without COMMAND, each line is a command.
#[derive(Args, Debug, Default)]
#[command(
    infer_long_args = true,
    args_override_self = true,
    after_help = AFTER,
    override_usage = "forkless parallel [OPTIONS] [COMMAND [ARGS]...] [::: VALUES]..."
)]
pub struct ParallelOptions {
    /// Read values from FILE, - for standard input; may be repeated
    #[arg(help_heading = INPUT, short = 'a', long, value_name = "FILE")]
    pub(super) arg_file: Vec<PathBuf>,

    /// End values with NUL instead of newline
    #[arg(help_heading = INPUT, short = '0', long)]
    pub(super) null: bool,

    /// End values with DELIM: text, \n, \t, \0, \036 (default: newline)
    #[arg(help_heading = INPUT, short = 'd', long, value_name = "DELIM", allow_hyphen_values = true)]
    pub(super) delimiter: Option<OsString>,

    /// Split values into columns {1}, {2}… at REGEX (syntax of Rust's regex)
    #[arg(help_heading = INPUT, short = 'C', long, value_name = "REGEX", allow_hyphen_values = true)]
    pub(super) colsep: Option<String>,

    /// Read comma-separated values, in which quotes protect commas and newlines; --colsep: one other byte than a comma
    #[arg(help_heading = INPUT, long)]
    pub(super) csv: bool,

    /// Take the first line as names of the columns, usable as {NAME}; with --pipe, repeat the header in each block: `:` (one
    /// line), a number of lines or a regular expression
    #[arg(help_heading = INPUT, long, value_name = "HEADER")]
    pub(super) header: Option<String>,

    /// Use at most N values for a job
    #[arg(help_heading = INPUT, short = 'n', long, value_name = "N", value_parser = values::size, allow_hyphen_values = true)]
    pub(super) max_args: Option<u64>,

    /// Use at most N values for a job, and repeat words that contain {}; with --pipe, N records
    #[arg(help_heading = INPUT, short = 'N', long, value_name = "N", value_parser = values::size, allow_hyphen_values = true)]
    pub(super) max_replace_args: Option<u64>,

    /// Use at most N lines for a job, and repeat words that contain {} (not with -m and --xargs); a line that ends in a blank
    /// goes on in the next one
    #[arg(help_heading = INPUT, short = 'L', value_name = "N", value_parser = values::size)]
    pub(super) lines: Option<u64>,

    /// Use at most N lines for a job (default: 1); words are not repeated
    #[arg(help_heading = INPUT, short = 'l', long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    pub(super) max_lines: Option<OsString>,

    /// Use as many values as fit, spread evenly over the slots; repeat words that contain {}
    #[arg(help_heading = INPUT, short = 'X')]
    pub(super) context: bool,

    /// Use as many values as fit, spread evenly over the slots
    #[arg(help_heading = INPUT, short = 'm')]
    pub(super) multiple: bool,

    /// Use as many values as fit
    #[arg(help_heading = INPUT, long)]
    pub(super) xargs: bool,

    /// Make lines shorter than SIZE bytes (default: 128K)
    #[arg(help_heading = INPUT, short = 's', long, value_name = "SIZE", value_parser = values::size)]
    pub(super) max_chars: Option<u64>,

    /// Exit if a line is too long (always so with -s, -X, -m and --xargs)
    #[arg(help_heading = INPUT, short = 'x', long)]
    pub(super) exit: bool,

    /// Stop reading at a line STRING
    #[arg(help_heading = INPUT, short = 'E', value_name = "STRING", allow_hyphen_values = true)]
    pub(super) eof_string: Option<OsString>,

    /// Like -E
    #[arg(help_heading = INPUT, short = 'e', long, value_name = "STRING", num_args = 0..=1, overrides_with = "eof_string")]
    pub(super) eof: Option<Option<OsString>>,

    /// Skip blank lines
    #[arg(help_heading = INPUT, short = 'r', long)]
    pub(super) no_run_if_empty: bool,

    /// Trim blanks: n (none), l (left), r (right), lr (default: n; lr with --colsep)
    #[arg(help_heading = INPUT, long, value_name = "HOW", value_parser = Trim::parse)]
    pub(super) trim: Option<Trim>,

    /// Combine the first values of all sources, then the second, and so on; shorter sources start again
    #[arg(help_heading = INPUT, long, alias = "xapply")]
    pub(super) link: bool,

    /// Run the jobs in random order
    #[arg(help_heading = INPUT, long)]
    pub(super) shuf: bool,

    /// Run part I of N of the input; auto: by SLURM_PROCID and SLURM_NTASKS or the variables of a CI
    #[arg(help_heading = INPUT, long, value_name = "I/N")]
    pub(super) shard: Option<String>,

    /// Use STRING instead of :::
    #[arg(help_heading = INPUT, long, value_name = "STRING")]
    pub(super) arg_sep: Option<OsString>,

    /// Use STRING instead of ::::
    #[arg(help_heading = INPUT, long, value_name = "STRING")]
    pub(super) arg_file_sep: Option<OsString>,

    /// Use STRING instead of {}
    #[arg(help_heading = COMMAND, short = 'I', value_name = "STRING", allow_hyphen_values = true)]
    pub(super) replacement: Option<OsString>,

    /// Like -I; {} if STRING is not given
    #[arg(help_heading = COMMAND, short = 'i', long, value_name = "STRING", num_args = 0..=1, overrides_with = "replacement")]
    pub(super) replace: Option<Option<OsString>>,

    /// Use STRING instead of {.}
    #[arg(help_heading = COMMAND, long, alias = "er", value_name = "STRING")]
    pub(super) extensionreplace: Option<OsString>,

    /// Use STRING instead of {/}
    #[arg(help_heading = COMMAND, long, alias = "bnr", value_name = "STRING")]
    pub(super) basenamereplace: Option<OsString>,

    /// Use STRING instead of {//}
    #[arg(help_heading = COMMAND, long, alias = "dnr", value_name = "STRING")]
    pub(super) dirnamereplace: Option<OsString>,

    /// Use STRING instead of {/.}
    #[arg(help_heading = COMMAND, long, alias = "bner", value_name = "STRING")]
    pub(super) basenameextensionreplace: Option<OsString>,

    /// Use STRING instead of {#}
    #[arg(help_heading = COMMAND, long, value_name = "STRING")]
    pub(super) seqreplace: Option<OsString>,

    /// Use STRING instead of {%}
    #[arg(help_heading = COMMAND, long, value_name = "STRING")]
    pub(super) slotreplace: Option<OsString>,

    /// Add {+/} {+.} {..} {...} {/..} {##} {0#} {0%} {:N} {#RE} {%RE} {/RE/TEXT} {^RE} {,RE}
    #[arg(help_heading = COMMAND, long)]
    pub(super) plus: bool,

    /// Quote COMMAND, so that the shell takes it literally
    #[arg(help_heading = COMMAND, short = 'q', long)]
    pub(super) quote: bool,

    /// Run the jobs on the workers of a Gearman server: forkless gearman-worker, or others (default QUEUE: forkless)
    #[arg(help_heading = JOBS, long, value_name = "HOST:PORT[/QUEUE]")]
    pub(super) gearman: Option<String>,

    /// Run N jobs at once: N, +N or -N from the number of CPUs, N%, 0 (as many as possible) or a file with one of these
    #[arg(help_heading = JOBS, short = 'j', short_alias = 'P', long, alias = "max-procs", value_name = "N", allow_hyphen_values = true)]
    pub(super) jobs: Option<String>,

    /// Run a failed job up to N times; 0: until it succeeds. N may contain replacement strings
    #[arg(help_heading = JOBS, long, value_name = "N", value_parser = Retries::parse)]
    pub(super) retries: Option<Retries>,

    /// Kill a job after DURATION, or after N% of the median time
    #[arg(help_heading = JOBS, long, value_name = "DURATION", value_parser = values::timeout)]
    pub(super) timeout: Option<Timeout>,

    /// Signals that end a job, and milliseconds between them (default: TERM,200,TERM,100,TERM,50,KILL,25)
    #[arg(help_heading = JOBS, long, alias = "termseq", value_name = "SEQUENCE")]
    pub(super) term_seq: Option<String>,

    /// Kill all that a job has started, also in other sessions, when it ends or forkless does (Linux 6.12)
    #[arg(help_heading = JOBS, long)]
    pub(super) kill_tree: bool,

    /// Stop early: never, soon or now, with fail=, success= or done= and N or N% (default: never)
    #[arg(help_heading = JOBS, long, alias = "halt-on-error", value_name = "WHEN,WHY", value_parser = parse_halt, allow_hyphen_values = true)]
    pub(super) halt: Option<HaltOption>,

    /// Wait for DURATION between two starts
    #[arg(help_heading = JOBS, long, value_name = "DURATION", value_parser = values::duration)]
    pub(super) delay: Option<Duration>,

    /// When a job's process has ended, wait up to DURATION for others that hold its captured output open (default: 0.2)
    #[arg(help_heading = JOBS, long, value_name = "DURATION", value_parser = values::duration)]
    pub(super) linger: Option<Duration>,

    /// Start no job while the load is N or more: N, or N% of the CPUs
    #[arg(help_heading = JOBS, long, value_name = "N")]
    pub(super) load: Option<String>,

    /// Start no job while less memory than SIZE is available
    #[arg(help_heading = JOBS, long, value_name = "SIZE", value_parser = values::size)]
    pub(super) memfree: Option<u64>,

    /// Run jobs at this niceness
    #[arg(help_heading = JOBS, long, value_name = "N", allow_hyphen_values = true)]
    pub(super) nice: Option<i32>,

    /// Run jobs in the working directory DIR, which may contain replacement strings and is made if it is missing
    #[arg(help_heading = JOBS, long, alias = "wd", value_name = "DIR")]
    pub(super) workdir: Option<OsString>,

    /// Accepted: jobs have the whole environment
    #[arg(help_heading = JOBS, long, value_name = "NAME")]
    pub(super) env: Vec<OsString>,

    /// Keep temporary files in DIR (default: $TMPDIR, else /tmp)
    #[arg(help_heading = JOBS, long, value_name = "DIR")]
    pub(super) tmpdir: Option<PathBuf>,

    /// Start jobs as clones of programs that are loaded already, where possible (experimental: docs/warm.md)
    #[arg(help_heading = JOBS, long, conflicts_with_all = ["slurm", "gearman"])]
    pub(super) warm: bool,

    /// Set NAME to the slot's number, from 0
    #[arg(help_heading = JOBS, long, value_name = "NAME")]
    pub(super) process_slot_var: Option<OsString>,

    /// Print the commands, and run none
    #[arg(help_heading = JOBS, long, alias = "dryrun")]
    pub(super) dry_run: bool,

    /// Write output in the order of the input
    #[arg(help_heading = OUTPUT, short = 'k', long, alias = "keeporder", overrides_with = "no_keep_order")]
    pub(super) keep_order: bool,

    /// Write output in the order in which jobs end (default)
    #[arg(help_heading = OUTPUT, long, overrides_with = "keep_order")]
    pub(super) no_keep_order: bool,

    /// Write a job's output when the job has ended (default)
    #[arg(help_heading = OUTPUT, long, overrides_with_all = ["ungroup", "line_buffer"])]
    pub(super) group: bool,

    /// Let jobs write to forkless's own output
    #[arg(help_heading = OUTPUT, short = 'u', long, overrides_with_all = ["group", "line_buffer"])]
    pub(super) ungroup: bool,

    /// Write whole lines as they come
    #[arg(help_heading = OUTPUT, long, aliases = ["lb", "linebuffer"], overrides_with_all = ["group", "ungroup"])]
    pub(super) line_buffer: bool,

    /// Begin each line of output with the values and a tab
    #[arg(help_heading = OUTPUT, long)]
    pub(super) tag: bool,

    /// Begin each line of output with TEXT, which may contain replacement strings, and a tab
    #[arg(help_heading = OUTPUT, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) tagstring: Option<OsString>,

    /// Print each command on standard output before its output
    #[arg(help_heading = OUTPUT, short = 'v', action = ArgAction::Count, overrides_with = "silent")]
    pub(super) verbose_out: u8,

    /// Print no commands (default)
    #[arg(help_heading = OUTPUT, long)]
    pub(super) silent: bool,

    /// Print each command on standard error when it starts
    #[arg(help_heading = OUTPUT, short = 't', long)]
    pub(super) verbose: bool,

    /// Show a bar on standard error
    #[arg(help_heading = OUTPUT, long)]
    pub(super) bar: bool,

    /// Show how many jobs run and have ended on standard error
    #[arg(help_heading = OUTPUT, long)]
    pub(super) progress: bool,

    /// Show the estimated time to the end on standard error
    #[arg(help_heading = OUTPUT, long)]
    pub(super) eta: bool,

    /// The number of all jobs, for --bar and --eta
    #[arg(help_heading = OUTPUT, long, aliases = ["total"], value_name = "N", value_parser = values::size)]
    pub(super) total_jobs: Option<u64>,

    /// Save output: a directory, a name with replacement strings, or a file .csv, .tsv or .json (- before it: standard output)
    #[arg(help_heading = OUTPUT, long, alias = "res", value_name = "NAME", allow_hyphen_values = true)]
    pub(super) results: Option<OsString>,

    /// End with "ran N, failed F, skipped S of N" on standard error
    #[arg(help_heading = OUTPUT, id = "end_summary", long = "summary")]
    pub(super) summary: bool,

    /// Log each job to FILE; append if FILE begins with +
    #[arg(help_heading = LOG, long, alias = "jl", value_name = "FILE")]
    pub(super) joblog: Option<OsString>,

    /// Skip jobs that are in the log
    #[arg(help_heading = LOG, long)]
    pub(super) resume: bool,

    /// Skip jobs that the log records as successful
    #[arg(help_heading = LOG, long)]
    pub(super) resume_failed: bool,

    /// Run again the commands that the log records as failed; ignore COMMAND and input
    #[arg(help_heading = LOG, long)]
    pub(super) retry_failed: bool,

    /// Give each job a block of standard input on its standard input
    #[arg(help_heading = PIPE, long, alias = "spreadstdin")]
    pub(super) pipe: bool,

    /// Like --pipe, for a file given with -a or ::::
    #[arg(help_heading = PIPE, long, alias = "pipepart")]
    pub(super) pipe_part: bool,

    /// Size of a block; with --pipe-part also -N: N blocks for each slot (default: 1M)
    #[arg(help_heading = PIPE, long, alias = "block-size", value_name = "SIZE", value_parser = values::block_size)]
    #[arg(allow_hyphen_values = true)]
    pub(super) block: Option<values::BlockSize>,

    /// After DURATION, at least 1 s, take the whole records that have come as a block (default: wait)
    #[arg(help_heading = PIPE, long, alias = "bt", value_name = "DURATION", value_parser = values::duration)]
    pub(super) block_timeout: Option<Duration>,

    /// Start of a record
    #[arg(help_heading = PIPE, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) recstart: Option<OsString>,

    /// End of a record (default: newline)
    #[arg(help_heading = PIPE, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) recend: Option<OsString>,

    /// Take --recstart and --recend as regular expressions (syntax of Rust's regex)
    #[arg(help_heading = PIPE, long)]
    pub(super) regexp: bool,

    /// Remove what separates records
    #[arg(help_heading = PIPE, long, aliases = ["removerecsep", "rrs"])]
    pub(super) remove_rec_sep: bool,

    /// Start one job for each slot, and give blocks to those that can take them
    #[arg(help_heading = PIPE, long, aliases = ["round", "roundrobin"])]
    pub(super) round_robin: bool,

    /// Give the block as a temporary file, named {}
    #[arg(help_heading = PIPE, long)]
    pub(super) cat: bool,

    /// Give the block as a FIFO, named {}
    #[arg(help_heading = PIPE, long)]
    pub(super) fifo: bool,

    /// Give all of standard input to each job
    #[arg(help_heading = PIPE, long)]
    pub(super) tee: bool,

    /// Wait until fewer than --jobs commands with the same --id run, then run COMMAND in the background
    #[arg(help_heading = SEMAPHORE, long)]
    pub(super) semaphore: bool,

    /// Name of the semaphore (default: the terminal)
    #[arg(help_heading = SEMAPHORE, long, aliases = ["id", "semaphorename"], value_name = "NAME")]
    pub(super) semaphore_name: Option<OsString>,

    /// Run COMMAND in the foreground, and exit with its exit status
    #[arg(help_heading = SEMAPHORE, long)]
    pub(super) fg: bool,

    /// Run COMMAND in the background (default)
    #[arg(help_heading = SEMAPHORE, long, overrides_with = "fg")]
    pub(super) bg: bool,

    /// Wait until all commands with this --id have ended
    #[arg(help_heading = SEMAPHORE, long)]
    pub(super) wait: bool,

    /// After SECS, run COMMAND anyway; after -SECS, give up
    #[arg(help_heading = SEMAPHORE, long, aliases = ["st", "semaphoretimeout"], value_name = "SECS", allow_hyphen_values = true)]
    pub(super) semaphore_timeout: Option<String>,

    /// Run jobs on all nodes of this Slurm job, with OPTIONS for srun; outside of a job, submit one, with OPTIONS for sbatch
    #[arg(help_heading = SLURM, long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true)]
    pub(super) slurm: Option<Option<OsString>>,

    /// Run a node's jobs elsewhere when it has been silent for DURATION (default: 30)
    #[arg(help_heading = SLURM, long, value_name = "DURATION", value_parser = values::duration)]
    pub(super) slurm_timeout: Option<Duration>,

    /// Run the jobs that a run with --slurm gives to this node
    #[arg(long, hide = true)]
    pub(super) slurm_worker: bool,

    /// Accepted, without effect
    #[arg(long, hide = true)]
    pub(super) gnu: bool,

    /// Accepted, without effect
    #[arg(long, hide = true, alias = "no-notice")]
    pub(super) will_cite: bool,

    /// Ignore $PARALLEL
    #[arg(help_heading = COMMAND, long)]
    pub(super) plain: bool,

    #[command(flatten)]
    pub(super) refused: Refused,

    /// The command, its arguments, and values after :::, ::::, :::+ and ::::+
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(super) words: Vec<OsString>,
}

const AFTER: &str = "\
Replacement strings: {} the value, {.} without extension, {/} its last component, {//} its directory,
{/.} last component without extension, {#} number of the job, {%} slot, {N} value N, also {N.} {N/} {N//} {N/.}

Exit codes:
  0        all jobs succeeded
  1-100    so many jobs failed
  101      more than 100 jobs failed
  255      another error
  75       in a Slurm job: a signal stopped the run; the same command with --resume does the rest
with --halt: the exit status of the job that ended the run, or the percentage of failed jobs";

/// How often a job is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Retries {
    Times(u32),
    /// A text with replacement strings: each job has its own number.
    OfJob(String),
}

impl Retries {
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(times) => Ok(Self::Times(times)),
            Err(_) if text.contains('{') => Ok(Self::OfJob(text.to_owned())),
            Err(_) => Err("must be a whole number, or a replacement string".to_owned()),
        }
    }

    /// Whether a job may run again.
    pub(super) fn is_any(&self) -> bool {
        *self != Self::Times(1)
    }

    /// The number for the engine: 0 has no limit.
    pub(super) fn most(times: u32) -> u32 {
        if times == 0 { u32::MAX } else { times }
    }
}

/// `None`: never.
#[derive(Debug, Clone, Copy)]
pub(super) struct HaltOption(pub(super) Option<Halt>);

fn parse_halt(text: &str) -> Result<HaltOption, String> {
    values::halt(text).map(HaltOption)
}
