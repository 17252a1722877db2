//! The runners: their command lines, and where each is found.

use crate::dist;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version that is installed from crates.io.
const RUST_PARALLEL: &str = "1.24.0";

/// A runner in one of its modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    /// A C loop over posix_spawn and waitpid(-1): the baseline.
    Loop,
    Xargs,
    BusyboxXargs,
    Moreutils,
    /// Without capture (`-u`).
    GnuParallel,
    /// Captured output in the order of the jobs (`-k`).
    GnuParallelOrdered,
    /// Captured output, in any order.
    RustParallel,
    ForklessXargs,
    ForklessParallel,
    ForklessParallelOrdered,
    /// The library `forkless-jobs`, from a small process and from one with 1 GiB of memory.
    Library,
    LibraryLarge,
}

impl Runner {
    pub(super) const ALL: [Runner; 12] = [
        Runner::Loop,
        Runner::Xargs,
        Runner::BusyboxXargs,
        Runner::Moreutils,
        Runner::GnuParallel,
        Runner::GnuParallelOrdered,
        Runner::RustParallel,
        Runner::ForklessXargs,
        Runner::ForklessParallel,
        Runner::ForklessParallelOrdered,
        Runner::Library,
        Runner::LibraryLarge,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Runner::Loop => "posix_spawn loop",
            Runner::Xargs => "xargs",
            Runner::BusyboxXargs => "busybox xargs",
            Runner::Moreutils => "moreutils parallel",
            Runner::GnuParallel => "GNU parallel -u",
            Runner::GnuParallelOrdered => "GNU parallel -k",
            Runner::RustParallel => "rust-parallel",
            Runner::ForklessXargs => "forkless xargs",
            Runner::ForklessParallel => "forkless parallel -u",
            Runner::ForklessParallelOrdered => "forkless parallel -k",
            Runner::Library => "forkless-jobs",
            Runner::LibraryLarge => "forkless-jobs, 1 GiB",
        }
    }

    /// Is it one of this project?
    pub(super) fn is_ours(self) -> bool {
        self.name().starts_with("forkless")
    }

    /// Is it of another project? The baseline is not.
    pub(super) fn is_peer(self) -> bool {
        !self.is_ours() && self != Runner::Loop
    }

    /// Does it write the output in the order of the jobs?
    pub(super) fn is_ordered(self) -> bool {
        matches!(self, Runner::GnuParallelOrdered | Runner::ForklessParallelOrdered)
    }

    /// Does it print the time that it took, without its setup?
    pub(super) fn times_itself(self) -> bool {
        matches!(self, Runner::Library | Runner::LibraryLarge)
    }

    /// By how much fewer jobs it gets where nothing is timed, because it is slow.
    fn divisor(self) -> u64 {
        if matches!(self, Runner::GnuParallel | Runner::GnuParallelOrdered) { 20 } else { 1 }
    }

    /// The number of jobs that it gets, where nothing is timed and others get `jobs`.
    pub(super) fn share(self, jobs: u64) -> u64 {
        (jobs / self.divisor()).max(jobs.min(20))
    }
}

/// What a runner shall do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) program: &'a Path,
    pub(super) slots: usize,
    /// The jobs get the numbers 1 to this as their argument.
    pub(super) jobs: u64,
}

/// The locations of all runners.
pub(super) struct Places {
    place: PathBuf,
    forkless: PathBuf,
    library: Option<PathBuf>,
    rust_parallel: Option<PathBuf>,
}

/// The binaries of this project.
pub struct Built {
    /// The command.
    pub forkless: PathBuf,
    /// The example `many` of the library.
    pub library: Option<PathBuf>,
}

impl Built {
    /// Builds them in cargo's directory `target`, in release mode.
    ///
    /// # Errors
    /// If cargo fails.
    pub(super) fn release(target: &Path) -> Result<Built> {
        let target = std::path::absolute(target)?;
        let cargo = || Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for what in [["--package", "forkless-cli", "--bins"], ["--package", "forkless-jobs", "--examples"]] {
            let mut build = cargo();
            build.current_dir(dist::root()).args(["build", "--quiet", "--release", "--locked"]).args(what);
            dist::run(build.arg("--target-dir").arg(&target))?;
        }
        let release = target.join("release");
        Ok(Built { forkless: release.join("forkless"), library: Some(release.join("examples/many")) })
    }
}

impl Places {
    /// `place` has the programs of [`super::measure::Tools`].
    pub(super) fn find(place: &Path, built: Built, may_install: bool) -> Places {
        let rust_parallel = rust_parallel(place, may_install);
        Places { place: place.to_owned(), forkless: built.forkless, library: built.library, rust_parallel }
    }

