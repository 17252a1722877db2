//! `--pty`: relays between the pseudo-terminal of the program and the standard streams of forkless.
//!
//! Nothing here blocks. [`Watch`](super::wait::Watch) polls all files together with signals and the timeout, so that these
//! work even if the program or the reader of the output does nothing.

use std::{
    collections::VecDeque,
    fs,
    io::{self, ErrorKind, Read, Stdin, Write},
    mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use forkless::{Pty, PtySize, RawMode};
use forkless_core::sys;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    io::Errno,
    stdio,
    termios::{isatty, tcgetpgrp},
};

/// Polling interval for state without an event: that input was read, and that forkless is in the foreground.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Limit of buffered output: more than a terminal holds.
const UNDER_WAY: usize = 64 * 1024;

/// PIPE_BUF: what a pipe that is ready for writing takes without blocking.
const AT_ONCE: usize = 4096;

/// Ctrl-D, which ends input.
const END_KEY: u8 = 4;

/// The size of the new terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// That of the terminal of forkless, also when it is resized.
    Ours,
    Fixed(PtySize),
}

/// `--pty` without a size.
pub(crate) const OURS: &str = "ours";

/// The value of `--pty`.
pub(crate) fn size(word: &str) -> Result<Size, String> {
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0 && !text.starts_with('+'));
    match word.split_once('x').and_then(|(rows, columns)| Some((number(rows)?, number(columns)?))) {
        Some((rows, columns)) => Ok(Size::Fixed(PtySize::new(rows, columns))),
        None if word == OURS => Ok(Size::Ours),
        None => Err("must be ROWSxCOLUMNS, such as 24x80".to_owned()),
    }
}

/// The pseudo-terminal of the program.
pub(crate) struct Terminal {
    /// None: hung up.
    pty: Option<Pty>,
    /// The follower side, open while the program runs. Without it, a program that closes the terminal and opens it again
    /// would look like a hangup.
    follower: Option<OwnedFd>,
    size: Size,
    input: Input,
    raw: Option<RawMode<Stdin>>,
    /// Input not yet written to the program.
    typed: VecDeque<u8>,
    /// Output not yet written to standard output.
    shown: VecDeque<u8>,
    output: Output,
    failed: Option<io::Error>,
}

/// How standard input is relayed to the program.
#[derive(Clone, Copy)]
enum Input {
    /// Not read: the program reads it directly, or nothing reads it any more.
    Unread,
    /// A terminal: read in raw mode while forkless is in its foreground.
    Keys { raw: bool },
    /// A file or a pipe; the last byte read.
    Bytes { last: u8 },
    /// The end of a file or a pipe: when to check whether the program has read it, and whether it was sent as a key.
    Ended { look: Instant, typed: bool },
}

impl Terminal {
    /// Opens a pseudo-terminal. `reads`: relay standard input to it.
    pub(crate) fn open(size: Size, reads: bool) -> io::Result<Self> {
        let pty = Pty::open(wanted(size).unwrap_or_default())?;
        let input = match reads {
            false => Input::Unread,
            true if isatty(stdio::stdin()) => Input::Keys { raw: false },
            true => Input::Bytes { last: b'\n' },
        };
        if matches!(input, Input::Keys { .. }) {
            pty.copy_modes(io::stdin())?;
        } else {
            // Input from a file or a pipe must not be echoed into the output.
            pty.echo(false)?;
        }
        pty.set_nonblocking(true)?;
        Ok(Self {
            follower: Some(pty.follower()?),
            pty: Some(pty),
            size,
            input,
            raw: None,
            typed: VecDeque::new(),
            shown: VecDeque::new(),
            output: Output::new(),
            failed: None,
        })
    }

    /// The pseudo-terminal for the program.
    pub(crate) fn pty(&self) -> Option<&Pty> {
        self.pty.as_ref()
    }

    /// Copies the size of the terminal of forkless.
    pub(crate) fn fit(&self) -> io::Result<()> {
        match (&self.pty, self.size, wanted(self.size)) {
            (Some(pty), Size::Ours, Some(size)) => pty.resize(size),
            _ => Ok(()),
        }
    }

    /// Restores the modes of the terminal of forkless, for its shell. To be called before forkless stops.
    pub(crate) fn restore_modes(&mut self) {
        self.raw = None;
    }

    /// To be called after a stop: the shell has changed the modes of the terminal, and the size may have changed.
    pub(crate) fn continued(&mut self) -> io::Result<()> {
        if let Input::Keys { raw } = &mut self.input {
            *raw = false;
        }
        self.fit()
    }

