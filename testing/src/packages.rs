//! Installs Debian and Python packages that tests need, where possible.
//!
//! A test whose program is still missing afterwards prints `SKIPPED: …`.

use crate::{root, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a module was built, or why it cannot be built here.
pub type Built = Result<PathBuf, String>;

/// The environment variable that forbids installation: `cargo xtask test --no-install`.
pub const NO_INSTALL: &str = "FORKLESS_NO_INSTALL";

/// Debian packages, each with its purpose.
const DEBIAN: &[(&str, &str)] = &[
    ("libuv1-dev", "the benchmark's libuv engine"),
    ("libglib2.0-dev", "the benchmark's GLib engine"),
    ("libproc-fastspawn-perl", "the benchmark's engine of Proc::FastSpawn"),
    ("nodejs", "the Node package, and the benchmark's Node engine"),
    ("libipc-run-perl", "the benchmark's engine of IPC::Run"),
    ("libperl-dev", "the perl distribution"),
    ("libanyevent-fork-perl", "the perl distribution's tests: it needs Proc::FastSpawn and AnyEvent"),
    ("libio-async-perl", "the perl distribution's tests"),
    ("libmojolicious-perl", "the perl distribution's tests"),
    ("libtest-pod-perl", "the perl distribution's tests"),
    ("libjna-java", "the C library's example in Java, where a JDK is installed"),
    ("php-cli", "tests of real programs"),
    ("lua5.4", "tests of real programs"),
    ("gawk", "tests of real programs"),
    ("ed", "tests of real programs"),
    ("sqlite3", "tests of real programs"),
    ("make", "tests of real programs"),
    ("ninja-build", "tests of real programs"),
    ("postgresql", "tests of real programs"),
    ("lighttpd", "tests of real programs"),
    ("fcgiwrap", "tests of real programs"),
    ("gdb", "tests of hosts under a debugger"),
    ("lldb", "tests of hosts under a debugger"),
    ("strace", "tests of hosts under a debugger; the runners' system calls"),
    ("ltrace", "tests of hosts under a debugger"),
    ("linux-perf", "tests of hosts under a debugger"),
    ("chromium", "tests of the benchmark's page"),
    ("zsh", "tests of the completions of forkless"),
    ("fish", "tests of the completions of forkless"),
    ("man-db", "tests of the man pages of forkless"),
    ("mandoc", "tests of the man pages of forkless; the site"),
    ("spin", "the models of cargo xtask models"),
    ("parallel", "GNU parallel, one of the compared runners"),
    ("libtext-csv-perl", "GNU parallel's --csv"),
    ("moreutils", "another parallel, one of the compared runners"),
    ("busybox", "its xargs, one of the compared runners"),
    ("slurm-wlm", "tests of forkless parallel on several nodes"),
    ("munge", "tests of forkless parallel on several nodes"),
    ("gearman-job-server", "tests of forkless gearman-worker and parallel --gearman: the server"),
    ("gearman-tools", "tests of forkless gearman-worker: the stock client and worker"),
    ("openssl", "tests of forkless gearman-worker: another AES"),
    ("rakudo", "the Raku distribution's tests; the curves of Raku in forkless bench background"),
];

/// The Debian packages that tests need.
pub fn names() -> impl Iterator<Item = &'static str> {
    DEBIAN.iter().map(|(name, _)| *name)
}

/// Debian packages of which tests only read files: unpacked, not installed, because they have many dependencies.
const UNPACKED: &[(&str, &str)] = &[
    ("golang-github-docker-docker-dev", "tests under Docker's seccomp profile"),
    ("golang-github-containers-common", "tests under Podman's seccomp profile"),
];

/// Unpacks these packages into `packages/NAME` of cargo's directory `target`; prints a line for each that it cannot.
///
/// # Errors
/// If the directory cannot be written to.
pub fn unpack(target: &Path) -> Result<()> {
    for (package, what) in UNPACKED {
        if !installed(package)
            && let Err(error) = unpacked(package, target)
        {
            println!("SKIPPED: {what} because {package} cannot be unpacked: {error:#}");
        }
    }
    Ok(())
}

