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
//! A child is awaited by its pidfd and its streams are non-blocking pipes, all registered with the runtime's own
//! reactor: there is no thread, no signal handler and no timer, and children of one part of a program are none of
//! another's business. The runtime must have I/O enabled, as for `tokio::process`.
//!
//! # What blocks, and for how long
//! - [`Command::status`], [`Command::output`] and [`Command::launch`] hold the calling thread for the clone and, where
//!   descriptors are passed, until the child has taken them: some 10 to 25 µs. Why a program could not be executed is told
//!   by the future.
//! - [`Command::spawn`] tells at once, and so holds the calling thread until the program has been executed: some 25 to
//!   50 µs; up to [`Command::retry_busy`](crate::Command::retry_busy) while the program is being written. (`spawn` of
//!   `tokio::process` does the same, at a cost that grows with the caller's descriptors.)
//! - Nothing else does.
//!
//! # What differs from `tokio::process`
//! - [`Stdio`] is this crate's own; std's does not tell what it is.
//! - All that [differs from std](crate::Command#what-differs-from-std): only the descriptors that were asked for are
//!   inherited, errors name the step, `pre_exec` is for who asks for fork.
//! - A [`Child`] that is dropped is reaped as soon as it ends, by a task of the runtime that it was started in; if that
//!   is gone, by a later launch.

mod command;

mod child;

mod process;

mod stream;

pub use crate::Stdio;
pub use child::Child;
pub use command::{Command, Prepared};
pub use stream::{ChildStderr, ChildStdin, ChildStdout};
