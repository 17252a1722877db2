//! Planted faults: `tests/faults/NAME.patch`.
//!
//! A patch begins with its reason and the tests that must fail, as TOML. Its hunks break a rule of the sources where
//! `planted!("NAME")` is true. All patches together are applied to a copy of the tree, which is built once; the variable
//! `FORKLESS_PLANTED` then selects one of them in a process. The sources themselves have no marks.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Package, test target (`lib`: the unit tests), name of the test.
#[derive(Deserialize, Serialize, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test(pub String, pub String, pub String);

/// The beginning of a patch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// What the fault does to a user.
    pub why: String,
    /// The tests that must fail.
    pub tests: Vec<Test>,
    /// CI tries this fault.
    #[serde(default)]
    pub central: bool,
    /// Time limit of a test, in seconds.
    pub limit: Option<u64>,
    /// Environment variables of the tests, such as one that selects a case of a table.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A planted fault.
pub struct Fault {
    pub name: String,
    pub head: Head,
    hunks: Vec<Hunk>,
}

/// A part of a patch in the unified format.
struct Hunk {
    file: PathBuf,
    /// The line, from 0, at which the hunk began when the patch was made.
    at: usize,
    /// `' '`, `'-'` or `'+'`, and the line.
    lines: Vec<(char, String)>,
}

/// New lines in place of others.
struct Edit<'a> {
    first: usize,
    end: usize,
    new: Vec<&'a str>,
    fault: &'a str,
}

/// All faults, by name.
///
/// # Errors
/// If a patch cannot be read.
pub fn read(root: &Path) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for entry in fs::read_dir(root.join("tests/faults")).context("tests/faults")? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "patch") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let fault = parse(&name, &fs::read_to_string(&path)?);
            faults.push(fault.with_context(|| path.display().to_string())?);
        }
    }
    faults.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(faults)
}

fn parse(name: &str, text: &str) -> Result<Fault> {
    let start = ["\ndiff --git ", "\n--- a/"].iter().find_map(|line| text.find(line)).context("it has no hunk")?;
    let (head, diff) = text.split_at(start);
    let (mut hunks, mut file) = (Vec::<Hunk>::new(), PathBuf::new());
    for line in diff.lines().skip(1) {
        if ["diff --git ", "index ", "--- a/"].iter().any(|other| line.starts_with(other)) {
            continue;
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            file = path.into();
        } else if let Some(places) = line.strip_prefix("@@ -") {
            let at: usize = places.split([',', ' ']).next().unwrap_or("").parse().context("the place of a hunk")?;
            hunks.push(Hunk { file: file.clone(), at: at.saturating_sub(1), lines: Vec::new() });
        } else if let (Some(hunk), Some(kind)) = (hunks.last_mut(), line.chars().next()) {
            ensure!([' ', '-', '+'].contains(&kind), "not a line of a hunk: {line}");
            hunk.lines.push((kind, line[1..].to_owned()));
        }
    }
    Ok(Fault { name: name.to_owned(), head: toml::from_str(head)?, hunks })
}

impl Hunk {
    /// The first of the file's lines that this hunk changes: where its own old lines stand, nearest to where they were.
    fn find_lines(&self, lines: &[&str]) -> Option<usize> {
        let old: Vec<&str> = self.lines.iter().filter(|(kind, _)| *kind != '+').map(|(_, line)| &**line).collect();
        let places = (0..=lines.len().checked_sub(old.len())?).filter(|&at| lines[at..at + old.len()] == old);
        places.min_by_key(|place| place.abs_diff(self.at))
    }

    fn edits<'a>(&'a self, fault: &'a str, lines: &[&str]) -> Result<Vec<Edit<'a>>> {
        let mut at = self.find_lines(lines).with_context(|| {
            format!("tests/faults/{fault}.patch no longer applies to {}: make it again", self.file.display())
        })?;
        let mut edits = Vec::<Edit<'_>>::new();
        for (kind, line) in &self.lines {
            let is_new = edits.last().is_none_or(|edit| edit.end != at);
            if *kind != ' ' && is_new {
                edits.push(Edit { first: at, end: at, new: Vec::new(), fault });
            }
            match (kind, edits.last_mut()) {
                ('-', Some(edit)) => {
                    edit.end += 1;
                    at += 1;
                }
                ('+', Some(edit)) => edit.new.push(line),
                _ => at += 1,
            }
        }
        Ok(edits)
    }
}

/// The contents of the files that the faults change, with all faults applied.
///
/// # Errors
/// If a patch does not apply, or two change the same line.
pub fn planted(root: &Path, faults: &[Fault]) -> Result<BTreeMap<PathBuf, String>> {
    let mut changed = BTreeMap::new();
    let files: BTreeSet<&PathBuf> = faults.iter().flat_map(|fault| &fault.hunks).map(|hunk| &hunk.file).collect();
    for file in files {
        let text = fs::read_to_string(root.join(file)).with_context(|| file.display().to_string())?;
        let lines: Vec<&str> = text.lines().collect();
        let mut edits = Vec::new();
        for fault in faults {
            for hunk in fault.hunks.iter().filter(|hunk| hunk.file == *file) {
                edits.extend(hunk.edits(&fault.name, &lines)?);
            }
        }
        edits.sort_by_key(|edit| (edit.first, edit.end));
        for both in edits.windows(2) {
            let is_apart = both[0].end <= both[1].first;
            ensure!(is_apart, "{}: {} and {} change the same line", file.display(), both[0].fault, both[1].fault);
        }
        let (mut new, mut at) = (Vec::<&str>::new(), 0);
        for edit in &edits {
            new.extend(&lines[at..edit.first]);
            new.extend(&edit.new);
            at = edit.end;
        }
        new.extend(&lines[at..]);
        changed.insert(file.clone(), new.join("\n") + "\n");
    }
    Ok(changed)
}

