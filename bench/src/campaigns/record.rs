//! The tables of a campaign, as Markdown and as JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::Result;
use serde::Serialize;

use super::race::{CampaignContestant, median, percentile};
use crate::machine::Machine;

/// Everything that was measured. `bench/FORMAT.md` describes the fields.
#[derive(Serialize)]
pub(super) struct Record {
    version: u32,
    campaign: &'static str,
    machine: Machine,
    /// More about the measurement, such as versions of the contestants.
    pub(super) about: Vec<(String, String)>,
    /// What was not measured, and why.
    skipped: Vec<String>,
    pub(super) tables: Vec<Table>,
}

/// Some contestants with their figures.
#[derive(Serialize)]
pub(super) struct Table {
    title: String,
    /// What is measured, and how.
    about: String,
    figures: Vec<Figure>,
    pub(super) rows: Vec<CampaignRow>,
}

/// A column: its name with the unit, and what is shown of it.
#[derive(Clone, Serialize)]
pub(super) struct Figure {
    name: String,
    #[serde(skip)]
    at: usize,
    #[serde(skip)]
    shown: Shown,
}

/// What is shown of a figure beside its median.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Median,
    /// The ratio to the contestant beside it.
    Ratio,
    /// The 99th percentile too.
    Tail,
}

impl Figure {
    fn new(at: usize, name: &str, shown: Shown) -> Self {
        Self { name: name.to_owned(), at, shown }
    }

    /// The figure at this index of a round, as a median.
    pub(super) fn plain(at: usize, name: &str) -> Self {
        Self::new(at, name, Shown::Median)
    }

    /// With the ratio to the contestant beside it.
    pub(super) fn ratio(at: usize, name: &str) -> Self {
        Self::new(at, name, Shown::Ratio)
    }

    /// With the ratio and the 99th percentile.
    pub(super) fn tail(at: usize, name: &str) -> Self {
        Self::new(at, name, Shown::Tail)
    }
}

/// One contestant.
#[derive(Serialize)]
pub(super) struct CampaignRow {
    pub(super) name: String,
    beside: Option<String>,
    /// Rounds that count, and what has failed in others.
    rounds: usize,
    failures: BTreeMap<String, usize>,
    /// For each figure.
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// The median divided by that of the contestant beside it.
    ratio: Vec<Option<f64>>,
    /// Published figures, if the table was published somewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) published: Vec<f64>,
    /// Of a curve: x and y.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) points: Vec<(f64, f64)>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
}

impl Table {
    /// The figures of the contestants that have any.
    pub(super) fn new(
        title: impl Into<String>,
        about: impl Into<String>,
        figures: &[Figure],
        all: &[CampaignContestant<'_>],
    ) -> Self {
        let row = |one: &CampaignContestant<'_>| {
            let of = |percent| -> Vec<f64> {
                figures.iter().map(|figure| percentile(one.figures(figure.at), percent)).collect()
            };
            let beside = all.iter().find(|other| Some(&other.name) == one.beside.as_ref() && !other.rounds.is_empty());
            let by = |figure: &Figure| beside.map(|beside| median(beside.figures(figure.at)));
            let p50 = of(50);
            let mut failures = BTreeMap::new();
            one.failures.iter().for_each(|failure| *failures.entry(failure.clone()).or_insert(0) += 1);
            CampaignRow {
                name: one.name.clone(),
                beside: one.beside.clone(),
                rounds: one.rounds.len(),
                failures,
                ratio: figures
                    .iter()
                    .zip(&p50)
                    .map(|(figure, own)| Some(own / by(figure)?).filter(|it| it.is_finite()))
                    .collect(),
                p99: of(99),
                p50,
                published: Vec::new(),
                points: Vec::new(),
                note: String::new(),
            }
        };
        let rows = all.iter().filter(|one| !one.rounds.is_empty() || !one.failures.is_empty()).map(row).collect();
        Self { title: title.into(), about: about.into(), figures: figures.to_vec(), rows }
    }

