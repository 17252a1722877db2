//! Gearman for a process that must not block: packets, a connection, and the payloads of jobs.
//!
//! [`packet`] has the binary protocol as the server `gearmand` has it. A [`Link`] is a connection whose one descriptor
//! becomes readable when there is something to do; when the connection breaks, it connects again, with growing pauses.
//! [`record`] is the reply of `forkless gearman-worker` to `forkless parallel --gearman`. [`monitoring`] is the payload of
//! mod_gearman.

pub mod packet;
mod link;
pub mod record;
pub mod cipher;
pub mod monitoring;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;

pub use link::{Happening, Link, Trust};
