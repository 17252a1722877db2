//! Children that are awaited: the names and meanings of `tokio::process`. Needs the feature `tokio`.
//!
//! Most programs switch by changing the `use` lines, `tokio::process::…` and `std::process::Stdio` into
//! `forkless::tokio::…`:
//!
//! ```
//! use forkless::tokio::{Command, Stdio};
//! use tokio::io::AsyncWriteExt;
//!
//! # #[tokio::main]
//! # async fn main() -> std::io::Result<()> {
//! let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
//! child.stdin.take().unwrap().write_all(b"hello").await?;
//! let output = child.wait_with_output().await?;
//! assert_eq!(output.stdout, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//! A child is awaited by its pidfd, and its streams are nonblocking pipes. All of them are registered with the
//! runtime's own reactor, so there is no thread, no signal handler and no timer. Nothing touches children that other
//! parts of the program have started. The runtime must have I/O enabled, as for `tokio::process`.
//!
//! # Blocking calls
//! - [`Command::status`], [`Command::output`], [`Command::capture`] and [`Command::launch`] block the calling thread for the clone and, if
//!   descriptors are passed, until the child has taken them: some 10 to 25 µs. The future reports why a program could
//!   not be executed.
//! - [`Command::spawn`] reports that at once. So it blocks the calling thread until the program has been executed: some
//!   25 to 50 µs; up to [`Command::retry_busy`](crate::Command::retry_busy) while the program is being written.
//!   (`spawn` of `tokio::process` does the same, at a cost that grows with the caller's descriptors.)
//! - No other call blocks.
//!
//! # Differences from `tokio::process`
//! - [`Stdio`] is this crate's own, since one of std does not show what it is.
//! - All [differences from std](crate::Command#what-differs-from-std): only selected descriptors are inherited, errors
//!   name the step, `pre_exec` needs the launcher fork.
//! - A [`Child`] that is dropped is reaped as soon as it ends, by a task of the runtime that it was started in. If that
//!   runtime is gone, a later launch reaps it.

mod command;
mod child;
#[cfg(feature = "capture")]
mod capture;
mod process;
mod stream;

pub use crate::Stdio;
pub use child::Child;
pub use command::{Command, Prepared};
pub use stream::{ChildStderr, ChildStdin, ChildStdout};
