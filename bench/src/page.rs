//! The report as one self-contained HTML page: summary, charts with tables, and all rows. It loads no other files, so it can be
//! mailed or archived, and it shows everything without scripts.

use std::fmt::Write;

use anyhow::Result;

use super::{
    archive::Archived,
    background::{self, Background},
    charts::{Body, Chart, Panel, charts},
    condition::headline,
    name::shown,
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
<p><b>Blocked</b> is the time from the call until it returns to the caller. <b>Total</b> is the time from the call until the child has \
been waited for and all its resources are closed. <b>p50</b> is the median, <b>p99</b> is exceeded by one launch in a hundred \
(and left out below a hundred launches), and <b>n</b> is the number of launches.</p>\n\
<p>The <b>vfork baseline</b> is vfork, execve and wait4 in C; options and records call it <b>floor</b>. The columns “× vfork” are relative to it. Under each \
condition, all methods take turns of a millisecond, so that disturbances affect all of them alike. Between machines and runs, \
compare ratios, not microseconds.</p>\n\
<p>The launched program only exits, so that only the launch is measured. For a program that runs for milliseconds, most of these \
differences are negligible. Rows marked * do not apply all settings. In rows marked †, the child differs from that of the vfork \
baseline. The lines under “All rows” explain both marks. The authors of forkless also wrote this benchmark: see \
bench/METHODOLOGY.md and bench/BIAS.md, and run it on your machine.</p>\n";

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
    let mut words = Words::default();
    for (index, record) in records.iter().enumerate() {
        // The anchors of several records on one page must differ.
        let prefix = if index == 0 { String::new() } else { format!("r{}-", index + 1) };
        let figures = if targets { &*record.report.targets } else { &[] };
        one(record, &prefix, (figures, background.is_some()), &mut words, &mut page)?;
    }
    if let Some(background) = background {
        background::section(background, &mut words, &mut page)?;
    }
    let too = if background.is_some() { " and background.json" } else { "" };
    let _ = write!(
        page,
        "</main>\n<footer>Written by forkless {} from results.json{too}.</footer>\n\
         <script type=\"application/json\" id=\"words\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        // No text ends the script element.
        serde_json::to_string(&words.all)?.replace('<', "\\u003c")
    );
    Ok(page)
}

fn one(
    record: &Archived,
    prefix: &str,
    (figures, has_background): (&[Figure], bool),
    words: &mut Words,
    page: &mut String,
) -> Result<()> {
    let (report, charts) = (&record.report, charts(&record.report));
    let (first, others) = match charts.split_first() {
        Some((first, others)) if first.name == START => (Some(first), others),
        _ => (None, &charts[..]),
    };
    if let Some(chart) = first {
        opening(chart, prefix, words, page)?;
    }
    let _ = writeln!(page, "<p class=\"machine\">Measured on {}.</p>", escape(&report.machine.place()));
    if !report.machine.own_target {
        page.push_str("<p><b>The launched program was chosen by the user; it is not the default program, which only exits.</b></p>\n");
    }
    page.push_str(HOW);
    let _ = writeln!(page, "<p class=\"machine\">{}</p>\n</details>", escape(&report.machine.words()));
    contents(others, prefix, (figures, has_background), page);
    for chart in others {
        section(chart, prefix, words, page)?;
    }
    in_short(record, prefix, page);
    targets(figures, prefix, page);
    every_row(report, prefix, page);
    Ok(())
}

/// The name of the chart that a page begins with.
const START: &str = "start";

/// One chart and one sentence.
fn opening(chart: &Chart, prefix: &str, words: &mut Words, page: &mut String) -> Result<()> {
    let _ = writeln!(
        page,
        "<section id=\"{prefix}{}\" class=\"opening\">\n<div><h2>{}</h2>\n<p>{}</p></div>",
        chart.name,
        prose(&chart.finding),
        prose(&chart.about)
    );
    figures_of(chart, words, page)?;
    page.push_str("</section>\n");
    Ok(())
}

