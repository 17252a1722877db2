//! Copies the Raku distribution, for its tests and for the benchmark. Nothing is compiled: it calls the C library.

use crate::dist;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A copy of bindings/raku, with the library that it calls.
pub struct Copy {
    pub dist: PathBuf,
    pub library: PathBuf,
}

/// Copies the distribution below `place`, so that Raku's compiled modules are not written into the sources, and installs the C library
/// there, from cargo's directory `target`. Returns the reason if this machine cannot run it.
///
/// # Errors
/// If a file that META6.json provides is missing, or the library cannot be built.
pub fn copy(place: &Path, target: &Path) -> Result<Result<Copy, String>> {
    for (program, word) in [("raku", "rakudo"), ("prove", "perl")] {
        let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            return Ok(Err(format!("{program} is not installed ({word})")));
        }
    }
    let dist = place.join("Forkless");
    copy_modules(&dist)?;
    let prefix = place.join("prefix");
    dist::install_once(&prefix, target)?;
    Ok(Ok(Copy { dist, library: prefix.join("lib/libforkless.so.0") }))
}

/// Copies the distribution into the directory `dist`, which is replaced.
///
/// # Errors
/// If a file that META6.json provides is missing.
pub fn copy_modules(dist: &Path) -> Result<()> {
    let from = dist::root().join("bindings/raku");
    if dist.exists() {
        fs::remove_dir_all(dist)?;
    }
    // Copy only modules that META6.json provides, so that one that it lacks is noticed.
    let text = fs::read_to_string(from.join("META6.json")).context("META6.json")?;
    let meta: serde_json::Value = serde_json::from_str(&text)?;
    let provided = meta["provides"].as_object().context("META6.json provides nothing")?;
    let mut names: Vec<_> = provided.values().filter_map(|path| path.as_str().map(PathBuf::from)).collect();
    names.push("META6.json".into());
    for entry in fs::read_dir(from.join("t"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(Path::new("t").join(entry.file_name()));
        }
    }
    for name in names {
        let to = dist.join(&name);
        fs::create_dir_all(to.parent().context("a directory")?)?;
        fs::copy(from.join(&name), to).with_context(|| format!("{}", name.display()))?;
    }
    Ok(())
}
