//! The report as one self-contained HTML page: charts with their tables, the summary, and all rows. It loads no other files and has
//! no scripts, so it can be mailed or archived.

use std::fmt::Write;

use super::{
    charts::{Chart, charts},
    condition::headline,
    digest::lists,
    layout::Column,
    looks::style,
    name::{Name, shown},
    record::Report,
    summary::{finding, slower},
    svg::{element, escape, value_words},
    table::{ALIVE_COLUMNS, ALIVE_TITLE, COLUMNS, LEGEND, footnotes},
    targets::TargetFigure,
};

const STYLE: &str = include_str!("page.css");
/// Columns of a higher rank are only in table.txt and results.csv: p90 and the maximum.
const LAST_RANK: u8 = 8;

/// What the page does not show.
const LIMITS: [&str; 2] = [
    "Under each condition, all methods take turns of a millisecond, so that disturbances affect all of them alike. Between machines \
     and runs, compare ratios, not microseconds. p99 is left out below a hundred launches.",
    "The launched program only exits, so that only the launch is measured. For a program that runs for milliseconds, most of these \
     differences are negligible. The authors of forkless also wrote this benchmark: see bench/METHODOLOGY.md and bench/BIAS.md, and \
     run it on your machine.",
];

/// Renders the page of one or more records with their notes, on request with the project's targets.
pub(crate) fn render(records: &[(&Report, &[String])], targets: bool) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>forkless bench: methods to launch a process</title>\n\
         <style>\n{STYLE}{}\n@media screen and (prefers-color-scheme:dark){{{}}}\n</style>\n</head>\n<body>\n<header>\n\
         <h1>Methods to launch a process</h1>\n<p class=\"soft\">The cost of each method for the launching process, measured by \
         <code>forkless bench</code>.</p>\n</header>\n<main>\n",
        style(false),
        style(true)
    );
    for (index, (report, notes)) in records.iter().enumerate() {
        // The anchors of several records on one page must differ.
        let prefix = if index == 0 { String::new() } else { format!("r{}-", index + 1) };
        one(report, notes, targets, &prefix, &mut page);
    }
    let version = env!("CARGO_PKG_VERSION");
    page + &format!("</main>\n<footer>Written by forkless {version} from results.json.</footer>\n</body>\n</html>\n")
}

/// One record: the result in short, what was measured, and a section for each chart and table.
fn one(report: &Report, notes: &[String], targets: bool, prefix: &str, page: &mut String) {
    if let Some(finding) = finding(report) {
        let _ = writeln!(page, "<h2 class=\"finding\">{}</h2>", prose(&finding));
        *page += "<p>The median time to start a program, and to wait for it.</p>\n";
    }
    if let Some(slower) = slower(report) {
        let _ = writeln!(page, "<p>{}</p>", prose(&slower));
    }
    let _ = writeln!(page, "<p class=\"soft\">Measured on {}.</p>", escape(&report.machine.describe_computer()));
    if !report.machine.own_target {
        *page += "<p><b>The launched program was chosen by the user; it is not the default program, which only exits.</b></p>\n";
    }
    *page += "<details><summary>How to read this</summary>\n";
    for line in LEGEND.iter().chain(&LIMITS).copied().chain([&*report.machine.describe()]) {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(line));
    }
    *page += "</details>\n<nav aria-label=\"Contents\"><ul>\n";
    let charts = charts(report);
    let mut entries: Vec<(&str, &str)> = charts.iter().map(|chart| (chart.name, chart.title)).collect();
    entries.extend([("short", "All conditions"), ("targets", "Targets"), ("rows", "All rows")]);
    for (name, title) in entries.into_iter().filter(|(name, _)| targets || *name != "targets") {
        let _ = writeln!(page, "<li><a href=\"#{prefix}{name}\">{}</a></li>", escape(title));
    }
    *page += "</ul></nav>\n";
    charts.iter().for_each(|chart| section(chart, prefix, page));
    let _ = writeln!(page, "<section id=\"{prefix}short\">");
    for (title, lines) in lists(report, notes) {
        let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", prose(line))).collect();
        let _ = writeln!(page, "<h2>{}</h2>\n<ul>\n{items}</ul>", escape(title));
    }
    *page += "</section>\n";
    if targets {
        let row = |figure: &TargetFigure| {
            let (class, verdict) = if figure.met { ("", "met") } else { ("missed", "not met") };
            let cells = [figure.figure.clone(), format!("{:.3}", figure.value), figure.goal(), verdict.to_owned()];
            (class, cells.to_vec())
        };
        let _ = writeln!(page, "<section id=\"{prefix}targets\">\n<h2>Targets</h2>");
        let (heads, rows) =
            (["ratio of medians of this run", "measured", "target", ""], report.targets.iter().map(row));
        *page += &table("Targets", &heads, &rows.collect::<Vec<_>>());
        *page += "</section>\n";
    }
    every_row(report, prefix, page);
}

