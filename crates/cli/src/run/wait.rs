//! Supervises the program: forwards signals, stops and continues with it, enforces the timeout, and waits for its end.

use std::{
    collections::BTreeSet,
    fs, io,
    os::{fd::AsFd, unix::process::ExitStatusExt},
    process::ExitStatus,
    time::{Duration, Instant},
};

use forkless::{Change, Child, Command};
use forkless_core::sys::{self, signal::bit};
use libc::{SIGCHLD, SIGCONT, SIGHUP, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    captured::Captured,
    descendants,
    failure::say,
    job_control::{Foreground, wake_at},
    options::SessionAndGroup,
    signals::{Arrived, Recipient, STOPS, Signals, has_continued},
    terminal::Terminal,
};

/// Polling interval for a child without a pidfd.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The timeout options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// None: no timeout.
    pub(crate) timeout: Option<Duration>,
    /// The signal to send on timeout.
    pub(crate) signal: i32,
    /// The time from that signal to KILL.
    pub(crate) kill_after: Option<Duration>,
    /// How long to read output that other processes hold open after the program has ended.
    pub(crate) linger: Duration,
}

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// The last signal sent because of the timeout.
    pub(crate) timed_out: Option<i32>,
}

/// The timeout while the program runs.
struct Clock {
    patience: Patience,
    deadline: Option<Instant>,
    /// The last signal sent because of the timeout.
    sent: Option<i32>,
}

/// Supervises a program. The table of signals is in docs/run.md.
///
/// Create it before the launch, so that no signal is lost in between.
pub(crate) struct Watch {
    /// The first field, so that the terminal is given back before signals take effect again.
    foreground: Option<Foreground>,
    signals: Signals,
    place: SessionAndGroup,
    to: Recipient,
    /// Is the program stopped, according to the last report?
    is_stopped: bool,
    /// The signals that have arrived so far.
    seen: BTreeSet<i32>,
    /// Has the program got SIGHUP, because no shell would continue it?
    hung_up: bool,
    /// Does a timeout also end what the program has started? In a process group of the program the signal reaches all.
    signals_descendants: bool,
}

impl Watch {
    /// `pty`: forkless relays a pseudo-terminal. `wants_terminal`: the program is to be in the foreground.
    ///
    /// # Errors
    /// If no file descriptor is left.
    pub(crate) fn new(place: SessionAndGroup, pty: bool, wants_terminal: bool) -> io::Result<Self> {
        // With `--pty` forkless itself reads its terminal, which fails in the background if these signals are blocked.
        let left = if pty { &[SIGTTIN, SIGTTOU][..] } else { &[] };
        let signals = Signals::take(left)?;
        let lends = place == SessionAndGroup::OwnGroup || place == SessionAndGroup::OtherGroup && wants_terminal;
        let to = Recipient {
            leads: matches!(
                place,
                SessionAndGroup::OwnGroup | SessionAndGroup::OwnSession | SessionAndGroup::BelowInit
            ),
        };
        let foreground = lends.then(|| Foreground::new(wants_terminal));
        Ok(Self {
            foreground,
            signals,
            place,
            to,
            is_stopped: false,
            seen: BTreeSet::new(),
            hung_up: false,
            signals_descendants: false,
        })
    }

    /// A timeout will also end all processes that the program has started in the process group of forkless.
    pub(crate) fn end_descendants(&mut self) {
        descendants::adopt();
        self.signals_descendants = true;
    }

    /// As [`Signals::leave_to`].
    pub(crate) fn leave_mask_to(&self, command: &mut Command, inherits: bool) {
        self.signals.leave_to(command, inherits);
    }

    /// Waits for the program to end. Meanwhile relays its pseudo-terminal, until all output is written, or captures its
    /// output.
    ///
    /// # Errors
    /// If the program was not started, its status is lost, or its output cannot be written.
    pub(crate) fn wait(
        &mut self,
        child: &mut Child,
        patience: Patience,
        terminal: Option<Terminal>,
        captured: Option<&mut Captured>,
    ) -> io::Result<Ending> {
        let deadline = patience.timeout.and_then(|time| Instant::now().checked_add(time));
        let mut clock = Clock { patience, deadline, sent: None };
        let status = match self.supervise(child, &mut clock, terminal, captured) {
            Err(error) => self.killed_early(error, clock.sent)?,
            Ok(status) => status,
        };
        Ok(Ending { status, timed_out: clock.sent })
    }

