//! Errors, as C functions report them.

use forkless::Step;
use libc::{c_char, c_int};
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
    /// A setter of the command has failed before: its errno and message.
    Before(c_int, String),
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
            Self::Refused(errno, _) | Self::Before(errno, _) => return *errno,
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
            Self::Io(error) => forkless::Error::of(error).map_or(0, |detail| detail.step().code() as c_int),
            Self::Refused(..) | Self::Before(..) => Step::Check.code() as c_int,
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
            Self::Before(_, what) => write!(out, "an earlier setter failed: {what}"),
            Self::Panic => out.write_str("bug in the library: a panic, printed on standard error"),
        }
    }
}

impl Error {
    pub(crate) fn new(failure: &Failure) -> Self {
        let mut error = Self { step: failure.step(), errnum: failure.errno(), message: [0; MESSAGE] };
        put_text(&failure.to_string(), &mut error.message);
        error
    }
}

/// The best-effort step that failed.
pub(crate) fn skipped_step(detail: &forkless::Error) -> Error {
    Error::new(&detail.clone().into())
}

/// Writes as much of a string as fits, with a NUL, cut between characters.
pub(crate) fn put_text(text: &str, room: &mut [c_char]) {
    let mut end = text.len().min(room.len().saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_bytes(&text.as_bytes()[..end], room);
}

/// The same with bytes, which may be cut anywhere.
pub(crate) fn put_bytes(bytes: &[u8], room: &mut [c_char]) {
    let Some(most) = room.len().checked_sub(1) else { return };
    for (place, byte) in room.iter_mut().zip(bytes.iter().take(most).chain([&0])) {
        *place = *byte as c_char;
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
