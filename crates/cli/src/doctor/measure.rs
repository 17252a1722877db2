//! Measures each launcher in a few seconds, with a short race of `forkless bench`.

use std::time::Duration;

use forkless::Way;

use super::report::{Measured, Measurements};
use forkless_bench::{Brief, Contestant, Parentage};

/// The methods to measure, and the launcher of each. The first one is the vfork baseline.
const LAUNCHERS: &[(Option<Way>, Contestant)] = &[
    (None, Contestant::Floor),
    (Some(Way::Clone), Contestant::ForklessSpawn),
    (Some(Way::Clone), Contestant::ForklessStatus),
    (Some(Way::Clone), Contestant::ForklessPreparedLaunch),
    (Some(Way::Zygote), Contestant::ForklessPreparedZygote),
    (Some(Way::PosixSpawn), Contestant::ForklessPosixSpawn),
    (Some(Way::Fork), Contestant::ForklessFork),
    (Some(Way::PosixSpawn), Contestant::PosixSpawn),
    (Some(Way::Fork), Contestant::Fork),
];

/// Time for all methods. Setup, and fork in a larger parent (the time of two methods), are extra.
const TIME: Duration = Duration::from_millis(1_800);

/// Measures the launchers that work here. `shared_memory`: Clone works. `memory_mib`: memory that may be used.
pub(crate) fn measure(shared_memory: bool, memory_mib: u64) -> (Measurements, Option<Parentage>) {
    let can = |way: &Option<Way>| shared_memory || *way != Some(Way::Clone);
    let list: Vec<Contestant> = LAUNCHERS.iter().filter(|(way, _)| can(way)).map(|(_, one)| *one).collect();
    match Brief::measure(&list, TIME / list.len() as u32, memory_mib) {
        Ok(brief) => (measurements(&brief), brief.fork()),
        Err(error) => (none(&format!("{error:#}")), None),
    }
}

/// No measurements, and the reason.
pub(crate) fn none(why: &str) -> Measurements {
    Measurements { none: Some(why.to_owned()), debug_build: cfg!(debug_assertions), ..Measurements::default() }
}

fn measurements(brief: &Brief) -> Measurements {
    let way_of = |name| LAUNCHERS.iter().find(|(_, one)| one.name() == name).and_then(|(way, _)| *way);
    let row = |row: &forkless_bench::Row| Measured {
        launcher: way_of(row.launcher).map(Way::name),
        contestant: row.launcher,
        n: row.n,
        held_p50_us: row.held_p50_us,
        held_p99_us: row.held_p99_us,
        total_p50_us: row.total_p50_us,
        total_p99_us: row.total_p99_us,
        ratio_to_floor: row.ratio_to_floor,
    };
    Measurements {
        none: None,
        rows: brief.rows().map(row).collect(),
        fork_us_per_gib: brief.fork().map(|fork| fork.gib_us.round()),
        debug_build: cfg!(debug_assertions),
    }
}
