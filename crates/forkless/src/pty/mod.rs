//! Pseudo-terminals: a child on a terminal that this process reads and writes.
//!
//! The two sides are called the master, which [`Pty`] holds, and the follower, which a program uses as its terminal.
//! Like a pipe, the follower is opened for each run, and closed when the child has it: the end of what programs write
//! is visible only while nobody else has the follower open.
//!
//! Linux answers nearly all queries about the follower (size, modes, foreground group) on the master too:
//! `tty_jobctrl_ioctl()` and `tty_mode_ioctl()` in drivers/tty take the other side of a master.

use crate::error::reworded;
use crate::launch::pipes::open_follower;
use crate::request::command::Command;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::pty::{ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

mod finish;
mod raw_mode;
mod size;

pub use raw_mode::RawMode;
pub use size::PtySize;

/// A pseudo-terminal (pty): its master side. [`Command::pty`] puts a program on the other side.
///
/// Reading it returns what the program writes. What is written to it is typed to the program, Ctrl-C included:
///
/// ```
/// use forkless::{Command, Pty, PtySize};
/// use std::io::{Read, Write};
/// let mut pty = Pty::open(PtySize::new(24, 80))?;
/// pty.echo(false)?;
/// let mut child = Command::new("sh").args(["-c", "read name; echo hello $name; stty size"]).pty(&pty).spawn()?;
/// pty.write_all(b"world\n")?;
/// let mut text = String::new();
/// pty.read_to_string(&mut text)?;
/// assert_eq!(text, "hello world\r\n24 80\r\n");
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Reading
/// A read blocks until there is output, also before any program has the terminal open. It returns 0 bytes, the end,
/// when the last program that had it open has closed it and every byte has been read. (There Linux returns EIO, and may
/// do so a moment too early: `n_tty_read()` looks for data first and for other openers after that. `Read` looks again.)
/// A program that is put on the terminal later starts the stream again. A background process that keeps the terminal
/// open delays the end: [`read_until_exit`](Self::read_until_exit) does not wait for it.
///
/// # Writing
/// A write blocks while the program does not read and 4 to 12 KiB are buffered. While no program has the terminal open,
/// the bytes wait for one, or the write fails with EIO, depending on the kernel. A new terminal passes whole lines of
/// at most 4,095 bytes (the rest of a longer line is discarded), echoes what is typed ([`echo`](Self::echo)), and turns
/// Ctrl-C and similar keys into signals. [`make_raw`](Self::make_raw) turns all of that off. `termios(3)`
///
/// # Sharing
/// Reading, writing and all other functions need only `&Pty`, and clones are the same terminal: one thread may read
/// while another writes. Dropping the last clone hangs the terminal up: the session leader and the foreground group get
/// SIGHUP, and other programs that still have it open read the end and cannot write. `pty(7)`
#[derive(Debug, Clone)]
pub struct Pty(Arc<OwnedFd>);

impl Pty {
    /// Opens a new pseudo-terminal of this size, close-on-exec: `/dev/ptmx`, `pts(4)`.
    ///
    /// ```
    /// use forkless::{Pty, PtySize};
    /// let pty = Pty::open(PtySize::new(24, 80))?;
    /// assert_eq!(pty.size()?, PtySize::new(24, 80));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// They name the step. ENOENT if there is no `/dev/ptmx`, ENOSPC if the limit of terminals (`kernel.pty.max`, or
    /// `max=` of the mount) is reached, EMFILE.
    pub fn open(size: PtySize) -> io::Result<Self> {
        const PTMX: &str = "/dev/ptmx";
        // Not by openpt(), which turns ENOSPC into EAGAIN.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let master = retry_on_intr(|| rustix::fs::open(PTMX, flags, Mode::empty())).map_err(|errno| {
            let note = match errno {
                Errno::NOENT | Errno::NODEV | Errno::NXIO => "; there is no devpts file system here",
                Errno::ACCESS | Errno::PERM => "; the devpts file system is mounted without ptmxmode=666",
                Errno::NOSPC => "; kernel.pty.max, or max= of the devpts file system, is reached",
                _ => "",
            };
            about(&format!("open {PTMX}"), errno, note)
        })?;
        unlockpt(&master).map_err(|errno| about("unlock it", errno, ""))?;
        let pty = Self(Arc::new(master));
        pty.resize(size)?;
        Ok(pty)
    }

    /// The path of the other side, `/dev/pts/N`, in the file system that the caller's `/dev/ptmx` belongs to.
    ///
    /// ```
    /// let pty = forkless::Pty::open(Default::default())?;
    /// println!("the program's terminal is {}", pty.path()?.display());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// None are known.
    pub fn path(&self) -> io::Result<PathBuf> {
        let name = ptsname(&self.0, Vec::new()).map_err(|errno| about("name it", errno, ""))?;
        Ok(OsString::from_vec(name.into_bytes()).into())
    }

    /// Opens the other side, close-on-exec and not as the caller's controlling terminal. Use it for a descriptor of a
    /// child that [`Command::pty`] does not set, or to change the owner (`fchown(2)`) for a child with other IDs.
    ///
    /// Reads of the terminal do not end while it is open.
    ///
    /// ```
    /// use forkless::{Command, Pty, PtySize};
    /// let pty = Pty::open(PtySize::default())?;
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "test -t 3"]).fd(pty.follower()?, 3);
    /// assert!(command.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EMFILE; ENOENT on a kernel before 4.13 if `/dev/pts` does not belong to `/dev/ptmx`.
    pub fn follower(&self) -> io::Result<OwnedFd> {
        open_follower(&self.0).map_err(|errno| about("open the other side", errno, ""))
    }

    /// The current size.
    ///
    /// ```
    /// let pty = forkless::Pty::open(forkless::PtySize::new(24, 80))?;
    /// assert_eq!(pty.size()?.columns, 80);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// None are known.
    pub fn size(&self) -> io::Result<PtySize> {
        tcgetwinsize(self).map(PtySize::from).map_err(|errno| about("get the size", errno, ""))
    }

    /// Changes the size. If the new size differs, the programs in the foreground get SIGWINCH.
    ///
    /// ```
    /// use forkless::{Pty, PtySize};
    /// let pty = Pty::open(PtySize::default())?;
    /// pty.resize(PtySize::new(50, 120))?;
    /// assert_eq!(pty.size()?.rows, 50);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// None are known.
    pub fn resize(&self, size: PtySize) -> io::Result<()> {
        tcsetwinsize(self, size.into()).map_err(|errno| about("set the size", errno, ""))
    }

    /// Puts the terminal in raw mode: bytes pass unchanged and one by one in both directions, without lines, echo,
    /// signals, and CR before LF. `cfmakeraw(3)`
    ///
    /// ```
    /// use forkless::{Command, Pty, PtySize};
    /// use std::time::Duration;
    /// let pty = Pty::open(PtySize::default())?;
    /// pty.make_raw()?;
    /// let mut child = Command::new("echo").arg("hello").pty(&pty).spawn()?;
    /// let mut bytes = Vec::new();
    /// pty.read_until_exit(&mut child, Duration::ZERO, &mut bytes)?;
    /// assert_eq!(bytes, b"hello\n"); // and not b"hello\r\n"
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// None are known.
    pub fn make_raw(&self) -> io::Result<()> {
        self.change(Termios::make_raw)
    }

    /// Sets whether typed bytes come back as output (default in a new terminal: yes).
    ///
    /// ```
    /// let pty = forkless::Pty::open(Default::default())?;
    /// pty.echo(false)?; // as for a password
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// None are known.
    pub fn echo(&self, on: bool) -> io::Result<()> {
        self.change(|modes| modes.local_modes.set(LocalModes::ECHO, on))
    }

    /// Copies the modes of another terminal, such as the caller's standard input: its special characters, its UTF-8
    /// setting.
    ///
    /// ```
    /// use std::io::{IsTerminal, stdin};
    /// let pty = forkless::Pty::open(Default::default())?;
    /// if stdin().is_terminal() {
    ///     pty.copy_modes(stdin())?;
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOTTY if the other one is no terminal.
    pub fn copy_modes<F: AsFd>(&self, from: F) -> io::Result<()> {
        let modes = tcgetattr(from).map_err(|errno| about("get the modes of another one", errno, ""))?;
        self.set_modes(&modes)
    }

    fn change(&self, how: impl FnOnce(&mut Termios)) -> io::Result<()> {
        let mut modes = self.modes()?;
        how(&mut modes);
        self.set_modes(&modes)
    }

    fn modes(&self) -> io::Result<Termios> {
        tcgetattr(self).map_err(|errno| about("get the modes", errno, ""))
    }

    fn set_modes(&self, modes: &Termios) -> io::Result<()> {
        tcsetattr(self, OptionalActions::Now, modes).map_err(|errno| about("set the modes", errno, ""))
    }

    /// Types the end-of-file character (normally Ctrl-D). Input has no other end: the master cannot be closed in one
    /// direction.
    ///
    /// It ends one read of one program: with the line so far, or, at the start of a line, with 0 bytes, which programs
    /// take for the end. A later read blocks again.
    ///
    /// ```
    /// use forkless::{Command, Pty, PtySize};
    /// use std::{io::Write, time::Duration};
    /// let mut pty = Pty::open(PtySize::default())?;
    /// pty.echo(false)?;
    /// let mut child = Command::new("wc").arg("-l").pty(&pty).spawn()?;
    /// pty.write_all(b"one\ntwo\n")?;
    /// pty.send_eof()?;
    /// let mut text = Vec::new();
    /// pty.read_until_exit(&mut child, Duration::ZERO, &mut text)?;
    /// assert_eq!(text, b"2\r\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if there is no such character, because the program has put the terminal in raw mode; otherwise
    /// those of writing.
    pub fn send_eof(&self) -> io::Result<()> {
        let modes = self.modes()?;
        match modes.special_codes[SpecialCodeIndex::VEOF] {
            eof if eof != 0 && modes.local_modes.contains(LocalModes::ICANON) => (&*self).write_all(&[eof]),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "pseudo-terminal: in raw mode input has no end")),
        }
    }

    /// The process group in the foreground, which gets the signals of typed keys. `None` before a program has the
    /// terminal as its controlling terminal, and after that program has ended. `tcgetpgrp(3)`
    ///
    /// ```
    /// use forkless::{Command, Pty, PtySize};
    /// let pty = Pty::open(PtySize::default())?;
    /// assert_eq!(pty.foreground_group()?, None);
    /// let mut child = Command::new("sleep").arg("60").pty(&pty).spawn()?;
    /// assert_eq!(pty.foreground_group()?, Some(child.id()));
    /// # child.kill()?;
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// None are known.
    pub fn foreground_group(&self) -> io::Result<Option<u32>> {
        match tcgetpgrp(self) {
            Ok(group) => Ok(Some(group.as_raw_nonzero().get() as u32)),
            // rustix returns this for a group of 0.
            Err(Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(about("get the foreground group", errno, "")),
        }
    }

    /// Sets whether reads and writes fail with `WouldBlock` instead of blocking (default: they block): `O_NONBLOCK` of
    /// the master alone.
    ///
    /// ```
    /// use std::io::{ErrorKind, Read};
    /// let mut pty = forkless::Pty::open(Default::default())?;
    /// pty.set_nonblocking(true)?;
    /// let _program_side = pty.follower()?;
    /// assert_eq!(pty.read(&mut [0; 100]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// None are known.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        rustix::io::ioctl_fionbio(self, on).map_err(|errno| about("set O_NONBLOCK", errno, ""))
    }

    /// Whether there is something to read, or the end, within `limit` (`None`: without limit).
    fn is_ready(&self, limit: Option<Duration>) -> io::Result<bool> {
        ready(&mut [PollFd::new(self, PollFlags::IN)], limit)
    }
}

