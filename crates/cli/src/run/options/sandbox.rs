//! The sandbox preset and what widens it. The options have the names of bwrap(1) where it has them.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

// No doc comment: clap would take it for the description of `forkless run`. The options that conflict with a sandbox say
// so themselves.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxOptions {
    /// Run the program in a sandbox: new namespaces, a read-only root with /usr and /etc, private /proc, /dev and /tmp, no
    /// network, no capabilities, filters of system calls and files (default of PROFILE: default)
    ///
    /// What widens it: --ro-bind SRC DST shows files, and --bind SRC DST lets the program write to them (--ro-bind . .
    /// shows the working directory); --tmpfs and other mounts; --share-net; --env and --keep-env; --fd and --inherit-all;
    /// --pty; --reuid; --nofile and other limits.
    #[arg(long, value_name = "PROFILE", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "default")]
    pub(crate) sandbox: Option<Profile>,

    /// Keep the network of the caller in the sandbox
    #[arg(long, requires = "sandbox")]
    pub(crate) share_net: bool,

    /// Keep these environment variables in the sandbox, too
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = "sandbox")]
    pub(crate) keep_env: Vec<OsString>,
}

/// How strict the sandbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Without Landlock in the kernel, print a message and continue
    Default,
    /// Require Landlock with all that forkless knows, and allow no program in /tmp and /dev/shm to be executed
    Strict,
}
