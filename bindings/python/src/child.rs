//! `forkless.Child`: the handle of a child that was started by `Prepared`.

use crate::convert::{Int, seconds, timeout as limit};
use crate::error;
use crate::request::Names;
use crate::run::code;
use forkless::Usage;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A child process, as returned by `Prepared.launch` and `Prepared.spawn`.
///
/// Its methods may be called by several threads at once. Dropping it does not kill the child and leaves no zombie.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Child {
    /// Locked only briefly, never while waiting.
    inner: Mutex<forkless::Child>,
    /// The program as the caller named it.
    program: Option<Py<PyAny>>,
    directory: Option<Py<PyAny>>,
    pid: u32,
    /// Open as long as `inner` exists.
    pidfd: Option<RawFd>,
    /// Standard input, output and error, if they are pipes: unbuffered file objects.
    #[pyo3(get)]
    stdin: Option<Py<PyAny>>,
    #[pyo3(get)]
    stdout: Option<Py<PyAny>>,
    #[pyo3(get)]
    stderr: Option<Py<PyAny>>,
}

/// The interval between two checks of a child that has no pidfd.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Child {
    pub(crate) fn new(child: forkless::Child, program: Option<Py<PyAny>>) -> Self {
        let (pid, pidfd) = (child.id(), child.pidfd().map(|fd| fd.as_raw_fd()));
        Self { inner: Mutex::new(child), program, directory: None, pid, pidfd, stdin: None, stdout: None, stderr: None }
    }

    /// The same, with its pipes as file objects.
    pub(crate) fn with_files(py: Python<'_>, mut child: forkless::Child, names: Names<'_>) -> PyResult<Self> {
        let open = |fd: Option<OwnedFd>, mode: &str| -> PyResult<Option<Py<PyAny>>> {
            let Some(fd) = fd else { return Ok(None) };
            let keywords = PyDict::new(py);
            keywords.set_item("buffering", 0)?;
            // The file object closes the descriptor, also if creating it fails.
            let file = py.import("io")?.call_method("open", (fd.into_raw_fd(), mode), Some(&keywords))?;
            Ok(Some(file.unbind()))
        };
        let stdin = open(child.stdin.take().map(Into::into), "wb")?;
        let stdout = open(child.stdout.take().map(Into::into), "rb")?;
        let stderr = open(child.stderr.take().map(Into::into), "rb")?;
        let directory = names.directory.map(Bound::unbind);
        Ok(Self { stdin, stdout, stderr, directory, ..Self::new(child, Some(names.program.unbind())) })
    }

    fn lock(&self) -> MutexGuard<'_, forkless::Child> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, py: Python<'_>, error: std::io::Error) -> PyErr {
        let [program, directory] = [&self.program, &self.directory].map(|name| name.as_ref().map(|name| name.bind(py)));
        error::of(py, error, program, directory)
    }

    fn signal_error(&self, py: Python<'_>, error: std::io::Error) -> PyErr {
        let made = error::plain(py, error);
        error::tell(py, &made, self.program.as_ref().map(|name| name.bind(py)), error::SIGNAL, None);
        made
    }

    /// Sleeps until the child has ended, without the GIL; returns false at the deadline. Signal handlers run in the
    /// meantime.
    fn sleep(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<bool> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let answer = match self.pidfd {
                // SAFETY: the descriptor is open as long as `inner`, and so `self`, exists.
                Some(fd) => py.detach(|| match readable(unsafe { BorrowedFd::borrow_raw(fd) }, left) {
                    // A tracer is notified first. The pidfd is readable meanwhile.
                    Ok(true) if matches!(self.lock().try_wait(), Ok(None)) => {
                        thread::sleep(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL)));
                        if left == Some(Duration::ZERO) { Ok(false) } else { Err(Errno::INTR) }
                    }
                    answer => answer,
                }),
                None => {
                    let nap = left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL));
                    match py.detach(|| self.lock().wait_timeout(nap)) {
                        Ok(None) if left.is_none_or(|left| !left.is_zero()) => Err(Errno::INTR),
                        Ok(ended) => Ok(ended.is_some()),
                        // An error of poll(2) is left to the next call that waits.
                        Err(_) => Ok(true),
                    }
                }
            };
            match answer {
                Err(Errno::INTR) => py.check_signals()?,
                Err(error) => return Err(self.error(py, error.into())),
                Ok(is_ended) => return Ok(is_ended),
            }
        }
    }
}

fn readable(fd: BorrowedFd<'_>, left: Option<Duration>) -> Result<bool, Errno> {
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    Ok(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], left.as_ref())? > 0)
}

#[pymethods]
impl Child {
    /// The process ID.
    #[getter]
    fn pid(&self) -> u32 {
        self.pid
    }