    fn markdown(&self, text: &mut String) {
        let is_published = self.rows.iter().any(|row| !row.published.is_empty());
        let has = |of: fn(&CampaignRow) -> bool| self.rows.iter().any(of);
        let (has_notes, has_failures) = (has(|row| !row.note.is_empty()), has(|row| !row.failures.is_empty()));
        let mut heads = vec![String::new()];
        if is_published {
            heads.push(format!("published: {}", self.names()));
        }
        for figure in &self.figures {
            heads.push(figure.name.clone());
            heads.extend((figure.shown == Shown::Tail).then(|| "p99".to_owned()));
            heads.extend((figure.shown != Shown::Median).then(|| "×".to_owned()));
        }
        heads.extend(has_failures.then(|| "failed".to_owned()));
        heads.extend(has_notes.then(|| "why".to_owned()));
        let _ = write!(text, "\n## {}\n\n{}\n\n| {} |\n", self.title, self.about, heads.join(" | "));
        let sides = heads.iter().enumerate().map(|(at, head)| if at == 0 || head == "why" { "---" } else { "--:" });
        let _ = writeln!(text, "| {} |", sides.collect::<Vec<_>>().join(" | "));
        for row in &self.rows {
            let mut cells = vec![row.name.replace('|', "\\|")];
            if is_published {
                cells.push(row.published.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" / "));
            }
            for (at, figure) in self.figures.iter().enumerate() {
                cells.push(short(row.p50[at]));
                cells.extend((figure.shown == Shown::Tail).then(|| short(row.p99[at])));
                let ratio = row.ratio[at].map_or_else(String::new, |ratio| format!("{ratio:.2}"));
                cells.extend((figure.shown != Shown::Median).then_some(ratio));
            }
            let failures = row.failures.iter().map(|(what, times)| format!("{times} × {what}"));
            cells.extend(has_failures.then(|| failures.collect::<Vec<_>>().join(", ").replace('|', "\\|")));
            cells.extend(has_notes.then(|| row.note.clone()));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }

    fn names(&self) -> String {
        self.figures.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>().join(" / ")
    }
}

impl Record {
    pub(super) fn new(campaign: &'static str) -> Self {
        let (about, skipped, tables) = Default::default();
        Self { version: 1, campaign, machine: Machine::read(), about, skipped, tables }
    }

    /// Prints and notes that something is not measured.
    pub(super) fn skip(&mut self, what: impl Into<String>) {
        let what = what.into();
        eprintln!("SKIPPED: {what}");
        self.skipped.push(what);
    }

    pub(super) fn markdown(&self) -> String {
        let campaign = self.campaign;
        let mut text = format!(
            "# {campaign}\n\nWritten by `forkless bench {campaign}`. {}, {}.\n",
            self.machine.describe_computer(),
            self.machine.date
        );
        self.about.iter().for_each(|(name, value)| _ = writeln!(text, "\n{name}: {value}"));
        text += "\nMedians over the rounds; ×: divided by the median of the row that the text above the table names.\n";
        self.tables.iter().for_each(|table| table.markdown(&mut text));
        if !self.skipped.is_empty() {
            text += "\n## Not measured\n\n";
            self.skipped.iter().for_each(|what| _ = writeln!(text, "- {what}"));
        }
        text
    }

    pub(super) fn json(&self) -> Result<String> {
        crate::record::compact(self)
    }
}

/// Three digits, or all before the point.
fn short(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".to_owned(),
        0.0 => "0".to_owned(),
        size if size < 1.0 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => crate::units::thousands(value.round().max(0.0) as u64),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use crate::campaigns::race::race;

    #[test]
    fn rows_have_medians_ratios_and_what_failed() {
        let mut times = [100.0, 300.0, 200.0].into_iter();
        let mut all = [
            CampaignContestant::new("a", move || Ok(vec![times.next().unwrap_or(0.0), 7.0])),
            CampaignContestant::new("b", || Ok(vec![50.0, 7.0])).beside("a"),
            CampaignContestant::new("c", || bail!("lost one")).peer(true).beside("a"),
        ];
        race("three", 3, &mut all).expect("a peer may fail");
        let figures = [Figure::tail(0, "µs"), Figure::plain(1, "faults")];
        let mut table = Table::new("Title", "Beside a.", &figures, &all);
        table.rows[1].published = vec![40.0, 6.0];
        let mut text = String::new();
        table.markdown(&mut text);
        let wanted = "\n## Title\n\nBeside a.\n\n|  | published: µs / faults | µs | p99 | × | faults | failed |\n\
                      | --- | --: | --: | --: | --: | --: | --: |\n\
                      | a |  | 200 | 300 |  | 7.00 |  |\n| b | 40.0 / 6.00 | 50.0 | 50.0 | 0.25 | 7.00 |  |\n\
                      | c |  | – | – |  | – | 3 × lost one |\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.0, 0.1234, 1.234, 12.34, 1234.5].map(short), ["0", "0.123", "1.23", "12.3", "1,235"]);
    }
}
