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
    archive,
    condition::{Condition, headline},
    layout::{Column, Layout, fitting, table, wrap},
    record::{Report, write_to},
    rows::{AliveRow, Row},
    statistics::round,
    units::thousands,
};

/// The bounds to assume, to each side, for ratios of older records without bounds.
const UNKNOWN_BOUNDS: f64 = 0.05;

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
    let (before, after) = (archive::read(&options.before)?, archive::read(&options.after)?);
    let found = Comparison::new(&before.report, &after.report, options.tolerance / 100.0)?;
    let text = if options.json {
        serde_json::to_string_pretty(&found)? + "\n"
    } else {
        found.words(Layout::of_stdout(false).width)
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
    figures: Vec<Figure>,
}

/// One median in both records.
#[derive(Debug, Serialize)]
struct Figure {
    /// The method, or the waiter with children alive.
    launcher: &'static str,
    condition: String,
    /// `held` or `total`; `cpu` or `latency` with children alive.
    time: &'static str,
    /// The method whose time both are divided by, if any.
    by: Option<&'static str>,
    before: Bounded,
    after: Bounded,
    /// After by before.
    ratio: f64,
    verdict: Verdict,
}

/// The columns of the changes. "by" is the method whose time both medians are divided by.
const COLUMNS: [Column; 9] = [
    ("launcher", 0),
    ("time", 4),
    ("before", 2),
    ("bounds", 7),
    ("after", 3),
    ("bounds", 8),
    ("by", 6),
    ("change", 1),
    ("", 5),
];

impl Figure {
    fn cells(&self) -> [String; 9] {
        let median = |side: Bounded| format!("{:.3}", side.median);
        let bounds = |side: Bounded| format!("{:.3} to {:.3}", side.low, side.high);
        [
            self.launcher.to_owned(),
            self.time.to_owned(),
            median(self.before),
            bounds(self.before),
            median(self.after),
            bounds(self.after),
            self.by.unwrap_or("µs").to_owned(),
            format!("{:+.1} %", (self.ratio - 1.0) * 100.0),
            if self.verdict == Verdict::Slower { "slower" } else { "faster" }.to_owned(),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Same,
    Slower,
    Faster,
}

/// A figure with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Bounded {
    median: f64,
    low: f64,
    high: f64,
}

/// A median as it is in a record.
#[derive(Clone, Copy)]
struct Median {
    us: f64,
    bounds: Option<(f64, f64)>,
}

impl Median {
    /// Divided by a yardstick. The bounds assume errors of both medians in opposite directions.
    fn by(self, yardstick: Option<Self>) -> Bounded {
        let one = Self { us: 1.0, bounds: Some((1.0, 1.0)) };
        let yardstick = yardstick.unwrap_or(one);
        let median = self.us / yardstick.us;
        match self.bounds.zip(yardstick.bounds) {
            Some((own, its)) => Bounded { median, low: own.0 / its.1, high: own.1 / its.0 },
            None => Bounded { median, low: median * (1.0 - UNKNOWN_BOUNDS), high: median * (1.0 + UNKNOWN_BOUNDS) },
        }
    }
}

fn total(row: &Row) -> Median {
    Median { us: row.total_p50_us, bounds: row.total_p50_low_us.zip(row.total_p50_high_us) }
}

fn held(row: &Row) -> Median {
    Median { us: row.held_p50_us, bounds: row.held_p50_low_us.zip(row.held_p50_high_us) }
}

fn cpu(row: &AliveRow) -> Median {
    Median { us: row.cpu_p50_us, bounds: row.cpu_p50_low_us.zip(row.cpu_p50_high_us) }
}

fn latency(row: &AliveRow) -> Median {
    Median { us: row.latency_p50_us, bounds: row.latency_p50_low_us.zip(row.latency_p50_high_us) }
}

fn verdict(before: Bounded, after: Bounded, tolerance: f64) -> Verdict {
    if after.low > before.high * (1.0 + tolerance) {
        Verdict::Slower
    } else if after.high * (1.0 + tolerance) < before.low {
        Verdict::Faster
    } else {
        Verdict::Same
    }
}

/// The row that represents the speed of the machine under a condition: the vfork baseline, or tokio if there is none.
fn yardstick<'a>(report: &'a Report, condition: &Condition) -> Option<&'a Row> {
    let of = |name: &str| report.rows_of(condition).find(|row| row.launcher == name);
    of("floor").or_else(|| of("tokio"))
}

/// As [`yardstick`], for a number of children alive.
fn alive_yardstick(report: &Report, children: usize) -> Option<&AliveRow> {
    report.alive.iter().find(|row| row.waiter == "epoll" && row.children == children)
}

impl Comparison {
    fn new(before: &Report, after: &Report, tolerance: f64) -> Result<Self> {
        let mut found = Self { tolerance, ..Self::default() };
        found.compare_rows(before, after);
        found.compare_alive(before, after);
        ensure!(!found.figures.is_empty(), "the records have no row in common");
        let floors = yardstick(before, &Condition::SMALL).zip(yardstick(after, &Condition::SMALL));
        found.changed = found.figures.iter().filter(|figure| figure.verdict != Verdict::Same).count();
        found.compared = found.figures.len();
        found.machine = floors.map(|(old, new)| round(new.total_p50_us / old.total_p50_us));
        Ok(found)
    }