    /// The status of a child that a signal for the program has killed before it could execute the program.
    ///
    /// # Errors
    /// The given error, if it has another cause.
    pub(crate) fn killed_early(&mut self, error: io::Error, sent: Option<i32>) -> io::Result<ExitStatus> {
        // A terminal may have signalled both.
        self.seen.extend(self.signals.arrived().iter().map(|signal| signal.number).chain(sent));
        let killer = forkless::Error::of(&error).and_then(forkless::Error::signal);
        match killer.filter(|signal| self.seen.contains(signal)) {
            Some(signal) => Ok(ExitStatus::from_raw(signal)),
            None => Err(error),
        }
    }

    fn supervise(
        &mut self,
        child: &mut Child,
        clock: &mut Clock,
        mut terminal: Option<Terminal>,
        mut captured: Option<&mut Captured>,
    ) -> io::Result<ExitStatus> {
        if let (Some(foreground), SessionAndGroup::OwnGroup) = (&mut self.foreground, self.place) {
            foreground.launched(child.id());
        }
        // The size may have changed since the terminal was opened.
        terminal.as_ref().map_or(Ok(()), Terminal::fit)?;
        // The terminal may have sent these before the program existed, so they are forwarded. If the program has got them
        // too, both count as one, because it has not run yet.
        let mut arrived = self.signals.arrived();
        let mut is_early = true;
        loop {
            while !arrived.is_empty() {
                arrived = self.take(&arrived, is_early, child, clock, terminal.as_mut())?;
            }
            is_early = false;
            clock.strike(self.to, child, self.signals_descendants);
            if let Some(status) = self.pause(child, clock.deadline, terminal.as_mut(), captured.as_deref_mut())? {
                // Before the rest of the output, which may never be read.
                self.foreground = None;
                terminal.map_or(Ok(()), |terminal| self.finish(terminal))?;
                if let Some(captured) = captured {
                    // Not after a timeout: all that is left of the program is late, too.
                    if clock.sent.is_none() {
                        self.linger(captured, clock.patience.linger)?;
                    }
                    captured.finish()?;
                }
                return Ok(status);
            }
            arrived = self.signals.arrived();
        }
    }

    /// Acts on the signals that have arrived. Returns those that have arrived since.
    fn take(
        &mut self,
        arrived: &[Arrived],
        is_early: bool,
        child: &mut Child,
        clock: &Clock,
        mut terminal: Option<&mut Terminal>,
    ) -> io::Result<Vec<Arrived>> {
        self.seen.extend(arrived.iter().map(|signal| signal.number));
        for signal in arrived {
            self.handle(signal, is_early, child, terminal.as_deref_mut())?;
        }
        let has = |number: i32| arrived.iter().any(|signal| signal.number == number);
        let continues = self.place == SessionAndGroup::Beside && has_continued(arrived);
        if has(SIGCHLD) && self.signals_descendants {
            descendants::reap_others(child.id());
        }
        let news = if has(SIGCHLD) || continues { news(child)? } else { None };
        match news {
            Some(News::Stopped(signal)) => {
                self.is_stopped = true;
                if continues && !is_early {
                    return self.stopped_or_continued(signal, child, clock, terminal);
                }
                // Lending sends a SIGCONT, which would discard the stop signal that the program has just got.
                let is_to_stop = STOPS.into_iter().any(has);
                if self.can_lend_for(signal) && !is_to_stop && self.lend(child) {
                    return Ok(Vec::new());
                }
                self.stop_with(signal, child, clock, terminal)
            }
            Some(News::Continued) => {
                self.is_stopped = false;
                Ok(Vec::new())
            }
            None => {
                if continues && self.is_stopped {
                    let _ = self.to.send(child, SIGCONT, None);
                }
                Ok(Vec::new())
            }
        }
    }

    /// The program was found stopped when a SIGCONT had arrived. If a terminal has just stopped it again, it stays stopped.
    fn stopped_or_continued(
        &mut self,
        signal: i32,
        child: &mut Child,
        clock: &Clock,
        terminal: Option<&mut Terminal>,
    ) -> io::Result<Vec<Arrived>> {
        let mut later = self.signals.arrived();
        if later.iter().any(|signal| STOPS.contains(&signal.number)) {
            later.extend(self.stop_with(signal, child, clock, terminal)?);
        } else {
            let _ = self.to.send(child, SIGCONT, None);
        }
        Ok(later)
    }

