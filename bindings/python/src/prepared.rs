//! `forkless.Prepared`: a prepared command.

use crate::child::Child;
use crate::convert::{Flag, Int, PIPE, Passed};
use crate::request::{Names, Request};
use crate::run::{completed, reap_abandoned, to_the_end};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A command that is run several times: the work that is the same for all runs has been done. Returned by `prepare()`.
/// Several threads may run it at once.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Prepared {
    /// For handles, which wait by a pidfd.
    handled: forkless::Prepared,
    /// For calls that wait at once and need no pidfd.
    waited: forkless::Prepared,
    program: Py<PyAny>,
    directory: Option<Py<PyAny>>,
    args: Py<PyAny>,
    /// Whether standard input is a pipe.
    is_fed: bool,
}

/// Makes a plan. `streams`: as for `run`; each run gets new pipes.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the list is that of subprocess")]
pub(crate) fn prepare<'py>(
    args: &Bound<'py, PyAny>,
    executable: Option<Bound<'py, PyAny>>,
    streams: [Option<Int<i32>>; 3],
    pass_fds: Passed,
    cwd: Option<Bound<'py, PyAny>>,
    env: Option<Bound<'py, PyAny>>,
    start_new_session: Flag,
    process_group: Option<Int<i32>>,
    settings: Option<&Bound<'py, PyDict>>,
) -> PyResult<Prepared> {
    let mut request = Request::new(args, executable, env.as_ref())?;
    request.signals(true);
    request.directory(cwd, false)?;
    request.environment(env.as_ref())?;
    let streams = streams.map(|what| what.map(|what| what.0));
    request.streams(streams, &pass_fds.0)?;
    request.groups(start_new_session.0, process_group.map(|group| group.0));
    request.settings(settings)?;
    let plan = |request: &mut Request<'py>, pidfd: bool| {
        request.command.pidfd(pidfd).prepare().map_err(|error| request.names.error(error))
    };
    let (handled, waited) = (plan(&mut request, true)?, plan(&mut request, crate::spawn::is_status_lost())?);
    let is_fed = streams[0] == Some(PIPE);
    let Names { program, directory } = request.names;
    Ok(Prepared {
        handled,
        waited,
        program: program.unbind(),
        directory: directory.map(Bound::unbind),
        args: args.clone().unbind(),
        is_fed,
    })
}

/// Launches a program once. Returns a handle with a pidfd, for event loops, as soon as the child exists; see
/// `has_executed`.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the list is that of subprocess")]
pub(crate) fn start<'py>(
    py: Python<'py>,
    args: &Bound<'py, PyAny>,
    executable: Option<Bound<'py, PyAny>>,
    streams: [Option<Int<i32>>; 3],
    close_fds: bool,
    pass_fds: Passed,
    cwd: Option<Bound<'py, PyAny>>,
    env: Option<Bound<'py, PyAny>>,
    restore_signals: bool,
    start_new_session: bool,
    process_group: Option<Int<i32>>,
    settings: Option<&Bound<'py, PyDict>>,
) -> PyResult<Child> {
    let mut request = Request::new(args, executable, env.as_ref())?;
    request.signals(restore_signals);
    request.directory(cwd, false)?;
    request.environment(env.as_ref())?;
    request.streams(streams.map(|what| what.map(|what| what.0)), &pass_fds.0)?;
    request.groups(start_new_session, process_group.map(|group| group.0));
    // A warm launch is over when it returns, and has no exec that would close a pipe.
    let is_warm = settings.map_or(Ok(false), |settings| settings.contains("warm"))?;
    request.command.inherit_all(!close_fds).pidfd(true).exec_pipe(!is_warm);
    request.settings(settings)?;
    let (prepared, names) = request.prepare()?;
    reap_abandoned(py)?;
    let start = || if is_warm { prepared.spawn() } else { prepared.launch() };
    let child = py.detach(start).map_err(|error| names.error(error))?;
    Child::with_files(py, child, names)
}

impl Prepared {
    /// The plan of handles.
    pub(crate) fn plan(&self) -> &forkless::Prepared {
        &self.handled
    }

    pub(crate) fn names<'py>(&self, py: Python<'py>) -> Names<'py> {
        let directory = self.directory.as_ref().map(|directory| directory.bind(py).clone());
        Names { program: self.program.bind(py).clone(), directory }
    }

    /// The handle of the child that `start` starts.
    pub(crate) fn child(
        &self,
        py: Python<'_>,
        start: impl FnOnce(&forkless::Prepared) -> std::io::Result<forkless::Child> + Send,
    ) -> PyResult<Child> {
        reap_abandoned(py)?;
        let child = py.detach(|| start(&self.handled)).map_err(|error| self.names(py).error(error))?;
        Child::with_files(py, child, self.names(py))
    }
}

#[pymethods]
impl Prepared {
    /// Starts the program and returns when it has been executed.
    fn spawn(&self, py: Python<'_>) -> PyResult<Child> {
        self.child(py, forkless::Prepared::spawn)
    }

    /// Starts the program and returns as soon as the child exists. `wait_exec()` and `wait()` raise an error if it
    /// could not be executed.
    fn launch(&self, py: Python<'_>) -> PyResult<Child> {
        self.child(py, forkless::Prepared::launch)
    }

    /// Runs the program, writes its input, reads its pipes and waits for its end. Returns a
    /// `subprocess.CompletedProcess`.
    #[pyo3(signature = (input=None, check=false))]
    fn run<'py>(&self, py: Python<'py>, input: Option<&[u8]>, check: bool) -> PyResult<Bound<'py, PyAny>> {
        if input.is_some() && !self.is_fed {
            return Err(PyValueError::new_err("input needs stdin=PIPE in prepare()"));
        }
        reap_abandoned(py)?;
        let finished = to_the_end(py, &self.waited, &self.names(py), input)?;
        let completed = completed(py, self.args.bind(py), finished)?;
        if check {
            completed.call_method0("check_returncode")?;
        }
        Ok(completed)
    }

    /// Describes the steps of the child.
    fn steps(&self) -> Vec<String> {
        self.handled.steps()
    }

    /// The arguments, as given by the caller.
    #[getter]
    fn args(&self, py: Python<'_>) -> Py<PyAny> {
        self.args.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<forkless.Prepared {}>", self.args.bind(py).repr()?))
    }
}