impl Command {
    /// Puts the child on this terminal: it starts a session, has the terminal as its controlling terminal, and as those
    /// of standard input, output and error that are not set otherwise.
    ///
    /// If all three are set otherwise, the child can still open the terminal as `/dev/tty`, as programs do that ask for
    /// a password. Nobody has it open before that, so [`Read`] returns the end: use [`Pty::read_until_exit`], or hold a
    /// [`Pty::follower`] until the child has ended.
    ///
    /// The command does not keep the terminal open: the `Pty` must still exist when the child is launched. Dropping it
    /// hangs the terminal up, even if there is a [`Prepared`](crate::Prepared) for it. The other side is opened for
    /// each run, and closed when the child has it. A terminal has one session at a time: a second child can use it when
    /// the first has ended.
    ///
    /// [`output`](Self::output) captures nothing of what goes to the terminal, and [`status`](Self::status) waits
    /// forever for a program whose output nobody reads. Read in another thread, or use [`Pty::read_until_exit`].
    ///
    /// In the child: `setsid(2)` and `ioctl(2)` TIOCSCTTY, and two system calls for each descriptor.
    ///
    /// ```
    /// use forkless::{Command, Pty, PtySize};
    /// use std::time::Duration;
    /// let pty = Pty::open(PtySize::new(24, 80))?;
    /// let mut child = Command::new("tty").pty(&pty).spawn()?;
    /// let mut text = Vec::new();
    /// pty.read_until_exit(&mut child, Duration::ZERO, &mut text)?;
    /// assert!(text.starts_with(b"/dev/pts/"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pty(&mut self, pty: &Pty) -> &mut Self {
        self.pty = Some(Arc::downgrade(&pty.0));
        self
    }
}

