//! The version, which `Cargo.toml` has and other files repeat.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::root;

/// Files that repeat the version, each with the text before it. Where the text occurs more than once, so does the version.
const PLACES: &[(&str, &str)] = &[
    ("Cargo.toml", "\nversion = \""),
    ("Cargo.toml", ", version = \""),
    ("tests/Cargo.toml", "forkless-core = { version = \""),
    ("bindings/node/package.json", "\n  \"version\": \""),
    ("bindings/python/python/forkless/__init__.py", "\n__version__ = \""),
    ("bindings/raku/META6.json", "\"version\": \""),
    ("bindings/perl/lib", "our $VERSION = '"),
    ("docs/install.md", "forkless_"),
    ("docs/install.md", "./forkless-"),
    ("docs/install.md", "`forkless-"),
    ("docs/install.md", "install forkless-"),
    ("docs/install.md", "x64-gnu-"),
    ("docs/install.md", "Forkless-"),
];

/// The version in `Cargo.toml`.
///
/// # Errors
/// If there is none.
pub fn current(tree: &Path) -> Result<String> {
    let text = fs::read_to_string(tree.join("Cargo.toml"))?;
    let (_, rest) = text.split_once("[workspace.package]\nversion = \"").context("Cargo.toml has no version")?;
    Ok(rest.split('"').next().unwrap_or_default().to_owned())
}

/// The tag of the last version that was released, if there is one in this clone.
pub fn released() -> Option<String> {
    let words = ["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"];
    let output = Command::new("git").args(words).current_dir(root()).output().ok()?;
    let tag = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(tag)
}

/// Calls `see` for each occurrence of the version, with its file and the text from the version on.
fn places(tree: &Path, mut see: impl FnMut(&Path, &str)) -> Result<()> {
    for (name, before) in PLACES {
        let mut found = 0;
        for file in files(&tree.join(name))? {
            let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            // Not a name such as forkless-linux-…, in which no digit follows.
            for (at, _) in text.match_indices(before) {
                let rest = &text[at + before.len()..];
                if rest.starts_with(|first: char| first.is_ascii_digit()) {
                    found += 1;
                    see(&file, rest);
                }
            }
        }
        ensure!(found > 0, "{name} has no version after {before:?}");
    }
    Ok(())
}

/// The file, or the files below the directory.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path)?.map(|entry| files(&entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(entries.concat())
}

/// The files that have another version than `Cargo.toml`.
///
/// # Errors
/// If a file is missing, or has no version where one must be.
pub fn others(tree: &Path) -> Result<Vec<PathBuf>> {
    let version = current(tree)?;
    let mut others = Vec::new();
    places(tree, |file, rest| {
        // 0.1.0 is no prefix of a longer version.
        let is_other =
            !rest.starts_with(&version) || rest[version.len()..].starts_with(|next: char| next.is_ascii_digit());
        if is_other && !others.contains(&file.to_owned()) {
            others.push(file.to_owned());
        }
    })?;
    Ok(others)
}

/// Writes another version to all files that have it.
///
/// # Errors
/// If it is no version, if the files do not agree on the present one, or if a file cannot be written.
pub fn set(tree: &Path, new: &str) -> Result<()> {
    let is_version = new.split('.').count() == 3 && new.split('.').all(|part| part.parse::<u32>().is_ok());
    ensure!(is_version, "{new} is not of the form 1.2.3");
    let (old, others) = (current(tree)?, others(tree)?);
    ensure!(others.is_empty(), "these files have another version than Cargo.toml: {others:?}");
    for (name, before) in PLACES {
        for file in files(&tree.join(name))? {
            let text = fs::read_to_string(&file)?;
            fs::write(&file, text.replace(&format!("{before}{old}"), &format!("{before}{new}")))?;
        }
    }
    Ok(())
}

/// Prints the version; with `new`, writes that one first, and updates the lock files.
///
/// # Errors
/// As [`set`], or if files do not agree, or if cargo fails.
pub fn run(new: Option<&str>) -> Result<()> {
    if let Some(new) = new {
        set(&root(), new)?;
        for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
            let mut update = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            update.current_dir(root()).args([
                "update",
                "--quiet",
                "--workspace",
                "--offline",
                "--manifest-path",
                manifest,
            ]);
            testing::dist::run(&mut update)?;
        }
        println!("CHANGELOG.md and bindings/perl/Changes need a heading for {new}");
    }
    let others = others(&root())?;
    ensure!(others.is_empty(), "these files have another version than Cargo.toml: {others:?}");
    println!("{}", current(&root())?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies the files with versions.
    fn copied(to: &Path) {
        for (name, _) in PLACES {
            for file in files(&root().join(name)).expect("files") {
                let copy = to.join(file.strip_prefix(root()).expect("in the tree"));
                fs::create_dir_all(copy.parent().expect("a directory")).expect("writable");
                fs::copy(&file, copy).expect("writable");
            }
        }
    }

    #[test]
    fn all_files_have_the_version_of_the_workspace() {
        assert_eq!(current(&root()).expect("a version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(others(&root()).expect("places"), Vec::<PathBuf>::new());
    }

    #[test]
    fn another_version_is_written_to_all_files_and_one_that_differs_is_found() {
        let place = std::env::temp_dir().join(format!("forkless-version-{}", std::process::id()));
        copied(&place);
        set(&place, "7.65.4").expect("all agree");
        assert_eq!(
            (current(&place).expect("a version").as_str(), others(&place).expect("places").len()),
            ("7.65.4", 0)
        );
        for (name, _) in PLACES {
            for file in files(&place.join(name)).expect("files") {
                let text = fs::read_to_string(&file).expect("text");
                assert!(!text.contains(env!("CARGO_PKG_VERSION")), "{} still has the old version", file.display());
            }
        }
        let file = place.join("bindings/perl/lib/Forkless/Error.pm");
        let text = fs::read_to_string(&file).expect("text");
        for wrong in ["7.65.3", "7.65.40"] {
            fs::write(&file, text.replace("7.65.4", wrong)).expect("writable");
            assert_eq!(others(&place).expect("places"), std::slice::from_ref(&file));
        }
        assert!(set(&place, "8.0.0").is_err(), "one file differs");
        assert!(set(&place, "8.0").is_err() && set(&place, "8.0.x").is_err());
        fs::remove_dir_all(place).expect("ours");
    }
}
