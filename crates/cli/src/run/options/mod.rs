//! The options of `forkless run`. They have the names of the corresponding options of env(1), timeout(1) and
//! setsid(1); each module names the tools that its options follow.

mod arguments;
mod cgroup;
mod child;
mod filters;
mod identity;
mod limits;
mod mounts;
mod namespaces;
mod on_demand;
mod plain;
mod privileges;
mod sandbox;
mod scheduling;
mod settings;
mod signals;
mod syscalls;

use std::{ffi::OsString, os::fd::RawFd, path::PathBuf, time::Duration};

use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use forkless::{BpfInstruction, Step};

use super::{
    captured::When,
    failure::Failure,
    parse::{self, Assignment, FdRequest, FdSource},
};

pub(crate) use arguments::expand;
pub(crate) use cgroup::OwnGroup;
pub(crate) use child::{ChildOptions, SessionAndGroup, step_names};
pub(crate) use identity::{Ids, names};
pub(crate) use limits::amount;
pub(crate) use on_demand::quick;
pub(crate) use privileges::open_fd;
pub(crate) use sandbox::Profile;
pub(crate) use signals::{has_ignored_sigpipe, note_sigpipe};

use on_demand::OnDemand;

/// Run PROGRAM and exit with its exit code
///
/// Arguments of the form NAME=VALUE before PROGRAM set environment variables of it. All arguments after PROGRAM are
/// passed to it.
#[derive(Args, Debug, Default)]
#[command(after_help = EXIT_CODES, override_usage = "forkless run [OPTIONS] [NAME=VALUE]... PROGRAM [ARGS]...")]
pub(crate) struct RunOptions {
    /// Start with an empty environment (default: inherit it)
    #[arg(help_heading = PROGRAM, short = 'i', long, alias = "clearenv")]
    pub(crate) ignore_environment: bool,

    /// Remove the variable NAME from the environment
    #[arg(help_heading = PROGRAM, short = 'u', long, alias = "unsetenv", value_name = "NAME", value_parser = OsStringValueParser::new().try_map(parse::variable))]
    pub(crate) unset: Vec<OsString>,

    /// Set a variable in the environment
    #[arg(help_heading = PROGRAM, long, alias = "setenv", value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(parse::assignment))]
    pub(crate) env: Vec<Assignment>,

    /// Run PROGRAM in the working directory DIR (default: inherit it)
    #[arg(help_heading = PROGRAM, short = 'C', long, visible_alias = "cwd", aliases = ["working-directory", "wd"], value_name = "DIR")]
    pub(crate) chdir: Option<PathBuf>,

    /// Set argv[0] of PROGRAM to NAME (default: PROGRAM)
    #[arg(help_heading = PROGRAM, short = 'a', long, value_name = "NAME")]
    pub(crate) argv0: Option<OsString>,

    /// Run this PROGRAM if those before it are not found; argv[0] is unchanged
    #[arg(help_heading = PROGRAM, long, value_name = "PROGRAM")]
    pub(crate) or_else: Vec<OsString>,

    /// Set standard input: inherit, null, fd:N or a file to read (default: inherit)
    #[arg(help_heading = FILES, long, value_name = "SOURCE", value_parser = OsStringValueParser::new().try_map(parse::input))]
    pub(crate) stdin: Option<FdSource>,

    /// Set standard output: inherit, null, fd:N, stderr, append:FILE or a file to write (default: inherit)
    #[arg(help_heading = FILES, long, value_name = "SOURCE", value_parser = OsStringValueParser::new().try_map(parse::output))]
    pub(crate) stdout: Option<FdSource>,

    /// Set standard error: inherit, null, fd:N, stdout, append:FILE or a file to write (default: inherit)
    #[arg(help_heading = FILES, long, value_name = "SOURCE", value_parser = OsStringValueParser::new().try_map(parse::output))]
    pub(crate) stderr: Option<FdSource>,

    /// Set file descriptor N of the program: the number of an inherited descriptor, null, r:FILE, w:FILE, a:FILE (append)
    /// or rw:FILE
    #[arg(help_heading = FILES, long, value_name = "N=SOURCE", value_parser = OsStringValueParser::new().try_map(parse::fd_request))]
    pub(crate) fd: Vec<FdRequest>,

    /// Open a file as descriptor N with the user, root and working directory of the program: r:FILE, w:FILE, a:FILE
    /// (append) or rw:FILE
    #[arg(help_heading = FILES, long, value_name = "N=SOURCE", value_parser = OsStringValueParser::new().try_map(parse::open_request))]
    pub(crate) open: Vec<FdRequest>,

    /// Read more options from inherited descriptor FD, each word ended by NUL, and take them in the place of this one
    #[arg(help_heading = PROGRAM, long, value_name = "FD")]
    pub(crate) args: Vec<u32>,

