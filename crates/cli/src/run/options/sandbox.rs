//! The sandbox preset and what widens it. The options have the names of bwrap(1) where it has them.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};

// No doc comment: clap would take it for the description of `forkless run`. The options that conflict with a sandbox say
// so themselves.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxOptions {
    /// Run the program in a sandbox: new namespaces, a read-only root with /usr and /etc, private /proc, /dev and /tmp, no
    /// network, no capabilities, filters of system calls and files (default of PROFILE: default)
    ///
    /// What widens it: --read shows files, --write also lets the program change them, --project all but what other
    /// programs obey; --bind and other mounts; --share-net; --env and --keep-env; --fd and --inherit-all; --pty; --reuid;
    /// --nofile and other limits. --hide takes away.
    #[arg(long, value_name = "PROFILE", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "default")]
    pub(crate) sandbox: Option<Profile>,

    /// Show a file or directory of the host in the sandbox, read-only, at its own path
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    pub(crate) read: Vec<PathBuf>,

    /// Show a file or directory at its own path, and let the program write there
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    pub(crate) write: Vec<PathBuf>,

    /// As --write, but keep read-only what other programs obey later: .git/hooks, settings of editors and shells
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    pub(crate) project: Vec<PathBuf>,

    /// Hide what matches below --read, --write and --project, such as '**/.env' or '*.pem'
    #[arg(long, value_name = "PATTERN", requires = "sandbox")]
    pub(crate) hide: Vec<PathBuf>,

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

impl SandboxOptions {
    /// What is shown at its own path.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &PathBuf> {
        self.read.iter().chain(&self.write).chain(&self.project)
    }
}
