//! What a sandbox hides of what it shows: paths and patterns, looked up at each launch.

use super::place::GivenPath;
use super::preset::SHOWN;
use crate::error::reworded;
use forkless_core::sys::errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// More than this is taken for a mistake: each costs a mount.
const MOST: usize = 1000;

/// What is hidden, as it was given: for a path, the path; for a pattern, the path before the first component with a wildcard, and the
/// components from there on.
#[derive(Clone)]
pub(super) struct HiddenPath {
    fixed: PathBuf,
    pattern: HiddenPattern,
}

/// `**` is any number of directories.
type HiddenPattern = Vec<Vec<u8>>;

impl HiddenPath {
    pub(super) fn of(given: &Path) -> io::Result<Self> {
        let parts = || given.components().filter(|part| *part != Component::CurDir);
        let is_fixed = |part: &Component<'_>| !part.as_os_str().as_bytes().iter().any(|byte| b"*?".contains(byte));
        let fixed: PathBuf = parts().take_while(is_fixed).collect();
        let rest = parts().skip_while(is_fixed).map(|part| part.as_os_str().as_bytes().to_vec());
        let pattern: HiddenPattern = rest.collect();
        let has_parent = !pattern.is_empty() && parts().any(|part| part == Component::ParentDir);
        if given.as_os_str().is_empty() || has_parent || given.components().count() > MOST_PARTS {
            let why = format!("sandbox: hide: {}: a pattern has names and wildcards, and no `..`", given.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Self { fixed: if pattern.is_empty() { std::path::absolute(given)? } else { fixed }, pattern })
    }
}

/// A set of components has a bit for each.
const MOST_PARTS: usize = 63;

/// The places, and what the paths and patterns are at the moment, wherever that is shown. Places themselves stay visible.
pub(super) fn look_up(hidden: &[HiddenPath], places: &[GivenPath]) -> io::Result<Vec<GivenPath>> {
    let of_all = SHOWN.map(Path::new).into_iter().filter(|path| path.is_dir() && !path.is_symlink());
    let of_places = places.iter().map(|place| (place.source.as_path(), place.path.as_path()));
    let shown: Vec<(&Path, &Path)> = of_all.map(|path| (path, path)).chain(of_places).collect();
    let mut found = Search { shown: &shown, files: BTreeSet::new() };
    let mut patterns: BTreeMap<PathBuf, Vec<HiddenPattern>> = BTreeMap::new();
    for HiddenPath { fixed, pattern } in hidden {
        if pattern.is_empty() {
            found.add(fixed)?;
        } else if fixed.is_absolute() {
            if let Some(base) = real(fixed)? {
                patterns.entry(base).or_default().push(pattern.clone());
            }
        } else {
            let names = fixed.iter().map(|name| name.as_bytes().to_vec());
            let pattern: HiddenPattern = names.chain(pattern.iter().cloned()).collect();
            for place in places.iter().filter(|place| !place.is_obeyed) {
                patterns.entry(place.source.clone()).or_default().push(pattern.clone());
            }
        }
    }
    for (base, patterns) in patterns {
        let states: Vec<u64> = patterns.iter().map(|pattern| reach(pattern, 1)).collect();
        found.walk(&base, &patterns, &states)?;
    }
    let mut all = BTreeMap::new();
    for file in found.files {
        let is_directory = file.is_dir();
        for (source, path) in &shown {
            let Ok(rest) = file.strip_prefix(source) else { continue };
            let path = path.components().chain(rest.components()).collect::<PathBuf>();
            if !places.iter().any(|place| !place.is_obeyed && path == place.path) {
                let source = file.clone();
                let hidden = GivenPath {
                    path: path.clone(),
                    source,
                    is_directory,
                    is_hidden: true,
                    is_obeyed: false,
                    may_write: false,
                    file: (0, 0),
                };
                all.insert(path, hidden);
            }
        }
    }
    if all.len() > MOST {
        let why = format!("sandbox: hide: {} files and directories match; at most {MOST} can be hidden", all.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let is_covered = |place: &GivenPath| place.is_obeyed && all.keys().any(|hidden| place.path.starts_with(hidden));
    let kept: Vec<GivenPath> = places.iter().filter(|place| !is_covered(place)).cloned().collect();
    Ok(kept.into_iter().chain(all.into_values()).collect())
}

/// The path without symbolic links. `None` if nothing is there.
fn real(path: &Path) -> io::Result<Option<PathBuf>> {
    match path.canonicalize() {
        Ok(path) => Ok(Some(path)),
        Err(error) if matches!(error.raw_os_error(), Some(errno::ENOENT | errno::ENOTDIR | errno::ELOOP)) => Ok(None),
        Err(error) => {
            let words = format!("sandbox: hide: {}: {error}", path.display());
            Err(reworded(error, words))
        }
    }
}

struct Search<'a> {
    shown: &'a [(&'a Path, &'a Path)],
    /// Without symbolic links, so that a file is hidden by each of its paths.
    files: BTreeSet<PathBuf>,
}

impl Search<'_> {
    fn add(&mut self, path: &Path) -> io::Result<()> {
        self.files.extend(real(path)?);
        Ok(())
    }

    /// Whether it is a place, which stays visible.
    fn is_shown_itself(&self, directory: &Path) -> bool {
        self.shown.iter().any(|(source, _)| directory == *source)
    }

    /// Looks for the patterns below a directory. `states`: the components of each that may match the next name.
    fn walk(&mut self, directory: &Path, patterns: &[HiddenPattern], states: &[u64]) -> io::Result<()> {
        let is_near = |(source, _): &(&Path, &Path)| directory.starts_with(source) || source.starts_with(directory);
        if !self.shown.iter().any(is_near) {
            return Ok(());
        }
        let failed = |error: io::Error| {
            let words = format!("sandbox: hide: {}: {error}", directory.display());
            reworded(error, words)
        };
        let entries = match directory.read_dir().and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            // The program may be able to open a file there whose name it knows.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !self.is_shown_itself(directory) => {
                self.files.insert(directory.to_owned());
                return Ok(());
            }
            // Not a directory, or none any more.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let name = entry.file_name();
            let next =
                || patterns.iter().zip(states).map(|(pattern, states)| (pattern, advance(pattern, *states, &name)));
            if next().any(|(pattern, states)| states >> pattern.len() & 1 == 1) {
                self.add(&entry.path())?;
                // A place below it stays visible.
                if !self.shown.iter().any(|(source, _)| source.starts_with(entry.path())) {
                    continue;
                }
            }
            if entry.file_type().map_err(failed)?.is_dir() {
                let next: Vec<u64> = next().map(|(_, states)| states).collect();
                if next.iter().any(|states| *states != 0) {
                    self.walk(&entry.path(), patterns, &next)?;
                }
            }
        }
        Ok(())
    }
}

