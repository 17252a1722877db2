//! `cargo xtask sizes`: the size of the repository, beside the ceilings in sizes.toml. A figure above its ceiling is an
//! error. If a figure falls, lower its ceiling in the same commit.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use testing::dist::root;

const CEILINGS: &str = "xtask/src/sizes.toml";

/// Prints each figure with its ceiling.
///
/// # Errors
/// If a figure is above its ceiling or has none, or git or cargo fails.
pub fn run() -> Result<()> {
    let ceilings: BTreeMap<String, u64> =
        toml::from_str(&fs::read_to_string(root().join(CEILINGS))?).context(CEILINGS)?;
    // The files of the project are those that git lists, not what was built or written beside them.
    let files = match output_of("git", &["ls-files"]) {
        Ok(files) => files,
        Err(error) => {
            println!("SKIPPED: sizes because git does not list the files: {error:#}");
            return Ok(());
        }
    };
    let figures = figures(&files)?;
    let mut above = Vec::new();
    for (name, figure) in &figures {
        let ceiling = ceilings.get(name).with_context(|| format!("{CEILINGS} has no {name}"))?;
        println!("{name:<28} {figure:>9}, at most {ceiling}");
        if figure > ceiling {
            above.push(name.as_str());
        }
    }
    ensure!(ceilings.len() == figures.len(), "{CEILINGS} has names that are no figures");
    ensure!(above.is_empty(), "above the ceiling: {}", above.join(", "));
    Ok(())
}

fn figures(files: &str) -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    let mut add = |name: &str, count: usize| *found.entry(name.to_owned()).or_insert(0) += count as u64;
    for file in files.lines() {
        let path = root().join(file);
        if path.is_symlink() || path.is_dir() {
            continue;
        }
        let bytes = fs::read(path).with_context(|| file.to_owned())?;
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().count();
        if file.starts_with("bench/record/") {
            add("lines-of-records", lines);
            add("KiB-of-records", bytes.len().div_ceil(1024));
        } else if file.ends_with(".rs") {
            let product = lines_of_product(file, &text);
            add("lines-of-rust", product);
            add("lines-of-rust-tests", lines - product);
            if file.starts_with("xtask/") {
                add("lines-of-xtask", product);
            }
        } else if file.ends_with(".md") {
            add("words-of-markdown", text.split_whitespace().count());
        }
    }
    let tree = output_of(
        "cargo",
        &["tree", "--locked", "-p", "forkless-cli", "-e", "normal", "--prefix", "none", "-f", "{p}"],
    )?;
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    add("crates-of-the-command", crates.len());
    Ok(found)
}

/// The number of lines before a source's module of tests; 0 if the whole source is tests.
fn lines_of_product(file: &str, text: &str) -> usize {
    let is_of_tests = |part| matches!(part, "tests" | "tests.rs" | "fuzzed" | "benches");
    if file.split('/').any(is_of_tests) {
        return 0;
    }
    let starts = ["mod tests {", "pub(crate) mod tests {"].map(|start| text.find(&format!("\n#[cfg(test)]\n{start}")));
    text[..starts.into_iter().flatten().min().unwrap_or(text.len())].lines().count()
}

fn output_of(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).current_dir(root()).output().context(program.to_owned())?;
    ensure!(output.status.success(), "{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_product() {
        let text = "//! What.\n\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(lines_of_product("crates/core/src/a.rs", text), 3);
        assert_eq!(lines_of_product("bench/src/a.rs", &text.replace("mod", "pub(crate) mod")), 3);
        assert_eq!(lines_of_product("crates/core/src/a/tests.rs", text), 0);
        assert_eq!(lines_of_product("tests/it/a.rs", text), 0);
        assert_eq!(lines_of_product("crates/cli/src/tests_of.rs", "fn f() {}\n"), 1);
    }
}
