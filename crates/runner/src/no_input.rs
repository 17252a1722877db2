//! Standard input of jobs that have none.

use rustix::fs::{Mode, OFlags};

/// Replaces standard input by `/dev/null`, so that jobs without input inherit it. Otherwise each of them would open it,
/// which takes as long as a pipe. Returns whether that was possible.
///
/// To be called when the runner has a descriptor of its own for its input.
pub(crate) fn replace_stdin() -> bool {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    null.and_then(rustix::stdio::dup2_stdin).is_ok()
}
