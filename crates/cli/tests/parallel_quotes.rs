//! `forkless parallel`: a value never runs, wherever it stands in the command.

testing::usual_surroundings!();

use std::process::{Command, Stdio};

/// Runs a command with values and another shell. What it wrote, the errors, and whether it succeeded. No value may have
/// made the file `ran`.
fn parallel(shell: &str, options: &[&str], command: &str, values: &[&str]) -> (String, String, bool) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut runner = Command::new(env!("CARGO_BIN_EXE_forkless"));
    runner.arg("parallel").args(options).args([command, ":::"]).args(values).stdin(Stdio::null());
    let output = runner.env("PARALLEL_SHELL", shell).current_dir(&directory).output().expect("forkless");
    assert!(!directory.path().join("ran").exists(), "{command} in {shell} ran {values:?}");
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
    (out, err, output.status.success())
}

/// The command is refused before a job runs, by an error that has this.
fn refused(command: &str, value: &str, reason: &str) {
    let (out, err, is_success) = parallel("/bin/sh", &[], command, &["first", value]);
    assert!(out.is_empty() && !is_success, "{command}: {out}");
    assert!(err.contains(reason) && err.contains("put the command in a script"), "{command}: {err}");
}

#[test]
fn quotes_in_quoted_braces_are_refused() {
    refused(r#"echo "${x:-"{}"}""#, "$(touch ran)", "quotes in `\"${…}\"`");
}

#[test]
fn quotes_in_quoted_backquotes_hold_the_value() {
    let (out, _, _) = parallel("/bin/sh", &[], r#"echo "`echo \"{}\"`""#, &["$(touch ran)"]);
    assert_eq!(out, "'$(touch ran)'\n");
}

#[test]
fn case_in_parentheses_is_refused() {
    refused(r#"echo "$(case x in x) echo {};; esac)""#, "';touch ran;'", "`case` in parentheses");
}

#[test]
fn quotes_that_not_each_shell_has_are_refused() {
    refused("echo $'{}'", "';touch ran #", "`$'`");
}

#[test]
fn values_in_quotes_of_fish_stay_data() {
    let value = r"x\' ; touch ran #";
    // The line needs no fish.
    let directory = tempfile::tempdir().expect("a directory");
    let named = directory.path().join("fish");
    std::os::unix::fs::symlink("/bin/sh", &named).expect("a link");
    let (out, _, _) = parallel(named.to_str().expect("UTF-8"), &["--dry-run"], "echo '{}'", &[value]);
    assert_eq!(out, "echo 'x\\\\\\' ; touch ran #'\n");
    let fish = "/usr/bin/fish";
    if !std::path::Path::new(fish).exists() {
        return eprintln!("SKIPPED: no fish");
    }
    assert_eq!(parallel(fish, &[], "echo '{}'", &[value]).0, format!("{value}\n"));
    assert_eq!(parallel(fish, &[], "echo {}", &[value]).0, format!("{value}\n"));
}

#[test]
fn comments_end_as_in_the_shell() {
    let (out, _, _) = parallel("/bin/sh", &[], "echo `echo hi # now` '{}'", &["';touch ran;'"]);
    assert_eq!(out, "hi ';touch ran;'\n");
    let (out, _, _) = parallel("/bin/sh", &[], "echo \\\n# note {}", &["a\ntouch ran #"]);
    assert_eq!(out, "\n");
}

#[test]
fn words_with_half_of_the_quotes_are_not_repeated() {
    let (out, _, _) = parallel("/bin/sh", &["-X", "-j1"], "echo \"x{} y\"", &["a", "';touch ran;'"]);
    assert_eq!(out, "xa \"'\"';touch ran;'\"'\" y\n");
}
