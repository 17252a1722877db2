//! `cargo xtask wrappers`, with few rounds and the development build.

use std::path::Path;

#[test]
fn wrappers_are_measured_in_turn_with_the_program_alone() {
    let table = xtask::wrappers::smoke(Path::new(env!("CARGO_BIN_EXE_forkless"))).expect("measured");
    for part in
        ["floor               /bin/true", "env", "forkless run", "timeout 5", "forkless run --timeout 5", "(target 1)"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    let skipped = table.lines().filter(|line| line.starts_with("SKIPPED: forkless") && !line.contains("--sandbox"));
    assert_eq!(skipped.count(), 0, "{table}");
}
