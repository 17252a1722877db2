//! Follows every link of the site's pages, and sees that no page loads anything from a network.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What is needed of a page.
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

/// Follows the links of all pages below `html`, but not those of rustdoc's own pages. Returns the numbers of pages and of links.
///
/// # Errors
/// A list of the links that lead nowhere, and of what would be loaded from elsewhere.
pub(super) fn check(html: &Path) -> Result<(usize, usize)> {
    let mut pages = BTreeMap::new();
    read(html, &html.join("rust"), &mut pages)?;
    let (mut wrong, mut followed) = (Vec::new(), 0);
    for (path, page) in &pages {
        for link in &page.links {
            if link.starts_with("https://") || link.starts_with("http://") || link.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (name, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if name.is_empty() { path.clone() } else { path.parent().context("a directory")?.join(name) };
            let Ok(target) = fs::canonicalize(&target) else {
                wrong.push(format!("{}: {link}: no such file", path.display()));
                continue;
            };
            let known = pages.get(&target).is_none_or(|page| anchor.is_empty() || page.anchors.contains(anchor));
            if !known {
                wrong.push(format!("{}: {link}: no such heading", path.display()));
            }
        }
    }
    ensure!(wrong.is_empty(), "{} wrong links:\n{}", wrong.len(), wrong.join("\n"));
    Ok((pages.len(), followed))
}

fn read(directory: &Path, skipped: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && path != skipped {
            read(&path, skipped, pages)?;
        } else if path.extension().is_some_and(|end| end == "html") {
            let text = fs::read_to_string(&path)?;
            let loaded = || values(&text, "src=\"").chain(values(&text, "srcset=\""));
            let foreign = loaded().find(|name| name.contains("//"));
            ensure!(foreign.is_none(), "{} loads {foreign:?}", path.display());
            let page = Page {
                links: values(&text, "href=\"")
                    .chain(loaded())
                    .filter(|link| !link.is_empty())
                    .map(unescaped)
                    .collect(),
                anchors: values(&text, "id=\"").map(unescaped).collect(),
            };
            pages.insert(fs::canonicalize(&path)?, page);
        }
    }
    Ok(())
}

/// The values of an attribute, of which `name` is the beginning.
fn values<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    // Only as an attribute: not as the end of another one's name, nor in a text, where quotes are escaped.
    text.match_indices(name).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back()?;
        before.is_whitespace().then(|| text[at + name.len()..].split('"').next())?
    })
}

fn unescaped(text: &str) -> String {
    text.replace("&amp;", "&").replace("&#39;", "'").replace("%20", " ")
}

#[cfg(test)]
mod tests {
    use super::check;
    use std::fs;

    #[test]
    fn wrong_links_and_foreign_scripts_are_found() {
        let place = std::env::temp_dir().join(format!("forkless-links-{}", std::process::id()));
        let page = |name: &str, text: &str| fs::write(place.join(name), text).expect("writable");
        fs::create_dir_all(place.join("rust")).expect("writable");
        page(
            "a.html",
            r##"<h1 id="top">A</h1><a href="b.html#part">b</a><a href="#top">a</a><a href="https://example.org">c</a>"##,
        );
        page("b.html", r#"<h2 id="part">B</h2>"#);
        // rustdoc checks its own.
        page("rust/c.html", r#"<a href="nothing.html">d</a>"#);
        assert_eq!(check(&place).expect("right links"), (2, 2));
        for wrong in [
            r#"<a href="nothing.html">"#,
            r#"<source srcset="nothing.png">"#,
            r#"<a href="a.html#part">"#,
            r#"<script src="https://example.org/x.js">"#,
        ] {
            page("b.html", &format!("<h2 id=\"part\">B</h2>{wrong}"));
            assert!(check(&place).is_err(), "{wrong}");
        }
        fs::remove_dir_all(place).expect("ours");
    }
}
