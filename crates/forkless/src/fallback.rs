//! The crate on other systems: the names that it shares with `std::process`, which are the types of std.

pub use std::process::{Child, Command, CommandArgs, CommandEnvs, Stdio};

/// The names that this crate's module shares with `tokio::process`, which are the types of tokio.
#[cfg(feature = "tokio")]
pub mod tokio {
    pub use ::tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
    pub use std::process::Stdio;
}
