//! The figures of a run as tables, as JSON and as a picture.

use super::parents::{self, Parent, Run};
use super::{Situation, picture};
use crate::background::machine;
use crate::runners::percentile;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// One parent in one situation.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) situation: Situation,
    pub(super) parent: &'static str,
    pub(super) stock: &'static str,
    pub(super) is_ours: bool,
    /// Milliseconds of each call, by tool.
    calls_ms: BTreeMap<String, Vec<f64>>,
    /// The longest stop of each round.
    stops_ms: Vec<f64>,
    /// CPU time per call of each round: of the parent, and of its children.
    own_us: Vec<f64>,
    children_us: Vec<f64>,
}

impl Row {
    pub(super) fn new(situation: Situation, parent: &Parent) -> Row {
        let (calls_ms, stops_ms, own_us, children_us) = Default::default();
        let (is_ours, stock) = (parent.is_ours(), parent.stock);
        Row { situation, parent: parent.name, stock, is_ours, calls_ms, stops_ms, own_us, children_us }
    }

    pub(super) fn add(&mut self, run: Run) {
        let count = run.calls.len() as f64;
        for (tool, ns) in run.calls {
            self.calls_ms.entry(tool).or_default().push(ns / 1e6);
        }
        self.stops_ms.push(run.stop_ns / 1e6);
        self.own_us.push(run.own_us / count);
        self.children_us.push(run.children_us / count);
    }

    /// The number of calls.
    fn count(&self) -> usize {
        self.calls_ms.values().map(Vec::len).sum()
    }

    /// A percentile of all calls.
    fn call_ms(&self, percent: usize) -> f64 {
        percentile(self.calls_ms.values().flatten().copied().collect(), percent)
    }

    fn tool_ms(&self, tool: &str) -> f64 {
        percentile(self.calls_ms.get(tool).cloned().unwrap_or_default(), 50)
    }

    /// The longest stop of the loop: the median of the rounds.
    pub(super) fn stop_ms(&self) -> f64 {
        percentile(self.stops_ms.clone(), 50)
    }

    fn longest_stop_ms(&self) -> f64 {
        self.stops_ms.iter().copied().fold(0.0, f64::max)
    }

    pub(super) fn own_us(&self) -> f64 {
        percentile(self.own_us.clone(), 50)
    }

    fn children_us(&self) -> f64 {
        percentile(self.children_us.clone(), 50)
    }
}

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Record {
    version: u32,
    machine: BTreeMap<String, String>,
    versions: Vec<(String, String)>,
    cycles: usize,
    pub(super) rounds: usize,
    pub(super) rows: Vec<Row>,
    pub(super) skipped: Vec<String>,
}

impl Record {
    pub(super) fn new(cycles: usize) -> Record {
        let (machine, versions) = (machine::look(), parents::versions());
        Record { version: 1, machine, versions, cycles, rounds: 0, rows: Vec::new(), skipped: Vec::new() }
    }

    /// Notes and prints that something is not measured.
    pub(super) fn skip(&mut self, what: String) {
        println!("SKIPPED: {what}");
        self.skipped.push(what);
    }

    fn situations(&self) -> Vec<Situation> {
        let mut all: Vec<Situation> = self.rows.iter().map(|row| row.situation).collect();
        all.dedup();
        all
    }

    /// The tables.
    pub(super) fn markdown(&self) -> String {
        let about: Vec<String> = self.machine.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let versions: Vec<String> = self.versions.iter().map(|(name, version)| format!("{name}: {version}")).collect();
        let mut text = format!(
            "# Tool calls\n\nWritten by `cargo xtask tools`; [how](../../METHODOLOGY.md#tool-calls).\n\n{}.\n\n{}.\n\n\
             Rounds: {}; in each, every parent made each call {} times. Times in milliseconds; CPU time per call in \
             microseconds. p99: of {ENOUGH} calls or more. The stop is the longest of a round: median and maximum of the rounds. The ratios are to the \
             stock method of the same language.\n",
            about.join(", "),
            versions.join(", "),
            self.rounds,
            self.cycles
        );
        for situation in self.situations() {
            let _ = write!(text, "\n## {}\n\n{ROWS}", situation.words());
            for row in self.rows.iter().filter(|row| row.situation == situation) {
                let is_stock = |stock: &&Row| stock.situation == situation && stock.parent == row.stock;
                text.push_str(&row.line(self.rows.iter().find(is_stock).filter(|_| row.is_ours)));
            }
        }
        self.tools(&mut text);
        if !self.skipped.is_empty() {
            text.push_str("\n## Not measured\n\n");
        }
        self.skipped.iter().for_each(|line| _ = writeln!(text, "- {line}"));
        text
    }

    /// The median of each tool, one call at a time.
    fn tools(&self, text: &mut String) {
        let single = self.situations().into_iter().filter(|situation| situation.slots == 1);
        let Some(situation) = single.max_by_key(|one| (one.mebibytes, std::cmp::Reverse(one.descriptors))) else {
            return;
        };
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.situation == situation).collect();
        let Some(names) = rows.first().map(|row| row.calls_ms.keys()) else { return };
        let names: Vec<&String> = names.collect();
        let titles: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let columns = " --: |".repeat(names.len());
        let _ = write!(
            text,
            "\n## Each tool\n\nMedian of a call in milliseconds: {}.\n\n| parent | {} |\n| --- |{columns}\n",
            situation.words(),
            titles.join(" | ")
        );
        for row in rows {
            let times: Vec<String> = names.iter().map(|name| format!("{:.2}", row.tool_ms(name))).collect();
            let _ = writeln!(text, "| {} | {} |", row.parent, times.join(" | "));
        }
    }

    /// Writes `tools.md`, `tools.json` and `tools.svg`.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(super) fn write(&self, out: &Path) -> Result<()> {
        fs::create_dir_all(out).with_context(|| format!("{}", out.display()))?;
        fs::write(out.join("tools.md"), self.markdown())?;
        fs::write(out.join("tools.json"), crate::json::lines(self)?)?;
        fs::write(out.join("tools.svg"), picture::svg(&self.rows))?;
        Ok(())
    }
}

/// So many calls make a 99th percentile.
const ENOUGH: usize = 100;

const ROWS: &str = "\
| parent | call p50 | × | p99 | × | longest stop | × | max | CPU of the parent µs | × | of the tool µs |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |
";

impl Row {
    fn line(&self, stock: Option<&Row>) -> String {
        let ratio = |of: &dyn Fn(&Row) -> f64| match stock.map(of) {
            Some(stock) if stock > 0.0 => format!("{:.2}", of(self) / stock),
            _ => "–".to_owned(),
        };
        let (p50, p99) = (|row: &Row| row.call_ms(50), |row: &Row| row.call_ms(99));
        // Of fewer calls it would be the longest one.
        let has_p99 = self.count() >= ENOUGH;
        let [tail, tail_ratio] =
            if has_p99 { [format!("{:.1}", p99(self)), ratio(&p99)] } else { ["–"; 2].map(str::to_owned) };
        format!(
            "| {} | {:.2} | {} | {} | {} | {:.1} | {} | {:.1} | {:.0} | {} | {:.0} |\n",
            self.parent,
            p50(self),
            ratio(&p50),
            tail,
            tail_ratio,
            self.stop_ms(),
            ratio(&Row::stop_ms),
            self.longest_stop_ms(),
            self.own_us(),
            ratio(&Row::own_us),
            self.children_us(),
        )
    }
}
