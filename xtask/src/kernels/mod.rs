//! Real kernels of Debian's, booted in qemu without hardware support, with this machine's test programs in them:
//! [platforms](../../../docs/platforms.md).
//!
//! The guest sees the host's root, read-only, by 9p, with a layer in memory above it, and a cgroup v2 hierarchy with controllers.

mod arch;
pub mod debian;
pub(crate) mod guest;
mod image;
pub(crate) mod output;
pub mod page;
pub mod record;
mod suites;

use anyhow::{Result, bail, ensure};
use std::fs;
use std::path::Path;
use testing::dist::root;
use testing::packages;

/// What is run, and in which kernels.
#[derive(clap::Args)]
pub struct Options {
    /// Linux versions, of 5.10, 6.1, 6.12 and 7.2 (default: all)
    versions: Vec<String>,
    /// The architecture of the guests
    #[arg(long, value_enum, default_value_t)]
    arch: arch::Arch,
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

/// Debian packages of what the tests in the guests use.
const NEEDED: [&str; 10] = [
    "debian-archive-keyring",
    "pkg-config",
    "libperl-dev",
    "libanyevent-fork-perl",
    "libio-async-perl",
    "libmojolicious-perl",
    "libtest-pod-perl",
    "gdb",
    "strace",
    "linux-perf",
];

fn write_page() -> Result<()> {
    Ok(fs::write(root().join(page::PAGE), page::page(&root())?)?)
}

/// Boots each kernel and runs the tests.
///
/// # Errors
/// A test failed, or qemu cannot be installed. A kernel that cannot be downloaded is skipped, with a line that reports it.
pub fn run(options: &Options, target: &Path) -> Result<()> {
    if options.page {
        return write_page();
    }
    let known = |version: &str| KERNELS.iter().any(|(known, _)| *known == version);
    if let Some(unknown) = options.versions.iter().find(|version| !known(version)) {
        bail!("unknown kernel {unknown}: choose from {}", KERNELS.map(|(version, _)| version).join(", "));
    }
    packages::install(&[options.arch.packages(), &NEEDED].concat())?;
    let target = std::path::absolute(target)?;
    packages::unpack(&target)?;
    let place = target.join("kernels");
    ensure!(!(options.record && options.choice.is_part()), "--record takes whole programs, without names of tests");
    // Before the build, because the sources may change later.
    let commit = record::commit(&root())?;
    let jobs = suites::jobs(&options.choice, options.arch, &target)?;
    let programs = guest::Programs::copy(options.arch, &target)?;
    let directories = [root().canonicalize()?, target];
    let named = options.versions.iter().filter_map(|version| KERNELS.iter().find(|(known, _)| known == version));
    let wanted: Vec<_> = if options.versions.is_empty() { KERNELS.iter().collect() } else { named.collect() };
    let (mut is_good, mut had) = (true, false);
    for &&(version, suites) in &wanted {
        let column = options.arch.column(version);
        let place = place.join(column.replace(' ', "-"));
        fs::create_dir_all(&place)?;
        let _lock = record::lock(&place)?;
        let kernel = match debian::fetch(version, suites, options.arch, &place) {
            Ok(kernel) => kernel,
            Err(error) => {
                println!("SKIPPED: Linux {version} because {error:#}");
                continue;
            }
        };
        println!("== Linux {} ({})", kernel.release, kernel.package);
        had = true;
        guest::run(&kernel, &options.machine, &jobs, &directories, &programs, &place, &mut |done| {
            is_good &= options.take(&done, &column, &kernel.release, &commit)?;
            Ok(())
        })?;
    }
    ensure!(had, "no kernel could be downloaded");
    ensure!(is_good, if options.choice.is_line() { "the line failed" } else { "not every test passed" });
    Ok(())
}

impl Options {
    /// Prints the result of a job, and adds it to the record; returns whether it was good.
    fn take(&self, done: &guest::Done, version: &str, release: &str, commit: &str) -> Result<bool> {
        if self.choice.is_line() {
            println!("{}", done.output);
            return Ok(done.status == Some(0));
        }
        let job = record::job(done, &self.choice.env, commit, release)?;
        println!("{:>10}: {}, {} s", job.name, job.cell(), job.seconds);
        job.failures().for_each(|name| println!("            FAILED: {name}"));
        job.skipped.iter().for_each(|(line, times)| println!("            SKIPPED: {line} ({times})"));
        let is_good = job.is_good();
        if self.record {
            let _lock = record::lock(&root().join("bench/record"))?;
            record::write(&root(), record::KERNELS, record::Entry { version, job })?;
            write_page()?;
        }
        Ok(is_good)
    }
}
