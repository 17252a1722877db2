//! `forkless.Warm`: a set of templates of warm programs.

use crate::convert::Text;
use crate::convert::seconds;
use crate::error;
use crate::prepared::Prepared;

use forkless::warm::{self, WarmOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A set of templates, for the keyword `warm`. Experimental: docs/warm.md.
///
/// library: the path of libforkless_warm.so (default: searched for). templates: how many are kept. idle, life: a template ends
/// after so many seconds without a launch, and in any case. launches: a template is replaced after this number.
///
/// The templates end with the last reference to this object, and to the commands that use it. Several threads may use it.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Warm(warm::Warm);

#[pymethods]
impl Warm {
    #[new]
    #[pyo3(signature = (*, library=None, templates=16, idle=None, life=None, launches=100))]
    fn new(
        py: Python<'_>,
        library: Option<Bound<'_, PyAny>>,
        templates: usize,
        idle: Option<Bound<'_, PyAny>>,
        life: Option<Bound<'_, PyAny>>,
        launches: u32,
    ) -> PyResult<Self> {
        let mut options = WarmOptions::new();
        if let Some(library) = library {
            options.library(library.extract::<Text<'_>>()?);
        }
        if let Some(idle) = idle {
            options.idle(seconds(&idle)?);
        }
        if let Some(life) = life {
            options.life(seconds(&life)?);
        }
        options.templates(templates).launches(launches);
        Ok(Self(options.open().map_err(|error| error::plain(py, error))?))
    }

    /// The set that `warm=True` uses.
    #[staticmethod]
    fn of_process(py: Python<'_>) -> PyResult<Self> {
        Ok(Self(warm::Warm::of_process().map_err(|error| error::plain(py, error))?))
    }

    /// Starts the template of a prepared command ahead of its first launch, and waits until it is ready. Returns None, or the
    /// reason why launches of this command are cold.
    fn start(&self, py: Python<'_>, prepared: &Prepared) -> Option<String> {
        py.detach(|| self.0.start(prepared.plan())).err().map(|error| error.to_string())
    }

    /// What it has done so far: a dict of counts.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, made) = (self.0.stats(), PyDict::new(py));
        made.set_item("warm", stats.warm)?;
        made.set_item("cold", stats.cold)?;
        made.set_item("starts", stats.starts)?;
        made.set_item("refusals", stats.refusals)?;
        made.set_item("idle", stats.idle)?;
        made.set_item("crashes", stats.crashes)?;
        Ok(made)
    }

    /// The process IDs of the templates.
    #[getter]
    fn templates(&self) -> Vec<u32> {
        self.0.templates()
    }

    fn __repr__(&self) -> String {
        let stats = self.0.stats();
        format!("<forkless.Warm warm={} cold={}>", stats.warm, stats.cold)
    }
}

/// The keyword `warm`: True, False or a set.
pub(crate) fn apply(command: &mut forkless::Command, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(set) = value.cast::<Warm>() {
        command.warm(&set.get().0);
        return Ok(());
    }
    let Ok(wanted) = value.cast::<PyBool>() else {
        return Err(PyTypeError::new_err("warm: True, False or a forkless.Warm is expected"));
    };
    if wanted.is_true() {
        command.warm(&warm::Warm::of_process().map_err(|error| error::plain(value.py(), error))?);
    }
    Ok(())
}

/// What a set of templates learns of the end of a child that Popen waits for.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Ending(pub(crate) forkless::internal::Ending);

#[pymethods]
impl Ending {
    /// Why the launch was cold, or None.
    #[getter]
    fn cold_reason(&self) -> Option<&str> {
        self.0.cold_reason()
    }

    /// The child has ended with this status of `os.waitpid`.
    fn child_ended(&self, py: Python<'_>, status: i32) {
        // It may wait for the template's end.
        py.detach(|| self.0.child_ended(ExitStatus::from_raw(status)));
    }
}
