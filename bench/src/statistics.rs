//! Statistics of the samples: nearest-rank percentiles of all samples, without fitting and outlier removal.

use std::time::Duration;

/// One launch, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Until the caller continued.
    pub(crate) held_ns: u64,
    /// Until the child was reaped.
    pub(crate) total_ns: u64,
}

/// All launches of one method under one condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    held: Vec<u64>,
    total: Vec<u64>,
    /// Total time of all turns.
    pub(crate) wall: Duration,
    /// CPU time of this process and its reaped children in these turns.
    pub(crate) cpu: Duration,
}

impl Series {
    /// Adds one launch.
    pub(crate) fn push(&mut self, sample: Sample) {
        self.held.push(sample.held_ns);
        self.total.push(sample.total_ns);
    }

    /// Appends later launches.
    pub(crate) fn append(&mut self, other: Self) {
        self.held.extend(other.held);
        self.total.extend(other.total);
        self.wall += other.wall;
        self.cpu += other.cpu;
    }

    /// The launch added last.
    pub(crate) fn last(&self) -> Option<Sample> {
        Some(Sample { held_ns: *self.held.last()?, total_ns: *self.total.last()? })
    }

    /// All launches, in order.
    pub(crate) fn samples(&self) -> impl Iterator<Item = Sample> {
        self.held.iter().zip(&self.total).map(|(&held_ns, &total_ns)| Sample { held_ns, total_ns })
    }

    /// Number of launches.
    pub(crate) fn len(&self) -> usize {
        self.total.len()
    }

    /// The figures of a row, or `None` without samples.
    pub(crate) fn summary(self) -> Option<Summary> {
        if self.total.is_empty() {
            return None;
        }
        let n = self.total.len() as f64;
        let wall = self.wall.as_secs_f64();
        Some(Summary {
            n: self.total.len() as u64,
            held: Spread::of(&self.held),
            total: Spread::of(&self.total),
            rate_per_s: round(if wall > 0.0 { n / wall } else { 0.0 }),
            cpu_us: round(self.cpu.as_secs_f64() * 1e6 / n),
        })
    }
}

/// The figures of one [`Series`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) n: u64,
    pub(crate) held: Spread,
    pub(crate) total: Spread,
    pub(crate) rate_per_s: f64,
    pub(crate) cpu_us: f64,
}

/// The distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    /// Bounds of the median.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// From at least one time in nanoseconds, in the order of measurement.
    pub(crate) fn of(values: &[u64]) -> Self {
        let (low, high) = median_bounds(values);
        let sorted = ascending(values);
        let at = |percent| microseconds(percentile(&sorted, percent));
        Self { p50: at(50), low: microseconds(low), high: microseconds(high), p90: at(90), p99: at(99), max: at(100) }
    }
}

/// The nearest-rank percentile: the smallest value that at least `percent` of the values do not exceed.
///
/// With 5 values the 99th percentile is the largest value; each row therefore shows its n.
pub(crate) fn percentile(sorted: &[u64], percent: u32) -> u64 {
    assert!(!sorted.is_empty(), "a percentile needs at least one value");
    let rank = (sorted.len() as u64 * u64::from(percent)).div_ceil(100);
    sorted[rank.clamp(1, sorted.len() as u64) as usize - 1]
}

/// Maximum number of blocks of a series.
const BLOCKS: usize = 20;

/// The 95 % confidence bounds of the median of values in the order of measurement.
///
/// Consecutive values are correlated, because the speed of the machine drifts. Treating them as independent would give bounds that
/// are much too narrow. The series is therefore split into up to [`BLOCKS`] blocks, and the bounds are computed from the medians of
/// the blocks with the sign test, which assumes no distribution: with 20 blocks they are the 6th and the 15th value. With fewer
/// than six values they are the smallest and the largest, with a confidence below 95 %.
fn median_bounds(values: &[u64]) -> (u64, u64) {
    let (count, blocks) = (values.len(), values.len().min(BLOCKS));
    let part = |block: usize| &values[block * count / blocks..(block + 1) * count / blocks];
    let medians = ascending(&(0..blocks).map(|block| percentile(&ascending(part(block)), 50)).collect::<Vec<_>>());
    let outside = witnesses_outside(blocks);
    let median = percentile(&ascending(values), 50);
    (medians[outside].min(median), medians[blocks - 1 - outside].max(median))
}

fn ascending(values: &[u64]) -> Vec<u64> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values
}

/// The number of blocks allowed beyond each bound: the largest k with P(at most k heads in n fair coins) <= 2.5 %.
fn witnesses_outside(count: usize) -> usize {
    let (mut outside, mut ways) = (0, 1.0);
    let mut chance = 0.5_f64.powi(count as i32);
    let mut sum = chance;
    while sum <= 0.025 {
        outside += 1;
        ways *= (count + 1 - outside) as f64 / outside as f64;
        chance = 0.5_f64.powi(count as i32) * ways;
        sum += chance;
    }
    outside.saturating_sub(1)
}

/// Nanoseconds in microseconds, to the nanosecond.
pub(crate) fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Rounds to three decimals: further digits are noise.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_nearest_rank() {
        let values = [15, 20, 35, 40, 50];
        assert_eq!(percentile(&values, 5), 15);
        assert_eq!(percentile(&values, 30), 20);
        assert_eq!(percentile(&values, 40), 20);
        assert_eq!(percentile(&values, 50), 35);
        assert_eq!(percentile(&values, 99), 50);
        assert_eq!(percentile(&values, 100), 50);
        assert_eq!(percentile(&values, 0), 15);
        assert_eq!(percentile(&[7], 99), 7);
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), 50);
        assert_eq!(percentile(&hundred, 99), 99);
    }

    #[test]
    fn median_bounds_follow_the_sign_test() {
        // P(at most k of n coins) <= 2.5 %: tables of the binomial distribution.
        let known = [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (20, 5)];
        for (count, outside) in known {
            assert_eq!(witnesses_outside(count), outside, "{count}");
        }
        let ascending: Vec<u64> = (1..=20).collect();
        assert_eq!(median_bounds(&ascending), (6, 15));
        assert_eq!(median_bounds(&[30, 10, 20]), (10, 30));
        assert_eq!(median_bounds(&[7; 100]), (7, 7));
    }

    #[test]
    fn drifting_series_has_wide_bounds() {
        // The same values, shuffled and in ascending order, as from a machine that becomes slower.
        let drifting: Vec<u64> = (0..2_000).map(|n| 1_000 + n / 2 + n * 7 % 11).collect();
        let mixed: Vec<u64> = (0..2_000).map(|n| drifting[n * 777 % 2_000]).collect();
        let width = |values: &[u64]| {
            let (low, high) = median_bounds(values);
            high - low
        };
        assert!(width(&drifting) > 5 * width(&mixed), "{} and {}", width(&drifting), width(&mixed));
    }

    #[test]
    fn summary_computes_rate_and_cpu_time() {
        let mut series = Series { wall: Duration::from_secs(2), cpu: Duration::from_micros(30), ..Series::default() };
        for total in [3_000, 1_000, 2_000] {
            series.push(Sample { held_ns: total / 2, total_ns: total });
        }
        let summary = series.summary().expect("three samples");
        assert_eq!(summary.n, 3);
        assert_eq!(summary.total, Spread { p50: 2.0, low: 1.0, high: 3.0, p90: 3.0, p99: 3.0, max: 3.0 });
        assert_eq!(summary.held.p50, 1.0);
        assert_eq!(summary.rate_per_s, 1.5);
        assert_eq!(summary.cpu_us, 10.0);
        assert_eq!(Series::default().summary(), None);
    }
}
