//! `forkless bench compare`: lists the changes between two records that exceed the noise.
//!
//! Each figure is divided by that of the vfork baseline under the same condition in the same record, which cancels the speed of
//! the machine. The cost of an exit with children alive is divided by that of epoll. A figure has changed if the confidence
//! bounds of both records do not overlap, by more than a tolerance for the difference between two runs of one program.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use super::{
    condition::{Condition, headline},
    layout::{Column, Layout, fitting, table, wrap},
    name::Name,
    record::{Report, write_to},
    rows::{AliveRow, Row},
    statistics::round,
    units::thousands,
};

/// List the changes between two records that exceed the noise.
///
/// Exit code: 0 without changes, 1 with changes, 2 if the records cannot be compared.
#[derive(Args, Debug)]
pub(crate) struct CompareOptions {
    /// Record to compare with: a results.json file or a directory with one
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// Record to compare
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    /// Ignore changes of up to PERCENT beyond the confidence bounds of both medians
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    tolerance: f64,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("must be 0 or more".to_owned()) }
}

/// Compares the records and prints the changes.
///
/// # Errors
/// If a record cannot be read, or the two have no row in common.
pub(crate) fn main(options: &CompareOptions) -> Result<ExitCode> {
    let (before, after) = (Report::read(&options.before)?, Report::read(&options.after)?);
    let found = Comparison::new(&before, &after, options.tolerance / 100.0)?;
    let text = if options.json {
        serde_json::to_string_pretty(&found)? + "\n"
    } else {
        found.describe(Layout::of_stdout(false).width)
    };
    write_to(Path::new("-"), &text)?;
    Ok(if found.changed > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// The result of a comparison.
#[derive(Debug, Default, Serialize)]
struct Comparison {
    /// Figures that are slower or faster.
    changed: usize,
    /// Figures compared.
    compared: usize,
    /// Rows in one of the records only.
    unmatched: usize,
    tolerance: f64,
    /// The ratio of the vfork baselines of the small parent: the speed of the machine, not a change of forkless.
    machine: Option<f64>,
    figures: Vec<ComparedFigure>,
}

/// One median in both records.
#[derive(Debug, Serialize)]
struct ComparedFigure {
    /// The method, or the waiter with children alive.
    launcher: Name,
    condition: String,
    /// `held` or `total`; `cpu` or `latency` with children alive.
    time: &'static str,
    /// The method whose time both are divided by, if any.
    by: Option<Name>,
    before: Bounded,
    after: Bounded,
    /// After by before.
    ratio: f64,
    verdict: Verdict,
}

/// The columns of the changes. "by" is the method whose time both medians are divided by.
const COLUMNS: [Column<ComparedFigure>; 9] = [
    ("launcher", 0, |figure| figure.launcher.to_owned()),
    ("time", 4, |figure| figure.time.to_owned()),
    ("before", 2, |figure| format!("{:.3}", figure.before.median)),
    ("bounds", 7, |figure| format!("{:.3} to {:.3}", figure.before.low, figure.before.high)),
    ("after", 3, |figure| format!("{:.3}", figure.after.median)),
    ("bounds", 8, |figure| format!("{:.3} to {:.3}", figure.after.low, figure.after.high)),
    ("by", 6, |figure| figure.by.unwrap_or("µs").to_owned()),
    ("change", 1, |figure| format!("{:+.1} %", (figure.ratio - 1.0) * 100.0)),
    ("", 5, |figure| if figure.verdict == Verdict::Slower { "slower" } else { "faster" }.to_owned()),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Same,
    Slower,
    Faster,
}

impl Verdict {
    fn new(before: Bounded, after: Bounded, tolerance: f64) -> Self {
        if after.low > before.high * (1.0 + tolerance) {
            Self::Slower
        } else if after.high * (1.0 + tolerance) < before.low {
            Self::Faster
        } else {
            Self::Same
        }
    }
}

/// A median with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Bounded {
    median: f64,
    low: f64,
    high: f64,
}

impl Bounded {
    fn new(median: f64, low: f64, high: f64) -> Self {
        Self { median, low, high }
    }

    /// Divided by another one. The bounds assume errors of both medians in opposite directions.
    fn by(self, other: Self) -> Self {
        Self { median: self.median / other.median, low: self.low / other.high, high: self.high / other.low }
    }
}

/// One median of a record.
struct RecordMedian {
    launcher: Name,
    /// The condition, and the number of children alive, which is 0 in other rows.
    place: (Condition, usize),
    time: &'static str,
    value: Bounded,
    /// The method that represents the speed of the machine under this condition, and its time.
    yardstick: Option<(Name, Bounded)>,
    /// The call blocks until the child has ended: both times are the same.
    is_repeated: bool,
}

/// The medians of a record, two for each row.
fn medians(report: &Report) -> Vec<RecordMedian> {
    let mut medians = Vec::new();
    let total = |row: &Row| Bounded::new(row.total_p50_us, row.total_p50_low_us, row.total_p50_high_us);
    for row in &report.rows {
        let (launcher, place) = (row.launcher, (row.condition(), 0));
        let of = |name: &str| report.rows_of(&row.condition()).find(|row| row.launcher == name);
        let held = Bounded::new(row.held_p50_us, row.held_p50_low_us, row.held_p50_high_us);
        let is_repeated = (row.held_p50_us - row.total_p50_us).abs() <= f64::EPSILON;
        // The total of the yardstick has the most samples.
        let yardstick = of("floor").or_else(|| of("tokio")).map(|row| (row.launcher, total(row)));
        for (time, value, is_repeated) in [("held", held, is_repeated), ("total", total(row), false)] {
            medians.push(RecordMedian { launcher, place, time, value, yardstick, is_repeated });
        }
    }
    let cpu = |row: &AliveRow| Bounded::new(row.cpu_p50_us, row.cpu_p50_low_us, row.cpu_p50_high_us);
    let latency = |row: &AliveRow| Bounded::new(row.latency_p50_us, row.latency_p50_low_us, row.latency_p50_high_us);
    for row in &report.alive {
        let epoll = report.alive.iter().find(|other| other.waiter == "epoll" && other.children == row.children);
        // Each is divided by the same time of epoll: a machine may slow down CPU time or latency alone.
        for (time, of) in [("cpu", cpu as fn(&AliveRow) -> Bounded), ("latency", latency)] {
            let yardstick = epoll.map(|row| (row.waiter, of(row)));
            let (launcher, place, value) = (row.waiter, (Condition::SMALL, row.children), of(row));
            medians.push(RecordMedian { launcher, place, time, value, yardstick, is_repeated: false });
        }
    }
    medians
}

impl Comparison {
    fn new(before: &Report, after: &Report, tolerance: f64) -> Result<Self> {
        let mut found = Self { tolerance, ..Self::default() };
        let (before_all, after_all) = (medians(before), medians(after));
        let mut unmatched = before_all.len() + after_all.len();
        for new in &after_all {
            let is_it =
                |old: &&RecordMedian| (old.launcher, old.place, old.time) == (new.launcher, new.place, new.time);
            let Some(old) = before_all.iter().find(is_it) else { continue };
            unmatched -= 2;
            let yardsticks = old.yardstick.zip(new.yardstick).filter(|((old, _), (new, _))| old == new);
            let by = yardsticks.map(|((launcher, _), _)| launcher);
            if by == Some(new.launcher) || new.is_repeated {
                continue;
            }
            let (before, after) = match yardsticks {
                Some(((_, old_by), (_, new_by))) => (old.value.by(old_by), new.value.by(new_by)),
                None => (old.value, new.value),
            };
            let verdict = Verdict::new(before, after, tolerance);
            let ratio = round(after.median / before.median);
            let condition = match new.place {
                (condition, 0) => headline(&condition),
                (_, children) => format!("{} children alive", thousands(children as u64)),
            };
            let (launcher, time) = (new.launcher, new.time);
            found.figures.push(ComparedFigure { launcher, condition, time, by, before, after, ratio, verdict });
        }
        ensure!(!found.figures.is_empty(), "the records have no row in common");
        let small = |all: &[RecordMedian]| {
            let median = all.iter().find(|median| median.place == (Condition::SMALL, 0))?;
            Some(median.yardstick?.1.median)
        };
        found.unmatched = unmatched / 2;
        found.changed = found.figures.iter().filter(|figure| figure.verdict != Verdict::Same).count();
        found.compared = found.figures.len();
        found.machine = small(&before_all).zip(small(&after_all)).map(|(old, new)| round(new / old));
        Ok(found)
    }

    /// The changes, a table for each condition, and the number of compared figures.
    fn describe(&self, width: usize) -> String {
        let changed: Vec<&ComparedFigure> =
            self.figures.iter().filter(|figure| figure.verdict != Verdict::Same).collect();
        let chosen = fitting(&COLUMNS, &changed, width);
        let mut text = String::new();
        for of_one in changed.chunk_by(|a, b| a.condition == b.condition) {
            text += &wrap("", "  ", &of_one[0].condition, width);
            text += &table(&chosen, of_one, |_| None);
            text.push('\n');
        }
        let Self { changed, compared, unmatched, tolerance, .. } = self;
        let percent = tolerance * 100.0;
        let total = format!(
            "{changed} of {compared} medians changed by more than their 95 % bounds plus {percent} %; {unmatched} rows are in one \
             record only."
        );
        text += &wrap("", "", &total, width);
        if let Some(machine) = self.machine {
            let words = "Time of the vfork baseline, by which the others are divided";
            text += &wrap("", "", &format!("{words}: {machine} × that of before."), width);
        }
        text
    }
}

/// The exit code, which is 2 for errors.
pub(crate) fn status(outcome: Result<ExitCode>) -> ExitCode {
    outcome.context("cannot compare the records").unwrap_or_else(|error| {
        eprintln!("forkless: {error:#}");
        ExitCode::from(2)
    })
}

#[cfg(test)]
mod tests {
    use super::super::crowd::Exit;
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::*;

    /// A record of a machine with a relative time of `machine`, in which forkless takes `change` times as long.
    fn report(machine: f64, change: f64) -> Report {
        let crowd = Condition { threads: 4, ..Condition::SMALL };
        let rows = [Condition::SMALL, crowd].into_iter().flat_map(|condition| {
            [
                row("floor", condition, 20.0 * machine, 40.0 * machine),
                row("std", condition, 30.0 * machine, 60.0 * machine),
                row("forkless-status", condition, 38.0 * machine * change, 38.0 * machine * change),
            ]
        });
        Report::new(Machine::read(), rows.collect(), Vec::new())
    }

    fn changed(before: &Report, after: &Report) -> Vec<(&'static str, &'static str, Verdict)> {
        let found = Comparison::new(before, after, 0.05).expect("comparable");
        let figures = found.figures.into_iter().filter(|figure| figure.verdict != Verdict::Same);
        figures.map(|figure| (figure.launcher, figure.time, figure.verdict)).collect()
    }

    #[test]
    fn change_within_the_bounds_of_both_records_is_ignored() {
        let usual = report(1.0, 1.0);
        assert!(changed(&usual, &usual).is_empty());
        assert!(changed(&usual, &report(1.0, 1.04)).is_empty(), "within the noise");
        assert!(changed(&usual, &report(3.0, 1.0)).is_empty(), "a slower machine is not a change");
        let slower = [("forkless-status", "total", Verdict::Slower); 2];
        assert_eq!(changed(&usual, &report(1.0, 1.2)), slower);
        assert_eq!(changed(&usual, &report(3.0, 1.2)), slower, "also on a slower machine");
        assert_eq!(changed(&report(1.0, 1.2), &usual), [("forkless-status", "total", Verdict::Faster); 2]);
    }

    #[test]
    fn change_within_wide_bounds_is_ignored() {
        let (usual, mut unsure) = (report(1.0, 1.0), report(1.0, 1.2));
        for row in &mut unsure.rows {
            row.total_p50_low_us = row.total_p50_us * 0.7;
        }
        assert!(changed(&usual, &unsure).is_empty());
    }

    /// A record of children alive, in which the cost of an exit varies by 5 %, as on a shared machine, and that of forkless is
    /// multiplied by `change`.
    fn alive(machine: f64, change: f64) -> Report {
        let exits = |us: f64| -> Vec<Exit> {
            let cost = |n: u64| us * machine * (1_000.0 + 50.0 * ((n * 7919 % 41) as f64 / 20.0 - 1.0));
            (0..400).map(|n| Exit { cpu_ns: cost(n) as u64, latency_ns: 10 * cost(n) as u64 }).collect()
        };
        let rows = [100, 10_000].into_iter().flat_map(|children| {
            [("epoll", 5.0), ("wait-any", children as f64 / 20.0), ("forkless-wait-set", 5.2 * change)]
                .map(|(waiter, us)| AliveRow::new(waiter, children, &exits(us)))
        });
        Report::new(Machine::read(), Vec::new(), rows.collect())
    }

    #[test]
    fn changes_with_children_alive_are_found_relative_to_epoll() {
        let usual = alive(1.0, 1.0);
        let found = Comparison::new(&usual, &usual, 0.05).expect("comparable");
        assert_eq!(
            (found.compared, found.changed, found.unmatched),
            (8, 0, 0),
            "two waiters, two numbers of children, two times"
        );
        assert!(found.figures.iter().all(|figure| figure.by == Some("epoll")));
        assert!(changed(&usual, &alive(1.0, 1.04)).is_empty(), "within the noise");
        assert!(changed(&usual, &alive(3.0, 1.0)).is_empty(), "a slower machine is not a change");
        let both = |verdict| ["cpu", "latency", "cpu", "latency"].map(|time| ("forkless-wait-set", time, verdict));
        assert_eq!(changed(&usual, &alive(1.0, 1.3)), both(Verdict::Slower));
        assert_eq!(changed(&usual, &alive(3.0, 1.3)), both(Verdict::Slower), "also on a slower machine");
        assert_eq!(changed(&alive(1.0, 1.3), &usual), both(Verdict::Faster));
    }

    #[test]
    fn children_alive_are_compared_by_their_bounds_and_only_in_equal_numbers() {
        let mut unsure = alive(1.0, 1.3);
        unsure.alive.iter_mut().for_each(|row| row.cpu_p50_low_us = row.cpu_p50_us * 0.7);
        assert!(changed(&alive(1.0, 1.0), &unsure).iter().all(|(_, time, _)| *time == "latency"), "wide bounds");

        let mut fewer = alive(1.0, 1.3);
        fewer.alive.iter_mut().filter(|row| row.children > 100).for_each(|row| row.children = 9_000);
        let found = Comparison::new(&alive(1.0, 1.0), &fewer, 0.05).expect("comparable");
        assert_eq!((found.compared, found.changed, found.unmatched), (4, 2, 6));
    }

    #[test]
    fn records_of_different_things_cannot_be_compared() {
        let other = Report::new(Machine::read(), vec![row("fork", Condition::SMALL, 1.0, 2.0)], Vec::new());
        assert!(Comparison::new(&report(1.0, 1.0), &other, 0.05).is_err());
    }
}