    /// Why a runner cannot take part.
    pub(super) fn lacks(&self, runner: Runner) -> Option<String> {
        let needs = |program: &str, about: &str| {
            let answers = Command::new(program).arg(about).stdin(Stdio::null()).output();
            answers.is_err().then(|| format!("{program} is not installed"))
        };
        match runner {
            Runner::Loop => None,
            Runner::Xargs => needs("xargs", "--version"),
            Runner::BusyboxXargs => needs("busybox", "true"),
            Runner::Moreutils => needs("parallel.moreutils", "-h"),
            Runner::GnuParallel | Runner::GnuParallelOrdered => {
                let output = Command::new("parallel").arg("--version").output();
                let is_gnu = output.is_ok_and(|output| output.stdout.starts_with(b"GNU"));
                (!is_gnu).then(|| "GNU parallel is not installed".to_owned())
            }
            Runner::RustParallel => match self.rust_parallel {
                Some(_) => None,
                None => Some(format!("cargo install rust-parallel --version {RUST_PARALLEL} was not possible")),
            },
            Runner::ForklessXargs => self.lacks_command("xargs"),
            Runner::ForklessParallel | Runner::ForklessParallelOrdered => self.lacks_command("parallel"),
            Runner::Library | Runner::LibraryLarge => match self.library {
                Some(_) => None,
                None => Some("the example of the library is not built".to_owned()),
            },
        }
    }

    fn lacks_command(&self, name: &str) -> Option<String> {
        let output = Command::new(&self.forkless).args([name, "--help"]).output();
        let has_it = output.is_ok_and(|output| output.status.success());
        (!has_it).then(|| format!("this build has no forkless {name}"))
    }

    /// The versions of the others.
    pub(super) fn versions(&self, shell: &Path) -> Vec<(String, String)> {
        let first_line = |words: &[&str]| {
            let output = Command::new(words[0]).args(&words[1..]).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(text.lines().next()?.to_owned())
        };
        let known = [
            ("called from", fs::canonicalize(shell).ok().map(|shell| shell.display().to_string())),
            ("xargs", first_line(&["xargs", "--version"])),
            ("busybox", first_line(&["busybox"])),
            ("GNU parallel", first_line(&["parallel", "--version"])),
            ("rust-parallel", self.rust_parallel.as_ref().map(|_| RUST_PARALLEL.to_owned())),
            ("moreutils", first_line(&["dpkg-query", "-W", "-f", "${Version}", "moreutils"])),
        ];
        known.into_iter().filter_map(|(name, version)| Some((name.to_owned(), version?))).collect()
    }

    /// The arguments. All get one number for each job, and run the program without a shell if they can.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub(super) fn words(&self, runner: Runner, work: Work) -> Result<Vec<String>> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
        let (slots, jobs, program) = (work.slots.to_string(), work.jobs.to_string(), text(work.program)?);
        let own = |name: &str| text(&self.place.join(name));
        let forkless = text(&self.forkless)?;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Ok(match runner {
            Runner::Loop => words(&[&own("loop")?, &slots, &jobs, &program]),
            Runner::Xargs => words(&["xargs", "-n", "1", "-P", &slots, &program]),
            Runner::BusyboxXargs => words(&["busybox", "xargs", "-n", "1", "-P", &slots, &program]),
            Runner::Moreutils => {
                let mut all: Vec<String> = words(&["parallel.moreutils", "-j", &slots, &program, "--"]);
                all.extend((1..=work.jobs).map(|number| number.to_string()));
                all
            }
            Runner::GnuParallel => words(&["parallel", "-j", &slots, "-u", &program, "{}"]),
            Runner::GnuParallelOrdered => words(&["parallel", "-j", &slots, "-k", &program, "{}"]),
            Runner::RustParallel => {
                let found = self.rust_parallel.as_deref().context("rust-parallel")?;
                words(&[&text(found)?, "-j", &slots, &program])
            }
            Runner::ForklessXargs => words(&[&forkless, "xargs", "-n", "1", "-P", &slots, &program]),
            Runner::ForklessParallel => words(&[&forkless, "parallel", "-j", &slots, "-u", &program, "{}"]),
            Runner::ForklessParallelOrdered => words(&[&forkless, "parallel", "-j", &slots, "-k", &program, "{}"]),
            Runner::Library | Runner::LibraryLarge => {
                let library = text(self.library.as_deref().context("no library")?)?;
                let mebibytes = if runner == Runner::LibraryLarge { "1024" } else { "0" };
                words(&[&library, mebibytes, &slots, &jobs, &program])
            }
        })
    }
}

/// Installs it below `place`, once.
fn rust_parallel(place: &Path, may_install: bool) -> Option<PathBuf> {
    let root = place.join("rust-parallel");
    let program = root.join("bin/rust-parallel");
    if !program.exists() && may_install {
        fs::create_dir_all(&root).ok()?;
        let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        install.args(["install", "--quiet", "--locked", "rust-parallel", "--version", RUST_PARALLEL, "--root"]);
        install.arg(&root).env("CARGO_TARGET_DIR", root.join("target"));
        // Its own settings must not apply to it.
        let _ = install.current_dir(place).status();
    }
    program.exists().then_some(program)
}
