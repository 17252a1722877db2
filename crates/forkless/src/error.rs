//! What went wrong with a launch: which program, which step, on what, and why.

use crate::step::Step;
use forkless_core::planted;
use forkless_core::sys::signal::SIGSYS;
use std::error::Error as StdError;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::sync::Arc;

/// A launch that failed.
///
/// The functions of this crate return [`io::Error`], as `std::process` does, with the
/// [`kind`](io::Error::kind) that belongs to the errno; this type is inside and is had back by [`Error::of`].
///
/// ```
/// let error = forkless::Command::new("no-such-program").spawn().unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// let detail = forkless::Error::of(&error).unwrap();
/// assert_eq!(detail.step(), forkless::Step::Exec);
/// assert_eq!(detail.errno(), Some(2));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    program: OsString,
    step: Step,
    object: Option<String>,
    errno: Option<i32>,
    /// What killed the child.
    signal: Option<i32>,
    note: Option<String>,
}

impl Error {
    pub(crate) fn new(program: &OsStr, step: Step, errno: i32) -> Self {
        Self(Arc::new(Inner {
            program: program.into(),
            step,
            object: None,
            errno: Some(errno),
            signal: None,
            note: None,
        }))
    }

    /// The child ended without a word: something killed it.
    pub(crate) fn killed(program: &OsStr, step: Step) -> Self {
        Self::noted(program, step, "the child was killed before it could run the program")
    }

    /// A failure without an errno.
    pub(crate) fn noted(program: &OsStr, step: Step, note: &str) -> Self {
        Self(Arc::new(Inner {
            program: program.into(),
            step,
            object: None,
            errno: None,
            signal: None,
            note: Some(note.into()),
        }))
    }

    /// A step that failed for a reason that has no errno.
    pub(crate) fn said(program: &OsStr, step: Step, why: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            program: program.into(),
            step,
            object: None,
            errno: None,
            signal: None,
            note: Some(why.into()),
        }))
    }

    /// Bad input, found before any system call.
    pub(crate) fn check(program: &OsStr, what: impl Into<String>) -> Self {
        let inner = Inner {
            program: program.into(),
            step: Step::Check,
            object: None,
            errno: None,
            signal: None,
            note: Some(what.into()),
        };
        Self(Arc::new(inner))
    }

    /// The signal that killed the child.
    pub(crate) fn by(self, signal: Option<i32>) -> Self {
        self.change(|inner| inner.signal = signal)
    }

    /// The thing that the step failed on.
    pub(crate) fn on(self, object: impl Into<String>) -> Self {
        self.change(|inner| inner.object = Some(object.into()))
    }

    /// A remark that helps to act on the error.
    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        self.change(|inner| inner.note = Some(note.into()))
    }

    fn change(self, how: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = self.0;
        if let Some(inner) = Arc::get_mut(&mut inner) {
            how(inner);
        }
        Self(inner)
    }

    /// The launch error inside an [`io::Error`] of this crate, if that is what it holds.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The program as it was asked for.
    pub fn program(&self) -> &OsStr {
        &self.0.program
    }

    /// The step that failed.
    pub fn step(&self) -> Step {
        self.0.step
    }

    /// What it failed on: a path, a descriptor, a group.
    pub fn object(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// The kernel's answer; none where the request itself was at fault, or the child was killed.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }

    /// The signal that killed the child before it could run the program, where that is why it failed and is known.
    pub fn signal(&self) -> Option<i32> {
        self.0.signal
    }

    /// The errno's kind; `InvalidInput` where the request itself was at fault, `Other` where the child was killed.
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
        let Inner { program, step, object, errno, signal, note } = &*self.0;
        match step {
            Step::Wait => write!(out, "lost sight of {program:?}")?,
            _ => write!(out, "failed to start {program:?}")?,
        }
        if *step != Step::Check {
            write!(out, ": {}", step.words())?;
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
            Some(SIGSYS) => write!(out, ", by SIGSYS, with which a seccomp filter kills"),
            Some(signal) => write!(out, ", by signal {signal}"),
        }
    }
}

/// An error in other words, whose errno is still to be had: by [`errno`].
pub(crate) fn reworded(error: io::Error, words: String) -> io::Error {
    io::Error::new(error.kind(), Reworded { words, error })
}

/// The errno that an error of this crate is about, whatever has been said around it.
#[doc(hidden)]
pub fn errno(error: &io::Error) -> Option<i32> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Reworded>());
    match (error.raw_os_error(), inner, Error::of(error)) {
        (Some(errno), ..) => Some(errno),
        (None, Some(_), _) if planted!("errno-lost-behind-words") => None,
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

// No source: its words are among ours already.
impl StdError for Reworded {}

/// The message of strerror(3), without the number that `io::Error` adds.
fn errno_words(errno: i32) -> String {
    let words = io::Error::from_raw_os_error(errno).to_string();
    match words.strip_suffix(&format!(" (os error {errno})")) {
        Some(short) => short.to_owned(),
        None => words,
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { program, step, object, errno, signal: _, note } = &*self.0;
        out.debug_struct("Error")
            .field("program", program)
            .field("step", step)
            .field("object", object)
            .field("errno", errno)
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
