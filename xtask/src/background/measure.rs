//! The programs with which each table and each curve is measured.

use super::record::{Curve, Line, Row, Table};
use super::tools::{Tools, source};
use super::turns::{Asked, Contestant, Plan, numbers, race};
use super::{Effort, machine};
use crate::dist::output;
use crate::noshell::median;
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Duration;

/// Times of all launches in nanoseconds, by reported figure.
const US: f64 = 1e3;
const MS: f64 = 1e6;
const S: f64 = 1e9;

/// Measures the rows of a table; adds what cannot be measured here to `skipped`.
pub(super) fn table(table: &mut Table, tools: &Tools, effort: Effort, skipped: &mut Vec<String>) -> Result<()> {
    match table.name.as_str() {
        "fastspawn" => fastspawn(table, tools, effort, skipped),
        "noshell" => noshell(table, tools, effort),
        "five" => five(table, tools, effort),
        "nagios" => nagios(table, tools, effort, skipped),
        "touched" => touched(table, tools, effort, skipped),
        other => bail!("unknown table {other}"),
    }
}

/// Measures the lines of a curve in the same way.
pub(super) fn curve(curve: &mut Curve, tools: &Tools, effort: Effort, skipped: &mut Vec<String>) -> Result<()> {
    match curve.name.as_str() {
        "growth" => growth(curve, tools, effort),
        "mapped" => mapped(curve, tools, effort),
        "raku" => raku(curve, tools, effort, skipped),
        other => bail!("unknown curve {other}"),
    }
}

fn fastspawn(table: &mut Table, tools: &Tools, effort: Effort, skipped: &mut Vec<String>) -> Result<()> {
    if !tools.has_fastspawn {
        skipped.push(
            "fastspawn, because perl or its module Proc::FastSpawn (libproc-fastspawn-perl) is not installed".into(),
        );
        return Ok(());
    }
    if let Err(why) = tools.blib {
        skipped.push(format!("fastspawn's rows of Forkless, because {why}"));
    }
    // Fewer turns with a gigabyte, which takes long to allocate.
    for (size, mib, turns) in [("small", 0, 6), ("22", 22, 6), ("1024", effort.of(1024, 1024, 64), 3)] {
        let mut contestants = Vec::new();
        for row in table.rows.iter().filter(|row| row.id.starts_with(&format!("{size}/"))) {
            let way = row.id[size.len() + 1..].to_owned();
            let is_ours = way.starts_with("forkless");
            if is_ours && tools.blib.is_err() {
                continue;
            }
            let blib = tools.blib.as_ref().ok().filter(|_| is_ours).map(|blib| format!("-Mblib={}", blib.display()));
            let small_pages = tools.program("small_pages");
            contestants.push(Contestant::new(
                &row.id,
                |numbers, count| vec![numbers[0] / count * 10_000.0 / S],
                move |count| {
                    let mut command = Command::new(&small_pages);
                    command.arg("perl").args(&blib).arg(source("launches.pl"));
                    command.arg(&way).arg(count.to_string()).arg(mib.to_string()).arg("/bin/true");
                    command
                },
            ));
        }
        race(effort.turns(turns, Duration::from_millis(1_500)), &mut contestants)?;
        table.take(contestants);
    }
    Ok(())
}

fn noshell(table: &mut Table, tools: &Tools, effort: Effort) -> Result<()> {
    let mut contestants = Vec::new();
    for row in &table.rows {
        let (launches, hello) = (tools.program("launches"), tools.program("hello"));
        let preload = tools.library("libforkless_preload.so");
        let (way, preloaded) = match row.id.strip_prefix("preload ") {
            Some(way) => (way.to_owned(), true),
            None => (row.id.clone(), false),
        };
        contestants.push(Contestant::new(
            &row.id,
            |numbers, count| {
                let (user, system) = (numbers[1] / count * 60_000.0 / S, numbers[2] / count * 60_000.0 / S);
                vec![user, system, user + system]
            },
            move |count| {
                let mut command = Command::new(&launches);
                command.arg(&way).arg(count.to_string()).arg("200").arg(&hello);
                if preloaded {
                    command.env("LD_PRELOAD", &preload);
                }
                command
            },
        ));
    }
    race(effort.turns(8, Duration::from_millis(4_000)), &mut contestants)?;
    table.take(contestants);
    Ok(())
}

/// The program that launches with one method, from a process with one kind of memory.
fn launch(tools: &Tools, way: &str, kind: &str, mib: u32) -> impl Fn(u32) -> Command + use<> {
    let (program, way, kind) = (tools.program("launch"), way.to_owned(), kind.to_owned());
    move |count| {
        let mut command = Command::new(&program);
        command.arg(&way).arg(count.to_string()).arg(&kind).arg(mib.to_string()).arg("/bin/echo");
        command
    }
}

