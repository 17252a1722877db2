//! Running a program to its end with input, limits and a timeout, and capturing what it writes.

use crate::child::Child;
use crate::error::Error;
use crate::launch::pipes::{DefaultStream, Defaults};
use crate::launch::run::LaunchForm;
use crate::launch::wait::is_sigchld_ignored;
use crate::plan::compile::compile;
use crate::plan::{Plan, PlannedStream};
use crate::prepared::Prepared;
use crate::request::command::Command;
use crate::start::{Pidfd, Start};
use crate::usage::{LimitEvents, Usage};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use super::content::{Content, MemoryFile};
use super::drive::{Drive, Driven, Input, Timing};
use super::reader::{self, Reader};

/// How to run a program and what of its output to keep: for [`Command::capture`] and [`Prepared::capture`].
///
/// Without any setting it does what [`Command::output`] does:
///
/// ```
/// use forkless::{Capture, Command};
/// use std::time::Duration;
/// let upper = Capture::new().input("hello").timeout(Duration::from_secs(10)).limit(1 << 20);
/// let captured = Command::new("tr").args(["a-z", "A-Z"]).capture(&upper)?;
/// assert!(captured.status.success() && !captured.timed_out);
/// assert_eq!(&captured.stdout[..], b"HELLO");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A stream that the command sets stays as the command sets it; the others are captured.
#[derive(Debug, Clone)]
pub struct Capture {
    input: Option<Arc<[u8]>>,
    limit: usize,
    kill_at_limit: bool,
    merged: bool,
    memory_file: bool,
    pub(crate) timing: Timing,
}

/// The default limit of a memfd, in bytes.
const MEMORY_FILE_LIMIT: usize = 1 << 30;

impl Default for Capture {
    fn default() -> Self {
        Self::new()
    }
}

/// A program that has been started.
pub(crate) struct Begun {
    pub(crate) child: Child,
    pub(crate) drive: Drive,
    pub(crate) files: [Option<MemoryFile>; 2],
}

/// Waits for the child, and puts together what has come of it.
pub(crate) fn finish(child: &mut Child, driven: Driven, files: [Option<MemoryFile>; 2]) -> io::Result<Captured> {
    let status = driven.status(child.wait())?;
    let [stdout, stderr] = driven.readers;
    let (stdout, stdout_cut) = reader::finish(stdout);
    let (stderr, stderr_cut) = reader::finish(stderr);
    let [mapped_out, mapped_err] = files;
    Ok(Captured {
        status,
        stdout: mapped_out.map_or(Ok(stdout.into()), MemoryFile::content)?,
        stderr: mapped_err.map_or(Ok(stderr.into()), MemoryFile::content)?,
        stdout_cut,
        stderr_cut,
        input_left: driven.input_left,
        timed_out: driven.timed_out,
        held_open: driven.held_open,
        usage: child.usage().copied(),
        limit_events: child.limit_events(),
        skipped: child.skipped().to_vec(),
    })
}

