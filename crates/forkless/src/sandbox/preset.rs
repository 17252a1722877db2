//! What every sandboxed program may see, for [`Sandbox`](super::Sandbox) and the command `forkless` alike.

use crate::procfs;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Directories of programs and their settings, read-only, as far as they exist. Nothing where daemons have their sockets: a
/// program can connect to a socket that it sees, whatever a mount says.
pub const SHOWN: [&str; 11] = [
    "/usr",
    "/etc",
    "/nix/store",
    "/nix/var/nix/profiles",
    "/gnu/store",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
];

/// Directories that are new in every sandbox.
pub(super) const NEW: [&str; 9] =
    ["/", procfs::ROOT, "/dev", "/dev/shm", "/tmp", "/var", "/var/tmp", "/run", "/var/run"];

/// Does every sandbox show this path, which has no `.` and `..`?
pub fn is_shown(path: &Path) -> bool {
    NEW.iter().any(|new| path == Path::new(new)) || SHOWN.iter().any(|shown| path.starts_with(shown))
}

/// A path without `.` and `..`.
pub fn plain(path: &Path) -> PathBuf {
    let mut found = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => found.push(name),
            Component::ParentDir => _ = found.pop(),
            _ => {}
        }
    }
    found
}

/// Directories below those shown that are hidden: a program can connect to a socket that it sees.
pub const HIDDEN: [&str; 1] = ["/usr/local/var"];

/// Files of procfs about the whole machine that only root could read, or that show keys.
pub const MASKED: [&str; 4] = ["kcore", "keys", "key-users", "timer_list"];

/// Files in `/proc/sys/user`, and the limits of a user namespace to write there, for what is counted for the user who has made it.
pub const COUNTERS: [(&str, &str); 4] = [
    ("max_inotify_instances", "16"),
    ("max_inotify_watches", "8192"),
    ("max_fanotify_groups", "0"),
    ("max_fanotify_marks", "0"),
];

/// Devices, in `/dev`.
pub const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The user and group of the program if root starts it: the overflow IDs, called nobody.
pub const NOBODY: u32 = 65534;

/// Variables that the program inherits: names, and beginnings of names.
const KEPT: [&str; 8] = ["PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ", "HOME"];
const KEPT_BEGINNINGS: [&str; 1] = ["LC_"];

/// Does the program inherit this variable, if these are kept too?
pub fn is_kept(name: &OsStr, kept: &[OsString]) -> bool {
    let text = name.to_str().unwrap_or_default();
    KEPT.contains(&text)
        || KEPT_BEGINNINGS.iter().any(|start| text.starts_with(start))
        || kept.iter().any(|one| one == name)
}

/// What programs outside execute or obey in a project: hooks, and settings that name programs.
#[rustfmt::skip]
pub const OBEYED: [&str; 25] = [
    ".git/hooks", ".git/config", ".gitmodules", ".gitconfig", ".husky", ".pre-commit-config.yaml", ".vscode", ".idea", ".zed", ".exrc", ".nvim.lua",
    ".nvimrc", ".dir-locals.el", ".envrc", ".cargo", ".mcp.json", ".npmrc", ".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".config/fish",
];
