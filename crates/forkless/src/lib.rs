//! Start a process from any process, however big, at the speed of `exec`.
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
//! A child is cloned into the caller's own memory, on a small stack of its own, makes itself a descriptor table with
//! only what it is to have, plays a list of system calls that was compiled beforehand, and executes the program. The
//! kernel tells us when it has left our memory. No page table, descriptor table or signal table is copied, and the
//! caller never forks, unless told to ([`Command::launcher`]). See `ARCHITECTURE.md`.
//!
//! # Awaiting children
//! With the feature `tokio` there is a module `tokio` with the names and meanings of `tokio::process`.
//!
//! # Terminals
//! [`Command::pty`] puts a child on a pseudo-terminal, whose other side is a [`Pty`]; [`RawMode`] is for the caller's own.
//!
//! # Which way to launch
//! There is more than one; [`Situation::advise`] says which suits whom, and `forkless doctor` shows it.
//!
//! # Lines for a shell
//! [`shell()`] runs a line as `system(3)` does, and without the shell where that makes no difference.
//!
//! # When `std::process` is enough
//! A small program with few descriptors that starts a process now and then gains little here; nor does one that needs
//! `pre_exec`, which has to fork. One that runs on something else than Linux on x86-64 or aarch64 cannot use it.

#[doc(hidden)]
pub mod settings;

mod command;

mod stdio;

mod compile;

mod kernel;

mod pipes;

mod quiet;

mod pty;

mod launch;

mod prepared;

mod batch;

mod advice;

mod child;

mod wait;

mod usage;

mod wait_set;

mod capture;

mod output;

mod pipeline;

mod shell;

mod orphan;

mod process;

mod settled;

pub mod zygote;

mod cgroup;

mod error;

mod step;

#[cfg(feature = "tokio")]
pub mod tokio;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzed;

pub use advice::{Advice, Answer, Next, Question, Situation, Way};
pub use batch::launch_all;
pub use capture::{Capture, Captured, Content};
pub use cgroup::Cgroup;
#[doc(hidden)]
pub use child::Released;
pub use child::{Change, Child};
#[doc(hidden)]
pub use command::posix;
pub use command::values::*;
pub use command::{BpfInstruction, CallArg, Capability, CapabilitySet, Namespace, mount_attribute};
pub use command::{Command, CommandArgs, CommandEnvs};
pub use error::Error;
#[doc(hidden)]
pub use error::errno;
#[doc(hidden)]
pub use forkless_core::planted;
#[doc(hidden)]
pub use launch::KeepDumpable;
#[doc(hidden)]
pub use launch::assume_old_kernel;
pub use launch::{Call, DescriptorTable, Launcher, Passing, Route, Support, mapped_stacks, set_dumpable};
pub use orphan::reap_orphans;
pub use output::{Chunks, Lines, Stream};
pub use pipeline::{Pipeline, PipelineStatus, RunningPipeline};
pub use prepared::Prepared;
#[doc(hidden)]
pub use process::generation;
pub use pty::{Pty, PtySize, RawMode};
#[doc(hidden)]
pub use quiet::write_quietly;
pub use shell::{Reason, ShellChild, ShellCommand, ShellEnding, ShellRoute, Syntax, shell};
pub use stdio::Stdio;
pub use step::Step;
pub use usage::Usage;
#[doc(hidden)]
pub use wait::sigchld_discards;
pub use wait_set::{Ended, Key, NotInserted, WaitSet};

/// Types that are `std`'s own, so that a `use std::process::{…}` line can be changed as a whole.
pub use std::process::{
    ChildStderr, ChildStdin, ChildStdout, ExitCode, ExitStatus, Output, Termination, abort, exit, id,
};

/// The examples of the README, which are tested with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
