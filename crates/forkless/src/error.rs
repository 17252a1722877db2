//! Errors of a launch: which program, which step, on what, and why.

use crate::step::Step;
use forkless_core::sys::errno;
use forkless_core::sys::signal::SIGSYS;
use std::error::Error as StdError;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::sync::Arc;

/// An error of a launch.
///
/// The functions of this crate return [`io::Error`], like `std::process`, with the [`kind`](io::Error::kind) of the
/// errno. This type is inside of it: [`Error::of`] returns it.
///
/// ```
/// let error = forkless::Command::new("no-such-program").spawn().unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// let detail = forkless::Error::of(&error).unwrap();
/// assert_eq!(detail.step(), forkless::Step::Exec);
/// assert_eq!(detail.errno(), Some(2));
/// ```
#[derive(Clone)]
pub struct Error(Arc<ErrorParts>);

#[derive(Clone)]
struct ErrorParts {
    program: OsString,
    step: Step,
    object: Option<String>,
    errno: Option<i32>,
    /// The signal that killed the child.
    signal: Option<i32>,
    note: Option<String>,
}

impl Error {
    pub(crate) fn new(program: &OsStr, step: Step, errno: i32) -> Self {
        let limit = match errno {
            errno::EMFILE => Some("RLIMIT_NOFILE is reached"),
            errno::ENFILE => Some("the system's limit of open files is reached: fs.file-max"),
            _ => None,
        };
        Self::with(program, step, Some(errno), limit.map(Into::into))
    }

    /// The child ended without a report: something killed it.
    pub(crate) fn killed(program: &OsStr, step: Step) -> Self {
        Self::without_errno(program, step, "the child was killed before it could run the program")
    }

    /// A step that failed for a reason that has no errno.
    pub(crate) fn without_errno(program: &OsStr, step: Step, why: impl Into<String>) -> Self {
        Self::with(program, step, None, Some(why.into()))
    }

    /// Invalid input, found before any system call.
    pub(crate) fn check(program: &OsStr, what: impl Into<String>) -> Self {
        Self::without_errno(program, Step::Check, what)
    }

    fn with(program: &OsStr, step: Step, errno: Option<i32>, note: Option<String>) -> Self {
        Self(Arc::new(ErrorParts { program: program.into(), step, object: None, errno, signal: None, note }))
    }

    /// The signal that killed the child.
    pub(crate) fn by(self, signal: Option<i32>) -> Self {
        self.change(|inner| inner.signal = signal)
    }

    /// The thing on which the step failed.
    pub(crate) fn on(self, object: impl Into<String>) -> Self {
        self.change(|inner| inner.object = Some(object.into()))
    }

    /// The same error for another program name.
    #[cfg(feature = "sandbox")]
    pub(crate) fn of_program(&self, name: &str) -> Self {
        self.clone().change(|inner| inner.program = name.into())
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        self.change(|inner| inner.note = Some(note.into()))
    }

    fn change(self, how: impl FnOnce(&mut ErrorParts)) -> Self {
        let mut inner = self.0;
        how(Arc::make_mut(&mut inner));
        Self(inner)
    }

    /// The launch error inside an [`io::Error`] that this crate returned. `None` if the `io::Error` is about something
    /// else.
    ///
    /// ```
    /// let error = forkless::Command::new("no-such-program").spawn().unwrap_err();
    /// assert!(forkless::Error::of(&error).is_some());
    /// assert!(forkless::Error::of(&std::io::Error::other("reason")).is_none());
    /// ```
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The program, as it was given to [`Command::new`](crate::Command::new).
    ///
    /// ```
    /// let error = forkless::Command::new("no-such-program").spawn().unwrap_err();
    /// assert_eq!(forkless::Error::of(&error).unwrap().program(), "no-such-program");
    /// ```
    pub fn program(&self) -> &OsStr {
        &self.0.program
    }

    /// The step that failed.
    ///
    /// ```
    /// use forkless::{Command, Error, Step};
    /// let error = Command::new("true").current_dir("/no/such/directory").spawn().unwrap_err();
    /// assert_eq!(Error::of(&error).map(Error::step), Some(Step::Chdir));
    /// ```
    pub fn step(&self) -> Step {
        self.0.step
    }

