//! Measures published tables and graphs again, each beside the published figures, with the reason for differences.
//! [bench/background](../../../bench/background/README.md) describes how each is measured; `published.json` there has the published
//! figures and determines what is measured.

pub(crate) mod machine;
mod measure;
pub(crate) mod plot;
mod record;
mod tools;
mod turns;

use anyhow::{Context, Result, bail};
use record::Record;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tools::Tools;

/// What to measure, and where to write the record.
#[derive(clap::Args)]
pub struct Options {
    /// Make fewer and shorter turns: takes about a minute
    #[arg(long)]
    quick: bool,
    /// Measure only these: fastspawn, noshell, five, nagios, touched, growth, mapped, raku (default: all)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Write background.md, background.json, and a CSV and an SVG for each curve to DIR
    #[arg(long, value_name = "DIR", default_value = "target/background")]
    out: PathBuf,
}

/// The length and number of turns.
#[derive(Clone, Copy, PartialEq)]
enum Effort {
    Full,
    Quick,
    /// One or two launches of each, for tests.
    Smoke,
}

impl Effort {
    /// Selects one of three figures.
    fn of<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Effort::Full => full,
            Effort::Quick => quick,
            Effort::Smoke => smoke,
        }
    }

    /// The turns, and the time of each method in all of them.
    fn turns(self, turns: u32, time: Duration) -> turns::Plan {
        let turns = self.of(turns, 2, 1);
        turns::Plan { turns, each: self.of(time, time / 8, Duration::ZERO) / turns }
    }
}

/// Builds, measures, writes the record and prints its tables.
///
/// # Errors
/// If cc, rustc, cargo or a program fails, or a program prints something unexpected.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    println!("{}", record(effort, &options.only, &options.out, target)?.markdown());
    Ok(())
}

/// The same with one or two launches of each, for tests; checks the written files.
///
/// # Errors
/// As [`compare`], and if anything that can be measured has no figure.
pub fn smoke(out: &Path, target: &Path) -> Result<Vec<String>> {
    let record = record(Effort::Smoke, &[], out, target)?;
    record.check()?;
    Ok(record.skipped)
}

fn record(effort: Effort, only: &[String], out: &Path, target: &Path) -> Result<Record> {
    let mut record = Record::published()?;
    if let Some(unknown) = only.iter().find(|name| !record.names().contains(&name.as_str())) {
        bail!("unknown name {unknown}: use one of {}", record.names().join(", "));
    }
    if !only.is_empty() {
        record.tables.retain(|table| only.contains(&table.name));
        record.curves.retain(|curve| only.contains(&curve.name));
    }
    fs::create_dir_all(out).with_context(|| format!("{}", out.display()))?;
    let tools = Tools::build(&std::path::absolute(target)?.join("background"), target)?;
    record.machine = machine::look();
    record.quick = effort != Effort::Full;
    for table in &mut record.tables {
        let start = Instant::now();
        measure::table(table, &tools, effort, &mut record.skipped).with_context(|| table.name.clone())?;
        eprintln!("{}: measured in {:.0?}", table.name, start.elapsed());
    }
    for curve in &mut record.curves {
        let start = Instant::now();
        measure::curve(curve, &tools, effort, &mut record.skipped).with_context(|| curve.name.clone())?;
        eprintln!("{}: measured in {:.0?}", curve.name, start.elapsed());
    }
    record.write(out)?;
    for skipped in &record.skipped {
        println!("SKIPPED: {skipped}");
    }
    Ok(record)
}