/// Copies the tree with all faults, and adds the code that selects one of them. An unchanged file of an earlier copy keeps
/// its modification time, so that cargo does not build it again.
///
/// # Errors
/// If a patch does not apply, or a file cannot be copied.
pub fn copy(root: &Path, to: &Path, faults: &[Fault]) -> Result<()> {
    let mut broken = planted(root, faults)?;
    let own = |name: &str| fs::read_to_string(root.join(name)).with_context(|| name.to_owned());
    // The crates that depend on these find the selector in them.
    let selectors = [
        (
            "crates/core/src/lib.rs",
            "#[allow(missing_docs)]\n#[path = \"../../../tests/faults/selector.rs\"]\npub mod planted;\n".to_owned(),
        ),
        ("crates/forkless/src/lib.rs", "#[doc(hidden)]\npub use forkless_core::planted;\n".to_owned()),
        ("bindings/perl/start.h", own("tests/faults/selector.h")?),
    ];
    for (name, more) in selectors {
        let text = broken.remove(Path::new(name)).map_or_else(|| own(name), Ok)?;
        broken.insert(name.into(), text + &more);
    }
    let mut list = Command::new("git");
    list.current_dir(root).args(["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]);
    let list = testing::output(&mut list).context("git ls-files")?;
    // Remove modules that have moved since the last copy.
    let mut there = Command::new("find");
    there.arg(to).args(["-name", "*.rs", "-printf", "%P\\n"]);
    let names: BTreeSet<&str> = list.lines().collect();
    for name in testing::output(&mut there).unwrap_or_default().lines().filter(|name| !names.contains(name)) {
        fs::remove_file(to.join(name))?;
    }
    for name in list.lines().map(Path::new) {
        let (from, to) = (root.join(name), to.join(name));
        let text = match broken.remove(name) {
            Some(text) => text.into_bytes(),
            None if from.is_symlink() => {
                let _ = fs::remove_file(&to);
                fs::create_dir_all(to.parent().context("a directory")?)?;
                std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
                continue;
            }
            // A file that was removed since the last commit.
            None if !from.exists() => {
                let _ = fs::remove_file(&to);
                continue;
            }
            None => fs::read(&from).with_context(|| from.display().to_string())?,
        };
        if fs::read(&to).is_ok_and(|there| there == text) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a directory")?)?;
        fs::write(&to, text).with_context(|| to.display().to_string())?;
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "why = \"it breaks\"\ntests = [[\"a\", \"lib\", \"b\"]]\n\ndiff --git a/file b/file\nindex 1..2\n--- a/file\n+++ b/file\n";

    fn tree(text: &str) -> tempfile::TempDir {
        let tree = tempfile::tempdir().expect("a directory");
        fs::write(tree.path().join("file"), text).expect("a file");
        tree
    }

    #[test]
    fn a_patch_follows_its_lines_and_fails_when_they_have_changed() {
        let patch = |hunk: &str| parse("fault", &format!("{HEAD}{hunk}")).expect("a patch");
        let fault = [patch("@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n")];
        let moved = tree("zero\n\none\ntwo\nthree\n");
        let broken = planted(moved.path(), &fault).expect("a patch that applies");
        assert_eq!(broken[Path::new("file")], "zero\n\none\n2\nthree\n");
        let changed = tree("one\nTwo\nthree\n");
        let error = planted(changed.path(), &fault).expect_err("a patch that does not apply");
        assert!(error.to_string().contains("tests/faults/fault.patch no longer applies to file"), "{error}");
    }

    #[test]
    fn patches_beside_each_other_apply_together_and_on_one_line_do_not() {
        let patch = |name: &str, hunk: &str| parse(name, &format!("{HEAD}{hunk}")).expect("a patch");
        let tree = tree("one\ntwo\nthree\n");
        let faults = [
            patch("a", "@@ -1,2 +1,2 @@\n-one\n+1\n two\n"),
            patch("b", "@@ -1,2 +1,3 @@\n one\n+1.5\n two\n"),
            patch("c", "@@ -2,2 +2,2 @@\n-two\n+2\n three\n"),
        ];
        assert_eq!(planted(tree.path(), &faults).expect("all apply")[Path::new("file")], "1\n1.5\n2\nthree\n");
        let both = [patch("c", "@@ -2,2 +2,2 @@\n-two\n+2\n three\n"), patch("d", "@@ -2 +2 @@\n-two\n+II\n")];
        let error = planted(tree.path(), &both).expect_err("one line").to_string();
        assert_eq!(error, "file: c and d change the same line");
    }
}
