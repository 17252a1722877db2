//! Waits for the program to end, relays signals, and enforces the timeout.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    process::ExitStatus,
    time::{Duration, Instant},
};

use forkless::Child;
use forkless_core::{signals::handler, sys};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH},
    iterator::{backend::SignalDelivery, exfiltrator::SignalOnly},
};

use super::{captured::Captured, terminal::Terminal};

/// Polling interval for a child without a pidfd.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The timeout options, and where signals go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// None: no timeout.
    pub(crate) timeout: Option<Duration>,
    /// The signal to send on timeout.
    pub(crate) signal: i32,
    /// The time from that signal to KILL.
    pub(crate) kill_after: Option<Duration>,
    /// The program leads a process group; signals are sent to the group.
    pub(crate) own_group: bool,
}

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// The last signal sent because of the timeout.
    pub(crate) timed_out: Option<i32>,
}

/// Handles the signals that would otherwise kill forkless before the program's status is known.
///
/// Create it before the launch, so that no signal is lost in between. A terminal sends INT and QUIT to the whole foreground
/// group, including the program, so they are only ignored here. TERM and HUP reach forkless alone and are relayed.
pub(crate) struct Watch(SignalDelivery<UnixStream, SignalOnly>);

impl Watch {
    /// `terminal`: also handle TSTP, CONT and WINCH, which `--pty` needs.
    ///
    /// # Errors
    /// If no file descriptor is left.
    pub(crate) fn new(terminal: bool) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        // A signal that forkless inherited as ignored (nohup, a background job) stays ignored. A handler would be reset to
        // the default action at exec, and the program would no longer ignore it.
        let mut signals = vec![SIGINT, SIGQUIT, SIGTERM, SIGHUP];
        if terminal {
            signals.extend([SIGTSTP, SIGCONT, SIGWINCH]);
        }
        let signals = signals.into_iter().filter(|signal| !is_ignored(*signal));
        SignalDelivery::with_pipe(read, write, SignalOnly, signals).map(Self)
    }

    /// Waits for the program to end. Meanwhile relays its pseudo-terminal, until all output is written, or captures its
    /// output.
    ///
    /// # Errors
    /// If the program was not started, its status is lost, or its output cannot be written.
    pub(crate) fn wait(
        mut self,
        child: &mut Child,
        patience: Patience,
        mut terminal: Option<Terminal>,
        mut captured: Option<&mut Captured>,
    ) -> io::Result<Ending> {
        let mut deadline = patience.timeout.and_then(|time| Instant::now().checked_add(time));
        let mut timed_out = None;
        // The size may have changed since the terminal was opened.
        terminal.as_ref().map_or(Ok(()), Terminal::fit)?;
        loop {
            if let Some(status) = self.pause(child, deadline, terminal.as_mut(), captured.as_deref_mut())? {
                terminal.map_or(Ok(()), |terminal| self.finish(terminal))?;
                captured.map_or(Ok(()), Captured::finish)?;
                return Ok(Ending { status, timed_out });
            }
            for signal in self.0.pending() {
                match (signal, &mut terminal) {
                    (SIGTSTP, Some(terminal)) => terminal.stop()?,
                    (SIGCONT, Some(terminal)) => terminal.continued()?,
                    (SIGWINCH, Some(terminal)) => terminal.fit()?,
                    (SIGINT | SIGQUIT, _) if !patience.own_group => {}
                    _ => send(child, signal, patience.own_group)?,
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let signal = if timed_out.is_none() { patience.signal } else { SIGKILL };
                send(child, signal, patience.own_group)?;
                if signal != SIGKILL {
                    // A stopped program does not act on a signal other than KILL until it is continued.
                    send(child, SIGCONT, patience.own_group)?;
                }
                let more = if timed_out.is_none() { patience.kill_after } else { None };
                deadline = more.and_then(|time| Instant::now().checked_add(time));
                timed_out = Some(signal);
            }
        }
    }

    /// Sleeps until the program has ended, a signal has arrived, a relayed file is ready or the time is up. Returns the
    /// status if the program has ended.
    fn pause(
        &self,
        child: &mut Child,
        deadline: Option<Instant>,
        mut terminal: Option<&mut Terminal>,
        captured: Option<&mut Captured>,
    ) -> io::Result<Option<ExitStatus>> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let due = terminal.as_mut().map_or(Ok(None), |terminal| terminal.look())?;
        let look = if child.pidfd().is_none() { Some(LOOK_EVERY) } else { None };
        let mut files = vec![PollFd::from_borrowed_fd(self.0.get_read().as_fd(), PollFlags::IN)];
        files.extend(child.pidfd().map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN)));
        let others = files.len();
        if let Some(terminal) = &terminal {
            terminal.wants(&mut files);
        }
        if let Some(captured) = &captured {
            captured.wants(&mut files);
        }
        let came = sleep(files, [left, due, look].into_iter().flatten().min())?;
        // --pty and --capture exclude each other.
        if let Some(terminal) = terminal {
            terminal.carry(&came[others..])?;
        } else if let Some(captured) = captured {
            captured.carry(&came[others..])?;
        }
        match child.pidfd() {
            None => child.try_wait(),
            Some(_) if came[1].is_empty() => Ok(None),
            Some(_) => child.wait().map(Some),
        }
    }

    /// After the program has ended: writes the remaining output, until a signal arrives that would have killed forkless.
    fn finish(&mut self, mut terminal: Terminal) -> io::Result<()> {
        terminal.program_has_ended()?;
        while !terminal.is_done() {
            let mut files = vec![PollFd::from_borrowed_fd(self.0.get_read().as_fd(), PollFlags::IN)];
            terminal.wants(&mut files);
            let came = sleep(files, None)?;
            terminal.carry(&came[1..])?;
            for signal in self.0.pending() {
                match signal {
                    SIGTSTP => terminal.stop()?,
                    SIGCONT | SIGWINCH => {}
                    _ => return Ok(()),
                }
            }
        }
        let failed = |error| io::Error::other(format!("cannot write the program's output: {error}"));
        terminal.failure().map_or(Ok(()), |error| Err(failed(error)))
    }
}

/// Polls the files until one is ready or the time is up (None: no limit). Returns the events of each file.
fn sleep(mut files: Vec<PollFd<'_>>, limit: Option<Duration>) -> io::Result<Vec<PollFlags>> {
    // A time too long for the kernel means no limit.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match poll(&mut files, limit.as_ref()) {
        Ok(_) => Ok(files.iter().map(PollFd::revents).collect()),
        Err(Errno::INTR) => Ok(vec![PollFlags::empty(); files.len()]),
        Err(error) => Err(error.into()),
    }
}

/// Sends a signal to the program, or to its process group if it leads one.
fn send(child: &mut Child, signal: i32, own_group: bool) -> io::Result<()> {
    if !own_group {
        return child.signal(signal);
    }
    let Ok(group) = i32::try_from(child.id()) else { return child.signal(signal) };
    // The child is not reaped yet, so its PID has not been reused. A PID is never 0 or 1, whose negatives kill(2) would treat
    // differently.
    if sys::kill(-group, signal).is_ok() {
        return Ok(());
    }
    // The group does not exist yet, or the program has left it: signal the program alone.
    child.signal(signal)
}

/// Is the signal ignored in this process?
pub(crate) fn is_ignored(signal: i32) -> bool {
    sys::signal_action(signal.unsigned_abs()).is_ok_and(|action| handler(&action) == libc::SIG_IGN)
}
