//! A short race between a few methods, for `forkless doctor`.

use std::{sync::atomic::AtomicBool, time::Duration};

use anyhow::{Result, ensure};

use super::{
    budget::Budget, condition::Condition, contestant::Contestant, engines::Engines, interrupt::Interrupt,
    machine::Machine, parent::Parent, program::Program, progress::Progress, race::race, record::Report, rows::Row,
    settings::Settings, stage::Stage, warm::WarmPrograms,
};

/// Maximum number of launches of each method.
const SAMPLES: u64 = 5_000;
/// Memory of the larger parent, from which the cost of fork for each GiB is computed.
const PARENT_MIB: u64 = 256;

/// The result.
pub struct Brief {
    report: Report,
}

/// The cost of fork by the size of the parent.
#[derive(Clone, Copy, Debug)]
pub struct Parentage {
    /// Time for which the caller is blocked with little memory, in microseconds.
    pub small_us: f64,
    /// Additional time for each GiB, in microseconds.
    pub gib_us: f64,
}

impl Brief {
    /// Measures each method for `time` with a small parent, and fork for twice the time with a larger one, if half of
    /// `memory_mib` is enough for that.
    ///
    /// # Errors
    /// If a method does not launch, or if a signal arrives. Signals are handled meanwhile.
    pub fn measure(contestants: &[Contestant], time: Duration, memory_mib: u64) -> Result<Self> {
        let interrupt = Interrupt::install()?;
        let report = Self::race(contestants, time, memory_mib / 2, interrupt.flag())?;
        ensure!(interrupt.signal().is_none(), "stopped by a signal");
        Ok(Self { report })
    }

    fn race(contestants: &[Contestant], time: Duration, memory_mib: u64, stop: &AtomicBool) -> Result<Report> {
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
        let mut rows = run(&Condition::SMALL, contestants, time)?;
        let large = Condition { parent_mib: PARENT_MIB, ..Condition::SMALL };
        if contestants.contains(&Contestant::Fork) && memory_mib >= PARENT_MIB {
            // RLIMIT_AS may refuse the memory.
            if let Ok(_parent) = Parent::become_like(&large) {
                rows.extend(run(&large, &[Contestant::Fork], 2 * time)?);
            }
        }
        Ok(Report::new(Machine::read(), rows, Vec::new()))
    }

    /// The rows of the small parent.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.report.rows_of(&Condition::SMALL)
    }

    /// The cost of fork, if both parents were measured.
    pub fn fork(&self) -> Option<Parentage> {
        let held = |mib| {
            let is_it = |row: &&Row| row.launcher == Contestant::Fork.name() && row.parent_mib == mib;
            Some(self.report.rows.iter().find(is_it)?.held_p50_us)
        };
        let (small_us, large_us) = (held(0)?, held(PARENT_MIB)?);
        Some(Parentage { small_us, gib_us: (large_us - small_us).max(0.0) * 1024.0 / PARENT_MIB as f64 })
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
        let brief = Brief::measure(&names, Duration::from_millis(20), available).expect("measured");
        assert_eq!(brief.rows().map(|row| row.launcher).collect::<Vec<_>>(), names.map(Contestant::name));
        assert!(brief.rows().all(|row| row.ratio_to_floor.is_some() && row.parent_mib == 0));
        assert_eq!(brief.fork().is_some(), available / 2 >= PARENT_MIB);
        assert!(brief.fork().is_none_or(|fork| fork.small_us > 0.0));
        let little = Brief::measure(&names, Duration::from_millis(20), PARENT_MIB).expect("measured");
        assert!(little.fork().is_none() && little.rows().count() == names.len());
    }
}
