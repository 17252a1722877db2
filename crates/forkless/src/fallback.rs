//! The crate on other systems: re-exports std's types under the names that it shares with `std::process`.

pub use std::process::{Child, Command, CommandArgs, CommandEnvs, Stdio};

/// tokio's types under the names that this crate's module shares with `tokio::process`.
#[cfg(feature = "tokio")]
pub mod tokio {
    pub use ::tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
    pub use std::process::Stdio;
}
