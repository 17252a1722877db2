//! What a child finds at a descriptor number.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;

/// What a child finds at a descriptor number: for [`stdin`](crate::Command::stdin), [`stdout`](crate::Command::stdout),
/// [`stderr`](crate::Command::stderr) and [`fd`](crate::Command::fd).
///
/// ```
/// use forkless::{Command, Stdio};
/// let both = Command::new("sh")
///     .args(["-c", "echo out; echo err >&2"])
///     .stderr(Stdio::dup_of(1))
///     .output()?;
/// assert_eq!(both.stdout, b"out\nerr\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stdio(pub(crate) Source);

/// Where a child's descriptor comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// The parent's descriptor of the same number.
    Inherit,
    /// `/dev/null`, opened in the child.
    Null,
    /// A new pipe for each run; the other end goes to the handle.
    Piped,
    /// A new pair of sockets for each run; the other end goes to the handle.
    SocketPair,
    /// A descriptor that was given to us.
    Owned(Arc<OwnedFd>),
    /// A number of the parent's that stays the caller's.
    Borrowed(RawFd),
    /// The child's own descriptor of another number.
    DupOf(RawFd),
    /// A path opened in the child.
    Open { path: Result<CString, Vec<u8>>, flags: i32, mode: u32 },
}

impl Stdio {
    /// The child uses the parent's descriptor of the same number, as it is (also when it is closed).
    pub fn inherit() -> Self {
        Self(Source::Inherit)
    }

    /// `/dev/null`, opened for reading and writing in the child.
    pub fn null() -> Self {
        Self(Source::Null)
    }

    /// A new pipe, whose other end is in the handle's `stdin`, `stdout` or `stderr`.
    ///
    /// Only for numbers 0 to 2, where the direction is known; elsewhere use [`Stdio::socketpair`].
    pub fn piped() -> Self {
        Self(Source::Piped)
    }

    /// A new pair of connected stream sockets; the parent's end is taken from the handle by
    /// [`Child::take_socket`](crate::Child::take_socket).
    ///
    /// At numbers 0 to 2 as well: one socket can carry both directions.
    pub fn socketpair() -> Self {
        Self(Source::SocketPair)
    }

    /// The parent's descriptor `number`, which stays the caller's and must be open when the child is launched.
    ///
    /// A number that is not open then is an error of the launch (`pass fd`, EBADF). What is owned or borrowed needs no number:
    /// [`Stdio::from`] takes it, and [`copy_of`](Self::copy_of) a copy of it.
    ///
    /// # Safety
    /// Whatever is open at this number at each launch is the caller's to pass on: not closed, and the number used anew, by another
    /// part of the program that owns it ([I/O safety](std::io#io-safety)).
    pub unsafe fn fd(number: RawFd) -> Self {
        Self(Source::Borrowed(number))
    }

    /// The same file as the child's own descriptor `number`, after all others are in place: `2>&1` is
    /// `stderr(Stdio::dup_of(1))`.
    pub fn dup_of(number: RawFd) -> Self {
        Self(Source::DupOf(number))
    }

    /// `path` opened in the child, after its directory has been changed, with `open(2)`'s flags and mode.
    ///
    /// A failure is an error of the launch (`open`, with the path). So is, with EOPNOTSUPP, a file in procfs or one that a link of
    /// procfs' leads to (`/dev/fd/5`, `/dev/stdin`), which takes a child that shares the caller's memory for the caller: only one of
    /// [`Launcher::Fork`](crate::Launcher::Fork) opens such files.
    pub fn open<P: AsRef<OsStr>>(path: P, flags: i32, mode: u32) -> Self {
        let path = CString::new(path.as_ref().as_bytes()).map_err(|error| error.into_vec());
        Self(Source::Open { path, flags, mode })
    }

    /// A copy of `file`'s descriptor, for a file that is to be kept.
    pub fn copy_of<F: AsFd>(file: F) -> io::Result<Self> {
        Ok(Self::from(file.as_fd().try_clone_to_owned()?))
    }
}

impl FromRawFd for Stdio {
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        // SAFETY: the caller gives the descriptor away (the trait's contract).
        Self::from(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl TryFrom<Stdio> for std::process::Stdio {
    type Error = io::Error;

    /// For a program that std starts.
    ///
    /// # Errors
    /// `Unsupported` for what std has no word for: [`Stdio::socketpair`], [`Stdio::dup_of`], [`Stdio::open`]. Of `dup(2)`, for
    /// [`Stdio::fd`].
    fn try_from(stdio: Stdio) -> io::Result<Self> {
        Ok(match stdio.0 {
            Source::Inherit => Self::inherit(),
            Source::Null => Self::null(),
            Source::Piped => Self::piped(),
            Source::Owned(fd) => match Arc::try_unwrap(fd) {
                Ok(fd) => fd.into(),
                Err(fd) => fd.try_clone()?.into(),
            },
            // SAFETY: copied at once; a number that is not open is an error.
            Source::Borrowed(fd) => unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?.into(),
            Source::SocketPair | Source::DupOf(_) | Source::Open { .. } => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "std::process::Stdio cannot say this"));
            }
        })
    }
}

impl From<OwnedFd> for Stdio {
    fn from(fd: OwnedFd) -> Self {
        Self(Source::Owned(Arc::new(fd)))
    }
}

macro_rules! from_owner {
    ($($owner:ty)*) => { $(impl From<$owner> for Stdio {
        fn from(owner: $owner) -> Self {
            Self::from(OwnedFd::from(owner))
        }
    })* };
}

from_owner! { File ChildStdin ChildStdout ChildStderr std::os::unix::net::UnixStream std::net::TcpStream std::io::PipeReader std::io::PipeWriter }

impl From<io::Stdout> for Stdio {
    /// The parent's standard output, whatever number it is given in the child: what descriptor 1 is at the launch, not what it
    /// was when this was made.
    fn from(_: io::Stdout) -> Self {
        Self(Source::Borrowed(1))
    }
}

impl From<io::Stderr> for Stdio {
    /// The parent's standard error, whatever number it is given in the child: what descriptor 2 is at the launch, not what it
    /// was when this was made.
    fn from(_: io::Stderr) -> Self {
        Self(Source::Borrowed(2))
    }
}

impl Source {
    /// The parent's descriptor number, where it is known before the run.
    pub(crate) fn fixed(&self, number: RawFd) -> Option<RawFd> {
        match self {
            Self::Inherit if number > 2 => Some(number),
            Self::Owned(fd) => Some(fd.as_raw_fd()),
            Self::Borrowed(fd) => Some(*fd),
            _ => None,
        }
    }
}
