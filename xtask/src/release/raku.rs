//! The Raku distribution, as zef installs it: META6.json, modules and tests. It contains no library, but finds that of the system.

use super::Build;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use testing::dist::{output, root};

/// Makes the distribution.
///
/// # Errors
/// If META6.json and the files do not match, or tar fails.
pub(super) fn make(build: &Build, out: &Path) -> Result<()> {
    let (version, from) = (env!("CARGO_PKG_VERSION"), root().join("bindings/raku"));
    let name = format!("Forkless-{version}");
    let trees = build.trees.join("raku");
    let tree = trees.join(&name);
    let files = output(Command::new("git").current_dir(&from).args(["ls-files", "-z"]))?;
    let files: Vec<_> = files.split_terminator('\0').collect();
    let meta: Value = serde_json::from_str(&fs::read_to_string(from.join("META6.json"))?).context("META6.json")?;
    ensure!(meta["version"] == version, "bindings/raku/META6.json has version {}", meta["version"]);
    let provided = meta["provides"].as_object().context("META6.json provides nothing")?;
    for path in provided.values().filter_map(Value::as_str) {
        ensure!(files.contains(&path), "META6.json provides {path}, which does not exist");
    }
    for path in files.iter().filter(|path| path.starts_with("lib/")) {
        ensure!(provided.values().any(|known| known == path), "META6.json does not provide {path}");
    }
    let licences = ["LICENSE-APACHE", "LICENSE-MIT"].map(|licence| (root().join(licence), licence));
    for (file, name) in files.iter().map(|name| (from.join(name), *name)).chain(licences) {
        let copy = tree.join(name);
        fs::create_dir_all(copy.parent().context("a directory")?)?;
        fs::copy(file, copy).with_context(|| name.to_owned())?;
    }
    // CPAN's distribution has the name Forkless-VERSION.tar.gz.
    build.tar(&trees, &name, &out.join(format!("raku-{name}.tar.gz")))
}
