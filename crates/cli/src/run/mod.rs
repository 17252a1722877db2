//! `forkless run`: runs one program with the settings of the library and exits with its exit code.

mod captured;
mod failure;
mod options;
mod parse;
mod sandbox;
mod terminal;
mod wait;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, fs,
    io::{self, Write},
    os::{
        fd::RawFd,
        unix::{ffi::OsStrExt, process::ExitStatusExt},
    },
    path::Path,
    process::{ExitCode, ExitStatus},
};

use forkless::{Child, Command, ShellCommand, ShellEnding, ShellRoute, Stdio, Step, Usage};

pub(crate) use options::{RunOptions, amount};

use options::OwnGroup;

use self::{
    captured::{Captured, When},
    failure::{FAILED, Failure, say},
    parse::{Assignment, Mode, Source},
    terminal::Terminal,
    wait::{Ending, Patience, Watch},
};

/// The exit code of timeout(1).
const TIMED_OUT: u8 = 124;
/// The exit code for a signal is this plus the number of the signal, as in sh(1).
const SIGNALLED: u8 = 128;

/// Runs the program and returns the exit code of forkless.
pub(crate) fn main(options: &RunOptions) -> ExitCode {
    match run(options) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say(format_args!("{}", failure.message));
            ExitCode::from(failure.code)
        }
    }
}

