//! The conditions to measure: those of the options, within the limits of this machine.

use std::fs;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{
    condition::{Condition, OUTPUTS, SOCKETS, TASKS},
    machine::meminfo_mib,
    options::{BenchOptions, Part},
    setting::Setting,
    units::{mebibytes, thousands},
    warm,
};

/// File descriptors left free below the limit, for two pipes to each engine and for the methods themselves.
const SPARE_FDS: u64 = 256;
/// Mappings left free below `vm.max_map_count`, for thread stacks, plots and the like.
const SPARE_MAPPINGS: u64 = 1_000;

/// The limits of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum of open files.
    pub(crate) fds: u64,
    /// Maximum of additional mappings.
    pub(crate) mappings: u64,
    /// Memory that can be used without swapping or reclaim.
    pub(crate) memory_mib: u64,
    /// CPUs that this process may use.
    pub(crate) cores: usize,
    /// Bytes by which the environment may grow.
    pub(crate) environment: u64,
}

impl Limits {
    /// Raises the soft limit of open files to the hard limit and reads the others.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub(crate) fn raise_and_read() -> Result<Self> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let now = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
        let max_map_count = fs::read_to_string("/proc/sys/vm/max_map_count")
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .unwrap_or(65_530);
        let used = fs::read_to_string("/proc/self/maps").context("cannot read /proc/self/maps")?.lines().count() as u64;
        Ok(Self {
            fds: now.min(1 << 20).saturating_sub(SPARE_FDS),
            mappings: max_map_count.saturating_sub(used + SPARE_MAPPINGS),
            memory_mib: meminfo_mib("MemAvailable").unwrap_or(0) * 8 / 10,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            environment: room_for_environment(),
        })
    }
}

/// Half of the space that the kernel allows for arguments and environment: a quarter of the stack limit, at most 6 MiB. The other
/// half is left for the existing environment and for what a shell adds.
fn room_for_environment() -> u64 {
    const MOST: u64 = 6 << 20;
    getrlimit(Resource::RLIMIT_STACK).map_or(MOST, |(soft, _)| (soft / 4).min(MOST)) / 2
}

/// The conditions to measure, and a note for each that exceeds a limit of this machine.
pub(crate) struct Sweeps {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) notes: Vec<String>,
}

impl Sweeps {
    /// From the options, within the limits. Each sweep changes one property of [`Condition::SMALL`]. The sweep of open files
    /// runs a second time with three pipes, and each setting runs with a small and with the largest parent.
    pub(crate) fn plan(options: &BenchOptions, limits: &Limits, settings: &[Setting]) -> Self {
        let mut sweeps = Self { conditions: Vec::new(), notes: Vec::new() };
        if options.is_sweep() {
            sweeps.add(Condition::SMALL);
        }
        let memory = sweeps.memory(options, limits);
        if options.has_part(Part::Memory) {
            for &parent_mib in &memory {
                sweeps.add(Condition { parent_mib, ..Condition::SMALL });
            }
        }
        if options.has_part(Part::Mappings) {
            let usual: &[u64] = if options.full { &[0, 1_000, 10_000, 60_000] } else { &[0, 10_000] };
            for wanted in options.mappings.clone().unwrap_or_else(|| usual.to_vec()) {
                let mappings = wanted.min(limits.mappings);
                sweeps.note_less(wanted, mappings, "mappings", "vm.max_map_count");
                sweeps.add(Condition { mappings, ..Condition::SMALL });
            }
        }
        if options.has_part(Part::Fds) {
            sweeps.files(options, limits);
        }
        if options.has_part(Part::Threads) {
            let counts = options.threads.clone().unwrap_or_else(|| thread_counts(limits.cores, options.quick));
            for threads in counts {
                sweeps.add(Condition { threads: threads.max(1), ..Condition::SMALL });
            }
        }
        if options.has_part(Part::Faulting) {
            let usual = if options.full { vec![1, limits.cores, 2 * limits.cores] } else { vec![limits.cores] };
            for faulting in options.faulting.clone().unwrap_or(usual) {
                sweeps.add(Condition { faulting, ..Condition::SMALL });
            }
        }
        sweeps.apart(options, limits);
        // The large parent is created once for all settings.
        for parent_mib in [0, memory.iter().copied().max().unwrap_or(0)] {
            for &setting in settings {
                sweeps.add(Condition { setting, parent_mib, ..Condition::SMALL });
            }
        }
        if options.has_part(Part::Output) {
            for output in options.outputs() {
                sweeps.add(Condition { output, ..Condition::SMALL });
            }
        }
        if options.has_part(Part::Warm) {
            warm::programs().for_each(|program| sweeps.add(Condition { program, ..Condition::SMALL }));
        }
        if options.has_part(Part::Tokio) {
            for wanted in [Condition::SMALL.fds, SOCKETS] {
                let fds = wanted.min(limits.fds);
                sweeps.note_less(wanted, fds, "open files", "hard limit of RLIMIT_NOFILE");
                sweeps.add(Condition { fds, tasks: TASKS, ..Condition::SMALL });
            }
            sweeps.add(Condition { output: OUTPUTS[0], tasks: TASKS, ..Condition::SMALL });
        }
        sweeps
    }

