//! Builds the Perl distribution, the Python package and the Node package as their users do, for their own tests, for the benchmark and for its tests.

use crate::once::{done, is_of_this_run};
use crate::packages::Built;
use crate::{dist, packages};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Packages that the build of the Python package needs.
const REQUIREMENTS: &str = "bindings/python/requirements.txt";

/// Serializes builds of tests that run concurrently.
fn building() -> MutexGuard<'static, ()> {
    static BUILDING: Mutex<()> = Mutex::new(());
    BUILDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The profile of the Python package and the Node package.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The profile of the tests, so that compiled dependencies are shared with them.
    Dev,
    /// The profile of releases.
    Release,
}

/// The built modules.
pub struct Modules {
    /// The copy of the Perl distribution in which it was built.
    pub perl: Built,
    /// The interpreter of a virtual environment with the Python package.
    pub python: Built,
    /// A directory `node_modules` with the Node package.
    pub node: Built,
}

impl Modules {
    /// Builds them below `place`, with libraries from cargo's directory `target`.
    ///
    /// # Errors
    /// If one could be built here but the build failed.
    pub fn build(place: &Path, target: &Path, profile: Profile) -> Result<Self> {
        let (place, target) = (std::path::absolute(place)?, std::path::absolute(target)?);
        let (for_perl, for_python) = (place.join("perl"), place.join("python"));
        let perl = perl(&for_perl, &target)?;
        // Without a package index for pip, the build requirements cannot be installed.
        let venv = {
            let _building = building();
            if is_ours(&for_python) { packages::venv(&for_python, Path::new(REQUIREMENTS)).map(drop) } else { Ok(()) }
        };
        let python = match venv {
            Err(error) => Err(format!("{error:#}")),
            Ok(()) => python(&for_python, &target, profile)?,
        };
        let node = node(&place.join("node"), &target, profile)?;
        Ok(Self { perl, python, node })
    }

    /// Makes the command find them: by PERL5LIB, by NODE_PATH, and by `python3` in PATH.
    ///
    /// # Errors
    /// If the name of a directory contains a colon.
    pub fn add_to<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command> {
        if let Ok(copy) = &self.perl {
            command.env("PERL5LIB", before("PERL5LIB", &["arch", "lib"].map(|part| copy.join("blib").join(part)))?);
        }
        if let Ok(python) = &self.python {
            let programs = python.parent().context("a directory")?.to_owned();
            command.env("PATH", before("PATH", &[programs])?);
        }
        if let Ok(node) = &self.node {
            command.env("NODE_PATH", before("NODE_PATH", &[node.to_owned()])?);
        }
        Ok(command)
    }

