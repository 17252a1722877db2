//! The axes of charts, and the places of the names beside them. The axes of plotters label only powers of ten, or evenly spaced values.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::{charts::Unit, plots::DOT_LETTER};

/// A logarithmic axis with labels at 1, 2 and 5 times powers of ten, or at fewer of them on a long axis. The axis of plotters
/// labels only powers of ten, so a short one would have no label.
pub(super) struct Decades(f64, f64);

impl Decades {
    pub(super) fn new(low: f64, high: f64) -> Self {
        Self(low, high.max(low * 1.1))
    }
}

impl Ranged for Decades {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value / self.0).ln() / (self.1 / self.0).ln();
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        let decades = self.0.log10().floor() as i32..=self.1.log10().ceil() as i32;
        let at = |every: usize, steps: &'static [f64]| -> Vec<f64> {
            let values =
                decades.clone().step_by(every).flat_map(|ten| steps.iter().map(move |step| step * 10f64.powi(ten)));
            values.filter(|value| (self.0..=self.1).contains(value)).collect()
        };
        let all = [at(1, &[1.0, 2.0, 5.0]), at(1, &[1.0, 3.0]), at(1, &[1.0]), at(2, &[1.0])];
        // One label shows no scale.
        let fitting = all.iter().find(|points| (2..=hint.max_num_points()).contains(&points.len()));
        let ends = |points: &[f64]| match points {
            [first, .., last] => Some(vec![*first, *last]),
            _ => None,
        };
        let ends = || ends(&all[2]).or_else(|| ends(&all[0])).unwrap_or_else(|| all[0].clone());
        fitting.cloned().unwrap_or_else(ends)
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0..self.1
    }
}

impl ValueFormatter<f64> for Decades {
    fn format_ext(&self, value: &f64) -> String {
        Unit::Time.tick(*value)
    }
}

/// The x axis of a sweep: labels at the measured values. Those without enough space have none.
pub(super) struct Positions<'a> {
    at: &'a [f64],
    labels: Vec<&'a str>,
}

impl<'a> Positions<'a> {
    /// `wide`: the width of the axis, relative to the font size.
    pub(super) fn new(ticks: &'a [String], at: &'a [f64], wide: f64) -> Self {
        let mut axis = Self { at, labels: ticks.iter().map(String::as_str).collect() };
        let range = axis.range();
        let centre = |index: usize| (at[index] - range.start) / (range.end - range.start) * wide;
        let half = |index: usize| ticks[index].chars().count() as f64 * DOT_LETTER / 2.0 + 0.3;
        // The last label first, then the first one, then the others.
        let last = ticks.len().saturating_sub(1);
        let mut kept: Vec<usize> = Vec::new();
        for index in [last, 0].into_iter().chain(1..last) {
            if kept.iter().all(|other| (centre(index) - centre(*other)).abs() >= half(index) + half(*other)) {
                kept.push(index);
            } else if !kept.contains(&index) {
                axis.labels[index] = "";
            }
        }
        axis
    }
}

impl Ranged for Positions<'_> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let range = self.range();
        let part = (value - range.start) / (range.end - range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.at.to_vec()
    }

    /// A tenth of the width as left margin, and space at the right for half of the last label.
    fn range(&self) -> std::ops::Range<f64> {
        let (first, last) = (self.at.first().copied().unwrap_or(0.0), self.at.last().copied().unwrap_or(1.0));
        let width = (last - first).max(0.1);
        first - 0.1 * width..last + 0.08 * width
    }
}

impl ValueFormatter<f64> for Positions<'_> {
    fn format_ext(&self, value: &f64) -> String {
        let label = self.at.iter().zip(&self.labels).find(|(at, _)| (**at - value).abs() < 1e-9);
        label.map_or_else(String::new, |(_, label)| (*label).to_owned())
    }
}

/// Moves ascending positions apart to at least `step`, within the given range.
pub(super) fn spread(wanted: &[i32], step: i32, (highest, lowest): (i32, i32)) -> Vec<i32> {
    let first_of = |group: &[i32]| first_of(group, step, (highest, lowest));
    let mut placed: Vec<i32> = Vec::with_capacity(wanted.len());
    // Centre each group of touching labels on the mean of their wanted positions, so that none is moved far.
    let mut groups: Vec<Vec<i32>> = Vec::new();
    for &y in wanted {
        groups.push(vec![y]);
        while groups.len() > 1 {
            let upper = &groups[groups.len() - 2];
            let lower = &groups[groups.len() - 1];
            if first_of(upper) + upper.len() as i32 * step <= first_of(lower) {
                break;
            }
            let lower = groups.pop().unwrap_or_default();
            if let Some(upper) = groups.last_mut() {
                upper.extend(lower);
            }
        }
    }
    for group in &groups {
        let first = first_of(group);
        placed.extend((0..group.len() as i32).map(|index| first + index * step));
    }
    placed
}

/// The position of the first label of a group. A group that does not fit starts at the top.
fn first_of(group: &[i32], step: i32, (highest, lowest): (i32, i32)) -> i32 {
    let count = group.len() as i32;
    let mean = group.iter().sum::<i32>() / count;
    let extent = (count - 1) * step;
    (mean - extent / 2).min(lowest - extent).max(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_labels_within_a_decade() {
        let labels = |low, high| Decades::new(low, high).key_points(plotters::coord::ranged1d::BoldPoints(6));
        assert_eq!(labels(160.0, 950.0), [200.0, 500.0]);
        assert_eq!(labels(30.0, 30_000.0), [100.0, 1_000.0, 10_000.0]);
        assert!(labels(5.0, 5e8).len() <= 6);
        let narrow = |low, high| Decades::new(low, high).key_points(plotters::coord::ranged1d::BoldPoints(2));
        assert_eq!(narrow(4.0, 2_000.0), [10.0, 1_000.0], "two labels at least");
        assert_eq!(narrow(15.0, 120.0), [30.0, 100.0]);
        let ticks = ["3", "1,000", "19,000", "19,744"].map(str::to_owned);
        let axis = Positions::new(&ticks, &[1.0, 6.8, 9.75, 9.79], 15.0);
        assert_eq!(axis.labels, ["3", "1,000", "", "19,744"], "labels do not overlap");
    }

    #[test]
    fn labels_keep_the_minimum_distance() {
        assert_eq!(spread(&[10, 100, 200], 20, (0, 500)), [10, 100, 200]);
        assert_eq!(spread(&[100, 100, 100], 20, (0, 500)), [80, 100, 120]);
        assert_eq!(spread(&[490, 495], 20, (0, 500)), [480, 500]);
        assert_eq!(spread(&[5, 6, 7], 20, (10, 500)), [10, 30, 50], "below the title");
        let crowded = spread(&[10, 300, 305, 310, 318, 322], 20, (0, 500));
        assert!(crowded.windows(2).all(|pair| pair[1] - pair[0] >= 20), "{crowded:?}");
    }
}
