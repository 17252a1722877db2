//! The report as one self-contained HTML page: summary, charts with tables, and all rows. It loads no other files, so it can be
//! mailed or archived, and it shows everything without scripts.

use std::fmt::Write;

use anyhow::Result;

use super::{
    archive::Archived,
    background::{self, Background},
    charts::{Body, Chart, Panel, charts},
    condition::headline,
    plots::Spot,
    record::Report,
    summary,
    table::{ALIVE_HEADS, ALIVE_TITLE, HEADS, alive_cells, cells, footnotes, target_words},
    targets::Figure,
};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Explains the terms on the page and the limits of the results.
const HOW: &str = "\
<details class=\"how\"><summary>How to read this</summary>\n\
<p><b>Held</b> is the time from the call until the caller continues. <b>Total</b> is the time from the call until the child has \
been waited for and all its resources are closed. <b>p50</b> is the median, <b>p99</b> is exceeded by one launch in a hundred, \
and <b>n</b> is the number of launches.</p>\n\
<p>The row <b>floor</b> is the vfork baseline: vfork, execve and wait4 in C. The columns “× vfork” are relative to it. Under each \
condition, all methods take turns of a millisecond, so that disturbances affect all of them alike. Between machines and runs, \
compare ratios, not microseconds.</p>\n\
<p>The launched program only exits, so that only the launch is measured. For a program that runs for milliseconds, most of these \
differences are negligible. Rows marked * do not apply all settings. In rows marked †, the child differs from that of the vfork \
baseline. The lines below the tables under “All rows” explain both marks. The authors of forkless also wrote this benchmark: see \
bench/METHODOLOGY.md and bench/BIAS.md, and run it on your machine.</p>\n</details>\n";

/// Renders the page for one or more records, on request with the project's targets, and, if given, the background.
///
/// # Errors
/// If a chart cannot be drawn.
pub(crate) fn render(records: &[&Archived], background: Option<&Background>, targets: bool) -> Result<String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>forkless bench: methods to launch a process</title>\n\
         <style>\n{STYLE}@media screen and (prefers-color-scheme:dark){{{}}}\n</style>\n</head>\n<body>\n<header>\n\
         <h1>Methods to launch a process</h1>\n<p class=\"soft\">The cost of each method for the launching process, measured by \
         <code>forkless bench</code>.</p>\n</header>\n<main>\n",
        super::plots::dark_style()
    );
    for (index, record) in records.iter().enumerate() {
        // The anchors of several records on one page must differ.
        let prefix = if index == 0 { String::new() } else { format!("r{}-", index + 1) };
        let figures = if targets { &*record.report.targets } else { &[] };
        one(record, &prefix, (figures, background.is_some()), &mut page)?;
    }
    if let Some(background) = background {
        background::section(background, &mut page)?;
    }
    let too = if background.is_some() { " and background.json" } else { "" };
    let _ = write!(
        page,
        "</main>\n<footer>Written by forkless {} from results.json{too}.</footer>\n<script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    Ok(page)
}

fn one(record: &Archived, prefix: &str, (figures, has_background): (&[Figure], bool), page: &mut String) -> Result<()> {
    let (report, charts) = (&record.report, charts(&record.report));
    let _ = writeln!(page, "<p class=\"machine\">{}</p>", escape(&report.machine.words()));
    if !report.machine.own_target {
        page.push_str("<p><b>The launched program was chosen by the user; it is not the default program, which only exits.</b></p>\n");
    }
    contents(&charts, prefix, (figures, has_background), page);
    in_short(record, prefix, page);
    page.push_str(HOW);
    page.push_str("</section>\n");
    for chart in &charts {
        section(chart, prefix, page)?;
    }
    targets(figures, prefix, page);
    every_row(report, prefix, page);
    Ok(())
}

