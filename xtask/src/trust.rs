//! `cargo xtask trust`: writes docs/trust.md from tests/promises.toml: each promise with its rules and their tests.

use crate::faults::{self, Fault, Test};
use anyhow::{Context, Result};
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The page.
pub const PAGE: &str = "docs/trust.md";

#[derive(Deserialize)]
struct Promises {
    promise: Vec<Promise>,
}

#[derive(Deserialize)]
struct Promise {
    name: String,
    what: String,
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    what: String,
    tests: Vec<Test>,
    #[serde(default)]
    control: Vec<Test>,
    /// Planted faults that tests of several rules catch together.
    #[serde(default)]
    faults: Vec<String>,
}

/// The sources of the page.
pub struct Sources {
    promises: Vec<Promise>,
    faults: Vec<Fault>,
}

impl Sources {
    /// # Errors
    /// If a file cannot be read or has unknown fields.
    pub fn read(root: &Path) -> Result<Self> {
        let text = |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
        let promises: Promises = toml::from_str(&text("tests/promises.toml")?).context("tests/promises.toml")?;
        Ok(Self { promises: promises.promise, faults: faults::read(root)? })
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.promises.iter().flat_map(|promise| &promise.rule)
    }

    /// Named tests that do not exist in the sources.
    ///
    /// # Errors
    /// When a source cannot be read.
    pub fn missing(&self, root: &Path) -> Result<Vec<String>> {
        let of_rules = self.rules().flat_map(|rule| rule.tests.iter().chain(&rule.control));
        let named: BTreeSet<&Test> = of_rules.chain(self.faults.iter().flat_map(|fault| &fault.head.tests)).collect();
        let mut missing = Vec::new();
        for test in named {
            if !exists(root, test)? {
                missing.push(format!("{} {} {}", test.0, test.1, test.2));
            }
        }
        Ok(missing)
    }

    /// Faults that rules name but that are not in the list of planted faults.
    pub fn unknown_faults(&self) -> Vec<&str> {
        let claimed = self.rules().flat_map(|rule| &rule.faults).map(String::as_str);
        claimed.filter(|name| !self.faults.iter().any(|fault| fault.name == *name)).collect()
    }

    /// The whole page.
    ///
    /// # Errors
    /// None in practice: the text is written to memory.
    pub fn page(&self) -> Result<String> {
        let mut page = HEAD.to_owned();
        for (n, Promise { name, what, rule }) in self.promises.iter().enumerate() {
            writeln!(page, "\n## {}. {name}\n\n{what}\n", n + 1)?;
            for Rule { what, tests, control, .. } in rule {
                let controls =
                    if control.is_empty() { String::new() } else { format!("; controls: {}", names(control)) };
                writeln!(page, "- **{what}** {}{controls}", names(tests))?;
            }
        }
        Ok(page)
    }
}

fn names(tests: &[Test]) -> String {
    let names: Vec<String> = tests.iter().map(|Test(_, target, name)| format!("`{target}::{name}`")).collect();
    names.join(", ")
}

/// Whether the test exists.
fn exists(root: &Path, Test(package, target, name): &Test) -> Result<bool> {
    let Some(directory) = directory(root, package)? else { return Ok(false) };
    let name = name.rsplit("::").next().unwrap_or(name);
    let places = match target.as_str() {
        "lib" | "bin" => vec![directory.join("src")],
        _ => ["it", "tests"]
            .iter()
            .flat_map(|place| [directory.join(place).join(format!("{target}.rs")), directory.join(place).join(target)])
            .collect(),
    };
    let name = Regex::new(&format!(r"(?m)^[^/\n]*(?-u:\b){name}(?-u:\b)"))?;
    for place in places.into_iter().filter(|place| place.exists()) {
        for source in sources(&place)? {
            if name.is_match(&fs::read_to_string(&source)?) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The directory of a package of the workspace.
fn directory(root: &Path, package: &str) -> Result<Option<PathBuf>> {
    let crates = fs::read_dir(root.join("crates"))?.filter_map(|entry| Some(entry.ok()?.path()));
    let others = ["tests", "xtask", "bindings/node", "bindings/python"].map(|name| root.join(name));
    let line = format!("name = \"{package}\"");
    let is_it = |directory: &PathBuf| {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
        manifest.lines().find(|text| text.starts_with("name = ")).is_some_and(|text| text == line)
    };
    Ok(crates.chain(others).find(is_it))
}

/// A file, or all Rust sources below a directory.
fn sources(place: &Path) -> Result<Vec<PathBuf>> {
    if place.is_file() {
        return Ok(vec![place.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.is_dir() || path.extension().is_some_and(|ending| ending == "rs") {
            found.extend(sources(&path)?);
        }
    }
    Ok(found)
}

const HEAD: &str = "\
# Promises and their tests

This page lists what forkless promises, and the tests that fail when a promise is broken. `cargo xtask trust` writes it from
[tests/promises.toml](../tests/promises.toml); do not edit it. A test fails when it is out of date.

The [README](../README.md#promises) makes seven promises. When two of them conflict, the one with the lower number wins. Each promise is a set of
rules, and each rule has tests.

Controls are tests of the tests: they break the rule in a copy of the situation, and must notice it. Planted faults
([tests/faults](../tests/faults)) are patches that break the rules in the library itself: `cargo xtask mutants` plants them in a copy
of the sources, one at a time, and checks that its tests fail.
[Platforms](platforms.md) lists the kernels and distributions on which the tests ran.

`behaviour::table` plays each case of [tests/cases](../tests/cases) with each launcher. It compares the state of the caller before and after
each launch. [SECURITY.md](../SECURITY.md) has the threat model.

## What proves what

| by | what |
| --- | --- |
| a [model](design/models/launch.pml), all states of it | the pool of stacks, the futex word and the descriptors of a launch; ID maps; `dumpable`; a parent-death signal; a zygote's request; a runner's output, log and resume; the templates of warm programs. Who wrote the model may have misread the code: each model names its files, and `cargo xtask models` also finds each error that is planted in it |
| [loom](../tests/loom/src/main.rs), each order of accesses that C11 allows, with few thread switches | what threads share: the pool of stacks, a frame between caller and child, ID maps, the comparison that a child of a zygote waits for, `dumpable`, children without a handle, results of probes, values computed once. It is the product's own code. Each order, each exchange and each wake-up there is weakened in turn; a model notices it, or a list has the reason |
| tables, every row | the behaviours with each launcher; launches with one system call refused |
| Miri | unit tests of plans, arenas, parcels and reports: no undefined behaviour, and no address made from a number. It interprets no launch |
| AddressSanitizer, ThreadSanitizer | the tests in C of the C library and of the preload library: no invalid access, no data race. What the child runs (`crates/core`) is built without them |
| fuzzing | plans, parcels, lines for a shell, settings, packets, handles of the C library |
| tests only | the rest. Other memory orders of zygotes and those of warm programs are among it: they ran on x86-64 and on an emulated arm64, and both hide some |
| nothing: assumed | kernel, compiler, libc, hardware |
";

/// Writes the page.
///
/// # Errors
/// If a source cannot be read or the page cannot be written.
pub fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), Sources::read(root)?.page()?).context(PAGE)?;
    println!("wrote {PAGE}");
    Ok(())
}
