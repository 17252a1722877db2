//! The rows of a record: one method under one condition, and one method to wait for many children. `bench/FORMAT.md` describes
//! every field, which a test checks.

use serde::{Deserialize, Serialize};

use super::{
    condition::Condition,
    contestant::Contestant,
    crowd::Exit,
    name::Name,
    setting::Setting,
    statistics::{Spread, Summary},
};

/// The small number of children, to which the large one is compared.
pub(crate) const FEW: usize = 100;
/// A 99th percentile, unless there are too few values for one: of less than a hundred, it would be the largest.
pub(crate) fn enough(n: u64, p99: f64) -> Option<f64> {
    (n >= 100).then_some(p99)
}

/// One method under one condition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The method: [`Contestant::name`].
    #[serde(deserialize_with = "super::name::name")]
    pub(crate) launcher: Name,
    pub(crate) parent_mib: u64,
    pub(crate) mappings: u64,
    pub(crate) fds: u64,
    pub(crate) threads: usize,
    pub(crate) pipes: u8,
    pub(crate) setting: Setting,
    pub(crate) output: u64,
    pub(crate) tasks: usize,
    pub(crate) close_on_exec: bool,
    pub(crate) faulting: usize,
    pub(crate) environment: u64,
    pub(crate) path_misses: u64,
    /// Added after the first records of this version.
    #[serde(default, deserialize_with = "super::name::name")]
    pub(crate) program: Name,
    /// Launches.
    pub(crate) n: u64,
    /// Time for which the launch blocked the caller, median, in microseconds.
    pub(crate) held_p50_us: f64,
    /// 95 % confidence bounds of the median.
    pub(crate) held_p50_low_us: f64,
    pub(crate) held_p50_high_us: f64,
    pub(crate) held_p90_us: f64,
    /// The 99th percentile of the same.
    pub(crate) held_p99_us: f64,
    pub(crate) held_max_us: f64,
    /// Time from the call until the child was reaped, median, in microseconds.
    pub(crate) total_p50_us: f64,
    pub(crate) total_p50_low_us: f64,
    pub(crate) total_p50_high_us: f64,
    pub(crate) total_p90_us: f64,
    /// The 99th percentile of the same.
    pub(crate) total_p99_us: f64,
    pub(crate) total_max_us: f64,
    pub(crate) rate_per_s: f64,
    pub(crate) cpu_us: f64,
    /// Counted in a separate run, if at all.
    pub(crate) system_calls: Option<f64>,
    /// The median of the total time, divided by that of the vfork baseline.
    pub(crate) ratio_to_floor: Option<f64>,
    /// How the child differs from that of the vfork baseline.
    pub(crate) unlike: Option<String>,
    /// Settings that the method did not apply.
    pub(crate) lacks: Option<String>,
}

impl Row {
    /// Creates a row. The ratio is added later, when the row of the baseline is known.
    pub(crate) fn new(contestant: Contestant, condition: &Condition, summary: Summary) -> Self {
        Self {
            launcher: contestant.name(),
            parent_mib: condition.parent_mib,
            mappings: condition.mappings,
            fds: condition.fds,
            threads: condition.threads,
            pipes: condition.pipes,
            setting: condition.setting,
            output: condition.output,
            tasks: condition.tasks,
            close_on_exec: condition.close_on_exec,
            faulting: condition.faulting,
            environment: condition.environment,
            path_misses: condition.path_misses,
            program: condition.program,
            n: summary.n,
            held_p50_us: summary.held.p50,
            held_p50_low_us: summary.held.low,
            held_p50_high_us: summary.held.high,
            held_p90_us: summary.held.p90,
            held_p99_us: summary.held.p99,
            held_max_us: summary.held.max,
            total_p50_us: summary.total.p50,
            total_p50_low_us: summary.total.low,
            total_p50_high_us: summary.total.high,
            total_p90_us: summary.total.p90,
            total_p99_us: summary.total.p99,
            total_max_us: summary.total.max,
            rate_per_s: summary.rate_per_s,
            cpu_us: summary.cpu_us,
            system_calls: None,
            ratio_to_floor: None,
            unlike: contestant.unlike().map(str::to_owned),
            lacks: None,
        }
    }

    /// Whether the row is compared with other methods: not the baseline, and not a row that lacks settings.
    pub(crate) fn is_rival(&self) -> bool {
        self.launcher != "floor" && self.lacks.is_none()
    }

    /// Whether the row is of a method of forkless.
    pub(crate) fn is_ours(&self) -> bool {
        self.launcher.starts_with("forkless")
    }

    /// The condition of the measurement.
    pub(crate) fn condition(&self) -> Condition {
        Condition {
            parent_mib: self.parent_mib,
            mappings: self.mappings,
            fds: self.fds,
            threads: self.threads,
            pipes: self.pipes,
            setting: self.setting,
            output: self.output,
            tasks: self.tasks,
            close_on_exec: self.close_on_exec,
            faulting: self.faulting,
            environment: self.environment,
            path_misses: self.path_misses,
            program: self.program,
        }
    }
}

/// One method to wait, with one number of children.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AliveRow {
    #[serde(deserialize_with = "super::name::name")]
    pub(crate) waiter: Name,
    pub(crate) children: usize,
    pub(crate) n: usize,
    pub(crate) cpu_p50_us: f64,
    /// 95 % confidence bounds of the median.
    pub(crate) cpu_p50_low_us: f64,
    pub(crate) cpu_p50_high_us: f64,
    pub(crate) cpu_p90_us: f64,
    pub(crate) cpu_p99_us: f64,
    pub(crate) cpu_max_us: f64,
    pub(crate) latency_p50_us: f64,
    pub(crate) latency_p50_low_us: f64,
    pub(crate) latency_p50_high_us: f64,
    pub(crate) latency_p90_us: f64,
    pub(crate) latency_p99_us: f64,
    pub(crate) latency_max_us: f64,
    pub(crate) ratio_to_few: Option<f64>,
    pub(crate) parent_bytes: Option<f64>,
}

impl AliveRow {
    /// From at least one exit, in the order of measurement. Ratios of both numbers of children are added later.
    pub(crate) fn new(waiter: Name, children: usize, exits: &[Exit]) -> Self {
        let spread = |field: fn(&Exit) -> u64| Spread::of(&exits.iter().map(field).collect::<Vec<_>>());
        let (cpu, latency) = (spread(|exit| exit.cpu_ns), spread(|exit| exit.latency_ns));
        Self {
            waiter,
            children,
            n: exits.len(),
            cpu_p50_us: cpu.p50,
            cpu_p50_low_us: cpu.low,
            cpu_p50_high_us: cpu.high,
            cpu_p90_us: cpu.p90,
            cpu_p99_us: cpu.p99,
            cpu_max_us: cpu.max,
            latency_p50_us: latency.p50,
            latency_p50_low_us: latency.low,
            latency_p50_high_us: latency.high,
            latency_p90_us: latency.p90,
            latency_p99_us: latency.p99,
            latency_max_us: latency.max,
            ratio_to_few: None,
            parent_bytes: None,
        }
    }
}
