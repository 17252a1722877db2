//! Measures launching programs of Debian with and without `libforkless_preload.so`: [bench/real](../../bench/real/README.md).
//!
//! A program prints `ready` when it is set up, reads `go`, and prints `done`; the time between the last two is measured. The
//! methods take turns, each turn with a new process.

use crate::dist;
use crate::noshell::{median, ratio};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The options of the measurement.
#[derive(clap::Args)]
pub struct Options {
    /// Make this many turns
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Measure only programs with this in their name
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
}

/// A program in a condition.
struct Load {
    name: String,
    /// `$COUNT` is replaced.
    words: Vec<String>,
    /// Number of launches, requests or targets.
    count: u32,
    /// Time of each in nanoseconds, by method and turn.
    taken: [Vec<f64>; 3],
}

/// The environment of each method.
const WAYS: [&[(&str, &str)]; 3] = [&[], &[("FORKLESS_INHERIT", "all")], &[("FORKLESS_INHERIT", "stdio")]];

/// The programs, and how to find each.
fn loads() -> Vec<Load> {
    let new = |name: &str, count: u32, words: &str| Load {
        name: name.to_owned(),
        words: words.split(' ').map(str::to_owned).collect(),
        count,
        taken: Default::default(),
    };
    let php = |how: &str, condition: &str, rest: &str| {
        // Fewer launches: fork is slow here.
        let count = if how == "proc_open" { 20 } else { 200 };
        new(
            &format!("PHP {how}, {condition}"),
            count,
            &format!("php -n launches.php {how} {rest} $COUNT /usr/bin/true"),
        )
    };
    let lua = |how: &str, condition: &str, rest: &str| {
        let name = format!("Lua {how}, {condition}");
        new(&name, 200, &format!("lua5.4 launches.lua {how} {rest} $COUNT /usr/bin/true"))
    };
    let gawk = |name: &str, how: &str| {
        let rest = "-v count=$COUNT -v line=/usr/bin/true -f launches.awk";
        let count = if how == "getline" { 20 } else { 200 };
        new(&format!("gawk {name}, 2,000,000 entries"), count, &format!("gawk -v how={how} -v entries=2000000 {rest}"))
    };
    vec![
        php("exec", "small", "0 0"),
        php("exec", "1 GiB", "1024 0"),
        php("exec", "1 GiB, 10,000 files", "1024 10000"),
        new("PHP exec of a pipeline, 1 GiB", 200, "php -n launches.php exec 1024 0 $COUNT /usr/bin/true|/usr/bin/true"),
        php("proc_open", "1 GiB, 10,000 files", "1024 10000"),
        lua("execute", "small", "0 0"),
        lua("execute", "1 GiB", "1024 0"),
        lua("execute", "1 GiB, 10,000 files", "1024 10000"),
        lua("popen", "1 GiB, 10,000 files", "1024 10000"),
        gawk("system", "system"),
        gawk("getline", "getline"),
        new("PostgreSQL COPY FROM PROGRAM, 1,000 tables open", 200, "./postgres.sh 1000 $COUNT /usr/bin/true"),
        new("make, 500 targets", 500, "./make.sh $COUNT"),
        new("lighttpd, CGI in sh", 100, "./lighttpd.sh $COUNT cgi.sh cgi"),
        new("lighttpd, CGI in Lua with 5 os.execute", 100, "./lighttpd.sh $COUNT cgi.lua cgi"),
        new("fcgiwrap, CGI in Lua with 5 os.execute", 100, "./lighttpd.sh $COUNT cgi.lua fcgi"),
    ]
}

