//! The source of the book: copies of the tree's pages, with links that hold in the site, and its table of contents.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use testing::dist::{output, root};

/// The parts of the table of contents with their pages. A directory stands for the rest of its pages.
const PARTS: &[(&str, &[&str])] = &[
    ("Start", &["docs/install.md", "docs/faq.md"]),
    (
        "Tours of five minutes",
        &[
            "docs/tour/rust.md",
            "docs/tour/python.md",
            "docs/tour/node.md",
            "docs/tour/perl.md",
            "docs/tour/raku.md",
            "docs/tour/c.md",
            "docs/tour/cli.md",
            "docs/tour/runner.md",
            "docs/tour/sandbox.md",
        ],
    ),
    (
        "How to",
        &[
            "docs/agents.md",
            "docs/from-std.md",
            "docs/run.md",
            "docs/sandbox.md",
            "docs/runner.md",
            "docs/scale.md",
            "docs/warm.md",
            "docs/gearman.md",
            "docs/doctor.md",
            "docs/drop-in.md",
            "docs/real-programs.md",
            "docs/gotchas.md",
        ],
    ),
    (
        "Reference",
        &[
            "docs/settings.md",
            COMMANDS,
            "docs/c.md",
            "docs/go.md",
            "docs/java.md",
            HEADER,
            RUST,
            "bindings/python/README.md",
            "bindings/node/README.md",
            "bindings/raku/README.md",
            "docs/platforms.md",
            "docs/refused.md",
        ],
    ),
    ("How it works", &["ARCHITECTURE.md", "docs/design/"]),
    ("Performance", &["bench/METHODOLOGY.md", "bench/BIAS.md", "bench/"]),
    ("Trust", &["docs/trust.md", "SECURITY.md", "docs/dependencies.md"]),
    ("Project", &["CONTRIBUTING.md", "docs/releasing.md", "CHANGELOG.md"]),
];

/// Pages that are generated here.
const COMMANDS: &str = "commands.md";
const HEADER: &str = "docs/header.md";
const RUST: &str = "docs/rust-api.md";

