//! Published tables and graphs, measured again beside the published figures: [bench/background](../../background/README.md).
//! `published.json` determines what is measured; here are the programs for it.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{
    noshell,
    race::{CampaignContestant, median, race},
    record::{Figure, Table},
    session::{Common, Session, cpus, does_work, numbers, output},
};

/// Measure published tables and graphs on slow launches again.
///
/// The modules of forkless are those that perl and raku find (PERL5LIB, RAKULIB).
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Make fewer and shorter turns: takes about a minute
    #[arg(long)]
    quick: bool,

    /// Make one or two launches of each, as a test
    #[arg(long, hide = true, conflicts_with = "quick")]
    smoke: bool,

    /// Measure only these: fastspawn, noshell, five, nagios, touched, growth, mapped, raku [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
}

/// `published.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    tables: Vec<PublishedTable>,
    curves: Vec<PublishedCurve>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedTable {
    name: String,
    title: String,
    source: String,
    measured: String,
    figures: Vec<String>,
    rows: Vec<PublishedRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedRow {
    id: String,
    name: String,
    #[serde(default)]
    published: Vec<f64>,
    beside: Option<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedCurve {
    name: String,
    title: String,
    source: String,
    published: String,
    measured: String,
    x: String,
    y: String,
    lines: Vec<PublishedLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedLine {
    id: String,
    name: String,
    reason: String,
}

fn published() -> Result<Published> {
    serde_json::from_str(include_str!("../../background/published.json")).context("published.json")
}

const SOURCES: [(&str, &str); 9] = [
    ("launch.c", include_str!("../../background/launch.c")),
    ("growth.c", include_str!("../../background/growth.c")),
    ("small_pages.c", include_str!("../../background/small_pages.c")),
    ("checks.c", include_str!("../../background/checks.c")),
    ("timing.h", include_str!("../../background/timing.h")),
    ("command.rs", include_str!("../../background/command.rs")),
    ("launches.pl", include_str!("../../background/launches.pl")),
    ("check.pl", include_str!("../../background/check.pl")),
    ("async.raku", include_str!("../../background/async.raku")),
];

/// How much to measure: an index of lists of three values (usual, quick, smoke).
#[derive(Clone, Copy)]
struct BackgroundEffort(usize);

impl BackgroundEffort {
    fn of<T: Copy>(self, all: [T; 3]) -> T {
        all[self.0]
    }
}

pub(super) fn measure(options: &Options) -> Result<()> {
    let Published { mut tables, mut curves } = published()?;
    let known: Vec<&str> =
        tables.iter().map(|table| &*table.name).chain(curves.iter().map(|curve| &*curve.name)).collect();
    let unknown = options.only.iter().find(|name| !known.contains(&name.as_str()));
    ensure!(unknown.is_none(), "--only: {} is none of {}", unknown.map_or("", |name| name), known.join(", "));
    let is_wanted = |name: &String| options.only.is_empty() || options.only.contains(name);
    tables.retain(|table| is_wanted(&table.name));
    curves.retain(|curve| is_wanted(&curve.name));
    let mut session = Session::begin("background", &options.common)?;
    session.unpack(&SOURCES)?;
    session.unpack(&noshell::SOURCES)?;
    for name in ["growth", "small_pages"] {
        session.cc(name, [""; 0])?;
    }
    session.cc_tiny("hello")?;
    for (name, library) in [("launch", "forkless"), ("checks", "popen_noshell"), ("launches", "popen_noshell")] {
        session.cc_with(name, library)?;
    }
    let effort = BackgroundEffort(if options.smoke { 2 } else { usize::from(options.quick) });
    if !options.smoke && options.quick {
        session.record.about.push(("a quick run".to_owned(), "few launches, so take no figure from it".to_owned()));
    }
    for table in &tables {
        let measured = self::table(table, &mut session, effort).with_context(|| table.name.clone())?;
        session.record.tables.push(measured);
    }
    for curve in &curves {
        let measured = self::curve(curve, &mut session, effort).with_context(|| curve.name.clone())?;
        session.record.tables.push(measured);
    }
    session.end()
}

/// A program that launches COUNT times and prints numbers. `figures` gets these divided by COUNT, which fills a turn.
fn launching<'a>(
    name: &str,
    milliseconds: u64,
    command: impl Fn(u32) -> Command + 'a,
    figures: impl Fn(&[f64]) -> Vec<f64> + 'a,
) -> CampaignContestant<'a> {
    let mut count = 0;
    CampaignContestant::new(name, move || {
        const TRIED: u32 = 3;
        if count == 0 {
            let wall = if milliseconds == 0 { f64::INFINITY } else { numbers(&mut command(TRIED))?[0].max(1.0) };
            count = ((milliseconds as f64 * 1e6 / wall * f64::from(TRIED)) as u32).clamp(2, 60_000);
        }
        let each: Vec<f64> =
            numbers(&mut command(count))?.into_iter().map(|number| number / f64::from(count)).collect();
        Ok(figures(&each))
    })
}

fn table(table: &PublishedTable, session: &mut Session, effort: BackgroundEffort) -> Result<Table> {
    let program = |name: &str| session.place.join(name);
    let preload = session.library("libforkless_preload.so")?;
    let (mut groups, mut skipped) = (BTreeMap::<&str, Vec<CampaignContestant<'_>>>::new(), Vec::new());
    let has_perl = does_work("perl", &["-e", "1"]);
    let milliseconds = match table.name.as_str() {
        "fastspawn" => effort.of([500, 94, 0]),
        "noshell" => effort.of([500, 250, 0]),
        _ => effort.of([333, 250, 0]),
    };
    for row in &table.rows {
        let (group, way) = row.id.split_once('/').unwrap_or(("", &row.id));
        let way = way.to_owned();
        let us = |each: &[f64]| vec![each[0] / 1e3];
        let contestant = match table.name.as_str() {
            "fastspawn" => {
                let module = if way.starts_with("forkless") { "Forkless" } else { "Proc::FastSpawn" };
                if !does_work("perl", &["-MProc::FastSpawn", "-e", "1"])
                    || !does_work("perl", &[&format!("-M{module}"), "-e", "1"])
                {
                    skipped.push(format!("{} because perl does not find {module} and Proc::FastSpawn", row.name));
                    continue;
                }
                let mebibytes = match group {
                    "small" => 0,
                    "1024" => effort.of([1024, 1024, 64]),
                    size => size.parse().context("a size in MiB")?,
                };
                let (small, script) = (program("small_pages"), program("launches.pl"));
                let command = move |count: u32| {
                    let mut command = Command::new(&small);
                    command.arg("perl").arg(&script).arg(&way).arg(count.to_string());
                    command.arg(mebibytes.to_string()).arg("/bin/true");
                    command
                };
                launching(&row.name, milliseconds, command, |each| vec![each[0] * 10_000.0 / 1e9])
            }
            "noshell" => {
                let (launches, hello, preload) = (program("launches"), program("hello"), preload.clone());
                let command = move |count: u32| {
                    let mut command = Command::new(&launches);
                    let (preloaded, way) = way.strip_prefix("preload ").map_or((false, &*way), |way| (true, way));
                    command.args([way, &count.to_string(), "200"]).arg(&hello);
                    command.envs(preloaded.then_some(("LD_PRELOAD", &preload)));
                    command
                };
                let seconds = |each: f64| each * 60_000.0 / 1e9;
                launching(&row.name, milliseconds, command, move |each| {
                    vec![seconds(each[1]), seconds(each[2]), seconds(each[1] + each[2])]
                })
            }
            "five" if way == "Command" => {
                let built = program("command");
                output(
                    Command::new("rustc")
                        .args(["--edition", "2024", "-O", "-o"])
                        .arg(&built)
                        .arg(program("command.rs")),
                )?;
                let command = move |count: u32| {
                    let mut command = Command::new(&built);
                    command.arg(count.to_string()).arg("/bin/echo");
                    command
                };
                launching(&row.name, milliseconds, command, us)
            }
            "five" => launching(&row.name, milliseconds, launch(program("launch"), &way, "touched", 0), us),
            "nagios" if group == "Perl" && !has_perl => {
                skipped.push(format!("{} because perl is not installed", row.name));
                continue;
            }
            "nagios" => {
                let rate = if group == "C" { 488 } else { 61 * cpus() };
                let [expected, line] =
                    if group == "C" { ["Hello, world!", "./hello"] } else { ["OK", "perl check.pl"] };
                let (checks, place) = (program("checks"), session.place.clone());
                let seconds = effort.of(["2", "0.5", "0.05"]);
                CampaignContestant::new(&row.name, move || {
                    let mut command = Command::new(&checks);
                    command.current_dir(&place).args([&way, seconds, &rate.to_string(), "50", expected, line]);
                    shares(&numbers(&mut command)?)
                })
            }
            "touched" if !has_raku_module(&way) => {
                skipped.push(format!("{} because raku or its module is not installed", row.name));
                continue;
            }
            "touched" => {
                let (mebibytes, part) = (effort.of([1024, 1024, 16]), effort.of([10, 4, 1]));
                let mut process = RakuProcess::start(session, &way, part, mebibytes)?;
                // The first turn does not count.
                process.turn()?;
                CampaignContestant::new(&row.name, move || Ok(vec![process.turn()?.0 / 1e6]))
            }
            other => bail!("unknown table {other}"),
        };
        let beside = row.beside.as_ref().and_then(|id| table.rows.iter().find(|row| row.id == *id));
        groups.entry(group).or_default().push(contestant.beside(beside.map_or("", |row| &row.name)));
    }
    let rounds = match table.name.as_str() {
        "fastspawn" => effort.of([3, 2, 1]),
        "noshell" => effort.of([8, 2, 1]),
        "five" => effort.of([12, 2, 1]),
        "nagios" => effort.of([4, 2, 1]),
        _ => effort.of([20, 4, 1]),
    };
    // The rows of a group take turns with each other.
    for (group, all) in &mut groups {
        race(&format!("{} {group}", table.name), rounds, all)?;
    }
    let all: Vec<CampaignContestant<'_>> = groups.into_values().flatten().collect();
    let figures: Vec<Figure> = table.figures.iter().enumerate().map(|(at, name)| Figure::ratio(at, name)).collect();
    let about = format!("Published: {}. {}", table.source, table.measured);
    let mut measured = Table::new(&table.title, about, &figures, &all);
    drop(all);
    skipped.into_iter().for_each(|why| session.record.skip(why));
    let place = |name: &str| table.rows.iter().position(|row| row.name == name);
    measured.rows.sort_by_key(|row| place(&row.name));
    for row in &mut measured.rows {
        let published = place(&row.name).map(|at| &table.rows[at]).context("a row of the table")?;
        row.published.clone_from(&published.published);
        row.note.clone_from(&published.reason);
    }
    Ok(measured)
}

/// Shares of all CPUs in percent, the rate, and the CPU time of a check.
fn shares(numbers: &[f64]) -> Result<Vec<f64>> {
    let [wall, user, system, count] = numbers else { bail!("checks: {numbers:?}") };
    let share = |time: f64| time / (wall * cpus() as f64) * 100.0;
    Ok(vec![share(*user), share(*system), share(user + system), count / wall * 1e9, (user + system) / count / 1e6])
}

/// The program that launches with one method, from a process with one kind of memory.
fn launch(program: PathBuf, way: &str, kind: &str, mebibytes: u32) -> impl Fn(u32) -> Command + use<> {
    let (way, kind) = (way.to_owned(), kind.to_owned());
    move |count| {
        let mut command = Command::new(&program);
        command.args([&*way, &count.to_string(), &*kind, &mebibytes.to_string(), "/bin/echo"]);
        command
    }
}

/// The points of a line, and the resident size of the process in KiB at each.
type Points = Vec<(f64, f64, f64)>;

fn curve(curve: &PublishedCurve, session: &mut Session, effort: BackgroundEffort) -> Result<Table> {
    let mut found = BTreeMap::<&str, Points>::new();
    match curve.name.as_str() {
        "growth" => {
            let (steps, time) = (effort.of([100, 100, 3]), effort.of([20_000_000, 2_000_000, 0]));
            for kind in ["untouched", "touched"] {
                let mut command = Command::new(session.place.join("growth"));
                let figures = numbers(command.arg(kind).args([steps, time, 3].map(|number: i32| number.to_string())))?;
                // Times of fork and of vfork, their number, and the resident size.
                for (step, figures) in (1..).zip(figures.chunks(4)) {
                    for (call, at) in [("fork", 0), ("vfork", 1)] {
                        let line = curve.lines.iter().find(|line| line.id == format!("{call} {kind}"));
                        if let Some(line) = line {
                            let point = (f64::from(step), figures[at] / 1e3, figures[3]);
                            found.entry(&line.id).or_default().push(point);
                        }
                    }
                }
            }
        }
        "mapped" => {
            let sizes: &[u32] = effort.of([&[0, 64, 128, 256, 512, 768, 1024], &[0, 256, 1024], &[0, 16]]);
            for &mebibytes in sizes {
                let one = |line: &PublishedLine| {
                    let (way, kind) = line.id.split_once(' ').unwrap_or((&line.id, ""));
                    let command = launch(session.place.join("launch"), way, kind, mebibytes);
                    launching(&line.id, effort.of([200, 50, 0]), command, |each| vec![each[0] / 1e3])
                };
                let mut all: Vec<_> = curve.lines.iter().map(one).collect();
                race(&format!("mapped {mebibytes} MiB"), effort.of([4, 2, 1]), &mut all)?;
                for (line, one) in curve.lines.iter().zip(all) {
                    found.entry(&line.id).or_default().push((f64::from(mebibytes), median(one.figures(0)), f64::NAN));
                }
            }
        }
        "raku" => {
            let part = effort.of([100, 20, 2]);
            let mut processes = Vec::new();
            for line in &curve.lines {
                if has_raku_module(&line.id) {
                    processes.push((line, RakuProcess::start(session, &line.id, part, 0)?));
                } else {
                    session.record.skip(format!("{} because raku or its module is not installed", line.name));
                }
            }
            for turn in 1..=effort.of([50, 20, 3]) {
                for (line, process) in &mut processes {
                    let (middle, resident) = process.turn().with_context(|| line.id.clone())?;
                    found.entry(&line.id).or_default().push((f64::from(turn) * part as f64, middle / 1e3, resident));
                }
            }
        }
        other => bail!("unknown curve {other}"),
    }
    // A contestant without turns of its own: its figures are those of the whole line.
    let whole = |line: &PublishedLine| {
        let points = found.get(&*line.id)?;
        let (first, last) = (points.first()?, points.last()?);
        let slope = (last.1 - first.1) / (last.0 - first.0).max(1.0) * 100.0;
        let mut one = CampaignContestant::new(&line.name, || bail!("measured already"));
        one.rounds.push(vec![first.1, last.1, slope, first.2 / 1024.0, last.2 / 1024.0]);
        Some(one)
    };
    let all: Vec<CampaignContestant<'_>> = curve.lines.iter().filter_map(whole).collect();
    let figures = [
        Figure::plain(0, "at first"),
        Figure::plain(1, "at last"),
        Figure::plain(2, "more per 100"),
        Figure::plain(3, "resident MiB at first"),
        Figure::plain(4, "at last"),
    ];
    let about = format!(
        "Source: {}. {} Published: {} In {}, by {}.",
        curve.source, curve.measured, curve.published, curve.y, curve.x
    );
    let mut table = Table::new(&curve.title, about, &figures, &all);
    for row in &mut table.rows {
        let line = curve.lines.iter().find(|line| line.name == row.name).context("a line of the curve")?;
        row.points = found.get(&*line.id).into_iter().flatten().map(|(x, y, _)| (*x, *y)).collect();
        row.note.clone_from(&line.reason);
    }
    Ok(table)
}

/// Whether raku finds what this method needs.
fn has_raku_module(way: &str) -> bool {
    does_work("raku", if way == "Forkless" { &["-MForkless::Proc::Async", "-e", "1"] } else { &["-e", "1"] })
}

/// A process of Raku that stays alive from turn to turn, and launches by one method.
struct RakuProcess {
    child: Child,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    count: usize,
}

impl RakuProcess {
    fn start(session: &Session, way: &str, count: usize, mebibytes: u32) -> Result<Self> {
        let library = session.library("libforkless.so.0")?;
        let mut command = Command::new(session.place.join("small_pages"));
        command.arg("raku").arg(session.place.join("async.raku")).env("FORKLESS_LIBRARY", &library);
        command.arg(way).arg(count.to_string()).arg("/bin/true").arg(&library).arg(mebibytes.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("raku")?;
        let input = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, answers, count })
    }

    /// Makes the process launch; returns the median time in nanoseconds, and the resident size after it in KiB.
    fn turn(&mut self) -> Result<(f64, f64)> {
        self.input.as_mut().context("no input")?.write_all(b"go\n")?;
        let (mut times, mut resident) = (Vec::new(), 0.0);
        while times.len() < self.count {
            let mut line = String::new();
            self.answers.read_line(&mut line)?;
            let (time, size) = line.trim().split_once(' ').with_context(|| format!("raku: {line:?}"))?;
            times.push(time.parse()?);
            resident = size.parse()?;
        }
        Ok((median(times), resident))
    }
}

impl Drop for RakuProcess {
    fn drop(&mut self) {
        // The process ends with its input.
        self.input.take();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_are_complete() {
        let Published { tables, curves } = published().expect("the file");
        for table in &tables {
            for row in &table.rows {
                assert!(row.published.is_empty() || row.published.len() == table.figures.len(), "{}", row.id);
                assert!(!row.reason.is_empty() && !row.reason.contains(['|', '\n']), "{}", row.id);
                assert!(row.beside.as_ref().is_none_or(|id| table.rows.iter().any(|row| row.id == *id)), "{}", row.id);
            }
        }
        assert_eq!((tables.len(), curves.len()), (5, 3));
    }
}
