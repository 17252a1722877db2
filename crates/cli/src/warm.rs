//! `--warm` of the runners: jobs that are clones of programs which are loaded already.

use forkless::Command;
use forkless::warm::{Warm, WarmOptions};
use forkless_jobs::Options;

/// The number of jobs that one template makes. More than the default of the library: thousands of jobs per second would
/// spend much of their time on new templates.
const LAUNCHES: u32 = 1_000;

/// Has all jobs launched warm that can be. The templates end with the result and with the options.
pub(crate) fn install(options: &mut Options) -> Result<Warm, String> {
    let warm = WarmOptions::new().launches(LAUNCHES).open().map_err(|error| format!("--warm: {error}"))?;
    let (mut before, templates) = (options.setup.take(), warm.clone());
    options.setup = Some(Box::new(move |command: &mut Command, job| {
        if let Some(before) = &mut before {
            before(command, job);
        }
        command.warm(&templates);
    }));
    Ok(warm)
}
