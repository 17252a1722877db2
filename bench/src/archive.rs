//! Reads records of this and all earlier versions of the format.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    machine::Machine,
    record::{FORMAT_VERSION, Report},
    rows::{AliveRow, Row},
};

/// A record with notes about it.
pub(crate) struct Archived {
    pub(crate) report: Report,
    pub(crate) notes: Vec<String>,
}

/// The file of a record, which may be given by its directory.
pub(crate) fn file(record: &Path) -> PathBuf {
    if record.is_dir() { record.join("results.json") } else { record.to_owned() }
}

/// Reads a record.
///
/// Unknown fields are skipped; missing fields get the value that they had before they were introduced. Ratios and targets are
/// computed again from the rows, so that old records are compared with current targets.
///
/// # Errors
/// If the file is not a record, or has no rows.
pub(crate) fn read(record: &Path) -> Result<Archived> {
    let path = file(record);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not a record of forkless bench", path.display()))
}

fn parse(text: &str) -> Result<Archived> {
    let value: Value = serde_json::from_str(text)?;
    let version = value["version"].as_u64().context("it has no version")?;
    let mut notes = Vec::new();
    if version > u64::from(FORMAT_VERSION) {
        notes.push(format!(
            "the record has version {version}, which is newer than this program: some of it may be missing here"
        ));
    }
    let (rows, odd_rows) = known(&value["rows"], |row: &Row| !row.launcher.is_empty() && row.total_p50_us > 0.0);
    let (alive, odd_alive) = known(&value["alive"], |row: &AliveRow| !row.waiter.is_empty() && row.cpu_p50_us > 0.0);
    if odd_rows + odd_alive > 0 {
        notes.push(format!("{} rows skipped: unknown to this program", odd_rows + odd_alive));
    }
    ensure!(!rows.is_empty() || !alive.is_empty(), "it has no rows");
    let machine: Machine = serde_json::from_value(value["machine"].clone()).context("machine")?;
    Ok(Archived { report: Report::new(machine, rows, alive), notes })
}

/// The valid entries of a list, and the number of the others.
fn known<T: DeserializeOwned>(list: &Value, is_sane: impl Fn(&T) -> bool) -> (Vec<T>, usize) {
    let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<T> =
        entries.iter().filter_map(|entry| T::deserialize(entry).ok()).filter(|entry| is_sane(entry)).collect();
    let odd = entries.len() - found.len();
    (found, odd)
}

#[cfg(test)]
mod tests {
    use super::super::condition::Condition;
    use super::super::record::tests::row;
    use super::super::setting::Setting;
    use super::*;

    #[test]
    fn written_record_is_read_back_unchanged() {
        let user = Condition { setting: Setting::UserNamespace, ..Condition::SMALL };
        let rows = vec![row("floor", user, 40.0, 80.0), row("forkless-status", user, 60.0, 60.0)];
        let alive = vec![AliveRow { waiter: "epoll", children: 100, n: 9, cpu_p50_us: 5.0, ..AliveRow::default() }];
        let written = Report::new(Machine::read(), rows, alive).json().expect("json");
        let read = parse(&written).expect("a record");
        assert_eq!(read.report.json().expect("json"), written);
        assert!(read.notes.is_empty());
    }

    #[test]
    fn record_of_version_1_is_read() {
        let text = r#"{"version": 1, "machine": {"date": "2025-01-01T00:00:00Z", "cores": 4}, "rows": [
            {"launcher": "floor", "parent_mib": 0, "mappings": 0, "fds": 3, "threads": 1, "pipes": 0, "n": 9,
             "held_p50_us": 20.0, "held_p99_us": 21.0, "total_p50_us": 40.0, "total_p99_us": 41.0, "rate_per_s": 9.0,
             "cpu_us": 30.0, "ratio_to_floor": 1.0}]}"#;
        let read = parse(text).expect("a record");
        assert_eq!(read.report.conditions(), [Condition::SMALL]);
        assert_eq!(read.report.rows[0].total_p50_low_us, None);
    }

    #[test]
    fn unknown_rows_of_a_newer_record_are_skipped_with_a_note() {
        let text = r#"{"version": 99, "machine": {}, "rows": [
            {"launcher": "next-year", "threads": 1, "fds": 3, "total_p50_us": 40.0, "novelty": [1]},
            {"launcher": "floor", "setting": "unheard-of", "total_p50_us": 40.0}, {"total_p50_us": 1.0}]}"#;
        let read = parse(text).expect("a record");
        assert_eq!(read.report.rows.len(), 1);
        assert_eq!(read.report.rows[0].launcher, "next-year");
        assert_eq!(read.notes.len(), 2, "{:?}", read.notes);
        for none in ["{}", "[]", r#"{"version": 2, "machine": {}, "rows": []}"#, "no JSON"] {
            assert!(parse(none).is_err(), "{none}");
        }
    }
}