    /// The thing that the step failed on: a path, a descriptor, a group.
    ///
    /// ```
    /// use forkless::{Command, Error};
    /// let error = Command::new("true").current_dir("/no/such/directory").spawn().unwrap_err();
    /// let object = Error::of(&error).and_then(Error::object).unwrap();
    /// assert!(object.contains("/no/such/directory"));
    /// ```
    pub fn object(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// The errno of the system call that failed. `None` if the request itself was invalid, or the child was killed.
    ///
    /// ```
    /// use forkless::{Command, Error};
    /// let error = Command::new("no-such-program").spawn().unwrap_err();
    /// assert_eq!(Error::of(&error).and_then(Error::errno), Some(2)); // ENOENT
    /// ```
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }

    /// The signal that killed the child before it could run the program, if that was the failure and the signal is
    /// known.
    ///
    /// ```
    /// let error = forkless::Command::new("no-such-program").spawn().unwrap_err();
    /// if let Some(signal) = forkless::Error::of(&error).and_then(forkless::Error::signal) {
    ///     eprintln!("killed by signal {signal}, as by a seccomp filter");
    /// }
    /// ```
    pub fn signal(&self) -> Option<i32> {
        self.0.signal
    }

    /// The kind of the errno; `InvalidInput` if the request itself was invalid, `Other` if the child was killed.
    ///
    /// ```
    /// use forkless::{Command, Error};
    /// use std::io::ErrorKind;
    /// let error = Command::new("no-such-program").spawn().unwrap_err();
    /// assert_eq!(Error::of(&error).map(Error::kind), Some(ErrorKind::NotFound));
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// ```
    pub fn kind(&self) -> io::ErrorKind {
        match (self.0.errno, self.0.step) {
            (Some(errno), _) => io::Error::from_raw_os_error(errno).kind(),
            (None, Step::Check) => io::ErrorKind::InvalidInput,
            (None, _) => io::ErrorKind::Other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorParts { program, step, object, errno, signal, note } = &*self.0;
        match step {
            Step::Wait => write!(out, "failed to wait for {program:?}")?,
            _ => write!(out, "failed to start {program:?}")?,
        }
        if !matches!(step, Step::Check | Step::Wait) {
            write!(out, ": {}", step.describe())?;
        }
        if let Some(object) = object {
            write!(out, " {object}")?;
        }
        if let Some(errno) = errno {
            write!(out, ": {}", errno_words(*errno))?;
        }
        match (note, errno) {
            (Some(note), None) => write!(out, ": {note}")?,
            (Some(note), Some(_)) => write!(out, " ({note})")?,
            (None, _) => {}
        }
        match signal {
            None => Ok(()),
            Some(SIGSYS) => write!(out, ", by SIGSYS, the signal of a seccomp filter"),
            Some(signal) => write!(out, ", by signal {signal}"),
        }
    }
}

/// An error with another message; [`errno`] still returns its errno.
pub(crate) fn reworded(error: io::Error, words: String) -> io::Error {
    io::Error::new(error.kind(), Reworded { words, error })
}

/// The errno of an error of this crate, whatever its message.
#[doc(hidden)]
pub fn errno(error: &io::Error) -> Option<i32> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Reworded>());
    match (error.raw_os_error(), inner, Error::of(error)) {
        (Some(errno), ..) => Some(errno),
        (None, Some(inner), _) => errno(&inner.error),
        (None, None, detail) => detail.and_then(Error::errno),
    }
}

#[derive(Debug)]
struct Reworded {
    words: String,
    error: io::Error,
}

impl fmt::Display for Reworded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.words)
    }
}

// No source(): the new message contains the old one.
impl StdError for Reworded {}

/// The message of strerror(3), without the number that `io::Error` appends.
fn errno_words(errno: i32) -> String {
    let words = io::Error::from_raw_os_error(errno).to_string();
    match words.strip_suffix(&format!(" (os error {errno})")) {
        Some(short) => short.to_owned(),
        None => words,
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorParts { program, step, object, errno, signal, note } = &*self.0;
        out.debug_struct("Error")
            .field("program", program)
            .field("step", step)
            .field("object", object)
            .field("errno", errno)
            .field("signal", signal)
            .field("note", note)
            .finish()
    }
}

impl StdError for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_found_behind_any_words() {
        let plain = || io::Error::from_raw_os_error(17);
        assert_eq!(errno(&plain()), Some(17));
        let twice = reworded(reworded(plain(), "one".into()), "two".into());
        assert_eq!((errno(&twice), twice.kind(), twice.to_string()), (Some(17), plain().kind(), "two".into()));
        assert_eq!(errno(&Error::new(OsStr::new("x"), Step::Exec, 2).into()), Some(2));
        assert_eq!(errno(&Error::check(OsStr::new("x"), "why").into()), None);
        assert_eq!(errno(&io::Error::other("why")), None);
    }
}