    /// Sizes of the parent for which there is enough memory.
    fn memory(&mut self, options: &BenchOptions, limits: &Limits) -> Vec<u64> {
        let usual: &[u64] = match (options.quick, options.full) {
            (true, _) => &[0, 1024],
            (false, false) => &[0, 100, 1024],
            (false, true) => &[0, 100, 1024, 4096, 8192],
        };
        let wanted = options.memory.clone().unwrap_or_else(|| usual.to_vec());
        let (fits, too_much): (Vec<u64>, Vec<u64>) = wanted.iter().partition(|&&mib| mib <= limits.memory_mib);
        let left_out = |mib| format!("{} of memory skipped: not available", mebibytes(mib));
        self.notes.extend(too_much.into_iter().map(left_out));
        fits
    }

    fn files(&mut self, options: &BenchOptions, limits: &Limits) {
        let usual: &[u64] = match (options.quick, options.full) {
            (true, _) => &[3, 15_000],
            (false, false) => &[3, 1_000, 15_000],
            (false, true) => &[3, 1_000, 15_000, limits.fds],
        };
        let counts = options.fds.clone().unwrap_or_else(|| usual.to_vec());
        for pipes in [0, 3] {
            for &wanted in &counts {
                let fds = wanted.min(limits.fds).max(Condition::SMALL.fds);
                if pipes == 0 {
                    self.note_less(wanted, fds, "open files", "hard limit of RLIMIT_NOFILE");
                }
                self.add(Condition { fds, pipes, ..Condition::SMALL });
            }
        }
        let most = counts.iter().map(|&wanted| wanted.min(limits.fds)).max().unwrap_or(0);
        if !options.quick && most > Condition::SMALL.fds {
            self.add(Condition { fds: most, close_on_exec: false, ..Condition::SMALL });
        }
    }

    /// Conditions that need a separate process, because they change its environment.
    fn apart(&mut self, options: &BenchOptions, limits: &Limits) {
        if options.has_part(Part::Environment) {
            let usual: &[u64] = if options.full { &[100, 1024] } else { &[100] };
            for wanted in options.environment.clone().unwrap_or_else(|| usual.to_vec()) {
                let kib = wanted.min(limits.environment >> 10);
                self.note_less(wanted, kib, "KiB of environment", "limit of the stack");
                self.add(Condition { environment: kib << 10, ..Condition::SMALL });
            }
        }
        if options.has_part(Part::Path) {
            let usual: &[u64] = if options.full { &[1, 10, 100] } else { &[10] };
            for path_misses in options.path_misses.clone().unwrap_or_else(|| usual.to_vec()) {
                self.add(Condition { path_misses, ..Condition::SMALL });
            }
        }
    }

    fn add(&mut self, condition: Condition) {
        if !self.conditions.contains(&condition) {
            self.conditions.push(condition);
        }
    }

    fn note_less(&mut self, wanted: u64, got: u64, what: &str, why: &str) {
        if got < wanted {
            self.notes.push(format!("{} instead of {} {what}: {why}", thousands(got), thousands(wanted)));
        }
    }
}

/// 1, 2, 4 … up to twice the number of CPUs; with `quick` only the two ends.
fn thread_counts(cores: usize, quick: bool) -> Vec<usize> {
    let most = 2 * cores.max(1);
    if quick {
        return vec![1, most];
    }
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_end_at_twice_the_cpus() {
        assert_eq!(thread_counts(2, false), [1, 2, 4]);
        assert_eq!(thread_counts(3, false), [1, 2, 4, 6]);
        assert_eq!(thread_counts(16, true), [1, 32]);
    }
}
