//! What `cargo xtask dist` has installed, and how to remove it. The files are built below a directory of their own, so that the list
//! has exactly these. Then they are copied to the prefix, with the list `share/forkless/installed` and the script
//! `share/forkless/uninstall`, which needs no cargo.

use crate::dist::InstallPlace;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The directory of the list and of the script, relative to the prefix.
const OWN: &str = "share/forkless";
const LIST: &str = "installed";
const SCRIPT: (&str, &str) = ("uninstall", include_str!("uninstall.sh"));

/// Copies the files below the prefix of `staged` to that of `place`, which has another `destdir`, and adds the list and the script. The
/// list keeps what an earlier one names.
///
/// # Errors
/// If a file cannot be written, or has a name that the list cannot have.
pub fn install(staged: &InstallPlace, place: &InstallPlace) -> Result<()> {
    let (from, to) = (staged.root(), place.root());
    fs::create_dir_all(from.join(OWN))?;
    let list = to.join(OWN).join(LIST);
    let earlier = fs::read_to_string(&list).unwrap_or_default();
    let mut lines: BTreeSet<String> = earlier.lines().map(str::to_owned).collect();
    let script = from.join(OWN).join(SCRIPT.0);
    fs::write(&script, SCRIPT.1)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    // The prefix itself is not listed, even if it is made here: the list has only names below the prefix.
    fs::create_dir_all(&to).with_context(|| format!("{}", to.display()))?;
    copy_all(&from, &to, Path::new(""), &mut lines)?;
    lines.insert(format!("{OWN}/{LIST}"));
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    write_new(&list, |new| Ok(fs::write(new, text)?))
}

/// Copies a directory, and adds a line for each file, and for each directory that it makes.
fn copy_all(from: &Path, to: &Path, below: &Path, lines: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(from.join(below))? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), below.join(entry.file_name())))?;
        let name = path.to_str().filter(|name| !name.contains('\n'));
        let name = name.with_context(|| format!("{path:?} has a name that the list of files cannot have"))?;
        let (kind, source, target) = (entry?, from.join(&path), to.join(&path));
        let failed = || format!("{}", target.display());
        if kind.is_dir() {
            if !target.is_dir() {
                fs::create_dir(&target).with_context(failed)?;
                lines.insert(format!("{name}/"));
            }
            copy_all(from, to, &path, lines)?;
            continue;
        }
        // Replace the file: a running program cannot be written to.
        write_new(&target, |new| match fs::read_link(&source) {
            Ok(link) => Ok(symlink(link, new)?),
            Err(_) => Ok(fs::copy(&source, new).map(drop)?),
        })
        .with_context(failed)?;
        lines.insert(name.to_owned());
    }
    Ok(())
}

/// Makes the file under another name, and renames it.
fn write_new(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    if new.symlink_metadata().is_ok() {
        fs::remove_file(&new)?;
    }
    make(&new)?;
    if path.is_dir() && path.symlink_metadata().is_ok_and(|about| about.is_dir()) {
        fs::remove_file(&new)?;
        bail!("{} is a directory", path.display());
    }
    Ok(fs::rename(new, path)?)
}