/// Writes the source of the book to `to`. `commands` are the names and the HTML of the man pages.
///
/// # Errors
/// If a page of the table of contents does not exist, or a page of the tree is in no part of it.
pub(super) fn write(to: &Path, commands: &[(String, String)]) -> Result<()> {
    let files = output(Command::new("git").current_dir(root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let files: BTreeSet<PathBuf> = files.lines().map(PathBuf::from).collect();
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| is_page(file)) {
        pages.insert(
            file.clone(),
            fs::read_to_string(root().join(file)).with_context(|| format!("{}", file.display()))?,
        );
    }
    let header = fs::read_to_string(root().join("crates/capi/include/forkless.h"))?;
    pages.insert(
        HEADER.into(),
        format!(
            "# C header\n\n`#include <forkless.h>`. [The C library](c.md) says how to use it.\n\n```c\n{header}```\n"
        ),
    );
    let rust = "# Rust API\n\n- [`forkless`](../rust/forkless/index.html), the library\n- [`forkless::tokio`](../rust/forkless/tokio/index.html)\n\
        - [`forkless_jobs`](../rust/forkless_jobs/index.html), the library of the runner\n";
    pages.insert(RUST.into(), rust.to_owned());
    pages.insert(COMMANDS.into(), manual(commands));
    for (name, _) in commands {
        pages.insert(format!("commands/{name}.md").into(), String::new());
    }
    let contents = contents(&pages)?;
    fs::write(to.join("SUMMARY.md"), contents)?;
    let known: BTreeSet<PathBuf> = pages.keys().cloned().collect();
    for (name, html) in commands {
        pages.insert(format!("commands/{name}.md").into(), format!("# {}(1)\n\n{html}", name));
    }
    for (page, text) in &pages {
        let text = if page.starts_with("commands") { text.clone() } else { rewrite(page, text, &known, to)? };
        let copy = to.join(output_path(page));
        fs::create_dir_all(copy.parent().context("a directory")?)?;
        fs::write(copy, text)?;
    }
    Ok(())
}

/// Whether a file is a page of the site: neither a page of a crate nor a template of a hosting service.
fn is_page(file: &Path) -> bool {
    let is_hidden = file.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'));
    let is_shown = !file.starts_with("crates");
    file.extension().is_some_and(|end| end == "md") && is_shown && !is_hidden
}

/// Where the page is in the book: that of a directory is its index.
fn output_path(page: &Path) -> PathBuf {
    if page.file_name().is_some_and(|name| name == "README.md") {
        page.with_file_name("index.md")
    } else {
        page.to_owned()
    }
}

/// The page of all commands.
fn manual(commands: &[(String, String)]) -> String {
    let mut text = "# Commands\n\nThe man pages, as `man forkless` shows them.\n\n".to_owned();
    for (name, _) in commands {
        let _ = writeln!(text, "- [{name}(1)](commands/{name}.md)");
    }
    text
}

/// The table of contents, with every page once.
fn contents(pages: &BTreeMap<PathBuf, String>) -> Result<String> {
    let mut rest: BTreeSet<&PathBuf> = pages.keys().collect();
    let mut text = "# Summary\n\n[forkless](index.md)\n".to_owned();
    ensure!(rest.remove(&PathBuf::from("README.md")), "no README.md");
    for (part, names) in PARTS {
        let _ = write!(text, "\n# {part}\n\n");
        for name in *names {
            let found: Vec<PathBuf> = match name.strip_suffix('/') {
                Some(directory) => {
                    rest.iter().filter(|page| page.starts_with(directory)).map(|page| (*page).clone()).collect()
                }
                None => vec![PathBuf::from(name)],
            };
            ensure!(!found.is_empty(), "no page in {name}");
            for page in found {
                ensure!(rest.remove(&page), "{} is not there, or is in two parts of the contents", page.display());
                let title = title(&page, &pages[&page])?;
                let _ = writeln!(text, "- [{title}]({})", output_path(&page).display());
                if *name == COMMANDS {
                    for one in rest.clone().into_iter().filter(|page| page.starts_with("commands")) {
                        rest.remove(one);
                        let title = one.file_stem().context("a name")?.to_string_lossy();
                        let _ = writeln!(text, "  - [{title}(1)]({})", one.display());
                    }
                }
            }
        }
    }
    ensure!(rest.is_empty(), "in no part of the site's contents (xtask/src/site/tree.rs): {rest:?}");
    Ok(text)
}

/// The first heading, without its marks.
fn title(page: &Path, text: &str) -> Result<String> {
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    Ok(heading.with_context(|| format!("{} has no heading", page.display()))?.replace('`', ""))
}

/// The text with links that hold in the site. Files that are linked and are no pages are copied to `to`.
fn rewrite(page: &Path, text: &str, pages: &BTreeSet<PathBuf>, to: &Path) -> Result<String> {
    let (mut out, mut is_code) = (String::new(), false);
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let mut rest = line;
        // A picture for light and dark pages is HTML: its file is an attribute.
        let is_picture = ["<img ", "<source "].iter().any(|tag| line.starts_with(tag));
        let (open, close) = match (is_picture, line.contains(" srcset=\"")) {
            (false, _) => ("](", ')'),
            (true, true) => (" srcset=\"", '"'),
            (true, false) => (" src=\"", '"'),
        };
        while let Some((before, after)) = rest.split_once(open).filter(|_| !is_code) {
            let (link, after) = after.split_once(close).with_context(|| format!("{}: {line}", page.display()))?;
            let _ = write!(out, "{before}{open}{}{close}", target(page, link, pages, to)?);
            rest = after;
        }
        out += rest;
        out.push('\n');
    }
    Ok(out)
}

