//! The caller's own terminal in raw mode, for as long as somebody else's bytes pass through it.

use rustix::process::{getpgrp, getsid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetsid, tcsetattr};
use std::io;
use std::os::fd::AsFd;

/// The caller's own terminal in raw mode, as `ssh` has it: each byte that is typed is read at once and means nothing, not
/// even Ctrl-C. When this is dropped, by a panic as well, the modes are again what they were.
///
/// What no guard can see is left to the caller: `exit`, `abort`, a panic that aborts, and signals that end or stop the
/// process. Handle those ([`suspend`](Self::suspend) before a stop, [`resume`](Self::resume) after it).
///
/// ```no_run
/// use forkless::{Command, Pty, PtySize, RawMode};
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// let pty = Pty::open(PtySize::of(std::io::stdin())?)?;
/// pty.copy_modes(std::io::stdin())?;
/// let mut child = Command::new("vi").pty(&pty).spawn()?;
/// let raw = RawMode::enter(std::io::stdin())?;
/// let keys = pty.clone();
/// std::thread::spawn(move || std::io::copy(&mut std::io::stdin(), &mut &keys));
/// let status = pty.read_until_exit(&mut child, Duration::ZERO, &mut std::io::stdout())?;
/// drop(raw);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct RawMode<F: AsFd> {
    terminal: F,
    before: Termios,
}

impl<F: AsFd> RawMode<F> {
    /// Puts the terminal in raw mode. As for any change of its modes, a process in the background is stopped (SIGTTOU)
    /// until it is brought to the foreground.
    ///
    /// # Errors
    /// ENOTTY where it is no terminal.
    pub fn enter(terminal: F) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let raw = Self { terminal, before };
        raw.resume()?;
        Ok(raw)
    }

    /// Puts it in raw mode again: after [`suspend`](Self::suspend), or after a stop, when a shell may have set its own modes.
    ///
    /// # Errors
    /// As for [`enter`](Self::enter).
    pub fn resume(&self) -> io::Result<()> {
        let mut modes = self.before.clone();
        modes.make_raw();
        // Not when all output has gone: that may never be, and modes do not change what has been written.
        Ok(tcsetattr(&self.terminal, OptionalActions::Now, &modes)?)
    }

    /// Puts the modes back as they were before [`enter`](Self::enter). Does nothing in the background, where the terminal
    /// is another's, and its modes too.
    ///
    /// # Errors
    /// EIO where the terminal has been hung up.
    pub fn suspend(&self) -> io::Result<()> {
        if self.is_in_background() {
            return Ok(());
        }
        Ok(tcsetattr(&self.terminal, OptionalActions::Now, &self.before)?)
    }

    fn is_in_background(&self) -> bool {
        let is_ours = tcgetsid(&self.terminal).is_ok_and(|session| getsid(None) == Ok(session));
        is_ours && tcgetpgrp(&self.terminal).is_ok_and(|group| group != getpgrp())
    }
}

impl<F: AsFd> Drop for RawMode<F> {
    fn drop(&mut self) {
        // A terminal that has gone has no modes.
        let _ = self.suspend();
    }
}