/// These components, and those that may come next because `**` may be no directory.
fn reach(pattern: &HiddenPattern, states: u64) -> u64 {
    let skips = |states: u64, number| {
        if states >> number & 1 == 1 && pattern[number] == b"**" { states | (2_u64 << number) } else { states }
    };
    (0..pattern.len()).fold(states, skips)
}

/// The components that may match the next name, after this one.
fn advance(pattern: &HiddenPattern, states: u64, name: &OsStr) -> u64 {
    let next = |(number, part): (usize, &Vec<u8>)| match states >> number & 1 == 1 {
        true if part == b"**" => 1 << number,
        true if has_match(part, name.as_bytes()) => 2 << number,
        _ => 0,
    };
    reach(pattern, pattern.iter().enumerate().map(next).fold(0, |all, one| all | one))
}

/// Whether `*`, any bytes, and `?`, one byte, can stand for what the name has there.
fn has_match(part: &[u8], name: &[u8]) -> bool {
    match (part, name) {
        ([b'*', rest @ ..], name) => (0..=name.len()).any(|from| has_match(rest, &name[from..])),
        ([b'?', part @ ..], [_, name @ ..]) => has_match(part, name),
        ([one, part @ ..], [other, name @ ..]) => one == other && has_match(part, name),
        (part, name) => part.is_empty() && name.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, path: &str) -> bool {
        let HiddenPath { pattern, .. } = HiddenPath::of(Path::new(pattern)).expect("a pattern");
        let is_end = |states: u64| states >> pattern.len() & 1 == 1;
        let mut states = reach(&pattern, 1);
        for name in Path::new(path) {
            if is_end(states) {
                return true;
            }
            states = advance(&pattern, states, name);
        }
        is_end(states)
    }

    #[test]
    fn patterns_match_names_and_directories() {
        for (pattern, path, wanted) in [
            ("**/.env", ".env", true),
            ("**/.env", "a/b/.env", true),
            ("**/.env", "a/.envrc", false),
            ("**/.env*", "a/.envrc", true),
            ("*.pem", "key.pem", true),
            ("*.pem", "a/key.pem", false),
            ("*/secret", "a/secret", true),
            ("*/secret", "a/b/secret", false),
            ("**/private/**", "a/private/b", true),
            ("**/a/**/b", "x/a/y/z/b", true),
            ("**/a/**/b", "x/a/b", true),
            ("**/a/**/b", "x/b/a", false),
            ("?.k*y", "a.k-key", true),
            ("?.k*y", ".key", false),
            ("**", "x", true),
        ] {
            assert_eq!(is_match(pattern, path), wanted, "{pattern} {path}");
        }
        assert_eq!(HiddenPath::of(Path::new("/srv/x/**/.env")).expect("a pattern").fixed, Path::new("/srv/x"));
        assert!(is_match("./*.pem", "a.pem"));
        for wrong in ["", "../*.pem", "**/../x"] {
            assert!(HiddenPath::of(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
