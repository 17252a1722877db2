//! Real kernels of Debian's, booted in qemu without hardware support, with this machine's test programs in them:
//! [platforms](../../../docs/platforms.md).
//!
//! The guest sees the host's root, read-only, by 9p, with a layer in memory above it, and a cgroup v2 hierarchy with controllers.

pub(crate) mod debian;
mod guest;
mod image;
mod output;
pub mod page;
pub mod record;
mod suites;

use crate::dist::root;
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::process::Command;

/// What is run, and in which kernels.
#[derive(clap::Args)]
pub struct Options {
    /// Linux versions, of 5.10, 6.1, 6.12 and 7.2 (default: all)
    versions: Vec<String>,
    #[command(flatten)]
    choice: suites::Choice,
    #[command(flatten)]
    machine: guest::Machine,
    /// Add the results to the record in bench/record, each as soon as it is there, and write the pages that show it
    #[arg(long)]
    record: bool,
    /// Run nothing: write the pages from the record
    #[arg(long)]
    page: bool,
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
    if options.page {
        return write_pages();
    }
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
    let programs = guest::Programs::copy(target.join("debug"), place.join("programs"))?;
    let directories = [root().canonicalize()?, target];
    let named = options.versions.iter().filter_map(|version| KERNELS.iter().find(|(known, _)| known == version));
    let wanted: Vec<_> = if options.versions.is_empty() { KERNELS.iter().collect() } else { named.collect() };
    let (mut is_good, mut had) = (true, false);
    for &&(version, suites) in &wanted {
        let kernel = match debian::fetch(version, suites, "amd64", &place.join(version)) {
            Ok(kernel) => kernel,
            Err(error) => {
                println!("SKIPPED: Linux {version} because {error:#}");
                continue;
            }
        };
        println!("== Linux {} ({})", kernel.release, kernel.package);
        had = true;
        let place = place.join(version);
        guest::run(&kernel, &options.machine, &jobs, &directories, &programs, &place, &mut |done| {
            is_good &= options.take(&done, version, &kernel.release)?;
            Ok(())
        })?;
    }
    ensure!(had, "no kernel could be had");
    ensure!(is_good, if options.choice.is_line() { "the line failed" } else { "not every test passed" });
    Ok(())
}

impl Options {
    /// Shows what came of a job, and adds it to the record; was it good?
    fn take(&self, done: &guest::Done, version: &str, release: &str) -> Result<bool> {
        if self.choice.is_line() {
            println!("{}", done.output);
            return Ok(done.status == Some(0));
        }
        let job = record::job(done, &self.choice.env, &root())?;
        println!("{:>10}: {}, {} s", job.name, job.cell(), job.seconds);
        job.failures().for_each(|name| println!("            FAILED: {name}"));
        job.skipped.iter().for_each(|(line, times)| println!("            SKIPPED: {line} ({times})"));
        let is_good = job.is_good();
        if self.record {
            record::write(&root(), record::Entry { version, release, job, is_part: self.choice.is_part() })?;
            write_pages()?;
        }
        Ok(is_good)
    }
}

/// Those that show what ran in which kernel.
fn write_pages() -> Result<()> {
    page::write(&root())?;
    crate::trust::write(&root())
}
