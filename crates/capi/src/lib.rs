//! The C library. What it promises is in `include/forkless.h`; here each function is handed to the Rust one of its name.
//!
//! Every entry goes through [`entry`], so that no panic and no cancellation of a thread crosses the border, and every handle
//! through [`handle`], so that two threads at one handle are an error and not a race. The names, types and numbers of the header
//! are compared with those here by `tests/c.rs`. The public modules are for the other C libraries of the project.

#[doc(hidden)]
pub mod entry;

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

mod pipeline;

mod wait_set;

mod cgroup;

mod pty;

mod zygote;

#[doc(hidden)]
pub mod simple;

#[doc(hidden)]
pub mod stream;

#[doc(hidden)]
pub mod system;

mod noshell;
