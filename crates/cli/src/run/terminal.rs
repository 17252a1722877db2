//! The program on a terminal of its own (`--pty`): what passes between that and us.
//!
//! Nothing here waits: [`Watch`](super::wait::Watch) sleeps for all that there is to wait for, so that signals and the
//! time-out hold whatever the program, or the reader of our output, does not do.

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
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    io::Errno,
    process::getpgrp,
    stdio,
    termios::{isatty, tcgetpgrp},
};
use signal_hook::{consts::SIGTSTP, low_level::emulate_default_handler};

/// How long to sleep between two looks at what nobody tells us: that input has been taken, that we are in the foreground.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// More than can be under way in a terminal.
const UNDER_WAY: usize = 64 * 1024;

/// What a pipe takes without waiting, once it takes anything: PIPE_BUF.
const AT_ONCE: usize = 4096;

/// Ctrl-D.
const END_KEY: u8 = 4;

/// The size that the terminal is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// That of the terminal that we are on, whatever becomes of it.
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
        None => Err("must be like 24x80: rows, then columns".to_owned()),
    }
}

/// The program's terminal.
pub(crate) struct Terminal {
    /// None: it has been hung up.
    pty: Option<Pty>,
    /// The other side, as long as the program runs: it may close the terminal and open it again, which is no end.
    follower: Option<OwnedFd>,
    size: Size,
    input: Input,
    raw: Option<RawMode<Stdin>>,
    /// On its way to the program.
    typed: VecDeque<u8>,
    /// On its way to our output.
    shown: VecDeque<u8>,
    output: Output,
    failed: Option<io::Error>,
}

/// What our standard input is to the program.
#[derive(Clone, Copy)]
enum Input {
    /// Not read: the program itself has it, or nobody has a use for it any more.
    Unread,
    /// Our terminal: read, in raw mode, while we are in its foreground.
    Keys { raw: bool },
    /// Something with an end; what was last read of it.
    Bytes { last: u8 },
    /// That end: when to look whether the program has taken note of it; whether it has been typed as a key.
    Ended { look: Instant, typed: bool },
}

impl Terminal {
    /// Opens it. `reads`: what comes to our standard input is for this terminal.
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
            // What nobody types nobody wants to see.
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

    /// The terminal to put the program on.
    pub(crate) fn pty(&self) -> Option<&Pty> {
        self.pty.as_ref()
    }

    /// Gives it the size of ours.
    pub(crate) fn fit(&self) -> io::Result<()> {
        match (&self.pty, self.size, wanted(self.size)) {
            (Some(pty), Size::Ours, Some(size)) => pty.resize(size),
            _ => Ok(()),
        }
    }

