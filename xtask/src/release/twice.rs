//! Makes the packages again, of a clone in another directory and with other surroundings, and compares them byte by byte.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::{output, root, run};

/// What differs in the second build, beside its directory, its target directory and cargo's home: the time zone, the language and the
/// permissions of new files.
const OTHERS: &str = "umask 077 && export TZ=Pacific/Kiritimati LC_ALL=C.UTF-8 LANG=de_DE.UTF-8 && exec \"$@\"";

/// Makes the packages of these kinds (none: all) again below `place`, which is removed first, and compares them with those in `packages`.
///
/// # Errors
/// If the tree has changes that are not committed, if the build fails, or if files differ, with their names.
pub(super) fn compare(kinds: &[String], packages: &Path, place: &Path) -> Result<()> {
    let changes = output(Command::new("git").current_dir(root()).args(["status", "--porcelain"]))?;
    ensure!(changes.is_empty(), "--twice builds a commit, but there are changes that are not committed:\n{changes}");
    if place.exists() {
        fs::remove_dir_all(place).with_context(|| format!("{}", place.display()))?;
    }
    // Longer than the path of the first build.
    let (clone, home, again) = (place.join("another/and/deeper/directory"), place.join("home"), place.join("packages"));
    fs::create_dir_all(&home)?;
    let from = fs::canonicalize(root())?;
    run(Command::new("git")
        .args(["clone", "--quiet", "--no-local"])
        .arg(format!("file://{}", from.display()))
        .arg(&clone))?;
    links(&super::cargo_home()?, &home)?;
    let mut build = Command::new("sh");
    build.current_dir(&clone).args(["-euc", OTHERS, "sh"]);
    build.arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(["xtask", "package", "--out"]);
    build.arg(&again).args(kinds).env("CARGO_HOME", &home).env_remove("CARGO_TARGET_DIR");
    run(&mut build).context("the second build")?;
    let differences = differences(packages, &again)?;
    ensure!(
        differences.is_empty(),
        "two builds of one commit differ: {}: compare {} and {}",
        differences.join(", "),
        packages.display(),
        again.display()
    );
    println!("two builds of one commit, in different directories, have given equal files");
    Ok(fs::remove_dir_all(place)?)
}

/// A home of cargo elsewhere, with the same registry and the same settings.
fn links(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("{}", from.display()))? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// The names of files in `second` that `first` does not have with the same content.
fn differences(first: &Path, second: &Path) -> Result<Vec<String>> {
    let mut files: Vec<PathBuf> = fs::read_dir(second)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(!files.is_empty(), "the second build has made no package");
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let name = file.file_name().context("a file")?;
        let other = first.join(name);
        let other = fs::read(&other).with_context(|| format!("{}", other.display()))?;
        if other != fs::read(&file)? {
            found.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::differences;
    use std::fs;

    #[test]
    fn a_changed_byte_and_a_missing_file_are_found() {
        let place = std::env::temp_dir().join(format!("forkless-twice-{}", std::process::id()));
        let (first, second) = (place.join("first"), place.join("second"));
        fs::create_dir_all(&first).expect("writable");
        fs::create_dir_all(&second).expect("writable");
        assert!(differences(&first, &second).is_err(), "no package at all");
        for directory in [&first, &second] {
            fs::write(directory.join("one"), b"1").expect("writable");
            fs::write(directory.join("two"), b"2").expect("writable");
        }
        assert!(differences(&first, &second).expect("files").is_empty());
        fs::write(second.join("two"), b"3").expect("writable");
        assert_eq!(differences(&first, &second).expect("files"), ["two"]);
        fs::remove_file(first.join("one")).expect("ours");
        assert!(differences(&first, &second).is_err(), "a package that only one build makes");
        fs::remove_dir_all(place).expect("ours");
    }
}
