//! Records what was built in this run of `cargo xtask`, so that several tests build it once.

use anyhow::Result;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

/// The environment variable with the ID of this run of `cargo xtask`, or of a test without it. A module is built once per run.
pub const RUN: &str = "FORKLESS_XTASK_RUN";

/// The ID of this run.
pub static THIS_RUN: LazyLock<String> = LazyLock::new(|| {
    let now = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    std::env::var(RUN).unwrap_or_else(|_| format!("{}-{now}", std::process::id()))
});

/// Whether the contents of `place` were built in this run of `cargo xtask`.
pub fn is_of_this_run(place: &Path) -> bool {
    fs::read_to_string(place.join("run")).is_ok_and(|run| run == *THIS_RUN)
}

/// Records that the contents of `place` were built in this run.
pub fn done(place: &Path) -> Result<()> {
    Ok(fs::write(place.join("run"), &*THIS_RUN)?)
}
