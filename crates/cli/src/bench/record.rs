//! The figures as other programs get them: JSON and CSV. `bench/FORMAT.md` describes every field, and a test compares.

use std::{fs, io::Write, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{
    alive::AliveRow,
    conditions::Condition,
    contestants::Contestant,
    machine::Machine,
    settings::Setting,
    statistics::{Summary, round},
    targets::Figure,
};

/// Version of the format; `bench/FORMAT.md` has the rule for when it grows.
pub(crate) const FORMAT_VERSION: u32 = 3;

/// The name of a launcher, a waiter or an engine: a constant, or from a record that is read back.
pub(crate) type Name = &'static str;

/// One contestant under one condition. What a record of an older version has not is as it was then.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    #[serde(deserialize_with = "super::archive::name")]
    pub(crate) launcher: Name,
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
    pub(crate) n: u64,
    pub(crate) held_p50_us: f64,
    /// Bounds of the median, with 95 % confidence; none in records of before they were taken.
    pub(crate) held_p50_low_us: Option<f64>,
    pub(crate) held_p50_high_us: Option<f64>,
    pub(crate) held_p90_us: f64,
    pub(crate) held_p99_us: f64,
    pub(crate) held_max_us: f64,
    pub(crate) total_p50_us: f64,
    pub(crate) total_p50_low_us: Option<f64>,
    pub(crate) total_p50_high_us: Option<f64>,
    pub(crate) total_p90_us: f64,
    pub(crate) total_p99_us: f64,
    pub(crate) total_max_us: f64,
    pub(crate) rate_per_s: f64,
    pub(crate) cpu_us: f64,
    /// By a count of its own, where that was made.
    pub(crate) system_calls: Option<f64>,
    pub(crate) ratio_to_floor: Option<f64>,
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

/// All that one run of the bench found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
    pub(crate) alive: Vec<AliveRow>,
    pub(crate) targets: Vec<Figure>,
}

impl Report {
    /// Adds what follows from the rows.
    pub(crate) fn new(machine: Machine, mut rows: Vec<Row>, alive: Vec<AliveRow>) -> Self {
        let floors: Vec<(Condition, f64)> =
            rows.iter().filter(|r| r.launcher == "floor").map(|r| (r.condition(), r.total_p50_us)).collect();
        for row in &mut rows {
            let floor = floors.iter().find(|(condition, _)| *condition == row.condition());
            row.ratio_to_floor = floor.map(|(_, total)| round(row.total_p50_us / total));
        }
        let targets = super::targets::judge(&rows, &alive, machine.cores);
        Self { version: FORMAT_VERSION, machine, rows, alive, targets }
    }

    /// The conditions, in the order in which they were measured.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let mut conditions: Vec<Condition> = self.rows.iter().map(Row::condition).collect();
        // Rows of one condition stand together.
        conditions.dedup();
        conditions
    }

    /// The rows of one condition, in the order of the contestants.
    pub(crate) fn rows_of<'a>(&'a self, condition: &Condition) -> impl Iterator<Item = &'a Row> {
        let condition = *condition;
        self.rows.iter().filter(move |row| row.condition() == condition)
    }

    /// The whole report, indented, with a newline at the end.
    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The rows alone, with a head line.
    pub(crate) fn csv(&self) -> Result<String> {
        lines(&self.rows)
    }

    /// The rows of children alive, with a head line; empty where there are none.
    pub(crate) fn alive_csv(&self) -> Result<String> {
        lines(&self.alive)
    }
}

fn lines<T: Serialize>(rows: &[T]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Writes to a file, or to standard output for `-`.
pub(crate) fn write_to(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        return std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output");
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a file of the output directory by a new one, so that nothing is written through a link of that name.
pub(crate) fn write_in(directory: &Path, name: impl AsRef<Path>, content: &[u8]) -> Result<()> {
    let path = directory.join(name);
    let write = || -> std::io::Result<()> {
        let mode = fs::Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().prefix(".forkless-bench-").permissions(mode).tempfile_in(directory)?;
        file.write_all(content)?;
        file.persist(&path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{super::statistics::Spread, *};

    /// A row with round figures.
    pub(crate) fn row(launcher: &'static str, condition: Condition, held: f64, total: f64) -> Row {
        let contestant = Contestant::ALL.into_iter().find(|c| c.name() == launcher).expect("a contestant");
        let spread =
            |p50| Spread { p50, low: p50 * 0.98, high: p50 * 1.02, p90: p50 * 1.5, p99: p50 * 2.0, max: p50 * 3.0 };
        let summary = Summary {
            n: 100,
            held: spread(held),
            total: spread(total),
            rate_per_s: round(condition.threads as f64 * 1e6 / total),
            cpu_us: total,
        };
        Row::new(contestant, &condition, summary)
    }

    #[test]
    fn csv_has_the_fields_of_the_rows() {
        let small = Condition::SMALL;
        let rows = vec![row("floor", small, 40.0, 80.0), row("std", small, 60.0, 100.0)];
        let report = Report::new(Machine::read(), rows, Vec::new());
        let csv = report.csv().expect("csv");
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with("launcher,parent_mib,mappings,fds,threads,pipes,setting,output,tasks,close_on_exec,")
        );
        assert!(lines[2].ends_with(",1.25,,"), "{}", lines[2]);
        let json: serde_json::Value = serde_json::from_str(&report.json().expect("json")).expect("valid");
        assert_eq!(json["version"], 3);
        assert_eq!(json["rows"][1]["ratio_to_floor"], 1.25);
    }

    #[test]
    fn without_a_floor_there_is_no_ratio() {
        let report = Report::new(Machine::read(), vec![row("std", Condition::SMALL, 60.0, 100.0)], Vec::new());
        assert_eq!(report.rows[0].ratio_to_floor, None);
        assert!(report.csv().expect("csv").lines().nth(1).expect("a row").ends_with(",,,"));
    }
}
