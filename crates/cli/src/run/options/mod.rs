//! The options of `forkless run`, named as env(1), timeout(1) and setsid(1) name theirs; the modules say whose names
//! theirs are.

mod cgroup;
mod child;
mod filters;
mod identity;
mod limits;
mod mounts;
mod namespaces;
mod privileges;
mod scheduling;
mod settings;
mod signals;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use forkless::Step;

use super::{
    captured::When,
    failure::Failure,
    parse::{self, Assignment, FdRequest, Source},
};

pub(crate) use cgroup::OwnGroup;
pub(crate) use child::ChildOptions;
pub(crate) use limits::amount;

/// Run PROGRAM and exit with its exit code
///
/// Words of the form NAME=VALUE before PROGRAM are set in its environment. Everything after PROGRAM belongs to it.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES, override_usage = "forkless run [OPTIONS] [NAME=VALUE]... PROGRAM [ARGS]...")]
pub(crate) struct RunOptions {
    /// Start with an empty environment
    #[arg(short = 'i', long)]
    pub(crate) ignore_environment: bool,

    /// Remove a variable from the environment
    #[arg(short = 'u', long, value_name = "NAME")]
    pub(crate) unset: Vec<OsString>,

    /// Set a variable in the environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(parse::assignment))]
    pub(crate) env: Vec<Assignment>,

    /// Change to this directory first
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) chdir: Option<PathBuf>,

    /// Tell the program that this is its name
    #[arg(short = 'a', long, value_name = "NAME")]
    pub(crate) argv0: Option<OsString>,

    /// Another program to run, under PROGRAM's name, where those before it are not there
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["exec_fd", "fexec"])]
    pub(crate) or_else: Vec<OsString>,

    /// Standard input: inherit, null, fd:NUMBER or a file to read
    #[arg(help_heading = FILES, long, value_name = "SOURCE", value_parser = OsStringValueParser::new().try_map(parse::input))]
    pub(crate) stdin: Option<Source>,

    /// Standard output: inherit, null, fd:NUMBER, stderr, append:FILE or a file to write
    #[arg(help_heading = FILES, long, value_name = "SOURCE", value_parser = OsStringValueParser::new().try_map(parse::output))]
    pub(crate) stdout: Option<Source>,

    /// Standard error: inherit, null, fd:NUMBER, stdout, append:FILE or a file to write
    #[arg(help_heading = FILES, long, value_name = "SOURCE", value_parser = OsStringValueParser::new().try_map(parse::output))]
    pub(crate) stderr: Option<Source>,

    /// Give the program a file at number N: a NUMBER of ours, null, or r:FILE, w:FILE, a:FILE (append), rw:FILE
    #[arg(help_heading = FILES, long, value_name = "N=SOURCE", value_parser = OsStringValueParser::new().try_map(parse::fd_request))]
    pub(crate) fd: Vec<FdRequest>,

    /// Have the program open a file at number N itself, as its user, in its root and directory: r:FILE, w:FILE, a:FILE
    /// (append), rw:FILE
    #[arg(help_heading = FILES, long, value_name = "N=SOURCE", value_parser = OsStringValueParser::new().try_map(parse::open_request))]
    pub(crate) open: Vec<FdRequest>,

    /// Pass on all open files that are not close-on-exec, not only the standard ones and those named
    #[arg(help_heading = FILES, long)]
    pub(crate) inherit_all: bool,

    /// Keep what the program writes to its standard output and error, and show it when it has ended; with on-failure, only
    /// if it has failed
    #[arg(help_heading = FILES, long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "always", conflicts_with = "pty")]
    pub(crate) capture: Option<When>,

    /// Keep that much of each of the two, in bytes (suffixes K, M, G, T), and drop the rest
    #[arg(help_heading = FILES, long, value_name = "BYTES", value_parser = limits::amount, requires = "capture")]
    pub(crate) limit_output: Option<u64>,

    /// Send a signal to the program if it still runs after this time (10, 1.5s, 200ms, 5m, 2h, 1d; 0: never)
    #[arg(help_heading = TIME_OUT, long, value_name = "DURATION", value_parser = parse::duration)]
    pub(crate) timeout: Option<Duration>,

    /// The signal to send on time-out, by name or number
    #[arg(help_heading = TIME_OUT, long, value_name = "SIG", default_value = "TERM", value_parser = parse::signal)]
    pub(crate) signal: i32,

    /// Send KILL if it still runs this long after that signal
    #[arg(help_heading = TIME_OUT, long, value_name = "DURATION", value_parser = parse::duration)]
    pub(crate) kill_after: Option<Duration>,

    /// On time-out, exit with the program's code all the same
    #[arg(help_heading = TIME_OUT, long)]
    pub(crate) preserve_status: bool,

    /// Afterwards, say on standard error what the program used
    #[arg(help_heading = REPORTS, long)]
    pub(crate) usage: bool,

    /// Say on standard error by which way the program was started, and why
    #[arg(help_heading = REPORTS, long)]
    pub(crate) route: bool,

    /// Print what would be done, step by step, and do nothing
    #[arg(help_heading = REPORTS, long)]
    pub(crate) explain: bool,

    /// Run this as /bin/sh -c would, without the shell where that makes no difference (--explain: which way, and why)
    #[arg(long, value_name = "LINE", conflicts_with_all = ["words", "or_else", "argv0", "exec_fd", "fexec"])]
    pub(crate) shell: Option<OsString>,

    /// The program with its arguments; variables for it may stand in front
    #[arg(required_unless_present = "shell", trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) words: Vec<OsString>,

    #[command(flatten)]
    pub(crate) signals: signals::SignalOptions,

    #[command(flatten)]
    pub(crate) child: ChildOptions,

    #[command(flatten)]
    pub(crate) identity: identity::Identity,

    #[command(flatten)]
    pub(crate) privileges: privileges::Privileges,
    #[command(flatten)]
    pub(crate) filters: filters::Filters,

    #[command(flatten)]
    pub(crate) namespaces: namespaces::Namespaces,

    #[command(flatten)]
    pub(crate) control_group: cgroup::ControlGroup,

    #[command(flatten)]
    pub(crate) mounts: mounts::Mounts,

    #[command(flatten)]
    pub(crate) scheduling: scheduling::Scheduling,

    #[command(flatten)]
    pub(crate) settings: settings::Settings,

    #[command(flatten)]
    pub(crate) limits: limits::Limits,
}

