//! `share/forkless/uninstall`, which `cargo xtask dist` installs: what it removes, and what it leaves. With files that are not built.

testing::usual_surroundings!();

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testing::dist::InstallPlace;
use testing::installed;

/// Files as those of dist, with a link and a name with a blank.
const FILES: [&str; 5] =
    ["bin/forkless", "lib/libforkless.so.0", "share/man/man1/forkless.1", "share/doc/forkless/A B", "include/f.h"];

struct Prefix {
    _base: tempfile::TempDir,
    base: PathBuf,
    place: InstallPlace,
}

impl Prefix {
    /// Installs below `BASE/dest`, for the prefix `/opt/here`.
    fn new() -> Self {
        let base = tempfile::tempdir().expect("temporary directory");
        let path = base.path().to_owned();
        let place = InstallPlace { prefix: "/opt/here".into(), libdir: "lib".into(), destdir: Some(path.join("dest")) };
        Self { _base: base, base: path, place }
    }

    fn root(&self) -> PathBuf {
        self.base.join("dest/opt/here")
    }

    fn install(&self, files: &[&str]) {
        let stage = self.base.join("stage");
        let _ = fs::remove_dir_all(&stage);
        let staged = InstallPlace { destdir: Some(stage.clone()), ..self.place.clone() };
        for file in files {
            let path = stage.join("opt/here").join(file);
            fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
            fs::write(path, file).expect("writable");
        }
        if files.contains(&"lib/libforkless.so.0") {
            symlink("libforkless.so.0", stage.join("opt/here/lib/libforkless.so")).expect("writable");
        }
        installed::install(&staged, &self.place).expect("installed");
    }

    fn uninstall(&self) -> Output {
        Command::new(self.root().join("share/forkless/uninstall")).current_dir("/").output().expect("sh")
    }

    fn write(&self, file: &str) {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
        fs::write(path, "of another program").expect("writable");
    }

    /// All that is below the prefix.
    fn left(&self) -> BTreeSet<String> {
        fn walk(directory: &Path, base: &Path, found: &mut BTreeSet<String>) {
            for entry in fs::read_dir(directory).expect("a directory").flatten() {
                found.insert(entry.path().strip_prefix(base).expect("below").display().to_string());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    walk(&entry.path(), base, found);
                }
            }
        }
        let mut found = BTreeSet::new();
        walk(&self.root(), &self.root(), &mut found);
        found
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn uninstall_removes_all_of_ours_and_nothing_else() {
    let prefix = Prefix::new();
    // They exist before, so they stay, even if they are empty then.
    fs::create_dir_all(prefix.root().join("bin")).expect("writable");
    fs::create_dir_all(prefix.root().join("share/man")).expect("writable");
    prefix.install(&FILES);
    assert!(FILES.iter().all(|file| prefix.left().contains(*file)));
    prefix.write("lib/libother.so");
    prefix.write("share/forkless/notes");
    let output = prefix.uninstall();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let left = ["bin", "lib", "lib/libother.so", "share", "share/forkless", "share/forkless/notes", "share/man"];
    assert_eq!(prefix.left(), set(&left));
    let shown = text(&output.stdout);
    // The files, the link, the list, the script, and four directories: include, share/doc, share/doc/forkless, share/man/man1.
    assert_eq!(shown.lines().count(), FILES.len() + 3 + 4, "{shown}");
    let root = prefix.root().display().to_string();
    assert!(shown.lines().all(|line| line.starts_with(&format!("removed {root}/"))), "{shown}");
}

#[test]
fn later_installation_keeps_what_the_first_one_has_listed() {
    let prefix = Prefix::new();
    prefix.install(&FILES);
    // Libraries only, and a header that the first one had not.
    prefix.install(&["lib/libforkless.so.0", "include/new.h"]);
    let output = prefix.uninstall();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(prefix.left(), set(&[]));
}

#[test]
fn paths_outside_of_the_prefix_are_refused_before_anything_is_removed() {
    for path in ["../victim", "lib/../../victim", "/etc/victim", "", "./lib", "..", "lib/.."] {
        let prefix = Prefix::new();
        prefix.install(&FILES);
        fs::write(prefix.base.join("dest/opt/victim"), "precious").expect("writable");
        let list = prefix.root().join("share/forkless/installed");
        fs::write(&list, fs::read_to_string(&list).expect("a list") + path + "\n").expect("writable");
        let before = prefix.left();
        let output = prefix.uninstall();
        assert_eq!(output.status.code(), Some(1), "{path}: {output:?}");
        assert!(text(&output.stderr).contains("nothing was removed"), "{path}: {output:?}");
        assert!(prefix.left() == before && prefix.base.join("dest/opt/victim").exists(), "{path}");
    }
}

#[test]
fn script_without_a_list_or_in_another_place_is_an_error() {
    let prefix = Prefix::new();
    prefix.install(&FILES);
    let script = prefix.root().join("share/forkless/uninstall");
    let link = prefix.base.join("uninstall");
    symlink(&script, &link).expect("writable");
    for (program, words) in [(&link, "run the installed script by its path"), (&script, "installed is missing")] {
        if *program == script {
            fs::remove_file(script.with_file_name("installed")).expect("a list");
        }
        let output = Command::new(program).output().expect("sh");
        assert!(output.status.code() == Some(1) && text(&output.stderr).contains(words), "{output:?}");
        assert!(prefix.left().contains("bin/forkless"));
    }
}

/// A directory in the place of a file stops the script, and the list stays.
#[test]
fn run_that_fails_can_be_repeated() {
    let prefix = Prefix::new();
    prefix.install(&FILES);
    let file = prefix.root().join("include/f.h");
    fs::remove_file(&file).expect("ours");
    fs::create_dir(&file).expect("writable");
    let output = prefix.uninstall();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(prefix.left().contains("share/forkless/installed") && !prefix.left().contains("bin/forkless"));
    fs::remove_dir(&file).expect("ours");
    assert!(prefix.uninstall().status.success());
    assert_eq!(prefix.left(), set(&[]));
}

/// Debian and others have links in place of directories.
#[test]
fn directory_may_be_a_link() {
    let prefix = Prefix::new();
    let elsewhere = prefix.base.join("elsewhere");
    fs::create_dir_all(elsewhere.join("share")).expect("writable");
    fs::create_dir_all(prefix.root()).expect("writable");
    symlink(elsewhere.join("share"), prefix.root().join("share")).expect("writable");
    prefix.install(&FILES);
    assert!(elsewhere.join("share/forkless/uninstall").exists());
    assert!(prefix.uninstall().status.success());
    assert_eq!(prefix.left(), set(&["share"]));
    assert_eq!(fs::read_dir(elsewhere.join("share")).expect("a directory").count(), 0);
}
