//! The generated pages are up to date.

use std::fs;
use std::path::Path;
use xtask::kernels::page;
use xtask::{dist, inventory, settings, trust};

fn is_up_to_date(page: &str, now: &str, task: &str) {
    let committed = fs::read_to_string(dist::root().join(Path::new(page))).expect("the page");
    if let Some(line) = committed.lines().zip(now.lines()).position(|(then, now)| then != now) {
        panic!("{page} is out of date from line {} on: run `cargo xtask {task}`", line + 1);
    }
    assert_eq!(committed.len(), now.len(), "{page} is out of date: run `cargo xtask {task}`");
}

#[test]
fn unsafe_page_is_up_to_date() {
    let now = inventory::page(&dist::root()).expect("a page");
    assert!(now.contains("| all of it | "), "no totals");
    assert!(!now.contains("No reason is given."), "a block without a reason");
    is_up_to_date(inventory::PAGE, &now, "unsafe");
}

#[test]
fn trust_page_is_up_to_date() {
    let now = trust::Sources::read(&dist::root()).and_then(|sources| sources.page()).expect("a page");
    is_up_to_date(trust::PAGE, &now, "trust");
}

#[test]
fn the_table_of_kernels_is_that_of_the_record() {
    is_up_to_date(page::PAGE, &page::page(&dist::root()).expect("a page"), "kernels --page");
}

#[test]
fn named_tests_and_faults_exist() {
    let sources = trust::Sources::read(&dist::root()).expect("promises");
    let missing = sources.missing(&dist::root()).expect("sources");
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    let unknown = sources.unknown_faults();
    assert!(unknown.is_empty(), "no such faults: {unknown:#?}");
}

#[test]
fn what_follows_from_the_table_of_settings_is_up_to_date() {
    let files = settings::files(&dist::root()).expect("the files and their marks");
    assert!(files.len() >= 4, "{} files", files.len());
    for (name, now) in files {
        is_up_to_date(name, &now, "settings");
    }
}

#[test]
fn resources_have_the_names_of_the_library_in_perl() {
    let module = fs::read_to_string(dist::root().join("bindings/perl/lib/Forkless/Command.pm")).expect("the module");
    let after = module.split_once("%RESOURCE").expect("the list").1;
    let list = after.split_once("qw(").and_then(|(_, rest)| rest.split_once(')')).expect("names").0;
    let names: Vec<String> = list.split_whitespace().map(str::to_lowercase).collect();
    assert_eq!(names, forkless::Resource::ALL.map(forkless::Resource::name));
}

/// The CI of the hosting services calls the tasks that exist.
#[test]
fn hosted_ci_runs_tasks_that_exist() {
    for name in [".github/workflows/ci.yml", ".gitlab-ci.yml"] {
        let text = fs::read_to_string(dist::root().join(name)).expect("the definition");
        let tasks: Vec<_> = text.lines().filter_map(|line| Some(line.split_once("cargo xtask ")?.1)).collect();
        assert!(tasks.len() >= 3, "{name}: {tasks:?}");
        for task in tasks {
            let mut xtask = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
            let output = xtask.args(task.split(' ')).arg("--help").output().expect("xtask");
            assert!(output.status.success(), "{name}: {task}: {}", String::from_utf8_lossy(&output.stderr));
        }
        // The oldest Rust is that of the manifest.
        let manifest = fs::read_to_string(dist::root().join("Cargo.toml")).expect("the manifest");
        let oldest = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
        let line = format!("rustup toolchain install --profile minimal {}", oldest.trim_matches('"'));
        assert!(text.lines().any(|text| text.trim_end().ends_with(&line)), "{name}: not {oldest}");
    }
}

/// What a wrong word in a definition looks like.
#[test]
fn unknown_kinds_of_packages_are_refused() {
    let mut xtask = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = xtask.args(["package", "nonsense", "--help"]).output().expect("xtask");
    assert!(!output.status.success(), "{output:?}");
}
