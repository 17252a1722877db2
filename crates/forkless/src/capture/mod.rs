//! Running a program and taking what it writes, within limits.

use crate::child::Child;
use crate::compile::{Plan, Stream};
use crate::error::Error;
use crate::launch::Form;
use crate::pipes::{Defaults, Unsaid};
use crate::usage::Usage;
use crate::{Command, Prepared, wait};
use forkless_core::sys::signal::SIGKILL;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

mod content;

pub(crate) mod drive;

pub(crate) mod reader;

pub use content::Content;
use content::MemoryFile;
use drive::{Drive, Input};
use reader::Reader;

/// How a program is run and what of its output is taken: for [`Command::capture`] and [`Prepared::capture`].
///
/// Without any of its settings it does what [`Command::output`] does. With them:
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
/// Streams of which the command says something are as it says; the others are captured.
#[derive(Debug, Clone)]
pub struct Capture {
    input: Option<Arc<[u8]>>,
    limit: usize,
    kill_at_limit: bool,
    merged: bool,
    memory_file: bool,
    pub(crate) timing: Timing,
}

/// When it is enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) timeout: Option<Duration>,
    pub(crate) signal: i32,
    pub(crate) grace: Duration,
    pub(crate) linger: Option<Duration>,
}

impl Timing {
    pub(crate) const ENDLESS: Self = Self { timeout: None, signal: SIGKILL, grace: Duration::ZERO, linger: None };
}

/// As much as is kept in memory files unless told otherwise, in bytes.
const MEMORY_FILE_LIMIT: usize = 1 << 30;

impl Default for Capture {
    fn default() -> Self {
        Self::new()
    }
}

impl Capture {
    /// No input, no limits.
    pub fn new() -> Self {
        let (limit, timing) = (usize::MAX, Timing::ENDLESS);
        Self { input: None, limit, kill_at_limit: false, merged: false, memory_file: false, timing }
    }

    /// What the program reads from its standard input, which ends then. It is written as the program reads, while its output
    /// is read, so neither waits for the other.
    ///
    /// A program that ends, or closes its input, before it has read all is no error: [`Captured::input_left`] tells. No
    /// SIGPIPE is raised, whatever that does in the caller.
    pub fn input<I: AsRef<[u8]>>(mut self, input: I) -> Self {
        self.input = Some(input.as_ref().into());
        self
    }

    /// The most that is kept of each stream, in bytes. What comes after that is read and dropped, so that the program is not
    /// kept waiting: [`Captured::stdout_cut`] tells how much.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// A program that writes more than the [limit](Self::limit) is killed (and its process group, if it leads one), with
    /// SIGKILL. For programs that may write for ever.
    pub fn kill_at_limit(mut self, kill: bool) -> Self {
        self.kill_at_limit = kill;
        self
    }

    /// Standard error goes where standard output goes, in the order in which they are written.
    ///
    /// Where the command sends standard output to a file it is an error ([`Step::Check`](crate::Step::Check)): there it takes the
    /// command's own [`Stdio::dup_of`](crate::Stdio::dup_of).
    pub fn merged(mut self, merged: bool) -> Self {
        self.merged = merged;
        self
    }

