//! Exceptions: those that `subprocess` raises, with further attributes.

use crate::convert::{self, Text};
use forkless::{Error, Step};
use pyo3::exceptions::{
    PyBaseException, PyIndexError, PyOSError, PyOverflowError, PyTypeError, PyUnicodeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::io;

/// The `OSError` with errno, message and file name, from which Python selects the class (`FileNotFoundError` …).
/// `program`: as the caller named it; `directory`: `cwd`, if given.
pub(crate) fn of(
    py: Python<'_>,
    error: io::Error,
    program: Option<&Bound<'_, PyAny>>,
    directory: Option<&Bound<'_, PyAny>>,
) -> PyErr {
    let Some(detail) = Error::of(&error) else {
        let made = plain(py, error);
        tell(py, &made, program, WAIT, None);
        return made;
    };
    let made = match (detail.errno(), detail.step()) {
        // As in the standard module, the file name is the program, the directory, or missing.
        (Some(errno), Step::Exec) => of_errno(py, errno, program),
        (Some(errno), Step::Chdir) => of_errno(py, errno, directory),
        (Some(errno), _) => of_errno(py, errno, None),
        (None, Step::Check) => PyValueError::new_err(in_python(&detail.to_string())),
        (None, _) => subprocess_error(py, detail),
    };
    // Without these attributes it is still the right error.
    let _ = describe(py, &made, detail, program);
    made
}

/// The exception for an error outside a launch.
pub(crate) fn plain(py: Python<'_>, error: io::Error) -> PyErr {
    if let Some(errno) = error.raw_os_error() {
        return of_errno(py, errno, None);
    }
    let words = in_python(&error.to_string());
    // Some errors of the library have a text instead of an errno. Python selects the class by the errno.
    let errno = match error.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => return PyOSError::new_err(words),
    };
    // Python shows the errno itself.
    let words = words.strip_suffix(&format!(" (os error {errno})")).unwrap_or(&words).to_owned();
    PyOSError::new_err((errno, words))
}

/// The `OSError` for an errno, as `os` raises it.
pub(crate) fn of_errno(py: Python<'_>, errno: i32, name: Option<&Bound<'_, PyAny>>) -> PyErr {
    let words = py.import("os").and_then(|os| os.call_method1("strerror", (errno,))).map(Bound::unbind);
    match (words, name) {
        (Ok(words), Some(name)) => PyOSError::new_err((errno, words, name.clone().unbind())),
        (Ok(words), None) => PyOSError::new_err((errno, words)),
        (Err(error), _) => error,
    }
}

/// The exception for errors without an errno, such as a child that was killed before it could run the program.
fn subprocess_error(py: Python<'_>, detail: &Error) -> PyErr {
    let class = py.import("subprocess").and_then(|module| module.getattr("SubprocessError"));
    match class.and_then(|class| class.call1((in_python(&detail.to_string()),))) {
        Ok(made) => PyErr::from_value(made),
        Err(error) => error,
    }
}

/// Adds `step`, `program`, `object` and `detail`, and a note if the message alone does not tell the step and the reason.
fn describe(py: Python<'_>, made: &PyErr, detail: &Error, program: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let (value, words) = (made.value(py), in_python(&detail.to_string()));
    value.setattr("step", detail.step().describe())?;
    value.setattr("program", program)?;
    value.setattr("object", detail.object())?;
    value.setattr("detail", &words)?;
    // A reason is in parentheses at the end.
    let is_plain = match detail.step() {
        Step::Check => true,
        Step::Exec | Step::Chdir => !words.ends_with(')'),
        _ => false,
    };
    if !is_plain && value.hasattr("add_note")? {
        value.call_method1("add_note", (words,))?;
    }
    Ok(())
}

/// The step of errors while waiting.
const WAIT: &str = "wait";
/// The step of errors while sending a signal.
pub(crate) const SIGNAL: &str = "send the signal";

/// As [`describe`], for an error that the library did not raise. Existing attributes are kept. `detail` is only set once the
/// program is known.
pub(crate) fn tell(py: Python<'_>, made: &PyErr, program: Option<&Bound<'_, PyAny>>, step: &str, object: Option<&str>) {
    // Without these attributes it is still the right error.
    let _ = try_to_tell(made.value(py), program, step, object);
}

