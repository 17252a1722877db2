//! Compares libc's functions with those of the preload library, in turn in one process.

use crate::dist;
use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The options of the measurement.
#[derive(clap::Args)]
pub struct Options {
    /// Make this many launches with each function; slow ones get fewer
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    launches: u32,
}

/// Builds, measures and prints three tables: loading the library, the functions, and the functions with children that inherit only
/// the standard streams.
///
/// # Errors
/// If cc or the program fails.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let place = std::path::absolute(target)?.join("preload");
    dist::install(&place, target)?;
    let bench = dist::root().join("bench");
    let (tiny, hello, pairs) = (place.join("tiny"), place.join("hello"), place.join("pairs"));
    let sources = [("bench/c/target.c", &tiny), ("bench/noshell/hello.c", &hello)];
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
    loading(&place, options.launches)?;
    for inherit in ["all", "stdio"] {
        println!("FORKLESS_INHERIT={inherit}");
        let mut run = Command::new(&pairs);
        run.arg(place.join("lib/libforkless_preload.so")).arg(&tiny).arg(&hello).arg(options.launches.to_string());
        dist::run(run.env("FORKLESS_INHERIT", inherit).env_remove("FORKLESS").env_remove("FORKLESS_LOG"))?;
    }
    Ok(())
}

/// What a program pays for loading the library, beside an empty library that gcc links with libc.
fn loading(place: &Path, rounds: u32) -> Result<()> {
    let (load, source, empty) = (place.join("load"), place.join("empty.c"), place.join("empty.so"));
    dist::run(Command::new("cc").args(["-O2", "-o"]).arg(&load).arg(dist::root().join("bench/preload/load.c")))?;
    fs::write(&source, "int forkless_empty;\n")?;
    let mut link = Command::new("cc");
    dist::run(link.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]).arg(&empty).arg(&source).arg("-lc"))?;
    println!("loading the library, /bin/true");
    let ours = place.join("lib/libforkless_preload.so");
    dist::run(Command::new(load).args(["/bin/true", &rounds.to_string(), "none"]).arg(empty).arg(ours))
}