fn contents(charts: &[Chart], prefix: &str, (figures, has_background): (&[Figure], bool), page: &mut String) {
    page.push_str("<nav class=\"scroll\" aria-label=\"Contents\"><ul>\n");
    let mut entry = |place: &str, title: &str| {
        let _ = writeln!(page, "<li><a href=\"#{place}\">{}</a></li>", escape(title));
    };
    let here = |name: &str| format!("{prefix}{name}");
    entry(&here("short"), "Summary");
    charts.iter().for_each(|chart| entry(&here(chart.name), chart.title));
    if !figures.is_empty() {
        entry(&here("targets"), "Targets");
    }
    entry(&here("rows"), "All rows");
    if has_background {
        entry("background", "Published figures");
    }
    page.push_str("</ul></nav>\n");
}

fn in_short(record: &Archived, prefix: &str, page: &mut String) {
    let report = &record.report;
    let _ = writeln!(
        page,
        "<section id=\"{prefix}short\">\n<h2>Summary</h2>\n<p class=\"soft\">Speed-up of the fastest forkless call over the fastest \
         alternative, from the call until the child has been waited for.</p>\n<div class=\"tiles\">"
    );
    for condition in summary::telling(report) {
        let Some(duel) = summary::duel(report, &condition) else { continue };
        let lost = if duel.factor() < 1.0 { " lost" } else { "" };
        let side =
            |row: &super::rows::Row| format!("<span><i>{}</i> {}</span>", summary::pace(row), escape(row.launcher));
        let _ = writeln!(
            page,
            "<div class=\"tile{lost}\"><span class=\"what\">{}</span><b>{} ×</b>{}{}</div>",
            escape(&headline(&condition)),
            factor(duel.factor()),
            side(duel.best),
            side(duel.rival)
        );
    }
    page.push_str("</div>\n");
    list(&summary::besides(report), page);
    for (title, lines) in summary::shortfalls(report) {
        let _ = writeln!(page, "<h3>{}</h3>", escape(title));
        list(&lines, page);
    }
    if !record.notes.is_empty() {
        page.push_str("<h3>Notes</h3>\n");
        list(&record.notes, page);
    }
}

/// Two significant digits: 0.83, 1.5, 19, 1,300.
fn factor(value: f64) -> String {
    match value {
        f if f < 1.0 => format!("{f:.2}"),
        f if f < 10.0 => format!("{f:.1}"),
        f => super::units::thousands(f.round() as u64),
    }
}

pub(super) fn list(lines: &[String], page: &mut String) {
    let many = if lines.len() > 6 { " many" } else { "" };
    let _ = writeln!(page, "<ul class=\"plain{many}\">");
    for line in lines {
        let _ = writeln!(page, "<li>{}</li>", escape(line));
    }
    page.push_str("</ul>\n");
}

