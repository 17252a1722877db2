//! `forkless.Cgroup`: limits of all processes of a program together.

use crate::convert::{Text, timeout as limit};
use crate::error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A new cgroup (version 2) with limits for all processes in it together, for the keyword `cgroup`: cgroups(7).
///
/// parent: the directory of the cgroup to create it in (default: that of this process). memory_max, memory_high, memory_swap_max: bytes, or
/// a text such as "512M". tasks_max: the number of processes and threads. cpu_max: the number of CPUs, such as 1.5. cpu_weight, io_weight: from 1
/// to 10000. io_max: as in io.max, such as "8:16 wbps=1048576".
///
/// As a context manager, and by `close()`, it kills all processes that are left, and is removed. A program that may not write to
/// others, as in a sandbox, cannot leave it.
///
/// Raises OSError if there is no cgroup of version 2, if this process may not create one, or if the parent has not got a controller to hand
/// down, or has processes itself. The error says which.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Cgroup {
    group: Mutex<Option<Arc<forkless::Cgroup>>>,
    path: PathBuf,
}

/// How long a wait sleeps before signal handlers run.
const INTERVAL: Duration = Duration::from_millis(50);

/// The period of `cpu.max`, in microseconds.
const PERIOD: f64 = 100_000.0;

impl Cgroup {
    fn group(&self) -> PyResult<Arc<forkless::Cgroup>> {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        group.clone().ok_or_else(|| PyValueError::new_err("the cgroup has been removed"))
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Send + FnOnce(&forkless::Cgroup) -> std::io::Result<T>,
    ) -> PyResult<T> {
        let group = self.group()?;
        py.detach(|| work(&group)).map_err(|error| error::plain(py, error))
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let Some(group) = self.group.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        py.detach(|| match Arc::try_unwrap(group) {
            Ok(group) => group.end(),
            // Another thread waits for it, and removes it after that.
            Err(group) => group.kill(),
        })
        .map_err(|error| error::plain(py, error))
    }
}

#[pymethods]
impl Cgroup {
    #[new]
    #[pyo3(signature = (parent=None, *, memory_max=None, memory_high=None, memory_swap_max=None, tasks_max=None, cpu_max=None,
        cpu_weight=None, io_weight=None, io_max=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        py: Python<'_>,
        parent: Option<Text<'_>>,
        memory_max: Option<Bound<'_, PyAny>>,
        memory_high: Option<Bound<'_, PyAny>>,
        memory_swap_max: Option<Bound<'_, PyAny>>,
        tasks_max: Option<u64>,
        cpu_max: Option<f64>,
        cpu_weight: Option<u32>,
        io_weight: Option<u32>,
        io_max: Option<String>,
    ) -> PyResult<Self> {
        let mut limits: Vec<(&str, String)> = Vec::new();
        for (file, value) in
            [("memory.max", memory_max), ("memory.high", memory_high), ("memory.swap.max", memory_swap_max)]
        {
            limits.extend(value.map(|value| Ok::<_, PyErr>((file, value.str()?.to_string()))).transpose()?);
        }
        limits.extend(tasks_max.map(|count| ("pids.max", count.to_string())));
        if let Some(cpus) = cpu_max {
            if !(0.01..=1e6).contains(&cpus) {
                return Err(PyValueError::new_err(format!("cpu_max: expected at least 0.01 CPUs, not {cpus}")));
            }
            limits.push(("cpu.max", format!("{} {PERIOD}", (cpus * PERIOD) as u64)));
        }
        limits.extend(cpu_weight.map(|weight| ("cpu.weight", weight.to_string())));
        limits.extend(io_weight.map(|weight| ("io.weight", format!("default {weight}"))));
        limits.extend(io_max.map(|limit| ("io.max", limit)));
        let parent = parent.map(|parent| parent.as_os_str().to_owned());
        let made = py.detach(|| {
            let parent = parent.map_or_else(forkless::Cgroup::delegated, |parent: OsString| Ok(parent.into()))?;
            let limits: Vec<_> = limits.iter().map(|(file, value)| (*file, value.as_str())).collect();
            forkless::Cgroup::with_limits(parent, &limits)
        });
        let group = made.map_err(|error| error::plain(py, error))?;
        let path = group.path().to_owned();
        Ok(Self { group: Mutex::new(Some(Arc::new(group))), path })
    }

    fn __repr__(&self) -> String {
        format!("<forkless.Cgroup {:?}>", self.path)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end(py)
    }

    /// Its directory.
    #[getter]
    fn path(&self) -> OsString {
        self.path.clone().into()
    }

    /// A descriptor of its directory.
    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.group()?.as_fd().as_raw_fd())
    }

    /// The contents of one of its files, such as "memory.current", without the last newline.
    fn get(&self, py: Python<'_>, file: String) -> PyResult<String> {
        self.call(py, |group| group.get(&file))
    }

    /// Writes to one of its files.
    fn set(&self, py: Python<'_>, file: String, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = value.str()?.to_string();
        self.call(py, |group| group.set(&file, &value).map(drop))
    }

    /// A file of names and numbers as a dict, such as "memory.events".
    fn counters(&self, py: Python<'_>, file: String) -> PyResult<BTreeMap<String, u64>> {
        self.call(py, |group| group.counters(&file))
    }

    /// How many of its processes the OOM killer has killed.
    fn oom_kills(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |group| group.oom_kills())
    }

    /// The most memory that it had, in bytes (Linux 5.19).
    fn memory_peak(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |group| group.memory_peak())
    }

    /// The CPU time of its processes, in seconds.
    fn cpu_time(&self, py: Python<'_>) -> PyResult<f64> {
        self.call(py, |group| group.cpu_time()).map(|time| time.as_secs_f64())
    }

    /// Stops all its processes, until `thaw`.
    fn freeze(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |group| group.freeze())
    }

    /// Lets them continue.
    fn thaw(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |group| group.thaw())
    }

    /// Kills all its processes with SIGKILL. None can escape by forking.
    fn kill(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |group| group.kill())
    }

    /// Sends a signal (default: SIGTERM) to all its processes, waits up to `grace` seconds until they have ended, and kills those that are
    /// left. Returns whether none was left.
    #[pyo3(signature = (grace, signal=15))]
    fn terminate(&self, py: Python<'_>, grace: Bound<'_, PyAny>, signal: i32) -> PyResult<bool> {
        limit(&grace)?;
        self.call(py, |group| group.signal(signal))?;
        // Python's handlers of signals run meanwhile.
        if self.wait_empty(py, Some(grace))? {
            return Ok(true);
        }
        self.kill(py)?;
        self.wait_empty(py, None).map(|_| false)
    }

    /// Waits until it has no processes, for `timeout` seconds at most. Returns whether it has none.
    #[pyo3(signature = (timeout=None))]
    fn wait_empty(&self, py: Python<'_>, timeout: Option<Bound<'_, PyAny>>) -> PyResult<bool> {
        let timeout = timeout.as_ref().map_or(Ok(None), limit)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map_or(INTERVAL, |end| end.saturating_duration_since(Instant::now()).min(INTERVAL));
            if self.call(py, |group| group.wait_empty(left))? {
                return Ok(true);
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return Ok(false);
            }
            py.check_signals()?;
        }
    }

    /// Kills all processes that are left, and removes it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py)
    }
}
