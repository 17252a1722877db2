//! Programs compiled with a sanitizer, whose library is loaded before this one and interposes some of the same
//! functions.

use super::compare::{PATH, Place, Way, say};
use std::process::Command;

const SOURCE: &str = include_str!("scripts/sanitized.c");

fn sanitized(kind: &str, library: &str) {
    let Some(place) = Place::for_programs(&["gcc"]) else { return };
    let found = Command::new("/usr/bin/gcc").arg(format!("-print-file-name={library}")).output().expect("gcc");
    let runtime = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    if !runtime.starts_with('/') {
        say(&format!("SKIPPED: -fsanitize={kind} because gcc has no {library}"));
        return;
    }
    let (source, program) = (place.outside().join("sanitized.c"), place.outside().join("sanitized"));
    std::fs::write(&source, SOURCE).expect("a file");
    let mut compile = Command::new("/usr/bin/gcc");
    compile
        .args(["-g", "-O1", "-Wall", "-Wno-use-after-free", "-pthread"])
        .arg(format!("-fsanitize={kind}"))
        .arg(&source);
    let compiled = compile.arg("-o").arg(&program).env("PATH", PATH).status().expect("gcc");
    assert!(compiled.success());
    let program = program.to_str().expect("UTF-8");
    let before = format!("LD_PRELOAD={runtime} {}", place.outside().join("libforkless_preload.so").display());
    for (preload, log) in [("A=b", "B=c"), (before.as_str(), "B=c"), (before.as_str(), "FORKLESS_LOG=1")] {
        // Set for the program only, not for `timeout`.
        let options =
            ["ASAN_OPTIONS=exitcode=77", "TSAN_OPTIONS=exitcode=77", "UBSAN_OPTIONS=halt_on_error=1:exitcode=77"];
        let words = [&["env", preload, log], options.as_slice(), &[program]].concat();
        let (seen, lines) = place.run(&words, Way::Without);
        let is_right = seen.status.success() && seen.out == "all of it\n" && seen.err.is_empty();
        assert!(is_right, "{kind}, {preload}: {seen:#?}");
        assert_eq!(lines.count("posix_spawnp", "sh", "pid"), if log == "B=c" { 0 } else { 25 });
        // Negative control: the sanitizer reports a planted error.
        let (seen, _) = place.run(&[words.as_slice(), &["wrong"]].concat(), Way::Without);
        assert_eq!(seen.status.code(), Some(77), "{kind} has not found what is wrong: {seen:#?}");
    }
}

#[test]
fn address() {
    sanitized("address", "libasan.so");
}

#[test]
fn thread() {
    sanitized("thread", "libtsan.so");
}

#[test]
fn undefined() {
    sanitized("undefined", "libubsan.so");
}
