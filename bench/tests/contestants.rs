//! Every method of the bench alone: what its child inherits, and how many system calls it makes. Asserts no times.

testing::usual_surroundings!();

mod rows;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use rows::rows;
use serde_json::Value;
use testing::modules::{Modules, Profile};

/// Writes the differences to a child of the vfork baseline, which inherits everything, to the file of its name with `.said`.
const PROOF: &str = r#"#!/bin/sh
here=/proc/$$ parent=/proc/$PPID said=
variables() { tr '\0' '\n' <"$1/environ" | grep -Ev '^(PWD|OLDPWD|SHLVL|_)=' | sort; }
places() { tr '\0' '\n' <"$1/environ" | grep -c '^PWD='; }
[ "$(variables $here)" = "$(variables $parent)" ] && [ "$FORKLESS_PROOF" = given ] || said="$said, env"
for fd in 0 1 2; do
    [ "$(readlink $here/fd/$fd)" = "$(readlink "$0.fd$fd")" ] || { said="$said, stdio"; break; }
done
[ "$(readlink $here/fd/9)" = "$(readlink "$0.fd9")" ] || said="$said, fds"
[ "$(places $here)" = "$(places $parent)" ] || said="$said, shell"
echo "${said#, }" >"$0.said"
"#;

/// The launchers of the format that launch one program without captured output; and whether each may be missing.
fn launchers() -> Vec<(String, bool)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("FORMAT.md");
    let text = fs::read_to_string(path).expect("bench/FORMAT.md");
    let table = text.split("## launchers\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a table");
    let captures = ["forkless-output", "forkless-prepared-output", "forkless-memory-file"];
    let entry = |line: &str| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        // A script cannot be warm. The tests of crates/warm compare warm children with cold ones.
        let wanted = !name.contains("tokio") && !captures.contains(&name) && name != "forkless-warm";
        // Not every machine has each language, nor every libc the file action closefrom.
        let languages = ["go", "cpython", "perl-", "node-", "java", "glib", "libuv"];
        let may_be_missing = languages.iter().any(|begin| name.trim_start_matches("forkless-").starts_with(begin));
        wanted.then(|| (name.to_owned(), may_be_missing || name == "posix_spawn-closefrom"))
    };
    let launchers: Vec<_> = table.lines().filter_map(entry).collect();
    assert!(launchers.len() > 30, "{launchers:?}");
    launchers
}

/// The option --preload with the library, built and installed as for its own tests.
fn preload() -> Option<String> {
    static OPTION: OnceLock<Option<String>> = OnceLock::new();
    OPTION.get_or_init(install).clone()
}

