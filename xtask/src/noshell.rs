//! Runs the benchmark of popen_noshell's author with the implementation of forkless: launches of a program that prints a line, from
//! a process of 200 MiB of which half is written to. Each method is a separate process, and all take turns. Prints the median
//! over the turns, and the median of the ratios within a turn.

use crate::dist;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options of the measurement.
#[derive(clap::Args)]
pub struct Options {
    /// Make this many launches with each method, in all turns together
    #[arg(long, default_value_t = 60_000)]
    launches: u32,
    /// Split the launches into this many turns
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Give the process this many MiB
    #[arg(long, default_value_t = 200)]
    memory: u32,
    /// Compare with the popen_noshell.c and popen_noshell.h in this directory
    #[arg(long, value_name = "DIR")]
    original: Option<PathBuf>,
}

const WAYS: [&str; 11] = [
    "vfork",
    "popen_noshell",
    "popen_noshell_compat",
    "posix_spawn",
    "popen_noshell,posix_spawn",
    "popen_noshell_compat,posix_spawn",
    "fork",
    "popen_noshell,fork",
    "popen_noshell_compat,fork",
    "system",
    "popen",
];

struct Contestant {
    name: String,
    way: &'static str,
    program: PathBuf,
    /// Time of a launch in nanoseconds, for each turn.
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

/// Builds, measures, prints a table.
///
/// # Errors
/// If cc or one of the programs fails.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let place = std::path::absolute(target)?.join("noshell");
    dist::install(&place, target)?;
    let hello = place.join("hello");
    let ours = place.join("ours");
    build(&place, &hello, &ours)?;

    let new = |prefix: &str, way, program: &Path| Contestant {
        name: format!("{prefix}{way}"),
        way,
        program: program.to_owned(),
        wall: Vec::new(),
        cpu: Vec::new(),
    };
    let mut contestants: Vec<_> = WAYS.iter().map(|&way| new("", way, &ours)).collect();
    if let Some(directory) = &options.original {
        let theirs = place.join("theirs");
        let mut link = cc("launches.c", &theirs);
        dist::run(link.arg("-w").arg("-I").arg(directory).arg(directory.join("popen_noshell.c")))?;
        contestants
            .extend(WAYS.iter().filter(|way| way.contains("noshell")).map(|&way| new("original ", way, &theirs)));
    }
    measure(options, &mut contestants, &hello)?;
    print(&contestants);
    Ok(())
}

/// Builds the program that is launched and the one that launches, with the libraries that are installed below `prefix`.
pub(crate) fn build(prefix: &Path, hello: &Path, launches: &Path) -> Result<()> {
    let mut link = cc("hello.c", hello);
    dist::run(link.args(["-static", "-no-pie", "-nostdlib", "-nostartfiles", "-Wl,--build-id=none", "-s"]))?;
    let lib = prefix.join("lib");
    let mut link = cc("launches.c", launches);
    link.arg("-I").arg(prefix.join("include")).arg("-L").arg(&lib).arg(format!("-Wl,-rpath,{}", lib.display()));
    dist::run(link.arg("-lpopen_noshell"))
}

fn cc(source: &str, program: &Path) -> Command {
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(program).arg(dist::root().join("bench/noshell").join(source));
    command
}

fn measure(options: &Options, contestants: &mut [Contestant], hello: &Path) -> Result<()> {
    let count = (options.launches / options.turns).max(1);
    let all = contestants.len();
    for turn in 0..options.turns as usize {
        for n in 0..all {
            // Rotate the order, so that no method always follows the same one or is always first.
            let who = &mut contestants[(n * if turn % 2 == 0 { 1 } else { all - 1 } + turn) % all];
            let mut command = Command::new(&who.program);
            command.arg(who.way).arg(count.to_string()).arg(options.memory.to_string()).arg(hello);
            let output = command.output().with_context(|| who.name.clone())?;
            if !output.status.success() {
                bail!("{}: {}: {}", who.name, output.status, String::from_utf8_lossy(&output.stderr));
            }
            let text = String::from_utf8(output.stdout)?;
            let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
            let [wall, user, system] = numbers[..] else { bail!("{}: {text:?}", who.name) };
            who.wall.push(wall / f64::from(count));
            who.cpu.push((user + system) / f64::from(count));
        }
    }
    Ok(())
}

fn print(contestants: &[Contestant]) {
    println!(
        "{:<36}{:>10}{:>10}{:>22}{:>22}",
        "", "wall µs", "CPU µs", "of vfork: wall, CPU", "of original: wall, CPU"
    );
    let floor = &contestants[0];
    for one in contestants {
        let original = contestants.iter().find(|other| other.name == format!("original {}", one.name));
        let beside = |other: Option<&Contestant>| {
            let Some(other) = other else { return String::new() };
            format!("{:.3}, {:.3}", ratio(&one.wall, &other.wall), ratio(&one.cpu, &other.cpu))
        };
        let (wall, cpu) = (median(one.wall.clone()) / 1000.0, median(one.cpu.clone()) / 1000.0);
        println!("{:<36}{wall:>10.1}{cpu:>10.1}{:>22}{:>22}", one.name, beside(Some(floor)), beside(original));
    }
}

/// The median of the ratios within the turns.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
}

pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 { numbers[middle] } else { (numbers[middle - 1] + numbers[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::{median, ratio};

    #[test]
    fn median_of_even_and_odd_counts() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 3.0, 2.0])), (2.0, 2.5));
        assert_eq!(ratio(&[1.0, 4.0, 9.0], &[2.0, 2.0, 3.0]), 2.0);
    }
}
