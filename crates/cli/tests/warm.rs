//! `--warm` of `forkless parallel` and `forkless xargs`, and `forkless doctor --warm`.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

testing::usual_surroundings!();

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The command, installed as `cargo xtask dist` does it, and old enough for templates.
fn installed() -> &'static Path {
    static COMMAND: OnceLock<PathBuf> = OnceLock::new();
    COMMAND.get_or_init(|| {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runner-warm");
        let (bin, lib) = (base.join("bin"), base.join("lib/forkless"));
        testing::dist::warm(&lib, &base.join("build")).expect("the library");
        fs::create_dir_all(&bin).expect("a directory");
        let command = bin.join("forkless");
        let _ = fs::remove_file(&command);
        fs::copy(env!("CARGO_BIN_EXE_forkless"), &command).expect("a copy");
        std::thread::sleep(std::time::Duration::from_secs(4));
        command
    })
}

/// Runs a line of sh; `$F` is the command. The time limit is only for a run that is never warm.
fn run(line: &str) -> Output {
    let mut shell = Command::new("timeout");
    shell.args(["-s", "KILL", "55", "/bin/sh", "-c", line]).stdin(Stdio::null());
    shell.env("F", installed()).env("PARALLEL_SHELL", "/bin/sh");
    shell.env_remove("PARALLEL").env_remove("LD_LIBRARY_PATH").output().expect("a shell")
}

/// Whether libc is too old for templates, by what the doctor reports.
fn is_libc_too_old() -> bool {
    let output = run("$F doctor --warm --no-measure /bin/true");
    let is_old = String::from_utf8_lossy(&output.stdout).contains("needs glibc 2.34");
    if is_old {
        eprintln!("SKIPPED: warm jobs because glibc is older than 2.34");
    }
    is_old
}

/// Each job has another number in its environment.
#[test]
fn jobs_of_parallel_become_warm() {
    if is_libc_too_old() {
        return;
    }
    let output = run("seq 5000 | $F parallel -j2 --warm --summary /bin/true 2>&1 | tail -n 1");
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(line.starts_with("launches: ") && !line.starts_with("launches: 0 "), "{line}");
}

#[test]
fn jobs_of_xargs_become_warm() {
    if is_libc_too_old() {
        return;
    }
    // A job that exits with 255 ends the run.
    let job = "sh -c 'grep -q forkless_warm /proc/$$/maps && exit 255; exit 0'";
    let output = run(&format!("yes | $F xargs --warm -n1 -P2 {job}"));
    assert_eq!(output.status.code(), Some(124), "{output:?}");
}

#[test]
fn warm_jobs_write_what_cold_jobs_write() {
    let jobs = "'echo $PARALLEL_SEQ {} $#; pwd; umask; cat; exit $(({} % 3))' ::: $(seq 300)";
    let of = |flag: &str| run(&format!("cd /usr; $F parallel -k -j4 --tag {flag} {jobs} 2>&1; echo end $?"));
    let (cold, warm) = (of(""), of("--warm"));
    assert_eq!(String::from_utf8_lossy(&warm.stdout), String::from_utf8_lossy(&cold.stdout));
    assert!(cold.stdout.ends_with(b"end 101\n"), "{cold:?}");
    let counts = run("$F parallel -j4 --warm --summary /bin/true ::: $(seq 100) 2>&1 | tail -n 1");
    let line = String::from_utf8_lossy(&counts.stdout).into_owned();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!((numbers.len(), numbers.iter().sum::<u64>()), (2, 100), "{line}");
}

#[test]
fn a_runner_without_the_library_or_with_other_machines_refuses() {
    let place = tempfile::tempdir().expect("a directory");
    let alone = place.path().join("forkless");
    fs::copy(env!("CARGO_BIN_EXE_forkless"), &alone).expect("a copy");
    let refused = |words: &[&str]| {
        let mut command = Command::new(&alone);
        let output = command.args(words).stdin(Stdio::null()).env_remove("PARALLEL").output().expect("forkless");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for words in [&["parallel", "--warm", "true", ":::", "a"][..], &["xargs", "--warm", "true"]] {
        let (is_well, text) = refused(words);
        // Unless it is installed on this machine.
        assert!(is_well || text.contains("--warm: libforkless_warm.so was not found"), "{text}");
    }
    let (is_well, text) = refused(&["parallel", "--warm", "--slurm", "true", ":::", "a"]);
    assert!(!is_well && text.contains("--slurm"), "{text}");
}

#[test]
fn doctor_reports_whether_a_program_can_be_launched_warm() {
    if is_libc_too_old() {
        return;
    }
    let command = installed();
    let script = command.with_file_name("script");
    fs::write(&script, "#!/bin/sh\n").expect("a file");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a file");
    let report = |words: &[&str]| {
        let mut doctor = Command::new(command);
        let output = doctor.args(["doctor", "--warm", "--json"]).args(words).env_remove("LD_LIBRARY_PATH").output();
        let output = output.expect("forkless starts");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(output.status.code(), Some(i32::from(report["warm"] == false)), "{output:?}");
        report
    };
    let warm = report(&["/bin/true"]);
    assert_eq!(warm["warm"], true, "{warm}");
    assert!(warm["template_kib"].as_u64().is_some_and(|kib| (1..10_000).contains(&kib)), "{warm}");
    assert!(warm["measured"]["launches"].as_u64().is_some_and(|launches| launches > 0), "{warm}");
    let cold = report(&["--no-measure", script.to_str().expect("UTF-8")]);
    assert_eq!(
        (&cold["warm"], cold["reason"].as_str()),
        (&Value::Bool(false), Some("the program is a script")),
        "{cold}"
    );
    assert!(cold["measured"].is_null());
}
