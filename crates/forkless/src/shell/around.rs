//! What does not depend on the line: the shell, the privileges, the signal mask and the working directory.

use super::known::{STANDARD, ShellFile};
use super::pattern::Patterns;
use forkless_core::sys;
use nix::unistd::{getresgid, getresuid};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use std::env;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What many lines have in common, examined once for all of them: for
/// [`ShellCommand::surroundings`](crate::ShellCommand::surroundings).
///
/// It holds as long as nobody replaces the shell, moves the working directory, removes the directory of OLDPWD, or makes the program of a line a link to procfs, and
/// this process keeps its ids, its signal mask, its root and its working directory. Take a new one from time to time.
///
/// ```
/// let surroundings = forkless::ShellSurroundings::now();
/// for line in ["ls -d /", "ls -d /usr"] {
///     assert!(forkless::shell(line).surroundings(&surroundings).output()?.status.success());
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ShellSurroundings(Arc<SurroundingsSeen>);

#[derive(Debug)]
struct SurroundingsSeen {
    shell: Option<ShellFile>,
    is_privileged: bool,
    mask: Option<u64>,
    /// PWD as given, and as the shell would set it.
    pwd: Option<(Vec<u8>, Vec<u8>)>,
    patterns: Patterns,
    /// The last program that was found outside of procfs, by an absolute path.
    outside: Mutex<Option<CString>>,
}

impl ShellSurroundings {
    /// Examines what lines with `/bin/sh` have in common.
    ///
    /// ```
    /// let surroundings = forkless::ShellSurroundings::now();
    /// assert!(forkless::shell("ls -d /").surroundings(&surroundings).output()?.status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn now() -> Self {
        Self::of(STANDARD)
    }

    /// [`now`](Self::now) for lines with another shell: see [`ShellCommand::shell_path`](crate::ShellCommand::shell_path).
    ///
    /// ```
    /// let surroundings = forkless::ShellSurroundings::of("/bin/bash");
    /// let mut listing = forkless::shell("ls -d /");
    /// listing.shell_path("/bin/bash").surroundings(&surroundings);
    /// # if !std::path::Path::new("/bin/bash").exists() { return Ok(()); }
    /// assert_eq!(listing.output()?.stdout, b"/\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of(shell: impl AsRef<Path>) -> Self {
        let given = env::var_os("PWD").map(OsStringExt::into_vec);
        Self(Arc::new(SurroundingsSeen {
            shell: ShellFile::of(shell.as_ref()),
            is_privileged: is_privileged(),
            mask: sys::signal_mask().ok(),
            pwd: given.and_then(|given| pwd(Some(&given), None).map(|found| (given, found))),
            patterns: Patterns::default(),
            outside: Mutex::default(),
        }))
    }

    /// The shell's file, if it has this path.
    pub(super) fn shell(&self, path: &Path) -> Option<ShellFile> {
        self.0.shell.as_ref().filter(|shell| shell.path() == path).cloned()
    }

    pub(super) fn patterns(&self) -> &Patterns {
        &self.0.patterns
    }

    /// Whether a program is known to be outside of procfs, so that a child need not look.
    pub(super) fn is_outside_procfs(&self, program: &CStr) -> bool {
        if !program.to_bytes().starts_with(b"/") {
            return false;
        }
        // Not lock(): in a forked copy of the process it may be held forever, by a thread that the copy does not have.
        let Ok(mut known) = self.0.outside.try_lock() else { return false };
        let is_known = known.as_deref() == Some(program);
        if !is_known && is_outside_procfs(program) {
            *known = Some(program.to_owned());
        }
        is_known || known.as_deref() == Some(program)
    }

    pub(super) fn is_privileged(&self) -> bool {
        self.0.is_privileged
    }

    pub(super) fn mask(&self) -> Option<u64> {
        self.0.mask
    }

    /// The shell's value of PWD in the working directory of this process.
    pub(super) fn pwd(&self, given: Option<&[u8]>) -> Option<Vec<u8>> {
        let (known, found) = self.0.pwd.as_ref()?;
        (given == Some(known)).then(|| found.clone())
    }
}

/// Opens the file without an effect on it, as the child would.
fn is_outside_procfs(program: &CStr) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = openat2(CWD, program, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    file.is_ok_and(|file| sys::is_in_procfs(file.as_raw_fd()) == Ok(false))
}

/// Whether this process has the privileges of another user.
pub(super) fn is_privileged() -> bool {
    let users = getresuid().map(|ids| ids.real == ids.effective);
    let groups = getresgid().map(|ids| ids.real == ids.effective);
    users != Ok(true) || groups != Ok(true)
}

/// The shell's value of PWD: the one from its environment if it names the working directory, else the path that the
/// kernel returns. `None` if it is not known.
pub(super) fn pwd(given: Option<&[u8]>, directory: Option<&Path>) -> Option<Vec<u8>> {
    let given = given.filter(|given| given.starts_with(b"/"));
    // If the kernel's path is the same text, both rules have the same result, and one system call is enough.
    let here = if directory.is_none() { env::current_dir().ok() } else { None };
    let is_here = |given: &&[u8]| here.as_ref().is_some_and(|here| here.as_os_str().as_bytes() == *given);
    if let Some(given) = given.filter(|given| is_here(given) || is_directory(given, directory)) {
        // Shells interpret such a name differently.
        let is_odd = |part: &[u8]| matches!(part, b"" | b"." | b"..");
        let odd = given.len() > 1 && given[1..].split(|&byte| byte == b'/').any(is_odd);
        return (!odd).then(|| given.to_vec());
    }
    let found = match directory {
        Some(directory) => fs::canonicalize(directory).ok()?,
        None => here?,
    };
    found.is_absolute().then(|| found.into_os_string().into_vec())
}

/// Whether this path leads to the working directory of the child.
fn is_directory(path: &[u8], directory: Option<&Path>) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let there = identity(Path::new(OsStr::from_bytes(path)));
    there.is_some() && there == identity(directory.unwrap_or(Path::new(".")))
}