fn five(table: &mut Table, tools: &Tools, effort: Effort) -> Result<()> {
    let mut contestants = Vec::new();
    for row in &table.rows {
        let figures = |numbers: &[f64], count| vec![numbers[0] / count / US];
        contestants.push(if row.id == "Command" {
            let program = tools.program("command");
            Contestant::new(&row.id, figures, move |count| {
                let mut command = Command::new(&program);
                command.arg(count.to_string()).arg("/bin/echo");
                command
            })
        } else {
            Contestant::new(&row.id, figures, launch(tools, &row.id, "touched", 0))
        });
    }
    race(effort.turns(12, Duration::from_secs(4)), &mut contestants)?;
    table.take(contestants);
    Ok(())
}

fn nagios(table: &mut Table, tools: &Tools, effort: Effort, skipped: &mut Vec<String>) -> Result<()> {
    if !tools.has_perl {
        skipped.push("nagios' rows with checks in Perl, because perl is not installed".into());
    }
    let perl_rate = 61 * machine::cores();
    let seconds = effort.of("2", "0.5", "0.05");
    let checks = [
        ("C", 488, "Hello, world!", "./hello", tools.program("")),
        ("Perl", perl_rate, "OK", "perl check.pl", source("")),
    ];
    for (kind, rate, expected, line, place) in checks.into_iter().filter(|(kind, ..)| *kind == "C" || tools.has_perl) {
        let mut contestants = Vec::new();
        for row in table.rows.iter().filter(|row| row.id.starts_with(&format!("{kind}/"))) {
            let (program, way, place) = (tools.program("checks"), row.id[kind.len() + 1..].to_owned(), place.clone());
            contestants.push(Contestant::new(&row.id, shares, move |_| {
                let mut command = Command::new(&program);
                command.current_dir(&place).arg(&way).args([seconds, &rate.to_string(), "50", expected, line]);
                command
            }));
        }
        // The program measures the length of a turn itself.
        race(Plan { turns: effort.of(4, 2, 1), each: Duration::ZERO }, &mut contestants)?;
        table.take(contestants);
    }
    Ok(())
}

/// Shares of all CPUs in percent, the rate, and the CPU time of a check.
fn shares(numbers: &[f64], _: f64) -> Vec<f64> {
    let all = numbers[0] * machine::cores() as f64 / 100.0;
    let (user, system) = (numbers[1] / all, numbers[2] / all);
    let per_check = (numbers[1] + numbers[2]) / numbers[3] / MS;
    vec![user, system, user + system, numbers[3] / (numbers[0] / S), per_check]
}

fn growth(curve: &mut Curve, tools: &Tools, effort: Effort) -> Result<()> {
    let steps = effort.of(100, 100, 3);
    let (time, turns) = effort.of((20_000_000, 4), (2_000_000, 2), (0, 1));
    let mut all = [("untouched", Vec::new()), ("touched", Vec::new())];
    for _ in 0..turns {
        for (kind, turns) in &mut all {
            let mut command = Command::new(tools.program("growth"));
            let text = output(command.arg(*kind).args([steps, time, 3].map(|number: i32| number.to_string())))?;
            let lines: Vec<_> = text.lines().map(numbers).collect::<Result<_>>()?;
            if lines.len() != steps as usize || lines.iter().any(|line| line.len() != 4) {
                bail!("growth: {text:?}");
            }
            turns.push(lines);
        }
    }
    for (kind, turns) in &all {
        for (call, column) in [("fork", 0), ("vfork", 1)] {
            let Some(line) = curve.line(&format!("{call} {kind}")) else { continue };
            for step in 0..steps as usize {
                let here = turns.iter().map(|lines| lines[step][column] / US).collect();
                line.points.push((step as f64 + 1.0, median(here)));
            }
            line.launches = turns.iter().flatten().map(|line| line[2] as u64).sum();
            line.resident_kib = Some((turns[0][0][3], turns[0][steps as usize - 1][3]));
        }
    }
    Ok(())
}

fn mapped(curve: &mut Curve, tools: &Tools, effort: Effort) -> Result<()> {
    let sizes: &[u32] = effort.of(&[0, 64, 128, 256, 512, 768, 1024], &[0, 256, 1024], &[0, 16]);
    for &mib in sizes {
        let mut contestants = Vec::new();
        for line in &curve.lines {
            let (way, kind) = line.id.split_once(' ').context("a way and a kind")?;
            let figures = |numbers: &[f64], count| vec![numbers[0] / count / US];
            contestants.push(Contestant::new(&line.id, figures, launch(tools, way, kind, mib)));
        }
        race(effort.turns(4, Duration::from_millis(800)), &mut contestants)?;
        for one in contestants {
            let line = curve.line(&one.id).context("a line")?;
            line.points.push((f64::from(mib), median(one.turns.iter().map(|turn| turn[0]).collect())));
            line.launches += one.launches;
        }
    }
    Ok(())
}

