//! `cargo xtask unsafe`: writes the list of all unsafe Rust code with its reasons to docs/unsafe.md.
//!
//! It parses tokens, so comments and strings do not count as code, while the bodies of macros do.

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The page.
pub const PAGE: &str = "docs/unsafe.md";

/// Crates that are listed block by block, in this order; the others follow.
const FIRST: [&str; 4] = ["crates/core", "crates/forkless", "crates/capi", "crates/preload"];

/// Directories that are only counted.
const TESTS: [&str; 2] = ["tests", "xtask"];

/// Files and directories of a crate that are built only for tests and fuzzing.
const NOT_SHIPPED: [&str; 3] = ["tests", "tests.rs", "src/fuzzed"];

/// Maximum length of a reason that is printed in full.
const LONGEST: usize = 160;

/// A kind of unsafe code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `unsafe { … }`
    Block,
    /// `unsafe fn`, with a body or in a trait.
    Function,
    /// `unsafe impl` and `unsafe trait`.
    Impl,
    /// `unsafe extern { … }`: functions and variables of C.
    Foreign,
    /// `#[unsafe(no_mangle)]` and the like.
    Exported,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Block, Self::Function, Self::Impl, Self::Foreign, Self::Exported];
}

/// One occurrence.
#[derive(Debug)]
pub struct Unsafe {
    /// The kind of unsafe code.
    pub kind: Kind,
    /// The comment with the reason; empty if there is none.
    pub reason: String,
    /// It is in a test module.
    pub in_tests: bool,
}

/// A source file.
struct Module {
    path: PathBuf,
    purpose: String,
    /// The section `# Safety` of its head, which applies to all of its functions.
    contract: String,
    found: Vec<Unsafe>,
}

/// All unsafe code of a source file.
///
/// # Errors
/// If it is not valid Rust.
pub fn find(text: &str) -> Result<Vec<Unsafe>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    walk(tokens, &lines, false, &mut found);
    Ok(found)
}

fn walk(tokens: TokenStream, lines: &[&str], in_tests: bool, found: &mut Vec<Unsafe>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut tests_from_here = false;
    for (n, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "unsafe" => {
                if let Some(kind) = kind(&tokens[n + 1..]) {
                    let reason = reason(lines, word.span().start().line, kind);
                    found.push(Unsafe { kind, reason, in_tests: in_tests || tests_from_here });
                }
            }
            TokenTree::Group(group) => {
                let is_attribute = n > 0 && matches!(&tokens[n - 1], TokenTree::Punct(p) if p.as_char() == '#');
                if is_attribute && group.stream().to_string().replace(' ', "") == "cfg(test)" {
                    tests_from_here = true;
                    continue;
                }
                walk(group.stream(), lines, in_tests || tests_from_here, found);
                // Skip to the body of the item with the attribute.
                if group.delimiter() == Delimiter::Brace {
                    tests_from_here = false;
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => tests_from_here = false,
            _ => {}
        }
    }
}

/// The kind of code after the keyword `unsafe`; None for a function pointer type.
fn kind(next: &[TokenTree]) -> Option<Kind> {
    let mut is_foreign = false;
    for (n, token) in next.iter().enumerate() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                return Some(if is_foreign { Kind::Foreign } else { Kind::Block });
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis && n == 0 => {
                return Some(Kind::Exported);
            }
            TokenTree::Ident(word) if word == "extern" => is_foreign = true,
            TokenTree::Literal(_) if is_foreign => {}
            TokenTree::Ident(word) if word == "impl" || word == "trait" => return Some(Kind::Impl),
            TokenTree::Ident(word) if word == "fn" => {
                let is_type = matches!(next.get(n + 1), Some(TokenTree::Group(_)));
                return (!is_type).then_some(Kind::Function);
            }
            _ => return None,
        }
    }
    None
}