fn section(chart: &Chart, prefix: &str, page: &mut String) -> Result<()> {
    let title = escape(chart.title);
    let _ = writeln!(
        page,
        "<section id=\"{prefix}{}\">\n<h2>{title}</h2>\n<p class=\"about\">{}</p>\n<div class=\"panels\">",
        chart.name,
        escape(chart.about)
    );
    for panel in &chart.panels {
        let drawing = drawing(chart, panel)?;
        let _ = writeln!(page, "<figure><figcaption>{}</figcaption>{drawing}</figure>", escape(&panel.title));
    }
    page.push_str("</div>\n");
    let _ =
        writeln!(page, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures: {title}\"><table>");
    let grid = &chart.table;
    page.push_str("<thead><tr><th class=\"name\" rowspan=\"2\">launcher</th>");
    for group in &grid.groups {
        let _ = write!(
            page,
            "<th class=\"first\" colspan=\"{}\" scope=\"colgroup\">{}</th>",
            grid.heads.len(),
            escape(group)
        );
    }
    page.push_str("</tr>\n<tr>");
    for _ in &grid.groups {
        for (index, head) in grid.heads.iter().enumerate() {
            let _ = write!(page, "<th scope=\"col\"{}>{}</th>", first(index), escape(head));
        }
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (launcher, cells) in &grid.rows {
        let _ = write!(page, "<tr{}><th scope=\"row\">{}</th>", class(launcher), escape(launcher));
        for (index, cell) in cells.iter().enumerate() {
            let _ = write!(page, "<td{}>{}</td>", first(index % grid.heads.len()), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n</section>\n");
    Ok(())
}

/// The first column of each group has a rule on its left.
pub(super) fn first(index: usize) -> &'static str {
    if index == 0 { " class=\"first\"" } else { "" }
}

/// The CSS class of a launcher, whose name may be followed by marks.
fn class(launcher: &str) -> &'static str {
    match launcher.split(' ').next().unwrap_or("") {
        name if super::plots::is_bound(name) => " class=\"floor\"",
        name if name.starts_with("forkless") => " class=\"ours\"",
        _ => "",
    }
}

fn drawing(chart: &Chart, panel: &Panel) -> Result<String> {
    let (svg, values) = panel.svg()?;
    let lines = if matches!(panel.body, Body::Lines { .. }) { " data-lines" } else { "" };
    Ok(spots(&svg, lines, &format!("{}. {}. {}", chart.title, panel.title, in_words(panel)), values))
}

/// The SVG element without a fixed size, with a description for screen readers and a title at each value.
pub(super) fn spots(svg: &str, kind: &str, label: &str, spots: Vec<Spot>) -> String {
    let inner = svg.find("viewBox").map_or(svg, |start| &svg[start..]);
    let inner = inner.trim_end().strip_suffix("</svg>").unwrap_or(inner);
    let mut drawing = format!("<svg role=\"img\"{kind} aria-label=\"{}\" {inner}<g class=\"spots\">\n", escape(label));
    for spot in spots {
        let ((x, y), words) = (spot.at, escape(&spot.words));
        let _ = writeln!(
            drawing,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"8\" data-colour=\"{}\"><title>{words}</title></circle>",
            spot.colour
        );
    }
    drawing.push_str("</g></svg>");
    drawing
}

/// A description of a chart for screen readers: the ends of each line, the value of each dot.
fn in_words(panel: &Panel) -> String {
    let short = |value: f64| panel.unit.short(value);
    let words: Vec<String> = match &panel.body {
        Body::Lines { ticks, lines } => {
            let ends = lines.iter().filter_map(|line| Some((line.launcher, line.points.first()?, line.points.last()?)));
            let at = |point: &super::charts::Point| format!("{} at {}", short(point.value), ticks[point.tick]);
            ends.map(|(launcher, first, last)| format!("{launcher} from {} to {}", at(first), at(last))).collect()
        }
        Body::Dots(points) => points.iter().map(|point| format!("{} {}", point.launcher, short(point.value))).collect(),
    };
    format!("{}. The table below has all values.", words.join("; "))
}

fn targets(figures: &[Figure], prefix: &str, page: &mut String) {
    if figures.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<section id=\"{prefix}targets\">\n<h2>Targets</h2>\n<p class=\"about\">The performance targets of the project, as ratios of \
         medians of this run.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Targets\"><table \
         class=\"targets\">\n<thead><tr><th class=\"name\">figure</th><th>measured</th><th>target</th><th></th></tr></thead>\n<tbody>"
    );
    for figure in figures {
        let verdict = if figure.met { "<td class=\"met\">met" } else { "<td class=\"missed\">not met" };
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{:.3}</td><td>{}</td>{verdict}</td></tr>",
            escape(&figure.figure),
            figure.value,
            target_words(figure)
        );
    }
    page.push_str("</tbody></table></div>\n</section>\n");
}

