//! Raw mode of the caller's own terminal.

use forkless_core::sys;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io;
use std::os::fd::AsFd;

use crate::kernel;

/// The caller's own terminal in raw mode, as `ssh` uses it: each typed byte is read at once and has no special meaning,
/// not even Ctrl-C. Dropping the value, also in a panic, restores the modes.
///
/// It cannot restore them on `exit`, `abort`, a panic that aborts, and signals that end or stop the process. Handle
/// those signals: [`suspend`](Self::suspend) before a stop, [`resume`](Self::resume) after it.
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
    /// Puts the terminal in raw mode. In a background process this stops the process (SIGTTOU) until it is in the
    /// foreground, like any change of the modes.
    ///
    /// ```no_run
    /// let raw = forkless::RawMode::enter(std::io::stdin())?;
    /// // Every key is read at once.
    /// drop(raw); // the modes are restored
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOTTY if it is no terminal.
    pub fn enter(terminal: F) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let raw = Self { terminal, before };
        raw.resume()?;
        Ok(raw)
    }

    /// Puts the terminal in raw mode again: after [`suspend`](Self::suspend), or after a stop, when a shell may have
    /// set its own modes.
    ///
    /// ```no_run
    /// let raw = forkless::RawMode::enter(std::io::stdin())?;
    /// raw.suspend()?;
    /// println!("a line of ordinary output");
    /// raw.resume()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`enter`](Self::enter).
    pub fn resume(&self) -> io::Result<()> {
        let mut modes = self.before.clone();
        modes.make_raw();
        // Not TCSADRAIN: output may never drain, and the modes do not change what has been written.
        Ok(tcsetattr(&self.terminal, OptionalActions::Now, &modes)?)
    }

    /// Restores the modes from before [`enter`](Self::enter). Does nothing in the background, where the modes belong to
    /// the job in the foreground.
    ///
    /// ```no_run
    /// let raw = forkless::RawMode::enter(std::io::stdin())?;
    /// // In the handler of SIGTSTP, before the process stops itself:
    /// raw.suspend()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EIO if the terminal has been hung up.
    pub fn suspend(&self) -> io::Result<()> {
        if self.is_in_background() {
            return Ok(());
        }
        Ok(tcsetattr(&self.terminal, OptionalActions::Now, &self.before)?)
    }

    fn is_in_background(&self) -> bool {
        let is_ours = kernel::terminal_session(self.terminal.as_fd()) == Ok(sys::getsid());
        is_ours && tcgetpgrp(&self.terminal).is_ok_and(|group| group.as_raw_nonzero().get() != sys::getpgrp())
    }
}

impl<F: AsFd> Drop for RawMode<F> {
    fn drop(&mut self) {
        // A terminal that was hung up has no modes to restore.
        let _ = self.suspend();
    }
}
