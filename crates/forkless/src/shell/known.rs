//! Which shell `/bin/sh` is. Only of one whose ways are known can it be said what it would have done.

use crate::settled::Settled;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// dash: it is known by its name, and its ways have not changed.
    Dash,
    /// bash 5.2, called `sh`.
    Bash,
    /// Another: everything is its own business.
    Other,
}

/// Which shell the file is. It is looked at once for the life of the process, or of the thread where it is another than
/// `/bin/sh`.
pub(super) fn kind(shell: &Path) -> Kind {
    static STANDARD: Settled<Kind> = Settled::new();
    thread_local! {
        static OTHER: RefCell<Option<(PathBuf, Kind)>> = const { RefCell::new(None) };
    }
    if shell == Path::new(super::STANDARD) {
        return *STANDARD.get_or(|| look(shell));
    }
    OTHER.with_borrow_mut(|last| match last {
        Some((known, kind)) if known == shell => *kind,
        _ => last.insert((shell.to_owned(), look(shell))).1,
    })
}

fn look(shell: &Path) -> Kind {
    let Ok(file) = fs::canonicalize(shell) else { return Kind::Other };
    // bash is another shell under another name.
    let is_sh = shell.file_name().is_some_and(|name| name == "sh");
    match file.file_name().and_then(|name| name.to_str()) {
        Some("dash") => Kind::Dash,
        Some("bash") if is_sh && is_bash_5_2(&file) => Kind::Bash,
        _ => Kind::Other,
    }
}

/// The order of the environment and what is forked for change with the version, which stands in the file.
fn is_bash_5_2(file: &Path) -> bool {
    const VERSION: &[u8] = b"@(#)Bash version 5.2.";
    fs::read(file).is_ok_and(|content| content.windows(VERSION.len()).any(|window| window == VERSION))
}
