//! Starts programs on Linux at a cost that does not grow with the calling process.
//!
//! The names and meanings are those of [`std::process`]; most programs switch by changing the `use` line:
//!
//! ```
//! use forkless::{Command, Stdio};
//!
//! let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
//! # use std::io::Write;
//! child.stdin.take().unwrap().write_all(b"hello")?;
//! let output = child.wait_with_output()?;
//! assert_eq!(output.stdout, b"hello");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # How it works
//! A child is cloned into the caller's own memory, on a small stack of its own. It creates a file-descriptor table with
//! only the descriptors that the program gets, runs a list of system calls that was compiled beforehand, and executes
//! the program. The kernel signals when the child has left the caller's memory. This copies no page tables. It copies
//! the file-descriptor table only if the program inherits everything ([`Command::inherit_all`]) or the kernel refuses
//! `close_range(2)` ([`Support`]). The caller never forks, unless that launcher is selected ([`Command::launcher`]).
//! See `ARCHITECTURE.md`.
//!
//! # Where to start
//! - [`Command`] starts one program, [`Child`] is its handle.
//! - [`Command::prepare`] compiles a command once, to be run many times; [`launch_all`] launches many at once.
//! - [`Child::lines`] reads the output line by line while the program runs.
//! - [`Capture`] runs a program with input, limits and a timeout, [`Pipeline`] connects several programs.
//! - [`WaitSet`] waits for any of many children.
//! - [`Cgroup`] limits, counts and kills a child with all that it starts.
//! - [`Sandbox`] restricts what untrusted programs may see and change.
//! - [`zygote`] launches from a helper process, for callers whose memory no child may share.
//!
//! # Async
//! With the feature `tokio`, the module `tokio` has the names and meanings of `tokio::process`.
//!
//! # Terminals
//! [`Command::pty`] puts a child on a pseudo-terminal, whose other side is a [`Pty`]. [`RawMode`] is for the caller's
//! own terminal.
//!
//! # Methods of launching
//! There are several. [`Launcher::recommended`] is the one for this machine; `forkless doctor` says which suits a caller, and why.
//!
//! # Shell command lines
//! [`shell()`] runs a line like `system(3)`, without the shell where the result is the same.
//!
//! # When `std::process` is enough
//! A small program with few descriptors, which starts a process now and then, gains little. A program that needs
//! `pre_exec` gains little too, because that has to fork.
//!
//! # Features
//! `capture`, `cgroup`, `pty`, `sandbox`, `shell` and `zygote` are on by default. Without them a user of [`Command`], [`Child`] and [`WaitSet`]
//! compiles a third less. `tokio` and `warm` are off.
//!
//! # Other systems
//! Everything here needs Linux on x86-64 or aarch64. With the feature `std-fallback` the crate also compiles for other
//! systems: there it has the names that it shares with [`std::process`] (with the feature `tokio`, with `tokio::process`),
//! and they are the types of std (of tokio). Without that feature it does not compile there.

// Code that only a feature uses is dead without it.
#![cfg_attr(
    not(all(
        feature = "capture",
        feature = "cgroup",
        feature = "pty",
        feature = "sandbox",
        feature = "shell",
        feature = "zygote"
    )),
    allow(dead_code, unused_imports, rustdoc::broken_intra_doc_links)
)]

// Outside of the macro below: a macro that a macro expands to has no path.
#[doc(hidden)]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub mod settings;

// Not indented: what follows is the crate.
cfg_if::cfg_if! { if #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))] {

mod request;
mod plan;
mod kernel;
mod sync;
mod kept;
mod procfs;
#[cfg(feature = "pty")]
mod pty;
mod route;
mod usage;
mod launch;
mod start;
mod prepared;
mod verbs;
mod batch;


mod child;
mod output;
#[cfg(feature = "shell")]
mod shell;
mod process;
mod identity;
mod once;
#[cfg(feature = "zygote")]
pub mod zygote;
#[cfg(all(feature = "warm", target_arch = "x86_64", target_env = "gnu"))]
pub mod warm;

#[cfg(all(feature = "warm", not(all(target_arch = "x86_64", target_env = "gnu"))))]
#[path = "warm/absent.rs"]
pub mod warm;
#[cfg(feature = "cgroup")]
mod cgroup;
#[cfg(feature = "sandbox")]
mod sandbox;
mod error;
mod step;
#[cfg(feature = "tokio")]
pub mod tokio;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzed;

/// Items for the other crates of this project. No part of it is a promise.
#[doc(hidden)]
pub mod internal {
    #[cfg(feature = "sandbox")]
    pub use crate::sandbox::{filter, preset};
    #[cfg(feature = "shell")]
    pub use crate::shell::is_for_the_shell;
    pub use crate::{
        child::{Ending, Released},
        error::errno,
        launch::{KeepDumpable, assume_old_kernel, wait::is_sigchld_ignored},
        output::quiet::write_quietly,
        process::generation,
        request::command::{FilePlace, posix},
        route::{CloneCall, DescriptorTable, Passing},
    };
}

pub use batch::launch_all;
#[cfg(feature = "capture")]
pub use output::capture::{Capture, Captured, Content};
#[cfg(feature = "cgroup")]
pub use cgroup::Cgroup;
pub use child::{Change, Child};
pub use request::command::values::*;
pub use request::command::{BpfInstruction, CallArg, Capability, CapabilitySet, Namespace, mount_attribute};
pub use request::command::{Command, CommandArgs, CommandEnvs};
pub use error::Error;
#[doc(hidden)]
pub use launch::{Support, mapped_stacks, set_dumpable};
pub use child::orphan::reap_orphans;
pub use output::stream::{Chunks, Lines, Stream};
#[cfg(feature = "capture")]
pub use output::pipeline::{Pipeline, PipelineStatus, RunningPipeline};
pub use prepared::Prepared;
#[cfg(feature = "pty")]
pub use pty::{Pty, PtySize, RawMode};
pub use route::{Launcher, Route};
#[cfg(feature = "sandbox")]
pub use sandbox::{Network, PreparedSandbox, Sandbox};
#[cfg(feature = "shell")]
pub use shell::{Reason, ShellChild, ShellCommand, ShellEnding, ShellRoute, ShellSurroundings, Syntax, shell};
pub use request::stdio::Stdio;
pub use step::Step;
pub use usage::{LimitEvents, Usage};
pub use child::wait_set::{Ended, Key, NotInserted, WaitSet};

} else if #[cfg(feature = "std-fallback")] {

mod fallback;

pub use fallback::*;

} else {

compile_error!(
    "forkless needs Linux on x86-64 or aarch64. Its feature `std-fallback` makes it the types of std::process on other systems."
);

}}

/// Types of `std` itself, so that a whole line `use std::process::{…}` can be changed at once.
pub use std::process::{
    ChildStderr, ChildStdin, ChildStdout, ExitCode, ExitStatus, Output, Termination, abort, exit, id,
};

/// The examples of the README, which are tested with those of the documentation.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;
