//! Measures warm launches beside cold ones: `posix_spawn(3)` (by the standard library), forkless, and a template of
//! forkless. Each round launches by all three in turn, from the request to the reaped child. Prints medians in µs, their
//! ratios to `posix_spawn`, and the private memory of the template.
//!
//! ```text
//! cargo xtask warm target/warm
//! cargo run --release -p forkless-warm --example measure -- target/warm/libforkless_warm.so [ROUNDS]
//! ```

use forkless::warm::Warm;
use forkless::{Command, Route, Stdio};
use std::path::Path;
use std::time::{Duration, Instant};

/// Short programs, with arguments with which they do little.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("/bin/true", &[]),
    ("/bin/dash", &["-c", ":"]),
    ("/usr/bin/jq", &["--version"]),
    ("/usr/bin/lua5.4", &["-v"]),
    ("/bin/sed", &["-n", "1p", "/etc/hostname"]),
    ("/usr/bin/git", &["--version"]),
    ("/bin/ls", &["/"]),
    ("/bin/grep", &["-c", "root", "/etc/passwd"]),
    ("/bin/bash", &["-c", ":"]),
    ("/usr/bin/perl", &["-e", "1"]),
    ("/usr/bin/python3", &["-S", "-c", "1"]),
    ("/usr/bin/curl", &["--version"]),
];

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// The private memory of a process, in KiB.
fn private(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let of = |label: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(label))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    Some(of("Private_Dirty:")? + of("Private_Clean:")?)
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let library = args.next().expect("the path of libforkless_warm.so");
    let rounds: usize = args.next().map_or(300, |rounds| rounds.parse().expect("a number of rounds"));
    // Cargo sets it, and a variable for the loader makes every launch cold.
    // SAFETY: this process has one thread.
    unsafe { std::env::remove_var("LD_LIBRARY_PATH") };
    println!(
        "{:<28} {:>11} {:>9} {:>9} {:>7} {:>7} {:>9}",
        "program", "posix_spawn", "forkless", "warm", "ratio", "ratio", "template"
    );
    for &(program, args) in PROGRAMS {
        if !Path::new(program).exists() {
            continue;
        }
        let warm = Warm::new(std::fs::canonicalize(&library)?)?;
        let mut command = Command::new(program);
        let prepared = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).prepare()?;
        let mut stock = std::process::Command::new(program);
        let null = std::process::Stdio::null;
        stock.args(args).stdin(null()).stdout(null()).stderr(null());
        let (mut by_std, mut cold, mut by_template) = (Vec::new(), Vec::new(), Vec::new());
        let mut reason = None;
        for _ in 0..rounds {
            let start = Instant::now();
            stock.spawn()?.wait()?;
            by_std.push(start.elapsed());
            let start = Instant::now();
            prepared.spawn()?.wait()?;
            cold.push(start.elapsed());
            let start = Instant::now();
            let mut child = warm.spawn(&prepared)?;
            child.wait()?;
            // The few launches that start a template are cold, and are not counted.
            match child.route() {
                Route::Warm => by_template.push(start.elapsed()),
                _ => reason = child.cold_reason().map(str::to_owned),
            }
        }
        let name = format!("{} {}", program.rsplit('/').next().unwrap_or(program), args.join(" "));
        if by_template.len() < rounds / 2 {
            println!("{name:<28} cold: {}", reason.unwrap_or_default());
            continue;
        }
        let memory = warm.templates().first().and_then(|&pid| private(pid)).unwrap_or(0);
        let [stock, cold, by_template] = [by_std, cold, by_template].map(median);
        println!(
            "{name:<28} {stock:>11.0} {cold:>9.0} {by_template:>9.0} {:>7.2} {:>7.2} {memory:>5} KiB",
            cold / stock,
            by_template / stock
        );
    }
    Ok(())
}