    fn compare_rows(&mut self, before: &Report, after: &Report) {
        self.unmatched += before.rows.len() + after.rows.len();
        for new in &after.rows {
            let condition = new.condition();
            let Some(old) = before.rows_of(&condition).find(|row| row.launcher == new.launcher) else { continue };
            self.unmatched -= 2;
            let yardsticks = yardstick(before, &condition).zip(yardstick(after, &condition));
            let yardsticks = yardsticks.filter(|(old, new)| old.launcher == new.launcher);
            if yardsticks.is_some_and(|(yardstick, _)| yardstick.launcher == new.launcher) {
                continue;
            }
            // If the call blocks until the child has ended, both times are the same.
            let both = [("held", held as fn(&Row) -> Median), ("total", total)];
            let apart = (new.held_p50_us - new.total_p50_us).abs() > f64::EPSILON;
            for (time, of) in both.into_iter().filter(|(time, _)| *time == "total" || apart) {
                // Divide both by the total of the yardstick, which has the most samples.
                let ratios =
                    (of(old).by(yardsticks.map(|(by, _)| total(by))), of(new).by(yardsticks.map(|(_, by)| total(by))));
                let by = yardsticks.map(|(yardstick, _)| yardstick.launcher);
                self.push((new.launcher, headline(&condition), time), by, ratios);
            }
        }
    }

    fn compare_alive(&mut self, before: &Report, after: &Report) {
        self.unmatched += before.alive.len() + after.alive.len();
        for new in &after.alive {
            let is_it = |row: &&AliveRow| row.waiter == new.waiter && row.children == new.children;
            let Some(old) = before.alive.iter().find(is_it) else { continue };
            self.unmatched -= 2;
            let yardsticks = alive_yardstick(before, new.children).zip(alive_yardstick(after, new.children));
            if yardsticks.is_some_and(|(yardstick, _)| yardstick.waiter == new.waiter) {
                continue;
            }
            // Divide each by the same time of the yardstick: a machine may slow down CPU time or latency alone.
            for (time, of) in [("cpu", cpu as fn(&AliveRow) -> Median), ("latency", latency)] {
                let ratios =
                    (of(old).by(yardsticks.map(|(by, _)| of(by))), of(new).by(yardsticks.map(|(_, by)| of(by))));
                let condition = format!("{} children alive", thousands(new.children as u64));
                self.push((new.waiter, condition, time), yardsticks.map(|(yardstick, _)| yardstick.waiter), ratios);
            }
        }
    }

    fn push(
        &mut self,
        (launcher, condition, time): (&'static str, String, &'static str),
        by: Option<&'static str>,
        (before, after): (Bounded, Bounded),
    ) {
        let ratio = round(after.median / before.median);
        let verdict = verdict(before, after, self.tolerance);
        self.figures.push(Figure { launcher, condition, time, by, before, after, ratio, verdict });
    }

    /// The changes, a table for each condition, and the number of compared figures.
    fn words(&self, width: usize) -> String {
        let changed = || self.figures.iter().filter(|figure| figure.verdict != Verdict::Same);
        let all: Vec<_> = changed().map(Figure::cells).collect();
        let chosen = fitting(&COLUMNS, &all, width);
        let mut conditions: Vec<&str> = changed().map(|figure| &*figure.condition).collect();
        conditions.dedup();
        let mut text = String::new();
        for condition in conditions {
            let of = changed().filter(|figure| figure.condition == condition);
            let rows: Vec<_> = of.map(|figure| (figure.cells(), None)).collect();
            text.push_str(&wrap("", "  ", condition, width));
            text.push_str(&table(&COLUMNS, &chosen, &rows, false));
            text.push('\n');
        }
        let total = format!(
            "{} of {} medians changed by more than their 95 % bounds plus {} %; {} rows are in one record only.",
            self.changed,
            self.compared,
            self.tolerance * 100.0,
            self.unmatched
        );
        text.push_str(&wrap("", "", &total, width));
        if let Some(machine) = self.machine {
            let machine =
                format!("Time of the vfork baseline, by which the others are divided: {machine} × that of before.");
            text.push_str(&wrap("", "", &machine, width));
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
            row.total_p50_low_us = Some(row.total_p50_us * 0.7);
        }
        assert!(changed(&usual, &unsure).is_empty());
    }

    #[test]
    fn records_without_bounds_are_compared_with_assumed_bounds() {
        let without = |change| {
            let mut report = report(1.0, change);
            report.rows.iter_mut().for_each(|row| {
                (row.total_p50_low_us, row.total_p50_high_us) = (None, None);
                (row.held_p50_low_us, row.held_p50_high_us) = (None, None);
            });
            report
        };
        assert!(changed(&without(1.0), &without(1.1)).is_empty());
        assert_eq!(changed(&without(1.0), &without(1.3)).len(), 2);
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
    fn children_alive_are_compared_without_bounds_and_only_in_equal_numbers() {
        let without = |change| {
            let mut report = alive(1.0, change);
            for row in &mut report.alive {
                (row.cpu_p50_low_us, row.cpu_p50_high_us) = (None, None);
                (row.latency_p50_low_us, row.latency_p50_high_us) = (None, None);
            }
            report
        };
        assert!(changed(&without(1.0), &without(1.1)).is_empty());
        assert_eq!(changed(&without(1.0), &without(1.3)).len(), 4);
        let mut unsure = alive(1.0, 1.3);
        unsure.alive.iter_mut().for_each(|row| row.cpu_p50_low_us = Some(row.cpu_p50_us * 0.7));
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
