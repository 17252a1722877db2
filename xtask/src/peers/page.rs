//! The table of the suites in docs/real-programs.md.

use super::{Row, Suite, list, record};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/real-programs.md";
const BEGIN: &str = "<!-- The following is written by `cargo xtask peers --record`. -->";
const END: &str = "<!-- Up to here. -->";

/// The page as it should be.
fn page(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("{PAGE} has no first mark"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no second mark"))?;
    let rows = record()?;
    let list = list()?;
    let mut table = "| suite | launches by | stock | ours |\n| --- | --- | --- | --- |\n".to_owned();
    let mut reasons = String::new();
    for name in list.suite.keys() {
        let suite = list.suite(name)?;
        let cells = rows
            .get(name)
            .map_or_else(|| "not run | |".into(), |Row { stock, ours, .. }| format!("{stock} | {ours} |"));
        let _ = writeln!(table, "| {} | {} | {cells}", suite.tests, suite.ours);
        reasons += &rows.get(name).map(|row| differences(name, &suite, row)).unwrap_or_default();
    }
    for (tests, why) in &list.absent {
        let _ = writeln!(table, "| {tests} | not available: {why} | | |");
    }
    Ok(format!("{before}{BEGIN}\n\n{table}\nTests with another result:\n\n{reasons}\n{END}{after}"))
}

/// A line for each reason, with its tests.
fn differences(suite_name: &str, suite: &Suite, row: &Row) -> String {
    let mut lines = String::new();
    let known = suite.differs.iter().map(|(part, reason)| (Some(part), reason.as_str()));
    for (part, reason) in known.chain([(None, "no reason is known")]) {
        let fits = |name: &&str| part.map_or_else(|| suite.reason(name).is_none(), |part| name.contains(part.as_str()));
        let names = row.differ.iter().map(|(name, ..)| name.as_str()).filter(fits);
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        if !names.is_empty() {
            let _ = writeln!(lines, "- {suite_name}, {}: {reason}", names.join(", "));
        }
    }
    lines
}

/// Writes the page.
///
/// # Errors
/// If a file cannot be read or written, or the page has no marks.
pub fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), page(root)?).context(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_up_to_date() {
        let root = testing::dist::root();
        let have = fs::read_to_string(root.join(PAGE)).expect(PAGE);
        assert!(have == page(&root).expect("a page"), "{PAGE} is out of date: cargo xtask peers --record");
    }
}