/// One chart with its figures: a row for each method, a column for each tick.
fn section(chart: &Chart, prefix: &str, page: &mut String) {
    let (name, title) = (chart.name, escape(chart.title));
    let _ = writeln!(page, "<section id=\"{prefix}{name}\">\n<p class=\"topic\">{title}</p>");
    let _ = writeln!(page, "<h2>{}</h2>\n<p class=\"soft\">{}</p>", prose(&chart.finding), prose(&chart.about));
    let (mut drawings, mut figures) = (String::new(), String::new());
    for panel in &chart.panels {
        let (title, drawing) = (escape(panel.title), element(chart, panel));
        let _ = writeln!(drawings, "<figure><figcaption>{title}</figcaption>{drawing}</figure>");
        let rows = panel.lines.iter().rev().map(|line| {
            let value = |tick| line.points.iter().find(|(at, _)| *at == tick);
            let cell = |tick| value(tick).map_or_else(|| "–".to_owned(), |(_, value)| value_words(panel, *value));
            let cells = [shown(line.look.launcher).to_owned()].into_iter().chain((0..chart.ticks.len()).map(cell));
            (class(line.look.launcher), cells.collect())
        });
        let heads: Vec<&str> = [panel.title].into_iter().chain(chart.ticks.iter().map(String::as_str)).collect();
        figures += &table(panel.title, &heads, &rows.collect::<Vec<_>>());
    }
    let _ = writeln!(page, "<div class=\"panels\">\n{drawings}</div>");
    let _ = writeln!(page, "<details><summary>Figures</summary>\n{figures}</details>\n</section>");
}

/// All rows, a table for each condition.
fn every_row(report: &Report, prefix: &str, page: &mut String) {
    let _ = writeln!(page, "<section id=\"{prefix}rows\">\n<h2>All rows</h2>");
    for condition in report.conditions() {
        let title = headline(&condition);
        let table = all_columns(&title, &COLUMNS, report.rows_of(&condition).map(|row| (row.launcher, row)));
        let _ = write!(page, "<details><summary>{}</summary>\n{table}", escape(&title));
        for note in footnotes(report, &condition) {
            let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(&note));
        }
        *page += "</details>\n";
    }
    if !report.alive.is_empty() {
        let rows = report.alive.iter().map(|row| (row.waiter, row));
        let table = all_columns(ALIVE_TITLE, &ALIVE_COLUMNS, rows);
        let _ = writeln!(page, "<details><summary>{ALIVE_TITLE}</summary>\n{table}</details>");
    }
    let _ = writeln!(
        page,
        "<p class=\"soft\">table.txt and results.csv also have p90 and the maximum. CPU vulnerability mitigations:"
    );
    let _ = writeln!(page, "{}</p>\n</section>", escape(&report.machine.mitigations));
}