fn run(options: &RunOptions) -> Result<u8, Failure> {
    let (mut asked, assignments) = Asked::of(options)?;
    let sandbox = sandbox::Sandbox::of(options)?;
    let command = asked.settings();
    sandbox.iter().for_each(|sandbox| sandbox.begin(command));
    set_environment(command, options, &assignments);
    set_files(command, options)?;
    set_process(command, options)?;
    let terminal = open_terminal(command, options)?;
    if options.capture.is_some() && !Captured::ask(command, taken(options)) {
        return Err(Failure::before("--capture: both standard output and standard error are redirected"));
    }
    if let Some(sandbox) = &sandbox {
        sandbox.finish(command)?;
    }
    if options.explain {
        explain(&mut asked, options, sandbox.as_ref())?;
        return Ok(0);
    }

    let watch = Watch::new(terminal.is_some())
        .map_err(|error| Failure::before(format_args!("cannot install signal handlers: {error}")))?;
    // Created after the signal handlers are installed: a signal before that would kill forkless and leave the cgroup behind.
    let group = options.control_group.make()?;
    if let Some(group) = group.as_ref().filter(|_| sandbox.is_none()) {
        group.join(asked.settings())?;
    }
    let program = asked.settings().get_program().to_owned();
    let (mut child, told, inside) = match &sandbox {
        None => asked.launch().map(|(child, told)| (child, told, None))?,
        Some(sandbox) => {
            let (child, inside) = sandbox.start(asked.settings(), group.as_ref())?;
            (child, None, Some(inside))
        }
    };
    if options.route {
        say(format_args!("route: {}", child.route()));
        asked.line_route().into_iter().for_each(|route| say(format_args!("line: {route}")));
    }
    // Closes the files opened for the program: a pipe that stays open here would keep its reader from seeing the end.
    drop(asked);
    let mut captured = options.capture.map(|_| Captured::new(&mut child, options.limit_output)).transpose()?;
    let mut ending = watch.wait(&mut child, patience(options), terminal, captured.as_mut())?;
    ending.status = inside.map_or(ending.status, |inside| inside.of(ending.status));
    // Not after a timeout: with a shell, the signal would have hit the shell itself.
    if let Some(told) = told.filter(|_| ending.timed_out.is_none()) {
        ending.status = told.status(ending.status)?;
    }
    let code = exit_code(ending, options.preserve_status);
    if let Some(captured) = captured.filter(|_| code != 0 || options.capture == Some(When::Always)) {
        let failed = |error| Failure::before(format_args!("cannot write the captured output: {error}"));
        captured.show().map_err(failed)?;
    }
    if let Some(words) = options.skipped() {
        say(format_args!("skipped: {}: {words}", Step::Landlock.words()));
    }
    for miss in child.missed() {
        let words = miss.to_string();
        let failed = format!("failed to start {:?}: ", miss.program());
        say(format_args!("skipped: {}", words.strip_prefix(&failed).unwrap_or(&words)));
    }
    if let Some(words) = group.as_ref().and_then(OwnGroup::trouble) {
        say(format_args!("{words}"));
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

/// What to run: a program or a shell line.
enum Asked {
    Program(Command),
    Line(ShellCommand),
}

impl Asked {
    /// Also returns the variables given before the program.
    fn of(options: &RunOptions) -> Result<(Self, Vec<Assignment>), Failure> {
        if let Some(line) = options.shell.as_ref().filter(|_| options.sandbox.sandbox.is_some()) {
            return Ok((Self::Program(sandbox::shell(line)), Vec::new()));
        }
        if let Some(line) = &options.shell {
            return Ok((Self::Line(forkless::shell(line.as_bytes())), Vec::new()));
        }
        let (assignments, program) = split_words(&options.words)?;
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        for other in &options.or_else {
            command.or_else(other);
        }
        Ok((Self::Program(command), assignments))
    }

    fn settings(&mut self) -> &mut Command {
        match self {
            Self::Program(command) => command,
            Self::Line(line) => line.settings(),
        }
    }

    /// Uses `launch` rather than `spawn`, so that the timeout also covers reading the program from a slow disk. A line needs
    /// `spawn`: if its program is not found, the shell runs the line.
    fn launch(&mut self) -> io::Result<(Child, Option<ShellEnding>)> {
        match self {
            Self::Program(command) => Ok((command.launch()?, None)),
            Self::Line(line) => line.spawn().map(|child| child.into_parts()).map(|(child, told)| (child, Some(told))),
        }
    }

    /// How a line was started, or would be started.
    fn line_route(&self) -> Option<ShellRoute> {
        match self {
            Self::Program(_) => None,
            Self::Line(line) => Some(line.taken().cloned().unwrap_or_else(|| line.route())),
        }
    }
}

/// Are standard output and standard error redirected, so that they cannot be captured?
fn taken(options: &RunOptions) -> [bool; 2] {
    let numbered = |number| options.fd.iter().chain(&options.open).any(|request| request.number == number);
    [options.stdout.is_some() || numbered(1), options.stderr.is_some() || numbered(2)]
}

/// Splits the arguments, as env(1) does, into variables and the program with its arguments.
fn split_words(words: &[OsString]) -> Result<(Vec<Assignment>, &[OsString]), Failure> {
    let mut assignments = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match parse::split(word, b'=') {
            Some((name, _)) if name.is_empty() => {
                return Err(Failure::before(format_args!("{word:?}: the variable has no name; use NAME=VALUE")));
            }
            Some(assignment) => assignments.push(assignment),
            None => return Ok((assignments, &words[index..])),
        }
    }
    Err(Failure::before("no program given (see forkless run --help)"))
}

fn set_environment(command: &mut Command, options: &RunOptions, assignments: &[Assignment]) {
    if options.ignore_environment {
        command.env_clear();
    }
    for name in &options.unset {
        command.env_remove(name);
    }
    for (name, value) in options.env.iter().chain(assignments) {
        command.env(name, value);
    }
}

fn set_files(command: &mut Command, options: &RunOptions) -> Result<(), Failure> {
    let streams = [("--stdin", 0, &options.stdin), ("--stdout", 1, &options.stdout), ("--stderr", 2, &options.stderr)];
    let streams = streams.into_iter().filter_map(|(flag, number, source)| Some((flag, number, source.as_ref()?)));
    let passed = options.fd.iter().map(|request| ("--fd", request.number, &request.source));
    let opened = options.open.iter().map(|request| ("--open", request.number, &request.source));
    let mut taken = BTreeMap::new();
    for (flag, number, source) in streams.chain(passed).chain(opened) {
        if let Some(other) = taken.insert(number, flag) {
            return Err(Failure::before(format_args!("{flag}: fd {number} is already set by {other}")));
        }
        let stdio = match source {
            Source::File(path, mode) if flag == "--open" => Stdio::open(path, open_flags(*mode), 0o666),
            // `--explain` must not truncate the file. Any other file gives the same output.
            Source::File(..) if options.explain => stdio(&Source::File("/dev/null".into(), Mode::ReadWrite), number)?,
            _ => stdio(source, number)?,
        };
        command.fd(stdio, number);
    }
    command.inherit_all(options.inherit_all);
    Ok(())
}

/// The flags of open(2) for a file that the child opens.
fn open_flags(mode: Mode) -> i32 {
    match mode {
        Mode::Read => libc::O_RDONLY,
        Mode::Write => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        Mode::Append => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        Mode::ReadWrite => libc::O_RDWR | libc::O_CREAT,
    }
}

/// Opens files here and not in the child, so that relative paths do not depend on `--chdir`.
fn stdio(source: &Source, number: RawFd) -> Result<Stdio, Failure> {
    Ok(match source {
        Source::Inherit => Stdio::inherit(),
        Source::Null => Stdio::null(),
        // SAFETY: the descriptor was inherited from the caller of this program, who asks to pass it on.
        Source::Fd(ours) => unsafe { Stdio::fd(*ours) },
        Source::SameAs(other) if *other == number => Stdio::inherit(),
        Source::SameAs(other) => Stdio::dup_of(*other),
        Source::File(path, mode) => Stdio::from(open(path, *mode)?),
    })
}

fn open(path: &Path, mode: Mode) -> Result<fs::File, Failure> {
    let mut options = fs::OpenOptions::new();
    match mode {
        Mode::Read => options.read(true),
        Mode::Write => options.write(true).create(true).truncate(true),
        Mode::Append => options.append(true).create(true),
        Mode::ReadWrite => options.read(true).write(true).create(true).truncate(false),
    };
    options.open(path).map_err(|error| Failure::before(format_args!("cannot open {path:?}: {error}")))
}

/// Prints the plan and runs nothing.
fn explain(asked: &mut Asked, options: &RunOptions, sandbox: Option<&sandbox::Sandbox<'_>>) -> Result<(), Failure> {
    let mut lines = String::new();
    match asked.line_route() {
        Some(route) => lines += &format!("{route}\n"),
        None => {
            lines += &sandbox.map_or_else(|| options.clone_words() + "\n", |sandbox| sandbox.words());
            for (number, step) in (1..).zip(asked.settings().prepare()?.steps()) {
                lines += &format!("{number:3}. {step}\n");
            }
        }
    }
    let failed = |error| Failure::before(format_args!("cannot write the plan: {error}"));
    io::stdout().write_all(lines.as_bytes()).map_err(failed)
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

fn set_process(command: &mut Command, options: &RunOptions) -> Result<(), Failure> {
    if let Some(directory) = &options.chdir {
        command.current_dir(directory);
    }
    if let Some(name) = &options.argv0 {
        command.arg0(name);
    }
    options.set_child(command)
}

fn patience(options: &RunOptions) -> Patience {
    Patience {
        // As in timeout(1), 0 means no timeout.
        timeout: options.timeout.filter(|time| !time.is_zero()),
        signal: options.signal,
        kill_after: options.kill_after.filter(|time| !time.is_zero()),
        own_group: options.child.leads_a_group() || options.sandbox.sandbox.is_some(),
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
