//! Shell command lines, run without a shell where the result is the same.

use crate::error::Error;
use crate::request::command::Command;
use crate::step::Step;
use forkless_core::sys::signal::SIGSYS;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};

mod classify;
mod known;
mod pattern;
mod environment;
mod direct;
mod ending;
mod child;
mod around;
mod kept;

use classify::{SimpleCommand, classify};
use direct::Direct;
use ending::Captures;
use known::STANDARD;

pub use around::ShellSurroundings;
pub use child::ShellChild;
pub use classify::Syntax;
#[cfg(any(test, fuzzing))]
pub(crate) use classify::fuzzed;
pub use ending::ShellEnding;

/// `/bin/sh -c LINE`, without the shell where the result is the same: `system(3)`, `popen(3)`.
///
/// ```
/// let mut listing = forkless::shell("ls -d / 2>/dev/null");
/// assert_eq!(listing.output()?.stdout, b"/\n");
/// let mut count = forkless::shell("ls / | wc -l");
/// assert_eq!(count.route().to_string(), "by the shell: a pipeline");
/// assert!(count.status()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn shell(line: impl AsRef<[u8]>) -> ShellCommand {
    let line = line.as_ref();
    let mut command = Command::new(STANDARD);
    command.arg0("sh").arg("-c").arg(OsStr::from_bytes(line));
    ShellCommand { form: classify(line), shell: STANDARD.into(), command, surroundings: None, taken: None }
}

/// A command line for `/bin/sh -c`: from [`shell`].
///
/// # What runs without a shell
/// One simple command without expansions: words with any quotes, variables for the program (`A=1 prog`), the
/// redirections `<`, `>`, `>>`, `>&` and `<&` of descriptors 0 to 9 from and to ordinary files or `/dev/null`, an
/// `exec` in front, blanks, newlines and comments around it. The program is one in PATH, and not a shell builtin
/// (`echo`, `test`, `kill`, `true`…).
///
/// # What goes to the shell
/// Everything else ([`Syntax`]), unchanged; lines whose meaning depends on the caller in a way that only the shell
/// should decide ([`Reason`]); and lines whose direct run failed: a program that is not found or cannot be executed, a
/// file that cannot be opened. The message and the status are then the shell's own. What the attempt has done to files
/// by then the shell does again, in the same order and with the same result.
///
/// # What is the same
/// Status, output, files created, and everything that the program finds: arguments, environment (with what the shell
/// adds, drops and reorders), descriptors, working directory, umask, signals. Where dash would wait for the program,
/// death by a signal is reported as dash does ([`ShellEnding`]).
///
/// # What differs
/// There is no shell process: the program's parent is the caller, its PID is the one that the caller knows, and a
/// signal sent to that PID reaches it. Its resource usage does not include a shell's.
///
/// Only a line for dash, or for bash 5.1 to 5.3, runs without the shell. bash runs lines with redirections itself, unless
/// they begin with `exec`. With another shell every line goes to it.
pub struct ShellCommand {
    form: Result<SimpleCommand, Syntax>,
    shell: PathBuf,
    command: Command,
    surroundings: Option<ShellSurroundings>,
    taken: Option<ShellRoute>,
}

/// How a line is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellRoute {
    /// The program is executed without a shell.
    Direct,
    /// The shell runs the line.
    Shell(Reason),
}

/// Why a line goes to the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The line is not one simple command.
    Syntax(Syntax),
    /// The shell is not one whose behaviour is known.
    Shell,
    /// bash would not replace itself by the program, but wait for it.
    Waits,
    /// This environment variable changes what the shell does, or the shell changes it.
    Environment(String),
    /// The order of the variables in this environment cannot be predicted.
    Order,
    /// PATH is not set, or contains what only the shell can interpret.
    Path,
    /// The path of the working directory cannot be determined.
    Directory,
    /// This file is neither an ordinary one nor `/dev/null`, or it is in procfs, where the child looks like its caller
    /// before its exec.
    File(PathBuf),
    /// A file would be created that its owner may not write to: the shell, if it should be needed after all, could not
    /// open it.
    Umask,
    /// A setting of the child would change the shell too, or prevent it from running.
    Setting,
    /// The child starts with signals blocked, which the shell would unblock.
    Blocked,
    /// The caller runs with another user's privileges, which a shell drops.
    Privileged,
    /// The shell's own messages could not be written to the child's standard error: only the child opens that file,
    /// for example.
    StandardError,
    /// The direct run failed at this step. The shell runs the line again and reports the failure.
    Failed(Step),
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Syntax(what) => return write!(out, "{what}"),
            Self::Shell => "a shell whose behaviour is not known",
            Self::Waits => "a shell that waits for this program",
            Self::Environment(name) => return write!(out, "{name} is in the environment"),
            Self::Order => "an environment whose order cannot be predicted",
            Self::Path => "PATH is not set, or only the shell can interpret it",
            Self::Directory => "the working directory has no path",
            Self::File(path) => return write!(out, "{path:?} is not a regular file, or is in procfs"),
            Self::Umask => "a umask that denies the owner write access",
            Self::Setting => "a setting that would change the shell too",
            Self::Blocked => "signals are blocked",
            Self::Privileged => "privileges that a shell drops",
            Self::StandardError => "standard error cannot take the shell's messages",
            Self::Failed(step) => return write!(out, "the direct run failed at this step: {}", step.describe()),
        };
        out.write_str(words)
    }
}

