//! `forkless bench compare`: what changed between two records, beyond the noise.
//!
//! Each figure is divided by the floor's under the same condition in the same record, which cancels the speed of the machine, and
//! has the bounds that the record gives for both medians; what an exit costs with children alive is divided by epoll's. It is called changed when the bounds of the two records do not meet, by
//! more than a tolerance for what differs between two runs of one program.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::CellAlignment;
use serde::Serialize;

use super::{
    archive,
    condition::{Condition, headline},
    record::{Report, write_to},
    rows::{AliveRow, Row},
    statistics::round,
    table::new_table,
    units::thousands,
};

/// For ratios of medians without bounds, of records before there were any: this far to each side.
const UNKNOWN_BOUNDS: f64 = 0.05;

/// Say what changed from one record to another, beyond the noise.
///
/// Exits with 0 if nothing did, with 1 if something did, with 2 if they cannot be compared.
#[derive(Args, Debug)]
pub(crate) struct CompareOptions {
    /// The record to compare with: a directory with a results.json, or such a file
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// The record that is compared
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    /// Changes up to this much, beyond the bounds of both medians, are not called so
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    tolerance: f64,

    /// Write JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("must be 0 or more".to_owned()) }
}

/// Compares, and says so on standard output.
///
/// # Errors
/// When a record cannot be read, or the two have no row in common.
pub(crate) fn main(options: &CompareOptions) -> Result<ExitCode> {
    let (before, after) = (archive::read(&options.before)?, archive::read(&options.after)?);
    let found = Comparison::new(&before.report, &after.report, options.tolerance / 100.0)?;
    let text = if options.json { serde_json::to_string_pretty(&found)? + "\n" } else { found.words() };
    write_to(Path::new("-"), &text)?;
    Ok(if found.changed > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Comparison {
    /// Figures that are slower or faster.
    changed: usize,
    /// Figures compared.
    compared: usize,
    /// Rows that only one of the records has.
    unmatched: usize,
    tolerance: f64,
    /// How many times as slow the floor of the small parent is: the machine, and no change of forkless.
    machine: Option<f64>,
    figures: Vec<Figure>,
}

/// One median in both records.
#[derive(Debug, Serialize)]
struct Figure {
    /// Or who waits, with children alive.
    launcher: &'static str,
    condition: String,
    /// `held` or `total`; `cpu` or `latency` with children alive.
    time: &'static str,
    /// What both are divided by: the time of this launcher, or nothing.
    by: Option<&'static str>,
    before: Bounded,
    after: Bounded,
    /// After by before.
    ratio: f64,
    verdict: Verdict,
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
    /// Divided by a yardstick. The bounds are as wide as if both medians had been missed in opposite directions.
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

/// What stands for the speed of the machine under a condition: the floor, and where there is none, what tokio itself takes.
fn yardstick<'a>(report: &'a Report, condition: &Condition) -> Option<&'a Row> {
    let of = |name: &str| report.rows_of(condition).find(|row| row.launcher == name);
    of("floor").or_else(|| of("tokio"))
}

/// As [`yardstick`], of so many children alive.
fn alive_yardstick(report: &Report, children: usize) -> Option<&AliveRow> {
    report.alive.iter().find(|row| row.waiter == "epoll" && row.children == children)
}

impl Comparison {
    fn new(before: &Report, after: &Report, tolerance: f64) -> Result<Self> {
        let mut found = Self { tolerance, ..Self::default() };
        found.compare_rows(before, after);
        found.compare_alive(before, after);
        ensure!(!found.figures.is_empty(), "the records have nothing in common that could be compared");
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
            // Where the caller is held to the end the two are one.
            let both = [("held", held as fn(&Row) -> Median), ("total", total)];
            let apart = (new.held_p50_us - new.total_p50_us).abs() > f64::EPSILON;
            for (time, of) in both.into_iter().filter(|(time, _)| *time == "total" || apart) {
                // Against the total of the yardstick: it is what the record has most of, and held follows it.
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
            // Each against the same of the yardstick: they are of different kinds, and the machine may slow down one of them only.
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

    /// The changes as a table, and what that is out of.
    fn words(&self) -> String {
        let mut table = new_table(false);
        table.set_header(["launcher", "under", "time", "before", "after", "change", ""]);
        for figure in self.figures.iter().filter(|figure| figure.verdict != Verdict::Same) {
            let by = figure.by.map_or(" µs".to_owned(), |by| format!(" × {by}"));
            let side = |side: Bounded| format!("{:.3} ({:.3} to {:.3}){by}", side.median, side.low, side.high);
            let verdict = if figure.verdict == Verdict::Slower { "slower" } else { "faster" };
            table.add_row([
                figure.launcher.to_owned(),
                figure.condition.clone(),
                figure.time.to_owned(),
                side(figure.before),
                side(figure.after),
                format!("{:+.1} %", (figure.ratio - 1.0) * 100.0),
                verdict.to_owned(),
            ]);
        }
        for column in table.column_iter_mut().skip(3).take(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = if self.changed > 0 { format!("{table}\n") } else { String::new() };
        text.push_str(&format!(
            "{} of {} medians changed by more than their 95 % bounds and {} %; {} rows are in one record only.\n",
            self.changed,
            self.compared,
            self.tolerance * 100.0,
            self.unmatched
        ));
        if let Some(machine) = self.machine {
            text.push_str(&format!(
                "The floor itself, which the others are divided by: {machine} × as slow as before.\n"
            ));
        }
        text
    }
}

/// For the exit status: what `?` cannot say.
pub(crate) fn status(outcome: Result<ExitCode>) -> ExitCode {
    outcome.context("cannot compare").unwrap_or_else(|error| {
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

    /// A record of a machine of that speed, in which forkless takes so many times as long as it did.
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
    fn a_change_is_one_only_beyond_the_bounds_of_both() {
        let usual = report(1.0, 1.0);
        assert!(changed(&usual, &usual).is_empty());
        assert!(changed(&usual, &report(1.0, 1.04)).is_empty(), "within the noise");
        assert!(changed(&usual, &report(3.0, 1.0)).is_empty(), "another machine is no change");
        let slower = [("forkless-status", "total", Verdict::Slower); 2];
        assert_eq!(changed(&usual, &report(1.0, 1.2)), slower);
        assert_eq!(changed(&usual, &report(3.0, 1.2)), slower, "also on another machine");
        assert_eq!(changed(&report(1.0, 1.2), &usual), [("forkless-status", "total", Verdict::Faster); 2]);
    }

    #[test]
    fn wide_bounds_hide_a_change() {
        let (usual, mut unsure) = (report(1.0, 1.0), report(1.0, 1.2));
        for row in &mut unsure.rows {
            row.total_p50_low_us = Some(row.total_p50_us * 0.7);
        }
        assert!(changed(&usual, &unsure).is_empty());
    }

    #[test]
    fn records_without_bounds_get_some() {
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

    /// A record of children alive: what an exit costs drifts by a twentieth up and down, as it does on a machine with neighbours, and
    /// that of forkless is changed.
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
    fn children_alive_are_compared_as_launches_are() {
        let usual = alive(1.0, 1.0);
        let found = Comparison::new(&usual, &usual, 0.05).expect("comparable");
        assert_eq!((found.compared, found.changed, found.unmatched), (8, 0, 0), "two ways, two numbers, two times");
        assert!(found.figures.iter().all(|figure| figure.by == Some("epoll")));
        assert!(changed(&usual, &alive(1.0, 1.04)).is_empty(), "within the noise");
        assert!(changed(&usual, &alive(3.0, 1.0)).is_empty(), "another machine is no change");
        let both = |verdict| ["cpu", "latency", "cpu", "latency"].map(|time| ("forkless-wait-set", time, verdict));
        assert_eq!(changed(&usual, &alive(1.0, 1.3)), both(Verdict::Slower));
        assert_eq!(changed(&usual, &alive(3.0, 1.3)), both(Verdict::Slower), "also on another machine");
        assert_eq!(changed(&alive(1.0, 1.3), &usual), both(Verdict::Faster));
    }

    #[test]
    fn children_alive_without_bounds_or_in_other_numbers() {
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
