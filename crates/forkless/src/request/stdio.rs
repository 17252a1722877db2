//! What a child finds at a descriptor number.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;

/// What a child finds at a descriptor number: for [`stdin`](crate::Command::stdin), [`stdout`](crate::Command::stdout),
/// [`stderr`](crate::Command::stderr) and [`fd`](crate::Command::fd).
///
/// `From` takes each stable type of std that owns a descriptor: files, pipes, sockets, [`OwnedFd`]. It also takes
/// [`io::Stdout`] and [`io::Stderr`], which exclude an implementation for all of `Into<OwnedFd>`. Convert a type of another
/// crate first: `Stdio::from(OwnedFd::from(x))`.
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
pub struct Stdio(pub(crate) FdSource);

/// Where a child's descriptor comes from.
#[derive(Debug, Clone)]
pub(crate) enum FdSource {
    /// The caller's descriptor of the same number.
    Inherit,
    /// `/dev/null`, opened in the child.
    Null,
    /// A new pipe for each run; the other end goes to the handle.
    Piped,
    /// A new pair of sockets for each run; the other end goes to the handle.
    SocketPair,
    /// A descriptor that the command owns.
    Owned(Arc<OwnedFd>),
    /// A descriptor number of the caller, which keeps it open.
    Borrowed(RawFd),
    /// The child's own descriptor of another number.
    DupOf(RawFd),
    /// A path that the child opens.
    Open { path: Result<CString, Vec<u8>>, flags: i32, mode: u32 },
}

impl Stdio {
    /// Gives the child the caller's descriptor of the same number as it is, also if it is closed.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// // Captures the output; error messages go where the caller's go.
    /// let output = Command::new("echo").arg("hello").stderr(Stdio::inherit()).output()?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn inherit() -> Self {
        Self(FdSource::Inherit)
    }

    /// Gives the child `/dev/null`, open for reading and writing. The child opens it.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let status = Command::new("echo").arg("nobody reads this").stdout(Stdio::null()).status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn null() -> Self {
        Self(FdSource::Null)
    }

    /// Gives the child one end of a new pipe. The other end is in the handle's `stdin`, `stdout` or `stderr`.
    ///
    /// Each launch makes a pipe. It is for numbers 0 to 2 alone, where the direction is known: elsewhere use
    /// [`Stdio::socketpair`].
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let mut child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
    /// let text = std::io::read_to_string(child.stdout.take().unwrap())?;
    /// assert_eq!(text, "hello\n");
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn piped() -> Self {
        Self(FdSource::Piped)
    }

    /// Gives the child one of two new connected stream sockets. [`Child::take_socket`](crate::Child::take_socket)
    /// returns the other one.
    ///
    /// Each launch makes a pair. One socket carries both directions, so it also suits numbers 0 to 2.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::io::Write;
    /// use std::os::unix::net::UnixStream;
    /// let twice = "read word <&3; echo $word $word >&3";
    /// let mut child = Command::new("sh").args(["-c", twice]).fd(Stdio::socketpair(), 3).spawn()?;
    /// let mut socket = UnixStream::from(child.take_socket(3).unwrap());
    /// socket.write_all(b"hello\n")?;
    /// assert_eq!(std::io::read_to_string(socket)?, "hello hello\n");
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn socketpair() -> Self {
        Self(FdSource::SocketPair)
    }

    /// Gives the child a copy of the caller's descriptor `number`. The descriptor itself stays the caller's, and must
    /// be open whenever the child is launched.
    ///
    /// For a file that is owned or borrowed no number is needed: use [`Stdio::from`] or [`copy_of`](Self::copy_of).
    ///
    /// # Errors
    /// If the number is not open, the launch fails at [`Step::PassFd`](crate::Step::PassFd) with EBADF.
    ///
    /// # Safety
    /// What is open at this number at each launch must be the caller's to pass: no other part of the program may own
    /// it, and close it and use the number again meanwhile ([I/O safety](std::io#io-safety)).
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::os::fd::AsRawFd;
    /// let file = std::fs::File::open("/dev/null")?;
    /// // SAFETY: `file` stays open until the child has been launched.
    /// let input = unsafe { Stdio::fd(file.as_raw_fd()) };
    /// assert!(Command::new("cat").stdin(input).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub unsafe fn fd(number: RawFd) -> Self {
        Self(FdSource::Borrowed(number))
    }

    /// Gives the child a copy of its own descriptor `number`, made when all others are in place:
    /// `stderr(Stdio::dup_of(1))` is a shell's `2>&1`.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check): the child has no such descriptor, or it is itself a `dup_of`.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let output = Command::new("sh").args(["-c", "echo problem >&2"]).stderr(Stdio::dup_of(1)).output()?;
    /// assert_eq!(output.stdout, b"problem\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dup_of(number: RawFd) -> Self {
        Self(FdSource::DupOf(number))
    }

    /// Gives the child the file at `path`, which the child opens with these flags and mode: `open(2)`. It does so with
    /// its own ids, root, umask and working directory.
    ///
    /// # Errors
    /// The launch fails at [`Step::Open`](crate::Step::Open), and the error names the path. A file in procfs, or one
    /// that a link of procfs leads to (`/dev/fd/5`, `/dev/stdin`), fails with EOPNOTSUPP: the child shares the caller's
    /// memory, so procfs would show it the caller. Only a child of [`Launcher::Fork`](crate::Launcher::Fork) opens such
    /// files.
    ///
    /// ```no_run
    /// use forkless::{Command, Stdio};
    /// const O_WRONLY: i32 = 1;
    /// const O_CREAT: i32 = 0o100;
    /// const O_APPEND: i32 = 0o2000;
    /// let log = Stdio::open("build.log", O_WRONLY | O_CREAT | O_APPEND, 0o644);
    /// Command::new("make").current_dir("/srv/project").stdout(log).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open<P: AsRef<OsStr>>(path: P, flags: i32, mode: u32) -> Self {
        let path = CString::new(path.as_ref().as_bytes()).map_err(|error| error.into_vec());
        Self(FdSource::Open { path, flags, mode })
    }

    /// Copies the descriptor of `file`, for a file that the caller keeps.
    ///
    /// # Errors
    /// Those of `fcntl(2)` F_DUPFD_CLOEXEC, such as EMFILE.
    ///
    /// ```no_run
    /// use forkless::{Command, Stdio};
    /// let log = std::fs::File::create("build.log")?;
    /// for program in ["configure", "make"] {
    ///     Command::new(program).stdout(Stdio::copy_of(&log)?).status()?;
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn copy_of<F: AsFd>(file: F) -> io::Result<Self> {
        Ok(Self::from(file.as_fd().try_clone_to_owned()?))
    }
}

