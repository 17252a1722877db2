//! `cargo xtask trust`: writes docs/trust.md from tests/promises.toml, tests/planted.toml and the newest record of kernels. The
//! page lists each promise with its tests, the planted faults that these catch, and the kernels on which they ran.

use crate::kernels::record::{self, Kernel};
use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The page.
pub const PAGE: &str = "docs/trust.md";

/// A test: package, target (`lib`: unit tests), name.
type Test = (String, String, String);

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

#[derive(Deserialize, Default)]
struct Planted {
    #[serde(default)]
    fault: Vec<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    name: String,
    why: String,
    tests: Vec<Test>,
}

/// The sources of the page.
pub struct Sources {
    promises: Vec<Promise>,
    faults: Vec<Fault>,
    kernels: Vec<Kernel>,
}

impl Sources {
    /// # Errors
    /// If a file cannot be read or has unknown fields.
    pub fn read(root: &Path) -> Result<Self> {
        let text = |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
        let promises: Promises = toml::from_str(&text("tests/promises.toml")?).context("tests/promises.toml")?;
        let planted: Planted = match root.join("tests/planted.toml").exists() {
            true => toml::from_str(&text("tests/planted.toml")?).context("tests/planted.toml")?,
            false => Planted::default(),
        };
        let kernels = record::read(root, record::KERNELS)?.map_or_else(Vec::new, |(_, kernels)| kernels);
        Ok(Self { promises: promises.promise, faults: planted.fault, kernels })
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
        let named: BTreeSet<&Test> = of_rules.chain(self.faults.iter().flat_map(|fault| &fault.tests)).collect();
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
        writeln!(
            page,
            "\n| promise | rules | tests | controls | planted faults |\n| --- | ---: | ---: | ---: | ---: |"
        )?;
        for promise in &self.promises {
            let count = |of: fn(&Rule) -> &[Test]| promise.rule.iter().flat_map(of).collect::<BTreeSet<_>>().len();
            let faults: BTreeSet<&str> = promise.rule.iter().flat_map(|rule| self.faults_of(rule)).collect();
            let (tests, controls) = (count(|rule| &rule.tests), count(|rule| &rule.control));
            writeln!(page, "| {} | {} | {tests} | {controls} | {} |", promise.name, promise.rule.len(), faults.len())?;
        }
        for (n, promise) in self.promises.iter().enumerate() {
            writeln!(page, "\n## {}. {}\n\n{}", n + 1, promise.name, promise.what)?;
            promise.rule.iter().try_for_each(|rule| self.describe(rule, &mut page))?;
        }
        let shown: BTreeSet<&str> = self.rules().flat_map(|rule| self.faults_of(rule)).collect();
        let (of_rules, others): (Vec<_>, Vec<_>) =
            self.faults.iter().partition(|fault| shown.contains(fault.name.as_str()));
        writeln!(page, "\n## Planted faults\n\n{} are named above. What each of them breaks:\n", of_rules.len())?;
        for fault in of_rules {
            writeln!(page, "- `{}`: {}", fault.name, fault.why)?;
        }
        if !others.is_empty() {
            writeln!(page, "\nOthers break a rule that is none of these:\n")?;
        }
        for fault in others {
            let tests = if fault.tests.is_empty() { "none yet".to_owned() } else { names(&fault.tests) };
            writeln!(page, "- `{}`: {}. Tests: {tests}", fault.name, fault.why)?;
        }
        Ok(page)
    }

    fn describe(&self, rule: &Rule, page: &mut String) -> Result<()> {
        writeln!(page, "\n**{}**\n\n- Tests: {}", rule.what, names(&rule.tests))?;
        let faults: Vec<String> = self.faults_of(rule).map(|name| format!("`{name}`")).collect();
        let kernels = self.kernels_of(rule);
        for (title, words) in
            [("Controls", names(&rule.control)), ("Planted faults", faults.join(", ")), ("Kernels", kernels)]
        {
            if !words.is_empty() {
                writeln!(page, "- {title}: {words}")?;
            }
        }
        Ok(())
    }