/// The `SAFETY:` comment above a line, or for a function the section of its documentation.
fn reason(lines: &[&str], line: usize, kind: Kind) -> String {
    let (mark, most) = match kind {
        Kind::Block | Kind::Impl => ("// SAFETY:", 14),
        Kind::Function => ("/// # Safety", 40),
        Kind::Foreign | Kind::Exported => return String::new(),
    };
    let above = lines[..line.min(lines.len())].iter().enumerate().rev().take(most);
    let mut above = above.take_while(|(n, text)| !text.trim().is_empty() || n + 1 == line);
    let Some((at, first)) = above.find(|(_, text)| text.trim_start().starts_with(mark)) else { return String::new() };
    let comment = &mark[..mark.find(' ').unwrap_or(0)];
    let rest = lines[at + 1..].iter().map(|text| text.trim()).take_while(|text| text.starts_with(comment));
    let rest = rest.map(|text| text[comment.len()..].trim()).take_while(|text| !text.is_empty());
    let first = first.trim()[mark.len()..].trim();
    let words: Vec<&str> = std::iter::once(first).chain(rest).filter(|part| !part.is_empty()).collect();
    words.join(" ")
}

/// The directories of the shipped crates, in order.
fn crates(root: &Path) -> Result<Vec<String>> {
    let mut found = vec!["bindings/node".to_owned(), "bindings/python".to_owned()];
    for entry in fs::read_dir(root.join("crates"))? {
        let name = entry?.file_name();
        found.push(format!("crates/{}", name.to_string_lossy()));
    }
    let place = |name: &String| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len());
    found.sort_by_key(|name| (place(name), !name.starts_with("crates/"), name.clone()));
    Ok(found)
}

/// The description in a crate's manifest.
fn description(root: &Path, directory: &str) -> Result<String> {
    let manifest = fs::read_to_string(root.join(directory).join("Cargo.toml")).with_context(|| directory.to_owned())?;
    let manifest: toml::Table = toml::from_str(&manifest).with_context(|| directory.to_owned())?;
    let words = manifest.get("package").and_then(|package| package.get("description")?.as_str());
    Ok(words.unwrap_or("no description").to_owned())
}

/// Sources with this suffix below a directory, sorted; none if it does not exist.
fn sources(directory: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = directory.is_dir().then(|| directory.to_owned()).into_iter().collect();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" && name != "blib" {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The paragraph of a file's head that starts at a line: all lines before an empty one.
fn paragraph<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines = lines.take_while(|line| line.starts_with("//!") && line.len() > 3);
    lines.map(|line| line[3..].trim()).collect::<Vec<_>>().join(" ")
}

/// The first sentence of a file's head.
fn purpose(text: &str) -> String {
    let all = paragraph(text.lines());
    all.split_inclusive(". ").next().unwrap_or("").trim().trim_end_matches('.').to_owned()
}

/// The section `# Safety` of a file's head.
fn contract(text: &str) -> String {
    paragraph(text.lines().skip_while(|line| line.trim() != "//! # Safety").skip(1))
}

fn modules(root: &Path, directory: &str) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    for path in sources(&root.join(directory), "rs")? {
        let text = fs::read_to_string(&path)?;
        let inside = path.strip_prefix(root.join(directory))?.to_owned();
        let is_test = NOT_SHIPPED.iter().any(|place| inside.starts_with(place) || inside.ends_with(place));
        let mut found = find(&text).with_context(|| format!("{}", path.display()))?;
        found.iter_mut().for_each(|one| one.in_tests |= is_test);
        modules.push(Module { path: inside, purpose: purpose(&text), contract: contract(&text), found });
    }
    Ok(modules)
}

/// The number of occurrences of a kind in these modules, in tests or outside.
fn count(modules: &[Module], kind: Kind, in_tests: bool) -> usize {
    modules.iter().flat_map(|module| &module.found).filter(|one| one.kind == kind && one.in_tests == in_tests).count()
}

/// The distinct reasons of a kind with their counts, most frequent first.
fn grouped(found: &[Unsafe], kind: Kind) -> Vec<(String, usize)> {
    let mut groups: Vec<(String, usize)> = Vec::new();
    let mut before = String::new();
    for one in found.iter().filter(|one| one.kind == kind && !one.in_tests) {
        let refers =
            ["as above", "as before", "the same"].iter().any(|word| one.reason.to_lowercase().starts_with(word));
        if !refers || before.is_empty() {
            before.clone_from(&one.reason);
        }
        match groups.iter_mut().find(|(reason, _)| *reason == before) {
            Some((_, times)) => *times += 1,
            None => groups.push((before.clone(), 1)),
        }
    }
    groups.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    groups
}

