//! Converts Python values: paths, descriptors, numbers.

use crate::error::of_errno;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};
use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

/// `subprocess.PIPE`.
pub(crate) const PIPE: i32 = -1;
/// `subprocess.STDOUT`.
pub(crate) const STDOUT: i32 = -2;
/// `subprocess.DEVNULL`.
pub(crate) const DEVNULL: i32 = -3;

/// The bytes that `os.fsencode` returns for a str, bytes or path-like object. A NUL byte is a `ValueError`.
pub(crate) struct Text<'py>(Bound<'py, PyBytes>);

impl Text<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(crate) fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(self.0.as_bytes())
    }
}

impl AsRef<OsStr> for Text<'_> {
    fn as_ref(&self) -> &OsStr {
        self.as_os_str()
    }
}

impl AsRef<Path> for Text<'_> {
    fn as_ref(&self) -> &Path {
        Path::new(self.as_os_str())
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Text<'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let mut bytes: *mut pyo3::ffi::PyObject = null_mut();
        // SAFETY: a live object, and a place to store a pointer to a new object; the GIL is held.
        let good = unsafe { pyo3::ffi::PyUnicode_FSConverter(value.as_ptr(), (&raw mut bytes).cast()) };
        if good == 0 {
            return Err(PyErr::fetch(value.py()));
        }
        // SAFETY: the converter has stored a new reference to a bytes object.
        Ok(Self(unsafe { Bound::from_owned_ptr(value.py(), bytes).cast_into_unchecked() }))
    }
}

/// A C integer. A value out of range is an `OverflowError` that names it.
pub(crate) struct Int<T>(pub(crate) T);

impl<'a, 'py, T: for<'b> FromPyObject<'b, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Int<T> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.extract().map(Self).map_err(|error| match error.is_instance_of::<PyOverflowError>(value.py()) {
            true => out_of_range(&value),
            false => error,
        })
    }
}

/// A flag: as in the standard module, any object stands for its truth value.
pub(crate) struct Flag(pub(crate) bool);

impl<'a, 'py> FromPyObject<'a, 'py> for Flag {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.is_truthy().map(Self)
    }
}

/// The `OverflowError` for a value out of range.
pub(crate) fn out_of_range(value: &Bound<'_, PyAny>) -> PyErr {
    value.repr().map_or_else(|error| error, |value| PyOverflowError::new_err(format!("{value} is out of range")))
}

/// `pass_fds`. The standard module has a single message for all invalid values.
pub(crate) struct Passed(pub(crate) Vec<RawFd>);

impl<'a, 'py> FromPyObject<'a, 'py> for Passed {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let one = |fd: Int<RawFd>| if fd.0 < 0 { Err(bad_fds()) } else { Ok(fd.0) };
        each::<Int<RawFd>>(&value).map_err(|_| bad_fds())?.into_iter().map(one).collect::<PyResult<_>>().map(Self)
    }
}

fn bad_fds() -> PyErr {
    PyValueError::new_err("bad value(s) in fds_to_keep")
}

/// The number of a descriptor: an int, or an object with `fileno()`.
pub(crate) fn number(value: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    if value.is_instance_of::<PyInt>() {
        return value.extract::<Int<RawFd>>().map(|fd| fd.0);
    }
    match value.getattr("fileno") {
        Ok(fileno) => fileno.call0()?.extract::<Int<RawFd>>().map(|fd| fd.0),
        Err(_) => Err(PyTypeError::new_err(format!("expected a file or a file descriptor, not {}", value.repr()?))),
    }
}

/// A descriptor that the plan owns: a duplicate of the given number or file, or a newly opened path.
pub(crate) fn owned(value: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    if let Ok(path) = value.extract::<Text<'_>>() {
        return open(path.as_os_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| of_errno(value.py(), errno.raw_os_error(), Some(value)));
    }
    copy(value.py(), number(value)?)
}

fn copy(py: Python<'_>, fd: RawFd) -> PyResult<OwnedFd> {
    if fd < 0 {
        return Err(PyValueError::new_err(format!("{fd} is not a file descriptor")));
    }
    // SAFETY: not -1, and used for a single call, in which the kernel checks whether it is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(|errno| of_errno(py, errno.raw_os_error(), None))
}

/// An int, or one of `names`, in upper or lower case.
pub(crate) fn named<T: Copy>(value: &Bound<'_, PyAny>, names: &[(&str, i64, T)]) -> PyResult<T> {
    let found = match value.extract::<i64>() {
        Ok(number) => names.iter().find(|(_, code, _)| *code == number),
        Err(_) => {
            let name = value.extract::<String>()?.to_ascii_lowercase();
            names.iter().find(|(known, ..)| *known == name)
        }
    };
    found.map(|(.., one)| *one).ok_or_else(|| {
        let known: Vec<_> = names.iter().map(|(name, ..)| *name).collect();
        PyValueError::new_err(format!("{value} is not one of: {}", known.join(", ")))
    })
}

/// The items of an iterable.
pub(crate) fn each<'py, T>(value: &Bound<'py, PyAny>) -> PyResult<Vec<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    value.try_iter()?.map(|one| one?.extract::<T>().map_err(Into::into)).collect()
}

/// The pairs of a mapping.
pub(crate) fn pairs<'py>(value: &Bound<'py, PyAny>) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    if !value.hasattr("items")? {
        return Err(PyTypeError::new_err("expected a mapping"));
    }
    items(value)
}

/// The same, for a value of which the standard module only calls `items()`.
pub(crate) fn items<'py>(value: &Bound<'py, PyAny>) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    value.call_method0("items")?.try_iter()?.map(|pair| pair?.extract()).collect()
}

/// A number of seconds, finite and not negative.
pub(crate) fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let wrong = |_| PyValueError::new_err(format!("{value} is not a number of seconds, is negative, or is too large"));
    Duration::try_from_secs_f64(value.extract()?).map_err(wrong)
}

/// A timeout as in the standard module: a negative one is zero, and one that is too large, or NaN, is no timeout.
pub(crate) fn timeout(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let seconds: f64 = value.extract()?;
    Ok(if seconds <= 0.0 { Some(Duration::ZERO) } else { Duration::try_from_secs_f64(seconds).ok() })
}

/// A number, or text.
pub(crate) fn amount(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    if value.is_instance_of::<PyBool>() || !is_number && !value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("a number, or a str, is expected"));
    }
    value.str()?.extract()
}
