//! The look-up of a program's name.

use crate::command::{Command, Environment, Paths};
use crate::error::Error;
use crate::step::Step;
use forkless_core::planted;
use forkless_core::sys::errno;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The search path of execvp(3) if PATH is not set: confstr(_CS_PATH) of glibc.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The kernel's limit for the length of a path, including the NUL at its end.
const PATH_MAX: usize = 4096;

/// The programs to try, in order.
#[derive(Default)]
pub(crate) struct Candidates<'a> {
    pub(crate) paths: Cow<'a, Paths>,
    /// The PATH that was searched, if one was.
    pub(crate) searched: Option<OsString>,
}

/// Expands a command's program, and its fallbacks, along PATH.
///
/// A name with a slash is used as it is. With `resolve`, the first candidate that is an executable file now is moved
/// to the front. The others stay behind it, in case it is removed later.
pub(crate) fn candidates(command: &Command, resolve: bool) -> Result<Candidates<'static>, Error> {
    let (mut paths, mut searched) = (Paths::default(), None);
    for program in std::iter::once(&command.program).chain(&command.candidates) {
        if program.is_empty() {
            return Err(Error::new(&command.program, Step::Exec, errno::ENOENT).note("the program's name is empty"));
        }
        if program.as_bytes().contains(&b'/') {
            paths.push(&[program.as_bytes()]);
            continue;
        }
        let path = searched.get_or_insert_with(|| search_path(&command.env)).as_bytes();
        // An empty entry means the working directory. An entry that makes the path too long is skipped, as by
        // execvp(3), because the kernel's error would end the search.
        let entries = path.split(|&byte| byte == b':');
        paths.reserve(entries.clone().count(), (program.len() + 1) * entries.clone().count() + path.len());
        for entry in entries {
            let parts = joined(entry, program.as_bytes());
            let length: usize = parts.iter().map(|part| part.len()).sum();
            if length < PATH_MAX || planted!("path-too-long-tried") {
                paths.push(&parts);
            }
        }
    }
    if resolve && searched.is_some() {
        // Relative paths start from the child's working directory.
        let directory = command.directory.as_deref().filter(|_| !planted!("path-from-the-callers-directory"));
        let directory = directory.unwrap_or(Path::new(""));
        for n in 0..paths.len() {
            match look(&directory.join(paths.get(n))) {
                Look::Executable => {
                    paths.move_to_front(n);
                    break;
                }
                // The order decides which failure is reported, so it must stay as it is.
                Look::Other if command.tries_all => break,
                Look::Other | Look::Absent => {}
            }
        }
    }
    Ok(Candidates { paths: Cow::Owned(paths), searched })
}

/// The child's PATH if the command changes it, else the caller's.
fn search_path(environment: &Environment) -> OsString {
    let path = match environment.changes.get(OsStr::new("PATH")) {
        Some(changed) if !planted!("path-of-the-caller") => changed.clone(),
        None if environment.clear => None,
        _ => std::env::var_os("PATH"),
    };
    path.unwrap_or_else(|| DEFAULT_PATH.into())
}

/// Examines the file at a path.
enum Look {
    Executable,
    Absent,
    Other,
}

fn look(path: &Path) -> Look {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Look::Executable,
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Look::Absent,
        _ => Look::Other,
    }
}

/// `directory/name`, or `name` alone for an empty directory.
fn joined<'a>(directory: &'a [u8], name: &'a [u8]) -> [&'a [u8]; 3] {
    let needs_slash = !directory.is_empty() && directory.last() != Some(&b'/');
    [directory, if needs_slash { b"/" } else { b"" }, name]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that is too long is skipped: the kernel's error for it would end the search.
    #[test]
    fn entries_of_path_that_are_too_long_are_passed_over() {
        let mut command = Command::new("tool");
        let long = |length: usize| "d".repeat(length);
        let path = format!("/{}:/bin:/{}", long(PATH_MAX), long(PATH_MAX - "//tool".len() - 1));
        command.env("PATH", &path);
        let found = candidates(&command, false).expect("candidates");
        let lengths: Vec<usize> = found.paths.iter().map(|path| path.len()).collect();
        assert_eq!(lengths, ["/bin/tool".len(), PATH_MAX - 1], "the longest path is one byte shorter, for its NUL");
    }
}
