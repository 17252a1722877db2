//! The look-up of a program's name.

use crate::error::Error;
use crate::request::command::{Command, EnvironmentChanges, Namespace, Paths};
use crate::step::Step;
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
/// to the front, if there is no file at those before it. The others stay behind it, in case it is removed later.
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
            if length < PATH_MAX {
                paths.push(&parts);
            }
        }
    }
    if resolve && searched.is_some() && !has_other_files(command) {
        // Relative paths start from the child's working directory.
        let directory = command.directory.as_deref().unwrap_or(Path::new(""));
        for n in 0..paths.len() {
            match examine(&directory.join(paths.get(n))) {
                FoundFile::Executable => {
                    paths.move_to_front(n);
                    break;
                }
                // A child with another user may be able to execute what the caller cannot even see. With the same user,
                // the order decides which failure is reported.
                FoundFile::Other => break,
                FoundFile::Absent => {}
            }
        }
    }
    Ok(Candidates { paths: Cow::Owned(paths), searched })
}

/// The child's PATH if the command changes it, else the caller's.
fn search_path(environment: &EnvironmentChanges) -> OsString {
    let path = match environment.changes.get(OsStr::new("PATH")) {
        Some(changed) => changed.clone(),
        None if environment.clear => None,
        _ => std::env::var_os("PATH"),
    };
    path.unwrap_or_else(|| DEFAULT_PATH.into())
}

/// Whether the child may see other files than the caller at the entries of PATH. Then what the caller finds there does
/// not count: each child tries the entries in their order.
fn has_other_files(command: &Command) -> bool {
    let (setup, sandbox) = (&command.setup, &command.sandbox);
    let changes_root = setup.chroot.is_some() || sandbox.pivot_root.is_some();
    let mounts = !sandbox.mounts.is_empty() || sandbox.has_joined(Namespace::Mount);
    // The directory of relative entries, and what the caller's own steps may change.
    let steps = setup.directory_fd.is_some() || !setup.calls.is_empty() || !command.closures.is_empty();
    changes_root || mounts || steps || !command.actions.is_empty()
}

/// What [`examine`] finds at a path.
enum FoundFile {
    Executable,
    Absent,
    Other,
}

fn examine(path: &Path) -> FoundFile {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => FoundFile::Executable,
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => FoundFile::Absent,
        _ => FoundFile::Other,
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

    #[test]
    fn program_in_another_root_is_searched_by_the_child() {
        let directory = std::env::temp_dir();
        let inner = directory.join(format!("forkless-program-{}", std::process::id()));
        std::fs::create_dir(&inner).expect("a directory");
        let tool = inner.join("forkless-tool");
        std::fs::write(&tool, "").expect("a file");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let first = |set: fn(&mut Command)| {
            let mut command = Command::new("forkless-tool");
            command.env("PATH", format!("/no/such/place:{}", inner.display()));
            set(&mut command);
            let found = candidates(&command, true).expect("candidates");
            Path::new(found.paths.get(0)) == tool
        };
        let sets: [fn(&mut Command); 7] = [
            |command| _ = command.chroot("/new"),
            |command| _ = command.pivot_root("/new"),
            |command| _ = command.unshare(Namespace::Mount).bind("/a", "/no/such/place"),
            |command| _ = command.join(Namespace::Mount, std::fs::File::open("/").expect("a file")),
            |command| _ = command.current_dir_fd(std::fs::File::open("/").expect("a file")),
            // SAFETY: it is not run.
            |command| _ = unsafe { command.call(0, [], None) },
            // SAFETY: as above.
            |command| _ = unsafe { command.pre_exec(|| Ok(())) },
        ];
        assert!(first(|_| ()), "what the caller finds comes first");
        let found: Vec<_> = (0..).zip(sets).filter(|(_, set)| first(*set)).map(|(number, _)| number).collect();
        std::fs::remove_dir_all(&inner).expect("removed");
        assert_eq!(found, [0; 0], "settings by their numbers");
    }

    #[test]
    fn program_behind_a_file_that_the_caller_cannot_execute_stays_behind_it() {
        let directory = std::env::temp_dir().join(format!("forkless-unseen-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let place = |name: &str, mode: u32| {
            let inner = directory.join(name);
            std::fs::create_dir(&inner).expect("a directory");
            std::fs::write(inner.join("tool"), "").expect("a file");
            std::fs::set_permissions(inner.join("tool"), std::fs::Permissions::from_mode(mode)).expect("chmod");
            inner.into_os_string().into_string().expect("text")
        };
        // A loop of links cannot be examined, just as a directory of another user cannot.
        let unseen = directory.join("loop");
        std::os::unix::fs::symlink("loop", &unseen).expect("a link");
        let (seen, other) = (place("seen", 0o755), place("other", 0o644));
        let first = |second: &str, third: &str| {
            let mut command = Command::new("tool");
            command.env("PATH", ["/no/such/place", second, third].join(":"));
            candidates(&command, true).expect("candidates").paths.get(0).to_owned()
        };
        let found = [first(&seen, &other), first(&other, &seen), first(unseen.to_str().expect("text"), &seen)];
        std::fs::remove_dir_all(&directory).expect("removed");
        assert_eq!(
            found,
            [format!("{seen}/tool").as_str(), "/no/such/place/tool", "/no/such/place/tool"].map(OsStr::new)
        );
    }

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