/// Builds the library, measures, prints a table.
///
/// # Errors
/// What cargo and the programs say.
pub fn compare(options: &Options, target: &Path) -> Result<()> {
    let place = std::path::absolute(target)?.join("real");
    dist::install(&place, target)?;
    let library = place.join("lib/libforkless_preload.so");
    let wanted = |load: &Load| options.only.as_ref().is_none_or(|word| load.name.contains(word.as_str()));
    let mut loads: Vec<_> = loads().into_iter().filter(wanted).collect();
    loads.retain(|load| match needs(load).iter().find(|program| !is_there(program)) {
        Some(missing) => {
            println!("SKIPPED: {} because {missing} is not installed", load.name);
            false
        }
        None => true,
    });
    for turn in 0..options.turns as usize {
        for load in &mut loads {
            for n in 0..WAYS.len() {
                // None always follows the same one, nor is always first.
                let way = (n * if turn % 2 == 0 { 1 } else { WAYS.len() - 1 } + turn) % WAYS.len();
                let taken = run(load, way, &library).with_context(|| load.name.clone())?;
                load.taken[way].push(taken / f64::from(load.count));
            }
        }
        eprintln!("turn {} of {}", turn + 1, options.turns);
    }
    print(&loads);
    Ok(())
}

/// The programs of a load that may be missing.
fn needs(load: &Load) -> Vec<&str> {
    match load.words[0].as_str() {
        "./postgres.sh" => vec!["psql"],
        "./make.sh" => vec!["make"],
        "./lighttpd.sh" => vec!["lighttpd", "fcgiwrap", "lua5.4", "curl"],
        program => vec![program],
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A server's program need not be in everyone's.
    let known = ["/usr/sbin", "/sbin"].into_iter().map(PathBuf::from);
    std::env::split_paths(&path).chain(known).any(|directory| directory.join(program).exists())
}

/// Nanoseconds between `go` and `done`.
fn run(load: &Load, way: usize, library: &Path) -> Result<f64> {
    let words = load.words.iter().map(|word| word.replace("$COUNT", &load.count.to_string()));
    let mut command = Command::new("timeout");
    command.args(["-k", "10", "300"]).args(words).current_dir(dist::root().join("bench/real"));
    command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env_remove("LD_PRELOAD").env_remove("FORKLESS_LOG");
    if way > 0 {
        command.env("LD_PRELOAD", library).envs(WAYS[way].iter().copied());
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("timeout")?;
    let measured = measure(&mut child);
    // It ends by itself, and within its time.
    drop(child.stdin.take());
    let status = child.wait()?;
    let nanos = measured?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(nanos)
}

fn measure(child: &mut std::process::Child) -> Result<f64> {
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut expect = |wanted: &str| match lines.next().transpose()? {
        Some(line) if line == wanted => Ok(()),
        other => bail!("{other:?} instead of {wanted:?}"),
    };
    expect("ready")?;
    let began = Instant::now();
    child.stdin.as_mut().context("no input")?.write_all(b"go\n")?;
    expect("done")?;
    Ok(began.elapsed().as_nanos() as f64)
}

fn print(loads: &[Load]) {
    println!("{:<50}{:>12}{:>20}{:>26}", "µs for each", "without", "with: µs, ratio", "with stdio: µs, ratio");
    for load in loads {
        let [without, with, stdio] = &load.taken;
        let micros = |taken: &[f64]| median(taken.to_vec()) / 1000.0;
        let beside = |taken: &[f64]| format!("{:.0}, {:.2}", micros(taken), ratio(taken, without));
        println!("{:<50}{:>12.0}{:>20}{:>26}", load.name, micros(without), beside(with), beside(stdio));
    }
}

#[cfg(test)]
mod tests {
    use super::{WAYS, loads, run};
    use crate::dist;

    /// Every script is there, and a program that does not say `done` is no measurement.
    #[test]
    fn loads_are_complete() {
        for mut load in loads() {
            for word in load.words.iter().filter(|word| word.starts_with("./") || word.starts_with("launches.")) {
                assert!(dist::root().join("bench/real").join(word).exists(), "{word}");
            }
            assert!(load.words.iter().any(|word| word.contains("$COUNT")), "{}", load.name);
            load.words = ["sh", "-c", "echo ready; read -r go; echo no"].map(str::to_owned).to_vec();
            assert!(run(&load, 0, std::path::Path::new("/")).is_err());
            load.words[2] = "echo ready; read -r go; echo done".to_owned();
            assert!(run(&load, 0, std::path::Path::new("/")).is_ok_and(|taken| taken > 0.0));
        }
        assert_eq!(WAYS.len(), 3);
    }
}