    /// The pidfd, which is readable when the child has ended, for select, poll and event loops. It is closed with this
    /// handle.
    fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        self.pidfd.ok_or_else(|| self.error(py, Errno::BADF.into()))
    }

    /// A descriptor that is readable when the program has been executed, or could not be. -1: none, and `has_executed` knows.
    fn exec_fileno(&self) -> RawFd {
        self.lock().exec_pipe().map_or(-1, |fd| fd.as_raw_fd())
    }

    /// Checks whether the child has ended. Returns the return code as `subprocess` defines it, or None.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        let status = py.detach(|| self.lock().try_wait()).map_err(|error| self.error(py, error))?;
        Ok(status.map(code))
    }

    /// The return code if the child has ended, else None. It checks, as `poll()` does; that of `Popen` is only what `poll()` or `wait()` found.
    #[getter]
    fn returncode(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        self.poll(py)
    }

    /// Waits for the child to end and returns the return code. Raises TimeoutExpired after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Bound<'_, PyAny>>) -> PyResult<i32> {
        let deadline = match &timeout {
            // A timeout beyond the range of the clock is no timeout.
            Some(timeout) => limit(timeout)?.and_then(|limit| Instant::now().checked_add(limit)),
            None => None,
        };
        if !self.sleep(py, deadline)? {
            let class = py.import("subprocess")?.getattr("TimeoutExpired")?;
            return Err(PyErr::from_value(class.call1((&self.program, timeout))?));
        }
        let status = py.detach(|| self.lock().wait()).map_err(|error| self.error(py, error))?;
        Ok(code(status))
    }

    /// Waits until the program has been executed, or raises the error that prevented it. Only needed after `launch`.
    fn wait_exec(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let there = py.detach(|| self.lock().wait_exec_timeout(POLL_INTERVAL));
            if there.map_err(|error| self.error(py, error))? {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Whether the program has been executed; raises the error that prevented it. Waits up to `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn has_executed(&self, py: Python<'_>, timeout: Option<Bound<'_, PyAny>>) -> PyResult<bool> {
        let limit = timeout.as_ref().map_or(Ok(Duration::ZERO), seconds)?;
        let deadline = Instant::now().checked_add(limit);
        loop {
            // In short steps: signal handlers run in between, and other threads get the lock, with which they hold the GIL.
            let left = deadline.map_or(POLL_INTERVAL, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(POLL_INTERVAL)
            });
            let there = py.detach(|| self.lock().wait_exec_timeout(left)).map_err(|error| self.error(py, error))?;
            if there || left.is_zero() {
                return Ok(there);
            }
            py.check_signals()?;
        }
    }

    /// Sends a signal. Does nothing if the child has ended.
    fn send_signal(&self, py: Python<'_>, signal: Int<i32>) -> PyResult<()> {
        self.lock().signal(signal.0).map_err(|error| self.signal_error(py, error))
    }

    /// Sends SIGTERM.
    fn terminate(&self, py: Python<'_>) -> PyResult<()> {
        self.send_signal(py, Int(libc::SIGTERM))
    }

    /// Sends SIGKILL.
    fn kill(&self, py: Python<'_>) -> PyResult<()> {
        self.send_signal(py, Int(libc::SIGKILL))
    }

    /// Sends a signal to the process group that the child leads (process_group=0 or start_new_session=True).
    fn signal_group(&self, py: Python<'_>, signal: Int<i32>) -> PyResult<()> {
        self.lock().signal_group(signal.0).map_err(|error| self.signal_error(py, error))
    }

    /// The resources that the child used, once it has been waited for: a dict of seconds, KiB and counts.
    #[getter]
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.lock().usage().map(|usage| dict(py, usage)).transpose()
    }

    /// How often the child, with all that it has started, has reached its limits: a dict, once it has been waited for. None without limits.
    #[getter]
    fn limit_events(&self) -> Option<BTreeMap<&'static str, u64>> {
        let events = self.lock().limit_events()?;
        let all = [("oom_kills", events.oom_kills), ("memory_max", events.memory_max), ("tasks_max", events.tasks_max)];
        Some(all.into())
    }

    /// The messages of the `best_effort` steps that failed.
    #[getter]
    fn skipped(&self) -> Vec<String> {
        self.lock().skipped().iter().map(ToString::to_string).collect()
    }

    /// A description of how the child was launched.
    #[getter]
    fn route(&self) -> String {
        self.lock().route().to_string()
    }

    /// Why the launch was not warm. None if it was, or if it was not to be.
    #[getter]
    fn cold_reason(&self) -> Option<String> {
        self.lock().cold_reason().map(str::to_owned)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes the pipes and waits for the child.
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<Bound<'_, PyType>>,
        _value: Option<Bound<'_, PyAny>>,
        _trace: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        for file in [&self.stdin, &self.stdout, &self.stderr].into_iter().flatten() {
            file.call_method0(py, "close")?;
        }
        self.wait(py, None).map(|_| ())
    }

    fn __repr__(&self) -> String {
        format!("<forkless.Child pid={}>", self.pid)
    }
}

pub(crate) fn dict<'py>(py: Python<'py>, usage: &Usage) -> PyResult<Bound<'py, PyDict>> {
    let made = PyDict::new(py);
    made.set_item("wall_time", usage.wall_time.as_secs_f64())?;
    made.set_item("user_time", usage.user_time.as_secs_f64())?;
    made.set_item("system_time", usage.system_time.as_secs_f64())?;
    made.set_item("max_rss_kib", usage.max_rss_kib)?;
    made.set_item("minor_faults", usage.minor_faults)?;
    made.set_item("major_faults", usage.major_faults)?;
    made.set_item("blocks_in", usage.blocks_in)?;
    made.set_item("blocks_out", usage.blocks_out)?;
    made.set_item("voluntary_switches", usage.voluntary_switches)?;
    made.set_item("involuntary_switches", usage.involuntary_switches)?;
    Ok(made)
}
