//! Job control: the foreground of the terminal for a program with a process group of its own, and stopping with the
//! program so that the shell sees a stopped job.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use forkless_core::sys::{self, signal::bit};
use nix::{
    sys::{
        signal::{SigEvent, SigevNotify, Signal},
        timer::{Expiration, Timer, TimerSetTimeFlags},
    },
    time::ClockId,
};
use rustix::{
    fs::{Mode, OFlags},
    process::Pid,
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The controlling terminal, whose foreground forkless lends to the program's process group.
///
/// Dropping this value takes the foreground back.
#[derive(Debug)]
pub(crate) struct Foreground {
    /// None: forkless has no controlling terminal.
    terminal: Option<OwnedFd>,
    /// The program's group; none before the launch.
    program: Option<Pid>,
    /// The program is to have the terminal whenever forkless has it.
    wanted: bool,
    lent: bool,
}

impl Foreground {
    /// To be made before the launch. `wanted`: the program starts in the foreground if forkless is there.
    pub(crate) fn new(wanted: bool) -> Self {
        let terminal = controlling_terminal();
        let lent = wanted && terminal.as_ref().and_then(foreground).is_some_and(|group| Some(group) == own_group());
        Self { terminal, program: None, wanted, lent }
    }

    /// The program's process group, after the launch.
    pub(crate) fn launched(&mut self, group: u32) {
        self.program = i32::try_from(group).ok().and_then(Pid::from_raw);
    }

    /// Lends the terminal to the program's group. False if it is not forkless's to lend.
    pub(crate) fn lend(&mut self) -> bool {
        let (Some(terminal), Some(program)) = (&self.terminal, self.program) else { return false };
        let group = foreground(terminal);
        let is_there = group == Some(program);
        if is_there || group.is_some() && group == own_group() && set_foreground(terminal, program) {
            (self.wanted, self.lent) = (true, true);
            return true;
        }
        false
    }

    /// After forkless was continued: lends the terminal again if the shell has put forkless in the foreground.
    pub(crate) fn continued(&mut self) {
        let group = self.terminal.as_ref().and_then(foreground);
        if group.is_some() && group != own_group() && group != self.program {
            // Another job has it: it is no longer forkless's to give back.
            self.lent = false;
        } else if self.wanted {
            self.lend();
        }
    }

    /// Takes the terminal back. False if the program's group did not have it.
    pub(crate) fn take_back(&mut self) -> bool {
        let Some(terminal) = self.terminal.as_ref().filter(|_| self.lent) else { return false };
        self.lent = false;
        // The program may have given it to another group of its own, as shells do.
        let (group, own) = (foreground(terminal), own_group());
        group.is_some() && group != own && own.is_some_and(|own| set_foreground(terminal, own))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Is forkless in the background of its controlling terminal?
pub(crate) fn is_in_background() -> bool {
    controlling_terminal().as_ref().and_then(foreground).is_some_and(|group| Some(group) != own_group())
}

pub(crate) fn has_terminal() -> bool {
    controlling_terminal().is_some()
}

fn controlling_terminal() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()
}

/// The process group of forkless; none if its leader is outside of this PID namespace. Such a group cannot be given the
/// terminal again, because it has no number here.
fn own_group() -> Option<Pid> {
    Pid::from_raw(sys::getpgrp())
}

/// The group in the foreground; none if the terminal has been hung up, or if the group's leader is outside of this PID
/// namespace.
fn foreground(terminal: &OwnedFd) -> Option<Pid> {
    tcgetpgrp(terminal).ok()
}

/// `tcsetpgrp(3)`, also from the background, where SIGTTOU would stop forkless.
fn set_foreground(terminal: &OwnedFd, group: Pid) -> bool {
    let mask = sys::signal_mask();
    let _ = sys::block_signals(bit(libc::SIGTTOU));
    let done = tcsetpgrp(terminal, group).is_ok();
    let _ = mask.map(sys::set_signal_mask);
    done
}

/// Continues forkless at the deadline even if it is stopped, so that the timeout also ends a stopped job. Until dropped.
pub(crate) fn wake_at(deadline: Option<Instant>) -> Option<Timer> {
    let left = deadline?.saturating_duration_since(Instant::now());
    let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGCONT, si_value: 0 });
    let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, event).ok()?;
    // Zero would disarm the timer. It repeats, because a SIGCONT that arrives before forkless has stopped has no effect.
    let (left, later) = (left.max(Duration::from_nanos(1)), Duration::from_millis(100));
    timer.set(Expiration::IntervalDelayed(left.into(), later.into()), TimerSetTimeFlags::empty()).ok()?;
    Some(timer)
}