impl FromRawFd for Stdio {
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        // SAFETY: the caller owns the descriptor and gives it away, as the trait requires.
        Self::from(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl TryFrom<Stdio> for std::process::Stdio {
    type Error = io::Error;

    /// Converts it for a program that std starts.
    ///
    /// # Errors
    /// `Unsupported` for what std does not have: [`Stdio::socketpair`], [`Stdio::dup_of`], [`Stdio::open`]. For [`Stdio::fd`],
    /// the error of copying the descriptor.
    fn try_from(stdio: Stdio) -> io::Result<Self> {
        Ok(match stdio.0 {
            FdSource::Inherit => Self::inherit(),
            FdSource::Null => Self::null(),
            FdSource::Piped => Self::piped(),
            FdSource::Owned(fd) => match Arc::try_unwrap(fd) {
                Ok(fd) => fd.into(),
                Err(fd) => fd.try_clone()?.into(),
            },
            // SAFETY: copied at once; `Stdio::fd` requires that the descriptor may be passed, and a closed one is an error.
            FdSource::Borrowed(fd) => unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?.into(),
            FdSource::SocketPair | FdSource::DupOf(_) | FdSource::Open { .. } => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "std::process::Stdio has no such stream"));
            }
        })
    }
}

impl From<OwnedFd> for Stdio {
    fn from(fd: OwnedFd) -> Self {
        Self(FdSource::Owned(Arc::new(fd)))
    }
}

macro_rules! from_owner {
    ($($owner:ty)*) => { $(impl From<$owner> for Stdio {
        fn from(owner: $owner) -> Self {
            Self::from(OwnedFd::from(owner))
        }
    })* };
}

// Not `impl<T: Into<OwnedFd>> From<T> for Stdio`: std may make `Stdout` such a type, so it excludes `From<Stdout>`.
from_owner! {
    File PipeReader PipeWriter ChildStdin ChildStdout ChildStderr
    TcpListener TcpStream UdpSocket UnixDatagram UnixListener UnixStream
}

impl From<io::Stdout> for Stdio {
    /// The caller's standard output, at any number of the child's: the file that is descriptor 1 at the launch, not the
    /// one that it was when this was made.
    fn from(_: io::Stdout) -> Self {
        Self(FdSource::Borrowed(1))
    }
}

impl From<io::Stderr> for Stdio {
    /// The caller's standard error, at any number of the child's: the file that is descriptor 2 at the launch, not the
    /// one that it was when this was made.
    fn from(_: io::Stderr) -> Self {
        Self(FdSource::Borrowed(2))
    }
}

impl FdSource {
    /// The caller's descriptor number, where it is known before the run.
    pub(crate) fn fixed(&self, number: RawFd) -> Option<RawFd> {
        match self {
            Self::Inherit if number > 2 => Some(number),
            Self::Owned(fd) => Some(fd.as_raw_fd()),
            Self::Borrowed(fd) => Some(*fd),
            _ => None,
        }
    }
}
