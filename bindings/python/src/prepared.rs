//! A command whose plan is made once.

use crate::child::Child;
use crate::convert::{Int, Passed};
use crate::request::{Names, Request};
use crate::run::{completed, reap_abandoned, to_the_end};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A command that is run often: the work that all runs share has been done. From `prepare()`; several threads may run it at once.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Prepared {
    /// For handles, which are waited for by their pidfds.
    handled: forkless::Prepared,
    /// For what waits at once, and needs none.
    waited: forkless::Prepared,
    program: Py<PyAny>,
    directory: Option<Py<PyAny>>,
    args: Py<PyAny>,
}

/// Makes a plan. `streams`: as `run` has them; a pipe is made anew for each run.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the list is that of subprocess")]
pub(crate) fn prepare<'py>(
    args: &Bound<'py, PyAny>,
    executable: Option<Bound<'py, PyAny>>,
    streams: [Option<Int<i32>>; 3],
    pass_fds: Passed,
    cwd: Option<Bound<'py, PyAny>>,
    env: Option<Bound<'py, PyAny>>,
    start_new_session: bool,
    process_group: Option<Int<i32>>,
    settings: Option<&Bound<'py, PyDict>>,
) -> PyResult<Prepared> {
    let mut request = Request::new(args, executable, env.as_ref())?;
    request.signals(true);
    request.directory(cwd, false)?;
    request.environment(env.as_ref())?;
    request.streams(streams.map(|what| what.map(|what| what.0)), &pass_fds.0)?;
    request.groups(start_new_session, process_group.map(|group| group.0));
    request.settings(settings)?;
    let plan = |request: &mut Request<'py>, pidfd: bool| {
        request.command.pidfd(pidfd).prepare().map_err(|error| request.names.error(error))
    };
    let (handled, waited) = (plan(&mut request, true)?, plan(&mut request, crate::spawn::statuses_are_lost())?);
    let Names { program, directory } = request.names;
    Ok(Prepared {
        handled,
        waited,
        program: program.unbind(),
        directory: directory.map(Bound::unbind),
        args: args.clone().unbind(),
    })
}

/// Launches a program once, with a handle that has a pidfd: for event loops. It returns as soon as the child exists; `has_executed` tells.
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
    request.command.inherit_all(!close_fds).pidfd(true);
    request.settings(settings)?;
    let (prepared, names) = request.prepare()?;
    reap_abandoned(py)?;
    let child = py.detach(|| prepared.launch()).map_err(|error| names.error(error))?;
    Child::with_files(py, child, names)
}

impl Prepared {
    pub(crate) fn names<'py>(&self, py: Python<'py>) -> Names<'py> {
        let directory = self.directory.as_ref().map(|directory| directory.bind(py).clone());
        Names { program: self.program.bind(py).clone(), directory }
    }

    /// A handle of a child that `start` starts.
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

    /// Starts the program and returns as soon as the child exists; `wait_exec()` and `wait()` tell if it could not be executed.
    fn launch(&self, py: Python<'_>) -> PyResult<Child> {
        self.child(py, forkless::Prepared::launch)
    }

    /// Runs the program to its end, feeding and reading the pipes: a `subprocess.CompletedProcess`.
    #[pyo3(signature = (input=None, check=false))]
    fn run<'py>(&self, py: Python<'py>, input: Option<&[u8]>, check: bool) -> PyResult<Bound<'py, PyAny>> {
        reap_abandoned(py)?;
        let finished = to_the_end(py, &self.waited, &self.names(py), input)?;
        let completed = completed(py, self.args.bind(py), finished)?;
        if check {
            completed.call_method0("check_returncode")?;
        }
        Ok(completed)
    }

    /// What the child is going to do, step by step, in words.
    fn steps(&self) -> Vec<String> {
        self.handled.steps()
    }

    /// The arguments, as they were given.
    #[getter]
    fn args(&self, py: Python<'_>) -> Py<PyAny> {
        self.args.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<forkless.Prepared {}>", self.args.bind(py).repr()?))
    }
}