/// Removes rustdoc links, which do not work on the page.
fn unlinked(reason: &str) -> String {
    let mut parts = reason.split("](crate::");
    let first = parts.next().unwrap_or("").to_owned();
    let rest = parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest));
    rest.fold(first, |text, part| text + part).replace("[`", "`").replace("`]", "`")
}

fn shortened(reason: &str) -> String {
    let reason = unlinked(reason);
    let mut letters = reason.chars();
    let reason: String = letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect());
    if reason.len() <= LONGEST {
        return reason;
    }
    let end = (0..=LONGEST).rev().find(|&end| reason.is_char_boundary(end)).unwrap_or(0);
    let words = reason[..end].rsplit_once(' ').map_or(&reason[..end], |(words, _)| words);
    format!("{words} …")
}

fn list(page: &mut String, module: &Module) -> Result<()> {
    let here: Vec<_> = module.found.iter().filter(|one| !one.in_tests).collect();
    let number = |kind, name: &str| {
        let count = here.iter().filter(|one| one.kind == kind).count();
        (count > 0).then(|| format!("{count} {name}{}", if count == 1 { "" } else { "s" }))
    };
    let counts = [
        number(Kind::Block, "block"),
        number(Kind::Function, "function"),
        number(Kind::Impl, "impl"),
        number(Kind::Foreign, "foreign declaration"),
        number(Kind::Exported, "exported name"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    if counts.is_empty() {
        return Ok(());
    }
    let inside = module.path.strip_prefix("src").unwrap_or(&module.path);
    writeln!(page, "**`{}`**: {}. {}.\n", inside.display(), module.purpose, counts.join(", "))?;
    if !module.contract.is_empty() {
        writeln!(page, "- For all functions: {}", shortened(&module.contract))?;
    }
    let described = [(Kind::Block, "", "No reason is given."), (Kind::Impl, "Impl: ", "No reason is given.")];
    for (kind, before, otherwise) in described.into_iter().chain([(Kind::Function, "Function: ", "")]) {
        for (reason, times) in grouped(&module.found, kind) {
            let times = if times > 1 { format!(" (×{times})") } else { String::new() };
            match shortened(&reason).as_str() {
                "" if otherwise.is_empty() => {}
                "" => writeln!(page, "- {before}{otherwise}{times}")?,
                reason => writeln!(page, "- {before}{reason}{times}")?,
            }
        }
    }
    page.push('\n');
    Ok(())
}

/// The whole page.
///
/// # Errors
/// If a source cannot be read.
pub fn page(root: &Path) -> Result<String> {
    let mut page = String::from(HEAD);
    let (mut lists, mut all) = (String::new(), [0; 6]);
    for directory in &crates(root)? {
        let modules = modules(root, directory)?;
        let mut counts: Vec<usize> = Kind::ALL.iter().map(|&kind| count(&modules, kind, false)).collect();
        counts.push(count(&modules, Kind::Block, true));
        all.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
        row(&mut page, &format!("[`{directory}`](#{})", directory.replace('/', "")), &counts)?;
        writeln!(lists, "## {directory}\n\n{}.\n", description(root, directory)?)?;
        modules.iter().try_for_each(|module| list(&mut lists, module))?;
    }
    row(&mut page, "all of it", &all)?;
    let mut tests = 0;
    for directory in TESTS {
        tests += modules(root, directory)?.iter().map(|module| module.found.len()).sum::<usize>();
    }
    writeln!(
        page,
        "\nThe test programs in `tests` and the tasks in `xtask`, which are not shipped, have {tests} more.\n"
    )?;
    writeln!(page, "C has no such mark: all of it is unsafe. What is shipped has these C sources:\n")?;
    for directory in crates(root)?.iter().map(|name| format!("{name}/c")).chain(["bindings/perl".to_owned()]) {
        for ending in ["c", "S", "xs"] {
            for path in sources(&root.join(&directory), ending)? {
                let path = path.strip_prefix(root)?;
                if !path.components().any(|part| part.as_os_str() == "t" || part.as_os_str() == "tests") {
                    writeln!(page, "- `{}`", path.display())?;
                }
            }
        }
    }
    page.push('\n');
    page.push_str(lists.trim_end());
    page.push('\n');
    Ok(page)
}

fn row(page: &mut String, name: &str, counts: &[usize]) -> Result<()> {
    let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
    Ok(writeln!(page, "| {name} | {} |", counts.join(" | "))?)
}

const HEAD: &str = "\
# Unsafe code

This page lists all unsafe code with its reasons. `cargo xtask unsafe` writes it from the sources; do not edit it. A test fails when it is out of date.

In an `unsafe` block the compiler does not check memory safety, so a person must. Each block has a comment, `// SAFETY:`, with the fact that
makes it sound; the lints refuse a block without one. This page lists these comments by module, each once, with the number of blocks that
have it. An unsafe function is listed if it has a contract of its own. [ARCHITECTURE.md](../ARCHITECTURE.md) explains the terms.

| crate | blocks | functions | impls | foreign declarations | exported names | blocks in its tests |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
";

/// Counts by crate, for the terminal.
///
/// # Errors
/// If a source cannot be read.
pub fn counts(root: &Path) -> Result<BTreeMap<String, usize>> {
    let mut found = BTreeMap::new();
    for directory in crates(root)?.into_iter().chain(TESTS.map(str::to_owned)) {
        let modules = modules(root, &directory)?;
        found.insert(directory, count(&modules, Kind::Block, false) + count(&modules, Kind::Block, true));
    }
    Ok(found)
}

/// Writes the page, and prints the number of blocks by crate.
///
/// # Errors
/// If a source cannot be read or the page cannot be written.
pub fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), page(root)?).context(PAGE)?;
    for (directory, count) in counts(root)? {
        println!("{count:5} blocks in {directory}, tests included");
    }
    println!("wrote {PAGE}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_found_with_its_reason() {
        let text = r#"
//! unsafe { in documentation }
/// ```
/// unsafe { in_an_example() }
/// ```
// unsafe { in_a_comment() }
type Type = unsafe extern "C" fn(i32);
const TEXT: &str = "unsafe { in a string }";

/// Reads.
///
/// # Safety
/// The pointer is valid,
/// and aligned.
unsafe fn read(pointer: *const u8) -> u8 {
    // SAFETY: the caller's.
    unsafe { *pointer }
}

macro_rules! made {
    () => {
        // SAFETY: in a macro.
        unsafe { f() }
    };
}

// SAFETY: no fields.
unsafe impl Send for Type {}

unsafe extern "C" {
    fn f();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn g() {
    let one =
        // SAFETY: on
        // two lines.
        unsafe { f() };
}

#[cfg(test)]
mod tests {
    fn bare() { unsafe { f() } }
}

fn after() {
    // SAFETY: behind the tests.
    unsafe { f() }
}
"#;
        let found = find(text).expect("Rust");
        let found: Vec<_> = found.iter().map(|one| (one.kind, one.reason.as_str(), one.in_tests)).collect();
        assert_eq!(
            found,
            [
                (Kind::Function, "The pointer is valid, and aligned.", false),
                (Kind::Block, "the caller's.", false),
                (Kind::Block, "in a macro.", false),
                (Kind::Impl, "no fields.", false),
                (Kind::Foreign, "", false),
                (Kind::Exported, "", false),
                (Kind::Function, "", false),
                (Kind::Block, "on two lines.", false),
                (Kind::Block, "", true),
                (Kind::Block, "behind the tests.", false),
            ]
        );
    }

    #[test]
    fn rustdoc_links_are_removed() {
        let text = "As for [`child`](crate::child), and [`frame`](crate::frame); [`sys`].";
        assert_eq!(shortened(text), "As for `child`, and `frame`; `sys`.");
    }

    #[test]
    fn reference_to_the_reason_above_is_counted_with_it() {
        let one = |reason: &str| Unsafe { kind: Kind::Block, reason: reason.to_owned(), in_tests: false };
        let found = [one("first."), one("as above."), one("second."), one("As above.")];
        assert_eq!(grouped(&found, Kind::Block), [("first.".to_owned(), 2), ("second.".to_owned(), 2)]);
    }
}