    /// Stops us, as Ctrl-Z stops other programs, with our terminal as it was; the program goes on until its own is full.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.raw = None;
        emulate_default_handler(SIGTSTP)?;
        self.continued()
    }

    /// After a stop our terminal's modes are somebody else's, and its size may be another one.
    pub(crate) fn continued(&mut self) -> io::Result<()> {
        if let Input::Keys { raw } = &mut self.input {
            *raw = false;
        }
        self.fit()
    }

    /// Does what is due; says when something will be due again.
    pub(crate) fn look(&mut self) -> io::Result<Option<Duration>> {
        match self.input {
            Input::Keys { raw } => {
                // Begun in the background, or sent there: the terminal and its modes are those of whoever is in front.
                let is_ours = is_in_foreground();
                match if is_ours && !raw { self.take_keys() } else { Ok(()) } {
                    Ok(()) => self.input = Input::Keys { raw: is_ours },
                    // It has been hung up, and SIGHUP comes with SIGCONT.
                    Err(error) if error.raw_os_error() == Some(libc::EIO) => self.hang_up(),
                    Err(error) => return Err(error),
                }
                Ok((!is_ours).then_some(LOOK_EVERY))
            }
            Input::Ended { .. } => self.say_the_end_again().map(Some),
            Input::Bytes { .. } | Input::Unread => Ok(None),
        }
    }

    fn take_keys(&mut self) -> io::Result<()> {
        match &self.raw {
            Some(raw) => raw.resume(),
            None => RawMode::enter(io::stdin()).map(|raw| self.raw = Some(raw)),
        }
    }

    /// Input that has ended stays so for everyone who asks, but a terminal says it to one read only, and to none if the
    /// program throws away what was typed before.
    fn say_the_end_again(&mut self) -> io::Result<Duration> {
        let (Input::Ended { look, typed }, Some(pty), Some(follower)) = (&mut self.input, &self.pty, &self.follower)
        else {
            return Ok(LOOK_EVERY);
        };
        let left = look.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Ok(left);
        }
        if !is_readable(follower)? {
            match pty.send_eof() {
                // In raw mode there is no end, only a key; pressed again and again it would be input for ever.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    if !mem::replace(typed, true) {
                        let _ = { pty }.write(&[END_KEY]);
                    }
                }
                // There is no room, or the program has gone.
                Err(_) | Ok(()) => {}
            }
        }
        *look = Instant::now() + LOOK_EVERY;
        Ok(LOOK_EVERY)
    }

    fn wants_pty(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.pty.is_some() && self.shown.len() < UNDER_WAY);
        flags.set(PollFlags::OUT, self.pty.is_some() && !self.typed.is_empty());
        flags
    }

    fn wants_input(&self) -> bool {
        let reads = matches!(self.input, Input::Keys { raw: true } | Input::Bytes { .. });
        reads && self.pty.is_some() && self.typed.is_empty()
    }

    /// Adds the files that it waits for; [`carry`](Self::carry) is told what has come of them.
    pub(crate) fn wants<'a>(&'a self, files: &mut Vec<PollFd<'a>>) {
        if let Some(pty) = self.pty.as_ref().filter(|_| !self.wants_pty().is_empty()) {
            files.push(PollFd::new(pty, self.wants_pty()));
        }
        if self.wants_input() {
            files.push(PollFd::from_borrowed_fd(stdio::stdin(), PollFlags::IN));
        }
        if !self.shown.is_empty() {
            files.push(PollFd::from_borrowed_fd(self.output.as_fd(), PollFlags::OUT));
        }
    }

    /// Moves what there is, as far as there is room.
    pub(crate) fn carry(&mut self, came: &[PollFlags]) -> io::Result<()> {
        let mut came = came.iter().copied();
        let mut next = |wanted: bool| if wanted { came.next() } else { None }.unwrap_or(PollFlags::empty());
        let pty = next(!self.wants_pty().is_empty());
        let [input, output] = [next(self.wants_input()), next(!self.shown.is_empty())];
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
                // In the midst of a line the first one ends the line. What goes wrong here is seen at the next look.
                for _ in 0..if last == b'\n' { 1 } else { 2 } {
                    let _ = pty.send_eof();
                }
                self.input = Input::Ended { look: Instant::now() + LOOK_EVERY, typed: false };
            }
            // Our terminal has gone.
            _ => self.hang_up(),
        }
    }

    fn type_on(&mut self) {
        let Some(pty) = self.pty.as_mut().filter(|_| !self.typed.is_empty()) else { return };
        match pty.write(self.typed.as_slices().0) {
            Ok(count) => drop(self.typed.drain(..count)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // Nobody is there to read it.
            Err(_) => self.typed.clear(),
        }
    }

    /// Gives how much there was.
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
                // Whoever read it has had enough, and so has the program: SIGHUP, where without a terminal it gets SIGPIPE.
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

    /// Takes what the program has left behind in it. Its processes in the background lose it: SIGHUP.
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

    /// Has everything been written that was there to be?
    pub(crate) fn is_done(&self) -> bool {
        self.pty.is_none() && self.shown.is_empty()
    }

    /// Why not everything that it showed could be written.
    pub(crate) fn failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }
}

/// Our standard output, not waited for.
struct Output {
    /// A terminal takes what it likes of a large write, and waits for the rest: so it is opened anew, since others who
    /// have ours may not expect it to be non-blocking. None: it is no terminal, or not ours to open.
    own: Option<OwnedFd>,
}

const OURS_ANEW: &str = "/proc/self/fd/1";

impl Output {
    fn new() -> Self {
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // To open a master anew would make another terminal.
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

/// The size to give: none where ours is to be taken and not known.
fn wanted(size: Size) -> Option<PtySize> {
    let ours = [stdio::stdin(), stdio::stdout(), stdio::stderr()].into_iter().filter_map(|fd| PtySize::of(fd).ok());
    match size {
        Size::Fixed(size) => Some(size),
        // A terminal that nobody has told its size has none.
        Size::Ours => ours.into_iter().find(|size| size.rows > 0 && size.columns > 0),
    }
}

/// Are we in the foreground of the terminal that is our standard input? One that does not control us has none.
fn is_in_foreground() -> bool {
    tcgetpgrp(stdio::stdin()).map_or(true, |group| group == getpgrp())
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
    fn sizes_are_rows_and_columns() {
        assert_eq!(size("24x80"), Ok(Size::Fixed(PtySize::new(24, 80))));
        assert_eq!(size("ours"), Ok(Size::Ours));
        for word in ["", "24", "24x", "x80", "0x80", "24x0", "24x80x1", "-1x80", "+1x80", "65536x1", "24 x 80"] {
            assert!(size(word).is_err(), "{word}");
        }
    }
}
