//! The crates: each is packaged, and tried outside of the tree, where only packaged files exist.

use super::cargo;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use testing::dist::{output, root, run};

/// The crates, each after those that it depends on.
pub const CRATES: &[&str] = &[
    "forkless-core",
    "forkless",
    "forkless-jobs",
    "forkless-gearman",
    "forkless-runner",
    "forkless-capi",
    "forkless-bench",
    "forkless-cli",
];

/// The crates whose documentation has examples.
const WITH_EXAMPLES: &[&str] = &["forkless-core", "forkless", "forkless-jobs", "forkless-gearman"];

/// Name and version, as in the names of files.
fn versioned(name: &str) -> String {
    format!("{name}-{}", env!("CARGO_PKG_VERSION"))
}

/// Packages the crates. cargo builds each from its package alone.
///
/// # Errors
/// If cargo fails.
pub(super) fn make(out: &Path, target: &Path) -> Result<()> {
    let target = std::path::absolute(target)?.join("crates");
    let mut package = cargo();
    package.args(["package", "--quiet", "--locked", "--target-dir"]).arg(&target);
    package.args(CRATES.iter().flat_map(|name| ["--package", name]));
    run(&mut package)?;
    for name in CRATES {
        let file = format!("{}.crate", versioned(name));
        fs::copy(target.join("package").join(&file), out.join(&file)).with_context(|| file)?;
    }
    Ok(())
}

/// Unpacks the crates of the directory `packages` in `place`, which is removed first. Runs their examples, builds all that they
/// contain, installs the command from them and uses it.
///
/// # Errors
/// If cargo fails, or a crate contains no licence.
pub(super) fn check(packages: &Path, place: &Path) -> Result<()> {
    if place.exists() {
        fs::remove_dir_all(place).with_context(|| format!("{}", place.display()))?;
    }
    fs::create_dir_all(place)?;
    for name in CRATES {
        let file = packages.join(format!("{}.crate", versioned(name)));
        run(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(place))?;
        for licence in ["LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
            let file = place.join(versioned(name)).join(licence);
            ensure!(fs::metadata(&file).is_ok_and(|about| about.len() > 0), "{} is missing", file.display());
        }
    }
    fs::write(place.join("Cargo.toml"), workspace()?)?;
    // The tested versions of other crates.
    fs::copy(root().join("Cargo.lock"), place.join("Cargo.lock"))?;
    let cargo = |words: &[&str]| {
        let mut cargo = cargo();
        cargo.current_dir(place).args(words).arg("--quiet").env("CARGO_TARGET_DIR", place.join("target"));
        cargo
    };
    // Without their unit tests, some of which need this tree.
    run(&mut cargo(&["check", "--workspace", "--lib", "--bins", "--examples", "--features", "forkless/tokio"]))?;
    let examples = WITH_EXAMPLES.iter().flat_map(|name| ["--package", name]);
    run(cargo(&["test", "--doc", "--features", "forkless/tokio"]).args(examples))?;
    println!("packages: the examples of the crates work outside of the tree");
    let cli = versioned("forkless-cli");
    // Optimizing it would take minutes.
    run(&mut cargo(&["install", "--debug", "--path", &cli, "--root", "installed"]))?;
    let forkless = place.join("installed/bin/forkless");
    let said = output(Command::new(forkless).args(["run", "--nice", "5", "nice"]))?;
    ensure!(said == "5\n", "the command that cargo has installed prints {said:?} for `run --nice 5 nice`");
    println!("packages: cargo installs the command");
    Ok(())
}

/// A workspace of the unpacked crates, in which each stands for the published one.
fn workspace() -> Result<String> {
    let mut text = format!(
        "[workspace]\nresolver = \"3\"\nmembers = {:?}\n\n[patch.crates-io]\n",
        CRATES.iter().map(|name| versioned(name)).collect::<Vec<_>>()
    );
    for name in CRATES {
        writeln!(text, "{name} = {{ path = {:?} }}", versioned(name))?;
    }
    Ok(text)
}
