//! The door to `forkless-bench`: `forkless bench` executes it, and the doctor, the man pages and the completions ask it. Here it is
//! a script; `bench/tests` are the tests of the program itself.

testing::usual_surroundings!();

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Output, time::Duration};

use forkless::Command;
use serde_json::Value;

/// Answers as `forkless-bench` does.
const SCRIPT: &str = r#"#!/bin/sh
case $1 in
    --man) echo '.TH FORKLESS-BENCH 1' ;;
    --complete) shift; printf 'commands \n'; printf '%s\t\n' "$@" ;;
    --brief) cat "$0.json" ;;
    *) printf '%s\n' "$@"; exit 7 ;;
esac
"#;

/// Runs a copy of forkless in this directory.
fn forkless(place: &Path, words: &[&str]) -> Output {
    let path = place.join("forkless");
    if !path.exists() {
        fs::copy(env!("CARGO_BIN_EXE_forkless"), &path).expect("a copy");
    }
    let mut command = Command::new(path);
    // Another test may have cloned while the copy was open for writing.
    command.retry_busy(Duration::from_secs(9));
    let output = command.args(words).env("PATH", "/usr/bin:/bin").output().expect("forkless starts");
    Output { status: output.status, stdout: output.stdout, stderr: output.stderr }
}

fn script(directory: &Path) {
    let path = directory.join("forkless-bench");
    fs::write(&path, SCRIPT).expect("writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
}

fn out(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("text")
}

#[test]
fn bench_is_a_program_beside_this_one() {
    let place = tempfile::tempdir().expect("temporary directory");
    script(place.path());
    let output = forkless(place.path(), &["bench", "--quick", "--", "-a b"]);
    assert_eq!((out(&output), output.status.code()), ("--quick\n--\n-a b\n", Some(7)), "{output:?}");
    assert_eq!(out(&forkless(place.path(), &["help", "bench"])), "--help\n");
    for name in ["bench", "forkless-bench"] {
        assert_eq!(out(&forkless(place.path(), &["man", name])), ".TH FORKLESS-BENCH 1\n");
    }
    let pages = place.path().join("man1");
    assert!(forkless(place.path(), &["man", "--dir", pages.to_str().expect("UTF-8")]).status.success());
    assert_eq!(fs::read(pages.join("forkless-bench.1")).expect("a page"), b".TH FORKLESS-BENCH 1\n");
    let asked = forkless(place.path(), &["completions", "--answer", "--", "bench", "--quick", "--f"]);
    assert_eq!(out(&asked), "commands \n--quick\t\n--f\t\n");
}

#[test]
fn bench_is_found_in_path_and_else_named() {
    let (place, elsewhere) = (tempfile::tempdir().expect("temporary"), tempfile::tempdir().expect("temporary"));
    let output = forkless(place.path(), &["bench", "--quick"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{words}");
    assert!(words.contains("neither beside forkless nor in PATH") && words.lines().count() == 1, "{words}");
    let asked = forkless(place.path(), &["completions", "--answer", "--", "bench", "--f"]);
    assert_eq!(out(&asked), "nothing \n");
    script(elsewhere.path());
    let mut command = Command::new(place.path().join("forkless"));
    let found = command.args(["bench", "x"]).env("PATH", elsewhere.path()).output().expect("forkless starts");
    assert_eq!(out(&found), "x\n", "{found:?}");
}

#[test]
fn doctor_shows_what_bench_has_measured() {
    let place = tempfile::tempdir().expect("temporary directory");
    let report = |words: &[&str]| forkless(place.path(), &[&["doctor", "--memory=1G"], words].concat());
    let json = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).expect("JSON") };
    let without = json(&report(&["--json"]));
    assert!(without["measurements"]["none"].as_str().is_some_and(|why| why.contains("forkless-bench")), "{without:#}");
    script(place.path());
    let times = r#""n": 500, "held_p50_us": 20.5, "held_p99_us": 30, "total_p50_us": 1234.5, "total_p99_us": 2000"#;
    let brief = format!(
        r#"{{"rows": [{{"launcher": "floor", "ratio_to_floor": 1, "fds": 3, {times}}},
            {{"launcher": "forkless-status", "ratio_to_floor": 1.02, {times}}}],
            "fork": {{"small_us": 50, "gib_us": 1000}}, "debug_build": false}}"#
    );
    fs::write(place.path().join("forkless-bench.json"), brief).expect("writable");
    let with = json(&report(&["--json"]));
    let rows = &with["measurements"]["rows"];
    assert_eq!((&rows[0]["contestant"], &rows[0]["launcher"]), (&"floor".into(), &Value::Null));
    assert_eq!((&rows[1]["contestant"], &rows[1]["launcher"]), (&"forkless-status".into(), &"Clone".into()));
    let documented = include_str!("../../../docs/doctor.md");
    let keys: Vec<&String> = rows[0].as_object().expect("an object").keys().collect();
    assert!(keys.len() == 8 && keys.iter().all(|key| documented.contains(&format!("| `{key}` |"))), "{keys:?}");
    assert_eq!(
        (&with["launch"]["fork_us"], &with["measurements"]["fork_us_per_gib"]),
        (&1050.0.into(), &1000.0.into())
    );
    let text = report(&["--all"]);
    let text = out(&text);
    assert!(
        text.contains("\nClone (status)                20.5         30.0      1,235      2,000   1.02\n"),
        "{text}"
    );
    // Its errors are the reason.
    fs::remove_file(place.path().join("forkless-bench.json")).expect("ours");
    assert!(json(&report(&["--json"]))["measurements"]["none"].as_str().is_some_and(|why| why.contains("cat:")));
}