impl Capture {
    /// No input, no limits.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let captured = Command::new("echo").arg("hello").capture(&Capture::new())?;
    /// assert_eq!(&captured.stdout[..], b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        let (limit, timing) = (usize::MAX, Timing::ENDLESS);
        Self { input: None, limit, kill_at_limit: false, merged: false, memory_file: false, timing }
    }

    /// Sets the bytes that the program reads from its standard input, which ends after them. Input and output are
    /// handled at the same time, so neither blocks the other.
    ///
    /// A program that ends, or closes its input, before it has read everything is no error: [`Captured::input_left`] is
    /// the number of bytes left. No SIGPIPE is raised, whatever its disposition in the caller.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let captured = Command::new("sort").capture(&Capture::new().input("b\na\n"))?;
    /// assert_eq!(captured.text(), "a\nb");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn input<I: AsRef<[u8]>>(mut self, input: I) -> Self {
        self.input = Some(input.as_ref().into());
        self
    }

    /// Sets how many bytes of each stream are kept (default: all). Bytes after that are read and dropped, so that the
    /// program does not block: [`Captured::stdout_cut`] is their number.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let captured = Command::new("echo").arg("hello").capture(&Capture::new().limit(2))?;
    /// assert_eq!((&captured.stdout[..], captured.stdout_cut), (&b"he"[..], 4));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Sets whether a program that writes more than the [limit](Self::limit) is killed with SIGKILL, with its process
    /// group if it leads one (default: no). For programs that may write without end.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let captured = Command::new("yes").capture(&Capture::new().limit(1000).kill_at_limit(true))?;
    /// assert_eq!(captured.stdout.len(), 1000);
    /// assert!(!captured.status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill_at_limit(mut self, kill: bool) -> Self {
        self.kill_at_limit = kill;
        self
    }

    /// Sets whether standard error goes where standard output goes (default: no). The order of the writes is kept.
    ///
    /// If the command sends standard output to a file, this is an error ([`Step::Check`](crate::Step::Check)). There,
    /// use the command's own [`Stdio::dup_of`](crate::Stdio::dup_of).
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let mut command = Command::new("sh");
    /// let captured = command.args(["-c", "echo one; echo two >&2"]).capture(&Capture::new().merged(true))?;
    /// assert_eq!(&captured.stdout[..], b"one\ntwo\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn merged(mut self, merged: bool) -> Self {
        self.merged = merged;
        self
    }

    /// Ends the program when this time has passed since the launch (default: never): by SIGKILL, or as
    /// [`terminate`](Self::terminate) sets. If the program leads its process group, the group is ended too.
    ///
    /// After the timeout, streams that another process still holds open are not waited for (see
    /// [`linger`](Self::linger)), and the group of a program that has ended before is killed. A timeout of zero ends
    /// the program at once.
    ///
    /// The result has what was written until then, and [`Captured::timed_out`] is true. A program that the caller may
    /// not kill, because it has changed its user, is an error (EPERM), and goes on running.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// use std::time::Duration;
    /// let captured = Command::new("sleep").arg("60").capture(&Capture::new().timeout(Duration::from_millis(50)))?;
    /// assert!(captured.timed_out);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timing.timeout = Some(limit);
        self
    }

    /// At the timeout, sends `signal` first, and SIGKILL if the program has not ended `grace` later. When it has ended,
    /// the rest of its process group, if it leads one, gets SIGKILL.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// use std::{os::unix::process::ExitStatusExt, time::Duration};
    /// let gently = Capture::new().timeout(Duration::from_millis(50)).terminate(15, Duration::from_secs(5));
    /// let captured = Command::new("sleep").arg("60").capture(&gently)?;
    /// assert_eq!(captured.status.signal(), Some(15));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn terminate(mut self, signal: i32, grace: Duration) -> Self {
        (self.timing.signal, self.timing.grace) = (signal, grace);
        self
    }

    /// Sets how long to read on after the program has ended, while another process that it has started holds its
    /// streams open. Bytes that are in the streams by then are read in any case. [`Captured::held_open`] says whether
    /// this happened.
    ///
    /// By default it reads until the streams end, and for 100 ms after a [timeout](Self::timeout).
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// use std::time::Duration;
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "sleep 5 & echo done"]);
    /// let captured = command.capture(&Capture::new().linger(Duration::ZERO))?;
    /// assert_eq!(captured.text(), "done");
    /// assert!(captured.held_open);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn linger(mut self, limit: Duration) -> Self {
        self.timing.linger = Some(limit);
        self
    }

    /// Lets the program write to a memfd (`memfd_create(2)`) instead of a pipe, which is mapped when the program has
    /// ended (default: no).
    ///
    /// Nobody has to read meanwhile, and nothing is copied to the caller. It is faster for output of many megabytes.
    /// For short output it costs more than a pipe.
    ///
    /// It does not fit every program:
    /// - Writes beyond the limit (1 GiB unless [`limit`](Self::limit) sets it) fail with EPERM, as on a full disk. They
    ///   are not counted as cut.
    /// - The output ends with the program: other processes that still have the memfd get EPERM for their writes.
    /// - A program that opens `/dev/stdout` again gets EPERM if it truncates it, as a shell's `> /dev/stdout` does.
    ///   Without truncation it starts at the beginning. One that appends (O_APPEND, as `make` does) appends at the
    ///   limit, and gets EPERM.
    /// - A program that writes out of order (`pwrite(2)`, `lseek(2)`, `mmap(2)`) leaves no length: its output ends at
    ///   the file offset, or at the last byte behind it that is not zero.
    /// - The output is seen only at the end, so [`kill_at_limit`](Self::kill_at_limit) has no effect.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let mut command = Command::new("head");
    /// let captured = command.args(["-c", "1000000", "/dev/zero"]).capture(&Capture::new().memory_file(true))?;
    /// assert_eq!(captured.stdout.len(), 1_000_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn memory_file(mut self, memory_file: bool) -> Self {
        self.memory_file = memory_file;
        self
    }

    pub(crate) fn run(&self, plan: &Arc<Plan>) -> io::Result<Captured> {
        let Begun { child, drive, files } =
            self.begin(plan, Pidfd::Unless(self.is_watching() || is_sigchld_ignored()))?;
        let mut children = [child];
        let driven = drive.run(&mut children)?;
        let [mut child] = children;
        finish(&mut child, driven, files)
    }

    pub(crate) fn begin(&self, plan: &Arc<Plan>, pidfd: Pidfd) -> io::Result<Begun> {
        if self.merged && plan.fds.stdio[1] == PlannedStream::Compiled && plan.fds.stdio[2] == PlannedStream::Unset {
            let why = "merged, but the command sets standard output: use stderr(Stdio::dup_of(1))";
            return Err(Error::check(plan.program(), why).into());
        }
        let limit = if self.memory_file && self.limit == usize::MAX { MEMORY_FILE_LIMIT } else { self.limit };
        let make = |wanted: bool| wanted.then(|| MemoryFile::new(plan.program(), limit)).transpose();
        let files = [make(self.memory_file)?, make(self.memory_file && !self.merged)?];
        let file = |n: usize| files[n].as_ref().map(|file: &MemoryFile| DefaultStream::File(file.as_fd()));
        let stderr = if self.merged { DefaultStream::AsStdout } else { file(1).unwrap_or(DefaultStream::Piped) };
        let stdin = if self.input.is_some() { DefaultStream::Piped } else { DefaultStream::Null };
        let defaults = Defaults::Each([stdin, file(0).unwrap_or(DefaultStream::Piped), stderr]);
        // Whether a filter killed the child in exec can be seen only before it is reaped.
        let form = if plan.place.is_filtered { LaunchForm::Spawn } else { LaunchForm::Launch };
        let mut child = Start::new(form).with(defaults).pidfd(pidfd).child(plan)?;
        let outputs = [child.stdout.take().map(Into::into), child.stderr.take().map(Into::into)];
        let drive = self.drive(outputs, child.stdin.take().map(Into::into));
        // Nothing is written to its sockets: without this, a child that reads one to its end would never end.
        child.end_input();
        Ok(Begun { child, drive, files })
    }

    /// Whether the children's ends matter, and not only those of their streams.
    pub(crate) fn is_watching(&self) -> bool {
        self.timing.timeout.is_some() || self.timing.linger.is_some() || self.kill_at_limit
    }

    pub(crate) fn has_input(&self) -> bool {
        self.input.is_some()
    }

    pub(crate) fn is_merged(&self) -> bool {
        self.merged
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        self.memory_file
    }

    /// The loop that feeds and reads these streams.
    pub(crate) fn drive(&self, outputs: [Option<OwnedFd>; 2], stdin: Option<OwnedFd>) -> Drive {
        let readers = outputs.map(|stream| stream.map(|fd| Reader::new(fd, self.limit, self.kill_at_limit)));
        let input_left = if stdin.is_none() { self.input.as_ref().map_or(0, |input| input.len()) } else { 0 };
        // If the command made standard input a pipe and there is no input, the pipe is closed here.
        let input = stdin.zip(self.input.as_ref()).map(|(stdin, input)| Input::new(stdin, Arc::clone(input)));
        Drive { readers, input, input_left, timing: self.timing, watches: self.is_watching() }
    }
}

