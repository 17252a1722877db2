//! How a shell that waits for the program reports that a signal has killed it: by an exit code and a message.

use super::classify::{OpenMode, Redirection};
use super::known::ShellFile;
use crate::error::Error;
use crate::once::OnceFor;
use crate::request::command::Command;
use crate::request::stdio::{FdSource, Stdio};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};
use std::sync::Arc;

/// Translates the status of a child from [`ShellCommand`](super::ShellCommand): from
/// [`ShellChild::into_parts`](super::ShellChild::into_parts).
#[derive(Debug, Clone)]
pub struct ShellEnding(Option<Waiter>);

/// A shell that would have waited for the program.
#[derive(Debug, Clone)]
struct Waiter {
    shell: ShellFile,
    words: MessageTarget,
}

/// What the caller reads of the child's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Captures {
    Nothing,
    /// The pipes that it has asked for.
    Pipes,
    /// These, and what it has not set.
    All,
}

/// Where the shell would have written its message: the program's standard error, because dash redirects its own and
/// then forks.
#[derive(Debug, Clone)]
enum MessageTarget {
    /// To this process's descriptor of this number.
    Ours(RawFd),
    To(Arc<OwnedFd>),
    Nowhere,
    /// To the end of what was captured of this descriptor.
    Captured(RawFd),
}

impl MessageTarget {
    /// `None` if it could not be written there: only the child has the file that it has opened, and when the program
    /// has ended, the file's name may belong to another file.
    fn of(command: &Command, redirections: &[Redirection], captures: Captures) -> Option<Self> {
        // What each descriptor is in the child: one of the descriptors at its start, or a file.
        let mut found: [Result<RawFd, &[u8]>; 10] = std::array::from_fn(|number| Ok(number as RawFd));
        for redirection in redirections {
            match redirection {
                Redirection::Copy { to, from } => found[*to as usize] = found[*from as usize],
                // Opened for reading: writes to it fail, as if it were discarded.
                Redirection::Open { to, how: OpenMode::Read, .. } => found[*to as usize] = Err(b"/dev/null"),
                Redirection::Open { to, path, .. } => found[*to as usize] = Err(path),
            }
        }
        let number = match found[2] {
            Ok(number @ 1..=2) => number,
            Ok(_) => return None,
            Err(b"/dev/null") => return Some(Self::Nowhere),
            Err(_) => return None,
        };
        // As the child does: a copy of another one of its descriptors is made last.
        let number = match command.fds.get(&number) {
            Some(FdSource::DupOf(of @ 1..=2)) => *of,
            _ => number,
        };
        Some(match command.fds.get(&number) {
            None if captures == Captures::All => Self::Captured(number),
            Some(FdSource::Piped) if captures != Captures::Nothing => Self::Captured(number),
            None | Some(FdSource::Inherit) => Self::Ours(number),
            Some(FdSource::Borrowed(ours @ 1..=2)) => Self::Ours(*ours),
            Some(FdSource::Null) => Self::Nowhere,
            Some(FdSource::Owned(fd)) => Self::To(Arc::clone(fd)),
            Some(_) => return None,
        })
    }

    /// Writes it, unless it goes to captured output.
    fn write(&self, words: &[u8]) {
        match self {
            Self::Ours(1) => write_if_read(io::stdout().as_fd(), words),
            Self::Ours(_) => write_if_read(io::stderr().as_fd(), words),
            Self::To(fd) => write_if_read(fd.as_fd(), words),
            Self::Nowhere | Self::Captured(_) => {}
        }
    }
}

impl ShellEnding {
    /// The status stays as it is: the shell itself ran, or would have replaced itself by the program.
    pub(super) fn plain() -> Self {
        Self(None)
    }

    /// For this command's standard error; `None` if the shell's message could not be written there.
    pub(super) fn of(
        shell: ShellFile,
        command: &Command,
        redirections: &[Redirection],
        captures: Captures,
    ) -> Option<Self> {
        let words = MessageTarget::of(command, redirections, captures)?;
        Some(Self(Some(Waiter { shell, words })))
    }

    /// Returns the status that the shell would have reported, and writes the shell's message to standard error.
    ///
    /// Where dash waits for the program, death by signal n is reported as exit code 128+n, with `Killed` or the like
    /// on standard error. SIGHUP, SIGINT and SIGQUIT stay as they are: a terminal sends them to the shell too, which
    /// then dies of them like the program.
    ///
    /// ```
    /// let (mut child, ending) = forkless::shell("sleep 1").spawn()?.into_parts();
    /// child.kill()?;
    /// let status = ending.status(child.wait()?)?;
    /// assert!(!status.success()); // where /bin/sh is a dash that waits: exit code 137
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// When a signal has killed a program for the first time in the life of the process, this runs the shell once to
    /// see whether it waits. If that cannot be done now, it counts as one that waits, as Debian's dash.
    ///
    /// # Errors
    /// None at present: the status is known, and no look-up replaces it by an error.
    pub fn status(&self, status: ExitStatus) -> io::Result<ExitStatus> {
        let (status, words) = self.translate(status)?;
        if let Some(waiter) = &self.0 {
            waiter.words.write(&words);
        }
        Ok(status)
    }

