//! From the options to a [`Command`] of the library, or to a shell line.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::{fd::RawFd, unix::ffi::OsStrExt},
    path::Path,
};

use forkless::{Child, Command, ShellCommand, ShellEnding, ShellRoute, Stdio};

use super::{
    failure::{Failure, reason},
    options::RunOptions,
    parse::{self, Assignment, FdSource, Mode},
    sandbox::{self, Sandbox},
};

/// What to run: a program or a shell line.
pub(super) enum Asked {
    Program(Command),
    Line(ShellCommand),
}

impl Asked {
    /// The request with all settings of the program, except those that only a parent can make.
    pub(super) fn of(options: &RunOptions, sandbox: Option<&Sandbox<'_>>) -> Result<Self, Failure> {
        let (mut asked, assignments) = Self::named(options, sandbox)?;
        let command = asked.settings();
        if let Some(sandbox) = sandbox {
            sandbox.begin(command);
        }
        set_environment(command, options, &assignments);
        set_files(command, options)?;
        set_process(command, options)?;
        if let Some(sandbox) = sandbox {
            sandbox.finish(command)?;
        }
        Ok(asked)
    }

    /// Also returns the variables given before the program.
    fn named(options: &RunOptions, sandbox: Option<&Sandbox<'_>>) -> Result<(Self, Vec<Assignment>), Failure> {
        if let Some(line) = options.shell.as_ref().filter(|_| sandbox.is_some()) {
            return Ok((Self::Program(sandbox::shell(line, options.shell_path.as_deref())), Vec::new()));
        }
        if let Some(line) = &options.shell {
            let mut line = forkless::shell(line.as_bytes());
            options.shell_path.as_ref().map(|path| line.shell_path(path));
            return Ok((Self::Line(line), Vec::new()));
        }
        let (assignments, program) = split_words(&options.words)?;
        let mut command = Command::new(&program[0]);
        if let Some(path) = sandbox.and_then(Sandbox::program) {
            command = Command::new(path);
            command.arg0(&program[0]);
        }
        command.args(&program[1..]);
        for other in &options.or_else {
            command.or_else(other);
        }
        Ok((Self::Program(command), assignments))
    }

    pub(super) fn settings(&mut self) -> &mut Command {
        match self {
            Self::Program(command) => command,
            Self::Line(line) => line.settings(),
        }
    }

    /// Uses `launch` rather than `spawn`, so that the timeout also covers reading the program from a slow disk. A line needs
    /// `spawn`: if its program is not found, the shell runs the line.
    pub(super) fn launch(&mut self) -> io::Result<(Child, Option<ShellEnding>)> {
        match self {
            Self::Program(command) => Ok((command.launch()?, None)),
            Self::Line(line) => line.spawn().map(|child| child.into_parts()).map(|(child, shell)| (child, Some(shell))),
        }
    }

    /// How a line was started, or would be started.
    pub(super) fn line_route(&self) -> Option<ShellRoute> {
        match self {
            Self::Program(_) => None,
            Self::Line(line) => Some(line.taken().cloned().unwrap_or_else(|| line.route())),
        }
    }
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
    Err(no_program(words))
}

fn no_program(words: &[OsString]) -> Failure {
    let last = words.last().cloned().unwrap_or_default();
    Failure::before(format_args!("no program given: {last:?} sets a variable; write the program after it"))
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
            FdSource::File(path, mode) if flag == "--open" => Stdio::open(path, open_flags(*mode), 0o666),
            // `--explain` must not truncate the file. Any other file gives the same output.
            FdSource::File(..) if options.explain => {
                stdio(&FdSource::File("/dev/null".into(), Mode::ReadWrite), number, flag)?
            }
            _ => stdio(source, number, flag)?,
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
fn stdio(source: &FdSource, number: RawFd, flag: &str) -> Result<Stdio, Failure> {
    Ok(match source {
        FdSource::Inherit => Stdio::inherit(),
        FdSource::Null => Stdio::null(),
        // Otherwise its number could be that of a descriptor that forkless has opened for itself.
        FdSource::Fd(ours) if !parse::is_inherited(*ours) => {
            return Err(Failure::before(format_args!("{flag}: {}", parse::not_inherited(*ours))));
        }
        // SAFETY: the arm above has checked that the descriptor is open and was inherited, so nothing in forkless owns it.
        FdSource::Fd(ours) => unsafe { Stdio::fd(*ours) },
        FdSource::SameAs(other) if *other == number => Stdio::inherit(),
        FdSource::SameAs(other) => Stdio::dup_of(*other),
        FdSource::File(path, mode) => Stdio::from(open(path, *mode, flag)?),
    })
}

fn open(path: &Path, mode: Mode, flag: &str) -> Result<fs::File, Failure> {
    let mut options = fs::OpenOptions::new();
    match mode {
        Mode::Read => options.read(true),
        Mode::Write => options.write(true).create(true).truncate(true),
        Mode::Append => options.append(true).create(true),
        Mode::ReadWrite => options.read(true).write(true).create(true).truncate(false),
    };
    options
        .open(path)
        .map_err(|error| Failure::before(format_args!("{flag}: cannot open {path:?}: {}", reason(path, &error))))
}

/// All settings that are neither environment nor files.
fn set_process(command: &mut Command, options: &RunOptions) -> Result<(), Failure> {
    if let Some(directory) = &options.chdir {
        command.current_dir(directory);
    }
    if let Some(name) = &options.argv0 {
        command.arg0(name);
    }
    options.set_child(command)
}
