//! A short race between a few methods, for `forkless doctor`, which reads the result as JSON.

use std::{sync::atomic::AtomicBool, time::Duration};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::{
    budget::Budget, condition::Condition, contestant::Contestant, engines::Engines, interrupt::Interrupt,
    machine::Machine, parent::Parent, program::Program, progress::Progress, race::race, record::Report, rows::Row,
    settings::Settings, stage::Stage, warm::WarmPrograms,
};

/// Maximum number of launches of each method.
const SAMPLES: u64 = 5_000;
/// Memory of the larger parent, from which the cost of fork for each GiB is computed.
const PARENT_MIB: u64 = 256;

/// The result; the doctor reads its fields.
#[derive(Serialize)]
struct Brief {
    /// The rows of the small parent.
    rows: Vec<Row>,
    /// The cost of fork, if both parents were measured.
    fork: Option<Parentage>,
    debug_build: bool,
}

/// The cost of fork by the size of the parent.
#[derive(Clone, Copy, Debug, Serialize)]
struct Parentage {
    /// Time for which the caller is blocked with little memory, in microseconds.
    small_us: f64,
    /// Additional time for each GiB, in microseconds.
    gib_us: f64,
}

/// Prints the figures of each method with a small parent, measured in `time` in all, and of fork with a larger parent, if
/// half of `memory_mib` is enough for that.
///
/// # Errors
/// If a method does not launch, or if a signal arrives. Signals are handled meanwhile.
pub(crate) fn print(contestants: &[Contestant], time: Duration, memory_mib: u64) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let brief = Brief::measure(contestants, time, memory_mib / 2, interrupt.flag())?;
    ensure!(interrupt.signal().is_none(), "stopped by a signal");
    Ok(serde_json::to_writer(std::io::stdout().lock(), &brief)?)
}

impl Brief {
    fn measure(contestants: &[Contestant], time: Duration, memory_mib: u64, stop: &AtomicBool) -> Result<Self> {
        let stage = Stage {
            program: Program::embedded()?,
            warm: WarmPrograms::default(),
            writers: Vec::new(),
            settings: Settings::none(),
            engines: Engines::none(),
            memory_mib,
            quick: true,
        };
        let run = |condition: &Condition, contestants: &[Contestant], time| {
            let budget = Budget { time, samples: SAMPLES, stop };
            race(condition, contestants, &stage, budget, &Progress::hidden()).map(|raced| raced.rows)
        };
        let time = time / contestants.len() as u32;
        let mut rows = run(&Condition::SMALL, contestants, time)?;
        let large = Condition { parent_mib: PARENT_MIB, ..Condition::SMALL };
        if contestants.contains(&Contestant::Fork) && memory_mib >= PARENT_MIB {
            // RLIMIT_AS may refuse the memory.
            if let Ok(_parent) = Parent::become_like(&large) {
                rows.extend(run(&large, &[Contestant::Fork], 2 * time)?);
            }
        }
        let mut rows = Report::new(Machine::read(), rows, Vec::new()).rows;
        let held = |mib| {
            let is_it = |row: &&Row| row.launcher == Contestant::Fork.name() && row.parent_mib == mib;
            Some(rows.iter().find(is_it)?.held_p50_us)
        };
        let fork = held(0).zip(held(PARENT_MIB)).map(|(small_us, large_us)| {
            let gib_us = (large_us - small_us).max(0.0) * 1024.0 / PARENT_MIB as f64;
            Parentage { small_us, gib_us }
        });
        rows.retain(|row| row.parent_mib == 0);
        Ok(Self { rows, fork, debug_build: cfg!(debug_assertions) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::meminfo_mib;
    use super::*;

    #[test]
    fn brief_has_a_row_for_each_method_and_the_cost_of_memory() {
        let names = [Contestant::Floor, Contestant::Fork, Contestant::ForklessStatus];
        let available = meminfo_mib("MemAvailable").unwrap_or(0);
        let measure = |memory_mib| {
            let stop = AtomicBool::new(false);
            Brief::measure(&names, Duration::from_millis(60), memory_mib, &stop).expect("measured")
        };
        let brief = measure(available / 2);
        assert_eq!(brief.rows.iter().map(|row| row.launcher).collect::<Vec<_>>(), names.map(Contestant::name));
        assert!(brief.rows.iter().all(|row| row.ratio_to_floor.is_some()));
        assert_eq!(brief.fork.is_some(), available / 2 >= PARENT_MIB);
        assert!(brief.fork.is_none_or(|fork| fork.small_us > 0.0));
        let little = measure(PARENT_MIB / 2);
        assert!(little.fork.is_none() && little.rows.len() == names.len());
    }
}
