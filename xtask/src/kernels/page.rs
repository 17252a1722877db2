//! The tables by kernel and by distribution in docs/platforms.md.

use super::record::{self, Job, Kernel};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

pub const PAGE: &str = "docs/platforms.md";

const END: &str = "<!-- Up to here. -->";

/// The page as it should be: with the newest record of kernels between its marks.
///
/// # Errors
/// A file cannot be read, or the page has no marks.
pub fn page(root: &Path) -> Result<String> {
    let kernels: Vec<&str> = super::suites::names().collect();
    let table = PageTable { system: "Linux", rows: &kernels, not_run: &|_, _| None };
    with_table(root, record::KERNELS, &table)
}

/// What a table shows beside its record.
pub struct PageTable<'a> {
    /// What the columns are versions of.
    pub system: &'a str,
    pub rows: &'a [&'a str],
    /// Why this row is not run in this version.
    pub not_run: &'a dyn Fn(&str, &str) -> Option<String>,
}

/// The page with one of the tables replaced by that of the newest record.
///
/// # Errors
/// As above.
pub fn with_table(root: &Path, what: &str, table: &PageTable<'_>) -> Result<String> {
    let text = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let begin = format!("<!-- The following is written by `cargo xtask {what} --page` from the record. -->");
    let (before, rest) = text.split_once(&begin).with_context(|| format!("{PAGE} has no line {begin}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no second mark"))?;
    let (file, columns) = record::read(root, what)?.with_context(|| format!("no record of {what}"))?;
    let table = markdown(&columns, table);
    Ok(format!("{before}{begin}\n\n[Record](../{})\n\n{table}\n{END}{after}", file.display()))
}

fn markdown(kernels: &[Kernel], &PageTable { system, rows, not_run }: &PageTable<'_>) -> String {
    let heads: Vec<&str> = kernels.iter().map(|kernel| kernel.version.as_str()).collect();
    let mut text = format!("| {system} | {} |\n| --- |{}\n", heads.join(" | "), " --- |".repeat(kernels.len()));
    for name in rows {
        let cell = |kernel: &Kernel| {
            let job = kernel.jobs.iter().find(|job| job.name == *name);
            job.map(Job::cell).or_else(|| not_run(name, &kernel.version)).unwrap_or_else(|| "not run".to_owned())
        };
        let cells: Vec<String> = kernels.iter().map(cell).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    for kernel in kernels {
        let failures = kernel.jobs.iter().flat_map(|job| job.failures().map(move |name| (job, name)));
        let failures: String = failures.map(|(job, name)| format!("- {}: `{name}`\n", job.name)).collect();
        if !failures.is_empty() {
            let _ = write!(text, "\n{system} {}, failed:\n\n{failures}", kernel.version);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_table_has_a_column_for_each_kernel() {
        let job = |passed| {
            let skipped = BTreeMap::from([("x because y".to_owned(), 2)]);
            Job { name: "faults".into(), more_passed: passed, skipped, ..Job::default() }
        };
        let kernel = |version: &str, jobs| Kernel { version: version.into(), jobs };
        let text = markdown(
            &[kernel("5.10", vec![job(3)]), kernel("6.1", vec![job(4)]), kernel("7.2", Vec::new())],
            &PageTable {
                system: "Linux",
                rows: &["faults"],
                not_run: &|_, version| (version == "7.2").then(|| "none".to_owned()),
            },
        );
        assert!(text.contains("| Linux | 5.10 | 6.1 | 7.2 |\n| --- | --- | --- | --- |\n"), "{text}");
        assert!(text.contains("| faults | 3 passed, 2 skipped | 4 passed, 2 skipped | none |\n"), "{text}");
    }
}
