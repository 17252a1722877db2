//! What all conditions share, and the methods that can take part under a condition.

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
    warm::WarmPrograms,
};

/// What all conditions share.
pub(crate) struct Stage {
    pub(crate) program: Program,
    /// Programs that write a number of bytes.
    pub(crate) writers: Vec<(u64, Program)>,
    /// Programs that may be warm.
    pub(crate) warm: WarmPrograms,
    pub(crate) settings: Settings,
    pub(crate) engines: Engines,
    /// Memory that may be used.
    pub(crate) memory_mib: u64,
    /// Engines never get large memory, which takes long to allocate.
    pub(crate) quick: bool,
}

impl Stage {
    pub(crate) fn job(&self, condition: &Condition) -> Job<'_> {
        let writer = self.writers.iter().find(|(bytes, _)| *bytes == condition.output).map(|(_, program)| program);
        Job {
            program: self.warm.program(condition).or(writer).unwrap_or(&self.program),
            condition: *condition,
            wishes: self.settings.wishes(condition.setting),
        }
    }

    /// Prepares a method for the condition.
    ///
    /// # Errors
    /// As of [`contestants::ready`].
    pub(crate) fn ready(&self, contestant: Contestant, condition: &Condition) -> Result<Box<dyn Launcher + '_>> {
        contestants::ready(contestant, &self.job(condition), Some(&self.engines))
    }

    /// The methods that can take part under the condition.
    pub(crate) fn entrants(&self, condition: &Condition, contestants: &[Contestant]) -> Vec<Contestant> {
        let fits = |c: &&Contestant| {
            (condition.pipes == 0 || c.can_take_pipes())
                && (condition.threads == 1 || c.is_in_crowd() || c.is_engine())
                && (!c.is_engine() || self.has_engine_for(**c, condition))
                && self.has_settings_for(**c, condition)
                && (condition.faulting == 0 || c.can_bear_faults())
                && (!condition.is_apart() || c.is_apart())
                && c.does_capture(condition.output > 0)
                && self.warm.is_for(**c, condition)
                && contestants::is_here(**c)
                && c.does_await() == (condition.tasks > 0)
        };
        contestants.iter().filter(fits).copied().collect()
    }

    /// An engine is a separate process, which does not support pipes, captured output, or threads that cause page faults.
    fn has_engine_for(&self, contestant: Contestant, condition: &Condition) -> bool {
        let Condition { parent_mib, mappings, fds, close_on_exec, threads, setting, .. } = *condition;
        let Condition { environment, path_misses, .. } = *condition;
        let parent = Condition { parent_mib, mappings, fds, close_on_exec, threads, ..Condition::SMALL };
        let inside = Condition { setting, environment, path_misses, ..parent };
        let quick_files = self.quick && fds > Condition::SMALL.fds && !contestant.is_preloaded();
        let is_alike = (parent_mib > 0 || mappings > 0 || quick_files) && !contestant.does_grow();
        self.engines.has(contestant)
            && *condition == inside
            && !is_alike
            && !(self.quick && parent_mib > 0)
            && (threads == 1 || self.engines.has_threads(contestant))
            && self.has_room_for(1, condition)
            // Enlarging engines one after the other takes long; it is done for sweeps, but not for settings.
            && !(setting != Setting::None && self.is_narrow(condition))
    }

    /// Whether the memory is enough for this many engines of the size of this process.
    fn has_room_for(&self, engines: u64, condition: &Condition) -> bool {
        condition.parent_mib.saturating_mul(1 + engines) <= self.memory_mib
    }

    /// Whether the memory is enough for only one large engine at a time.
    pub(crate) fn is_narrow(&self, condition: &Condition) -> bool {
        condition.parent_mib > 0 && !self.has_room_for(self.engines.large(), condition)
    }

    /// A method takes part if it supports all settings. One that supports only the user namespace, for which others fork, takes
    /// part with a mark. The vfork baseline takes part without any setting.
    fn has_settings_for(&self, contestant: Contestant, condition: &Condition) -> bool {
        let asked = self.settings.wishes(condition.setting).features();
        let can = contestants::can(contestant, Some(&self.engines));
        let namespace = asked.contains(&Feature::UserNamespace) && can.contains(&Feature::UserNamespace);
        contestant == Contestant::Floor || namespace || asked.iter().all(|feature| can.contains(feature))
    }

    /// The settings of the condition that the method does not support.
    pub(crate) fn lacks(&self, contestant: Contestant, condition: &Condition) -> Option<String> {
        let can = contestants::can(contestant, Some(&self.engines));
        let asked = self.settings.wishes(condition.setting).features();
        let missing: Vec<&str> = asked.iter().filter(|f| !can.contains(f)).map(|f| f.name()).collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }

    /// Verifies that each method applies the settings that it claims to support.
    ///
    /// # Errors
    /// If one does not.
    pub(crate) fn prove(&self, condition: &Condition, contestants: &[Contestant]) -> Result<()> {
        if condition.setting == Setting::None {
            return Ok(());
        }
        for contestant in self.entrants(condition, contestants) {
            let can = contestants::can(contestant, Some(&self.engines));
            settings::prove(self.settings.wishes(condition.setting), contestant, &can, Some(&self.engines))
                .with_context(|| format!("method {}", contestant.name()))?;
        }
        Ok(())
    }
}
