//! How a shell that waits for the program tells that a signal has killed it: with a code and a word.

use super::classify::{How, Redirection};
use super::known::Identity;
use crate::command::Command;
use crate::error::Error;
use crate::once::OnceFor;
use crate::stdio::{Source, Stdio};
use forkless_core::planted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};
use std::sync::Arc;

/// What the status of a child from [`ShellCommand`](super::ShellCommand) means: from
/// [`ShellChild::into_parts`](super::ShellChild::into_parts).
#[derive(Debug, Clone)]
pub struct ShellEnding(Option<Waiter>);

/// A shell would have waited.
#[derive(Debug, Clone)]
struct Waiter {
    shell: Identity,
    words: Words,
}

/// Where the shell's own words go: to what the program has as standard error, since dash redirects its own and then forks.
#[derive(Debug, Clone)]
enum Words {
    /// To our descriptor of this number.
    Ours(RawFd),
    To(Arc<OwnedFd>),
    Nowhere,
    /// To the end of what was captured of this descriptor.
    Captured(RawFd),
}

impl Words {
    /// None where they could not be put: only the child has the file that it has opened, and its name may be another's when the
    /// program has ended.
    fn of(command: &Command, redirections: &[Redirection], captures: bool) -> Option<Self> {
        // What each descriptor is: one of those it began with, or a file.
        let mut found: [Result<RawFd, &[u8]>; 10] = std::array::from_fn(|number| Ok(number as RawFd));
        for redirection in redirections {
            match redirection {
                Redirection::Copy { to, from } => found[*to as usize] = found[*from as usize],
                // Nothing can be written there.
                Redirection::Open { to, how: How::Read, .. } => found[*to as usize] = Err(b"/dev/null"),
                Redirection::Open { to, path, .. } => found[*to as usize] = Err(path),
            }
        }
        let number = match found[2] {
            Ok(number @ 1..=2) => number,
            Ok(_) => return None,
            Err(b"/dev/null") => return Some(Self::Nowhere),
            Err(_) => return None,
        };
        Some(match command.fds.get(&number) {
            None | Some(Source::Piped) if captures => Self::Captured(number),
            None | Some(Source::Inherit) => Self::Ours(number),
            Some(Source::Borrowed(ours @ 1..=2)) => Self::Ours(*ours),
            Some(Source::Null) => Self::Nowhere,
            Some(Source::Owned(fd)) => Self::To(Arc::clone(fd)),
            Some(_) => return None,
        })
    }

    /// Writes them, where they are not to be captured.
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
    /// The status is told as it is: the shell itself ran, or would have become the program.
    pub(super) fn plain() -> Self {
        Self(None)
    }

    /// For a command's standard error; none where the shell's words could not be put there.
    pub(super) fn of(shell: Identity, command: &Command, redirections: &[Redirection], captures: bool) -> Option<Self> {
        let words = Words::of(command, redirections, captures)?;
        Some(Self(Some(Waiter { shell, words })))
    }

    /// The status as the shell would have told it, and its words are written to standard error.
    ///
    /// Where dash waits for the program, one that is killed by signal n gives 128+n, and `Killed` or the like on
    /// standard error. SIGHUP, SIGINT and SIGQUIT are left as they are: a terminal sends them to the shell too, which
    /// then dies of them like the program.
    ///
    /// # Errors
    /// If the shell is looked at, as once in the life of the process it is when a signal has killed a program, and that fails.
    pub fn status(&self, status: ExitStatus) -> io::Result<ExitStatus> {
        let (status, words) = self.translate(status)?;
        if let Some(waiter) = &self.0 {
            waiter.words.write(&words);
        }
        Ok(status)
    }

    /// From now on the words go nowhere.
    pub(super) fn say_no_more(&mut self) {
        if let Some(waiter) = &mut self.0 {
            waiter.words = Words::Nowhere;
        }
    }

    /// The same for an output that was captured.
    pub(super) fn output(&self, mut output: Output) -> io::Result<Output> {
        let (status, words) = self.translate(output.status)?;
        match self.0.as_ref().map(|waiter| &waiter.words) {
            Some(Words::Captured(1)) => output.stdout.extend_from_slice(&words),
            Some(Words::Captured(_)) => output.stderr.extend_from_slice(&words),
            Some(other) => other.write(&words),
            None => {}
        }
        Ok(Output { status, ..output })
    }

    fn translate(&self, status: ExitStatus) -> io::Result<(ExitStatus, Vec<u8>)> {
        const SIGHUP_INT_QUIT: [i32; 3] = [1, 2, 3];
        let (Some(waiter), Some(signal)) = (&self.0, status.signal()) else { return Ok((status, Vec::new())) };
        if SIGHUP_INT_QUIT.contains(&signal) || !waits(&waiter.shell)? {
            return Ok((status, Vec::new()));
        }
        let mut words = describe(signal).into_bytes();
        if !words.is_empty() {
            words.extend_from_slice(if status.core_dumped() { b" (core dumped)\n" } else { b"\n" });
        }
        let code = if planted!("shell-signal-as-a-code") { signal } else { 128 + signal };
        Ok((ExitStatus::from_raw(code << 8), words))
    }
}

/// Does this dash wait for the program of `sh -c PROGRAM`, or become it? Both kinds are in use, and nothing but what they do
/// tells one from the other.
fn waits(shell: &Identity) -> io::Result<bool> {
    static KNOWN: OnceFor<Identity, bool> = OnceFor::new();
    if let Some(known) = KNOWN.get(shell) {
        return Ok(known);
    }
    let path = shell.path();
    if Identity::of(path).as_ref() != Some(shell) {
        // It is not there any more. Debian's waits.
        return Ok(true);
    }
    const LINE: &str = "\"$1\" -c 'kill -KILL $$'";
    let mut command = Command::new(path);
    command.arg0("sh").args(["-c", LINE, "sh"]).arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // What is sent to our group is not for them: a signal that kills one of them would be taken for the answer.
    command.setsid(true);
    for signal in 1..=64 {
        command.signal_block(signal);
    }
    let waits = loop {
        match command.status() {
            Ok(status) => break status.signal().is_none(),
            // Before it had a session of its own.
            Err(error) if Error::of(&error).is_some_and(|detail| detail.signal().is_some()) => {}
            Err(error) => return Err(error),
        }
    };
    Ok(KNOWN.put(shell, waits))
}

/// Writes, unless that would block.
fn write_if_read(fd: BorrowedFd<'_>, words: &[u8]) {
    if words.is_empty() {
        return;
    }
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready =
        planted!("shell-words-block") || poll(&mut polled, Some(&now)).is_ok() && polled[0].revents() == PollFlags::OUT;
    if ready {
        // There is nobody to be told that it failed.
        let _ = crate::quiet::write_quietly(fd, words);
    }
}

/// What the C library calls a signal: `strsignal(3)`. Nothing is said of a broken pipe.
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
