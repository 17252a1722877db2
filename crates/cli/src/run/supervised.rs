//! Starts the program as a child, waits for it and reports: `--timeout`, `--capture`, `--usage` and the like.

use std::{
    ffi::OsString,
    fmt,
    io::{self, Write},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
};

use forkless::{Command, Step, Usage};

use super::{
    captured::{Captured, When},
    failure::{FAILED, Failure, say},
    options::{OwnGroup, RunOptions},
    parse::Source,
    remedy,
    request::Asked,
    terminal::Terminal,
    wait::{Ending, Patience, Watch},
};

/// The exit code of timeout(1).
const TIMED_OUT: u8 = 124;
/// The exit code for a signal is this plus the number of the signal, as in sh(1).
const SIGNALLED: u8 = 128;

/// Connects the program to forkless: the pseudo-terminal of `--pty`, the pipes of `--capture`.
pub(super) fn connect(command: &mut Command, options: &RunOptions) -> Result<Option<Terminal>, Failure> {
    let terminal = open_terminal(command, options)?;
    if options.capture.is_some() && !Captured::ask(command, taken(options)) {
        return Err(Failure::before("--capture: both standard output and standard error are redirected"));
    }
    Ok(terminal)
}

/// Runs the program to its end and returns the exit code of forkless.
pub(super) fn run(mut asked: Asked, terminal: Option<Terminal>, options: &RunOptions) -> Result<u8, Failure> {
    let watch = Watch::new(terminal.is_some())
        .map_err(|error| Failure::before(format_args!("cannot install signal handlers: {error}")))?;
    // Created after the signal handlers are installed: a signal before that would kill forkless and leave the cgroup behind.
    let group = options.control_group.make()?;
    if let Some(group) = &group {
        group.join(asked.settings())?;
    }
    let program = asked.settings().get_program().to_owned();
    let (mut child, told) = asked.launch()?;
    if options.route {
        say(format_args!("route: {}", child.route()));
        asked.line_route().into_iter().for_each(|route| say(format_args!("line: {route}")));
    }
    // Closes the files opened for the program: a pipe that stays open here would keep its reader from seeing the end.
    drop(asked);
    let mut captured = options.capture.map(|_| Captured::new(&mut child, options.limit_output)).transpose()?;
    let mut ending = watch.wait(&mut child, patience(options), terminal, captured.as_mut())?;
    // Not after a timeout: with a shell, the signal would have hit the shell itself.
    if let Some(told) = told.filter(|_| ending.timed_out.is_none()) {
        ending.status = told.status(ending.status)?;
    }
    let code = exit_code(ending, options.preserve_status);
    if let Some(captured) = captured.filter(|_| code != 0 || options.capture == Some(When::Always)) {
        let failed = |error| Failure::before(format_args!("cannot write the captured output: {error}"));
        captured.show().map_err(failed)?;
    }
    if let Some(words) = remedy::of_death(&program, ending.status, options) {
        say(words);
    }
    let remark = |words: fmt::Arguments<'_>| {
        if !options.quiet {
            say(words);
        }
    };
    if let Some(words) = options.skipped() {
        remark(format_args!("skipped: {}: {words}", Step::Landlock.words()));
    }
    for miss in child.missed() {
        let words = miss.to_string();
        let failed = format!("failed to start {:?}: ", miss.program());
        remark(format_args!("skipped: {}", words.strip_prefix(&failed).unwrap_or(&words)));
    }
    if let Some(words) = group.as_ref().and_then(OwnGroup::trouble) {
        remark(format_args!("{words}"));
    }
    if options.usage {
        if let Some(usage) = child.usage() {
            let group = group.as_ref().map(OwnGroup::usage).unwrap_or_default();
            let _ = write!(io::stderr(), "{}{group}", UsageBlock { program: &program, usage });
        }
    }
    if let Some(Err(error)) = group.map(OwnGroup::end) {
        say(format_args!("cannot remove the cgroup: {error}"));
    }
    Ok(code)
}

/// Are standard output and standard error redirected, so that they cannot be captured?
fn taken(options: &RunOptions) -> [bool; 2] {
    [options.sets_fd(1), options.sets_fd(2)]
}

/// Opens the pseudo-terminal of `--pty`.
fn open_terminal(command: &mut Command, options: &RunOptions) -> Result<Option<Terminal>, Failure> {
    let Some(size) = options.child.pty else { return Ok(None) };
    // If the program reads standard input directly, forkless must not: each would get only a part of it.
    let reads = !matches!(options.stdin, Some(Source::Inherit | Source::Fd(0)));
    let terminal = Terminal::open(size, reads).map_err(Failure::before)?;
    if let Some(pty) = terminal.pty() {
        command.pty(pty);
    }
    Ok(Some(terminal))
}

fn patience(options: &RunOptions) -> Patience {
    Patience {
        // As in timeout(1), 0 means no timeout.
        timeout: options.timeout.filter(|time| !time.is_zero()),
        signal: options.signal,
        kill_after: options.kill_after.filter(|time| !time.is_zero()),
        own_group: options.child.leads_a_group(),
    }
}

fn exit_code(ending: Ending, preserve_status: bool) -> u8 {
    match ending.timed_out {
        Some(libc::SIGKILL) if !preserve_status => SIGNALLED + libc::SIGKILL as u8,
        Some(_) if !preserve_status => TIMED_OUT,
        _ => program_code(ending.status),
    }
}

fn program_code(status: ExitStatus) -> u8 {
    let number = |n: i32| u8::try_from(n).unwrap_or(u8::MAX);
    match (status.code(), status.signal()) {
        (Some(code), _) => number(code),
        (None, Some(signal)) => SIGNALLED.saturating_add(number(signal)),
        (None, None) => FAILED,
    }
}

/// The output of `--usage`.
struct UsageBlock<'a> {
    program: &'a OsString,
    usage: &'a Usage,
}

impl fmt::Display for UsageBlock<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = self.usage;
        let cpu = usage.user_time + usage.system_time;
        let share = 100.0 * cpu.as_secs_f64() / usage.wall_time.as_secs_f64().max(1e-9);
        writeln!(out, "forkless: usage of {:?}", self.program)?;
        writeln!(out, "  wall time     {:.6} s", usage.wall_time.as_secs_f64())?;
        writeln!(out, "  user time     {:.6} s", usage.user_time.as_secs_f64())?;
        writeln!(
            out,
            "  system time   {:.6} s (user and system: {share:.0} % of one CPU)",
            usage.system_time.as_secs_f64()
        )?;
        writeln!(out, "  peak memory   {} KiB", usage.max_rss_kib)?;
        writeln!(out, "  page faults   {} minor, {} major", usage.minor_faults, usage.major_faults)?;
        writeln!(
            out,
            "  switches      {} voluntary, {} involuntary",
            usage.voluntary_switches, usage.involuntary_switches
        )
    }
}
