//! Which shell a file is. Only for a shell whose behaviour is known can a line run without it.

use crate::once::OnceFor;
use std::ffi::OsStr;
use std::fs;
use std::io::BufRead;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The shell of `system(3)` and `popen(3)`.
pub(super) const STANDARD: &str = "/bin/sh";

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShellKind {
    /// dash: it is recognised by its name, and all versions behave alike.
    Dash,
    /// bash 5.1, 5.2 or 5.3.
    Bash,
    /// Another shell: all lines go to it.
    Other,
}

/// A shell's file as it is now, in this root: another file of that name is another shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellFile {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
    changed: (i64, i64),
    root: (u64, u64),
}

impl ShellFile {
    /// `None` if there is no such file.
    pub(super) fn of(shell: &Path) -> Option<Self> {
        let (file, root) = (fs::metadata(shell).ok()?, fs::metadata("/").ok()?);
        Some(Self {
            path: shell.to_owned(),
            file: (file.dev(), file.ino()),
            changed: (file.ctime(), file.ctime_nsec()),
            root: (root.dev(), root.ino()),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Which shell the file is. Each file is examined once.
pub(super) fn shell_kind(shell: &ShellFile) -> ShellKind {
    static KINDS: OnceFor<ShellFile, ShellKind> = OnceFor::new();
    KINDS.get(shell).unwrap_or_else(|| KINDS.put(shell, detect_kind(shell.path())))
}

fn detect_kind(shell: &Path) -> ShellKind {
    let Ok(file) = fs::canonicalize(shell) else { return ShellKind::Other };
    match file.file_name().and_then(|name| name.to_str()) {
        Some("dash") => ShellKind::Dash,
        Some("bash") if is_known_bash(&file) => ShellKind::Bash,
        _ => ShellKind::Other,
    }
}

/// Whether the file contains a version whose behaviour is known: with the version, the order of the environment and what
/// is forked change.
fn is_known_bash(file: &Path) -> bool {
    let Ok(content) = fs::read(file) else { return false };
    let mut rest = &content[..];
    // A search byte by byte would take longer than bash.
    while matches!(rest.skip_until(b'@'), Ok(1..)) {
        let version = rest.strip_prefix(b"(#)Bash version 5.");
        if matches!(version, Some([b'1'..=b'3', b'.', ..])) {
            return true;
        }
    }
    false
}

/// The name by which a shell is called, which is a part of its behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShellName {
    /// `sh`: bash has the rules of POSIX then.
    Sh,
    /// `bash`.
    Bash,
    /// Another name, as of a login shell or a restricted one.
    Other,
}

impl ShellName {
    /// Of this `argv[0]`.
    pub(super) fn of(arg0: &OsStr) -> Self {
        match Path::new(arg0).file_name().and_then(OsStr::to_str) {
            Some("sh") => Self::Sh,
            Some("bash") => Self::Bash,
            _ => Self::Other,
        }
    }
}
