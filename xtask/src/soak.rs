//! A long soak: `tests/src/bin/soak.rs`, built with optimizations, with its figures in `bench/record`.

use crate::dist;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// How long, and from where.
#[derive(clap::Args)]
pub struct Options {
    /// Launches.
    #[arg(long, default_value_t = 5_000_000)]
    launches: u64,
    /// End earlier, after so many seconds; the figures say how many launches there were.
    #[arg(long)]
    seconds: Option<u64>,
    /// Threads of the host.
    #[arg(long, default_value_t = 16)]
    threads: u64,
    /// Seed of the random choices (default: another one each time, which is printed).
    #[arg(long)]
    seed: Option<u64>,
    /// Puts the figures into bench/record/DATE-soak.
    #[arg(long)]
    record: bool,
}

/// Builds and runs it.
///
/// # Errors
/// What cargo says, or that something was wrong.
pub fn run(options: &Options, target: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--release", "--locked", "-p", "forkless-tests", "--bin", "soak"];
    dist::run(Command::new(cargo).args(build).current_dir(dist::root()))?;
    let mut soak = Command::new(std::path::absolute(target)?.join("release/soak"));
    soak.args(["--launches", &options.launches.to_string(), "--threads", &options.threads.to_string()]);
    for (name, value) in [("--seed", options.seed), ("--seconds", options.seconds)] {
        if let Some(value) = value {
            soak.args([name, &value.to_string()]);
        }
    }
    let mut text = None;
    if options.record {
        let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
        let place = dist::root().join(format!("bench/record/{}-soak", String::from_utf8(date.stdout)?.trim()));
        std::fs::create_dir_all(&place)?;
        soak.arg("--json").arg(place.join("soak.json"));
        text = Some(std::fs::File::create(place.join("soak.txt"))?);
    }
    let mut running = soak.stdout(Stdio::piped()).spawn().context("soak")?;
    for line in BufReader::new(running.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some(text) = &mut text {
            writeln!(text, "{line}")?;
        }
    }
    let status = running.wait()?;
    if !status.success() {
        bail!("something was wrong: {status}");
    }
    Ok(())
}
