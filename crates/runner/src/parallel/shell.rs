//! The shell that runs the lines: that of PARALLEL_SHELL, else the one that started this program, else SHELL, else
//! /bin/sh.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::quote::Language;

/// The shell of the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shell {
    pub(super) path: PathBuf,
    pub(super) language: Language,
}

/// Shells whose quotes are known.
const POSIX: &[&str] = &[
    "sh",
    "dash",
    "bash",
    "rbash",
    "zsh",
    "ksh",
    "ksh93",
    "mksh",
    "pdksh",
    "oksh",
    "yash",
    "ash",
    "posh",
    "static-sh",
    "busybox",
];
/// Shells of these that have `$'…'`.
const BASH: &[&str] = &["bash", "rbash", "zsh", "zsh5", "ksh93", "mksh", "yash"];
/// Shells with other quotes.
const OTHERS: &[&str] = &["csh", "tcsh", "rc", "es", "elvish", "nu", "pwsh", "xonsh"];

impl Shell {
    /// Finds the shell.
    ///
    /// # Errors
    /// PARALLEL_SHELL does not exist, or values cannot be quoted for it.
    pub(super) fn find() -> Result<Self, String> {
        if let Some(name) = env::var_os("PARALLEL_SHELL").filter(|name| !name.is_empty()) {
            let path = look_up(&name).ok_or_else(|| format!("PARALLEL_SHELL: {name:?} not found"))?;
            return Self::of(path);
        }
        if let Some(path) = ancestor() {
            return Self::of(path);
        }
        match env::var_os("SHELL").filter(|name| !name.is_empty()) {
            Some(shell) => Self::of(shell.into()),
            None => Self::of("/bin/sh".into()),
        }
    }

    /// The shell of POSIX.
    pub(super) fn standard() -> Self {
        Self { path: "/bin/sh".into(), language: Language::Posix }
    }

    fn of(path: PathBuf) -> Result<Self, String> {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let language = match name {
            "fish" => Language::Fish,
            name if OTHERS.contains(&name) => {
                return Err(format!("cannot quote values for the shell {name}: set PARALLEL_SHELL=/bin/sh"));
            }
            // sh may be any of these.
            _ => match fs::canonicalize(&path).ok().as_deref().and_then(Path::file_name).and_then(OsStr::to_str) {
                Some(name) if BASH.contains(&name) => Language::Bash,
                _ => Language::Posix,
            },
        };
        Ok(Self { path: standard(path), language })
    }
}

/// `/bin/sh`, if the path is another name of it, and it is dash: bash behaves differently under the name sh.
fn standard(path: PathBuf) -> PathBuf {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let found = real(&path);
    let is_dash = found.as_deref().and_then(Path::file_name) == Some(OsStr::new("dash"));
    if is_dash && found == real(Path::new("/bin/sh")) { "/bin/sh".into() } else { path }
}

/// The shell that has started this process: the nearest ancestor that is one.
fn ancestor() -> Option<PathBuf> {
    let mut pid = std::os::unix::process::parent_id();
    while pid > 1 {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let comm = comm.trim_end();
        if comm == "fish" || POSIX.contains(&comm) || OTHERS.contains(&comm) {
            return look_up(OsStr::new(comm));
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name in parentheses: the state and the parent.
        pid = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    }
    None
}

/// The program of that name in PATH.
pub fn look_up(name: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if Path::new(name).components().count() > 1 {
        return Some(name.into()).filter(is_program);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    env::split_paths(&path).map(|entry| entry.join(name)).find(is_program)
}
