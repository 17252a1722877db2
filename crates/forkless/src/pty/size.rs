//! The size of a terminal.

use rustix::termios::{Winsize, tcgetwinsize};
use std::io;
use std::os::fd::AsFd;

/// The size of a terminal in characters, and optionally in pixels: `ioctl_tty(2)` TIOCGWINSZ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PtySize {
    /// Lines.
    pub rows: u16,
    /// Characters per line.
    pub columns: u16,
    /// The width of the terminal in pixels; 0: not known.
    pub x_pixels: u16,
    /// The height of the terminal in pixels; 0: not known.
    pub y_pixels: u16,
}

impl PtySize {
    /// A size in characters, without pixels.
    ///
    /// ```
    /// let size = forkless::PtySize::new(24, 80);
    /// assert_eq!((size.rows, size.columns), (24, 80));
    /// ```
    pub const fn new(rows: u16, columns: u16) -> Self {
        Self { rows, columns, x_pixels: 0, y_pixels: 0 }
    }

    /// The size of an open terminal, such as the caller's own.
    ///
    /// ```
    /// use forkless::PtySize;
    /// let size = PtySize::of(std::io::stdin()).unwrap_or_default(); // 24 lines of 80 where it is no terminal
    /// let pty = forkless::Pty::open(size)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOTTY if it is no terminal.
    pub fn of<F: AsFd>(terminal: F) -> io::Result<Self> {
        Ok(tcgetwinsize(terminal)?.into())
    }
}

impl Default for PtySize {
    /// 24 lines of 80 characters.
    fn default() -> Self {
        Self::new(24, 80)
    }
}

impl From<Winsize> for PtySize {
    fn from(size: Winsize) -> Self {
        Self { rows: size.ws_row, columns: size.ws_col, x_pixels: size.ws_xpixel, y_pixels: size.ws_ypixel }
    }
}

impl From<PtySize> for Winsize {
    fn from(size: PtySize) -> Self {
        Self { ws_row: size.rows, ws_col: size.columns, ws_xpixel: size.x_pixels, ws_ypixel: size.y_pixels }
    }
}
