//! The record: published and measured figures as JSON and Markdown, and each curve as CSV.

use super::plot;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The curve that was published as two graphs, the second one without fork.
const CLONE_GRAPH: &str = "mapped";

/// The whole record. bench/FORMAT.md describes the fields, which a test checks.
#[derive(Deserialize, Serialize)]
pub(super) struct Record {
    #[serde(skip_deserializing)]
    version: u32,
    #[serde(skip_deserializing)]
    pub(super) quick: bool,
    #[serde(skip_deserializing)]
    pub(super) machine: BTreeMap<String, String>,
    pub(super) tables: Vec<Table>,
    pub(super) curves: Vec<Curve>,
    /// What was not measured, with the reason.
    #[serde(skip_deserializing)]
    pub(super) skipped: Vec<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub(super) name: String,
    title: String,
    source: String,
    measured: String,
    figures: Vec<String>,
    /// The index of the compared figure.
    pub(super) main: usize,
    pub(super) rows: Vec<Row>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) id: String,
    name: String,
    #[serde(default)]
    published: Vec<f64>,
    #[serde(skip_deserializing)]
    pub(super) here: Vec<f64>,
    /// The row to which the ratios refer.
    pub(super) beside: Option<String>,
    /// The published ratio of this row's figure to that of `beside`.
    #[serde(skip_deserializing)]
    times_published: Option<f64>,
    #[serde(skip_deserializing)]
    pub(super) times_here: Option<f64>,
    #[serde(skip_deserializing)]
    pub(super) launches: u64,
    reason: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) title: String,
    source: String,
    published: String,
    measured: String,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) lines: Vec<Line>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(skip_deserializing)]
    pub(super) points: Vec<(f64, f64)>,
    /// Resident memory of the launching process, at the beginning and at the end.
    #[serde(skip_deserializing)]
    pub(super) resident_kib: Option<(f64, f64)>,
    #[serde(skip_deserializing)]
    pub(super) launches: u64,
    reason: String,
}

impl Record {
    /// The published figures, without measured ones.
    pub(super) fn published() -> Result<Record> {
        let text = include_str!("../../../bench/background/published.json");
        let mut record: Record = serde_json::from_str(text).context("published.json")?;
        record.version = 1;
        for table in &mut record.tables {
            let main: BTreeMap<_, _> =
                table.rows.iter().map(|row| (row.id.clone(), row.published.get(table.main).copied())).collect();
            for row in &mut table.rows {
                let Some(beside) = &row.beside else { continue };
                let other = main.get(beside).with_context(|| format!("{}: no row {beside}", table.name))?;
                row.times_published = row.published.get(table.main).zip(*other).map(|(own, other)| own / other);
            }
        }
        Ok(record)
    }

    /// Names of tables and curves.
    pub(super) fn names(&self) -> Vec<&str> {
        let tables = self.tables.iter().map(|table| table.name.as_str());
        tables.chain(self.curves.iter().map(|curve| curve.name.as_str())).collect()
    }

    /// Checks that everything has figures, except what was skipped.
    pub(super) fn check(&self) -> Result<()> {
        let excused = |name: &str, is_ours: bool| {
            self.skipped.iter().any(|why| {
                why.starts_with(&format!("{name}, ")) || why.starts_with(name) && is_ours && why.contains("rows")
            })
        };
        for table in &self.tables {
            for row in &table.rows {
                let partly = row.id.contains("/forkless") || row.id.starts_with("Perl/");
                let is_whole = row.here.len() == table.figures.len() && row.here[table.main] > 0.0 && row.launches > 0;
                if !is_whole && !excused(&table.name, partly) {
                    bail!("{}: {}: {:?} of {} launches", table.name, row.id, row.here, row.launches);
                }
            }
        }
        for curve in &self.curves {
            for line in &curve.lines {
                let is_whole = line.points.len() > 1 && line.points.iter().all(|(_, y)| *y > 0.0) && line.launches > 0;
                if !is_whole && !excused(&curve.name, false) {
                    bail!("{}: {}: {:?}", curve.name, line.id, line.points);
                }
            }
        }
        Ok(())
    }

    /// Writes all files.
    pub(super) fn write(&self, out: &Path) -> Result<()> {
        let save = |name: String, text: String| {
            let path = out.join(name);
            fs::write(&path, text).with_context(|| format!("{}", path.display()))
        };
        save("background.json".into(), crate::json::lines(self)?)?;
        save("background.md".into(), self.markdown())?;
        for curve in self.curves.iter().filter(|curve| curve.lines.iter().any(|line| line.points.len() > 1)) {
            save(format!("{}.svg", curve.name), plot::svg(curve, false))?;
            if curve.name == CLONE_GRAPH {
                save(format!("{}-flat.svg", curve.name), plot::svg(curve, true))?;
            }
        }
        Ok(())
    }

    /// The tables as Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from("# The background's tables and graphs, measured again\n\n");
        let machine: Vec<_> = self.machine.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let _ = writeln!(text, "{}", machine.join("; "));
        if self.quick {
            text += "\nA quick run: few launches, so take no figure from it.\n";
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "\nNot measured: {skipped}.");
        }
        self.tables.iter().for_each(|table| table.markdown(&mut text));
        self.curves.iter().for_each(|curve| curve.markdown(&mut text));
        text
    }
}