/// The directory `packages/NAME` of cargo's directory `target` with the files of this package. Needs no root, and takes a package
/// that conflicts with installed ones.
///
/// # Errors
/// If the package cannot be downloaded, or the directory cannot be written to.
pub fn unpacked(package: &str, target: &Path) -> Result<PathBuf> {
    let place = std::path::absolute(target)?.join("packages").join(package);
    if place.exists() {
        return Ok(place);
    }
    let new = place.with_extension("new");
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&new)?;
    let download = ["-q", "-o", "APT::Sandbox::User=", "download", package];
    let script = "dpkg-deb -x ./*.deb . && rm ./*.deb";
    run(Command::new("apt-get").args(download).current_dir(&new))?;
    run(Command::new("sh").args(["-c", script]).current_dir(&new))?;
    // Last, so that an incomplete one is created again.
    fs::rename(&new, &place)?;
    Ok(place)
}

/// Installs those of these Debian packages that are missing.
///
/// # Errors
/// If apt-get fails, for example because this user is not root.
pub fn install(packages: &[&str]) -> Result<()> {
    let missing: Vec<_> = packages.iter().copied().filter(|package| !installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing {}", missing.join(", "));
    let mut words = vec!["install", "-q", "-y", "--no-install-recommends"];
    words.extend(&missing);
    apt(&["update", "-q"]).and_then(|()| apt(&words)).with_context(|| format!("missing: {}", missing.join(", ")))
}

/// Installs missing packages, if this is Debian and the user is root; prints a line otherwise.
///
/// # Errors
/// If /proc is not mounted.
pub fn debian() -> Result<()> {
    let missing: Vec<_> = DEBIAN.iter().filter(|(package, _)| !installed(package)).collect();
    let Some((first, _)) = missing.first() else { return Ok(()) };
    for (package, what) in &missing {
        println!("missing: {package}, for {what}");
    }
    if fs::metadata("/proc/self").context("no /proc")?.uid() != 0 || !has("apt-get") {
        println!(
            "SKIPPED: {} packages from {first} on, because apt-get needs root, or is not installed",
            missing.len()
        );
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|(package, _)| *package).collect();
    if let Err(error) = install(&names) {
        println!("SKIPPED: {} packages from {first} on, because of {error:#}", missing.len());
    }
    Ok(())
}

fn installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    let output = query.args(["-W", "-f", "${db:Status-Status}", package]).stderr(Stdio::null()).output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

fn has(program: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn apt(words: &[&str]) -> Result<()> {
    let mut apt = Command::new("apt-get");
    // Do not start services of packages: tests start their own.
    apt.args(["-o", "Dpkg::Use-Pty=0", "-o", "APT::Update::Error-Mode=any"]).args(words);
    apt.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").stdin(Stdio::null());
    let status = apt.status().context("apt-get")?;
    if !status.success() {
        bail!("apt-get {}: {status}", words.join(" "));
    }
    Ok(())
}

/// Creates or updates a virtual environment in cargo's directory `target` with the packages that `requirements` pins; returns its
/// Python. Returns the reason if there is no Python 3.9 or later, or if [nothing may be installed](NO_INSTALL).
///
/// # Errors
/// If venv or pip fails.
pub fn venv(target: &Path, requirements: &Path) -> Result<Built> {
    let new_enough = ["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))"];
    let status = Command::new("python3").args(new_enough).stderr(Stdio::null()).status();
    if !status.is_ok_and(|status| status.success()) {
        return Ok(Err("no Python 3.9 or later with venv is installed".to_owned()));
    }
    let place = std::path::absolute(target)?.join("venv");
    let (python, noted) = (place.join("bin/python"), place.join("requirements.txt"));
    let wanted =
        fs::read_to_string(root().join(requirements)).with_context(|| format!("{}", requirements.display()))?;
    if fs::read_to_string(&noted).is_ok_and(|have| have == wanted) && python.exists() {
        return Ok(Ok(python));
    }
    if std::env::var_os(NO_INSTALL).is_some() {
        return Ok(Err(format!("nothing may be installed ({NO_INSTALL} is set)")));
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    run(pip.arg(root().join(requirements)))?;
    // Last, so that an incomplete one is created again.
    fs::write(noted, wanted)?;
    Ok(Ok(python))
}