    /// The faults that a rule names, and those that only tests of this rule catch.
    fn faults_of<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = &'a str> {
        let is_its_own = |test: &Test| {
            rule.tests.contains(test) && self.rules().filter(|other| other.tests.contains(test)).count() == 1
        };
        let of = move |fault: &&Fault| rule.faults.contains(&fault.name) || fault.tests.iter().any(is_its_own);
        self.faults.iter().filter(of).map(|fault| fault.name.as_str())
    }

    /// The kernels in which a program of the rule's tests ran, and each of these passed.
    fn kernels_of(&self, rule: &Rule) -> String {
        let is_good = |kernel: &&Kernel| {
            let mut ran = rule.tests.iter().filter_map(|(_, target, name)| {
                kernel.jobs.iter().find(|job| job.name == *target).map(|job| job.has_passed(name))
            });
            ran.next().is_some_and(|passed| passed && ran.all(|passed| passed))
        };
        let versions: Vec<&str> = self.kernels.iter().filter(is_good).map(|kernel| kernel.version.as_str()).collect();
        versions.join(", ")
    }
}

fn names(tests: &[Test]) -> String {
    let names: Vec<String> = tests.iter().map(|(_, target, name)| format!("`{target}::{name}`")).collect();
    names.join(", ")
}

/// Does the test exist?
fn exists(root: &Path, (package, target, name): &Test) -> Result<bool> {
    let Some(directory) = directory(root, package)? else { return Ok(false) };
    let name = name.rsplit("::").next().unwrap_or(name);
    let places = match target.as_str() {
        "lib" | "bin" => vec![directory.join("src")],
        _ => ["it", "tests"]
            .iter()
            .flat_map(|place| [directory.join(place).join(format!("{target}.rs")), directory.join(place).join(target)])
            .collect(),
    };
    // A program without the standard harness names its tests itself.
    let names_its_tests =
        fs::read_to_string(directory.join("Cargo.toml"))?.contains(&format!("name = \"{target}\"\nharness = false"));
    for place in places.into_iter().filter(|place| place.exists()) {
        for source in sources(&place)? {
            let text = fs::read_to_string(&source)?;
            let is_named = names_its_tests && text.contains(&format!("\"{name}\""));
            let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
            if is_named || has_test(tokens, name) {
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

/// Does a source have a `#[test]` function of this name, or pass the name to a macro that generates tests?
fn has_test(tokens: TokenStream, name: &str) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |token: Option<&TokenTree>, text: &str| token.is_some_and(|token| token.to_string() == text);
    let mut writers: Vec<String> = Vec::new();
    for (n, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        if n > 2 && is(tokens.get(n - 3), "macro_rules") {
            if is_test_attribute(&group.stream()) {
                writers.push(tokens[n - 1].to_string());
            }
            continue;
        }
        let is_given = n > 1 && is(tokens.get(n - 1), "!") && writers.contains(&tokens[n - 2].to_string());
        if is_given && group.stream().into_iter().any(|token| is(Some(&token), name)) {
            return true;
        }
        // `#[test] fn name`, with other attributes and `async` between.
        if n > 0 && is(tokens.get(n - 1), "#") && is_test(&group.stream()) {
            let mut rest = tokens[n + 1..].iter().skip_while(|token| !is(Some(token), "fn"));
            if is(rest.nth(1), name) {
                return true;
            }
        }
        if group.delimiter() == Delimiter::Brace && has_test(group.stream(), name) {
            return true;
        }
    }
    false
}

/// Is the content of an attribute `test`, or that of a runtime such as `tokio::test(…)`?
fn is_test(attribute: &TokenStream) -> bool {
    let words = attribute.clone().into_iter().take_while(|token| !matches!(token, TokenTree::Group(_)));
    words.last().is_some_and(|token| token.to_string() == "test")
}

/// Does it contain `#[test]`?
fn is_test_attribute(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => is_test(&group.stream()) || is_test_attribute(&group.stream()),
        _ => false,
    })
}

const HEAD: &str = "\
# Promises and their tests

This page lists what forkless promises, and the tests that fail when a promise is broken. `cargo xtask trust` writes it from
[tests/promises.toml](../tests/promises.toml); do not edit it. A test fails when it is out of date.

The [README](../README.md#promises) makes seven promises. When two of them conflict, the one with the lower number wins. Each promise is a set of
rules, and each rule has tests.

- *Controls* are tests of the tests. They break the rule in a copy of the situation, and must notice it.
- *Planted faults* break the rule in the library itself. `cargo xtask mutants` builds the tests with one fault at a time and checks that the
  named tests fail. A released library has none of them. [Mutants](design/mutants.md) has what another tool, which chooses its
  places without thought, finds in the launch path.
- *Kernels* lists the Linux versions that `cargo xtask kernels` booted and in which these tests passed. [Platforms](platforms.md#kernels) lists what
  was not run or was skipped there, and why. All tests also run on the kernel of the developers' machines and of CI.

`behaviour::table` plays each case of [tests/cases](../tests/cases) with each launcher. It compares the state of the caller before and after
each launch. [SECURITY.md](../SECURITY.md) has the threat model, and [unsafe.md](unsafe.md) lists all unsafe code.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::record::Job;
    use crate::kernels::record::Outcome::{self, Failed, Passed};

    #[test]
    fn tests_are_found_by_attribute_or_generating_macro() {
        let text = r#"
            macro_rules! scenes { ($($n:ident)*) => { $(#[test] fn $n() {})* }; }
            macro_rules! other { ($($n:ident)*) => {}; }
            scenes! { by_macro "words" }
            other! { not_by_macro }
            /// by_comment
            fn helper() { by_call(); }
            mod tests {
                #[test]
                #[ignore]
                fn by_attribute() {}
                #[tokio::test(flavor = "current_thread")]
                async fn by_runtime() {}
            }
        "#;
        let has = |name: &str| has_test(text.parse().expect("Rust"), name);
        assert!(has("by_macro") && has("by_attribute") && has("by_runtime"));
        assert!(!has("not_by_macro") && !has("by_comment") && !has("helper") && !has("by_call") && !has("words"));
    }

    fn test(target: &str, name: &str) -> Test {
        ("package".to_owned(), target.to_owned(), name.to_owned())
    }

    #[test]
    fn rule_lists_faults_of_its_tests_and_kernels_without_failures() {
        let job = |name: &str, tests: &[(&str, Outcome)]| Job {
            name: name.to_owned(),
            tests: tests.iter().map(|&(name, outcome)| (name.to_owned(), outcome)).collect(),
            ..Job::default()
        };
        let kernel = |version: &str, jobs: Vec<Job>| Kernel { version: version.to_owned(), jobs };
        let fault = |name: &str, tests: Vec<Test>| Fault { name: name.to_owned(), why: "why".to_owned(), tests };
        let rule = Rule {
            what: "A rule.".to_owned(),
            tests: vec![test("races", "one"), test("leaks", "two")],
            control: Vec::new(),
            faults: vec!["claimed".to_owned()],
        };
        let sources = Sources {
            promises: vec![Promise { name: "One".to_owned(), what: "What.".to_owned(), rule: vec![rule] }],
            faults: vec![
                fault("its-own", vec![test("races", "one")]),
                fault("claimed", Vec::new()),
                fault("a-stranger", vec![test("races", "three")]),
            ],
            kernels: vec![
                kernel("5.1", vec![job("races", &[("one", Passed)])]),
                kernel("5.2", vec![job("races", &[("one", Failed)])]),
                kernel(
                    "5.3",
                    vec![job("races", &[("one", Passed), ("three", Failed)]), job("leaks", &[("two", Passed)])],
                ),
                kernel("5.4", vec![job("races", &[("three", Passed)])]),
                kernel("5.5", vec![job("other", &[("one", Passed)])]),
                kernel("5.6", vec![job("races", &[("one", Passed)]), job("leaks", &[("two", Failed)])]),
            ],
        };
        let page = sources.page().expect("a page");
        let rule = "**A rule.**\n\n- Tests: `races::one`, `leaks::two`\n- Planted faults: `its-own`, `claimed`\n- Kernels: 5.1, 5.3\n";
        assert!(page.contains(rule), "{page}");
        assert!(page.contains("| One | 1 | 2 | 0 | 2 |\n"), "{page}");
        assert!(page.contains("- `a-stranger`: why. Tests: `races::three`\n"), "{page}");
        assert!(sources.unknown_faults().is_empty());
    }
}
