//! `forkless bench report`: writes the page, the plots and a summary again from existing records.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{
    charts::charts,
    digest,
    layout::{Layout, wrap},
    page, readme,
    record::{self, Report, write_in, write_to},
    svg,
};

/// Write the page and the plots from records, and print a summary.
#[derive(Args, Debug)]
pub(crate) struct ReportOptions {
    /// Records: results.json files or directories with one; several become one page
    #[arg(value_name = "RECORD", default_value = "target/bench")]
    records: Vec<PathBuf>,

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
    let records: Vec<Report> = options.records.iter().map(|path| Report::read(path)).collect::<Result<_>>()?;
    let out = match (&options.out, &options.records[..]) {
        (Some(out), _) => out.clone(),
        (None, [only]) => record::file(only).parent().map_or_else(PathBuf::new, Path::to_owned),
        (None, _) => bail!("--out is required to write one page for several records"),
    };
    let pages: Vec<(&Report, &[String])> = records.iter().map(|report| (report, &[][..])).collect();
    let place = write(&out, &pages, options.targets)?;
    if let Some(file) = &options.readme {
        let [report] = &records[..] else { bail!("--readme takes the figures of one record only") };
        readme::update(file, report, &out)?;
    }
    let layout = Layout::of_stdout(options.targets);
    let summary = |report: &Report| {
        let machine = wrap("", "", &report.machine.describe(), layout.width);
        format!("{machine}{}", digest::full(report, &[], &layout))
    };
    let text: String = records.iter().map(summary).collect();
    write_to(Path::new("-"), &format!("{text}\nPage:\n{}\n", place.display()))
}

/// Writes the page of these records with their notes and, for a single record, the plots; returns the path of the page.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn write(out: &Path, records: &[(&Report, &[String])], targets: bool) -> Result<PathBuf> {
    fs::create_dir_all(out).with_context(|| format!("cannot create the directory {}", out.display()))?;
    if let [(report, _)] = records {
        for chart in charts(report) {
            write_in(out, format!("{}.svg", chart.name), svg::file(&chart, false).as_bytes())?;
            write_in(out, format!("{}-dark.svg", chart.name), svg::file(&chart, true).as_bytes())?;
        }
    }
    write_in(out, "index.html", page::render(records, targets).as_bytes())?;
    Ok(out.join("index.html"))
}
