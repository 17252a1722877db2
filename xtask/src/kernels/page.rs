//! The table by kernel in docs/platforms.md.

use super::record::{self, Job, Kernel};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

pub const PAGE: &str = "docs/platforms.md";

const BEGIN: &str = "<!-- The following is written by `cargo xtask kernels --page` from the record. -->";
const END: &str = "<!-- Up to here. -->";

/// The page as it should be: with the table of the newest record between its marks.
///
/// # Errors
/// A file cannot be read, or the page has no marks.
pub fn page(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("{PAGE} has no first mark"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no second mark"))?;
    let (file, kernels) = record::read(root)?.context("no record of kernels")?;
    Ok(format!("{before}{BEGIN}\n\n[Record](../{})\n\n{}\n{END}{after}", file.display(), markdown(&kernels)))
}

/// Writes it.
///
/// # Errors
/// As above, or it cannot be written.
pub fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), page(root)?).context(PAGE)
}

fn markdown(kernels: &[Kernel]) -> String {
    let heads: Vec<&str> = kernels.iter().map(|kernel| kernel.version.as_str()).collect();
    let mut text = format!("| test program | {} |\n| --- |{}\n", heads.join(" | "), " --- |".repeat(kernels.len()));
    for name in super::suites::names() {
        let jobs = kernels.iter().map(|kernel| kernel.jobs.iter().find(|job| job.name == name));
        let cells: Vec<String> = jobs.map(|job| job.map_or_else(|| "not run".to_owned(), Job::cell)).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    for kernel in kernels {
        let failures = kernel.jobs.iter().flat_map(|job| job.failures().map(move |name| (job, name)));
        let failures: String = failures.map(|(job, name)| format!("- {}: `{name}`\n", job.name)).collect();
        if !failures.is_empty() {
            let _ = write!(text, "\nLinux {}, failed:\n\n{failures}", kernel.version);
        }
    }
    let skips = skips(kernels);
    if !skips.is_empty() {
        let _ = write!(text, "\nSkipped:\n\n{skips}");
    }
    text
}

/// Each once, with the kernels.
fn skips(kernels: &[Kernel]) -> String {
    let mut all = BTreeMap::<(&str, &str), Vec<&str>>::new();
    for kernel in kernels {
        for (job, line) in kernel.jobs.iter().flat_map(|job| job.skipped.keys().map(move |line| (job, line))) {
            all.entry((&job.name, line)).or_default().push(&kernel.version);
        }
    }
    all.iter().map(|((job, line), versions)| format!("- {job}, {}: {line}\n", versions.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_column_for_each_kernel_and_a_line_for_each_skip() {
        let job = |passed| {
            let skipped = BTreeMap::from([("x because y".to_owned(), 2)]);
            Job { name: "faults".into(), more_passed: passed, skipped, ..Job::default() }
        };
        let kernel = |version: &str, jobs| Kernel { version: version.into(), jobs };
        let text = markdown(&[kernel("5.10", vec![job(3)]), kernel("6.1", vec![job(4)]), kernel("7.2", Vec::new())]);
        assert!(text.contains("| test program | 5.10 | 6.1 | 7.2 |\n| --- | --- | --- | --- |\n"), "{text}");
        assert!(text.contains("| faults | 3 passed, 2 skipped | 4 passed, 2 skipped | not run |\n"), "{text}");
        assert!(text.contains("\nSkipped:\n\n- faults, 5.10, 6.1: x because y\n"), "{text}");
    }
}