fn every_row(report: &Report, prefix: &str, page: &mut String) {
    let _ = writeln!(page, "<section id=\"{prefix}rows\" class=\"rows\">\n<h2>All rows</h2>");
    for condition in report.conditions() {
        let verdict = summary::duel(report, &condition).map_or_else(String::new, |duel| duel.words());
        let title = escape(&headline(&condition));
        let _ = writeln!(
            page,
            "<details><summary><b>{title}</b> <span class=\"soft\">{}</span></summary>",
            escape(&verdict)
        );
        let rows = report.rows_of(&condition).map(|row| (row.launcher, cells(row).to_vec()));
        plain_table(&title, &HEADS, rows, page);
        for line in footnotes(report, &condition) {
            let _ = writeln!(page, "<p class=\"notes\">{}</p>", escape(&line));
        }
        page.push_str("</details>\n");
    }
    if !report.alive.is_empty() {
        let _ = writeln!(page, "<details><summary><b>{ALIVE_TITLE}</b></summary>");
        plain_table(
            ALIVE_TITLE,
            &ALIVE_HEADS,
            report.alive.iter().map(|row| (row.waiter, alive_cells(row).to_vec())),
            page,
        );
        page.push_str("</details>\n");
    }
    let mitigations = escape(&report.machine.mitigations);
    let _ = writeln!(page, "<p class=\"notes\">CPU vulnerability mitigations: {mitigations}</p>\n</section>");
}

pub(super) fn plain_table<'a>(
    title: &str,
    heads: &[&str],
    rows: impl Iterator<Item = (&'a str, Vec<String>)>,
    page: &mut String,
) {
    let _ = writeln!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<thead><tr>"
    );
    for (index, head) in heads.iter().enumerate() {
        let name = if index == 0 { " class=\"name\"" } else { "" };
        let _ = write!(page, "<th scope=\"col\"{name}>{}</th>", escape(head));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (launcher, cells) in rows {
        let _ = write!(page, "<tr{}>", class(launcher));
        for (index, cell) in cells.iter().enumerate() {
            let tag = if index == 0 { "th scope=\"row\"" } else { "td" };
            let _ = write!(page, "<{tag}>{}</{}>", escape(cell), &tag[..2]);
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

/// Escapes text for HTML elements and quoted attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::condition::Condition;
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::*;

    fn archived() -> Archived {
        let large = Condition { parent_mib: 1024, ..Condition::SMALL };
        let rows = vec![
            row("floor", Condition::SMALL, 40.0, 80.0),
            row("std", Condition::SMALL, 40.0, 82.125),
            row("forkless-status", Condition::SMALL, 70.0, 70.0),
            row("floor", large, 41.0, 81.0),
            row("forkless-status", large, 71.0, 71.0),
        ];
        Archived { report: Report::new(Machine::read(), rows, Vec::new()), notes: vec!["<odd>".to_owned()] }
    }

    #[test]
    fn page_is_self_contained_and_well_formed() {
        let page = render(&[&archived()], None, true).expect("page");
        for outside in ["src=", "<link", "@import", "url(", "fetch("] {
            assert!(!page.contains(outside), "{outside}");
        }
        for part in [
            "&lt;odd&gt;",
            "<svg role=\"img\"",
            "total 82.125 µs",
            "Slower than the fastest alternative",
            "Slower than the vfork baseline",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert_eq!(page.matches("<svg role=\"img\"").count(), 6, "three panels of two charts");
        for tag in ["section", "table", "details", "figure", "ul", "tr", "th", "td", "div"] {
            let (opened, closed) = (
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count(),
                page.matches(&format!("</{tag}>")).count(),
            );
            assert_eq!(opened, closed, "{tag}");
        }
    }

    #[test]
    fn several_records_have_different_anchors() {
        let page = render(&[&archived(), &archived()], None, true).expect("page");
        for place in ["id=\"memory\"", "id=\"r2-memory\"", "href=\"#r2-memory\""] {
            assert_eq!(page.matches(place).count(), 1, "{place}");
        }
    }
}