impl Table {
    fn markdown(&self, text: &mut String) {
        let figures = self.figures.join(" / ");
        let _ = writeln!(text, "\n## {}\n\nPublished: {}. {}\n", self.title, self.source, self.measured);
        let _ = writeln!(
            text,
            "| way | published: {figures} | × | here: {figures} | × | here / published | launches | why |"
        );
        text.push_str("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
        for row in &self.rows {
            let times = |times: Option<f64>| times.map_or(String::new(), |times| format!("{times:.2}"));
            let both = row.here.get(self.main).zip(row.published.get(self.main)).map(|(here, there)| here / there);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                cell(&row.name),
                joined(&row.published),
                times(row.times_published),
                joined(&row.here),
                times(row.times_here),
                times(both),
                row.launches,
                row.reason
            );
        }
        let mut names: Vec<_> = self.rows.iter().filter_map(|row| row.beside.clone()).collect();
        names.dedup();
        let name = |id: &String| self.rows.iter().find(|row| row.id == *id).map_or("", |row| row.name.as_str());
        let names: Vec<_> = names.iter().map(|id| format!("“{}”", name(id))).collect();
        let _ = writeln!(text, "\n×: how many times {} it is, by {}.", names.join(" or "), self.figures[self.main]);
    }
}

impl Curve {
    fn markdown(&self, text: &mut String) {
        let _ = writeln!(text, "\n## {}\n\nSource: {}. {}\n", self.title, self.source, self.measured);
        let _ = writeln!(text, "Published: {}\n", self.published);
        let (x, y) = (&self.x, &self.y);
        let _ = writeln!(
            text,
            "| line | {y} at first | {y} at last | × | {y} per 100 {x} | resident MiB | launches | why |"
        );
        text.push_str("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
        for line in &self.lines {
            let (Some(first), Some(last)) = (line.points.first(), line.points.last()) else {
                let _ = writeln!(text, "| {} | | | | | | | {} |", cell(&line.name), line.reason);
                continue;
            };
            let resident = line
                .resident_kib
                .map_or(String::new(), |(before, after)| format!("{:.0} → {:.0}", before / 1024.0, after / 1024.0));
            let _ = writeln!(
                text,
                "| {} | {:.1} | {:.1} | {:.2} | {:.2} | {resident} | {} | {} |",
                cell(&line.name),
                first.1,
                last.1,
                last.1 / first.1,
                slope(&line.points) * 100.0,
                line.launches,
                line.reason
            );
        }
        if self.lines.iter().any(|line| line.points.len() > 1) {
            let _ = writeln!(text, "\n![{}]({}.svg)", self.title, self.name);
            if self.name == CLONE_GRAPH {
                let _ = writeln!(text, "\n![The same without fork]({}-flat.svg)", self.name);
            }
        }
    }
}

/// Text for a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn joined(figures: &[f64]) -> String {
    let short = |figure: &f64| if *figure < 100.0 { format!("{figure:.1}") } else { format!("{figure:.0}") };
    figures.iter().map(short).collect::<Vec<_>>().join(" / ")
}

/// The slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
    let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let below: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if below == 0.0 { 0.0 } else { above / below }
}

#[cfg(test)]
mod tests {
    use super::{Record, slope};
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn slope_is_that_of_the_least_squares_line() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 2.0);
        assert_eq!(slope(&[(1.0, 1.0)]), 0.0);
    }

    #[test]
    fn published_figures_are_complete() {
        let record = Record::published().expect("the file");
        let noshell = record.tables.iter().find(|table| table.name == "noshell").expect("the table");
        assert_eq!(noshell.rows.iter().filter(|row| row.published.len() == 3).count(), 11);
        let popen = noshell.rows.iter().find(|row| row.id == "popen").expect("the row");
        assert_eq!(popen.times_published.map(|times| (times * 100.0).round()), Some(1306.0));
        for table in &record.tables {
            for row in &table.rows {
                assert!(row.published.is_empty() || row.published.len() == table.figures.len(), "{}", row.id);
                assert!(!row.reason.is_empty() && !row.reason.contains(['|', '\n']), "{}", row.id);
            }
        }
    }

    #[test]
    fn format_page_describes_every_field() {
        let format = include_str!("../../../bench/FORMAT.md");
        let part = format.split("\n## ").find(|part| part.starts_with("background.json")).expect("a section");
        let names = |part: &str| -> BTreeSet<String> {
            part.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
        };
        let parts: Vec<&str> = part.split("\nEach of ").collect();
        let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
        let with = |part: &str, shared: &[&str]| &names(part) | &shared.iter().map(|name| (*name).to_owned()).collect();
        let record = serde_json::to_value(Record::published().expect("the file")).expect("JSON");
        let [table, curve] = ["tables", "curves"].map(|list| &record[list][0]);
        assert_eq!(parts.len(), 5);
        assert_eq!(keys(&record), names(parts[0]));
        assert_eq!(keys(table), names(parts[1]));
        assert_eq!(keys(&table["rows"][0]), names(parts[2]));
        assert_eq!(keys(curve), with(parts[3], &["name", "title", "source", "measured"]));
        assert_eq!(keys(&curve["lines"][0]), with(parts[4], &["id", "name", "launches", "reason"]));
    }

    #[test]
    fn row_without_figures_is_an_error_unless_skipped() {
        let mut record = Record::published().expect("the file");
        assert!(record.check().is_err());
        record.tables.retain(|table| table.name == "fastspawn");
        record.curves.clear();
        record.skipped.push("fastspawn's rows of Forkless, because of nothing".into());
        assert!(record.check().is_err());
        record.skipped.push("fastspawn, because of nothing".into());
        assert!(record.check().is_ok());
    }
}
