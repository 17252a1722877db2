//! `--explain`: prints the decision and the steps, and runs nothing.

use std::io::{self, Write};

use forkless::Launcher;

use super::{failure::Failure, options::RunOptions, parent::Reason, request::Asked, sandbox::Sandbox};

pub(super) fn explain(
    mut asked: Asked,
    options: &RunOptions,
    reasons: &[Reason],
    sandbox: Option<&Sandbox<'_>>,
) -> Result<(), Failure> {
    let mut lines: String = reasons.iter().map(|reason| format!("supervised: {reason}\n")).collect();
    match asked.line_route() {
        Some(route) => lines += &format!("{route}\n"),
        None => {
            let how = if reasons.is_empty() {
                // The steps of `Command::exec`.
                asked.settings().launcher(Launcher::Fork);
                "in place: forkless becomes the program"
            } else {
                options.child.launcher().describe()
            };
            lines += &sandbox.map_or_else(|| options.birth_words(how) + "\n", Sandbox::describe);
            for (number, step) in (1..).zip(asked.settings().prepare()?.steps()) {
                lines += &format!("{number:3}. {step}\n");
            }
        }
    }
    let failed = |error| Failure::before(format_args!("cannot write the plan: {error}"));
    io::stdout().write_all(lines.as_bytes()).map_err(failed)
}
