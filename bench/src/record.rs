//! The record as JSON and CSV. `bench/FORMAT.md` describes every field, which a test checks.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    condition::Condition,
    machine::Machine,
    rows::{AliveRow, Row},
    statistics::round,
    targets::TargetFigure,
};

/// Version of the format; `bench/FORMAT.md` says when it is increased.
pub(crate) const FORMAT_VERSION: u32 = 4;

/// The file of a record, which may be given by its directory.
pub(crate) fn file(record: &Path) -> PathBuf {
    if record.is_dir() { record.join("results.json") } else { record.to_owned() }
}

/// The results of one run of the bench.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
    pub(crate) alive: Vec<AliveRow>,
    /// Computed again from the rows when a record is read, so that old rows are compared with current targets.
    #[serde(skip_deserializing)]
    pub(crate) targets: Vec<TargetFigure>,
}

impl Report {
    /// Computes ratios and targets from the rows.
    pub(crate) fn new(machine: Machine, mut rows: Vec<Row>, alive: Vec<AliveRow>) -> Self {
        let floors: Vec<(Condition, f64)> =
            rows.iter().filter(|r| r.launcher == "floor").map(|r| (r.condition(), r.total_p50_us)).collect();
        for row in &mut rows {
            let floor = floors.iter().find(|(condition, _)| *condition == row.condition());
            row.ratio_to_floor = floor.map(|(_, total)| round(row.total_p50_us / total));
        }
        let targets = super::targets::judge(&rows, &alive, &machine);
        Self { version: FORMAT_VERSION, machine, rows, alive, targets }
    }

    /// Reads a record of the current version, from its file or directory.
    ///
    /// # Errors
    /// If the file is not such a record, or has no rows.
    pub(crate) fn read(record: &Path) -> Result<Self> {
        let path = file(record);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a record of this program", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut value: Value = serde_json::from_str(text)?;
        let version = &value["version"];
        ensure!(
            *version == FORMAT_VERSION,
            "it has version {version} of the format, not {FORMAT_VERSION}: read it with the forkless that wrote it"
        );
        let columns: Vec<String> = serde_json::from_value(value["columns"].take())?;
        let groups: Vec<Group> = serde_json::from_value(value["rows"].take())?;
        value["rows"] = groups.iter().flat_map(|group| group.rows(&columns)).collect::<Result<Value>>()?;
        let Self { machine, rows, alive, .. } = serde_json::from_value(value)?;
        ensure!(!rows.is_empty() || !alive.is_empty(), "it has no rows");
        Ok(Self::new(machine, rows, alive))
    }

    /// The conditions, in the order in which they were measured.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let mut conditions: Vec<Condition> = self.rows.iter().map(Row::condition).collect();
        // The rows of a condition are adjacent.
        conditions.dedup();
        conditions
    }

    /// The rows of one condition, in the order of the methods.
    pub(crate) fn rows_of<'a>(&'a self, condition: &Condition) -> impl Iterator<Item = &'a Row> {
        let condition = *condition;
        self.rows.iter().filter(move |row| row.condition() == condition)
    }

    /// The whole report, with a line for each condition.
    pub(crate) fn json(&self) -> Result<String> {
        let mut record = serde_json::to_value(self)?;
        let (columns, groups) = grouped(&self.rows)?;
        record["columns"] = columns.into();
        record["rows"] = serde_json::to_value(groups)?;
        compact(&record)
    }

    /// The rows as CSV, with a header line.
    pub(crate) fn csv(&self) -> Result<String> {
        lines(&self.rows)
    }

    /// The rows of children alive as CSV, with a header line; empty if there are none.
    pub(crate) fn alive_csv(&self) -> Result<String> {
        lines(&self.alive)
    }
}

/// The rows of one condition in JSON.
#[derive(Serialize, Deserialize)]
struct Group {
    condition: Map<String, Value>,
    /// The values of the columns, for each method.
    methods: Vec<Vec<Value>>,
}

impl Group {
    /// Its rows as objects.
    fn rows(&self, columns: &[String]) -> impl Iterator<Item = Result<Value>> {
        self.methods.iter().map(|values| {
            ensure!(values.len() == columns.len(), "it has a row of {} columns, not {}", values.len(), columns.len());
            let figures = columns.iter().cloned().zip(values.iter().cloned());
            Ok(self.condition.clone().into_iter().chain(figures).collect())
        })
    }
}

