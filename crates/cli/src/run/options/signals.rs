//! Signal dispositions and the signal mask of the program. The options have the names of env(1).

use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use forkless::Command;

use super::super::{
    parse::{self, SignalChoice},
    signals::is_ignored,
};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Signals (SIG[,SIG...]; without SIG all; a listed signal overrides \"all\")")]
pub(crate) struct SignalOptions {
    /// Reset SIG to its default action
    #[arg(long, value_name = "SIG", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          value_delimiter = ',', value_parser = parse::signals)]
    default_signal: Vec<SignalChoice>,

    /// Ignore SIG
    #[arg(long, value_name = "SIG", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          value_delimiter = ',', value_parser = parse::signals)]
    ignore_signal: Vec<SignalChoice>,

    /// Inherit whether SIG is ignored (the default for all signals except PIPE, which is reset)
    #[arg(long, value_name = "SIG", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          value_delimiter = ',', value_parser = parse::signals)]
    inherit_signal: Vec<SignalChoice>,

    /// Block SIG
    #[arg(long, value_name = "SIG", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          value_delimiter = ',', value_parser = parse::signals)]
    block_signal: Vec<SignalChoice>,

    /// Block no signals except those of --block-signal (default: inherit the mask)
    #[arg(long)]
    pub(crate) empty_signal_mask: bool,
}

impl SignalOptions {
    /// A listed signal overrides "all": `--ignore-signal --default-signal=TERM` ignores all signals except TERM.
    pub(crate) fn apply(&self, command: &mut Command) {
        let numbers = |signals: &[SignalChoice], all: bool| -> Vec<i32> {
            signals.iter().filter(|s| (**s == SignalChoice::All) == all).flat_map(|s| s.numbers()).collect()
        };
        // SIGCHLD stays ignored in the program, although a supervising forkless resets it: `Signals::take`.
        let ignores_chld = is_ignored(libc::SIGCHLD);
        if ignores_chld {
            command.signal_ignore(libc::SIGCHLD);
        }
        for all in [true, false] {
            for signal in numbers(&self.default_signal, all) {
                command.signal_default(signal);
            }
            for signal in numbers(&self.ignore_signal, all) {
                command.signal_ignore(signal);
            }
            for signal in numbers(&self.inherit_signal, all) {
                match signal {
                    libc::SIGPIPE if !has_ignored_sigpipe() => command.signal_default(signal),
                    libc::SIGCHLD if ignores_chld => command.signal_ignore(signal),
                    _ => command.signal_inherit(signal),
                };
            }
            for signal in numbers(&self.block_signal, all) {
                command.signal_block(signal);
            }
        }
        command.inherit_signal_mask(!self.empty_signal_mask);
    }
}

/// Was SIGPIPE ignored when forkless was started?
pub(crate) fn has_ignored_sigpipe() -> bool {
    PIPE_WAS_IGNORED.load(Ordering::Relaxed)
}

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Notes whether SIGPIPE is ignored. Must be called before forkless ignores it.
pub(crate) fn note_sigpipe() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}
