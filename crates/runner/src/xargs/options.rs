//! The options of `forkless xargs`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

/// Run COMMAND with the arguments that standard input gives
///
/// Like xargs(1) of POSIX.1-2024 and of GNU findutils, and with their options. Blanks and newlines separate the arguments;
/// quotes and backslashes protect them. Options end at COMMAND.
#[derive(Args, Debug, Default)]
#[command(
    after_help = EXIT_CODES,
    infer_long_args = true,
    args_override_self = true,
    override_usage = "forkless xargs [OPTIONS] [COMMAND [INITIAL-ARGS]...]"
)]
pub struct XargsOptions {
    /// End each argument by a NUL byte; quotes and backslashes are not special
    #[arg(help_heading = INPUT, short = '0', long, overrides_with = "delimiter")]
    pub(crate) null: bool,

    /// End each argument by the character CHAR (x, \n, \x2c, \054); quotes and backslashes are not special
    #[arg(help_heading = INPUT, short, long, value_name = "CHAR", overrides_with = "null")]
    pub(crate) delimiter: Option<OsString>,

    /// Read arguments from FILE; the commands then have the standard input of forkless
    #[arg(help_heading = INPUT, short, long, value_name = "FILE")]
    pub(crate) arg_file: Option<PathBuf>,

    /// Ignore the input from the argument END on (default: read all)
    #[arg(help_heading = INPUT, short = 'E', value_name = "END", overrides_with = "eof_optional")]
    pub(crate) end: Option<OsString>,

    /// Like -E; without END, no argument ends the input
    #[arg(help_heading = INPUT, long = "eof", visible_short_alias = 'e', value_name = "END", num_args = 0..=1,
          require_equals = true, default_missing_value = "", overrides_with = "end")]
    pub(crate) eof_optional: Option<OsString>,

    /// Replace TEXT in the initial arguments by a line of the input, and run COMMAND for each line
    #[arg(help_heading = PACKING, short = 'I', value_name = "TEXT", allow_hyphen_values = true,
          overrides_with_all = ["replace_optional", "max_args", "max_lines", "lines_optional"])]
    pub(crate) replace: Option<OsString>,

    /// Like -I (default for TEXT: {})
    #[arg(help_heading = PACKING, long = "replace", visible_short_alias = 'i', value_name = "TEXT", num_args = 0..=1,
          require_equals = true, default_missing_value = "{}",
          overrides_with_all = ["replace", "max_args", "max_lines", "lines_optional"])]
    pub(crate) replace_optional: Option<OsString>,

    /// Use at most COUNT lines of the input for each command; a line that ends in a blank goes on in the next
    #[arg(help_heading = PACKING, short = 'L', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..),
          overrides_with_all = ["replace", "replace_optional", "max_args", "lines_optional"])]
    pub(crate) max_lines: Option<u64>,

    /// Like -L (default for COUNT: 1)
    #[arg(help_heading = PACKING, long = "max-lines", visible_short_alias = 'l', value_name = "COUNT", num_args = 0..=1,
          require_equals = true, default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..),
          overrides_with_all = ["replace", "replace_optional", "max_args", "max_lines"])]
    pub(crate) lines_optional: Option<u64>,

    /// Use at most COUNT arguments for each command
    #[arg(help_heading = PACKING, short = 'n', long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..),
          overrides_with_all = ["replace", "replace_optional", "max_lines", "lines_optional"])]
    pub(crate) max_args: Option<u64>,

    /// Use at most COUNT bytes for each command, its name and its initial arguments included (default: 131072)
    #[arg(help_heading = PACKING, short = 's', long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_chars: Option<u64>,

    /// Stop if the arguments of -n or -L do not fit into -s
    #[arg(help_heading = PACKING, short = 'x', long)]
    pub(crate) exit: bool,

    /// Run up to COUNT commands at once; 0: as many as possible (default: 1)
    ///
    /// SIGUSR1 adds one while it runs, SIGUSR2 takes one away.
    #[arg(help_heading = RUNNING, short = 'P', long, value_name = "COUNT")]
    pub(crate) max_procs: Option<u32>,

    /// Do not run COMMAND if the input has no arguments (default: run it once)
    #[arg(help_heading = RUNNING, short = 'r', long)]
    pub(crate) no_run_if_empty: bool,

    /// Print each command to standard error before it runs
    #[arg(help_heading = RUNNING, short = 't', long)]
    pub(crate) verbose: bool,

    /// Ask on the terminal before each command
    #[arg(help_heading = RUNNING, short = 'p', long)]
    pub(crate) interactive: bool,

    /// Open the terminal as the commands' standard input (default: /dev/null)
    #[arg(help_heading = RUNNING, short = 'o', long)]
    pub(crate) open_tty: bool,

    /// Set the variable NAME to the number of the command's slot, from 0; no two commands that run have the same
    #[arg(help_heading = RUNNING, long, value_name = "NAME")]
    pub(crate) process_slot_var: Option<OsString>,

    /// Kill all that a command has started, also in other sessions, when it ends or forkless does (Linux 6.12)
    #[arg(help_heading = RUNNING, long)]
    pub(crate) kill_tree: bool,

    /// Start commands as clones of programs that are loaded already, where possible (experimental: docs/warm.md)
    #[arg(help_heading = RUNNING, long)]
    pub(crate) warm: bool,

    /// Print the limits of the length of a command to standard error
    #[arg(help_heading = RUNNING, long)]
    pub(crate) show_limits: bool,

    /// Command and its initial arguments (default: echo)
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) words: Vec<OsString>,
}

const INPUT: &str = "Input";
const PACKING: &str = "Packing of the arguments";
const RUNNING: &str = "Running";

const EXIT_CODES: &str = "\
Exit code:
  0    all commands exited with 0
  123  a command exited with 1 to 254
  124  a command exited with 255; no further one was started
  125  a signal ended a command; no further one was started
  126  the command cannot be executed
  127  the command is not found
  1    another error";