/// The names of the columns, and the rows by condition.
fn grouped(rows: &[Row]) -> Result<(Vec<String>, Vec<Group>)> {
    let mut columns = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let condition: Map<String, Value> = serde_json::from_value(serde_json::to_value(row.condition())?)?;
        let mut figures: Map<String, Value> = serde_json::from_value(serde_json::to_value(row)?)?;
        figures.retain(|name, _| !condition.contains_key(name));
        columns = figures.keys().cloned().collect();
        let values = figures.into_values().collect();
        // The rows of a condition are adjacent.
        match groups.last_mut().filter(|group| group.condition == condition) {
            Some(group) => group.methods.push(values),
            None => groups.push(Group { condition, methods: vec![values] }),
        }
    }
    Ok((columns, groups))
}

/// An object as JSON with a line for each field, and for each entry of a list.
pub(crate) fn compact(object: &impl Serialize) -> Result<String> {
    let Value::Object(fields) = serde_json::to_value(object)? else { bail!("a record is an object") };
    let field =
        |(name, value): (&String, &Value)| match value.as_array().filter(|list| !list.iter().all(Value::is_string)) {
            Some(rows) => {
                let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
                format!("\"{name}\":[\n{}\n]", rows.join(",\n"))
            }
            None => format!("\"{name}\":{value}"),
        };
    Ok(format!("{{\n{}\n}}\n", fields.iter().map(field).collect::<Vec<_>>().join(",\n")))
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

/// Replaces a file in the output directory by a new one, so that a symbolic link of that name is not followed.
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
    use super::super::contestant::Contestant;
    use super::super::setting::Setting;
    use super::super::statistics::Spread;
    use super::super::statistics::Summary;
    use super::*;

    /// A row with simple figures.
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

    /// A report of a small process, and of four threads.
    pub(crate) fn report() -> Report {
        let small = Condition::SMALL;
        let crowd = Condition { threads: 4, ..small };
        let rows = vec![
            row("floor", small, 40.0, 80.0),
            row("posix_spawn", small, 60.0, 110.0),
            row("forkless-spawn", small, 50.0, 121.0),
            row("forkless-status", small, 55.0, 55.0),
            row("posix_spawn", crowd, 60.0, 100.0),
            row("forkless-status", crowd, 200.0, 200.0),
        ];
        Report::new(Machine::read(), rows, Vec::new())
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
        assert_eq!(json["version"], 4);
        let ratio = json["columns"].as_array().expect("names").iter().position(|name| name == "ratio_to_floor");
        assert_eq!(json["rows"][0]["methods"][1][ratio.expect("a column")], 1.25);
    }

    #[test]
    fn written_record_is_read_back_unchanged_and_another_version_refused() {
        let user = Condition { setting: Setting::UserNamespace, ..Condition::SMALL };
        let rows = vec![row("floor", user, 40.0, 80.0), row("forkless-status", user, 60.0, 60.0)];
        let alive = vec![AliveRow { waiter: "epoll", children: 100, n: 9, cpu_p50_us: 5.0, ..AliveRow::default() }];
        let written = Report::new(Machine::read(), rows, alive).json().expect("json");
        // A launcher that was added or removed since.
        let written = written.replace("forkless-status", "forkless-next-year");
        assert_eq!(Report::parse(&written).expect("a record").json().expect("json"), written);
        let older = Report::parse(&written.replace("\"version\":4", "\"version\":3")).expect_err("version 3");
        assert!(older.to_string().contains("it has version 3 of the format, not 4"), "{older}");
        let cut = Report::parse(&written.replace("\"n\",", "")).expect_err("a column less");
        assert!(cut.to_string().contains("it has a row of 20 columns, not 19"), "{cut}");
        let empty = r#"{"version": 4, "machine": {}, "columns": [], "rows": [], "alive": []}"#;
        let unlike = r#"{"version": 4, "machine": {}, "columns": [], "rows": [{}], "alive": []}"#;
        for none in ["{}", "[]", empty, unlike, "no JSON"] {
            assert!(Report::parse(none).is_err(), "{none}");
        }
    }

    #[test]
    fn ratio_requires_a_vfork_baseline() {
        let report = Report::new(Machine::read(), vec![row("std", Condition::SMALL, 60.0, 100.0)], Vec::new());
        assert_eq!(report.rows[0].ratio_to_floor, None);
        assert!(report.csv().expect("csv").lines().nth(1).expect("a row").ends_with(",,,"));
    }
}
