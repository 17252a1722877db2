//! What the tests of all crates and the tasks of `xtask` need before they can begin: the C libraries installed, the language modules
//! built, Debian's and Python's packages. Depends on no crate of the workspace, so it works when they do not compile.

pub mod dist;
pub mod installed;
pub mod modules;
pub mod once;
pub mod packages;
mod preload_link;
pub mod raku;
pub mod surroundings;

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The standard output of a program; an error with its standard error if it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("{}", name.display()))?;
    if !output.status.success() {
        bail!("{}: {}: {}", name.display(), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program; an error if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_owned();
    let status = command.status().with_context(|| format!("{}", name.display()))?;
    if !status.success() {
        bail!("{}: {status}", name.display());
    }
    Ok(())
}
