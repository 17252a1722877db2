//! Compares libc's functions with those of the preload library, in turn in one process.

use crate::dist;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// The options of the measurement.
#[derive(clap::Args)]
pub struct Options {
    /// Make this many launches with each function; slow ones get fewer
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    launches: u32,
}

/// Builds, measures and prints a table; then another one with children that inherit only the standard streams.
///
/// # Errors
/// If cc or the program fails.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let place = std::path::absolute(target)?.join("preload");
    dist::install(&place, target)?;
    let bench = dist::root().join("bench");
    let (tiny, hello, pairs) = (place.join("tiny"), place.join("hello"), place.join("pairs"));
    let sources = [("crates/bench/c/target.c", &tiny), ("bench/noshell/hello.c", &hello)];
    for (source, program) in sources {
        let mut link = Command::new("cc");
        link.args([
            "-O2",
            "-static",
            "-no-pie",
            "-nostdlib",
            "-nostartfiles",
            "-ffreestanding",
            "-fno-stack-protector",
        ]);
        dist::run(link.args(["-Wl,--build-id=none", "-s", "-o"]).arg(program).arg(dist::root().join(source)))?;
    }
    dist::run(
        Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-o"])
            .arg(&pairs)
            .arg(bench.join("preload/pairs.c"))
            .arg("-ldl"),
    )?;
    for inherit in ["all", "stdio"] {
        println!("FORKLESS_INHERIT={inherit}");
        let mut run = Command::new(&pairs);
        run.arg(place.join("lib/libforkless_preload.so")).arg(&tiny).arg(&hello).arg(options.launches.to_string());
        dist::run(run.env("FORKLESS_INHERIT", inherit).env_remove("FORKLESS").env_remove("FORKLESS_LOG"))?;
    }
    Ok(())
}
