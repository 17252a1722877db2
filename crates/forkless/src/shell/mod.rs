//! A line for a shell, run without one where that makes no difference.

use crate::command::Command;
use crate::error::Error;
use crate::step::Step;
use forkless_core::planted;
use forkless_core::sys::signal::SIGSYS;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};

mod classify;

mod known;

mod environment;

mod direct;

mod ending;

mod child;

use classify::{Simple, classify};
use direct::Direct;

pub use child::ShellChild;
pub use classify::Syntax;
#[cfg(any(test, fuzzing))]
pub(crate) use classify::fuzzed;
pub use ending::ShellEnding;

/// Where `system(3)` and `popen(3)` find the shell.
const STANDARD: &str = "/bin/sh";

/// `/bin/sh -c LINE`, without the shell where the outcome is the same: `system(3)`, `popen(3)`.
///
/// ```
/// let mut listing = forkless::shell("ls -d / 2>/dev/null");
/// assert_eq!(listing.output()?.stdout, b"/\n");
/// let mut count = forkless::shell("ls / | wc -l");
/// assert_eq!(count.route().to_string(), "by /bin/sh: a pipeline");
/// assert!(count.status()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn shell(line: impl AsRef<[u8]>) -> ShellCommand {
    let line = line.as_ref();
    let mut command = Command::new(STANDARD);
    command.arg0("sh").arg("-c").arg(OsStr::from_bytes(line));
    ShellCommand { form: classify(line), shell: STANDARD.into(), command, taken: None }
}

/// A line for `/bin/sh -c`: from [`shell`].
///
/// # What runs directly
/// One simple command, all of which is in plain sight: words with any quotes, variables for the program (`A=1 prog`), the
/// redirections `<`, `>`, `>>`, `>&` and `<&` of descriptors 0 to 9 from and to ordinary files or `/dev/null`, an `exec` in
/// front, blanks, newlines and comments around it. The program is one in PATH, and nothing that shells do themselves
/// (`echo`, `test`, `kill`, `true`…).
///
/// # What goes to the shell
/// Everything else ([`Syntax`]), unchanged; what depends on the caller in a way that only the shell should decide ([`Reason`]);
/// and what has been tried and failed: a program that is not found or cannot be executed, a file that cannot be opened.
/// The message and the status are then the shell's own. What the attempt has done to files by then the shell does again,
/// in the same order and to the same end.
///
/// # What is the same
/// Status, output, files made, and all that the program finds: arguments, environment (with what the shell adds, drops and
/// reorders), descriptors, directory, umask, signals. Where dash would wait for the program, death by a signal is told as it
/// does ([`ShellEnding`]).
///
/// # What is not
/// There is no shell: the program's parent is the caller, its process id is the one that the caller knows, and a signal sent to
/// that reaches it. What a program uses is told without what a shell would have.
///
/// Directly runs only what dash, or bash 5.2 called `sh`, would have been asked to: with another shell everything goes there.
pub struct ShellCommand {
    form: Result<Simple, Syntax>,
    shell: PathBuf,
    command: Command,
    taken: Option<ShellRoute>,
}

/// The way a line takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellRoute {
    /// The program is executed without a shell.
    Direct,
    /// The shell gets the line.
    Shell(Reason),
}

