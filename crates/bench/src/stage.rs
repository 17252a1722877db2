//! What is there for every condition, and who can take part under one.

use anyhow::{Context, Result};

use super::{
    condition::Condition,
    contestant::Contestant,
    contestants,
    engines::Engines,
    launcher::{Job, Launcher},
    program::Program,
    setting::{Feature, Setting},
    settings::{self, Settings},
};

/// What is there for every condition.
pub(crate) struct Stage {
    pub(crate) program: Program,
    /// Programs that write, with the number of bytes.
    pub(crate) writers: Vec<(u64, Program)>,
    pub(crate) settings: Settings,
    pub(crate) engines: Engines,
    /// Memory that may be used.
    pub(crate) memory_mib: u64,
    /// Engines, whose memory takes as long to be had as ours, are never large.
    pub(crate) quick: bool,
}

impl Stage {
    pub(crate) fn job(&self, condition: &Condition) -> Job<'_> {
        let writer = self.writers.iter().find(|(bytes, _)| *bytes == condition.output);
        Job {
            program: writer.map_or(&self.program, |(_, program)| program),
            condition: *condition,
            wishes: self.settings.wishes(condition.setting),
        }
    }

    /// A contestant, ready for the condition.
    ///
    /// # Errors
    /// As of [`contestants::ready`].
    pub(crate) fn ready(&self, contestant: Contestant, condition: &Condition) -> Result<Box<dyn Launcher + '_>> {
        contestants::ready(contestant, &self.job(condition), Some(&self.engines))
    }

    /// Those of `contestants` that can take part under the condition.
    pub(crate) fn entrants(&self, condition: &Condition, contestants: &[Contestant]) -> Vec<Contestant> {
        let fits = |c: &&Contestant| {
            (condition.pipes == 0 || c.takes_pipes())
                && (condition.threads == 1 || c.joins_crowd() || c.is_engine())
                && (!c.is_engine() || self.engine_fits(**c, condition))
                && self.settings_fit(**c, condition)
                && (condition.faulting == 0 || c.bears_faults())
                && (!condition.is_apart() || c.stands_apart())
                && c.captures(condition.output > 0)
                && contestants::is_here(**c)
                && c.awaits() == (condition.tasks > 0)
        };
        contestants.iter().filter(fits).copied().collect()
    }

    /// An engine is a process of its own: our pipes, output and threads that touch memory cannot be had there.
    fn engine_fits(&self, contestant: Contestant, condition: &Condition) -> bool {
        let Condition { parent_mib, mappings, fds, close_on_exec, threads, setting, .. } = *condition;
        let Condition { environment, path_misses, .. } = *condition;
        let parent = Condition { parent_mib, mappings, fds, close_on_exec, threads, ..Condition::SMALL };
        let inside = Condition { setting, environment, path_misses, ..parent };
        let quick_files = self.quick && fds > Condition::SMALL.fds && !contestant.is_preloaded();
        let is_alike = (parent_mib > 0 || mappings > 0 || quick_files) && !contestant.grows();
        self.engines.has(contestant)
            && *condition == inside
            && !is_alike
            && !(self.quick && parent_mib > 0)
            && (threads == 1 || self.engines.has_threads(contestant))
            && self.has_room_for(1, condition)
            // A sweep is worth the time that it takes to make each of them as large, one after the other.
            && !(setting != Setting::None && self.is_narrow(condition))
    }

    /// Whether that many engines can be as large as this process besides.
    fn has_room_for(&self, engines: u64, condition: &Condition) -> bool {
        condition.parent_mib.saturating_mul(1 + engines) <= self.memory_mib
    }

    /// Whether no more than one engine can be large at a time.
    pub(crate) fn is_narrow(&self, condition: &Condition) -> bool {
        condition.parent_mib > 0 && !self.has_room_for(self.engines.large(), condition)
    }

    /// Whoever can do all that is asked for takes part, and, marked, whoever can do the namespace, which makes the others
    /// fork. The floor is there as what a launch costs without any of it.
    fn settings_fit(&self, contestant: Contestant, condition: &Condition) -> bool {
        let asked = self.settings.wishes(condition.setting).features();
        let can = contestants::can(contestant, Some(&self.engines));
        let namespace = asked.contains(&Feature::UserNamespace) && can.contains(&Feature::UserNamespace);
        contestant == Contestant::Floor || namespace || asked.iter().all(|feature| can.contains(feature))
    }

    /// What the contestant does not do of what the condition asks for, in words.
    pub(crate) fn lacks(&self, contestant: Contestant, condition: &Condition) -> Option<String> {
        let can = contestants::can(contestant, Some(&self.engines));
        let asked = self.settings.wishes(condition.setting).features();
        let missing: Vec<&str> = asked.iter().filter(|f| !can.contains(f)).map(|f| f.name()).collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }

    /// Makes sure that each contestant gives its child the settings that it is said to give.
    ///
    /// # Errors
    /// When one does not, named.
    pub(crate) fn prove(&self, condition: &Condition, contestants: &[Contestant]) -> Result<()> {
        if condition.setting == Setting::None {
            return Ok(());
        }
        for contestant in self.entrants(condition, contestants) {
            let can = contestants::can(contestant, Some(&self.engines));
            settings::prove(self.settings.wishes(condition.setting), contestant, &can, Some(&self.engines))
                .with_context(|| format!("contestant {}", contestant.name()))?;
        }
        Ok(())
    }
}