fn install() -> Option<String> {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = own.join("c/lib/libforkless_preload.so");
    let option = Some(format!("--preload={}", library.display()));
    match testing::dist::install_once(&own.join("c"), own.parent().expect("a directory of cargo's")) {
        Ok(()) => option,
        // Another user's build directory may already have it. With write access, a failed build is an error.
        Err(_) if tempfile::tempfile_in(own).is_err() && library.exists() => option,
        Err(error) if tempfile::tempfile_in(own).is_err() => {
            eprintln!("SKIPPED: the preload library, because cargo cannot build as this user: {error:#}");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

/// The language modules of forkless, built as for their own tests.
fn modules() -> Modules {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let modules = Modules::build(own, own.parent().expect("a directory of cargo's"), Profile::Dev);
    let modules = modules.unwrap_or_else(|error| panic!("{error:#}"));
    modules.skipped().iter().for_each(|line| eprintln!("{line}"));
    modules
}

#[test]
fn children_differ_from_the_baseline_as_the_rows_say() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("proof"), PROOF).expect("writable");
    fs::set_permissions(at("proof"), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::write(at("nine"), "").expect("writable");
    fs::write(at("nine.complaints"), "").expect("writable");
    let null = Path::new("/dev/null").to_owned();
    for (link, target) in [("fd0", null.clone()), ("fd1", null), ("fd2", at("nine.complaints")), ("fd9", at("nine"))] {
        let target = fs::canonicalize(target).expect("there");
        symlink(target, at(&format!("proof.{link}"))).expect("writable");
    }
    let mut wrong = Vec::new();
    let (preload, modules) = (&preload(), modules());
    for (launcher, may_be_missing) in launchers() {
        let _ = fs::remove_file(at("proof.said"));
        // An inheritable descriptor, and no PWD, which shells add.
        let script = "exec 9<\"$0\" 2>\"$0.complaints\"; exec env -u PWD -u OLDPWD FORKLESS_PROOF=given \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(at("nine")).arg(env!("CARGO_BIN_EXE_forkless-bench"));
        command.args(["--quick", "--only=memory", "--memory=0", "--samples=1", "--time=0.01", "--json=-"]);
        command.args(["--no-progress", &format!("--launchers={launcher}"), "--out"]).arg(at("out"));
        modules.add_to(command.args(preload)).expect("no colon");
        let output = command.arg("--").arg(at("proof")).stdin(Stdio::null()).output().expect("sh");
        let complaints = fs::read_to_string(at("nine.complaints")).expect("readable");
        // A method of forkless whose module was built must not be missing.
        let may_be_missing = may_be_missing && !modules.is_required(&launcher);
        if may_be_missing && complaints.contains("none of the selected methods is available") {
            eprintln!("SKIPPED: {launcher}, because it is not installed");
            continue;
        }
        assert!(output.status.success(), "{launcher}: {complaints} {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let row = &rows(&report)[0];
        let said = fs::read_to_string(at("proof.said")).expect("it said");
        if said.trim() != row["unlike"].as_str().unwrap_or("") {
            wrong.push(format!("{launcher} is unlike in {said:?}, not in {}", row["unlike"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn system_calls_per_launch_are_counted() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.args(["--only=memory,output,path", "--memory=0", "--path-misses=7", "--samples=5", "--time=0.5"]);
    let launchers = "floor,fork,posix_spawn,forkless-status,forkless-zygote,forkless-preload-posix_spawn";
    let in_languages = "forkless-perl-system,forkless-perl-fastspawn,forkless-cpython,forkless-cpython-asyncio";
    let (preload, modules) = (preload(), modules());
    command.args([&format!("--launchers={launchers},{in_languages}"), "--json=-"]).args(&preload);
    let output = modules
        .add_to(&mut command)
        .expect("no colon")
        .arg("--no-progress")
        .arg("--out")
        .arg(directory.path())
        .output()
        .expect("forkless starts");
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let calls = |launcher: &str, misses: u64, output: u64| {
        let fits =
            |row: &&Value| row["launcher"] == launcher && row["path_misses"] == misses && row["output"] == output;
        rows(&report).iter().find(fits).and_then(|row| row["system_calls"].as_f64())
    };
    let Some(floor) = calls("floor", 0, 0) else {
        let mut command = Command::new("strace");
        let may_trace = command.args(["-o", "/dev/null", "true"]).status().is_ok_and(|status| status.success());
        assert!(!may_trace, "system calls can be traced here, but were not");
        return eprintln!("SKIPPED: system calls, because they cannot be traced here");
    };
    // vfork, execve, exit_group, wait4; set_robust_list in a child of fork.
    assert_eq!(floor, 4.0);
    assert_eq!(calls("fork", 0, 0), Some(5.0));
    // Two pipes, two dup2, a write, and reads and polls until the ends.
    assert!(calls("floor", 0, 100) > Some(floor + 10.0), "{report}");
    // One more call for each directory without the program.
    assert_eq!(calls("floor", 7, 0), Some(11.0));
    // Without the calls with which libc resets signals.
    if preload.is_some() {
        assert!(calls("forkless-preload-posix_spawn", 0, 0) < calls("posix_spawn", 0, 0), "{report}");
    }
    // The calls of the zygote's children are counted, too: they also exec and exit.
    for launcher in ["forkless-status", "forkless-zygote"] {
        assert!(calls(launcher, 0, 0) >= Some(floor), "{launcher}: {report}");
    }
    for launcher in in_languages.split(',').filter(|launcher| modules.is_required(launcher)) {
        assert!(calls(launcher, 0, 0) >= Some(floor), "{launcher}: {report}");
    }
}
