//! Children cloned ahead.

use crate::child::Child;
use crate::error;
use crate::prepared::Prepared;
use crate::settings::seconds;
use forkless::PoolOptions;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::sync::{Arc, Mutex, PoisonError};

/// Children that are there before they are needed: a launch tells one of them what to do and wakes it. For callers that launch much and must
/// not be held up.
///
/// As a context manager it ends its parked children at the end; else when it is closed or collected.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Pool {
    inner: Mutex<Option<Arc<forkless::Pool>>>,
}

impl Pool {
    fn open(&self) -> PyResult<Arc<forkless::Pool>> {
        let held = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone().ok_or_else(|| pyo3::exceptions::PyValueError::new_err("the pool is closed"))
    }
}

#[pymethods]
impl Pool {
    /// New children are made when no more than `low` are left, until there are `high` (at most 128); they are ended after `idle` seconds
    /// without a launch (None: never).
    #[new]
    #[pyo3(signature = (low=4, high=16, idle=Some(10.0)))]
    fn new(py: Python<'_>, low: usize, high: usize, idle: Option<f64>) -> PyResult<Self> {
        let mut options = PoolOptions::new();
        let idle = idle.map(|idle| seconds(pyo3::types::PyFloat::new(py, idle).as_any())).transpose()?;
        options.marks(low, high).idle(idle);
        let pool = py.detach(|| options.start()).map_err(|error| error::of(py, error, None, None))?;
        Ok(Self { inner: Mutex::new(Some(Arc::new(pool))) })
    }

    /// As `Prepared.launch`.
    fn launch(&self, py: Python<'_>, prepared: &Prepared) -> PyResult<Child> {
        let pool = self.open()?;
        prepared.child(py, move |plan| pool.launch(plan))
    }

    /// As `Prepared.spawn`.
    fn spawn(&self, py: Python<'_>, prepared: &Prepared) -> PyResult<Child> {
        let pool = self.open()?;
        prepared.child(py, move |plan| pool.spawn(plan))
    }

    /// Ends the parked children and starts anew: after privileges have been dropped, for one.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let pool = self.open()?;
        py.detach(|| pool.refresh()).map_err(|error| error::of(py, error, None, None))
    }

    /// What the pool has done so far, and has now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.open()?.stats();
        let made = PyDict::new(py);
        made.set_item("parked", stats.parked)?;
        made.set_item("low", stats.low)?;
        made.set_item("high", stats.high)?;
        made.set_item("pooled", stats.pooled)?;
        made.set_item("empty", stats.empty)?;
        made.set_item("differed", stats.differed)?;
        made.set_item("unfit", stats.unfit)?;
        made.set_item("lost", stats.lost)?;
        made.set_item("renewals", stats.renewals)?;
        made.set_item("failures", stats.failures)?;
        made.set_item("last_errno", stats.last_errno)?;
        made.set_item("refiller", stats.refiller)?;
        Ok(made)
    }

    /// Ends the parked children; launches raise ValueError from now on.
    fn close(&self, py: Python<'_>) {
        let taken = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(taken));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<Bound<'_, PyType>>,
        _value: Option<Bound<'_, PyAny>>,
        _trace: Option<Bound<'_, PyAny>>,
    ) {
        self.close(py);
    }
}
