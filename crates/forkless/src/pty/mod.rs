//! Pseudo-terminals: a child on a terminal whose other side is ours.
//!
//! The two sides are called the master, which [`Pty`] holds, and the follower, which a program takes for a terminal. The
//! follower is opened anew for each run, as pipes are made anew, and closed again when the child has it: the end of what
//! programs write can only be seen while nobody else has it open.
//!
//! Nearly all of what can be asked of the follower (size, modes, foreground group) Linux answers to the master:
//! `tty_jobctrl_ioctl()` and `tty_mode_ioctl()` in drivers/tty take the other side of a master.

use crate::command::Command;
use crate::error::reworded;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, ptsname, unlockpt};
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

/// A pseudo-terminal: our side of it, the master. Programs are put on the other side by [`Command::pty`].
///
/// What they write is read from here, and what is written here is typed to them, Ctrl-C included:
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
/// Reading waits for output; before any program has the terminal open, too. It gives 0 bytes, the end, when the last
/// program that had it open has gone and every byte has been read. (Linux says EIO there, and may say so an instant too
/// early: `n_tty_read()` looks for data first and for other openers after that. `Read` looks once more.) A program that is
/// put on it later begins anew. A background process that keeps the terminal open keeps the end from coming:
/// [`read_until_exit`](Self::read_until_exit) does not wait for those.
///
/// # Writing
/// Writing waits while the program does not read and 4 to 12 KiB are under way; while no program has the terminal open what
/// is written waits for one, or is EIO, as the kernel has it. A new terminal hands on whole lines, of at most 4,095 bytes (the rest of a longer one is thrown away),
/// shows what is typed ([`echo`](Self::echo)), and makes signals of Ctrl-C and its like; [`make_raw`](Self::make_raw) ends
/// all of that. `termios(3)`
///
/// # Sharing
/// Reading, writing and everything else need only `&Pty`, and clones are the same terminal: one thread may read while
/// another writes. When the last clone is dropped the terminal is hung up: its session's leader and its foreground group
/// get SIGHUP, and other programs that still have it open read the end and cannot write. `pty(7)`
#[derive(Debug, Clone)]
pub struct Pty(Arc<OwnedFd>);

impl Pty {
    /// Opens a new pseudo-terminal of this size, close-on-exec: `/dev/ptmx`, `pts(4)`.
    ///
    /// # Errors
    /// They name the step. ENOENT where there is no `/dev/ptmx`, ENOSPC where the limit of terminals (`kernel.pty.max`, or
    /// `max=` of the mount) is reached, EMFILE.
    pub fn open(size: PtySize) -> io::Result<Self> {
        const PTMX: &str = "/dev/ptmx";
        // Not by openpt(), which makes EAGAIN of ENOSPC.
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

    /// The other side's name, `/dev/pts/N`, in the file system that the caller's `/dev/ptmx` belongs to.
    ///
    /// # Errors
    /// None that would be known.
    pub fn path(&self) -> io::Result<PathBuf> {
        let name = ptsname(&self.0, Vec::new()).map_err(|errno| about("name it", errno, ""))?;
        Ok(OsString::from_vec(name.into_bytes()).into())
    }

    /// Opens the other side, close-on-exec and without making it the caller's controlling terminal: for a descriptor of a
    /// child that [`Command::pty`] does not set, or to change its owner (`fchown(2)`) for a child with other ids.
    ///
    /// No end is read as long as it is open.
    ///
    /// # Errors
    /// EMFILE; ENOENT on a kernel before 4.13 where `/dev/pts` does not belong to `/dev/ptmx`.
    pub fn follower(&self) -> io::Result<OwnedFd> {
        open_follower(&self.0).map_err(|errno| about("open the other side", errno, ""))
    }

    /// The size.
    ///
    /// # Errors
    /// None that would be known.
    pub fn size(&self) -> io::Result<PtySize> {
        tcgetwinsize(self).map(PtySize::from).map_err(|errno| about("get the size", errno, ""))
    }

    /// Changes the size. If it is another one, the programs in the foreground get SIGWINCH.
    ///
    /// # Errors
    /// None that would be known.
    pub fn resize(&self, size: PtySize) -> io::Result<()> {
        tcsetwinsize(self, size.into()).map_err(|errno| about("set the size", errno, ""))
    }

    /// Bytes pass through unchanged, one by one, both ways: no lines, no echo, no signals, no CR before LF. `cfmakeraw(3)`
    ///
    /// # Errors
    /// None that would be known.
    pub fn make_raw(&self) -> io::Result<()> {
        self.change(Termios::make_raw)
    }

    /// Is what is typed written back as output? In a new terminal it is.
    ///
    /// # Errors
    /// None that would be known.
    pub fn echo(&self, on: bool) -> io::Result<()> {
        self.change(|modes| modes.local_modes.set(LocalModes::ECHO, on))
    }

    /// The modes of another terminal, such as the caller's own standard input: its special characters, its UTF-8.
    ///
    /// # Errors
    /// ENOTTY where that is no terminal.
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

    /// Types the end of input (normally Ctrl-D). Input has no other end: the master cannot be closed in one direction.
    ///
    /// It ends one read of one program: with the line so far, or, at the start of a line, with nothing, which is what
    /// programs take for the end. Whoever reads after that waits again.
    ///
    /// # Errors
    /// `InvalidInput` where there is no such character, because the program has put the terminal in raw mode; else those of
    /// writing.
    pub fn send_eof(&self) -> io::Result<()> {
        let modes = self.modes()?;
        match modes.special_codes[SpecialCodeIndex::VEOF] {
            eof if eof != 0 && modes.local_modes.contains(LocalModes::ICANON) => (&*self).write_all(&[eof]),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "pseudo-terminal: in raw mode input has no end")),
        }
    }

    /// The process group in the foreground, which gets the signals that are typed; none before a program has the terminal
    /// as its controlling one, and after that has ended. `tcgetpgrp(3)`
    ///
    /// # Errors
    /// None that would be known.
    pub fn foreground_group(&self) -> io::Result<Option<u32>> {
        match tcgetpgrp(self) {
            Ok(group) => Ok(Some(group.as_raw_nonzero().get() as u32)),
            // What rustix makes of a 0.
            Err(Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(about("get the foreground group", errno, "")),
        }
    }

    /// Reading and writing do not wait but are `WouldBlock`: `O_NONBLOCK` of our side alone.
    ///
    /// # Errors
    /// None that would be known.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        rustix::io::ioctl_fionbio(self, on).map_err(|errno| about("set O_NONBLOCK", errno, ""))
    }

    /// Is there something to be read, or the end, within `limit` (none: for ever)?
    fn is_ready(&self, limit: Option<Duration>) -> io::Result<bool> {
        ready(&mut [PollFd::new(self, PollFlags::IN)], limit)
    }
}

