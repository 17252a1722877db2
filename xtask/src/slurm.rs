//! The large scenes of `forkless parallel --slurm`, on a real Slurm of three nodes: `cargo xtask scale --slurm`.
//!
//! The tests of crates/cli/tests/slurm.rs do the work, with more jobs. They print a line that begins with `RECORD` for each
//! scene and each rate; this makes the record of them. A test that fails, or that is skipped, fails the command.

use crate::dist;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The options.
#[derive(clap::Args)]
pub struct Options {
    /// Run the scenes of --slurm on a Slurm of three nodes on this machine, instead of the simulation (needs root)
    #[arg(long)]
    slurm: bool,
    /// Jobs of each scene; those with a node that is killed have 2.5 times as many
    #[arg(long, default_value_t = 20_000, requires = "slurm")]
    jobs: usize,
    /// Write the figures to bench/record/DATE-slurm
    #[arg(long, requires = "slurm")]
    record: bool,
}

/// So many jobs are the scale 1 of the tests.
const SCALE: f64 = 100.0;

/// Runs the scenes, or prints the tables of the simulation.
///
/// # Errors
/// If a test fails or is skipped, or the record cannot be written.
pub fn run(options: &Options) -> Result<()> {
    if !options.slurm {
        print!("{}", crate::scale::tables());
        return Ok(());
    }
    let scale = options.jobs as f64 / SCALE;
    // A test's name is a part of those that are run.
    let scenes = tests(scale, &["--skip", "dead_node"])?;
    let crashes = tests(2.5 * scale, &["dead_node"])?;
    let figures = tests(scale, &["--ignored", "figures_of_the_record"])?;
    let text = page(&[scenes, crashes, figures].concat());
    print!("{text}");
    if options.record {
        let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
        let place = dist::root().join(format!("bench/record/{}-slurm", String::from_utf8(date.stdout)?.trim()));
        std::fs::create_dir_all(&place)?;
        std::fs::write(place.join("slurm.md"), text)?;
    }
    Ok(())
}

/// Runs tests, one at a time, and returns the lines for the record.
fn tests(scale: f64, names: &[&str]) -> Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut tests = Command::new(cargo);
    tests.args(["test", "--release", "--locked", "-p", "forkless-cli", "--test", "slurm", "--"]).args(names);
    tests.args(["--test-threads=1", "--nocapture"]).env("FORKLESS_TEST_SCALE", scale.to_string());
    let mut running = tests.current_dir(dist::root()).stdout(Stdio::piped()).spawn().context("cargo test")?;
    let (mut lines, mut skipped) = (Vec::new(), Vec::new());
    for line in BufReader::new(running.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        // The harness writes the test's name before it, on the same line.
        if let Some((_, found)) = line.split_once("RECORD ") {
            lines.push(found.to_owned());
        }
        skipped.extend(line.contains("SKIPPED: ").then_some(line));
    }
    let status = running.wait()?;
    ensure!(status.success(), "the tests have failed: {status}");
    ensure!(skipped.is_empty(), "skipped: {}", skipped.join("; "));
    Ok(lines)
}

/// The record.
fn page(lines: &[String]) -> String {
    let of = |kind: &str| -> Vec<&str> {
        lines.iter().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(" | ")).collect()
    };
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut text = format!(
        "# `forkless parallel --slurm` on three nodes\n\n\
         Written by `cargo xtask scale --slurm --record`: a real Slurm, with its three nodes on one machine of {cpus} CPUs. Load at the end: {}.\n\n\
         ## Scenes\n\n\
         \"Lost\": jobs that have not run, or are not in the log. No job is in the log twice, or the test fails. Jobs that ran twice \
         were in flight when their node or srun was lost.\n\n\
         | scene | jobs | lost | ran twice | s |\n| --- | --: | --: | --: | --: |\n",
        load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
    );
    // Writing to a String cannot fail.
    for line in of("scene") {
        let _ = writeln!(text, "| {line} |");
    }
    text += "\n## Rates\n\nMedians of three runs of `/bin/true`, in turn.\n\n\
             | method | jobs | s | jobs/s |\n| --- | --: | --: | --: |\n";
    for line in of("rate") {
        let _ = writeln!(text, "| {line} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_goes_to_its_table() {
        let lines = ["scene | a node killed | 50000 | 0 | 7 | 46.6", "rate | one node | 20000 | 2.00 | 10000"];
        let text = page(&lines.map(str::to_owned));
        let (scenes, rates) = text.split_once("## Rates").expect("two tables");
        assert!(scenes.contains("\n| a node killed | 50000 | 0 | 7 | 46.6 |\n"), "{text}");
        assert!(rates.contains("\n| one node | 20000 | 2.00 | 10000 |\n"), "{text}");
    }
}
