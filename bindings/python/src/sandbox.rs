//! `forkless.Sandbox`: what programs that are not trusted may do.

use crate::convert::{Text, each};
use crate::error;
use forkless::{Command, Network, PreparedSandbox, Sandbox as Builder};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// What a program may do, for the keyword `sandbox`. Any number of launches and threads may use it.
///
/// mode: "landlock", a sandbox of Landlock and a filter of system calls, without namespaces. read, write: paths that the program may
/// read, or also write to, with all below them; the system's programs and libraries can be read. network: "refused" or "host".
/// keep_env: names of variables to inherit beside PATH, HOME, TERM, LANG and the like. change_attributes: whether it may change
/// modes, owners and times, which then holds for every file of its user. See docs/sandbox.md.
///
/// Raises OSError if the kernel has no Landlock of Linux 6.2, or if a path does not exist.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Sandbox {
    prepared: PreparedSandbox,
    repr: String,
}

#[pymethods]
impl Sandbox {
    #[new]
    #[pyo3(signature = (*, mode, read=None, write=None, network="refused", keep_env=None, change_attributes=false))]
    fn new(
        py: Python<'_>,
        mode: &str,
        read: Option<Bound<'_, PyAny>>,
        write: Option<Bound<'_, PyAny>>,
        network: &str,
        keep_env: Option<Bound<'_, PyAny>>,
        change_attributes: bool,
    ) -> PyResult<Self> {
        if mode != "landlock" {
            return Err(PyValueError::new_err(format!("mode: expected 'landlock', not {mode:?}")));
        }
        let network = match network {
            "refused" => Network::Refused,
            "host" => Network::Host,
            other => {
                return Err(PyValueError::new_err(format!("network: expected 'refused' or 'host', not {other:?}")));
            }
        };
        let (read, write, names) = (texts(read)?, texts(write)?, texts(keep_env)?);
        let mut sandbox = Builder::landlock();
        for path in &read {
            sandbox.read(path.as_os_str());
        }
        for path in &write {
            sandbox.write(path.as_os_str());
        }
        for name in &names {
            sandbox.keep_env(name.as_os_str());
        }
        sandbox.network(network).change_attributes(change_attributes);
        let prepared = py.detach(|| sandbox.prepare()).map_err(|error| error::plain(py, error))?;
        let list = |texts: &[Text<'_>]| texts.iter().map(|text| text.as_os_str().to_owned()).collect::<Vec<_>>();
        let repr = format!("<forkless.Sandbox mode='landlock' read={:?} write={:?}>", list(&read), list(&write));
        Ok(Self { prepared, repr })
    }

    fn __repr__(&self) -> &str {
        &self.repr
    }
}

/// One text or path, or an iterable of them.
fn texts<'py>(value: Option<Bound<'py, PyAny>>) -> PyResult<Vec<Text<'py>>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() || value.hasattr("__fspath__")? {
        return Ok(vec![value.extract()?]);
    }
    each(&value)
}

/// The keyword `sandbox`.
pub(crate) fn apply(command: &mut Command, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let sandbox = value.cast::<Sandbox>().map_err(|_| PyTypeError::new_err("expected a forkless.Sandbox"))?;
    command.sandbox(&sandbox.get().prepared);
    Ok(())
}