    /// Forwards a signal, if it is for the program.
    fn handle(
        &mut self,
        signal: &Arrived,
        is_early: bool,
        child: &mut Child,
        terminal: Option<&mut Terminal>,
    ) -> io::Result<()> {
        match (signal.number, terminal) {
            (SIGWINCH, Some(terminal)) => terminal.fit()?,
            (SIGCONT, Some(terminal)) => terminal.continued()?,
            (number, terminal)
                if matches!(self.place, SessionAndGroup::OwnSession | SessionAndGroup::BelowInit)
                    && STOPS.contains(&number) =>
            {
                return self.stop_both(child, terminal);
            }
            (SIGCONT, None) => self.foreground.iter_mut().for_each(Foreground::continued),
            _ => {}
        }
        if self.is_for_program(signal, is_early, child) {
            // forkless may not be allowed to signal a setuid program. Then nothing else can be done for the sender.
            let _ = self.to.send(child, signal.number, signal.value());
        }
        Ok(())
    }

    fn is_for_program(&self, signal: &Arrived, is_early: bool, child: &Child) -> bool {
        // The program has signalled its own group, and gets the signal anyway.
        let is_from_program = self.place == SessionAndGroup::Beside && signal.is_sent() && signal.sender == child.id();
        // Such as PIPE, when forkless itself writes to a closed pipe.
        let is_own = signal.is_sent() && signal.sender == std::process::id();
        if signal.is_of_a_child() || signal.is_from_timer() || is_from_program || is_own {
            return false;
        }
        // The shell sends it to the whole group, and the program may have been stopped again meanwhile: see `take`.
        if self.place == SessionAndGroup::Beside && signal.number == SIGCONT {
            return false;
        }
        // A terminal that hangs up signals the leader of its session alone.
        if signal.number == SIGHUP && sys::getsid() == sys::getpid() {
            return true;
        }
        // Otherwise it signals all of its foreground group.
        let has_terminal = match self.place {
            SessionAndGroup::Beside => true,
            SessionAndGroup::OwnGroup | SessionAndGroup::OtherGroup => false,
            // Its own terminal gets the new size, and signals the program.
            SessionAndGroup::OwnSession | SessionAndGroup::BelowInit => signal.number == SIGWINCH,
        };
        is_early || !(signal.is_from_terminal() && has_terminal)
    }

    /// Has the program stopped because it uses the terminal, which forkless can lend?
    fn can_lend_for(&self, signal: i32) -> bool {
        [SIGTTIN, SIGTTOU].contains(&signal) && self.place == SessionAndGroup::OwnGroup
    }

    /// Lends the terminal to the stopped program and continues it. False if forkless is not in the foreground.
    fn lend(&mut self, child: &mut Child) -> bool {
        let done = self.foreground.as_mut().is_some_and(Foreground::lend);
        if done {
            // SIGCONT discards pending stop signals: signal(7). A Ctrl-Z among them is sent again. (One that is pressed
            // between these two lines is lost, as one is that is pressed while a shell continues a job.)
            let is_to_stop = is_pending(child.id(), SIGTSTP);
            let _ = self.to.send(child, SIGCONT, None);
            if is_to_stop {
                let _ = self.to.send(child, SIGTSTP, None);
            }
        }
        done
    }

    /// Stops forkless, because the program has stopped. Returns what has arrived since; the SIGCONT among it is forwarded
    /// to the program as any other signal.
    fn stop_with(
        &mut self,
        signal: i32,
        child: &mut Child,
        clock: &Clock,
        mut terminal: Option<&mut Terminal>,
    ) -> io::Result<Vec<Arrived>> {
        let is_use_of_terminal = self.can_lend_for(signal);
        let had_terminal = self.foreground.as_mut().is_some_and(Foreground::take_back);
        terminal.iter_mut().for_each(|terminal| terminal.restore_modes());
        let timer = wake_at(clock.deadline);
        // The kernel discards no SIGSTOP, even if no shell exists that would continue forkless.
        let by = if STOPS.contains(&signal) { signal } else { SIGTSTP };
        let mut arrived = Vec::new();
        loop {
            // The terminal signals a whole job.
            self.signals.stop(by, (had_terminal || is_use_of_terminal) && by == signal);
            // Read before the timer is deleted, which may discard its signal.
            let later = self.signals.arrived();
            // A stop signal discards a SIGCONT that was not taken yet (signal(7)): forkless was continued, and at once
            // stopped again.
            let is_again = self.foreground.is_some()
                && later.iter().all(|signal| signal.number != SIGCONT)
                && later.iter().any(|signal| STOPS.contains(&signal.number));
            arrived.extend(later);
            if !is_again {
                break;
            }
        }
        drop(timer);
        terminal.map_or(Ok(()), Terminal::continued)?;
        if !arrived.iter().any(|signal| signal.number == SIGCONT) {
            self.go_on(child, had_terminal, is_use_of_terminal);
        }
        Ok(arrived)
    }

