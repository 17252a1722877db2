//! Errors of `forkless run` and the exit code of each.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    path::Path,
};

use forkless::Step;

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

/// Prints a message to standard error. Errors are ignored: there is nowhere to report that standard error is closed.
pub(crate) fn say(words: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "forkless: {}", clean(&words.to_string()));
}

/// A message as a terminal may show it: control characters of names are escaped, and the numbers that the standard library
/// adds to the texts of errors are left out.
pub(crate) fn clean(words: &str) -> String {
    let mut parts = words.split(" (os error ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start_matches(')');
    }
    let is_shown = |letter: char| !letter.is_control() || letter == '\n';
    match text.chars().all(is_shown) {
        true => text,
        false => {
            text.chars().map(|c| if is_shown(c) { c.to_string() } else { c.escape_default().to_string() }).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn messages_have_no_numbers_and_no_control_characters() {
        let text = "cannot open \"x\": No such file or directory (os error 2); create it\nor not (os error 13)";
        assert_eq!(clean(text), "cannot open \"x\": No such file or directory; create it\nor not");
        assert_eq!(clean("a\x1b[31m\tb\r\u{9b}"), "a\\u{1b}[31m\\tb\\r\\u{9b}");
        assert_eq!(clean("ä – ok"), "ä – ok");
    }
}
