//! The list of everything that a process inherits, `tests/attributes.toml`: a warm program has each attribute as a cold one does, or the
//! launch is cold.

use crate::common::{SCENARIO, by_template, command, grow_old, is_warm, library, prepared, warm};
use forkless_tests::attributes::{Fate, change, table};
use std::path::Path;
use std::process::Command;

/// The variable with the change that a process of its own makes, the program and an empty directory.
const CHANGE: &str = "FORKLESS_WARM_CHANGE";

/// After a change the program prints what a cold one prints, and the launch is warm if the child can take the value on.
fn changed(name: &str, program: &str, scratch: &Path) {
    let row = table().attribute.into_iter().find(|row| row.change.as_deref() == Some(name)).expect("an attribute");
    let warm = warm();
    let prepared = prepared(&mut command(program, &[]));
    let before = by_template(&warm, &prepared).expect("warm");
    if let Err(error) = change(name, scratch) {
        return println!("SKIPPED: {} because {error}", row.name);
    }
    let truth = command(program, &[]).output().expect("a cold launch").stdout;
    if truth == before.stdout {
        return println!("SKIPPED: {} because this kernel accepts it without effect", row.name);
    }
    let child = warm.spawn(&prepared).expect("a child");
    let (was_warm, why) = (is_warm(&child), child.cold_reason().map(str::to_owned));
    let seen = child.wait_with_output().expect("its output").stdout;
    assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(&truth), "warm: {was_warm}");
    assert_eq!(was_warm, row.warm == Fate::TakenOn, "{:?}: {why:?}", row.warm);
    println!("CHECKED: {}", row.name);
}

#[test]
fn every_attribute_reaches_a_warm_program_or_the_launch_is_cold() {
    library();
    if let Ok(text) = std::env::var(CHANGE) {
        let [name, program, scratch] = text.split(':').collect::<Vec<_>>()[..] else { panic!("NAME:PROGRAM:SCRATCH") };
        return changed(name, program, Path::new(scratch));
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (program, scratch) = (directory.path().join("attributes"), directory.path().join("scratch"));
    std::fs::create_dir(&scratch).expect("a directory");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/c/attributes.c");
    assert!(Command::new("cc").arg("-o").arg(&program).arg(source).status().expect("cc").success());
    Command::new("chmod").arg("755").arg(directory.path()).status().expect("chmod");
    grow_old(&program);
    let (mut checked, mut failed) = (0, Vec::new());
    let changes: Vec<_> = table().attribute.into_iter().filter_map(|row| row.change).collect();
    for name in &changes {
        const TEST: &str = "attributes::every_attribute_reaches_a_warm_program_or_the_launch_is_cold";
        let output = Command::new(std::env::current_exe().expect("a program"))
            .args([TEST, "--exact", "--nocapture"])
            .env(SCENARIO, TEST)
            .env(CHANGE, format!("{name}:{}:{}", program.display(), scratch.display()))
            .output()
            .expect("a process");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in text.lines().filter(|line| line.starts_with("SKIPPED")) {
            println!("{line}");
        }
        checked += text.contains("CHECKED: ") as usize;
        if !output.status.success() {
            failed.push(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), changes.len(), failed.join("\n"));
    assert!(checked >= 15, "only {checked} were checked");
}