/// A process of Raku that launches `count` times whenever it is asked, by one method.
fn raku_process(tools: &Tools, way: &str, count: usize, mib: u32) -> Result<Asked> {
    let mut command = Command::new(tools.program("small_pages"));
    let library = tools.library("libforkless.so.0");
    command.arg("raku").arg("-I").arg(tools.raku.join("lib")).env("FORKLESS_LIBRARY", &library);
    command.arg(source("async.raku")).arg(way).arg(count.to_string()).arg("/bin/true").arg(&library);
    Asked::start(command.arg(mib.to_string()))
}

/// The median time of the launches of a turn, in nanoseconds, and the resident size after it, in KiB.
fn raku_turn(process: &mut Asked, count: usize) -> Result<(f64, f64)> {
    let launches = process.ask(count)?;
    Ok((median(launches.iter().map(|launch| launch[0]).collect()), launches[count - 1][1]))
}

fn has_raku(name: &str, tools: &Tools, skipped: &mut Vec<String>) -> bool {
    if !tools.has_raku {
        skipped.push(format!("{name}, because raku is not installed (rakudo)"));
    }
    tools.has_raku
}

fn touched(table: &mut Table, tools: &Tools, effort: Effort, skipped: &mut Vec<String>) -> Result<()> {
    if !has_raku("touched", tools, skipped) {
        return Ok(());
    }
    let (mib, part) = (effort.of(1024, 1024, 16), effort.of(10, 4, 1));
    let start = |row: &Row| raku_process(tools, &row.id, part, mib).map(|process| (process, Vec::new()));
    let mut all: Vec<_> = table.rows.iter().map(start).collect::<Result<_>>()?;
    for turn in 0..=effort.of(20, 4, 1) {
        for (row, (process, times)) in table.rows.iter_mut().zip(&mut all) {
            let (time, _) = raku_turn(process, part).with_context(|| row.id.clone())?;
            if turn > 0 {
                times.push(time / MS);
                row.launches += part as u64;
            }
        }
    }
    let stock = all[0].1.clone();
    for (row, (process, times)) in table.rows.iter_mut().zip(all) {
        row.times_here = row.beside.as_ref().map(|_| median(times.iter().zip(&stock).map(|(a, b)| a / b).collect()));
        row.here = vec![median(times)];
        process.end()?;
    }
    Ok(())
}

fn raku(curve: &mut Curve, tools: &Tools, effort: Effort, skipped: &mut Vec<String>) -> Result<()> {
    if !has_raku("raku", tools, skipped) {
        return Ok(());
    }
    let part = effort.of(100, 20, 2);
    let start = |line: &Line| raku_process(tools, &line.id, part, 0);
    let mut processes: Vec<_> = curve.lines.iter().map(start).collect::<Result<_>>()?;
    for turn in 1..=effort.of(50, 20, 3) {
        for (line, process) in curve.lines.iter_mut().zip(&mut processes) {
            let (middle, resident) = raku_turn(process, part).with_context(|| line.id.clone())?;
            line.points.push((f64::from(turn) * part as f64, middle / US));
            line.resident_kib = Some((line.resident_kib.map_or(resident, |(first, _)| first), resident));
            line.launches += part as u64;
        }
    }
    processes.into_iter().try_for_each(Asked::end)
}

impl Table {
    /// The figures of the measured rows: medians over the turns, and of the ratios within a turn.
    fn take(&mut self, contestants: Vec<Contestant>) {
        for row in &mut self.rows {
            let Some(one) = contestants.iter().find(|one| one.id == row.id) else { continue };
            let figures = one.turns.first().map_or(0, Vec::len);
            row.here = (0..figures).map(|n| median(one.turns.iter().map(|turn| turn[n]).collect())).collect();
            row.launches = one.launches;
            let beside = contestants.iter().find(|other| Some(&other.id) == row.beside.as_ref());
            row.times_here = beside.map(|other| {
                let ratios = one.turns.iter().zip(&other.turns).map(|(own, other)| own[self.main] / other[self.main]);
                median(ratios.collect())
            });
        }
    }
}

impl Curve {
    fn line(&mut self, id: &str) -> Option<&mut Line> {
        self.lines.iter_mut().find(|line| line.id == id)
    }
}
