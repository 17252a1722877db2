//! A short soak test, and one with a planted fault, which must fail. `cargo xtask soak` is the long one.

testing::usual_surroundings!();

use std::process::{Command, Output};

fn soak(args: &[&str]) -> Output {
    // Its own process group: if this test is killed, other tests are not.
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.args(args).output().expect("soak")
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn launches_of_all_forms_succeed_and_leak_nothing() {
    let output = soak(&["--launches", "20000", "--seed", "7"]);
    assert!(output.status.success(), "{}", text(&output));
}

/// Negative control: each kind of fault is detected.
#[test]
fn a_soak_with_a_fault_fails() {
    for (fault, words) in [
        ("answer", "wrong answers"),
        ("descriptor", "descriptors ["),
        ("thread", "2 threads, before 1"),
        ("memory", "KiB resident"),
        ("mappings", "mappings, before"),
        ("handler", "handlers in children"),
        ("orphan", "processes that the host has left"),
    ] {
        let output = soak(&["--launches", "1200", "--threads", "4", "--seed", "3", "--control", fault]);
        assert_eq!(output.status.code(), Some(1), "{fault}: {}", text(&output));
        let problems = text(&output);
        assert!(problems.contains(words), "{fault}: {problems}");
    }
}
