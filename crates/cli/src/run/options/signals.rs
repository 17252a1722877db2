//! What signals do to the program: named as env(1) names theirs.

use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use forkless::Command;

use super::super::{
    parse::{self, Signals},
    wait::is_ignored,
};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Signals (a signal by name or number wins over all of them)")]
pub(crate) struct SignalOptions {
    /// Reset signals to their default action; all of them without SIG
    #[arg(long, value_name = "SIG", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          value_delimiter = ',', value_parser = parse::signals)]
    default_signal: Vec<Signals>,

    /// Have signals ignored; all of them without SIG
    #[arg(long, value_name = "SIG", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          value_delimiter = ',', value_parser = parse::signals)]
    ignore_signal: Vec<Signals>,

    /// Leave signals as they are for us, ignored or at their default; so it is anyway, but for PIPE
    #[arg(long, value_name = "SIG", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          value_delimiter = ',', value_parser = parse::signals)]
    inherit_signal: Vec<Signals>,

    /// Have signals blocked; all of them without SIG
    #[arg(long, value_name = "SIG", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          value_delimiter = ',', value_parser = parse::signals)]
    block_signal: Vec<Signals>,

    /// Start with no signal blocked but those of --block-signal (default: also those that the caller blocks)
    #[arg(long)]
    empty_signal_mask: bool,
}

impl SignalOptions {
    /// A signal that is named wins over all of them: `--ignore-signal --default-signal=TERM` ignores all but one.
    pub(crate) fn apply(&self, command: &mut Command) {
        let numbers = |signals: &[Signals], all: bool| -> Vec<i32> {
            signals.iter().filter(|s| (**s == Signals::All) == all).flat_map(|s| s.numbers()).collect()
        };
        for all in [true, false] {
            for signal in numbers(&self.default_signal, all) {
                command.signal_default(signal);
            }
            for signal in numbers(&self.ignore_signal, all) {
                command.signal_ignore(signal);
            }
            for signal in numbers(&self.inherit_signal, all) {
                match (signal, PIPE_WAS_IGNORED.load(Ordering::Relaxed)) {
                    (libc::SIGPIPE, false) => command.signal_default(signal),
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

/// What SIGPIPE did when we were started: Rust's runtime has it ignored before `main` begins.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Called by the C runtime, before Rust's.
// SAFETY: functions of this section are called once, with arguments that this one does not take; it needs nothing that
// is not there so early.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    }
    look
};
