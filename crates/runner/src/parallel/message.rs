//! Messages of the runner itself, and its exit code when it fails.

use std::fmt;
use std::io::{self, Write};

/// The exit code for errors of the runner itself.
pub const FAILED: u8 = 255;

/// Writes a message to standard error.
pub(super) fn say(words: impl fmt::Display) {
    // One write, so that messages of several processes do not mix.
    let _ = io::stderr()
        .write_all(format!("forkless parallel: {}\n", crate::message::clean(&words.to_string())).as_bytes());
}
