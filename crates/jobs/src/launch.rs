//! From a job to a child.

use crate::job::{Job, Run, Stdin};
use crate::options::{Options, Output};
use forkless::{Child, Command, Error, ShellCommand, ShellEnding, ShellSurroundings, Stdio, Step};
use rustix::io::Errno;
use rustix::process::Signal;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Makes commands of jobs, and remembers where the last program was.
#[derive(Default)]
pub(crate) struct Launcher {
    found: Option<(OsString, PathBuf)>,
    /// What all lines have in common, and when it was determined.
    surroundings: Option<(Instant, ShellSurroundings)>,
}

/// A job that has been launched.
pub(crate) struct Launched {
    pub(crate) child: Child,
    pub(crate) shell: Option<ShellEnding>,
}

/// A job's command, ready to be launched by any thread.
pub(crate) enum Ready {
    Program(Command),
    Line(ShellCommand),
    /// A line whose standard input is written while it runs.
    Fed(ShellCommand),
}

impl Ready {
    /// The command whose settings the launch uses.
    pub(crate) fn command(&mut self) -> &mut Command {
        match self {
            Self::Program(command) => command,
            Self::Line(shell) | Self::Fed(shell) => shell.settings(),
        }
    }

    pub(crate) fn launch(self) -> io::Result<Launched> {
        let launched = match self {
            Self::Program(mut command) => return Ok(Launched { child: command.launch_holding()?, shell: None }),
            Self::Line(mut shell) => shell.launch_captured(),
            // Waits for the exec: input that has been written could not be written again for the shell.
            Self::Fed(mut shell) => shell.spawn_captured(),
        };
        let (child, ending) = launched?.into_parts();
        Ok(Launched { child, shell: Some(ending) })
    }
}

impl Launcher {
    pub(crate) fn prepare(&mut self, job: &Job, options: &mut Options, now: Instant) -> io::Result<Ready> {
        let mut ready = match &job.run {
            Run::Program { program, args } => {
                let mut command = self.command(program, job);
                // As execvp(3), and so xargs.
                command.args(args).scripts_by_shell(true);
                Ready::Program(command)
            }
            Run::Line(line) => {
                let mut shell = forkless::shell(line);
                shell.shell_path(&options.shell).surroundings(self.surroundings(&options.shell, now));
                if matches!(job.stdin, Stdin::Stream(_)) { Ready::Fed(shell) } else { Ready::Line(shell) }
            }
        };
        set(ready.command(), job, options)?;
        Ok(ready)
    }

    /// What all lines have in common. It is determined again after a second.
    fn surroundings(&mut self, shell: &Path, now: Instant) -> &ShellSurroundings {
        const FRESH: Duration = Duration::from_secs(1);
        let is_fresh = |seen| now.saturating_duration_since(seen) < FRESH;
        let fresh = self.surroundings.take().filter(|(seen, _)| is_fresh(*seen));
        &self.surroundings.insert(fresh.unwrap_or_else(|| (now, ShellSurroundings::of(shell)))).1
    }

    /// The command of a program. PATH is searched once for a program that several jobs in a row run. The child searches it
    /// again if the file is gone.
    fn command(&mut self, program: &OsStr, job: &Job) -> Command {
        if program.as_bytes().contains(&b'/') || job.env.iter().any(|(name, _)| name == "PATH") {
            return Command::new(program);
        }
        if self.found.as_ref().is_none_or(|(name, _)| name != program) {
            self.found = search(program).map(|path| (program.to_owned(), path));
        }
        match &self.found {
            Some((_, path)) => {
                let mut command = Command::new(path);
                command.arg0(program).or_else(program);
                command
            }
            None => Command::new(program),
        }
    }
}

/// The first executable file of that name in PATH.
fn search(program: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.is_absolute()
            && std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH")?;
    // A relative entry depends on the job's working directory, and so does every entry after it.
    std::env::split_paths(&path)
        .take_while(|entry| entry.is_absolute())
        .map(|entry| entry.join(program))
        .find(is_program)
}

/// Sets what the job and the options say.
fn set(command: &mut Command, job: &Job, options: &mut Options) -> io::Result<()> {
    for (name, value) in &job.env {
        command.env(name, value);
    }
    match &job.stdin {
        Stdin::Null if options.stdin_is_null => command.stdin(Stdio::inherit()),
        Stdin::Null => command.stdin(Stdio::null()),
        Stdin::Inherit => command.stdin(Stdio::inherit()),
        Stdin::File(file) => command.stdin(file.try_clone()?),
        Stdin::Bytes(_) | Stdin::Stream(_) => command.stdin(Stdio::piped()),
    };
    if options.output != Output::Inherit {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    if options.groups {
        command.process_group(0);
    }
    if let Some(nice) = options.nice {
        command.nice(nice);
    }
    command.kill_tree(options.kill_tree);
    if let Some(setup) = &mut options.setup {
        setup(command, job);
    }
    Ok(())
}

/// Whether a launch or a system call failed because the kernel lacked resources, which may be free a moment later.
pub fn is_lack(error: &io::Error) -> bool {
    let errno = match (Error::of(error), error.raw_os_error()) {
        (Some(error), _) if error.step() == Step::Wait => None,
        (Some(error), _) => error.errno(),
        (None, errno) => errno,
    };
    let lacks = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    errno.is_some_and(|errno| lacks.contains(&errno))
}

/// Whether a signal killed the child before it could run the program, and it is one that a terminal, `timeout(1)` or Slurm
/// sends to a whole process group. The child is in the group of this process until it has made its own. The job has not
/// run, and this process gets the same signal.
pub(crate) fn is_killed_before_exec(error: &io::Error) -> bool {
    let signals = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].map(Signal::as_raw);
    let signal = Error::of(error).and_then(Error::signal);
    signal.is_some_and(|signal| signals.contains(&signal))
}

/// Whether an error of a wait means that the program was not executed.
pub(crate) fn is_of_launch(error: &io::Error) -> bool {
    Error::of(error).is_some_and(|error| error.step() != Step::Wait)
}