    /// The modules, with the common prefix of their methods in the benchmark.
    fn contestants(&self) -> [(&'static str, &Built); 3] {
        [("forkless-perl-", &self.perl), ("forkless-cpython", &self.python), ("forkless-node-", &self.node)]
    }

    /// Whether this is a method of a module that was built.
    pub fn is_required(&self, name: &str) -> bool {
        self.contestants().into_iter().any(|(begin, built)| built.is_ok() && name.starts_with(begin))
    }

    /// The missing modules, one line each.
    pub fn skipped(&self) -> Vec<String> {
        let line = |(names, built): (&str, &Built)| {
            built.as_ref().err().map(|why| format!("SKIPPED: the benchmark's rows of {names}… because {why}"))
        };
        self.contestants().into_iter().filter_map(line).collect()
    }

    /// Checks that each method of a built module has a row in a record of the benchmark.
    ///
    /// # Errors
    /// If one has no row, or the record has no such method at all.
    pub fn have_rows(&self, record: &serde_json::Value) -> Result<()> {
        let engines = record["machine"]["engines"].as_object().context("no engines")?;
        let rows = record["rows"].as_array().context("no rows")?;
        let wanted: Vec<_> = engines.keys().filter(|name| self.is_required(name)).collect();
        let columns = record["columns"].as_array().context("no columns")?;
        let launcher = columns.iter().position(|name| name == "launcher").context("no launchers")?;
        let methods: Vec<_> = rows.iter().filter_map(|group| group["methods"].as_array()).flatten().collect();
        let missing = wanted.iter().find(|name| !methods.iter().any(|row| row[launcher] == ***name));
        ensure!(missing.is_none(), "no rows of {missing:?}, although its module is built");
        ensure!(!wanted.is_empty() || self.contestants().iter().all(|(_, built)| built.is_err()), "no contestants");
        Ok(())
    }
}

/// The value of an environment variable with these directories prepended.
fn before(name: &str, directories: &[PathBuf]) -> Result<OsString> {
    let old = std::env::var_os(name).unwrap_or_default();
    let old = std::env::split_paths(&old).filter(|directory| !directory.as_os_str().is_empty());
    Ok(std::env::join_paths(directories.iter().cloned().chain(old))?)
}

/// Builds bindings/perl in `Forkless` below `place`, with a library from cargo's directory `target`.
///
/// # Errors
/// If cargo, perl or make fails.
pub fn perl(place: &Path, target: &Path) -> Result<Built> {
    let _building = building();
    let copy = place.join("Forkless");
    if !is_ours(place) {
        // The owner of the directory may have built it there.
        let there = copy.join("blib/arch/auto/Forkless/Forkless.so").exists();
        return Ok(if there { Ok(copy) } else { Err("this user cannot write to cargo's directory".to_owned()) });
    }
    if is_of_this_run(place) {
        return Ok(Ok(copy));
    }
    if let Err(why) = has_headers() {
        return Ok(Err(why));
    }
    let prefix = place.join("prefix");
    dist::install_once(&prefix, target)?;
    perl_with(&prefix, &copy)?;
    done(place)?;
    Ok(Ok(copy))
}

/// Builds bindings/perl in the directory `copy`, which is replaced, with the library that is installed below `prefix`.
///
/// # Errors
/// If a file of the MANIFEST is missing, or perl or make fails.
pub fn perl_with(prefix: &Path, copy: &Path) -> Result<()> {
    let from = dist::root().join("bindings/perl");
    if copy.exists() {
        fs::remove_dir_all(copy)?;
    }
    // Copy only files in the MANIFEST, so that a file that it lacks is noticed.
    for name in fs::read_to_string(from.join("MANIFEST"))?.lines() {
        let to = copy.join(name);
        fs::create_dir_all(to.parent().context("a directory")?)?;
        fs::copy(from.join(name), to).with_context(|| name.to_owned())?;
    }
    let mut configure = Command::new("perl");
    configure.arg("Makefile.PL").current_dir(copy).env("FORKLESS_PREFIX", prefix);
    run(&mut configure)?;
    run(Command::new("make").current_dir(copy))
}

/// Whether C modules can be built for perl; the error is the reason why not.
pub fn has_headers() -> Result<(), String> {
    let headers = "use Config; my $h = \"$Config{archlibexp}/CORE/perl.h\"; print -e $h ? \"\" : $h";
    match Command::new("perl").args(["-MExtUtils::MakeMaker", "-MTest::More", "-e", headers]).output() {
        Ok(output) if output.status.success() && output.stdout.is_empty() => Ok(()),
        Ok(output) if output.status.success() => {
            Err(format!("perl's headers are missing: {}", String::from_utf8_lossy(&output.stdout)))
        }
        _ => Err("no perl with MakeMaker and Test::More is installed".to_owned()),
    }
}

/// Builds the wheel of bindings/python in cargo's directory `target` and installs it into a virtual environment in `place`; returns
/// its interpreter.
///
/// # Errors
/// If venv, pip or maturin fails.
pub fn python(place: &Path, target: &Path, profile: Profile) -> Result<Built> {
    let _building = building();
    let wheels = place.join("wheels");
    if !is_ours(place) {
        // The owner of the directory may have installed it there.
        let there = place.join("venv/bin/python");
        let has_it = wheels.exists() && there.exists();
        return Ok(if has_it { Ok(there) } else { Err("cargo cannot build as this user".to_owned()) });
    }
    if is_of_this_run(place) {
        return Ok(Ok(place.join("venv/bin/python")));
    }
    let python = match packages::venv(place, Path::new(REQUIREMENTS))? {
        Ok(python) => python,
        Err(why) => return Ok(Err(why)),
    };
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let mut maturin = Command::new(&python);
    maturin.args(["-m", "maturin", "build", "--locked", "--quiet", "--auditwheel", "skip", "--out"]).arg(&wheels);
    maturin.args((profile == Profile::Release).then_some("--release"));
    maturin.arg("--manifest-path").arg(dist::root().join("bindings/python/Cargo.toml"));
    run(maturin.arg("--interpreter").arg(&python).env("CARGO_TARGET_DIR", target))?;
    let entries = fs::read_dir(&wheels)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let [wheel] = &entries[..] else { bail!("{entries:?}") };
    ensure!(wheel.to_string_lossy().ends_with(".whl") && wheel.to_string_lossy().contains("-cp39-abi3-"), "{wheel:?}");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]);
    run(pip.arg("--force-reinstall").arg(wheel))?;
    done(place)?;
    Ok(Ok(python))
}