    /// False if [`status`](Self::status) would lose the shell's message, because it goes to a descriptor of the caller
    /// that is full. A caller that reads the other end makes room first.
    #[doc(hidden)]
    pub fn has_room(&self, status: ExitStatus) -> io::Result<bool> {
        Ok(match self.0.as_ref().map(|waiter| &waiter.words) {
            Some(MessageTarget::To(fd)) if is_ready(fd.as_fd()) == Some(PollFlags::empty()) => {
                self.translate(status)?.1.is_empty()
            }
            _ => true,
        })
    }

    /// Writes no message from now on.
    pub(super) fn say_no_more(&mut self) {
        if let Some(waiter) = &mut self.0 {
            waiter.words = MessageTarget::Nowhere;
        }
    }

    /// [`status`](Self::status) for a caller that has read the output: from
    /// [`ShellCommand::spawn_captured`](super::ShellCommand::spawn_captured). A message that would have gone to a pipe
    /// is added to the end of that output.
    ///
    /// ```
    /// use forkless::Stdio;
    /// let mut line = forkless::shell("sleep 60");
    /// line.settings().stderr(Stdio::piped());
    /// let (mut child, ending) = line.spawn_captured()?.into_parts();
    /// child.kill()?;
    /// let output = ending.output(child.wait_with_output()?)?;
    /// assert!(!output.status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`status`](Self::status).
    pub fn output(&self, mut output: Output) -> io::Result<Output> {
        let (status, words) = self.translate(output.status)?;
        match self.0.as_ref().map(|waiter| &waiter.words) {
            Some(MessageTarget::Captured(1)) => output.stdout.extend_from_slice(&words),
            Some(MessageTarget::Captured(_)) => output.stderr.extend_from_slice(&words),
            Some(other) => other.write(&words),
            None => {}
        }
        Ok(Output { status, ..output })
    }

    fn translate(&self, status: ExitStatus) -> io::Result<(ExitStatus, Vec<u8>)> {
        const SIGHUP_INT_QUIT: [i32; 3] = [1, 2, 3];
        let (Some(waiter), Some(signal)) = (&self.0, status.signal()) else { return Ok((status, Vec::new())) };
        if SIGHUP_INT_QUIT.contains(&signal) || !does_wait(&waiter.shell) {
            return Ok((status, Vec::new()));
        }
        let mut words = describe(signal).into_bytes();
        if !words.is_empty() {
            words.extend_from_slice(if status.core_dumped() { b" (core dumped)\n" } else { b"\n" });
        }
        let code = 128 + signal;
        Ok((ExitStatus::from_raw(code << 8), words))
    }
}

/// Whether this dash waits for the program of `sh -c PROGRAM`, or replaces itself by it. Both kinds are in use, and
/// only their behaviour shows which one it is.
fn does_wait(shell: &ShellFile) -> bool {
    static KNOWN: OnceFor<ShellFile, bool> = OnceFor::new();
    if let Some(known) = KNOWN.get(shell) {
        return known;
    }
    let path = shell.path();
    if ShellFile::of(path).as_ref() != Some(shell) {
        // The file has been replaced or removed. Debian's dash waits.
        return true;
    }
    /// A filter may kill each of them.
    const TRIES: usize = 10;
    const LINE: &str = "\"$1\" -c 'kill -KILL $$'";
    let mut command = Command::new(path);
    command.arg0("sh").args(["-c", LINE, "sh"]).arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // In a session of its own it gets no signals of this process group. If such a signal killed it, the result would
    // be wrong.
    command.setsid(true);
    for signal in 1..=64 {
        command.signal_block(signal);
    }
    for _ in 0..TRIES {
        match command.status() {
            Ok(status) => return KNOWN.put(shell, status.signal().is_none()),
            // A signal killed it before it had its own session: it is run again.
            Err(error) if Error::of(&error).is_some_and(|detail| detail.signal().is_some()) => {}
            // For example, no process can be started now.
            Err(_) => break,
        }
    }
    // Not kept: the next program that a signal kills is a reason to try again.
    true
}

/// Writes, unless that would block.
fn write_if_read(fd: BorrowedFd<'_>, words: &[u8]) {
    if words.is_empty() {
        return;
    }
    if is_ready(fd) == Some(PollFlags::OUT) {
        // A failed write is ignored: there is nowhere to report it.
        let _ = crate::output::quiet::write_quietly(fd, words);
    }
}

/// What writing to the descriptor would meet now: room, a closed reading end, or neither. `None` if that is not known.
fn is_ready(fd: BorrowedFd<'_>) -> Option<PollFlags> {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).ok().map(|_| polled[0].revents())
}

/// The C library's text for a signal: `strsignal(3)`. There is none for SIGPIPE.
fn describe(signal: i32) -> String {
    const FIRST_REAL_TIME: i32 = 34;
    let words = match signal {
        4 => "Illegal instruction",
        5 => "Trace/breakpoint trap",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        10 => "User defined signal 1",
        11 => "Segmentation fault",
        12 => "User defined signal 2",
        13 => "",
        14 => "Alarm clock",
        15 => "Terminated",
        16 => "Stack fault",
        24 => "CPU time limit exceeded",
        25 => "File size limit exceeded",
        26 => "Virtual timer expired",
        27 => "Profiling timer expired",
        29 => "I/O possible",
        30 => "Power failure",
        31 => "Bad system call",
        FIRST_REAL_TIME.. => return format!("Real-time signal {}", signal - FIRST_REAL_TIME),
        other => return format!("Unknown signal {other}"),
    };
    words.to_owned()
}