    /// Does what is due and returns how long to sleep until the next time.
    pub(crate) fn do_what_is_due(&mut self) -> io::Result<Option<Duration>> {
        match self.input {
            Input::Keys { raw } => {
                // In the background, the terminal and its modes belong to the foreground job.
                let is_ours = is_in_foreground();
                match if is_ours && !raw { self.take_keys() } else { Ok(()) } {
                    Ok(()) => self.input = Input::Keys { raw: is_ours },
                    // The terminal has been hung up; SIGHUP arrives with SIGCONT.
                    Err(error) if error.raw_os_error() == Some(libc::EIO) => self.hang_up(),
                    Err(error) => return Err(error),
                }
                Ok((!is_ours).then_some(POLL_INTERVAL))
            }
            Input::Ended { .. } => self.repeat_eof().map(Some),
            Input::Bytes { .. } | Input::Unread => Ok(None),
        }
    }

    fn take_keys(&mut self) -> io::Result<()> {
        match &self.raw {
            Some(raw) => raw.resume(),
            None => RawMode::enter(io::stdin()).map(|raw| self.raw = Some(raw)),
        }
    }

    /// Sends the end of input again. At the end of a file every read returns 0, but a terminal reports it to one read only,
    /// and to none if the program flushes its input.
    fn repeat_eof(&mut self) -> io::Result<Duration> {
        let (Input::Ended { look, typed }, Some(pty), Some(follower)) = (&mut self.input, &self.pty, &self.follower)
        else {
            return Ok(POLL_INTERVAL);
        };
        let left = look.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Ok(left);
        }
        if !is_readable(follower)? {
            match pty.send_eof() {
                // In raw mode Ctrl-D is an ordinary key. It is sent once: repeated, it would be endless input.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    if !mem::replace(typed, true) {
                        let _ = { pty }.write(&[END_KEY]);
                    }
                }
                // The terminal is full, or the program has ended.
                Err(_) | Ok(()) => {}
            }
        }
        *look = Instant::now() + POLL_INTERVAL;
        Ok(POLL_INTERVAL)
    }

    fn wants_pty(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.pty.is_some() && self.shown.len() < UNDER_WAY);
        flags.set(PollFlags::OUT, self.pty.is_some() && !self.typed.is_empty());
        flags
    }

    fn is_reading(&self) -> bool {
        let reads = matches!(self.input, Input::Keys { raw: true } | Input::Bytes { .. });
        reads && self.pty.is_some() && self.typed.is_empty()
    }

    /// Adds the files to poll; [`carry`](Self::carry) takes the resulting events.
    pub(crate) fn wants<'a>(&'a self, files: &mut Vec<PollFd<'a>>) {
        if let Some(pty) = self.pty.as_ref().filter(|_| !self.wants_pty().is_empty()) {
            files.push(PollFd::new(pty, self.wants_pty()));
        }
        if self.is_reading() {
            files.push(PollFd::from_borrowed_fd(stdio::stdin(), PollFlags::IN));
        }
        if !self.shown.is_empty() {
            files.push(PollFd::from_borrowed_fd(self.output.as_fd(), PollFlags::OUT));
        }
    }

    /// Relays what can be read and written without blocking.
    pub(crate) fn carry(&mut self, came: &[PollFlags]) -> io::Result<()> {
        let mut came = came.iter().copied();
        let mut next = |wanted: bool| if wanted { came.next() } else { None }.unwrap_or(PollFlags::empty());
        let pty = next(!self.wants_pty().is_empty());
        let [input, output] = [next(self.is_reading()), next(!self.shown.is_empty())];
        if !input.is_empty() {
            self.read_input();
        }
        if pty.contains(PollFlags::OUT) || !input.is_empty() {
            self.type_on();
        }
        if !pty.difference(PollFlags::OUT).is_empty() {
            self.read_pty()?;
        }
        if !output.is_empty() {
            self.write_output();
        }
        Ok(())
    }

    fn read_input(&mut self) {
        let mut buffer = [0; AT_ONCE];
        match rustix::io::read(stdio::stdin(), &mut buffer) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) | Err(_) => self.input_has_ended(),
            Ok(count) => {
                self.typed.extend(&buffer[..count]);
                if let Input::Bytes { last } = &mut self.input {
                    *last = buffer[count - 1];
                }
            }
        }
    }

    fn input_has_ended(&mut self) {
        match (self.input, &self.pty) {
            (Input::Bytes { last }, Some(pty)) => {
                // In the middle of a line, the first Ctrl-D only ends the line. `repeat_eof` handles errors.
                for _ in 0..if last == b'\n' { 1 } else { 2 } {
                    let _ = pty.send_eof();
                }
                self.input = Input::Ended { look: Instant::now() + POLL_INTERVAL, typed: false };
            }
            // The terminal of forkless is gone.
            _ => self.hang_up(),
        }
    }

    fn type_on(&mut self) {
        let Some(pty) = self.pty.as_mut().filter(|_| !self.typed.is_empty()) else { return };
        match pty.write(self.typed.as_slices().0) {
            Ok(count) => drop(self.typed.drain(..count)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // The program has ended: nothing reads the input.
            Err(_) => self.typed.clear(),
        }
    }

    /// Reads once without blocking; returns the number of bytes.
    fn read_pty(&mut self) -> io::Result<usize> {
        let Some(pty) = &mut self.pty else { return Ok(0) };
        let mut buffer = [0; 4 * AT_ONCE];
        match pty.read(&mut buffer) {
            Ok(count) => {
                self.shown.extend(&buffer[..count]);
                Ok(count)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn write_output(&mut self) {
        match self.output.write(self.shown.as_slices().0) {
            Ok(count) => drop(self.shown.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                // The reader has closed the output. The program gets SIGHUP, as it would get SIGPIPE without a terminal.
                if errno != Errno::PIPE {
                    self.failed = Some(errno.into());
                }
                self.shown.clear();
                self.hang_up();
            }
        }
    }

    fn hang_up(&mut self) {
        (self.pty, self.follower, self.raw) = (None, None, None);
        self.typed.clear();
        self.input = Input::Unread;
    }

    /// Reads the remaining output after the program has ended. Its background processes then get SIGHUP.
    pub(crate) fn program_has_ended(&mut self) -> io::Result<()> {
        self.follower = None;
        self.input = Input::Unread;
        let mut late = 0;
        while late < UNDER_WAY {
            match self.read_pty()? {
                0 => break,
                count => late += count,
            }
        }
        self.pty = None;
        Ok(())
    }

    /// Has all output been written?
    pub(crate) fn is_done(&self) -> bool {
        self.pty.is_none() && self.shown.is_empty()
    }

    /// Why some output could not be written.
    pub(crate) fn failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }
}

/// Standard output, written without blocking.
struct Output {
    /// A large write to a terminal blocks until all of it is taken, so a terminal is opened again as non-blocking. Setting
    /// O_NONBLOCK on standard output would change it for all processes that share it. None: not a terminal, or it cannot
    /// be opened.
    own: Option<OwnedFd>,
}

const OURS_ANEW: &str = "/proc/self/fd/1";

impl Output {
    fn new() -> Self {
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Opening /dev/ptmx again would create another terminal.
        let is_master = |path: &PathBuf| path.ends_with("ptmx");
        let path = fs::read_link(OURS_ANEW).ok().filter(|path| isatty(stdio::stdout()) && !is_master(path));
        Self { own: path.and_then(|_| rustix::fs::open(OURS_ANEW, flags, Mode::empty()).ok()) }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let most = if self.own.is_some() { bytes.len() } else { bytes.len().min(AT_ONCE) };
        rustix::io::write(self, &bytes[..most])
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_ref().map_or_else(|| stdio::stdout(), AsFd::as_fd)
    }
}

/// The size to set; none if the size of the current terminal is unknown.
fn wanted(size: Size) -> Option<PtySize> {
    let ours = [stdio::stdin(), stdio::stdout(), stdio::stderr()].into_iter().filter_map(|fd| PtySize::of(fd).ok());
    match size {
        Size::Fixed(size) => Some(size),
        // A terminal whose size was never set reports 0x0.
        Size::Ours => ours.into_iter().find(|size| size.rows > 0 && size.columns > 0),
    }
}

/// Is forkless in the foreground of the terminal on standard input? A terminal other than the controlling one has no
/// foreground group.
fn is_in_foreground() -> bool {
    tcgetpgrp(stdio::stdin()).map_or(true, |group| group.as_raw_nonzero().get() == sys::getpgrp())
}

fn is_readable(file: &OwnedFd) -> io::Result<bool> {
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&Timespec::default())) {
        Err(Errno::INTR) => Ok(true),
        answer => Ok(answer? > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pty_size_is_rows_then_columns() {
        assert_eq!(size("24x80"), Ok(Size::Fixed(PtySize::new(24, 80))));
        assert_eq!(size("ours"), Ok(Size::Ours));
        for word in ["", "24", "24x", "x80", "0x80", "24x0", "24x80x1", "-1x80", "+1x80", "65536x1", "24 x 80"] {
            assert!(size(word).is_err(), "{word}");
        }
    }
}
