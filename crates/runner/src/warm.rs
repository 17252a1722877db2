//! `--warm` of the runners: jobs that are clones of programs which are loaded already.

use forkless::Command;
use forkless::warm::{Warm, WarmOptions};
use forkless_jobs::{Options, Prepare};

/// The number of jobs that one template makes. More than the default of the library: thousands of jobs per second would
/// spend much of their time on new templates.
const LAUNCHES: u32 = 1_000;

/// The number of threads that launch, at most. A launch waits for its template, which makes one child after the other.
const THREADS: usize = 4;

/// The templates of a run. Each thread that launches has its own.
pub(crate) struct Templates(Vec<Warm>);

impl Templates {
    /// How many launches were warm, and how many cold.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let stats = self.0.iter().map(Warm::stats);
        stats.fold((0, 0), |(warm, cold), stats| (warm + stats.warm, cold + stats.cold))
    }
}

/// Makes jobs launch warm where that is possible. The templates end when the result and the options have been dropped.
pub(crate) fn install(options: &mut Options) -> Result<Templates, String> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let open = |_| WarmOptions::new().launches(LAUNCHES).open().map_err(|error| format!("--warm: {error}"));
    let sets = (0..options.slots.min(cpus).clamp(1, THREADS)).map(open).collect::<Result<Vec<_>, _>>()?;
    let (mut before, first) = (options.setup.take(), sets[0].clone());
    options.setup = Some(Box::new(move |command: &mut Command, job| {
        if let Some(before) = &mut before {
            before(command, job);
        }
        command.warm(&first);
    }));
    if sets.len() > 1 {
        let each = |set: &Warm| -> Prepare {
            let set = set.clone();
            Box::new(move |command| {
                command.warm(&set);
            })
        };
        options.threads = sets.iter().map(each).collect();
    }
    Ok(Templates(sets))
}
