//! The tables and graphs of others, measured again: each beside the figures that its author published, with the reason for what differs.
//! [bench/background](../../../bench/background/README.md) says how each is measured; what was published is in `published.json`
//! there, and this measures what that asks for.

mod machine;
mod measure;
mod plot;
mod record;
mod tools;
mod turns;

use anyhow::{Context, Result, bail};
use record::Record;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tools::Tools;

/// What is measured, and where the record goes.
#[derive(clap::Args)]
pub struct Options {
    /// Shorter turns and fewer of them: about a minute.
    #[arg(long)]
    quick: bool,
    /// Only these: fastspawn, noshell, five, nagios, growth, mapped, raku.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Where background.md, background.json, and a CSV and an SVG for each curve are written.
    #[arg(long, value_name = "DIR", default_value = "target/background")]
    out: PathBuf,
}

/// How long, and how often.
#[derive(Clone, Copy, PartialEq)]
enum Effort {
    Full,
    Quick,
    /// Everything once or twice, for tests.
    Smoke,
}

impl Effort {
    /// Of three figures that which applies.
    fn of<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Effort::Full => full,
            Effort::Quick => quick,
            Effort::Smoke => smoke,
        }
    }

    /// Turns, and how much time each way has in all of them.
    fn turns(self, turns: u32, time: Duration) -> turns::Plan {
        let turns = self.of(turns, 2, 1);
        turns::Plan { turns, each: self.of(time, time / 8, Duration::ZERO) / turns }
    }
}

/// Builds, measures, writes the record, prints its tables.
///
/// # Errors
/// What cc, rustc, cargo and the programs say, or a wrong answer of theirs.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    println!("{}", record(effort, &options.only, &options.out, target)?.markdown());
    Ok(())
}

/// The same with a launch or two of each, for tests: what it wrote is checked, not returned.
///
/// # Errors
/// As [`compare`], and where something that could be measured has no figure.
pub fn smoke(out: &Path, target: &Path) -> Result<Vec<String>> {
    let record = record(Effort::Smoke, &[], out, target)?;
    record.check()?;
    Ok(record.skipped)
}

fn record(effort: Effort, only: &[String], out: &Path, target: &Path) -> Result<Record> {
    let mut record = Record::published()?;
    if let Some(unknown) = only.iter().find(|name| !record.names().contains(&name.as_str())) {
        bail!("{unknown}: there are {}", record.names().join(", "));
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