impl RunOptions {
    /// What the library is told about the child beside its environment, files, directory and signals.
    pub(crate) fn set_child(&self, command: &mut forkless::Command) -> Result<(), Failure> {
        self.signals.apply(command);
        self.child.apply(command)?;
        self.identity.apply(command)?;
        self.privileges.apply(command, self.namespaces.changes_user())?;
        self.filters.apply(command, self.child.is_best_effort(Step::Landlock))?;
        self.namespaces.apply(command, self.mounts.any())?;
        self.control_group.apply(command)?;
        self.mounts.apply(command)?;
        self.scheduling.apply(command);
        self.settings.apply(command);
        self.limits.apply(command)
    }

    /// What the launch has gone on without before there was a child, in words.
    pub(crate) fn skipped(&self) -> Option<String> {
        self.filters.not_denied().filter(|_| self.child.is_best_effort(Step::Landlock))
    }

    /// How the child is made, in words.
    pub(crate) fn clone_words(&self) -> String {
        let how = self.child.launcher.words();
        self.namespaces.words(self.mounts.any(), how) + &self.control_group.words()
    }
}

const FILES: &str = "Files";
const TIME_OUT: &str = "Time-out";
const REPORTS: &str = "Reports";

const EXIT_CODES: &str = "\
Exit code: the program's, or
  124    it was stopped by the time-out (137 if by KILL)
  125    forkless itself failed: bad option, directory or file missing, no memory…
  126    the program was found but cannot be run
  127    the program was not found
  128+n  it was killed by signal n";
