//! The test suites of Debian's sed and grep, with their programs launched as always and warm. They take minutes, and fetch and build
//! sources: `cargo test --release -p forkless-warm --test suites -- --ignored --nocapture --test-threads=1`.
//!
//! The source comes from the machine's own mirror, by apt, and is built. The suite runs twice. The second time a stand-in is
//! in the place of the program: it has a thread of this test launch the program, warm where it can be, and ends as the
//! program ends. The results of each test are compared.

testing::usual_surroundings!();

mod server;

use anyhow::{Context, Result, bail};
use server::{Launches, Server};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testing::dist;
use xtask::kernels::debian;

/// A package with a suite.
struct Package {
    name: &'static str,
    /// The program under test, in the tree that was built.
    program: &'static str,
    /// `make` with these arguments runs the suite.
    check: &'static [&'static str],
    /// Tests that are left out: they measure the CPU time of the program, which is not that of the stand-in.
    without: &'static [&'static str],
}

#[test]
#[ignore = "fetches and builds the sources of sed"]
fn sed_has_the_same_results_warm() {
    compare(&Package { name: "sed", program: "sed/sed", check: &["check", "SUBDIRS=."], without: &[] });
}

#[test]
#[ignore = "fetches and builds the sources of grep"]
fn grep_has_the_same_results_warm() {
    let check = &["-C", "tests", "check"];
    let without = &[
        "tests/hash-collision-perf",
        "tests/long-pattern-perf",
        "tests/many-regex-performance",
        "tests/mb-non-UTF8-performance",
    ];
    compare(&Package { name: "grep", program: "src/grep", check, without });
}

fn compare(package: &Package) {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suites");
    dist::warm_once(&place, &place.join("build")).expect("the library");
    assert_eq!(package.compare(&place).expect("both runs"), 0, "tests with another result");
}

impl Package {
    /// Runs the suite stock and warm. Returns the number of tests with another result.
    fn compare(&self, place: &Path) -> Result<usize> {
        let tree = self.built(place)?;
        let (program, real) = (tree.join(self.program), tree.join("real").join(self.name));
        if real.exists() {
            // What an earlier run has put there.
            fs::remove_file(&program)?;
            fs::copy(&real, &program)?;
        }
        for test in self.without {
            // 77: skipped.
            fs::write(tree.join(test), "#!/bin/sh\nexit 77\n").with_context(|| (*test).to_owned())?;
        }
        let stock = self.check(&tree)?;
        println!("{} stock: {}", self.name, counts(&stock));
        if !real.exists() {
            fs::create_dir_all(tree.join("real"))?;
            fs::copy(&program, &real)?;
        }
        let socket = place.join(format!("{}.socket", self.name));
        let server = Server::start(&socket, &real, &place.join("libforkless_warm.so"))?;
        fs::remove_file(&program)?;
        client(&socket, &program)?;
        // Files that have just changed have no template.
        std::thread::sleep(std::time::Duration::from_secs(4));
        let warm = self.check(&tree)?;
        let launches = server.launches();
        fs::remove_file(&program)?;
        fs::copy(&real, &program)?;
        println!("{} warm:  {}; {}", self.name, counts(&warm), describe(&launches));
        let mut differences = 0;
        for name in stock.keys().chain(warm.keys().filter(|name| !stock.contains_key(*name))) {
            if stock.get(name) != warm.get(name) {
                println!("{}: {name}: stock {:?}, warm {:?}", self.name, stock.get(name), warm.get(name));
                differences += 1;
            }
        }
        Ok(differences)
    }

    /// The tree of the source, configured and built.
    fn built(&self, place: &Path) -> Result<PathBuf> {
        let tree = place.join(self.name);
        if tree.join("built").exists() {
            return Ok(tree);
        }
        let _ = fs::remove_dir_all(&tree);
        debian::fetch_source(self.name, place, &tree)?;
        // A user who is root may not configure some packages otherwise.
        let mut configure = Command::new("./configure");
        output(configure.arg("-q").env("FORCE_UNSAFE_CONFIGURE", "1").current_dir(&tree))?;
        output(make(&tree).arg("-j2"))?;
        fs::write(tree.join("built"), "")?;
        Ok(tree)
    }

    /// Runs the suite. Returns the result of each test.
    fn check(&self, tree: &Path) -> Result<BTreeMap<String, String>> {
        results(tree)?.into_iter().try_for_each(|(path, _)| fs::remove_file(path))?;
        let mut make = make(tree);
        make.args(self.check).stdin(Stdio::null());
        // Cargo's variable for the loader would make each launch cold.
        make.env_remove("LD_LIBRARY_PATH").stdout(Stdio::null()).stderr(Stdio::null());
        make.status().context("make")?;
        let mut found = BTreeMap::new();
        for (path, text) in results(tree)? {
            let result = text.lines().find_map(|line| line.strip_prefix(":test-result: "));
            let word = result.and_then(|line| line.split_whitespace().next()).unwrap_or("none");
            let name = path.strip_prefix(tree).unwrap_or(&path).with_extension("");
            found.insert(name.display().to_string(), word.to_owned());
        }
        if found.is_empty() {
            bail!("the suite of {} has no results", self.name);
        }
        Ok(found)
    }
}

/// `make`, without the tools of a maintainer: Debian's patches have changed files that manuals and makefiles are made of.
fn make(tree: &Path) -> Command {
    let mut make = Command::new("make");
    make.args(["-s", "MAKEINFO=true", "AUTOMAKE=:", "ACLOCAL=:", "AUTOCONF=:", "AUTOHEADER=:"]).current_dir(tree);
    make
}

/// The files in which automake's driver of tests keeps their results.
fn results(tree: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for directory in ["testsuite", "tests"] {
        let Ok(entries) = fs::read_dir(tree.join(directory)) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|end| end == "trs") {
                let text = fs::read_to_string(&path)?;
                found.push((path, text));
            }
        }
    }
    Ok(found)
}

fn output(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Builds the stand-in.
fn client(socket: &Path, program: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suites/client.c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(program).arg(format!("-DSOCKET=\"{}\"", socket.display())).arg(source);
    output(&mut cc)
}

fn counts(results: &BTreeMap<String, String>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    results.values().for_each(|result| *counts.entry(result).or_default() += 1);
    let listed: Vec<_> = counts.iter().map(|(result, count)| format!("{count} {result}")).collect();
    format!("{} tests: {}", results.len(), listed.join(", "))
}

fn describe(launches: &Launches) -> String {
    let cold: u64 = launches.cold.values().sum();
    let reasons: Vec<_> = launches.cold.iter().map(|(reason, count)| format!("{count}: {reason}")).collect();
    let all = format!("{} of {} launches were warm", launches.warm, launches.warm + cold);
    if reasons.is_empty() { all } else { format!("{all} (cold: {})", reasons.join("; ")) }
}
