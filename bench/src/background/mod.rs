//! The background: published tables and graphs that `forkless bench background` has measured again. Read from its record and shown on
//! the page beside the published figures. `bench/FORMAT.md` describes every field.

mod curves;
mod section;

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

pub(super) use section::section;

/// The newest version of the format that this program knows.
const VERSION: u32 = 1;

/// The record. Unknown fields are skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Background {
    version: u32,
    quick: bool,
    machine: BTreeMap<String, String>,
    tables: Vec<Table>,
    curves: Vec<Curve>,
    skipped: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Table {
    name: String,
    title: String,
    source: String,
    measured: String,
    figures: Vec<String>,
    /// The index of the compared figure.
    main: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    id: String,
    name: String,
    published: Vec<f64>,
    here: Vec<f64>,
    /// The row to which the ratios refer.
    beside: Option<String>,
    times_published: Option<f64>,
    times_here: Option<f64>,
    launches: u64,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Curve {
    name: String,
    title: String,
    source: String,
    published: String,
    measured: String,
    x: String,
    y: String,
    lines: Vec<Line>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    id: String,
    name: String,
    points: Vec<(f64, f64)>,
    /// Resident memory of the launching process, at the beginning and at the end.
    resident_kib: Option<(f64, f64)>,
    launches: u64,
    reason: String,
}

/// Reads a record, which may be given by its directory.
///
/// # Errors
/// If it is not a record.
pub(crate) fn read(place: &Path) -> Result<Background> {
    let path = if place.is_dir() { place.join("background.json") } else { place.to_owned() };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not a record of forkless bench background", path.display()))
}

/// Reads the record in a directory, if there is one.
///
/// # Errors
/// If the file is not a record.
pub(crate) fn found_in(directory: &Path) -> Result<Option<Background>> {
    let path = directory.join("background.json");
    if path.exists() { read(&path).map(Some) } else { Ok(None) }
}

fn parse(text: &str) -> Result<Background> {
    let found: Background = serde_json::from_str(text)?;
    ensure!(found.version > 0, "it has no version");
    ensure!(!found.tables.is_empty() || !found.curves.is_empty(), "it has no tables and no curves");
    Ok(found)
}

impl Background {
    /// Notes about the reliability and completeness of the record.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.version > VERSION {
            notes.push(format!(
                "The record has version {}, which is newer than this program: some of it may be missing here.",
                self.version
            ));
        }
        if self.quick {
            notes.push("A quick run with few launches: do not use its figures.".to_owned());
        }
        notes.extend(self.skipped.iter().map(|skipped| format!("Not measured: {skipped}.")));
        notes
    }
}

impl Line {
    fn is_ours(&self) -> bool {
        is_ours(&self.name)
    }

    /// The slope of the least-squares line.
    fn slope(&self) -> f64 {
        let n = self.points.len() as f64;
        let (x, y) = self.points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
        let above: f64 = self.points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let below: f64 = self.points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if below == 0.0 { 0.0 } else { above / below }
    }
}

/// Is it a method of forkless, by its name?
fn is_ours(name: &str) -> bool {
    name.to_lowercase().contains("forkless")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tables and a curve, as small as they may be.
    pub(super) const SMALL: &str = r#"{"version": 1, "quick": true, "machine": {"cpu": "a <fast> one"}, "novelty": 3,
        "tables": [{"name": "five", "title": "Five ways", "source": "a text", "measured": "Microseconds.",
            "figures": ["user s", "total s"], "main": 1, "rows": [
            {"id": "vfork", "name": "vfork", "published": [1.0, 2.0], "here": [1.5, 3.0], "launches": 1234, "reason": "The machine's speed."},
            {"id": "fork", "name": "fork & exec", "published": [4.0, 5.0], "here": [3000.0, 3000.5], "beside": "vfork",
             "times_published": 2.5, "times_here": 1000.1666, "launches": 9, "reason": "It copies."},
            {"id": "forkless", "name": "forkless", "here": [], "beside": "vfork", "reason": "Not measured here."}]}],
        "curves": [{"name": "mapped", "title": "By memory", "source": "a text", "published": "It grows.", "measured": "Until reaped.",
            "x": "MiB", "y": "µs", "lines": [
            {"id": "fork touched", "name": "fork, touched", "points": [[0, 100.5], [100, 1300.25], [200, 2500]], "launches": 30, "reason": "Copies."},
            {"id": "vfork", "name": "vfork", "points": [[0, 100], [200, 101]], "resident_kib": [1024, 204800], "launches": 20, "reason": "Copies nothing."},
            {"id": "forkless", "name": "forkless, status", "points": [[0, 90], [100, 91], [200, 90]], "launches": 30, "reason": "Nor does this."},
            {"id": "absent", "name": "absent", "reason": "There is none."}]}],
        "skipped": ["perl's rows, because there is no perl"]}"#;

    #[test]
    fn record_is_read_and_other_files_are_errors() {
        let small = parse(SMALL).expect("a record");
        assert_eq!((small.tables[0].rows.len(), small.curves[0].lines[0].points[1]), (3, (100.0, 1300.25)));
        assert_eq!(small.notes().len(), 2, "quick, and without perl");
        assert_eq!(small.curves[0].lines[0].slope(), 11.9975);
        assert_eq!(small.curves[0].lines[3].slope(), 0.0, "of no points");
        let newer = SMALL.replace("\"version\": 1", "\"version\": 9");
        assert_eq!(parse(&newer).expect("a record").notes().len(), 3);
        for none in ["no JSON", "{}", r#"{"version": 1}"#, r#"{"version": 1, "tables": 7}"#] {
            assert!(parse(none).is_err(), "{none}");
        }
    }

    #[test]
    fn committed_record_is_complete() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("record/2026-11-21-background");
        let found = found_in(&place).expect("a record").expect("it is there");
        assert_eq!((found.tables.len(), found.curves.len()), (4, 3));
        assert!(found.tables.iter().flat_map(|table| &table.rows).all(|row| !row.here.is_empty()));
        assert!(found.curves.iter().flat_map(|curve| &curve.lines).all(|line| line.points.len() > 1));
        assert!(found_in(place.parent().expect("a parent")).expect("nothing").is_none());
    }
}
