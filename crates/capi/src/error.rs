//! Errors, as C functions report them.

use crate::boundary::answer;
use crate::handle::{self, NULL};
use forkless::Step;
use forkless_core::planted;
use libc::{c_char, c_int, size_t};
use std::fmt;
use std::io;

/// `forkless_error`, which the caller allocates: errors need no allocation and no thread-local state.
#[repr(C)]
pub(crate) struct Error {
    step: c_int,
    errnum: c_int,
    pub(crate) message: [c_char; MESSAGE],
}

/// The size of a message, NUL included: `FORKLESS_MESSAGE_SIZE`.
const MESSAGE: usize = 504;

impl Default for Error {
    fn default() -> Self {
        Self { step: 0, errnum: 0, message: [0; MESSAGE] }
    }
}

/// The reason why a function failed.
#[derive(Debug)]
pub enum Failure {
    /// An error of the Rust library.
    Io(io::Error),
    /// An invalid request: an errno and a message.
    Refused(c_int, &'static str),
    /// A bug.
    Panic,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<forkless::Error> for Failure {
    fn from(error: forkless::Error) -> Self {
        Self::Io(error.into())
    }
}

/// An invalid value: EINVAL.
pub fn bad(what: &'static str) -> Failure {
    Failure::Refused(libc::EINVAL, what)
}

impl Failure {
    /// The errno, positive.
    pub fn errno(&self) -> c_int {
        let error = match self {
            Self::Refused(errno, _) => return *errno,
            Self::Panic => return libc::ENOTRECOVERABLE,
            Self::Io(error) => error,
        };
        match (forkless::Error::of(error), forkless::internal::errno(error)) {
            (Some(detail), _) => errno_of(detail),
            (None, Some(errno)) => errno,
            (None, None) => match error.kind() {
                io::ErrorKind::InvalidInput => libc::EINVAL,
                io::ErrorKind::Unsupported => libc::ENOTSUP,
                io::ErrorKind::NotFound => libc::ENOENT,
                io::ErrorKind::PermissionDenied => libc::EACCES,
                io::ErrorKind::OutOfMemory => libc::ENOMEM,
                io::ErrorKind::ResourceBusy => libc::EBUSY,
                io::ErrorKind::TimedOut => libc::ETIMEDOUT,
                _ => libc::EIO,
            },
        }
    }

    fn step(&self) -> c_int {
        match self {
            Self::Io(_) if planted!("c-step-lost") => 0,
            Self::Io(error) => forkless::Error::of(error).map_or(0, |detail| detail.step().code() as c_int),
            Self::Refused(..) => Step::Check.code() as c_int,
            Self::Panic => 0,
        }
    }
}

/// The errno, positive; if the kernel returned none, one with a matching meaning.
fn errno_of(detail: &forkless::Error) -> c_int {
    match (detail.errno(), detail.kind()) {
        (Some(errno), _) => errno,
        (None, io::ErrorKind::InvalidInput) => libc::EINVAL,
        // The child or the zygote was killed before the program ran; or a function of the zygote failed.
        (None, _) => libc::ECANCELED,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(out, "{error}"),
            Self::Refused(_, what) => out.write_str(what),
            Self::Panic => out.write_str("bug in the library: a panic, printed on standard error"),
        }
    }
}

impl Error {
    pub(crate) fn new(failure: &Failure) -> Self {
        let mut error = Self { step: failure.step(), errnum: failure.errno(), message: [0; MESSAGE] };
        handle::put_text(&failure.to_string(), &mut error.message);
        error
    }
}

/// The best-effort step that failed.
pub(crate) fn missed(detail: &forkless::Error) -> Error {
    Error::new(&detail.clone().into())
}

/// The name of a step.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_step_words(step: c_int, text: *mut c_char, size: size_t) -> c_int {
    // SAFETY: the header's contract.
    unsafe {
        answer(NULL, || {
            let step = u32::try_from(step).ok().and_then(Step::of_code);
            handle::text_out(step.ok_or(Failure::Refused(libc::ENOENT, "no such step"))?.words(), text, size)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long = io::Error::other("ä".repeat(MESSAGE));
        let error = Error::new(&long.into());
        let bytes: Vec<u8> = error.message.iter().map(|&byte| byte as u8).collect();
        let end = bytes.iter().position(|&byte| byte == 0).expect("a NUL");
        assert!(end >= MESSAGE - 2 && std::str::from_utf8(&bytes[..end]).is_ok(), "{end}");
    }
}