impl fmt::Display for ShellRoute {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => out.write_str("directly"),
            Self::Shell(why) => write!(out, "by the shell: {why}"),
        }
    }
}

impl ShellCommand {
    /// A command whose program is a shell's path and whose arguments are `-c` and a line, as that line. Any other command is
    /// returned unchanged.
    #[doc(hidden)]
    pub fn of(command: Command) -> Result<Self, Box<Command>> {
        let is_plain = command.candidates.is_empty() && command.program_fd.is_none() && command.ready.is_none();
        let form = match command.args.get(1..) {
            Some([option, line]) if option == "-c" && is_plain && command.program.as_bytes().contains(&b'/') => {
                classify(line.as_bytes())
            }
            _ => return Err(Box::new(command)),
        };
        let shell = PathBuf::from(&command.program);
        Ok(Self { form, shell, command, surroundings: None, taken: None })
    }

    /// The child's settings, which apply with and without the shell: environment, working directory, descriptors,
    /// signals and so on. Its program and arguments come from the line.
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

    /// Sets another shell than `/bin/sh`, by its path, which is also its `argv[0]`.
    ///
    /// ```no_run
    /// let mut line = forkless::shell("echo {1..3}");
    /// assert_eq!(line.shell_path("/bin/bash").output()?.stdout, b"1 2 3\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shell_path<P: AsRef<Path>>(&mut self, shell: P) -> &mut Self {
        self.shell = shell.as_ref().to_owned();
        self.command.program = self.shell.clone().into();
        let name = if self.shell == Path::new(STANDARD) { OsStr::new("sh") } else { self.shell.as_os_str() };
        self.command.arg0(name);
        self
    }

    /// Sets what many lines have in common, which saves six system calls for this one.
    ///
    /// ```
    /// let surroundings = forkless::ShellSurroundings::now();
    /// let mut listing = forkless::shell("ls -d /");
    /// assert_eq!(listing.surroundings(&surroundings).output()?.stdout, b"/\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn surroundings(&mut self, known: &ShellSurroundings) -> &mut Self {
        self.surroundings = Some(known.clone());
        self
    }

    /// How a run would start the line now. If it turns out that a program or file does not exist, the shell still runs
    /// it.
    ///
    /// ```
    /// use forkless::{Reason, ShellRoute, Syntax, shell};
    /// assert_eq!(shell("ls | wc").route(), ShellRoute::Shell(Reason::Syntax(Syntax::Pipe)));
    /// println!("{}", shell("ls -l /").route()); // "directly", where /bin/sh is dash
    /// ```
    pub fn route(&self) -> ShellRoute {
        Direct::prepare(self, Captures::All).map_or_else(ShellRoute::Shell, |_| ShellRoute::Direct)
    }

    /// The program and its arguments, after quote removal, if the line is nothing but these. `None`: it has variables,
    /// redirections or expansions, it begins with `exec`, or only a shell can interpret it.
    ///
    /// ```
    /// let line = forkless::shell("/bin/grep -c 'two words' file");
    /// assert_eq!(line.plain_words().expect("words"), [&b"/bin/grep"[..], b"-c", b"two words", b"file"]);
    /// assert!(forkless::shell("LD_PRELOAD=x.so /bin/grep -c x file").plain_words().is_none());
    /// assert!(forkless::shell("/bin/grep -c x file; reboot").plain_words().is_none());
    /// ```
    pub fn plain_words(&self) -> Option<Vec<&[u8]>> {
        let simple = self.form.as_ref().ok()?;
        let plain = simple.assignments.is_empty() && simple.redirections.is_empty() && !simple.exec;
        plain.then(|| simple.words.iter().map(Vec::as_slice).collect())
    }

    /// How the last run started the line. `None` before the first run.
    ///
    /// ```
    /// let mut line = forkless::shell("exit 3");
    /// assert!(line.taken().is_none());
    /// assert_eq!(line.status()?.code(), Some(3));
    /// assert!(line.taken().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn taken(&self) -> Option<&ShellRoute> {
        self.taken.as_ref()
    }

    /// Starts the line, like [`Command::spawn`].
    ///
    /// ```
    /// let mut child = forkless::shell("exec sleep 60").spawn()?;
    /// child.handle().kill()?;
    /// assert!(!child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Command::spawn`], except for failures that the shell reports itself: a program that is not found is
    /// exit code 127.
    pub fn spawn(&mut self) -> io::Result<ShellChild> {
        let (child, ending) = self.run(Captures::Nothing, Command::spawn)?;
        Ok(ShellChild { child, ending })
    }

    /// Starts the line, like [`spawn`](Self::spawn), for a caller that reads the child's pipes itself and gives
    /// what it has read to [`ShellEnding::output`].
    ///
    /// [`spawn`](Self::spawn) gives a line for dash to the shell if standard error is a pipe, because only the caller
    /// could put the shell's message behind the program's output. This function leaves that to the caller.
    ///
    /// ```
    /// use forkless::Stdio;
    /// let mut line = forkless::shell("ls -d /");
    /// line.settings().stdout(Stdio::piped()).stderr(Stdio::piped());
    /// let (child, ending) = line.spawn_captured()?.into_parts();
    /// let output = ending.output(child.wait_with_output()?)?;
    /// assert_eq!(output.stdout, b"/\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn spawn_captured(&mut self) -> io::Result<ShellChild> {
        let (child, ending) = self.run(Captures::Pipes, Command::spawn)?;
        Ok(ShellChild { child, ending })
    }

    /// [`spawn_captured`](Self::spawn_captured), but does not wait for the exec, as
    /// [`Command::launch_holding`]. If the wait for the child fails with an error that [`is_for_the_shell`] accepts, the
    /// caller runs the line again, by the shell.
    #[doc(hidden)]
    pub fn launch_captured(&mut self) -> io::Result<ShellChild> {
        let (child, ending) = self.run(Captures::Pipes, Command::launch_holding)?;
        Ok(ShellChild { child, ending })
    }

    /// Runs the line to its end, and returns its exit status: `system(3)`.
    ///
    /// ```
    /// assert!(forkless::shell("test -d /").status()?.success());
    /// assert_eq!(forkless::shell("no-such-program 2>/dev/null").status()?.code(), Some(127));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        let (status, ending) = self.run(Captures::Nothing, Command::status)?;
        ending.status(status)
    }

    /// Runs the line to its end, and returns what it wrote, like [`Command::output`].
    ///
    /// ```
    /// let output = forkless::shell("printf '%s\n' one two | sort -r").output()?;
    /// assert_eq!(output.stdout, b"two\none\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn output(&mut self) -> io::Result<Output> {
        let (output, ending) = self.run(Captures::All, Command::output)?;
        ending.output(output)
    }

    fn run<T>(
        &mut self,
        captures: Captures,
        how: impl Fn(&mut Command) -> io::Result<T>,
    ) -> io::Result<(T, ShellEnding)> {
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

/// Whether the failure of a line that ran without the shell is one that the shell reports in its own words, or does not
/// meet.
#[doc(hidden)]
pub fn is_for_the_shell(error: &io::Error) -> bool {
    step_for_the_shell(error).is_some()
}

/// The step, if the shell will meet the same failure, or if only a direct run meets it; otherwise the error.
fn for_the_shell_to_tell(error: io::Error) -> io::Result<Step> {
    step_for_the_shell(&error).ok_or(error)
}

fn step_for_the_shell(error: &io::Error) -> Option<Step> {
    let detail = Error::of(error)?;
    let is_met = detail.errno().is_some() && matches!(detail.step(), Step::Exec | Step::Open | Step::Dup);
    // A seccomp filter killed the child for the system call by which it opens a file.
    let is_killed = detail.signal() == Some(SIGSYS) && detail.step() == Step::Open;
    (is_met || is_killed).then(|| detail.step())
}
