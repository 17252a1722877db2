//! Errors of `forkless run` and the exit code of each.

use std::{fmt, fs::File, io, path::Path};

use forkless::Step;

pub(crate) use forkless_runner::message::say;

/// The exit codes of env(1): forkless failed, the program cannot be executed, the program was not found.
pub(crate) const FAILED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Why the program did not run, with the exit code of forkless.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    /// The error of a launch.
    pub(crate) launch: Option<forkless::Error>,
}

impl Failure {
    /// An error before the launch.
    pub(crate) fn before(message: impl fmt::Display) -> Self {
        Self { code: FAILED, message: message.to_string(), launch: None }
    }
}

impl From<io::Error> for Failure {
    /// An error of the launch: 127 or 126 if executing the program failed, else 125.
    fn from(error: io::Error) -> Self {
        let launch = forkless::Error::of(&error).cloned();
        let exec = launch.as_ref().filter(|e| e.step() == Step::Exec);
        let code = match exec.map(forkless::Error::errno) {
            Some(Some(libc::ENOENT)) => NOT_FOUND,
            Some(_) => CANNOT_RUN,
            None => FAILED,
        };
        Self { code, message: error.to_string(), launch }
    }
}

/// Opens a file that an option names.
pub(crate) fn open(flag: &str, path: &Path) -> Result<File, Failure> {
    File::open(path)
        .map_err(|error| Failure::before(format_args!("{flag}: cannot open {path:?}: {}", reason(path, &error))))
}

/// Why a file cannot be opened, with the part of its path that is missing.
pub(crate) fn reason(path: &Path, error: &io::Error) -> String {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty() && !above.exists());
    match above.filter(|_| error.kind() == io::ErrorKind::NotFound) {
        Some(above) => format!("{error}; create {above:?} first"),
        None => error.to_string(),
    }
}
