//! `forkless parallel`: runs jobs at once, with the grammar of GNU parallel.

mod options;
mod plain;
mod refused;
mod grammar;
pub(crate) mod values;
mod shell;
mod shard;
mod quote;
mod change;
mod counted;
mod template;
mod csv;
mod records;
mod sources;
mod pack;
mod lines;
mod files;
mod blocks;
mod tee;
mod results;
mod report;
mod signals;
mod joblog;
mod plan;
mod processes;
mod message;
mod semaphore;
#[cfg(feature = "slurm")]
mod slurm;
#[cfg(feature = "gearman")]
mod gearman;
mod absent;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use forkless_jobs::{Control, HaltOn, Limit, Summary};

pub use message::FAILED;
use message::say;
pub use options::ParallelOptions;
pub use plain::plain;

#[cfg(not(feature = "gearman"))]
use absent::gearman;
#[cfg(not(feature = "slurm"))]
use absent::slurm;
use plan::Plan;
#[cfg(feature = "gearman")]
pub(crate) use plan::slots;
pub use shell::look_up;

/// The exit code for so many failed jobs, or more.
const MANY: u64 = 101;
/// The exit code for a signal is this plus the number of the signal, as in sh(1).
const SIGNALLED: i32 = 128;

/// The arguments of the command line, with those of the variable PARALLEL before them.
pub fn with_defaults(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    let asked = words.get(1).is_some_and(|word| word == "parallel" || word == "sem");
    let defaults = env::var_os("PARALLEL").filter(|text| asked && !text.is_empty());
    if let Some(defaults) = defaults.filter(|_| !words.iter().any(|word| word == "--plain")) {
        let defaults = grammar::split_words(&defaults.into_vec());
        words.splice(2..2, defaults.into_iter().map(OsString::from_vec));
    }
    words
}

/// Runs the jobs and returns the exit code of forkless.
pub fn main(options: &mut ParallelOptions, is_sem: bool) -> ExitCode {
    options.semaphore |= is_sem;
    options.return_words();
    let answer = match &options.refused.0 {
        Some(words) => Err(words.clone()),
        None if options.has_semaphore() => semaphore::run(options),
        None => run(options),
    };
    match answer {
        Ok(code) => ExitCode::from(code),
        Err(words) => {
            say(format_args!("{words}"));
            ExitCode::from(FAILED)
        }
    }
}

fn run(options: &ParallelOptions) -> Result<u8, String> {
    if env::var_os("PARALLEL_ENV").is_some_and(|text| !text.is_empty()) {
        return Err("PARALLEL_ENV (env_parallel) is not supported: use export and export -f".to_owned());
    }
    if options.workdir.as_ref().is_some_and(|directory| directory == "...") {
        return Err("--workdir ...: no directories are made: give one, or use mktemp -d in COMMAND".to_owned());
    }
    if options.slurm_timeout.is_some() && options.slurm.is_none() {
        return Err("--slurm-timeout is for --slurm: give that, too, or leave it out".to_owned());
    }
    if options.slurm_worker {
        return slurm::work(options);
    }
    if options.slurm.is_some() && !signals::is_in_slurm() {
        return slurm::submit(options, |words| say(words));
    }
    let control = Control::new().map_err(|error| format!("cannot make an eventfd: {error}"))?;
    let mut plan = Plan::of(options, &control)?;
    signals::handle(&control, &plan.report).map_err(|error| format!("cannot install signal handlers: {error}"))?;
    let halt = plan.options.halt;
    let (source, report, sink) = (&mut *plan.source, &mut plan.report, &mut *plan.sink);
    let summary = match options.slurm.is_some() && !options.dry_run {
        true => slurm::run(options, plan.options, source, report, sink, |words| say(words))?,
        false => {
            // The input has a descriptor of its own.
            plan.options.stdin_is_null = crate::no_input::replace_stdin();
            forkless_jobs::run(plan.options, source, report, sink).map_err(|error| format!("cannot run: {error}"))?
        }
    };
    plan.report.end();
    // The output has no reader any more, as after `| head`. That is no error: SIGPIPE kills other programs then.
    let is_unread = |error: &&io::Error| error.raw_os_error() == Some(libc::EPIPE);
    for error in summary.errors.iter().filter(|error| !is_unread(error)) {
        say(format_args!("{error}"));
    }
    if let Some(Err(error)) = plan.log.map(|log| log.end(&summary)) {
        say(format_args!("the log's summary: {error}"));
    }
    if options.summary {
        let _ = io::stderr().write_all(format!("{summary}\n").as_bytes());
        if let Some((warm, cold)) = plan.warm.as_ref().map(crate::warm::Templates::counts) {
            let line = format!("launches: {warm} warm, {cold} cold\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
    if summary.errors.iter().any(|error| is_unread(&error)) {
        // The signal ends the process without dropping anything: temporary directories are removed before.
        drop((plan.source, plan.report, plan.sink, plan.warm));
        let _ = signal_hook::low_level::emulate_default_handler(libc::SIGPIPE);
    }
    Ok(exit_code(&summary, halt.map(|halt| (halt.on, halt.limit))))
}

/// As GNU parallel's: the number of failed jobs, or what ended the run early.
fn exit_code(summary: &Summary, halt: Option<(HaltOn, Limit)>) -> u8 {
    let failed = || summary.failed.min(MANY) as u8;
    if !summary.errors.is_empty() {
        return FAILED;
    }
    let percentage = || (summary.failed * 100).div_ceil(summary.total.max(1)).min(100) as u8;
    if let (Some((on, limit)), Some((status, signal))) = (halt, summary.halted_by) {
        // A percentage that amounts to one job counts as one job.
        let is_one = match limit {
            Limit::Count(count) => count == 1,
            Limit::Percent(percent) => percent * summary.total as f64 == 100.0,
        };
        return match (on, limit) {
            (HaltOn::Success, _) => 0,
            (_, Limit::Percent(_)) if !is_one => percentage(),
            _ if !is_one => failed(),
            // A job that has timed out may have exited with 0.
            (HaltOn::Fail, _) if (status, signal) == (0, 0) => FAILED,
            _ if signal > 0 => (SIGNALLED + signal) as u8,
            _ => status as u8,
        };
    }
    if summary.stopped.is_some() {
        let unfinished = if signals::is_in_slurm() { signals::RESUME } else { FAILED };
        return if summary.is_complete() { failed() } else { unfinished };
    }
    match failed() {
        0 if !summary.is_complete() => FAILED,
        _ if matches!(halt, Some((_, Limit::Percent(_)))) => percentage(),
        code => code,
    }
}