impl Command {
    /// The child is on this terminal: it begins a session, has it as its controlling terminal, and as its standard input,
    /// output and error where those are not set to something else.
    ///
    /// If all three are, it can still be reached as `/dev/tty`, as programs do that ask for a password. Nobody has it open
    /// before that, so [`Read`] is at the end: use [`Pty::read_until_exit`], or hold a [`Pty::follower`] until the child
    /// has ended.
    ///
    /// The command holds neither side: the terminal must still be there when the child is launched, and one that is
    /// dropped is hung up though there may be a [`Prepared`](crate::Prepared) for it. The other side is opened for each
    /// run, and closed when the child has it. One session at a time: a second child can have it when the first has ended.
    ///
    /// [`output`](Self::output) captures nothing of what goes to the terminal, and [`status`](Self::status) waits for ever
    /// for a program whose output nobody reads: read in another thread, or use [`Pty::read_until_exit`].
    ///
    /// In the child: `setsid(2)` and `ioctl(2)` TIOCSCTTY, and two system calls for each descriptor.
    pub fn pty(&mut self, pty: &Pty) -> &mut Self {
        self.pty = Some(Arc::downgrade(&pty.0));
        self
    }
}

impl Read for &Pty {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(&*self.0, &mut *buffer) {
                // The last writer has gone; but it may have written, and gone, after the kernel had looked for data.
                Err(Errno::IO) if !self.has_input()? => return Ok(0),
                Err(Errno::IO) => {}
                answer => return Ok(answer?),
            }
        }
    }
}

impl Pty {
    /// Is there something to be read? The kernel's answer to this has no race: it is asked when all writers have gone.
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

/// Opens the other side of a master.
pub(crate) fn open_follower(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    match retry_on_intr(|| ioctl_tiocgptpeer(master, flags)) {
        // Not there before Linux 4.13, or refused by a filter.
        Err(Errno::INVAL | Errno::NOTTY | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => open_by_name(master),
        answer => answer,
    }
}

/// By name it may be another mount's terminal of the same number, which the caller may then not be able to open.
fn open_by_name(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let name = ptsname(master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(name.as_c_str(), flags, Mode::empty()))
}

/// Waits until one of the files is ready or the time is up (none: never); says whether one is.
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
