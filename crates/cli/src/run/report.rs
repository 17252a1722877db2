//! `--report` and `--json-status-fd`: how the program ended, as JSON. The schemas are in docs/run.md.

use std::{ffi::OsString, fs::File, io::Write, os::unix::process::ExitStatusExt, path::Path, process::ExitStatus};

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

/// What is reported, and where.
pub(super) struct Reports {
    file: Option<File>,
    /// That of `--json-status-fd`.
    status: Option<File>,
    /// `None`: the program was not started.
    pub(super) ended: Option<Ended>,
}

impl Reports {
    /// Opens the files before the program is started: one that cannot be opened is an error at once.
    pub(super) fn open(options: &RunOptions) -> Result<Self, Failure> {
        // `--explain` runs nothing, and must not truncate the file.
        let status = options.json_status_fd.filter(|_| !options.explain);
        let status = status.map(|number| super::options::open_fd("--json-status-fd", number).map(Into::into));
        Ok(Self { file: open(options)?, status: status.transpose()?, ended: None })
    }

    /// Reports the process that was created. In a sandbox it is the init.
    pub(super) fn created(&mut self, pid: u32) {
        self.tell("child-pid", pid);
    }

    /// Writes both reports at the end of forkless.
    pub(super) fn finish(
        mut self,
        options: &RunOptions,
        outcome: Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        if self.ended.is_some() && outcome.is_ok() {
            self.tell("exit-code", code(&outcome).into());
        }
        let Some(file) = self.file else { return outcome };
        let program = options.words.iter().find(|word| parse::split(word, b'=').is_none());
        let program: OsString = program.or(options.shell.as_ref()).cloned().unwrap_or_default();
        let written = write(file, &program, self.ended.as_ref(), &outcome);
        match (written, outcome) {
            (Err(error), Ok(_)) => Err(Failure::before(format_args!("--report: cannot write it: {error}"))),
            (_, outcome) => outcome,
        }
    }

    /// One object on one line, with a blank after the colon: scripts match the format of bwrap(1).
    fn tell(&mut self, key: &str, value: u32) {
        let Some(file) = &mut self.status else { return };
        if let Err(error) = writeln!(file, "{{\"{key}\": {value}}}") {
            // The program runs, and its end must not depend on this.
            super::say(format_args!("--json-status-fd: cannot write to it: {error}"));
            self.status = None;
        }
    }
}

/// The file of `--report`.
fn open(options: &RunOptions) -> Result<Option<File>, Failure> {
    let Some(target) = options.report.as_ref().filter(|_| !options.explain) else { return Ok(None) };
    let failed = |why: String| Failure::before(format_args!("--report: {why}"));
    if let Some(number) = target.to_str().and_then(|text| text.strip_prefix("fd:")) {
        let number = parse::fd_number(number.as_ref()).map_err(failed)?;
        return super::options::open_fd("--report", number as u32).map(|fd| Some(fd.into()));
    }
    let path = Path::new(target);
    File::create(path).map(Some).map_err(|error| failed(format!("cannot open {path:?}: {}", reason(path, &error))))
}

/// The exit code of forkless.
fn code(outcome: &Result<Outcome, Failure>) -> u8 {
    match outcome {
        Ok(Outcome::Code(code)) => *code,
        Ok(Outcome::Signal(signal)) => supervised::shell_code(*signal),
        Err(failure) => failure.code,
    }
}

/// Writes the report: one object on one line.
fn write(
    mut file: File,
    program: &std::ffi::OsStr,
    ended: Option<&Ended>,
    outcome: &Result<Outcome, Failure>,
) -> std::io::Result<()> {
    let status = ended.map(|ended| ended.status);
    let signal = status.and_then(|status| status.signal());
    let error = outcome.as_ref().err().map(|failure| {
        let launch = failure.launch.as_ref();
        json!({
            "message": forkless_runner::message::clean(&failure.message),
            "step": launch.map(|error| error.step().describe()),
            "errno": launch.and_then(forkless::Error::errno),
        })
    });
    let report = json!({
        "program": program.to_string_lossy(),
        "exit_code": code(outcome),
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
