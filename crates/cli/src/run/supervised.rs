//! Starts the program as a child, waits for it and reports: `--timeout`, `--capture`, `--usage` and the like.

use std::{
    ffi::OsString,
    fmt,
    io::{self, Write},
    os::unix::process::ExitStatusExt,
};

use forkless::{Child, Command, Namespace, ShellRoute, Step, Usage};

use super::{
    Outcome,
    captured::{Captured, When},
    failure::{FAILED, Failure, say},
    job_control::has_terminal,
    options::{OwnGroup, RunOptions, SessionAndGroup},
    parse::FdSource,
    remedy,
    report::{Ended, Reports},
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
    command.launched_once(true);
    let terminal = open_terminal(command, options)?;
    if options.capture.is_some() && !Captured::ask(command, taken(options)) {
        return Err(Failure::before("--capture: both standard output and standard error are redirected"));
    }
    Ok(terminal)
}

/// Runs the program to its end.
pub(super) fn run(
    mut asked: Asked,
    terminal: Option<Terminal>,
    options: &RunOptions,
    reports: &mut Reports,
) -> Result<Outcome, Failure> {
    let mut watch = watch(&mut asked, options)?;
    // Created after the signals are taken: a signal before that would kill forkless and leave the cgroup behind.
    let group = options.control_group.make()?;
    if let Some(group) = &group {
        group.join(asked.settings())?;
    }
    let program = asked.settings().get_program().to_owned();
    let (mut child, shell) = match asked.launch() {
        Ok(launched) => launched,
        Err(error) => {
            return Ok(outcome(Ending { status: watch.killed_early(error, None)?, timed_out: None }, options));
        }
    };
    reports.created(child.id());
    if options.route {
        say(format_args!("route: {}", child.route()));
        asked.line_route().into_iter().for_each(|route| say(format_args!("line: {route}")));
    }
    // Closes the files opened for the program: a pipe that stays open here would keep its reader from seeing the end.
    drop(asked);
    let mut captured = options.capture.map(|_| Captured::new(&mut child, options.limit_output)).transpose()?;
    let mut ending = watch.wait(&mut child, patience(options), terminal, captured.as_mut())?;
    // Not after a timeout: with a shell, the signal would have hit the shell itself.
    if let Some(shell) = shell.filter(|_| ending.timed_out.is_none()) {
        ending.status = shell.status(ending.status)?;
    }
    let oom_kills = group.as_ref().map_or(0, OwnGroup::oom_kills);
    let ended =
        || Ended { status: ending.status, timed_out: ending.timed_out, usage: child.usage().cloned(), oom_kills };
    reports.ended = Some(ended());
    let outcome = outcome(ending, options);
    let trouble = group.as_ref().and_then(OwnGroup::trouble);
    let group_usage = group.as_ref().map(OwnGroup::usage).unwrap_or_default();
    let group_end = group.map(OwnGroup::end);
    // From here on, a signal ends forkless: its output may block for ever if it is not read.
    drop(watch);
    if let Some(captured) = captured.filter(|_| outcome != Outcome::Code(0) || options.capture == Some(When::Always)) {
        let failed = |error| Failure::before(format_args!("cannot write the captured output: {error}"));
        captured.show().map_err(failed)?;
    }
    if let Some(words) = remedy::of_death(&program, ending.status, options) {
        say(words);
    }
    report_skipped(&child, trouble, options);
    if options.usage {
        if let Some(usage) = child.usage() {
            let _ = write!(io::stderr(), "{}{group_usage}", UsageBlock { program: &program, usage });
        }
    }
    if let Some(Err(error)) = group_end {
        say(format_args!("cannot remove the cgroup: {error}"));
    }
    Ok(outcome)
}

/// Reports what was skipped, and what went wrong with the cgroup.
fn report_skipped(child: &Child, trouble: Option<String>, options: &RunOptions) {
    let remark = |words: fmt::Arguments<'_>| {
        if !options.quiet {
            say(words);
        }
    };
    if let Some(words) = options.skipped() {
        remark(format_args!("skipped: {}: {words}", Step::Landlock.describe()));
    }
    for miss in child.skipped() {
        let words = miss.to_string();
        let failed = format!("failed to start {:?}: ", miss.program());
        remark(format_args!("skipped: {}", words.strip_prefix(&failed).unwrap_or(&words)));
    }
    if let Some(words) = trouble {
        remark(format_args!("{words}"));
    }
}

/// Prepares to supervise the program.
fn watch(asked: &mut Asked, options: &RunOptions) -> Result<Watch, Failure> {
    let is_sandboxed = options.sandbox.sandbox.is_some();
    let mut place = if is_sandboxed { SessionAndGroup::BelowInit } else { options.child.session_and_group() };
    // A timeout is to end all that the program has started, as that of timeout(1). On a terminal, a group of its own would
    // separate the program from the other commands of a pipeline.
    let ends_all = patience(options).timeout.is_some() && place == SessionAndGroup::Beside;
    if ends_all && !has_terminal() {
        asked.settings().process_group(0);
        place = SessionAndGroup::OwnGroup;
    }
    let mut watch = Watch::new(place, options.child.pty.is_some(), options.child.is_in_foreground())
        .map_err(|error| Failure::before(format_args!("cannot take signals: {error}")))?;
    if ends_all && place == SessionAndGroup::Beside {
        watch.end_descendants();
    }
    watch.leave_mask_to(asked.settings(), !options.signals.empty_signal_mask);
    // The parent-death signal would need a shell where the line needs none.
    let is_direct = matches!(asked.line_route(), Some(ShellRoute::Direct));
    // A sandbox ends with forkless in any case.
    if !is_direct && !is_sandboxed {
        options.child.supervised(asked.settings(), options.namespaces.has_joined(Namespace::Pid));
    }
    Ok(watch)
}

/// Are standard output and standard error redirected, so that they cannot be captured?
fn taken(options: &RunOptions) -> [bool; 2] {
    [options.has_fd(1), options.has_fd(2)]
}

/// Opens the pseudo-terminal of `--pty`.
fn open_terminal(command: &mut Command, options: &RunOptions) -> Result<Option<Terminal>, Failure> {
    let Some(size) = options.child.pty else { return Ok(None) };
    // If the program reads standard input directly, forkless must not: each would get only a part of it.
    let reads = !matches!(options.stdin, Some(FdSource::Inherit | FdSource::Fd(0)));
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
        linger: options.linger(),
    }
}

/// After a timeout this is always an exit code, as with timeout(1).
fn outcome(ending: Ending, options: &RunOptions) -> Outcome {
    match (ending.timed_out, ending.status.signal()) {
        (Some(libc::SIGKILL), _) if !options.preserve_status => Outcome::Code(shell_code(libc::SIGKILL)),
        (Some(_), _) if !options.preserve_status => Outcome::Code(TIMED_OUT),
        (None, Some(signal)) if !options.signal_exit_code => Outcome::Signal(signal),
        (_, Some(signal)) => Outcome::Code(shell_code(signal)),
        (_, None) => Outcome::Code(ending.status.code().map_or(FAILED, |code| u8::try_from(code).unwrap_or(u8::MAX))),
    }
}

/// The exit code by which a shell reports a signal.
pub(super) fn shell_code(signal: i32) -> u8 {
    SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX))
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