/// The drawings of a chart.
fn figures_of(chart: &Chart, words: &mut Words, page: &mut String) -> Result<()> {
    page.push_str("<div class=\"panels\">");
    for panel in &chart.panels {
        let drawing = drawing(chart, panel, words)?;
        let _ = writeln!(page, "<figure><figcaption>{}</figcaption>{drawing}</figure>", escape(&panel.title));
    }
    page.push_str("</div>\n");
    Ok(())
}

fn contents(charts: &[Chart], prefix: &str, (figures, has_background): (&[Figure], bool), page: &mut String) {
    page.push_str("<nav class=\"scroll\" aria-label=\"Contents\"><ul>\n");
    let mut entry = |place: &str, title: &str| {
        let _ = writeln!(page, "<li><a href=\"#{place}\">{}</a></li>", escape(title));
    };
    let here = |name: &str| format!("{prefix}{name}");
    charts.iter().for_each(|chart| entry(&here(chart.name), chart.title));
    entry(&here("short"), "All conditions");
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
        "<section id=\"{prefix}short\">\n<h2>All conditions in short</h2>\n<p class=\"soft\">Speed-up of the fastest forkless call over the fastest \
         alternative, from the call until the child has been waited for.</p>\n<div class=\"tiles\">"
    );
    for condition in summary::telling(report) {
        let Some(duel) = summary::duel(report, &condition) else { continue };
        let lost = if duel.factor() < 1.0 { " lost" } else { "" };
        let side = |row: &super::rows::Row| {
            format!("<span><i>{}</i> {}</span>", summary::pace(row), escape(shown(row.launcher)))
        };
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
    page.push_str("</section>\n");
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
        let _ = writeln!(page, "<li>{}</li>", prose(line));
    }
    page.push_str("</ul>\n");
}

fn section(chart: &Chart, prefix: &str, words: &mut Words, page: &mut String) -> Result<()> {
    let title = escape(chart.title);
    let heading = if chart.finding == chart.title {
        format!("<h2>{title}</h2>")
    } else {
        format!("<p class=\"topic\">{title}</p>\n<h2>{}</h2>", prose(&chart.finding))
    };
    let _ = writeln!(
        page,
        "<section id=\"{prefix}{}\">\n{heading}\n<p class=\"about\">{}</p>",
        chart.name,
        prose(&chart.about)
    );
    figures_of(chart, words, page)?;
    if let Some(names) = context(chart) {
        let _ = writeln!(page, "<p class=\"notes\">Grey lines: {}. Point at one to see its name.</p>", escape(&names));
    }
    if chart.panels.iter().any(|panel| matches!(panel.body, Body::Lines { .. })) {
        table_of(chart, page);
    }
    page.push_str("</section>\n");
    Ok(())
}

/// The figures of the named lines. All others are in the tables of the conditions.
fn table_of(chart: &Chart, page: &mut String) {
    let title = escape(chart.title);
    let _ =
        writeln!(page, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures: {title}\"><table>");
    let grid = &chart.table;
    page.push_str("<thead><tr><th class=\"name\" rowspan=\"2\">method</th>");
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
    for (launcher, cells) in grid.rows.iter().filter(|(launcher, _)| is_named(launcher)) {
        let _ = write!(page, "<tr{}><th scope=\"row\">{}", class(launcher), escape(launcher));
        for (index, cell) in cells.iter().enumerate() {
            let _ = write!(page, "<td{}>{}", first(index % grid.heads.len()), escape(cell));
        }
        page.push('\n');
    }
    page.push_str("</tbody></table></div>\n");
}

/// Has the line of a method, whose name may be followed by marks, a colour?
fn is_named(launcher: &str) -> bool {
    if launcher.starts_with(shown("floor")) {
        return true;
    }
    let name = launcher.split(' ').next().unwrap_or("");
    super::plots::look_of(name).is_some_and(|look| !look.is_grey())
}

/// The names of the grey lines of a chart, which have none beside them.
fn context(chart: &Chart) -> Option<String> {
    let mut names = Vec::new();
    for panel in &chart.panels {
        let Body::Lines { lines, .. } = &panel.body else { continue };
        names.extend(
            super::plots::grey_names(lines).into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>(),
        );
    }
    (!names.is_empty()).then(|| names.join(", "))
}

