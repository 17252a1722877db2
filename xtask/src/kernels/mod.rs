//! Real kernels of Debian's, booted in qemu without hardware support, with this machine's test programs in them:
//! [platforms](../../../docs/platforms.md).
//!
//! The guest sees the host's root, read-only, by 9p, with a layer in memory above it, and a cgroup v2 hierarchy with controllers.

mod debian;
mod guest;
mod image;
mod suites;
mod table;

use crate::dist::root;
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::process::Command;
use table::Run;

/// What is run, and in which kernels.
#[derive(clap::Args)]
pub struct Options {
    /// Linux versions, of 5.10, 6.1, 6.12 and 7.2 (default: all)
    versions: Vec<String>,
    #[command(flatten)]
    choice: suites::Choice,
    #[command(flatten)]
    machine: guest::Machine,
    /// Write the results to bench/record and the table in docs/platforms.md
    #[arg(long)]
    record: bool,
}

/// Versions, and the suites of Debian that have them.
const KERNELS: [(&str, &[&str]); 4] = [
    ("5.10", &["bullseye", "bullseye-security"]),
    ("6.1", &["bookworm"]),
    ("6.12", &["trixie", "bookworm-backports"]),
    ("7.2", &["sid"]),
];

/// Boots each kernel and runs the tests.
///
/// # Errors
/// A test failed, or there is no qemu. A kernel that cannot be had is skipped, and said.
pub fn run(options: &Options, target: &Path) -> Result<()> {
    let known = |version: &str| KERNELS.iter().any(|(known, _)| *known == version);
    if let Some(unknown) = options.versions.iter().find(|version| !known(version)) {
        bail!("no kernel {unknown}: there are {}", KERNELS.map(|(version, _)| version).join(", "));
    }
    ensure!(
        Command::new("qemu-system-x86_64").arg("--version").output().is_ok(),
        "qemu-system-x86_64 is missing: apt-get install qemu-system-x86 busybox-static debian-archive-keyring"
    );
    let target = std::path::absolute(target)?;
    let place = target.join("kernels");
    let jobs = suites::jobs(&options.choice, &target)?;
    let directories = [root().canonicalize()?, target];
    let wanted = |version: &str| options.versions.is_empty() || options.versions.iter().any(|other| other == version);
    let mut runs = Vec::new();
    for (version, suites) in KERNELS.into_iter().filter(|(version, _)| wanted(version)) {
        let kernel = match debian::fetch(version, suites, "amd64", &place.join(version)) {
            Ok(kernel) => kernel,
            Err(error) => {
                println!("SKIPPED: Linux {version} because {error:#}");
                continue;
            }
        };
        println!("== Linux {} ({})", kernel.release, kernel.package);
        let done = guest::run(&kernel, &options.machine, &jobs, &directories, &place.join(version))?;
        let run = Run::new(version, &kernel.release, &done);
        print!("{}", run.summary());
        if options.choice.shows_output() {
            done.iter().for_each(|done| println!("{}", done.output));
        }
        runs.push(run);
    }
    ensure!(!runs.is_empty(), "no kernel could be had");
    let is_good = runs.iter().all(Run::is_good);
    if options.record {
        table::record(runs)?;
    }
    ensure!(is_good, "not every test passed");
    Ok(())
}
