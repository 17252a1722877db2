//! The tests in other releases of Debian, each with its own compiler, glibc and interpreters: [platforms](../../../docs/platforms.md).
//!
//! A release is a directory that debootstrap makes. A part of the tests runs there with mounts and processes of its own, sees the
//! sources read-only, and has Rust's toolchain and registry from this machine.

mod system;

use crate::kernels::record;
use crate::kernels::{guest::Done, page};
use crate::release;
use anyhow::{Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;
use testing::dist::root;

/// Records of the distributions: `bench/record/DATE-distros`.
pub const RECORD: &str = "distros";

/// The options of `cargo xtask distros`.
#[derive(clap::Args)]
pub struct Options {
    /// Releases of Debian: 11, 12, 13, sid (default: all)
    names: Vec<String>,
    /// Only these parts, such as Rust or Node
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Multiply the counts of the tests by this
    #[arg(long, default_value_t = 0.3)]
    scale: f64,
    /// Stop a part after this many minutes
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Add the results to the record in bench/record, each as soon as it is there, and write docs/platforms.md
    #[arg(long)]
    record: bool,
    /// Run nothing: write docs/platforms.md from the record
    #[arg(long)]
    page: bool,
    /// Skip a system that cannot be made, instead of failing
    #[arg(skip)]
    may_lack: bool,
}

#[derive(Deserialize)]
struct Cells {
    distribution: Vec<Distribution>,
    part: Vec<Part>,
}

#[derive(Deserialize)]
struct Distribution {
    name: String,
    suite: String,
    #[serde(default)]
    security: bool,
}

/// A part of the tests.
#[derive(Deserialize)]
pub struct Part {
    pub name: String,
    run: String,
    packages: Option<String>,
    /// A script for this machine that prints the directory of a toolchain.
    toolchain: Option<String>,
    #[serde(default)]
    user: bool,
    #[serde(default)]
    ci: bool,
    /// It uses the packages that this machine makes, if this is that release.
    packages_of: Option<String>,
    /// Where it is not run, with the reason.
    #[serde(default)]
    pub not_run: BTreeMap<String, String>,
}

fn table() -> Result<Cells> {
    Ok(toml::from_str(include_str!("distros.toml"))?)
}

/// The page as it should be: with the newest record of distributions between its marks.
///
/// # Errors
/// A file cannot be read, or the page has no marks.
pub fn page(root: &Path) -> Result<String> {
    let parts = table()?.part;
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let not_run = |name: &str, version: &str| {
        let part = parts.iter().find(|part| part.name == name)?;
        part.not_run.get(version).map(|why| format!("not run: {why}"))
    };
    let table = page::PageTable { system: "Debian", rows: &names, not_run: &not_run };
    page::with_table(root, RECORD, &table)
}

/// Whether this machine is that release of Debian: os-release(5).
fn is_release(version: &str) -> bool {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    ["ID=debian".to_owned(), format!("VERSION_ID=\"{version}\"")].iter().all(|line| text.lines().any(|one| one == line))
}

fn write_page() -> Result<()> {
    Ok(fs::write(root().join(page::PAGE), page(&root())?)?)
}

/// Runs the parts.
///
/// # Errors
/// A test failed, a system cannot be made, or a name is unknown.
pub fn run(options: &Options, target: &Path) -> Result<()> {
    if options.page {
        return write_page();
    }
    let Cells { distribution, part } = table()?;
    for name in &options.names {
        ensure!(distribution.iter().any(|one| one.name == *name), "no release {name}: there are 11, 12, 13 and sid");
    }
    for name in &options.only {
        let names: Vec<_> = part.iter().map(|part| part.name.as_str()).collect();
        ensure!(names.contains(&name.as_str()), "no part {name:?}: there are {}", names.join("; "));
    }
    let is_in = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    let target = std::path::absolute(target)?;
    // Before the build, because the sources may change later.
    let commit = record::commit(&root())?;
    let mut is_good = true;
    std::fs::create_dir_all(target.join("distros"))?;
    // One run at a time: a system has one build.
    let _lock = record::lock(&target.join("distros"))?;
    for one in distribution.iter().filter(|one| is_in(&options.names, &one.name)) {
        let mut system = None;
        for part in part.iter().filter(|part| is_in(&options.only, &part.name)) {
            if let Some(why) = part.not_run.get(&one.name) {
                println!("SKIPPED: {} on Debian {} because {why}", part.name, one.name);
                continue;
            }
            if let Some(wanted) = part.packages_of.as_ref().filter(|wanted| !is_release(wanted)) {
                println!("SKIPPED: {} on Debian {} because this machine is not Debian {wanted}", part.name, one.name);
                continue;
            }
            let begin = Instant::now();
            let (status, output) = if part.packages_of.is_some() {
                packages(&one.suite, &target)
            } else {
                let mut ready = || {
                    let system = match system.take() {
                        Some(system) => system,
                        None => system::System::new(one, &target.join("distros"))?,
                    };
                    system.add(part.packages.as_deref())?;
                    anyhow::Ok(system)
                };
                let ready = match ready() {
                    Err(error) if options.may_lack => {
                        println!("SKIPPED: {} on Debian {} because it cannot be made: {error:#}", part.name, one.name);
                        continue;
                    }
                    ready => system.insert(ready?),
                };
                ready.run(part, options)?
            };
            let seconds = begin.elapsed().as_secs();
            let done = Done { name: part.name.clone(), status, seconds, output };
            let mut job = record::job(&done, &[], &commit, &one.suite)?;
            println!("Debian {}, {}: {}, {seconds} s", one.name, part.name, job.cell());
            job.failures().for_each(|name| println!("    FAILED: {name}"));
            job.skipped.iter().for_each(|(line, times)| println!("    SKIPPED: {line} ({times})"));
            if !job.is_good() {
                is_good = false;
                let log =
                    target.join("distros").join(format!("{}-{}.log", one.suite, part.name.replace([' ', ','], "-")));
                std::fs::write(&log, &done.output)?;
                println!("    output: {}, its last lines:", log.display());
                let lines: Vec<_> = done.output.lines().collect();
                lines[lines.len().saturating_sub(60)..].iter().for_each(|line| println!("    | {line}"));
            }
            if options.record {
                // The reasons, each once.
                let mut reasons = BTreeMap::new();
                for (line, times) in std::mem::take(&mut job.skipped) {
                    let reason = line.split_once(" because ").or_else(|| line.split_once(": ")).map(|(_, why)| why);
                    *reasons.entry(reason.unwrap_or(&line).to_owned()).or_insert(0) += times;
                }
                job.skipped = reasons;
                let _lock = record::lock(&root().join("bench/record"))?;
                record::write(&root(), RECORD, record::Entry { version: &one.name, job })?;
                write_page()?;
            }
        }
    }
    if !is_good {
        bail!("not every test passed");
    }
    Ok(())
}

impl Options {
    /// What CI runs: as much as there is time for.
    ///
    /// # Errors
    /// If `distros.toml` is invalid.
    pub fn of_ci() -> Result<Self> {
        let only = table()?.part.into_iter().filter(|part| part.ci).map(|part| part.name).collect();
        Ok(Self { names: vec!["13".into()], only, scale: 0.1, minutes: 20, record: false, page: false, may_lack: true })
    }
}

/// Uses the packages of `cargo xtask package` in a new system.
fn packages(suite: &str, target: &Path) -> (Option<i32>, String) {
    let result =
        release::use_in(suite, &target.join("packages"), &target.join("distros").join(format!("{suite}-packages")));
    match result {
        Ok(passed) => (Some(0), format!("{}test result: ok. {} passed; 0 failed\n", lines(&passed), passed.len())),
        Err(error) => (Some(1), format!("test {error:#} ... FAILED\ntest result: . 0 passed; 1 failed\n")),
    }
}

fn lines(names: &[&str]) -> String {
    names.iter().map(|name| format!("test {name} ... ok\n")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_oldest_rust_has_a_row() {
        let name = concat!("Rust ", env!("CARGO_PKG_RUST_VERSION"));
        assert!(super::table().unwrap().part.iter().any(|part| part.name == name));
    }
}