/// A table of rows with their names.
fn all_columns<'a, R: 'a>(title: &str, columns: &[Column<R>], rows: impl Iterator<Item = (Name, &'a R)>) -> String {
    let columns: Vec<&Column<R>> = columns.iter().filter(|(_, rank, _)| *rank <= LAST_RANK).collect();
    let heads: Vec<&str> = columns.iter().map(|(head, ..)| *head).collect();
    let cells = |row: &R| columns.iter().map(|(.., cell)| cell(row)).collect();
    table(title, &heads, &rows.map(|(launcher, row)| (class(launcher), cells(row))).collect::<Vec<_>>())
}

/// A table; each row has a class and its cells.
fn table(title: &str, heads: &[&str], rows: &[(&str, Vec<String>)]) -> String {
    let title = escape(title);
    let mut html =
        format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<thead><tr>");
    heads.iter().for_each(|head| html += &format!("<th>{}</th>", escape(&head.replace('\n', " "))));
    html += "</tr></thead>\n<tbody>\n";
    for (class, cells) in rows {
        let _ = write!(html, "<tr class=\"{class}\">");
        for (index, cell) in cells.iter().enumerate() {
            let tag = if index == 0 { "th" } else { "td" };
            let _ = write!(html, "<{tag}>{}", escape(cell));
        }
        html.push('\n');
    }
    html + "</tbody></table></div>\n"
}

/// The class of a table row.
fn class(launcher: Name) -> &'static str {
    match launcher {
        "floor" | "epoll" => "baseline",
        name if name.starts_with("forkless") => "mine",
        _ => "",
    }
}

/// Escapes text; no line ends between a number and its unit.
fn prose(text: &str) -> String {
    let units = ["µs", "ms", "KiB", "MiB", "GiB", "%", "×"];
    units.iter().fold(escape(text), |text, unit| text.replace(&format!(" {unit}"), &format!("\u{a0}{unit}")))
}

#[cfg(test)]
mod tests {
    use super::super::charts::tests::report;
    use super::*;

    #[test]
    fn page_is_self_contained_and_well_formed() {
        let page = render(&[(&report(), &["<odd>".to_owned()])], true);
        for outside in ["src=", "<link", "@import", "url(", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
        for part in
            ["&lt;odd&gt;", "<title>fork, 1 GiB: 104.1 ms</title>", "Slower than the fastest", "Slower than the vfork"]
        {
            assert!(page.contains(part), "{part} is missing");
        }
        assert_eq!(page.matches("<svg role=\"img\"").count(), 4, "two panels of two charts");
        for tag in
            ["section", "table", "thead", "tbody", "details", "figure", "figcaption", "svg", "ul", "p", "div", "g"]
        {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    /// The largest record of the project, whose page must still be quick to load and to send.
    #[test]
    fn a_page_with_everything_has_at_most_400_kilobytes() {
        let record = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/record/2026-11-22"));
        if !record.exists() {
            return; // The package of this crate has no records.
        }
        let page = render(&[(&Report::read(record).expect("a record"), &[])], true);
        assert!(page.len() <= 400_000, "{} bytes", page.len());
        let places = ["<h2 class=\"finding\"", "id=\"memory\"", "id=\"short\"", "id=\"targets\"", "id=\"rows\""];
        let order = places.map(|place| page.find(place).expect(place));
        assert!(order.is_sorted(), "{order:?}");
        for word in [">floor<", ">floor †<", "held", "forkless-fork in", " 1 conditions"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn numbers_stay_with_their_units() {
        assert_eq!(prose("<26 ms, 2.0 × as fast"), "&lt;26\u{a0}ms, 2.0\u{a0}× as fast");
    }

    #[test]
    fn several_records_have_different_anchors() {
        let report = report();
        let page = render(&[(&report, &[]), (&report, &[])], false);
        for place in ["id=\"memory\"", "id=\"r2-memory\"", "href=\"#r2-memory\""] {
            assert_eq!(page.matches(place).count(), 1, "{place}");
        }
        assert!(!page.contains("Targets"));
    }
}
