//! Measures each launcher in a few seconds: a short race of `forkless-bench`, which prints it as JSON.

use std::{io, sync::Arc};

use serde::Deserialize;

use super::advice::AdvisedMethod;
use super::report::{Measured, Measurements};
use crate::bench;

/// The methods to measure, and the launcher of each. The first one is the vfork baseline.
const LAUNCHERS: &[(Option<AdvisedMethod>, &str)] = &[
    (None, "floor"),
    (Some(AdvisedMethod::Clone), "forkless-spawn"),
    (Some(AdvisedMethod::Clone), "forkless-status"),
    (Some(AdvisedMethod::Clone), "forkless-prepared-launch"),
    (Some(AdvisedMethod::Zygote), "forkless-prepared-zygote"),
    (Some(AdvisedMethod::PosixSpawn), "forkless-posix_spawn"),
    (Some(AdvisedMethod::Fork), "forkless-fork"),
    (Some(AdvisedMethod::PosixSpawn), "posix_spawn"),
    (Some(AdvisedMethod::Fork), "fork"),
];

/// Seconds for all methods. Setup, and fork in a larger caller (the time of two methods), are extra.
const TIME: &str = "1.8";

/// What `forkless-bench --brief` prints.
#[derive(Deserialize)]
struct Brief {
    rows: Vec<Measured>,
    fork: Option<Parentage>,
    debug_build: bool,
}

/// The cost of fork by the size of the caller.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Parentage {
    /// Time for which the caller is blocked with little memory, in microseconds.
    pub(crate) small_us: f64,
    /// Additional time for each GiB, in microseconds.
    pub(crate) gib_us: f64,
}

/// Measures the launchers that work here. `shared_memory`: Clone works. `memory_mib`: memory that may be used.
pub(crate) fn measure(shared_memory: bool, memory_mib: u64) -> (Measurements, Option<Parentage>) {
    let can = |way: &Option<AdvisedMethod>| shared_memory || *way != Some(AdvisedMethod::Clone);
    let names: Vec<&str> = LAUNCHERS.iter().filter(|(way, _)| can(way)).map(|(_, name)| *name).collect();
    match ask(&names, memory_mib) {
        Ok(Brief { mut rows, fork, debug_build }) => {
            let way_of = |name: &str| LAUNCHERS.iter().find(|(_, one)| *one == name).and_then(|(way, _)| *way);
            rows.iter_mut().for_each(|row| row.launcher = way_of(&row.contestant).map(AdvisedMethod::name));
            let fork_us_per_gib = fork.map(|fork| fork.gib_us.round());
            (Measurements { none: None, rows, fork_us_per_gib, debug_build }, fork)
        }
        Err(error) => (none(&error.to_string()), None),
    }
}

fn ask(names: &[&str], memory_mib: u64) -> io::Result<Brief> {
    let (memory, launchers) = (memory_mib.to_string(), names.join(","));
    // The interrupt key ends only forkless-bench, which gets SIGINT too; the report is still printed.
    let interrupt = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default());
    let json = bench::ask(["--brief", &memory, "--launchers", &launchers, "--time", TIME]);
    interrupt.map(signal_hook::low_level::unregister)?;
    let json = json?;
    Ok(serde_json::from_slice(&json)?)
}

/// No measurements, and the reason.
pub(crate) fn none(why: &str) -> Measurements {
    Measurements { none: Some(why.to_owned()), ..Measurements::default() }
}
