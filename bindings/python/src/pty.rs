//! `forkless.Pty`: a pseudo-terminal.

use crate::convert::{seconds, timeout as limit};
use crate::error;
use forkless::{Command, Pty as Terminal, PtySize};
use pyo3::exceptions::{PyProcessLookupError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A new pseudo-terminal of this size, for the keyword `pty`: `pts(4)`.
///
/// The child starts a session, has the terminal as its controlling terminal, and as those of its standard streams that are not set
/// otherwise. What it writes must be read: about 12 KiB wait in a terminal, then the child does. One session uses it at a time.
///
/// As a context manager, and by `close()`, it hangs the terminal up. Raises OSError if there is no `/dev/ptmx`, or no terminal is left.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Pty(Mutex<Option<Terminal>>);

/// More than a terminal holds.
const UNDER_WAY: usize = 64 * 1024;

impl Pty {
    fn terminal(&self) -> PyResult<Terminal> {
        let terminal = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        terminal.clone().ok_or_else(|| PyValueError::new_err("the terminal has been closed"))
    }

    fn call<T>(&self, py: Python<'_>, work: impl FnOnce(&Terminal) -> io::Result<T>) -> PyResult<T> {
        work(&self.terminal()?).map_err(|error| error::plain(py, error))
    }
}

#[pymethods]
impl Pty {
    #[new]
    #[pyo3(signature = (rows=24, columns=80))]
    fn new(py: Python<'_>, rows: u16, columns: u16) -> PyResult<Self> {
        let made = Terminal::open(PtySize::new(rows, columns)).map_err(|error| error::plain(py, error))?;
        Ok(Self(Mutex::new(Some(made))))
    }

    fn __repr__(&self) -> String {
        let path = self.terminal().ok().and_then(|terminal| terminal.path().ok());
        path.map_or_else(|| "<forkless.Pty closed>".to_owned(), |path| format!("<forkless.Pty {path:?}>"))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) {
        self.close();
    }

    /// Closes this side: the leader of the session gets SIGHUP, and its reads end. A call of another thread goes on first.
    fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The descriptor of this side, for select, poll and event loops.
    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.terminal()?.as_raw_fd())
    }

    /// The path of the other side, `/dev/pts/N`.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<OsString> {
        self.call(py, |terminal| terminal.path().map(Into::into))
    }

    /// A descriptor of the program's side, which the caller closes. Reads of the terminal do not end while it is open.
    fn follower(&self, py: Python<'_>) -> PyResult<RawFd> {
        self.call(py, |terminal| terminal.follower().map(IntoRawFd::into_raw_fd))
    }

    /// Rows and columns.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<(u16, u16)> {
        self.call(py, |terminal| terminal.size().map(|size| (size.rows, size.columns)))
    }

    /// Changes the size. The programs in the foreground get SIGWINCH.
    fn resize(&self, py: Python<'_>, rows: u16, columns: u16) -> PyResult<()> {
        self.call(py, |terminal| terminal.resize(PtySize::new(rows, columns)))
    }

    /// Passes bytes unchanged and one by one in both directions: cfmakeraw(3).
    fn make_raw(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Terminal::make_raw)
    }

    /// Sets whether typed bytes come back as output (default: yes).
    fn echo(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.call(py, |terminal| terminal.echo(on))
    }

    /// Types the end-of-file character, which ends one read of one program. Raises ValueError in raw mode, which has none.
    fn send_eof(&self, py: Python<'_>) -> PyResult<()> {
        match self.terminal()?.send_eof() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(PyValueError::new_err(error.to_string())),
            answer => answer.map_err(|error| error::plain(py, error)),
        }
    }

    /// Reads what there is, `size` bytes at most, and waits for something. b"" when no program has the terminal open.
    #[pyo3(signature = (size=65536))]
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = vec![0; size];
        let terminal = self.terminal()?;
        let count = interruptible(py, || (&terminal).read(&mut bytes))?;
        Ok(PyBytes::new(py, &bytes[..count]))
    }

    /// Types all of the bytes. It waits while the program does not read them.
    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        let terminal = self.terminal()?;
        let mut left = data;
        while !left.is_empty() {
            let count = interruptible(py, || (&terminal).write(left))?;
            left = &left[count..];
        }
        Ok(())
    }

    /// Reads until the child (a Popen or a Child) has ended and all that it wrote has been read, waits for it, and returns the bytes.
    ///
    /// linger: how many seconds to read on after that while other processes have the terminal open. timeout: after so many seconds
    /// TimeoutExpired is raised, with the bytes so far as `output`; the child goes on.
    #[pyo3(signature = (child, linger=None, timeout=None))]
    fn read_until_exit<'py>(
        &self,
        py: Python<'py>,
        child: &Bound<'py, PyAny>,
        linger: Option<Bound<'py, PyAny>>,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let terminal = self.terminal()?;
        let linger = linger.as_ref().map_or(Ok(Duration::ZERO), seconds)?;
        let deadline = match &timeout {
            Some(timeout) => limit(timeout)?.and_then(|limit| Instant::now().checked_add(limit)),
            None => None,
        };
        let mut bytes = Vec::new();
        let pidfd: Option<RawFd> = match child.call_method0("fileno") {
            Ok(fd) => Some(fd.extract()?),
            Err(error) if error.is_instance_of::<PyProcessLookupError>(py) => None,
            Err(error) => return Err(error),
        };
        if let Some(pidfd) = pidfd {
            // Held open so that reads do not end while the child runs: it may close the terminal and open it again as /dev/tty.
            let _held = terminal.follower().map_err(|error| error::plain(py, error))?;
            loop {
                // SAFETY: `terminal` and `child`, which is borrowed, keep the two descriptors open.
                let watched =
                    [&terminal as &dyn AsRawFd, &pidfd].map(|fd| unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) });
                let [has_bytes, has_ended] = ready(py, watched, deadline)?;
                if has_ended {
                    break;
                }
                if has_bytes {
                    bytes.extend_from_slice(self.read(py, 8192)?.as_bytes());
                }
                // Checked here because a program may write without end.
                if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                    let class = py.import("subprocess")?.getattr("TimeoutExpired")?;
                    let args = child.getattr("args").unwrap_or_else(|_| child.clone());
                    return Err(PyErr::from_value(class.call1((args, timeout, PyBytes::new(py, &bytes)))?));
                }
            }
        }
        let end = Instant::now().checked_add(linger);
        let mut late = 0;
        // SAFETY: `terminal` has it open.
        let watched = [unsafe { BorrowedFd::borrow_raw(terminal.as_raw_fd()) }];
        while late < UNDER_WAY && ready(py, watched, end)? == [true] {
            let read = self.read(py, 8192)?;
            let count = read.as_bytes().len();
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(read.as_bytes());
            late += if end.is_some_and(|end| end <= Instant::now()) { count } else { 0 };
        }
        child.call_method0("wait")?;
        Ok(PyBytes::new(py, &bytes))
    }
}

/// Makes a call without the GIL, again after each signal, whose handlers run in between.
fn interruptible<T: Send>(py: Python<'_>, mut call: impl FnMut() -> io::Result<T> + Send) -> PyResult<T> {
    loop {
        match py.detach(&mut call) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
            answer => return answer.map_err(|error| error::plain(py, error)),
        }
    }
}

/// Which are readable. None at the deadline.
fn ready<const N: usize>(py: Python<'_>, fds: [BorrowedFd<'_>; N], deadline: Option<Instant>) -> PyResult<[bool; N]> {
    interruptible(py, || {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let mut watched = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll(&mut watched, left.and_then(|left| Timespec::try_from(left).ok()).as_ref())
            .map_err(|errno: Errno| io::Error::from(errno))?;
        Ok(watched.map(|fd| !fd.revents().is_empty()))
    })
}

/// The keyword `pty`.
pub(crate) fn apply(command: &mut Command, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let pty = value.cast::<Pty>().map_err(|_| PyTypeError::new_err("expected a forkless.Pty"))?;
    command.pty(&pty.get().terminal()?);
    Ok(())
}
