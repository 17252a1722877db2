//! The rows of a record: one contestant under one condition, and one way to wait for many children.
//! `bench/FORMAT.md` describes every field, and a test compares.

use serde::{Deserialize, Serialize};

use super::{
    condition::Condition,
    contestant::Contestant,
    crowd::Exit,
    name::Name,
    setting::Setting,
    statistics::{Spread, Summary},
};

/// The few, which the many are compared with.
pub(crate) const FEW: usize = 100;
/// One contestant under one condition. What a record of an older version has not is as it was then.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Who launched: [`Contestant::name`].
    #[serde(deserialize_with = "super::name::name")]
    pub launcher: Name,
    pub(crate) parent_mib: u64,
    pub(crate) mappings: u64,
    pub(crate) fds: u64,
    pub(crate) threads: usize,
    pub(crate) pipes: u8,
    pub(crate) setting: Setting,
    pub(crate) output: u64,
    pub(crate) tasks: usize,
    #[serde(default = "always")]
    pub(crate) close_on_exec: bool,
    pub(crate) faulting: usize,
    pub(crate) environment: u64,
    pub(crate) path_misses: u64,
    /// Launches.
    pub n: u64,
    /// How long the caller was held up by a launch, median, in microseconds.
    pub held_p50_us: f64,
    /// Bounds of the median, with 95 % confidence; none in records of before they were taken.
    pub(crate) held_p50_low_us: Option<f64>,
    pub(crate) held_p50_high_us: Option<f64>,
    pub(crate) held_p90_us: f64,
    /// The same of the slowest hundredth.
    pub held_p99_us: f64,
    pub(crate) held_max_us: f64,
    /// From the call to the reaped child, median, in microseconds.
    pub total_p50_us: f64,
    pub(crate) total_p50_low_us: Option<f64>,
    pub(crate) total_p50_high_us: Option<f64>,
    pub(crate) total_p90_us: f64,
    /// The same of the slowest hundredth.
    pub total_p99_us: f64,
    pub(crate) total_max_us: f64,
    pub(crate) rate_per_s: f64,
    pub(crate) cpu_us: f64,
    /// By a count of its own, where that was made.
    pub(crate) system_calls: Option<f64>,
    /// The total median by that of the floor, which is vfork and execve in C.
    pub ratio_to_floor: Option<f64>,
    /// What the child is given otherwise than by the floor.
    pub(crate) unlike: Option<String>,
    /// What the launcher did not do of the setting.
    pub(crate) lacks: Option<String>,
}

/// Before there were other descriptors than those.
fn always() -> bool {
    true
}

impl Row {
    /// Joins who, where and how much. The ratio comes later, when the floor's row is known.
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
            n: summary.n,
            held_p50_us: summary.held.p50,
            held_p50_low_us: Some(summary.held.low),
            held_p50_high_us: Some(summary.held.high),
            held_p90_us: summary.held.p90,
            held_p99_us: summary.held.p99,
            held_max_us: summary.held.max,
            total_p50_us: summary.total.p50,
            total_p50_low_us: Some(summary.total.low),
            total_p50_high_us: Some(summary.total.high),
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

    /// Whether it is comparable with the others: the floor is not a way to launch, and who lacks something does less.
    pub(crate) fn is_rival(&self) -> bool {
        self.launcher != "floor" && self.lacks.is_none()
    }

    /// Whether it is a way of forkless.
    pub(crate) fn is_ours(&self) -> bool {
        self.launcher.starts_with("forkless")
    }

    /// The condition it was measured under.
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
        }
    }
}

/// One way to wait with one number of children.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AliveRow {
    #[serde(deserialize_with = "super::name::name")]
    pub(crate) waiter: Name,
    pub(crate) children: usize,
    pub(crate) n: usize,
    pub(crate) cpu_p50_us: f64,
    /// Bounds of the median, with 95 % confidence; none in records of before they were taken.
    pub(crate) cpu_p50_low_us: Option<f64>,
    pub(crate) cpu_p50_high_us: Option<f64>,
    /// This and the largest are 0 in the same records.
    pub(crate) cpu_p90_us: f64,
    pub(crate) cpu_p99_us: f64,
    pub(crate) cpu_max_us: f64,
    pub(crate) latency_p50_us: f64,
    pub(crate) latency_p50_low_us: Option<f64>,
    pub(crate) latency_p50_high_us: Option<f64>,
    pub(crate) latency_p90_us: f64,
    pub(crate) latency_p99_us: f64,
    pub(crate) latency_max_us: f64,
    pub(crate) ratio_to_few: Option<f64>,
    pub(crate) parent_bytes: Option<f64>,
}

impl AliveRow {
    /// Of exits in the order in which they were measured, at least one. What needs both numbers of children comes later.
    pub(crate) fn new(waiter: Name, children: usize, exits: &[Exit]) -> Self {
        let spread = |field: fn(&Exit) -> u64| Spread::of(&exits.iter().map(field).collect::<Vec<_>>());
        let (cpu, latency) = (spread(|exit| exit.cpu_ns), spread(|exit| exit.latency_ns));
        Self {
            waiter,
            children,
            n: exits.len(),
            cpu_p50_us: cpu.p50,
            cpu_p50_low_us: Some(cpu.low),
            cpu_p50_high_us: Some(cpu.high),
            cpu_p90_us: cpu.p90,
            cpu_p99_us: cpu.p99,
            cpu_max_us: cpu.max,
            latency_p50_us: latency.p50,
            latency_p50_low_us: Some(latency.low),
            latency_p50_high_us: Some(latency.high),
            latency_p90_us: latency.p90,
            latency_p99_us: latency.p99,
            latency_max_us: latency.max,
            ratio_to_few: None,
            parent_bytes: None,
        }
    }
}