/// What users get of bindings/node, and what its tests need.
const NODE_FILES: [&str; 7] = ["lib", "test", "examples", "package.json", "README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Builds bindings/node in `node_modules/forkless` below `place`, with the addon from cargo's directory `target`; returns `node_modules`.
///
/// # Errors
/// If cargo fails, or a file is missing.
pub fn node(place: &Path, target: &Path, profile: Profile) -> Result<Built> {
    let _building = building();
    let modules = place.join("node_modules");
    let package = modules.join("forkless");
    if !is_ours(place) {
        // The owner of the directory may have built it there.
        let there = package.join("prebuilds").exists();
        return Ok(if there { Ok(modules) } else { Err("cargo cannot build as this user".to_owned()) });
    }
    if let Err(why) = has_node() {
        return Ok(Err(why));
    }
    if is_of_this_run(place) {
        return Ok(Ok(modules));
    }
    if package.exists() {
        fs::remove_dir_all(&package)?;
    }
    addon(&package, target, profile)?;
    let from = dist::root().join("bindings/node");
    for name in NODE_FILES {
        copy(&from.join(name), &package.join(name))?;
    }
    done(place)?;
    Ok(Ok(modules))
}

/// Builds the addon, and copies it to where the package looks for it.
fn addon(package: &Path, target: &Path, profile: Profile) -> Result<()> {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--locked", "--package", "forkless-node"]).current_dir(dist::root());
    build.args((profile == Profile::Release).then_some("--release"));
    run(build.arg("--target-dir").arg(target))?;
    let directory = target.join(if profile == Profile::Release { "release" } else { "debug" });
    // Node's names of the architectures.
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let to = package.join("prebuilds").join(format!("linux-{arch}"));
    fs::create_dir_all(&to)?;
    let library = directory.join("libforkless_node.so");
    fs::copy(&library, to.join("forkless.node")).with_context(|| format!("{}", library.display()))?;
    Ok(())
}

/// Whether a Node that the package supports is installed; the error is the reason why not.
fn has_node() -> Result<(), String> {
    let script = "const [major, minor] = process.versions.node.split('.').map(Number); \
                  process.exit(major > 18 || (major === 18 && minor >= 17) ? 0 : 1)";
    match Command::new("node").args(["-e", script]).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err("the installed Node is older than 18.17".to_owned()),
        Err(_) => Err("no Node is installed".to_owned()),
    }
}

/// Installs what the tests of the Node package compare with, as their lock file has it, in `test/packages` of the built package.
/// Returns why not, if npm is missing, cannot reach its registry, or [nothing may be installed](packages::NO_INSTALL).
///
/// # Errors
/// If a file cannot be written.
pub fn node_packages(package: &Path) -> Result<Result<(), String>> {
    let place = package.join("test/packages");
    if place.join("node_modules/.package-lock.json").exists() {
        return Ok(Ok(()));
    }
    if std::env::var_os(packages::NO_INSTALL).is_some() {
        return Ok(Err(format!("nothing may be installed ({} is set)", packages::NO_INSTALL)));
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&place);
    Ok(run(&mut npm).map_err(|error| format!("npm cannot install them: {error:#}")))
}

/// Copies a file or a directory, but no `node_modules`.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            if name == "node_modules" {
                continue;
            }
            copy(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    fs::copy(from, to).map(drop).with_context(|| format!("{}", from.display()))
}

/// Creates the directory; returns whether this user can build in it.
fn is_ours(place: &Path) -> bool {
    fs::create_dir_all(place).is_ok() && fs::write(place.join("probe"), "").is_ok()
}

/// Runs the command; prints its output if it fails.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Modules;
    use serde_json::json;
    use std::path::PathBuf;

    #[test]
    fn built_module_without_rows_is_an_error() {
        let none = || Err("there is none".to_owned());
        let modules = Modules { perl: Ok(PathBuf::from("/there")), python: none(), node: none() };
        let record = |version, launcher: &str| json!({"machine": {"engines": {"forkless-perl-system": version}}, "columns": ["n", "launcher"], "rows": [{"methods": [[1, launcher]]}]});
        assert!(modules.have_rows(&record("5.36.0,Forkless-0.1.0", "forkless-perl-system")).is_ok());
        assert!(modules.have_rows(&record("5.36.0,Forkless-0.1.0", "perl-system")).is_err());
        assert!(modules.have_rows(&json!({"machine": {"engines": {}}, "rows": []})).is_err());
        let skipped = |name| format!("SKIPPED: the benchmark's rows of {name}… because there is none");
        assert_eq!(modules.skipped(), ["forkless-cpython", "forkless-node-"].map(skipped));
        let mut command = std::process::Command::new("perl");
        modules.add_to(&mut command).expect("no colon");
        let set: Vec<_> = command.get_envs().map(|(name, _)| name).collect();
        assert_eq!(set, ["PERL5LIB"]);
    }
}
