//! Waiting for the program: its end, signals to us, and the time-out.

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

/// How long to sleep between two looks at a child without a pidfd.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the user said about the time the program has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// None: for ever.
    pub(crate) timeout: Option<Duration>,
    /// Sent then.
    pub(crate) signal: i32,
    /// From then until KILL.
    pub(crate) kill_after: Option<Duration>,
    /// Whether the program leads a process group of its own, which is then what signals go to.
    pub(crate) own_group: bool,
}

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// The last signal that was sent because of the time-out.
    pub(crate) timed_out: Option<i32>,
}

/// Takes the signals that would end us before the program's status is known.
///
/// Made before the launch, so that none is lost in between. INT and QUIT from a terminal go to the whole group, the
/// program included, so they are only kept from ending us; TERM and HUP are sent to us alone and are passed on.
pub(crate) struct Watch(SignalDelivery<UnixStream, SignalOnly>);

impl Watch {
    /// `terminal`: those too that are about a terminal of the program's.
    ///
    /// # Errors
    /// When there is no file descriptor left.
    pub(crate) fn new(terminal: bool) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        // Where the caller had a signal ignored (nohup, a job in the background), it stays ignored, for the program too:
        // a handler of ours would turn into the default action at exec.
        let mut signals = vec![SIGINT, SIGQUIT, SIGTERM, SIGHUP];
        if terminal {
            signals.extend([SIGTSTP, SIGCONT, SIGWINCH]);
        }
        let signals = signals.into_iter().filter(|signal| !is_ignored(*signal));
        SignalDelivery::with_pipe(read, write, SignalOnly, signals).map(Self)
    }

    /// Waits for the program to end, and sees to its terminal, if it has one, until everything is out, or to what of its
    /// output is captured.
    ///
    /// # Errors
    /// When it was not started after all, its status is lost, or what it showed could not be written.
    pub(crate) fn wait(
        mut self,
        child: &mut Child,
        patience: Patience,
        mut terminal: Option<Terminal>,
        mut captured: Option<&mut Captured>,
    ) -> io::Result<Ending> {
        let mut deadline = patience.timeout.and_then(|time| Instant::now().checked_add(time));
        let mut timed_out = None;
        // It may have become another one since the terminal was opened.
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
                    // A stopped program would sleep through the signal.
                    send(child, SIGCONT, patience.own_group)?;
                }
                let more = if timed_out.is_none() { patience.kill_after } else { None };
                deadline = more.and_then(|time| Instant::now().checked_add(time));
                timed_out = Some(signal);
            }
        }
    }

    /// Sleeps until the program has ended, a signal has come, something has passed through the terminal or the time is up;
    /// the status in the first case.
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
        // It is one or the other.
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

    /// After the program's end: what it has shown is written, unless a signal that would have ended us comes meanwhile.
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
        let failed = |error| io::Error::other(format!("cannot write what the program shows: {error}"));
        terminal.failure().map_or(Ok(()), |error| Err(failed(error)))
    }
}

/// Sleeps until something has come of one of the files, or the time is up (none: never); what has come of each.
fn sleep(mut files: Vec<PollFd<'_>>, limit: Option<Duration>) -> io::Result<Vec<PollFlags>> {
    // A time too long for the kernel is for ever.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match poll(&mut files, limit.as_ref()) {
        Ok(_) => Ok(files.iter().map(PollFd::revents).collect()),
        Err(Errno::INTR) => Ok(vec![PollFlags::empty(); files.len()]),
        Err(error) => Err(error.into()),
    }
}

/// Sends a signal to the program, or to its group where it leads one.
fn send(child: &mut Child, signal: i32, own_group: bool) -> io::Result<()> {
    if !own_group {
        return child.signal(signal);
    }
    let Ok(group) = i32::try_from(child.id()) else { return child.signal(signal) };
    // The child is not reaped yet, so its id is not another's; and an id is never 0 or 1, for which a negative number
    // would mean something else.
    if sys::kill(-group, signal).is_ok() {
        return Ok(());
    }
    // It has not come to make its group yet, or has moved on: then it alone.
    child.signal(signal)
}

/// Do we ignore it?
pub(crate) fn is_ignored(signal: i32) -> bool {
    sys::signal_action(signal.unsigned_abs()).is_ok_and(|action| handler(&action) == libc::SIG_IGN)
}