impl Read for &Pty {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(&*self.0, &mut *buffer) {
                // The last writer has closed the terminal. It may have written just before, after the kernel had looked for
                // data.
                Err(Errno::IO) if !self.has_input()? => return Ok(0),
                Err(Errno::IO) => {}
                answer => return Ok(answer?),
            }
        }
    }
}

impl Pty {
    /// Whether there is something to read. When all writers have closed the terminal, the kernel answers this without a
    /// race.
    fn has_input(&self) -> io::Result<bool> {
        let mut files = [PollFd::new(self, PollFlags::IN)];
        ready(&mut files, Some(Duration::ZERO))?;
        Ok(files[0].revents().contains(PollFlags::IN))
    }
}

impl Write for &Pty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&*self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Pty {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Pty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Pty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Pty {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until one of the files is ready or the time is up (`None`: never). Returns whether one is.
fn ready(files: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<bool> {
    // A limit beyond what the clock holds is no limit.
    let deadline = limit.and_then(|limit| std::time::Instant::now().checked_add(limit));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
        match poll(files, left.and_then(|left| Timespec::try_from(left).ok()).as_ref()) {
            Err(Errno::INTR) => {}
            answer => return Ok(answer? > 0),
        }
    }
}

fn about(step: &str, errno: Errno, note: &str) -> io::Error {
    let error = io::Error::from(errno);
    let words = format!("pseudo-terminal: {step}: {error}{note}");
    reworded(error, words)
}
