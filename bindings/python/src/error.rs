//! Errors as Python's callers of `subprocess` expect them, with what forkless knows beside.

use forkless::{Error, Step};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::io;

/// `OSError` with errno, message and file name, which makes Python choose the class (`FileNotFoundError` …). `program`: as the caller gave
/// it; `directory`: `cwd`, if there is one.
pub(crate) fn of(
    py: Python<'_>,
    error: io::Error,
    program: Option<&Bound<'_, PyAny>>,
    directory: Option<&Bound<'_, PyAny>>,
) -> PyErr {
    let Some(detail) = Error::of(&error) else { return plain(py, error) };
    let made = match (detail.errno(), detail.step()) {
        // As the standard module names them: the program, the directory, or neither.
        (Some(errno), Step::Exec) => of_errno(py, errno, program),
        (Some(errno), Step::Chdir) => of_errno(py, errno, directory),
        (Some(errno), _) => of_errno(py, errno, None),
        (None, Step::Check) => PyValueError::new_err(detail.to_string()),
        (None, _) => subprocess_error(py, detail),
    };
    // Without these it is still the right error.
    let _ = describe(py, &made, detail, program);
    made
}

/// One that is not of a launch.
pub(crate) fn plain(py: Python<'_>, error: io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(errno) => of_errno(py, errno, None),
        None => error.into(),
    }
}

/// An `OSError` by number, as `os` raises them.
pub(crate) fn of_errno(py: Python<'_>, errno: i32, name: Option<&Bound<'_, PyAny>>) -> PyErr {
    let words = py.import("os").and_then(|os| os.call_method1("strerror", (errno,))).map(Bound::unbind);
    match (words, name) {
        (Ok(words), Some(name)) => PyOSError::new_err((errno, words, name.clone().unbind())),
        (Ok(words), None) => PyOSError::new_err((errno, words)),
        (Err(error), _) => error,
    }
}

/// The child was killed before it could run the program, and the like.
fn subprocess_error(py: Python<'_>, detail: &Error) -> PyErr {
    let class = py.import("subprocess").and_then(|module| module.getattr("SubprocessError"));
    match class.and_then(|class| class.call1((detail.to_string(),))) {
        Ok(made) => PyErr::from_value(made),
        Err(error) => error,
    }
}

/// `step`, `program`, `object` and `detail`; and a note, where the message alone would not tell the step.
fn describe(py: Python<'_>, made: &PyErr, detail: &Error, program: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let value = made.value(py);
    value.setattr("step", detail.step().words())?;
    value.setattr("program", program)?;
    value.setattr("object", detail.object())?;
    value.setattr("detail", detail.to_string())?;
    let is_plain = matches!(detail.step(), Step::Exec | Step::Chdir | Step::Check);
    if !is_plain && value.hasattr("add_note")? {
        value.call_method1("add_note", (detail.to_string(),))?;
    }
    Ok(())
}
