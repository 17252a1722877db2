//! Runs `forkless-bench`, a separate program: `forkless bench` executes it; the doctor, the man pages and the completions
//! read its output.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{Error, ErrorKind, Result},
    path::PathBuf,
    process::ExitCode,
};

use forkless::Command;

use forkless_runner::parallel::look_up;

const NAME: &str = "forkless-bench";

/// Executes it with the arguments after `forkless bench`. Returns only if that fails.
pub(crate) fn main(words: &[OsString]) -> ExitCode {
    let error = match command() {
        Ok(mut command) => command.args(words).exec(),
        Err(error) => error,
    };
    eprintln!("forkless: bench: {error}");
    ExitCode::from(127)
}

/// Returns its standard output with these arguments.
///
/// # Errors
/// If it is not installed, or fails. The message is then the first line of its standard error.
pub(crate) fn ask<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Result<Vec<u8>> {
    let output = command()?.args(words).output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let line = message.lines().next().map_or_else(|| format!("{NAME}: {}", output.status), str::to_owned);
    Err(Error::other(line.strip_prefix("forkless: ").unwrap_or(&line)))
}

/// The program beside this one, else the one in PATH.
fn command() -> Result<Command> {
    let beside = env::current_exe().ok().map(|own| own.with_file_name(NAME)).filter(|path| path.is_file());
    let found: Option<PathBuf> = beside.or_else(|| look_up(OsStr::new(NAME)));
    let missing = format!(
        "the program {NAME} is neither beside forkless nor in PATH; it is in the same packages, and `cargo build -p {NAME}` makes it in a \
         checkout"
    );
    found.map(Command::new).ok_or_else(|| Error::new(ErrorKind::NotFound, missing))
}
