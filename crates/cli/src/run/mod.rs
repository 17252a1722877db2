//! `forkless run`: runs one program with the settings of the library and exits with its exit code.
//!
//! `request` makes a [`Command`](forkless::Command) of the options. `parent` decides whether the program needs a parent. If
//! not, `in_place` makes forkless the program; otherwise `supervised` starts a child and waits for it.

mod captured;
mod descendants;
mod explain;
mod failure;
mod filter;
mod in_place;
mod job_control;
mod options;
mod parent;
mod parse;
mod remedy;
mod report;
mod request;
mod sandbox;
mod signals;
mod supervised;
mod terminal;
mod wait;

use std::{ffi::OsString, process::ExitCode};

pub(crate) use failure::say;
pub(crate) use forkless::internal::filter::bytes as sandbox_filter;
pub(crate) use options::{RunOptions, amount, expand, note_sigpipe, quick, step_names};
pub(crate) use remedy::of_program;

use crate::usage::typed_names;

use self::{failure::Failure, report::Reports, request::Asked, sandbox::Sandbox};

/// How forkless is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Code(u8),
    /// By this signal, as its program.
    Signal(i32),
}

/// Runs the program and returns the exit code of forkless. `words`: the arguments that the options were parsed from.
pub(crate) fn main(options: &RunOptions, words: &[OsString]) -> ExitCode {
    let outcome = Reports::open(options).and_then(|mut reports| {
        let outcome = check_user(options, words).and_then(|()| run(options, &mut reports));
        reports.finish(options, outcome)
    });
    match outcome {
        Ok(Outcome::Code(code)) => ExitCode::from(code),
        Ok(Outcome::Signal(signal)) => {
            signals::die_by(signal);
            ExitCode::from(supervised::shell_code(signal))
        }
        Err(failure) => {
            say(remedy::describe(&failure, options));
            ExitCode::from(failure.code)
        }
    }
}

/// `-u nobody` may be meant as that of sudo(8): if the variable does not exist, and the user does, the program would run as the
/// wrong user.
fn check_user(options: &RunOptions, words: &[OsString]) -> Result<(), Failure> {
    let is_user = |name: &OsString| options::names("/etc/passwd").iter().any(|user| name == user.as_str());
    let is_suspicious = |name: &OsString| std::env::var_os(name).is_none() && is_user(name);
    if !options.unset.iter().any(is_suspicious) {
        return Ok(());
    }
    let typed = typed_names(RunOptions::definition(), words, "unset");
    for (name, typed) in options.unset.iter().zip(typed) {
        let text = name.to_string_lossy();
        if typed == "-u" && is_suspicious(name) {
            return Err(Failure::before(format_args!(
                "-u {text}: there is no variable {text}, but a user; write --user {text} to run as that user, or --unset \
                 {text} to remove the variable"
            )));
        }
    }
    Ok(())
}

/// Returns only if a child ran the program, or the program was explained or could not be run.
fn run(options: &RunOptions, reports: &mut Reports) -> Result<Outcome, Failure> {
    let sandbox = Sandbox::of(options)?;
    if options.linger.is_some() && options.capture.is_none() && sandbox.is_none() {
        return Err(Failure::before("--linger requires --capture or --sandbox; add one of them"));
    }
    let mut asked = Asked::of(options, sandbox.as_ref())?;
    let reasons = parent::reasons(options);
    let terminal = if reasons.is_empty() { None } else { supervised::connect(asked.settings(), options)? };
    if options.explain {
        explain::explain(asked, options, &reasons, sandbox.as_ref())?;
        return Ok(Outcome::Code(0));
    }
    if options.is_like_bwrap() && !options.quiet {
        say("unlike with bwrap, the program keeps the root of the host; add --sandbox or --pivot-root, or --quiet");
    }
    options.child.die_with_parent(options.namespaces.has_joined(forkless::Namespace::Pid))?;
    if reasons.is_empty() {
        return Err(in_place::run(asked, options));
    }
    supervised::run(asked, terminal, options, reports)
}
