//! Languages with `popen` and `system` functions of their own.

use super::compare::{DIRECT, Place, SHELL};
use std::process::Command;

const PHP: &str = include_str!("scripts/all.php");

#[test]
fn php() {
    let Some(place) = Place::for_programs(&["php"]) else { return };
    let (seen, log) = place.file("script.php", PHP).compare(&["php", "-n", "script.php"]);
    assert_eq!(seen.status.code(), Some(9), "{seen:?}");
    log.has("popen", "uname -s", DIRECT);
    log.has("popen", "/bin/echo 'a  b' \"c d\"", DIRECT);
    log.has("popen", "cat < written", DIRECT);
    log.has("popen", "nonesuch --x", SHELL);
    log.has("popen", "echo one; echo two", SHELL);
    assert_eq!((0..100).map(|n| log.count("popen", &format!("expr {n} + 1"), DIRECT)).sum::<usize>(), 100);
    assert_eq!(log.count("popen", "cat", DIRECT), 10, "and not proc_open's, which forks");
}

const LUA: &str = include_str!("scripts/all.lua");

#[test]
fn lua() {
    let Some(place) = Place::for_programs(&["lua5.4"]) else { return };
    let place = place.file("script.lua", LUA).input("what the script was given\n");
    let (seen, log) = place.compare(&["lua5.4", "script.lua"]);
    assert_eq!(seen.status.code(), Some(9), "{seen:?}");
    assert!(seen.out.contains("reads our input\twhat the script was given\n"), "{}", seen.out);
    for function in ["system", "popen"] {
        log.has(function, "uname -s", DIRECT);
        log.has(function, "nonesuch --x", SHELL);
        log.has(function, "exit 3", SHELL);
    }
    assert_eq!((1..=100).map(|n| log.count("popen", &format!("expr {n} + 1"), DIRECT)).sum::<usize>(), 100);
}

/// gawk's `print |` and `system` call libc before 5.3; input pipes use its own fork.
const GAWK: &str = include_str!("scripts/all.awk");

#[test]
fn gawk() {
    let Some(place) = Place::for_programs(&["gawk"]) else { return };
    let (seen, log) = place.file("script.awk", GAWK).compare(&["gawk", "-f", "script.awk"]);
    assert!(seen.status.success() && seen.out.contains("780 0\n"), "{seen:?}");
    let imports = Command::new("nm").args(["--dynamic", "--undefined-only", "/usr/bin/gawk"]).output().expect("nm");
    if !String::from_utf8_lossy(&imports.stdout).contains(" system") {
        return assert!(log.0.is_empty(), "{:#?}", log.0);
    }
    log.has("system", "uname -s", DIRECT);
    log.has("system", "exit 3", SHELL);
    log.has("popen", "sort", DIRECT);
    log.has("popen", "cat > written0", DIRECT);
    for forked in ["ls -a", "tr a-z A-Z"] {
        assert_eq!(log.count("popen", forked, ""), 0, "{:#?}", log.0);
    }
}

#[test]
fn ed() {
    let Some(place) = Place::for_programs(&["ed"]) else { return };
    let place = place.input("r !ls -a\n,p\nw !sort -r\n!uname -s\nr !nonesuch\n!exit 3\n,w !tr a-z A-Z | sort\nQ\n");
    let (seen, log) = place.file("a file", "text\n").compare(&["ed", "-s"]);
    assert!(seen.out.contains("a file\n"), "{seen:?}");
    log.has("popen", "ls -a", DIRECT);
    log.has("popen", "sort -r", DIRECT);
    log.has("system", "uname -s", DIRECT);
}

#[test]
fn sqlite() {
    let Some(place) = Place::for_programs(&["sqlite3"]) else { return };
    let input = ".shell uname -s\n.output '|sort -r'\nselect value from json_each('[1,2,3]');\n\
                 .output\n.shell exit 3\n.import '|seq 5' five\n.mode list\nselect count(*) from five;\n.quit\n";
    let place = place.input(input);
    let (seen, log) = place.compare(&["sqlite3", "-batch"]);
    assert!(seen.out.contains("3\n2\n1\n"), "{seen:?}");
    log.has("popen", "sort -r", DIRECT);
    log.has("system", "uname -s", DIRECT);
}

/// `os.system` and `os.posix_spawn` call libc; `subprocess` forks by itself, unless close_fds is false.
const PYTHON: &str = include_str!("scripts/all.py");

#[test]
fn python() {
    let Some(place) = Place::for_programs(&["python3"]) else { return };
    let place = place.file("script.py", PYTHON);
    let (seen, log) = place.compare(&["/usr/bin/python3", "-I", "script.py"]);
    assert_eq!(seen.status.code(), Some(9), "{seen:?}");
    log.has("system", "uname -s", DIRECT);
    log.has("posix_spawn", "/bin/sh", "pid");
    log.has("posix_spawnp", "sh", "pid");
    log.has("posix_spawn", "/bin/grep", "pid");
    assert_eq!(log.count("posix_spawn", "/bin/cat", ""), 1, "{:#?}", log.0);
}