/// The first column of each group has a rule on its left.
pub(super) fn first(index: usize) -> &'static str {
    if index == 0 { " class=\"first\"" } else { "" }
}

/// The CSS class of a launcher, whose name may be followed by marks.
fn class(launcher: &str) -> &'static str {
    match launcher.split(' ').next().unwrap_or("") {
        name if super::plots::is_bound(name) || name == "vfork" => " class=\"floor\"",
        name if name.starts_with("forkless") => " class=\"ours\"",
        _ => "",
    }
}

fn drawing(chart: &Chart, panel: &Panel, words: &mut Words) -> Result<String> {
    let (svg, values) = panel.svg()?;
    let lines = if matches!(panel.body, Body::Lines { .. }) { " data-lines" } else { "" };
    Ok(spots(&svg, lines, &format!("{}. {}. {}", chart.title, panel.title, in_words(panel)), values, words))
}

/// The texts of all tooltips of a page. Several panels show the same one.
#[derive(Default)]
pub(super) struct Words {
    all: Vec<String>,
    places: std::collections::HashMap<String, usize>,
}

impl Words {
    /// Is there such a tooltip?
    #[cfg(test)]
    pub(super) fn contains(&self, words: &str) -> bool {
        self.places.contains_key(words)
    }

    fn place(&mut self, words: String) -> usize {
        *self.places.entry(words).or_insert_with_key(|words| {
            self.all.push(words.clone());
            self.all.len() - 1
        })
    }
}

/// The SVG element without a fixed size, with a description for screen readers, and with the place, colour and tooltip of each value.
pub(super) fn spots(svg: &str, kind: &str, label: &str, spots: Vec<Spot>, words: &mut Words) -> String {
    let inner = svg.find("viewBox").map_or(svg, |start| &svg[start..]);
    let mut values = Vec::new();
    for spot in spots {
        let ((x, y), colour) = (spot.at, spot.colour.trim_start_matches('#'));
        values.push(format!("{x} {y} {colour} {}", words.place(spot.words)));
    }
    format!(
        "<svg role=\"img\"{kind} aria-label=\"{}\" data-spots=\"{}\" {}",
        escape(label),
        values.join(","),
        smaller(inner)
    )
}

/// Leaves out what is the default in SVG or on this page.
fn smaller(svg: &str) -> String {
    let mut svg = svg.replace(['\n'], "");
    for (long, short) in [
        (" xmlns=\"http://www.w3.org/2000/svg\"", ""),
        (" opacity=\"1\"", ""),
        (" stroke-width=\"1\"", ""),
        (" stroke=\"none\"", ""),
        (" font-family=\"sans-serif\"", ""),
        (" font-size=\"9.67741935483871\"", ""),
        (" fill=\"#5C5C5A\">", ">"),
        ("<polyline fill=\"none\"", "<polyline"),
        (" stroke=\"#DDDDDB\"", ""),
        (" \"/>", "\"/>"),
    ] {
        svg = svg.replace(long, short);
    }
    svg
}

