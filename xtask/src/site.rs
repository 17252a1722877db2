//! The documentation as a site, in `target/site/html`: searchable, usable without a network, in dark and light, on a phone.
//!
//! mdBook makes it of the Markdown files of the tree, the man pages, the C header and rustdoc. Links that lead to files of the tree
//! that are no pages get a copy of the file. Then every link of every page is followed.

mod links;
mod tree;

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::{output, root, run};

/// The version of mdBook; `cargo install` gets it once, into cargo's directory.
const MDBOOK: &str = "0.5.4";

/// The site's settings.
const BOOK: &str = r#"[book]
title = "forkless"
language = "en"
src = "src"

[build]
build-dir = "../html"
create-missing = false

[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
no-section-label = true
input-404 = ""
additional-css = ["site.css"]

[output.html.fold]
enable = true
level = 0

[output.html.print]
enable = false

[output.html.search]
limit-results = 30
boost-title = 3
"#;

/// Tables of many columns are scrolled, not squeezed; the headings of man pages are smaller than the page's.
const STYLE: &str = "
:root { --content-max-width: 96rem; }
.table-wrapper { overflow-x: auto; }
.content table { margin-inline: 0; }
.content td code { white-space: nowrap; }
.content img { max-width: 100%; background: #fff; }
.content h1.Sh { font-size: 1.4em; }
.content h2.Ss { font-size: 1.15em; }
.content a.permalink, .content a.permalink:visited { color: inherit; }
dl.Bl-tag dt { margin-top: 0.6em; }
table.head, table.foot { display: none; }
";

/// Makes the site with files of cargo's directory `target`; returns the directory of its pages.
///
/// # Errors
/// If a program is missing or fails, or a link leads nowhere.
pub fn make(target: &Path) -> Result<PathBuf> {
    let target = std::path::absolute(target)?;
    let place = target.join("site");
    let (book, html, man) = (place.join("book"), place.join("html"), place.join("man"));
    for directory in [&book, &html, &man] {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
    }
    fs::create_dir_all(book.join("src"))?;
    fs::write(book.join("book.toml"), BOOK)?;
    fs::write(book.join("site.css"), STYLE)?;
    tree::write(&book.join("src"), &commands(&target, &man)?)?;
    run(Command::new(mdbook(&target)?).arg("build").arg(&book).env("RUST_LOG", "warn"))?;
    rustdoc(&target, &html.join("rust"))?;
    let (pages, followed) = links::check(&html)?;
    println!("{pages} pages, {followed} links followed: {}", html.join("index.html").display());
    Ok(html)
}

/// Whether mdBook of this version is installed. `make` installs it, which takes minutes.
#[must_use]
pub fn has_mdbook(target: &Path) -> bool {
    let version = Command::new(target.join("site/tools/bin/mdbook")).arg("--version").output();
    version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == format!("mdbook v{MDBOOK}"))
}

/// mdBook, installed into cargo's directory if it is not there.
fn mdbook(target: &Path) -> Result<PathBuf> {
    let tools = target.join("site/tools");
    let program = tools.join("bin/mdbook");
    if has_mdbook(target) {
        return Ok(program);
    }
    println!("installing mdBook {MDBOOK}");
    let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    install.args(["install", "--quiet", "mdbook", "--locked", "--version", MDBOOK, "--no-default-features"]);
    install.args(["--features", "search", "--root"]).arg(&tools).arg("--target-dir").arg(tools.join("build"));
    run(&mut install)?;
    Ok(program)
}

/// Name and HTML fragment of each man page of the command.
fn commands(target: &Path, place: &Path) -> Result<Vec<(String, String)>> {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(root()).args(["build", "--quiet", "--locked", "--package", "forkless-cli", "--target-dir"]);
    run(build.arg(target))?;
    fs::create_dir_all(place)?;
    run(Command::new(target.join("debug/forkless")).args(["man", "--dir"]).arg(place))?;
    let mut pages: Vec<_> = fs::read_dir(place)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    pages.sort();
    let part = |page: &PathBuf| {
        let html = output(Command::new("mandoc").args(["-T", "html", "-O", "fragment"]).arg(page))
            .context("is the package mandoc installed?")?;
        let name = page.file_stem().context("a name")?.to_string_lossy().into_owned();
        // A blank line would end the HTML in Markdown.
        Ok((
            name,
            html.lines().map(|line| if line.is_empty() { "&#10;\n".into() } else { format!("{line}\n") }).collect(),
        ))
    };
    pages.iter().map(part).collect()
}

/// rustdoc's pages of the libraries.
fn rustdoc(target: &Path, to: &Path) -> Result<()> {
    let place = target.join("site/rustdoc");
    let mut doc = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    doc.current_dir(root()).args(["doc", "--quiet", "--no-deps", "--locked", "--features", "forkless/tokio"]);
    doc.args(["--package", "forkless", "--package", "forkless-jobs", "--target-dir"]).arg(&place);
    run(&mut doc)?;
    ensure!(place.join("doc/forkless/index.html").exists(), "cargo doc has made no page of forkless");
    run(Command::new("cp").arg("-R").arg(place.join("doc")).arg(to))
}