/// What a program has written and how it ended: from [`Command::capture`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Captured {
    /// Its exit status; by SIGKILL if it was killed for the timeout or the limit.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Content,
    /// Its standard error; empty if merged.
    pub stderr: Content,
    /// Bytes of standard output after the limit, which were dropped.
    pub stdout_cut: u64,
    /// Bytes of standard error after the limit, which were dropped.
    pub stderr_cut: u64,
    /// Bytes of the input that the program did not read.
    pub input_left: usize,
    /// The timeout has passed.
    pub timed_out: bool,
    /// Another process had the streams open, and they were not read to their ends.
    pub held_open: bool,
    /// The resources that it has used.
    pub usage: Option<Usage>,
    /// How often it has reached the limits of [`Command::memory_max`] and [`Command::tasks_max`]. `None`: it has none of them, or it is a
    /// pipeline.
    pub limit_events: Option<LimitEvents>,
    /// The [best-effort](Command::best_effort) steps that failed and were skipped.
    pub skipped: Vec<Error>,
}

impl Captured {
    /// Standard output as text, without the newline at its end. Bytes that are not UTF-8 are replaced by U+FFFD.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// assert_eq!(Command::new("echo").arg("hello").capture(&Capture::new())?.text(), "hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.stdout).into_owned();
        if text.ends_with('\n') {
            text.pop();
        }
        text
    }
}

impl Command {
    /// Runs the program to its end, with the input, limits and timeout of `how`, and returns what it wrote.
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let captured = Command::new("wc").arg("-c").capture(&Capture::new().input("hello"))?;
    /// assert_eq!(captured.text().trim(), "5");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), and errors of reading. A program that fails, times out or writes too much is not
    /// an error.
    pub fn capture(&mut self, how: &Capture) -> io::Result<Captured> {
        how.run(&Arc::new(compile(self, false)?))
    }
}

impl Prepared {
    /// Runs the program to its end like [`Command::capture`].
    ///
    /// ```
    /// use forkless::{Capture, Command};
    /// let upper = Command::new("tr").args(["a-z", "A-Z"]).prepare()?;
    /// assert_eq!(upper.capture(&Capture::new().input("one"))?.text(), "ONE");
    /// assert_eq!(upper.capture(&Capture::new().input("two"))?.text(), "TWO");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Command::capture`].
    pub fn capture(&self, how: &Capture) -> io::Result<Captured> {
        how.run(self.plan())
    }
}
