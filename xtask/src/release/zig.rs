//! Builds for every glibc from an old version on. The linker is zig, which knows the symbols of old versions.

use super::Build;
use anyhow::{Context, Result, anyhow};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::{root, run};
use testing::packages;

/// Python packages with zig and what uses it.
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/release/requirements.txt");

/// The oldest glibc that Rust's standard library runs with.
pub(super) const GLIBC: &str = "2.17";

/// The Python interpreter of an environment with zig.
pub(super) fn python(build: &Build) -> Result<PathBuf> {
    packages::venv(&build.target.join("python"), Path::new(REQUIREMENTS))?.map_err(|why| anyhow!("zig: {why}"))
}

/// PATH with the programs of that environment.
pub(super) fn path(python: &Path) -> Result<OsString> {
    let bin = python.parent().context("a directory")?.to_path_buf();
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path)))?)
}

/// Builds packages of the workspace in release mode, stripped; returns the directory with the results.
pub(super) fn release(build: &Build, packages: &[&str], triple: &str) -> Result<PathBuf> {
    let python = python(build)?;
    let target = build.target.join("zig");
    let mut zig = Command::new(python.with_file_name("cargo-zigbuild"));
    zig.args(["zigbuild", "--quiet", "--release", "--locked"]);
    zig.args(packages.iter().map(|name| format!("--package={name}")));
    zig.args(["--target", &format!("{triple}.{GLIBC}"), "--target-dir"]).arg(&target);
    zig.args(["--config", "profile.release.strip=true"]);
    zig.env("FORKLESS_PORTABLE", "1");
    run(zig.current_dir(root()).env("PATH", path(&python)?).envs(super::without_paths()?))?;
    Ok(target.join(triple).join("release"))
}