    /// After the kernel has discarded a stop of forkless: no shell would continue the program either.
    fn go_on(&mut self, child: &mut Child, had_terminal: bool, is_use_of_terminal: bool) {
        if had_terminal && self.lend(child) {
            return;
        }
        if is_use_of_terminal && !self.hung_up {
            // As the kernel does when a stopped group becomes orphaned. Only once, because a program may ignore it.
            self.hung_up = true;
            let _ = self.to.send(child, SIGHUP, None);
            let _ = self.to.send(child, SIGCONT, None);
        }
    }

    /// Stops forkless and its program in another session, where the kernel discards the other stop signals, until forkless
    /// is continued.
    fn stop_both(&mut self, child: &mut Child, mut terminal: Option<&mut Terminal>) -> io::Result<()> {
        // A SIGSTOP would stop only the init; on SIGTSTP the init stops the program.
        let stop = if self.place == SessionAndGroup::BelowInit { SIGTSTP } else { SIGSTOP };
        let _ = self.to.send(child, stop, None);
        terminal.iter_mut().for_each(|terminal| terminal.restore_modes());
        self.signals.stop(SIGTSTP, false);
        let _ = self.to.send(child, SIGCONT, None);
        terminal.map_or(Ok(()), Terminal::continued)
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
        let due = terminal.as_mut().map_or(Ok(None), |terminal| terminal.do_what_is_due())?;
        let look = if child.pidfd().is_none() { Some(POLL_INTERVAL) } else { None };
        let mut files = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
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

    /// After the program has ended: reads on while other processes have its output open, for `limit` at most, or until a
    /// signal arrives that would have killed forkless.
    fn linger(&self, captured: &mut Captured, limit: Duration) -> io::Result<()> {
        // A time that the clock cannot reach means no limit.
        let until = Instant::now().checked_add(limit);
        while !captured.has_ended() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let mut files = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
            captured.wants(&mut files);
            let came = sleep(files, left)?;
            captured.carry(&came[1..])?;
            if self
                .signals
                .arrived()
                .iter()
                .any(|signal| ![SIGTSTP, SIGCONT, SIGWINCH, SIGCHLD, SIGURG].contains(&signal.number))
            {
                break;
            }
        }
        Ok(())
    }

    /// After the program has ended: writes the remaining output, until a signal arrives that would have killed forkless.
    fn finish(&mut self, mut terminal: Terminal) -> io::Result<()> {
        terminal.program_has_ended()?;
        while !terminal.is_done() {
            let mut files = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
            terminal.wants(&mut files);
            let came = sleep(files, None)?;
            terminal.carry(&came[1..])?;
            for signal in self.signals.arrived() {
                match signal.number {
                    SIGTSTP => {
                        terminal.restore_modes();
                        self.signals.stop(SIGTSTP, false);
                        terminal.continued()?;
                    }
                    SIGCONT | SIGWINCH | SIGCHLD | SIGURG => {}
                    _ => return Ok(()),
                }
            }
        }
        let failed = |error| io::Error::other(format!("cannot write the program's output: {error}"));
        terminal.failure().map_or(Ok(()), |error| Err(failed(error)))
    }
}

impl Clock {
    /// Signals the program if the time is up.
    fn strike(&mut self, to: Recipient, child: &mut Child, signals_descendants: bool) {
        if self.deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        let signal = if self.sent.is_none() { self.patience.signal } else { SIGKILL };
        if let Err(error) = to.send(child, signal, None) {
            say(format_args!("cannot signal the program, which has timed out: {error}"));
        }
        if signals_descendants {
            descendants::signal_others(child.id(), signal);
        }
        if signal != SIGKILL {
            // A stopped program does not act on a signal other than KILL until it is continued.
            let _ = to.send(child, SIGCONT, None);
            if signals_descendants {
                descendants::signal_others(child.id(), SIGCONT);
            }
        }
        let more = if self.sent.is_none() { self.patience.kill_after } else { None };
        self.deadline = more.and_then(|time| Instant::now().checked_add(time));
        self.sent = Some(signal);
    }
}

/// The latest change of the program.
enum News {
    Stopped(i32),
    Continued,
}

/// What has changed since the last look.
fn news(child: &mut Child) -> io::Result<Option<News>> {
    let mut news = None;
    loop {
        match child.wait_change(Some(Duration::ZERO))? {
            Some(Change::Stopped(signal)) => news = Some(News::Stopped(signal)),
            Some(Change::Continued) => news = Some(News::Continued),
            // The next wait returns the end.
            _ => return Ok(news),
        }
    }
}

/// Is the signal pending for the process? False without a procfs.
fn is_pending(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & bit(signal) != 0)
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