fn try_to_tell(
    error: &Bound<'_, PyBaseException>,
    program: Option<&Bound<'_, PyAny>>,
    step: &str,
    object: Option<&str>,
) -> PyResult<()> {
    let had = |name: &str| Ok::<_, PyErr>(error.getattr_opt(name)?.filter(|had| !had.is_none()));
    let text = |name: &str| Ok::<_, PyErr>(had(name)?.and_then(|had| had.extract::<String>().ok()));
    if had("detail")?.is_some() {
        return Ok(());
    }
    let step = text("step")?.unwrap_or_else(|| step.to_owned());
    let object = text("object")?.or_else(|| object.map(str::to_owned));
    error.setattr("step", &step)?;
    // UnicodeError already has an attribute `object`: what could not be encoded.
    if !error.is_instance_of::<PyUnicodeError>() {
        error.setattr("object", &object)?;
    }
    error.setattr("program", program)?;
    let Some(program) = program else { return Ok(()) };
    let begin = if [WAIT, SIGNAL].contains(&&*step) { "" } else { "failed to start " };
    let name = match program.extract::<Text<'_>>() {
        Ok(text) => escapes(&format!("{:?}", text.as_os_str())),
        Err(_) => program.to_string(),
    };
    let at = match object {
        _ if step == Step::Check.describe() => String::new(),
        Some(object) => format!("{step} {object}: "),
        None => format!("{step}: "),
    };
    let said = had("strerror")?.unwrap_or_else(|| error.as_any().clone());
    error.setattr("detail", format!("{begin}{name}: {at}{said}"))
}

/// Adds the setting's name to an error in its value.
pub(crate) fn of_setting(name: &str, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = value.py();
    let is = |class: Bound<'_, PyType>| error.get_type(py).is(&class);
    let said = error.value(py);
    if is(py.get_type::<PyOverflowError>()) {
        PyOverflowError::new_err(format!("{name}: {}", convert::out_of_range(value).value(py)))
    } else if is(py.get_type::<PyTypeError>()) {
        PyTypeError::new_err(format!("{name}: {said}"))
    } else if is(py.get_type::<PyValueError>()) || is(py.get_type::<PyIndexError>()) {
        PyValueError::new_err(format!("{name}: {said}"))
    } else {
        tell(py, &error, None, Step::Check.describe(), Some(name));
        error
    }
}

/// Replaces names of the Rust library in a message with the keywords of Python.
pub(crate) fn in_python(words: &str) -> String {
    const NAMES: [(&str, &str); 10] = [
        ("process_group(0)", "process_group=0"),
        ("setsid(true)", "start_new_session=True"),
        ("inherit_all(true)", "close_fds=False"),
        ("unshare(Namespace::User)", "unshare=['user']"),
        ("unshare(Namespace::Mount)", "unshare=['mount']"),
        ("unshare(Namespace::Uts)", "unshare=['uts']"),
        ("Launcher::Clone", "launcher='clone'"),
        ("Launcher::Fork", "launcher='fork'"),
        ("Launcher::PosixSpawn", "launcher='posix_spawn'"),
        ("; Command::pidfd(true) keeps the status", ""),
    ];
    escapes(&NAMES.iter().fold(words.to_owned(), |words, (theirs, ours)| words.replace(theirs, ours)))
}

/// Converts `\u{200b}` in quoted names to Python's escapes.
fn escapes(words: &str) -> String {
    let (mut made, mut rest) = (String::new(), words);
    while let Some(at) = rest.find('\\') {
        made.push_str(&rest[..at]);
        let escape = &rest[at..];
        let code = escape.strip_prefix("\\u{").and_then(|digits| digits.split_once('}'));
        rest = match code.and_then(|(digits, rest)| Some((u32::from_str_radix(digits, 16).ok()?, rest))) {
            Some((code, rest)) => {
                made.push_str(&match code {
                    ..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
                rest
            }
            // Another escape, of two characters, of which the second may be a backslash.
            None => {
                let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
                made.push_str(&escape[..end]);
                &escape[end..]
            }
        };
    }
    made + rest
}

/// Adds `step`, `program`, `object` and `detail` to an exception that was raised before the launch.
#[pyfunction(name = "tell")]
#[pyo3(signature = (error, program, step="check"))]
pub(crate) fn tell_of(py: Python<'_>, error: Bound<'_, PyAny>, program: Option<Bound<'_, PyAny>>, step: &str) {
    tell(py, &PyErr::from_value(error), program.as_ref(), step, None);
}