    /// After this time from the launch the program is ended: by SIGKILL, unless [`terminate`](Self::terminate) says otherwise; and
    /// with it its process group, if it leads one. The time also ends the waiting for whoever else holds its streams open, and the
    /// group of a program that has ended before.
    ///
    /// What has been written until then is in the result, whose [`Captured::timed_out`] tells. A time of zero ends it at once.
    /// A program that may not be killed, since it has become another user's, is an error (EPERM), and runs on.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timing.timeout = Some(limit);
        self
    }

    /// When the time is up the program gets `signal` first, and SIGKILL if it has not ended `grace` later. Whoever is left of its
    /// process group, if it leads one, gets SIGKILL when it has ended.
    pub fn terminate(mut self, signal: i32, grace: Duration) -> Self {
        (self.timing.signal, self.timing.grace) = (signal, grace);
        self
    }

    /// How long to read on when the program has ended but its streams have not, because something it has started holds them
    /// open; what is in them by then is taken in any case. [`Captured::held_open`] tells.
    ///
    /// Unless told otherwise: until they end, as everywhere; a tenth of a second after a [timeout](Self::timeout).
    pub fn linger(mut self, limit: Duration) -> Self {
        self.timing.linger = Some(limit);
        self
    }

    /// The program writes to files in memory (`memfd_create(2)`) instead of pipes, which are mapped when it has ended: nobody
    /// has to read meanwhile, and nothing is copied to us. It pays for output of many megabytes; a small one costs more than by a
    /// pipe.
    ///
    /// Not for every program:
    /// - Writes beyond the limit (1 GiB, unless [`limit`](Self::limit) says another) fail with EPERM, as on a full disk. They
    ///   are not counted as cut.
    /// - When the program has ended, so has its output: whoever holds the files still gets EPERM for what it writes.
    /// - A program that opens `/dev/stdout` anew gets EPERM if it truncates it, as a shell's `> /dev/stdout` does, or else starts
    ///   from the beginning; one that appends (O_APPEND, as `make` does) appends at the limit, and gets EPERM.
    /// - A program that writes out of order (`pwrite(2)`, `lseek(2)`, `mmap(2)`) leaves no length: its output reaches to where the
    ///   file offset stands, or to the last byte behind it that is not zero.
    /// - Output is seen in the end only, so [`kill_at_limit`](Self::kill_at_limit) has no effect.
    pub fn memory_file(mut self, memory_file: bool) -> Self {
        self.memory_file = memory_file;
        self
    }

    /// Runs a plan.
    pub(crate) fn run(&self, plan: &Arc<Plan>) -> io::Result<Captured> {
        if self.merged && plan.stdio[1] == Stream::Compiled && plan.stdio[2] == Stream::Unset {
            let why =
                "merged, though the command says what standard output is: stderr(Stdio::dup_of(1)) lets it follow";
            return Err(Error::check(plan.program(), why).into());
        }
        let limit = if self.memory_file && self.limit == usize::MAX { MEMORY_FILE_LIMIT } else { self.limit };
        let make = |wanted: bool| wanted.then(|| MemoryFile::new(plan.program(), limit)).transpose();
        let files = [make(self.memory_file)?, make(self.memory_file && !self.merged)?];
        let file = |n: usize| files[n].as_ref().map(|file: &MemoryFile| Unsaid::File(file.as_fd()));
        let stderr = if self.merged { Unsaid::AsStdout } else { file(1).unwrap_or(Unsaid::Piped) };
        let stdin = if self.input.is_some() { Unsaid::Piped } else { Unsaid::Null };
        let defaults = Defaults::Each([stdin, file(0).unwrap_or(Unsaid::Piped), stderr]);
        // Whether a filter killed it in exec can only be seen before it is reaped.
        let form = if plan.is_filtered { Form::Spawn } else { Form::Launch };
        let pidfd = self.watches() || wait::sigchld_discards();
        let mut child = Child::start(plan, form, defaults, pidfd)?;
        let outputs = [child.stdout.take().map(Into::into), child.stderr.take().map(Into::into)];
        let drive = self.drive(outputs, child.stdin.take().map(Into::into));
        // It cannot wait for what we would give it by sockets.
        child.end_input();
        let mut children = [child];
        let driven = drive.run(&mut children)?;
        let [mut child] = children;
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
            missed: child.missed().to_vec(),
        })
    }

    /// Does it matter when the child ends, beside its streams?
    pub(crate) fn watches(&self) -> bool {
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

    /// The loop for these streams.
    pub(crate) fn drive(&self, outputs: [Option<OwnedFd>; 2], stdin: Option<OwnedFd>) -> Drive {
        let readers = outputs.map(|stream| stream.map(|fd| Reader::new(fd, self.limit, self.kill_at_limit)));
        let input_left = if stdin.is_none() { self.input.as_ref().map_or(0, |input| input.len()) } else { 0 };
        // A pipe that the command asked for and that we have nothing for ends here.
        let input = stdin.zip(self.input.as_ref()).map(|(stdin, input)| Input::new(stdin, Arc::clone(input)));
        Drive { readers, input, input_left, timing: self.timing, watches: self.watches() }
    }
}

/// What a program has written and how it ended: from [`Command::capture`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Captured {
    /// How it ended; by SIGKILL, where it was killed for its time or its size.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Content,
    /// Its standard error; empty if merged.
    pub stderr: Content,
    /// Bytes of standard output that came after the limit and were dropped.
    pub stdout_cut: u64,
    /// Bytes of standard error that came after the limit and were dropped.
    pub stderr_cut: u64,
    /// Bytes of the input that the program did not take.
    pub input_left: usize,
    /// Its time was up.
    pub timed_out: bool,
    /// Something else had its streams open, and they were not read to their ends.
    pub held_open: bool,
    /// What it has used.
    pub usage: Option<Usage>,
    /// The [best-effort](Command::best_effort) steps that failed.
    pub missed: Vec<Error>,
}

impl Captured {
    /// Standard output as text, without the newline at its end; what is not UTF-8 is replaced.
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
    /// Runs the program to its end, feeding it and taking what it writes as a [`Capture`] says.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), and of reading. A program that fails, takes too long or writes too much is not an error.
    pub fn capture(&mut self, how: &Capture) -> io::Result<Captured> {
        how.run(&Arc::new(Plan::compile(self, false)?))
    }
}

impl Prepared {
    /// As [`Command::capture`].
    ///
    /// # Errors
    /// As there.
    pub fn capture(&self, how: &Capture) -> io::Result<Captured> {
        how.run(self.plan())
    }
}
