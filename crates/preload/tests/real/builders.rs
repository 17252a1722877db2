//! Programs that use `posix_spawn`: make, ninja, Java, and programs written in Rust.

use super::compare::{Place, Way, say};
use std::path::Path;
use std::process::Command;

const MAKEFILE: &str = include_str!("scripts/Makefile");
const DEEP: &str = include_str!("scripts/deep.mk");

fn makefiles() -> Option<Place> {
    let place = Place::for_programs(&["make"])?;
    Some(place.file("Makefile", MAKEFILE).file("deep.mk", DEEP).file("deep/empty", "").file("not_executable", "text\n"))
}

/// A recursive make shares its jobserver pipe: the jobs of the inner one wait for tokens.
#[test]
fn make() {
    let Some(place) = makefiles() else { return };
    let place = place.but(Way::Stdio);
    let (seen, log) = place.compare(&["make", "-j4", "all"]);
    assert!(seen.status.success() && seen.out.matches("all of 3\n").count() == 2, "{seen:?}");
    assert!(!seen.out.contains("alone") && !seen.err.contains("jobserver"), "{seen:?}");
    log.has("posix_spawn", "/usr/bin/uname", "pid");
    log.has("posix_spawn", "/bin/sh", "pid");
    let (seen, _) = place.compare(&["make", "-j4", "-k", "fails", "words"]);
    assert_eq!(seen.status.code(), Some(2), "{seen:?}");
    let (seen, _) = place.compare(&["make", "--output-sync=target", "-j4", "words"]);
    assert!(seen.status.success(), "{seen:?}");
}

/// Negative control: without the pipe, the inner make reports that.
#[test]
fn make_without_its_jobserver_pipe_reports_it() {
    let Some(place) = makefiles() else { return };
    let help = Command::new("make").arg("--help").output().expect("make");
    // make 4.4 and later pass the name of a FIFO, unless told otherwise.
    let has_styles = String::from_utf8_lossy(&help.stdout).contains("--jobserver-style");
    let style: &[&str] = if has_styles { &["--jobserver-style=pipe"] } else { &[] };
    let words = [&["make", "-j4", "nothing"], style].concat();
    assert_eq!(place.run(&words, Way::Logged).0.err, "");
    let (seen, _) = place.run(&words, Way::Stdio);
    assert!(seen.status.success() && seen.err.contains("jobserver"), "{seen:?}");
}

const NINJA: &str = include_str!("scripts/build.ninja");

#[test]
fn ninja() {
    let Some(place) = Place::for_programs(&["ninja"]) else { return };
    let place = place.file("build.ninja", NINJA).file("in", "b\na\n");
    // Lines are in the order in which the jobs end.
    let plain = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(|line| line.split_once("] ").map_or(line, |(_, rest)| rest)).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    let (seen, log) = place.compare_by(&["ninja", "-v", "-j4", "all"], plain);
    assert!(seen.status.success() && seen.out.contains("A B"), "{seen:?}");
    assert!(log.count("posix_spawn", "/bin/sh", "pid") >= 12, "{:#?}", log.0);
    // 1, or from 1.12 on the exit code of a command.
    let (seen, _) = place.compare(&["ninja", "-j1", "-k0", "fails"]);
    assert!(!seen.status.success(), "{seen:?}");
}

const JAVA: &str = include_str!("scripts/All.java");

/// Java starts its helper jspawnhelper, which expects pipes at given descriptor numbers.
#[test]
fn java() {
    let Some(place) = Place::for_programs(&["java", "javac"]) else { return };
    let place = place.file("All.java", JAVA).but(Way::Stdio);
    let (seen, log) = place.compare(&["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "All.java"]);
    assert_eq!(seen.status.code(), Some(9), "{seen:?}");
    assert!(log.0.iter().any(|line| line.starts_with("posix_spawn(") && line.contains("jspawnhelper")), "{:#?}", log.0);
}

/// Rust's std uses posix_spawn: here cargo, which runs the compiler.
#[test]
fn cargo() {
    let Some(place) = Place::for_programs(&["cc"]) else { return };
    let cargo = std::env::var("CARGO").unwrap_or_default();
    let rustc = Path::new(&cargo).with_file_name("rustc");
    if !Command::new(&rustc).arg("--version").output().is_ok_and(|output| output.status.success()) {
        say("SKIPPED: cargo because there is no rustc beside it that this user can run");
        return;
    }
    let manifest = "[package]\nname = 'small'\nversion = '0.1.0'\nedition = '2021'\n[workspace]\n";
    let place = place.file("Cargo.toml", manifest).file("src/main.rs", "fn main() { println!(\"it runs\") }\n");
    let place = place.file("examples/wrong.rs", "fn main() { nothing() }\n");
    let rustc = format!("RUSTC={}", rustc.to_str().expect("UTF-8"));
    let (seen, log) = place.compare(&["env", &rustc, &cargo, "run", "-q", "--offline"]);
    assert_eq!(seen.out, "it runs\n", "{seen:?}");
    assert!(log.0.iter().any(|line| line.starts_with("posix_spawnp(") && line.contains("rustc")), "{:#?}", log.0);
    let (seen, _) = place.compare(&["env", &rustc, &cargo, "build", "-q", "--offline", "--example", "wrong"]);
    assert_eq!(seen.status.code(), Some(101), "{seen:?}");
}