/// Why a line goes to the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The line says more than one simple command.
    Syntax(Syntax),
    /// The shell is none whose ways are known.
    Shell,
    /// bash would not become the program, but wait for it.
    Waits,
    /// This variable of the environment changes what the shell does, or is changed by it.
    Environment(String),
    /// In this environment the order of the variables cannot be told.
    Order,
    /// PATH is not set, or has in it what only the shell can read.
    Path,
    /// The directory cannot be told.
    Directory,
    /// This file is neither an ordinary one nor `/dev/null`, or it is one of procfs', which would take the child for its caller.
    File(PathBuf),
    /// A file would be made that its owner may not write to: should the shell be needed after all, it could not open it.
    Umask,
    /// A setting of the child would change the shell too, or keep it from being run.
    Setting,
    /// The child starts with signals blocked, and the shell would unblock them.
    Blocked,
    /// The caller runs with another's privileges, which a shell gives up.
    Privileged,
    /// The shell's own words could not be put where the child's standard error goes: to a file that only the child opens, for one.
    StandardError,
    /// It was tried, and this step failed: the shell knows how to say that.
    Failed(Step),
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Syntax(what) => return write!(out, "{what}"),
            Self::Shell => "a shell whose ways are not known",
            Self::Waits => "a shell that waits for this program",
            Self::Environment(name) => return write!(out, "{name} is in the environment"),
            Self::Order => "an environment whose order cannot be told",
            Self::Path => "no PATH, or an unusual one",
            Self::Directory => "the directory has no name",
            Self::File(path) => return write!(out, "{path:?} is no ordinary file"),
            Self::Umask => "a umask that takes writing from the owner",
            Self::Setting => "a setting that would change the shell too",
            Self::Blocked => "signals are blocked",
            Self::Privileged => "privileges that a shell gives up",
            Self::StandardError => "the shell's own words need a standard error",
            Self::Failed(step) => return write!(out, "without it, it failed to {}", step.words()),
        };
        out.write_str(words)
    }
}

impl fmt::Display for ShellRoute {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => out.write_str("directly"),
            Self::Shell(why) => write!(out, "by /bin/sh: {why}"),
        }
    }
}

impl ShellCommand {
    /// The child's settings, which are those of either way: environment, directory, descriptors, signals and so on. Its program
    /// and arguments are given by the line.
    ///
    /// ```
    /// let mut line = forkless::shell("env");
    /// line.settings().env_clear().env("PATH", "/usr/bin:/bin").env("A", "1");
    /// assert!(line.output()?.stdout.windows(4).any(|bytes| bytes == b"A=1\n"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn settings(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Another shell than `/bin/sh`.
    pub fn shell_path<P: AsRef<Path>>(&mut self, shell: P) -> &mut Self {
        self.shell = shell.as_ref().to_owned();
        self.command.program = self.shell.clone().into();
        self
    }

    /// The way that a run would take now. A program or file that turns out not to be there still makes it another.
    pub fn route(&self) -> ShellRoute {
        Direct::prepare(self, true).map_or_else(ShellRoute::Shell, |_| ShellRoute::Direct)
    }

    /// The way that the last run took; none before the first.
    pub fn taken(&self) -> Option<&ShellRoute> {
        self.taken.as_ref()
    }

    /// Starts it: as [`Command::spawn`].
    ///
    /// # Errors
    /// As there, but for what the shell reports in its own way: a program that is not found is exit code 127.
    pub fn spawn(&mut self) -> io::Result<ShellChild> {
        let (child, ending) = self.run(false, Command::spawn)?;
        Ok(ShellChild { child, ending })
    }

    /// Runs it to its end: `system(3)`.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        let (status, ending) = self.run(false, Command::status)?;
        ending.status(status)
    }

    /// Runs it to its end and gives what it wrote: as [`Command::output`].
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn output(&mut self) -> io::Result<Output> {
        let (output, ending) = self.run(true, Command::output)?;
        ending.output(output)
    }

    fn run<T>(&mut self, captures: bool, how: impl Fn(&mut Command) -> io::Result<T>) -> io::Result<(T, ShellEnding)> {
        let why = match Direct::prepare(self, captures) {
            Ok(direct) => match direct.run(&mut self.command, &how) {
                Ok(done) => {
                    self.taken = Some(ShellRoute::Direct);
                    return Ok(done);
                }
                Err(error) => Reason::Failed(for_the_shell_to_tell(error)?),
            },
            Err(why) => why,
        };
        self.taken = Some(ShellRoute::Shell(why));
        Ok((how(&mut self.command)?, ShellEnding::plain()))
    }
}

/// The step of a failure that the shell is going to meet as well, or that only our child meets.
fn for_the_shell_to_tell(error: io::Error) -> io::Result<Step> {
    match Error::of(&error) {
        _ if planted!("shell-failure-not-retold") => Err(error),
        Some(detail) if detail.errno().is_some() && matches!(detail.step(), Step::Exec | Step::Open | Step::Dup) => {
            Ok(detail.step())
        }
        // A filter, for the call by which a file is opened there.
        Some(detail) if detail.signal() == Some(SIGSYS) && detail.step() == Step::Open => Ok(Step::Open),
        _ => Err(error),
    }
}