/// A description of a chart for screen readers: the ends of each line, the value of each dot.
fn in_words(panel: &Panel) -> String {
    let short = |value: f64| panel.unit.short(value);
    let words: Vec<String> = match &panel.body {
        Body::Lines { ticks, lines, .. } => {
            let named = lines.iter().filter(|line| !super::plots::is_grey(line.launcher));
            let ends = named.filter_map(|line| Some((line.launcher, line.points.first()?, line.points.last()?)));
            let at = |point: &super::charts::Point| format!("{} at {}", short(point.value), ticks[point.tick]);
            ends.map(|(launcher, first, last)| format!("{} from {} to {}", shown(launcher), at(first), at(last)))
                .collect()
        }
        Body::Dots(rows) => {
            rows.iter().map(|row| format!("{} {}", row.name, row.value).trim_end().to_owned()).collect()
        }
    };
    format!("{}.", words.join("; "))
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

/// The columns of the tables that fit a page: those of [`HEADS`] without p90 and maximum.
const ON_PAGE: [usize; 10] = [0, 1, 3, 5, 7, 9, 10, 11, 12, 13];

fn every_row(report: &Report, prefix: &str, page: &mut String) {
    let _ = writeln!(page, "<section id=\"{prefix}rows\" class=\"rows\">\n<h2>All rows</h2>");
    let mut unlike = Vec::new();
    for condition in report.conditions() {
        let verdict = summary::duel(report, &condition).map_or_else(String::new, |duel| duel.words());
        let title = escape(&headline(&condition));
        let _ = writeln!(
            page,
            "<details><summary><b>{title}</b> <span class=\"soft\">{}</span></summary>",
            escape(&verdict)
        );
        let chosen = |cells: &[String; 14]| ON_PAGE.map(|column| cells[column].clone()).to_vec();
        let rows = report.rows_of(&condition).map(|row| (row.launcher, chosen(&cells(row))));
        plain_table(&title, &ON_PAGE.map(|column| HEADS[column]), rows, page);
        for line in footnotes(report, &condition) {
            // The other notes are the same under most conditions.
            if line.starts_with('*') {
                let _ = writeln!(page, "<p class=\"notes\">{}</p>", escape(&line));
            } else if !unlike.contains(&line) {
                unlike.push(line);
            }
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
    for line in unlike {
        let _ = writeln!(page, "<p class=\"notes\">{}</p>", escape(&line));
    }
    page.push_str("<p class=\"notes\">table.txt and results.csv also have p90 and the maximum.</p>\n");
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
            let _ = write!(page, "<{tag}>{}", escape(cell));
        }
        page.push('\n');
    }
    page.push_str("</tbody></table></div>\n");
}

/// Escapes text for HTML elements; no line ends between a number and its unit.
pub(super) fn prose(text: &str) -> String {
    let units = ["µs", "ms", "KiB", "MiB", "GiB", "%", "×"];
    units.iter().fold(escape(text), |text, unit| text.replace(&format!(" {unit}"), &format!("\u{a0}{unit}")))
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
        assert_eq!(page.matches("<svg role=\"img\"").count(), 4, "two panels of two charts");
        for tag in ["section", "table", "thead", "tbody", "details", "figure", "figcaption", "svg", "ul", "p", "div"] {
            let (opened, closed) = (
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count(),
                page.matches(&format!("</{tag}>")).count(),
            );
            assert_eq!(opened, closed, "{tag}");
        }
    }

    /// The largest record of the project, whose page must still be quick to load and to send.
    #[test]
    fn a_page_with_everything_has_at_most_400_kilobytes() {
        let record = concat!(env!("CARGO_MANIFEST_DIR"), "/record/2026-11-22");
        let record = std::path::Path::new(record);
        if !record.with_file_name("README.md").exists() {
            return; // The package of this crate has no records.
        }
        let record = super::super::archive::read(record).expect("a record");
        let page = render(&[&record], None, true).expect("page");
        assert!(page.len() <= 400_000, "{} bytes", page.len());
        let first = page.find("<section").map(|at| &page[at..]).expect("a section");
        assert!(first.starts_with("<section id=\"start\""), "one chart and one sentence come first");
        let order: Vec<_> = ["id=\"start\"", "id=\"memory\"", "id=\"short\"", "id=\"rows\""]
            .map(|place| page.find(place).expect(place))
            .into();
        assert!(order.is_sorted(), "{order:?}");
        let shown = page.replace("options and records call it <b>floor</b>", "");
        for word in [">floor<", ">floor †<", "held", "forkless-fork in", " 1 conditions"] {
            assert!(!shown.contains(word), "{word}");
        }
    }

    #[test]
    fn numbers_stay_with_their_units() {
        assert_eq!(prose("<26 ms, 2.0 × as fast"), "&lt;26\u{a0}ms, 2.0\u{a0}× as fast");
    }

    #[test]
    fn several_records_have_different_anchors() {
        let page = render(&[&archived(), &archived()], None, true).expect("page");
        for place in ["id=\"memory\"", "id=\"r2-memory\"", "href=\"#r2-memory\""] {
            assert_eq!(page.matches(place).count(), 1, "{place}");
        }
    }
}