    /// Inherit all file descriptors that are not close-on-exec (default: only the standard streams and those named)
    #[arg(help_heading = FILES, long)]
    pub(crate) inherit_all: bool,

    /// Buffer standard output and standard error until the program has ended, then print them (default: do not buffer;
    /// default of WHEN: always)
    #[arg(help_heading = FILES, long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "always")]
    pub(crate) capture: Option<When>,

    /// Keep at most BYTES of each captured stream and drop the rest (suffixes K, M, G, T, or unlimited; default: 64M)
    #[arg(help_heading = FILES, long, value_name = "BYTES", value_parser = limits::amount, requires = "capture")]
    pub(crate) limit_output: Option<u64>,

    /// Wait up to DURATION for processes that the program has left behind: with --capture those that hold its output open,
    /// in a --sandbox all (default: 200ms)
    #[arg(help_heading = FILES, long, value_name = "DURATION", value_parser = parse::duration)]
    pub(crate) linger: Option<Duration>,

    /// Signal the program and all that it has started after DURATION, such as 1m30s (default: 0, never)
    ///
    /// DURATION is a number of seconds, or numbers with the units ms, s, m, h and d, from the largest to the smallest.
    /// A program with --setsid or --pty gets the signal in its process group.
    #[arg(help_heading = TIME_OUT, long, value_name = "DURATION", value_parser = parse::duration)]
    pub(crate) timeout: Option<Duration>,

    /// Send this signal, a name or a number, on timeout
    #[arg(help_heading = TIME_OUT, short = 's', long, value_name = "SIG", default_value = "TERM", value_parser = parse::signal, requires = "timeout")]
    pub(crate) signal: i32,

    /// Send KILL DURATION later if the program still runs (default: never)
    #[arg(help_heading = TIME_OUT, short = 'k', long, value_name = "DURATION", value_parser = parse::duration, requires = "timeout")]
    pub(crate) kill_after: Option<Duration>,

    /// Exit with the program's exit code on timeout, too (default: exit with 124)
    #[arg(help_heading = TIME_OUT, long, requires = "timeout")]
    pub(crate) preserve_status: bool,

    /// Exit with 128+n if signal n kills the program (default: die by that signal, which shells report as 128+n)
    #[arg(help_heading = REPORTS, long)]
    pub(crate) signal_exit_code: bool,

    /// Print the program's resource usage at its end (to standard error)
    #[arg(help_heading = REPORTS, long)]
    pub(crate) usage: bool,

    /// Write how the program ended to FILE, or to inherited descriptor N with fd:N, as one line of JSON (fields:
    /// docs/run.md)
    #[arg(help_heading = REPORTS, long, value_name = "FILE")]
    pub(crate) report: Option<OsString>,

    /// Write {"child-pid": N} to inherited descriptor FD when the child exists, and {"exit-code": N} at the end of the program,
    /// each on a line
    #[arg(help_heading = REPORTS, long, value_name = "FD")]
    pub(crate) json_status_fd: Option<u32>,

    /// Do not print remarks on a program that ran: steps skipped by --best-effort, kills by the OOM killer; errors are printed
    #[arg(help_heading = REPORTS, short = 'q', long)]
    pub(crate) quiet: bool,

    /// Print to standard error how the child was created, and why
    #[arg(help_heading = REPORTS, long)]
    pub(crate) route: bool,

    /// Print whether forkless becomes the program or supervises it, and why, and the steps; the program is not run
    #[arg(help_heading = REPORTS, long)]
    pub(crate) explain: bool,

    /// Start the program as a child and wait for it, even if no option needs that (default: become the program)
    #[arg(help_heading = REPORTS, long)]
    pub(crate) supervise: bool,

    /// Run LINE as /bin/sh -c would, without a shell where the result is the same (see --explain and --route)
    #[arg(help_heading = PROGRAM, long, value_name = "LINE", conflicts_with_all = ["words", "or_else", "argv0"])]
    pub(crate) shell: Option<OsString>,

    /// Shell of --shell (default: /bin/sh)
    #[arg(help_heading = PROGRAM, long, value_name = "FILE", requires = "shell", conflicts_with = "words")]
    pub(crate) shell_path: Option<PathBuf>,

    /// Program to run and its arguments; may be preceded by NAME=VALUE
    #[arg(required_unless_present = "shell", trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) words: Vec<OsString>,

    #[command(flatten)]
    pub(crate) sandbox: sandbox::SandboxOptions,

    #[command(flatten)]
    pub(crate) signals: OnDemand<signals::SignalOptions>,

    #[command(flatten)]
    pub(crate) child: OnDemand<ChildOptions>,

    #[command(flatten)]
    pub(crate) identity: OnDemand<identity::Identity>,