/// The target of a link in the site.
fn target(page: &Path, link: &str, pages: &BTreeSet<PathBuf>, to: &Path) -> Result<String> {
    if link.starts_with('#') || link.contains("://") || link.starts_with("mailto:") || link.contains("/rust/forkless") {
        return Ok(link.to_owned());
    }
    let (name, anchor) =
        link.split_once('#').map_or((link, String::new()), |(name, anchor)| (name, format!("#{anchor}")));
    let here = page.parent().context("a directory")?;
    let file = normal(&here.join(name));
    let up = "../".repeat(here.components().count());
    // A directory's page is its README, or its report.
    let candidates = [file.clone(), file.join("README.md")];
    if let Some(found) = candidates.iter().find(|file| pages.contains(*file)) {
        return Ok(format!("{up}{}{anchor}", output_path(found).display()));
    }
    let source = root().join(&file);
    if source.is_dir() {
        if source.join("index.html").exists() {
            return copy(&file.join("index.html"), to).map(|name| format!("{up}{name}"));
        }
        // The files in it, as a list.
        let mut names: Vec<_> = fs::read_dir(&source)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
        names.sort();
        let list = names.iter().map(|name| name.to_string_lossy() + "\n").collect::<String>();
        let name = format!("{}/files.txt", file.display());
        fs::create_dir_all(to.join(&file))?;
        fs::write(to.join(&name), list)?;
        return Ok(format!("{up}{name}"));
    }
    copy(&file, to).map(|name| format!("{up}{name}"))
}

/// Copies a file of the tree; returns its name in the site. Browsers show it, whatever its type.
fn copy(file: &Path, to: &Path) -> Result<String> {
    let shown = ["html", "svg", "png", "json", "txt"];
    let is_shown = file.extension().is_some_and(|end| shown.iter().any(|one| end == *one));
    let name = if is_shown { file.display().to_string() } else { format!("{}.txt", file.display()) };
    let copy = to.join(&name);
    fs::create_dir_all(copy.parent().context("a directory")?)?;
    fs::copy(root().join(file), copy).with_context(|| format!("{} is linked", file.display()))?;
    Ok(name)
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::Normal(name) => normal.push(name),
            _ => {}
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_of_the_site_and_to_copies_of_files() {
        let place = std::env::temp_dir().join(format!("forkless-site-{}", std::process::id()));
        let pages: BTreeSet<PathBuf> = ["README.md", "docs/run.md", "bench/record/README.md"].map(PathBuf::from).into();
        let of = |page: &str, link: &str| target(Path::new(page), link, &pages, &place).expect("a target");
        assert_eq!(of("docs/run.md", "../README.md#promises"), "../index.md#promises");
        assert_eq!(of("README.md", "docs/run.md"), "docs/run.md");
        assert_eq!(of("docs/run.md", "../bench/record"), "../bench/record/index.md");
        assert_eq!(of("docs/run.md", "#signals"), "#signals");
        assert_eq!(of("docs/run.md", "../crates/core/src/plan.rs"), "../crates/core/src/plan.rs.txt");
        assert!(place.join("crates/core/src/plan.rs.txt").exists());
        assert!(target(Path::new("docs/run.md"), "nothing.md", &pages, &place).is_err());
        // Code is no link.
        let text = "[a](../README.md)\n```sh\n[b](c)\n```\n";
        let now = rewrite(Path::new("docs/run.md"), text, &pages, &place).expect("a page");
        assert_eq!(now, "[a](../index.md)\n```sh\n[b](c)\n```\n");
        let text = "<source media=\"x\" srcset=\"../README.md\">\n<img alt=\"a](b\" src=\"../README.md\">\n";
        let now = rewrite(Path::new("docs/run.md"), text, &pages, &place).expect("a page");
        assert_eq!(now, text.replace("README", "index"));
        fs::remove_dir_all(place).expect("ours");
    }

    #[test]
    fn a_page_outside_the_contents_is_an_error() {
        let mut pages: BTreeMap<PathBuf, String> = PARTS
            .iter()
            .flat_map(|(_, names)| *names)
            .map(|name| if name.ends_with('/') { format!("{name}one.md") } else { (*name).to_owned() })
            .chain(["README.md".to_owned()])
            .map(|name| (PathBuf::from(name), "# Title of `it`\n".to_owned()))
            .collect();
        let text = contents(&pages).expect("complete");
        assert!(text.contains("\n- [Title of it](docs/tour/rust.md)\n"), "{text}");
        pages.insert("docs/new.md".into(), "# New\n".to_owned());
        assert!(contents(&pages).expect_err("one too many").to_string().contains("docs/new.md"));
    }
}
