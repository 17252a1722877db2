//! `forkless bench report`: writes the page, the plots and a summary again from existing records.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{
    archive::{self, Archived},
    background::{self, Background},
    charts::charts,
    layout::{Layout, bullet, wrap},
    page, readme,
    record::{write_in, write_to},
    summary,
    table::targets,
};

/// Write the page and the plots from records, and print a summary.
#[derive(Args, Debug)]
pub(crate) struct ReportOptions {
    /// Records: results.json files or directories with one; several become one page
    #[arg(value_name = "RECORD", default_value = "target/bench")]
    records: Vec<PathBuf>,

    /// Add the tables and graphs of this background.json, or of the directory of `forkless bench background`
    /// [default: beside the record, if it exists]
    #[arg(long, value_name = "DIR")]
    background: Option<PathBuf>,

    /// Write index.html and the plots to DIR [default: beside the record]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Also judge the results by the performance targets of the project
    #[arg(long)]
    targets: bool,

    /// Also write the figures of the record to this README, between the marks
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
}

/// Writes the report and prints the summary.
///
/// # Errors
/// If a record cannot be read or a file cannot be written.
pub(crate) fn main(options: &ReportOptions) -> Result<()> {
    let records: Vec<Archived> = options.records.iter().map(|path| archive::read(path)).collect::<Result<_>>()?;
    let [first, others @ ..] = records.as_slice() else { bail!("no record") };
    let beside = archive::file(&options.records[0]).parent().map_or_else(PathBuf::new, Path::to_owned);
    let background = match (&options.background, others) {
        (Some(place), _) => Some(background::read(place)?),
        (None, []) => background::found_in(&beside)?,
        (None, _) => None,
    };
    let out = match (&options.out, others) {
        (Some(out), _) => out.clone(),
        (None, []) => beside,
        (None, _) => bail!("--out is required to write one page for several records"),
    };
    let place = write(&out, &records.iter().collect::<Vec<_>>(), background.as_ref(), options.targets)?;
    if let Some(file) = &options.readme {
        if !others.is_empty() {
            bail!("--readme takes the figures of one record only");
        }
        readme::update(file, &first.report, &out)?;
    }
    let layout = Layout::of_stdout(options.targets);
    let mut text = String::new();
    for record in &records {
        text.push_str(&summary(record, &layout));
    }
    write_to(Path::new("-"), &format!("{text}Page:\n{}\n", place.display()))
}

/// Writes the page and, for a single record, the plots; returns the path of the page.
///
/// # Errors
/// If one of them cannot be drawn or written.
pub(crate) fn write(
    out: &Path,
    records: &[&Archived],
    background: Option<&Background>,
    targets: bool,
) -> Result<PathBuf> {
    fs::create_dir_all(out).with_context(|| format!("cannot create the directory {}", out.display()))?;
    if let [record] = records {
        for chart in charts(&record.report) {
            for (suffix, dark) in [("", false), ("-dark", true)] {
                let file = |kind| format!("{}{suffix}.{kind}", chart.name);
                write_in(out, file("svg"), chart.svg(dark)?.as_bytes())?;
                write_in(out, file("png"), &chart.png(dark)?)?;
            }
        }
    }
    write_in(out, "index.html", page::render(records, background, targets)?.as_bytes())?;
    Ok(out.join("index.html"))
}

/// The summary of a record.
fn summary(record: &Archived, layout: &Layout) -> String {
    let report = &record.report;
    let mut text = wrap("", "", &report.machine.words(), layout.width) + "\n";
    let mut list = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            text.push_str(&wrap("", "  ", title, layout.width));
            lines.iter().for_each(|line| text.push_str(&bullet(line, layout.width)));
            text.push('\n');
        }
    };
    list("Results on this machine", &summary::plainly(report));
    summary::shortfalls(report).into_iter().for_each(|(title, lines)| list(title, &lines));
    list("Notes", &record.notes);
    if layout.targets {
        text.push_str(&targets(&report.targets, layout));
    }
    text
}