    #[command(flatten)]
    pub(crate) privileges: OnDemand<privileges::Privileges>,
    #[command(flatten)]
    pub(crate) filters: OnDemand<filters::Filters>,

    #[command(flatten)]
    pub(crate) namespaces: OnDemand<namespaces::Namespaces>,

    #[command(flatten)]
    pub(crate) control_group: OnDemand<cgroup::ControlGroup>,

    #[command(flatten)]
    pub(crate) mounts: OnDemand<mounts::Mounts>,

    #[command(flatten)]
    pub(crate) scheduling: OnDemand<scheduling::Scheduling>,

    #[command(flatten)]
    pub(crate) settings: OnDemand<settings::Settings>,

    #[command(flatten)]
    pub(crate) limits: OnDemand<limits::Limits>,
}

impl RunOptions {
    /// All options.
    pub(crate) fn definition() -> clap::Command {
        Self::augment_args(clap::Command::new("run"))
    }

    /// Applies all settings of the child except environment, files, working directory and argv[0].
    pub(crate) fn set_child(&self, command: &mut forkless::Command) -> Result<(), Failure> {
        self.signals.apply(command);
        self.child.apply(command, self.sandbox.sandbox.is_some())?;
        if self.sandbox.sandbox.is_some() {
            // The sandbox changes the IDs, and has its own namespaces and mounts.
            self.identity.set_umask(command);
            self.privileges.apply(command, true)?;
        } else {
            self.identity.apply(command)?;
            self.privileges.apply(command, self.namespaces.is_in_user_namespace())?;
            self.namespaces.apply(command, self.mounts.has_any())?;
            self.mounts.apply(command)?;
        }
        self.filters.apply(command, self.child.is_best_effort(Step::Landlock))?;
        self.control_group.apply(command)?;
        self.scheduling.apply(command);
        self.settings.apply(command);
        self.limits.apply(command)
    }

    /// Are there variables before the program?
    pub(crate) fn has_assignments(&self) -> bool {
        self.words.first().is_some_and(|word| parse::split(word, b'=').is_some())
    }

    /// How long to wait for processes that the program has left behind.
    pub(crate) fn linger(&self) -> Duration {
        const DEFAULT: Duration = Duration::from_millis(200);
        self.linger.unwrap_or(DEFAULT)
    }

    /// Has the program another root, so that its paths are not those of forkless?
    pub(crate) fn has_root(&self) -> bool {
        self.mounts.has_root() || self.sandbox.sandbox.is_some()
    }

    /// Does this look like a command line of bwrap(1), whose program would see only what is mounted?
    pub(crate) fn is_like_bwrap(&self) -> bool {
        !self.has_root() && self.mounts.has_parts_of_a_root(self.namespaces.unshare_all)
    }

    /// The seccomp filter of the command line with the option that sets it.
    pub(crate) fn seccomp_filter(&self) -> Option<(&'static str, Vec<BpfInstruction>)> {
        let named = self.filters.program().map(|program| ("--system-call-filter", program.to_vec()));
        named.or_else(|| Some(("--seccomp", self.privileges.filter()?)))
    }

    /// The PATH that was searched.
    pub(crate) fn path(&self) -> Option<OsString> {
        let given = self.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        given.or_else(|| std::env::var_os("PATH")).filter(|path| !path.is_empty())
    }

    /// Describes the setting that was skipped before the child was created (`--best-effort`).
    pub(crate) fn skipped(&self) -> Option<String> {
        self.filters.not_denied().filter(|_| self.child.is_best_effort(Step::Landlock))
    }

    /// Does an option set this descriptor?
    pub(crate) fn has_fd(&self, number: RawFd) -> bool {
        let stream = match number {
            0 => &self.stdin,
            1 => &self.stdout,
            2 => &self.stderr,
            _ => &None,
        };
        stream.is_some() || self.fd.iter().chain(&self.open).any(|request| request.number == number)
    }

    /// Describes the namespaces and the cgroup that the program starts in, for `--explain`. `how`: what creates it.
    pub(crate) fn birth_words(&self, how: &str) -> String {
        self.namespaces.describe(self.mounts.has_any(), how) + &self.control_group.describe()
    }
}

const PROGRAM: &str = "Program and environment";
const FILES: &str = "Files";
const TIME_OUT: &str = "Timeout";
const REPORTS: &str = "Reports";

const EXIT_CODES: &str = "\
Exit code: that of the program, or
  124    the program timed out (137 if it was sent KILL)
  125    forkless failed: bad option, missing directory or file, no memory, …
  126    the program was found but cannot be executed
  127    the program was not found
  128+n  with --signal-exit-code or after a timeout: signal n killed the program
Without these, forkless dies by the signal that killed the program; a shell
reports that as 128+n, too.";
