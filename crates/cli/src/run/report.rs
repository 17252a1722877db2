//! `--report`: how the program ended, as JSON. The schema is in docs/run.md.

use std::{fs::File, io::Write, os::unix::process::ExitStatusExt, path::Path, process::ExitStatus};

use forkless::Usage;
use serde_json::{Value, json};

use super::{
    Outcome,
    failure::{Failure, reason},
    options::RunOptions,
    parse, supervised,
};

/// The end of a program that was started.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The last signal sent because of the timeout.
    pub(super) timed_out: Option<i32>,
    pub(super) usage: Option<Usage>,
    /// Processes of its new cgroup that the OOM killer has killed.
    pub(super) oom_kills: u64,
}

/// The file of the report, opened before the program is started: a report that cannot be written is an error at once.
pub(super) fn open(options: &RunOptions) -> Result<Option<File>, Failure> {
    // `--explain` runs nothing, and must not truncate the file.
    let Some(target) = options.report.as_ref().filter(|_| !options.explain) else { return Ok(None) };
    let failed = |why: String| Failure::before(format_args!("--report: {why}"));
    if let Some(number) = target.to_str().and_then(|text| text.strip_prefix("fd:")) {
        let number = parse::fd_number(number.as_ref()).map_err(failed)?;
        return super::options::open_fd("--report", number as u32).map(|fd| Some(fd.into()));
    }
    let path = Path::new(target);
    File::create(path).map(Some).map_err(|error| failed(format!("cannot open {path:?}: {}", reason(path, &error))))
}

/// Writes the report: one object on one line.
pub(super) fn write(
    mut file: File,
    program: &std::ffi::OsStr,
    ended: Option<&Ended>,
    outcome: &Result<Outcome, Failure>,
) -> std::io::Result<()> {
    let code = match outcome {
        Ok(Outcome::Code(code)) => *code,
        Ok(Outcome::Signal(signal)) => supervised::shell_code(*signal),
        Err(failure) => failure.code,
    };
    let status = ended.map(|ended| ended.status);
    let signal = status.and_then(|status| status.signal());
    let error = outcome.as_ref().err().map(|failure| {
        let launch = failure.launch.as_ref();
        json!({
            "message": crate::message::clean(&failure.message),
            "step": launch.map(|error| error.step().words()),
            "errno": launch.and_then(forkless::Error::errno),
        })
    });
    let report = json!({
        "program": program.to_string_lossy(),
        "exit_code": code,
        "started": ended.is_some(),
        "program_exit_code": status.and_then(|status| status.code()),
        "signal": signal,
        "signal_name": signal.and_then(signal_hook::low_level::signal_name),
        "core_dumped": status.is_some_and(|status| status.core_dumped()),
        "timed_out": ended.is_some_and(|ended| ended.timed_out.is_some()),
        "timeout_signal": ended.and_then(|ended| ended.timed_out),
        "oom_kills": ended.map_or(0, |ended| ended.oom_kills),
        "usage": ended.and_then(|ended| ended.usage.as_ref()).map(usage),
        "error": error,
    });
    writeln!(file, "{report}")
}

fn usage(usage: &Usage) -> Value {
    json!({
        "wall_seconds": usage.wall_time.as_secs_f64(),
        "user_seconds": usage.user_time.as_secs_f64(),
        "system_seconds": usage.system_time.as_secs_f64(),
        "max_rss_kib": usage.max_rss_kib,
        "minor_faults": usage.minor_faults,
        "major_faults": usage.major_faults,
        "voluntary_switches": usage.voluntary_switches,
        "involuntary_switches": usage.involuntary_switches,
    })
}
