//! What a sandbox hides of what it shows: paths and patterns, looked up at each launch.

use super::GivenPath;
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

/// The components of a pattern from a directory on: `**` is any number of directories.
type Pattern = Vec<Vec<u8>>;

/// The places, and what the paths and patterns are at the moment, wherever that is shown. Places themselves stay visible.
pub(super) fn look_up(hidden: &[PathBuf], places: &[GivenPath]) -> io::Result<Vec<GivenPath>> {
    let of_all = SHOWN.map(Path::new).into_iter().filter(|path| path.is_dir() && !path.is_symlink());
    let of_places = places.iter().map(|place| (place.source.as_path(), place.path.as_path()));
    let shown: Vec<(&Path, &Path)> = of_all.map(|path| (path, path)).chain(of_places).collect();
    let mut found = Search { shown: &shown, files: BTreeSet::new() };
    let mut patterns: BTreeMap<PathBuf, Vec<Pattern>> = BTreeMap::new();
    for given in hidden {
        let (fixed, pattern) = split(given);
        if pattern.is_empty() {
            found.add(&std::path::absolute(given)?)?;
        } else if fixed.is_absolute() {
            if let Some(base) = real(&fixed)? {
                patterns.entry(base).or_default().push(pattern);
            }
        } else {
            let pattern: Pattern = fixed.iter().map(|name| name.as_bytes().to_vec()).chain(pattern).collect();
            places.iter().for_each(|place| patterns.entry(place.source.clone()).or_default().push(pattern.clone()));
        }
    }
    for (base, patterns) in patterns {
        let states = patterns.iter().map(|pattern| reach(pattern, &[0])).collect();
        found.walk(&base, &patterns, states)?;
    }
    let mut all = BTreeMap::new();
    for file in found.files {
        let is_directory = file.is_dir();
        for (source, path) in &shown {
            let Ok(rest) = file.strip_prefix(source) else { continue };
            let path = path.components().chain(rest.components()).collect::<PathBuf>();
            if !shown.iter().any(|(_, place)| path == *place) {
                let source = file.clone();
                let hidden = GivenPath {
                    path: path.clone(),
                    source,
                    is_directory,
                    is_hidden: true,
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
    Ok(places.iter().cloned().chain(all.into_values()).collect())
}

/// The components before the first one with a wildcard, and those from there on.
fn split(given: &Path) -> (PathBuf, Pattern) {
    let is_fixed = |part: &Component<'_>| !part.as_os_str().as_bytes().iter().any(|byte| b"*?".contains(byte));
    let fixed: PathBuf = given.components().take_while(is_fixed).collect();
    let rest = given.components().skip_while(is_fixed).map(|part| part.as_os_str().as_bytes().to_vec());
    (fixed, rest.collect())
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
    fn walk(&mut self, directory: &Path, patterns: &[Pattern], states: Vec<Vec<usize>>) -> io::Result<()> {
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
            let advance = |(pattern, states): (&Pattern, &Vec<usize>)| advance(pattern, states, &name);
            let next: Vec<Vec<usize>> = patterns.iter().zip(&states).map(advance).collect();
            if patterns.iter().zip(&next).any(|(pattern, states)| states.contains(&pattern.len())) {
                self.add(&entry.path())?;
            } else if next.iter().any(|states| !states.is_empty()) && entry.file_type().map_err(failed)?.is_dir() {
                self.walk(&entry.path(), patterns, next)?;
            }
        }
        Ok(())
    }
}

/// These components, and those that may come next because `**` may be no directory.
fn reach(pattern: &Pattern, states: &[usize]) -> Vec<usize> {
    let mut all = BTreeSet::new();
    for &state in states {
        all.insert(state);
        let skipped = pattern[state..].iter().take_while(|part| *part == b"**").count();
        all.extend(state..=state + skipped);
    }
    all.into_iter().collect()
}

fn advance(pattern: &Pattern, states: &[usize], name: &OsStr) -> Vec<usize> {
    let next = |&state: &usize| match pattern.get(state) {
        Some(part) if part == b"**" => Some(state),
        Some(part) if has_match(part, name.as_bytes()) => Some(state + 1),
        _ => None,
    };
    reach(pattern, &states.iter().filter_map(next).collect::<Vec<_>>())
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

    fn matches(pattern: &str, path: &str) -> bool {
        let pattern: Pattern = split(Path::new(pattern)).1;
        let mut states = reach(&pattern, &[0]);
        for name in Path::new(path) {
            if states.contains(&pattern.len()) {
                return true;
            }
            states = advance(&pattern, &states, name);
        }
        states.contains(&pattern.len())
    }

    #[test]
    fn patterns_match_names_and_directories() {
        for (pattern, path, is_match) in [
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
            assert_eq!(matches(pattern, path), is_match, "{pattern} {path}");
        }
        assert_eq!(split(Path::new("/srv/x/**/.env")).0, Path::new("/srv/x"));
    }
}
