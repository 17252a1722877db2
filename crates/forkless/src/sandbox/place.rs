//! What a sandbox shows or hides.

use std::path::PathBuf;

/// A file or directory of the sandbox.
#[derive(Clone)]
pub(super) struct GivenPath {
    pub(super) path: PathBuf,
    /// Without symbolic links.
    pub(super) source: PathBuf,
    pub(super) is_directory: bool,
    pub(super) is_hidden: bool,
    /// What is obeyed outside: the program may read it, unless it is hidden.
    pub(super) is_obeyed: bool,
    pub(super) may_write: bool,
    /// Device and inode.
    pub(super) file: (u64, u64),
}
