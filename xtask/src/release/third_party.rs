//! The licences of the crates that are linked into a package, and a machine-readable list of these crates (CycloneDX).

use super::cargo;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use testing::dist::output;

/// What is needed of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    source: Option<String>,
}

/// Writes both files for crates of ours that users know as `name`.
pub(super) fn write(krates: &[&str], name: &str, licences: &Path, sbom: &Path) -> Result<()> {
    let packages = linked(krates)?;
    write_licences(&packages, licences)?;
    let components: Vec<_> = packages
        .iter()
        .map(|package| {
            let (name, version) = (&package.name, &package.version);
            let purl = format!("pkg:cargo/{name}@{version}");
            let licences = package.license.iter().map(|words| json!({ "expression": words.replace('/', " OR ") }));
            json!({ "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
                    "licenses": licences.collect::<Vec<_>>() })
        })
        .collect();
    let forkless = json!({ "type": "application", "name": name, "version": env!("CARGO_PKG_VERSION") });
    let bom = json!({ "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
                      "metadata": { "component": forkless }, "components": components });
    Ok(fs::write(sbom, serde_json::to_string_pretty(&bom)? + "\n")?)
}

/// Writes the licences of the crates that are linked into a crate of ours.
pub(super) fn write_licences_of(krate: &str, file: &Path) -> Result<()> {
    write_licences(&linked(&[krate])?, file)
}

fn write_licences(packages: &[Package], file: &Path) -> Result<()> {
    let mut text = String::from("Crates that are linked into forkless, with their licences.\n");
    for package in packages {
        let licence = package.license.as_deref().unwrap_or("see the text");
        write!(text, "\n{}\n{} {}: {licence}\n\n", "=".repeat(80), package.name, package.version)?;
        for file in texts(package.manifest_path.parent().context("a directory")?)? {
            text += &fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            text.push('\n');
        }
    }
    Ok(fs::write(file, text)?)
}

/// The third-party crates that are linked into these crates of ours, sorted by name.
fn linked(krates: &[&str]) -> Result<Vec<Package>> {
    let mut tree = cargo();
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none"]);
    tree.args(krates.iter().map(|krate| format!("--package={krate}")));
    let tree = output(tree.args(["--target", &host()?, "--format", "{p}"]))?;
    // "NAME vVERSION …"
    let linked: BTreeSet<_> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
        })
        .collect();
    let metadata = output(cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
    let mut packages = serde_json::from_str::<Metadata>(&metadata)?.packages;
    packages.retain(|one| one.source.is_some() && linked.contains(&(one.name.clone(), one.version.clone())));
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(packages)
}

/// The triple of the target that rustc builds for by default.
fn host() -> Result<String> {
    let text = output(std::process::Command::new("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// The files with licences in the directory of a crate.
fn texts(directory: &Path) -> Result<Vec<PathBuf>> {
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        path.is_file()
            && ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|one| name.starts_with(one))
    };
    let mut found: Vec<_> = fs::read_dir(directory)?.flatten().map(|entry| entry.path()).filter(is_licence).collect();
    found.sort();
    Ok(found)
}
