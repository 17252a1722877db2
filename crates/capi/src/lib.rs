//! The C library. `include/forkless.h` documents it; each function calls the Rust function of its name.
//!
//! Every exported function goes through [`boundary`], which catches panics and disables thread cancellation, and every
//! handle through [`handle`], which turns concurrent use of a handle into an error instead of a data race. A `SAFETY`
//! comment with "(forkless.h)" relies on a requirement of that header. A *live* handle was returned by this library and has
//! not been freed. `tests/c.rs` compares names, types and numbers of the header with the sources. The public modules are for
//! the other C libraries of the project.

#[doc(hidden)]
pub mod boundary;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod handle;
#[doc(hidden)]
pub mod lock;
mod command;
mod setup;
mod sandbox;
mod settings;
mod run;
mod child;
mod output;
mod line;
mod pipeline;
mod wait_set;
mod cgroup;
mod prepared_sandbox;
mod pty;
mod zygote;
mod warm;
#[doc(hidden)]
pub mod simple;
#[doc(hidden)]
pub mod stream;
#[doc(hidden)]
pub mod system;
mod noshell;
