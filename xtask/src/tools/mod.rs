//! Measures the tool calls of an agent, in turn: [bench/METHODOLOGY.md](../../../bench/METHODOLOGY.md#tool-calls) says how.

mod parents;
mod picture;
mod record;
mod tree;

pub use parents::Built;

use crate::dist;
use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parents::{Parent, Run};
use record::{Record, Row};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tree::Tree;

/// What to measure, and where to write the record.
#[derive(clap::Args)]
pub struct Options {
    /// Make one round with fewer calls: at most three minutes
    #[arg(long)]
    quick: bool,
    /// Measure all twelve situations instead of six: half an hour
    #[arg(long, conflicts_with = "quick")]
    all: bool,
    /// Write the record to bench/record/DATE-tools
    #[arg(long, conflicts_with = "out")]
    record: bool,
    /// Write tools.md, tools.json and tools.svg to DIR
    #[arg(long, value_name = "DIR", default_value = "target/tools/record")]
    out: PathBuf,
}

/// The parent's size, and how many calls it makes at once.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct Situation {
    mebibytes: usize,
    descriptors: usize,
    slots: usize,
}

impl Situation {
    fn words(self) -> String {
        let memory = if self.mebibytes < 1024 {
            format!("{} MiB", self.mebibytes)
        } else {
            format!("{} GiB", self.mebibytes / 1024)
        };
        let at_once =
            if self.slots == 1 { "1 call at a time".to_owned() } else { format!("{} calls at once", self.slots) };
        format!("{memory}, {} descriptors, {at_once}", self.descriptors)
    }
}

/// How much to measure.
struct Effort {
    situations: Vec<Situation>,
    /// How often a parent makes each call.
    cycles: usize,
    rounds: usize,
    /// No round is begun after this time.
    time: Duration,
}

impl Effort {
    fn of(options: &Options) -> Effort {
        let of = |(mebibytes, descriptors, slots)| Situation { mebibytes, descriptors, slots };
        if options.all {
            let slots = |n| [1, 16].map(|slots| (n, slots));
            let descriptors = |(n, slots)| [50, 5000].map(|descriptors| of((n, descriptors, slots)));
            let situations = [100, 1024, 4096].into_iter().flat_map(slots).flat_map(descriptors).collect();
            return Effort { situations, cycles: 5, rounds: 9, time: Duration::from_secs(1700) };
        }
        let mut situations: Vec<_> =
            [(100, 50, 1), (1024, 50, 1), (1024, 5000, 1), (1024, 50, 16), (4096, 50, 1), (4096, 5000, 16)]
                .map(of)
                .into();
        if options.quick {
            situations.pop();
            return Effort { situations, cycles: 3, rounds: 1, time: Duration::from_secs(120) };
        }
        // Three rounds are enough for a 99th percentile. The build takes a minute or two.
        Effort { situations, cycles: 5, rounds: 9, time: Duration::from_secs(560) }
    }
}

/// Builds, measures, writes the record and prints its tables.
///
/// # Errors
/// If cargo fails, or a call fails or has another output than with the other parents.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let place = std::path::absolute(target)?.join("tools");
    let built = Built::release(&place, target)?;
    let out = if options.record {
        let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
        dist::root().join(format!("bench/record/{}-tools", String::from_utf8(date.stdout)?.trim()))
    } else {
        options.out.clone()
    };
    let record = measure(&Effort::of(options), &place, &built)?;
    record.write(&out)?;
    println!("{}", record.markdown());
    Ok(())
}

/// The same with few calls from small parents, for tests. Returns what cannot be measured here.
///
/// # Errors
/// As [`compare`].
pub fn smoke(built: &Built, out: &Path, place: &Path) -> Result<Vec<String>> {
    let situations = [1, 3].map(|slots| Situation { mebibytes: 16, descriptors: 20, slots }).into();
    let effort = Effort { situations, cycles: 1, rounds: 1, time: Duration::from_secs(60) };
    let record = measure(&effort, place, built)?;
    record.write(out)?;
    Ok(record.skipped)
}

fn measure(effort: &Effort, place: &Path, built: &Built) -> Result<Record> {
    fs::create_dir_all(place).with_context(|| format!("{}", place.display()))?;
    let place = fs::canonicalize(place)?;
    let mut record = Record::new(effort.cycles);
    let tree = Tree::make(&place)?;
    tree.lacking.iter().for_each(|why| record.skip(why.clone()));
    let (parents, lacking) = parents::find(built, &place)?;
    lacking.into_iter().for_each(|why| record.skip(why));
    let limit = raise_descriptors()?;
    let room = memory();
    let begun = Instant::now();
    for situation in &effort.situations {
        if situation.descriptors as u64 + 300 > limit {
            record.skip(format!("{} because of the limit of {limit} descriptors", situation.words()));
        } else if situation.mebibytes as u64 * 3 / 2 > room {
            record.skip(format!("{} because of the memory of this machine", situation.words()));
        } else {
            record.rows.extend(parents.iter().map(|parent| Row::new(*situation, parent)));
        }
    }
    for round in 0..effort.rounds {
        if round > 0 && begun.elapsed().mul_f64(1.0 + 1.0 / round as f64) > effort.time {
            break;
        }
        for situation in &effort.situations {
            eprintln!("round {} of {}: {}", round + 1, effort.rounds, situation.words());
            turn(round, *situation, effort, &parents, &tree, &mut record)?;
        }
        record.rounds = round + 1;
    }
    Ok(record)
}

/// All parents once. None always follows the same one, nor is always first.
fn turn(
    round: usize,
    situation: Situation,
    effort: &Effort,
    parents: &[Parent],
    tree: &Tree,
    record: &mut Record,
) -> Result<()> {
    let mut order: Vec<usize> = (0..parents.len()).collect();
    order.rotate_left(round % parents.len());
    if round % 2 == 1 {
        order.reverse();
    }
    let mut first: Option<(&str, u64)> = None;
    for index in order {
        let parent = &parents[index];
        let is_it = |row: &&mut Row| row.situation == situation && row.parent == parent.name;
        let Some(row) = record.rows.iter_mut().find(is_it) else { continue };
        let run: Run = parent.run(situation, effort.cycles, tree)?;
        let (name, bytes) = *first.get_or_insert((parent.name, run.bytes));
        ensure!(run.bytes == bytes, "{name} read {bytes} bytes, {} {}", parent.name, run.bytes);
        ensure!(run.calls.len() == effort.cycles * tree.tools(), "{} made {} calls", parent.name, run.calls.len());
        row.add(run);
    }
    Ok(())
}

/// Raises the limit for this process and the parents, and returns it.
fn raise_descriptors() -> Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(8192);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    Ok(wanted)
}

/// Available memory in MiB.
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
