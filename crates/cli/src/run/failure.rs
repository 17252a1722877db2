//! Why there is no exit code of a program, and what ours is then.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    path::Path,
};

use forkless::Step;

/// The exit codes of env(1): we have failed, the program cannot be run, there is none.
pub(crate) const FAILED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Why there is no exit code of a program.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    /// Something before the launch.
    pub(crate) fn before(message: impl fmt::Display) -> Self {
        Self { code: FAILED, message: message.to_string() }
    }
}

impl From<io::Error> for Failure {
    /// An error of the launch: 127 and 126 are about the program; everything else is ours.
    fn from(error: io::Error) -> Self {
        let exec = forkless::Error::of(&error).filter(|e| e.step() == Step::Exec);
        let code = match exec.map(forkless::Error::errno) {
            Some(Some(libc::ENOENT)) => NOT_FOUND,
            Some(_) => CANNOT_RUN,
            None => FAILED,
        };
        Self { code, message: error.to_string() }
    }
}

/// A file of the user's that a setting is about.
pub(crate) fn open(flag: &str, path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::before(format_args!("{flag}: cannot open {path:?}: {error}")))
}

/// On standard error; where that is gone, as a terminal that has hung up, there is nobody to be told.
pub(crate) fn say(words: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "forkless: {words}");
}
