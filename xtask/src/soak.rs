//! Runs the soak test `tests/src/bin/soak.rs`, built with optimizations, and records its figures in `bench/record`.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use testing::dist;

/// The options of the soak test.
#[derive(clap::Args)]
pub struct Options {
    /// Make this many launches
    #[arg(long, default_value_t = 5_000_000)]
    launches: u64,
    /// Stop after this many seconds, even with fewer launches
    #[arg(long)]
    seconds: Option<u64>,
    /// Launch from this many threads
    #[arg(long, default_value_t = 16)]
    threads: u64,
    /// Seed the random choices (default: a new seed, which is printed)
    #[arg(long)]
    seed: Option<u64>,
    /// Write the figures to bench/record/DATE-soak
    #[arg(long)]
    record: bool,
}

/// Builds and runs the soak test.
///
/// # Errors
/// If cargo or the soak test fails.
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
    if options.record {
        let date = Command::new("date").args(["-u", "+%F"]).output().context("date")?;
        let place = dist::root().join(format!("bench/record/{}-soak", String::from_utf8(date.stdout)?.trim()));
        std::fs::create_dir_all(&place)?;
        soak.arg("--json").arg(place.join("soak.json"));
    }
    let status = soak.status().context("soak")?;
    ensure!(status.success(), "the soak test failed: {status}");
    Ok(())
}
