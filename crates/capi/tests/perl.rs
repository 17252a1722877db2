//! The perl distribution as who installs it meets it: `perl Makefile.PL && make && make test`, in a copy.
//!
//! Not the harness of Rust: perl's tests are told one by one, and counted as tests.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The one test that the harness would list.
const NAME: &str = "perl_distribution";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        println!("{NAME}: test");
        return ExitCode::SUCCESS;
    }
    let mut names = words.iter().filter(|word| !word.starts_with('-')).peekable();
    if names.peek().is_some() && !names.any(|name| NAME.contains(name.as_str())) {
        result(0, 0, 0);
        return ExitCode::SUCCESS;
    }
    match test() {
        Ok(tests) => result(tests, 0, 0),
        Err(Outcome::Skipped(why)) => {
            println!("SKIPPED: the perl distribution because {why}");
            result(0, 0, 0);
        }
        Err(Outcome::Failed(what)) => {
            println!("{what}");
            result(0, 1, 0);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// As the harness ends, for who adds up.
fn result(passed: usize, failed: usize, ignored: usize) {
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out\n"
    );
}

enum Outcome {
    Skipped(String),
    Failed(String),
}

fn failed(what: impl std::fmt::Display) -> Outcome {
    Outcome::Failed(what.to_string())
}

/// How many of perl's tests have passed.
fn test() -> Result<usize, Outcome> {
    let headers = "use Config; my $h = \"$Config{archlibexp}/CORE/perl.h\"; -e $h or print $h";
    match Command::new("perl").args(["-MExtUtils::MakeMaker", "-MTest::More", "-e", headers]).output() {
        Ok(output) if output.status.success() && output.stdout.is_empty() => {}
        Ok(output) if output.status.success() => {
            let missing = String::from_utf8_lossy(&output.stdout).into_owned();
            return Err(Outcome::Skipped(format!("perl's headers are missing: {missing}")));
        }
        _ => return Err(Outcome::Skipped("there is no perl with MakeMaker and Test::More".into())),
    }
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (prefix, copy) = (own.join("perl/prefix"), own.join("perl/Forkless"));
    if tempfile::tempfile_in(own).is_err() {
        // A tree that is someone else's is no fault of the distribution's.
        return Err(Outcome::Skipped("cargo's directory cannot be written to by this user".into()));
    }
    xtask::dist::install(&prefix, own.parent().expect("a directory of cargo's"))
        .map_err(|error| failed(format!("{error:#}")))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/perl");
    let files = copy_listed(&source, &copy).map_err(failed)?;
    println!("{files} files of {}", source.display());

    let mut configure = Command::new("perl");
    run(configure.arg("Makefile.PL").current_dir(&copy).env("FORKLESS_PREFIX", &prefix))?;
    run(Command::new("make").current_dir(&copy))?;
    // What tests say of what they skip is on standard error.
    let mut make = Command::new("timeout");
    make.args(["900", "sh", "-c", "exec make test TEST_VERBOSE=1 2>&1"]).current_dir(&copy).env_remove("PERL5LIB");
    let tests = count(&mut make)?;
    if tests == 0 {
        return Err(failed("none of perl's tests has run"));
    }
    Ok(tests)
}

/// What the MANIFEST has, so a file that it lacks is missed. The directory is made anew.
fn copy_listed(from: &Path, to: &Path) -> std::io::Result<usize> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let list = fs::read_to_string(from.join("MANIFEST"))?;
    let files: Vec<PathBuf> = list.lines().map(PathBuf::from).collect();
    for file in &files {
        let target = to.join(file);
        fs::create_dir_all(target.parent().expect("a directory"))?;
        fs::copy(from.join(file), target)?;
    }
    Ok(files.len())
}

fn run(command: &mut Command) -> Result<(), Outcome> {
    let output = command.output().map_err(|error| failed(format!("{command:?}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(failed(format!("{command:?}: {}\n{out}{err}", output.status)))
}

/// Runs it, shows what it says, and counts what passed.
fn count(command: &mut Command) -> Result<usize, Outcome> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut passed = 0;
    for line in BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        println!("{}", line.strip_prefix("# ").filter(|rest| rest.starts_with("SKIPPED:")).unwrap_or(&line));
        passed += usize::from(line.starts_with("ok ") && !line.contains("# skip"));
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(passed) } else { Err(failed(format!("make test: {status}"))) }
}
