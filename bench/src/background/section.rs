//! The background on the page: tables with published and measured figures and the reasons for differences, and curves as graphs
//! with tables.

use std::fmt::Write;

use anyhow::Result;

use super::{
    super::{
        charts::exact,
        page::{Words, escape, first, list, plain_table, spots},
        statistics::round,
        units::{figure, thousands},
    },
    Background, Curve, Line, Row, Table,
    curves::{Graph, graphs},
    is_ours,
};

const ABOUT: &str = "\
<p class=\"about\">Published tables and graphs on slow launches, measured again by <code>forkless bench background</code>, beside the \
published figures and with the reasons for differences. The published figures come from other machines: compare the ratios (×), not \
the times. bench/background/README.md describes what is timed.</p>\n";

/// Writes the section.
///
/// # Errors
/// When a graph cannot be drawn.
pub(crate) fn section(background: &Background, words: &mut Words, page: &mut String) -> Result<()> {
    page.push_str("<section id=\"background\" class=\"background\">\n<h2>Published figures, measured again</h2>\n");
    page.push_str(ABOUT);
    let machine: Vec<String> = background.machine.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let _ = writeln!(page, "<p class=\"machine\">{}</p>", escape(&machine.join("; ")));
    if !background.notes().is_empty() {
        list(&background.notes(), page);
    }
    background.tables.iter().for_each(|found| table(found, page));
    for found in &background.curves {
        curve(found, words, page)?;
    }
    page.push_str("</section>\n");
    Ok(())
}

fn head(name: &str, title: &str, about: &[String], page: &mut String) {
    let _ = writeln!(page, "<h3 id=\"background-{}\">{}</h3>", escape(name), escape(title));
    for words in about {
        let _ = writeln!(page, "<p class=\"about\">{}</p>", escape(words));
    }
}

fn open_table(title: &str, page: &mut String) {
    let title = escape(title);
    let _ =
        writeln!(page, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<thead>");
}

fn table(table: &Table, page: &mut String) {
    head(&table.name, &table.title, &[format!("Published: {}. {}", table.source, table.measured)], page);
    open_table(&table.title, page);
    let columns = table.figures.len() + 1;
    let _ = write!(
        page,
        "<tr><th class=\"name\" rowspan=\"2\">method</th><th class=\"first\" colspan=\"{columns}\" scope=\"colgroup\">published</th>\
         <th class=\"first\" colspan=\"{columns}\" scope=\"colgroup\">here</th><th class=\"first\" rowspan=\"2\" scope=\"col\">here / \
         published</th><th rowspan=\"2\" scope=\"col\">launches</th><th class=\"why\" rowspan=\"2\" scope=\"col\">reason</th></tr>\n<tr>"
    );
    for _ in 0..2 {
        for (index, figure) in table.figures.iter().map(String::as_str).chain(["×"]).enumerate() {
            let _ = write!(page, "<th scope=\"col\"{}>{}</th>", first(index), escape(figure));
        }
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    table.rows.iter().for_each(|found| row(table, found, page));
    page.push_str("</tbody></table></div>\n");
    let mut beside: Vec<&String> = table.rows.iter().filter_map(|row| row.beside.as_ref()).collect();
    beside.dedup();
    let name = |id: &String| table.rows.iter().find(|row| row.id == *id).map_or("", |row| row.name.as_str());
    let names: Vec<String> = beside.into_iter().map(|id| format!("“{}”", name(id))).collect();
    if let (false, Some(main)) = (names.is_empty(), table.figures.get(table.main)) {
        let words = format!("×: {main} relative to {}.", names.join(" or "));
        let _ = writeln!(page, "<p class=\"notes\">{}</p>", escape(&words));
    }
}

fn row(table: &Table, row: &Row, page: &mut String) {
    let dash = || "–".to_owned();
    let times = |times: Option<f64>| times.map_or_else(dash, |times| format!("{times:.2}"));
    let _ = write!(page, "<tr{}><th scope=\"row\">{}</th>", class(&row.name), escape(&row.name));
    for (figures, factor) in [(&row.published, row.times_published), (&row.here, row.times_here)] {
        for at in 0..table.figures.len() {
            let shown = figures.get(at).map_or_else(dash, |value| figure(*value));
            let _ = write!(page, "<td{}>{shown}</td>", first(at));
        }
        let _ = write!(page, "<td>{}</td>", times(factor));
    }
    let both = row.here.get(table.main).zip(row.published.get(table.main)).map(|(here, there)| here / there);
    let _ = writeln!(
        page,
        "<td class=\"first\">{}</td><td>{}</td><td class=\"why\">{}</td></tr>",
        times(both),
        thousands(row.launches),
        escape(&row.reason)
    );
}

fn class(name: &str) -> &'static str {
    if is_ours(name) { " class=\"ours\"" } else { "" }
}

fn curve(curve: &Curve, words: &mut Words, page: &mut String) -> Result<()> {
    let about = [format!("Source: {}. {}", curve.source, curve.measured), format!("Published: {}", curve.published)];
    head(&curve.name, &curve.title, &about, page);
    let graphs = graphs(curve);
    if !graphs.is_empty() {
        page.push_str("<div class=\"panels\">\n");
        for graph in &graphs {
            let _ = writeln!(
                page,
                "<figure><figcaption>{}</figcaption>{}</figure>",
                escape(&graph.title),
                drawing(graph, words)?
            );
        }
        page.push_str("</div>\n");
    }
    open_table(&curve.title, page);
    let heads =
        [format!("{}, first", curve.y), "last".to_owned(), "×".to_owned(), format!("{} per 100 {}", curve.y, curve.x)];
    page.push_str("<tr><th class=\"name\">line</th>");
    for head in heads.iter().map(String::as_str).chain(["resident MiB", "launches"]) {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(head));
    }
    page.push_str("<th class=\"why\" scope=\"col\">reason</th></tr></thead>\n<tbody>\n");
    for line in &curve.lines {
        let _ = write!(page, "<tr{}><th scope=\"row\">{}</th>", class(&line.name), escape(&line.name));
        ends(line).iter().for_each(|cell| page.push_str(&format!("<td>{cell}</td>")));
        let _ = writeln!(page, "<td class=\"why\">{}</td></tr>", escape(&line.reason));
    }
    page.push_str("</tbody></table></div>\n");
    every_point(curve, page);
    Ok(())
}

/// First and last value, their ratio, the slope, the size of the process, and the number of launches.
fn ends(line: &Line) -> [String; 6] {
    let launches = thousands(line.launches);
    let (Some(first), Some(last)) = (line.points.first(), line.points.last()) else {
        return ["–", "–", "–", "–", "–", &launches].map(str::to_owned);
    };
    let mib = |kib: f64| figure(kib / 1024.0);
    let resident = line.resident_kib.map_or("–".to_owned(), |(from, to)| format!("{} → {}", mib(from), mib(to)));
    let slope = figure(line.slope() * 100.0);
    [figure(first.1), figure(last.1), format!("{:.2}", last.1 / first.1), slope, resident, launches]
}

/// All values of the graphs as a table, with a row for each x.
fn every_point(curve: &Curve, page: &mut String) {
    let lines: Vec<&Line> = curve.lines.iter().filter(|line| !line.points.is_empty()).collect();
    let mut all: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let heads: Vec<&str> = [curve.x.as_str()].into_iter().chain(lines.iter().map(|line| line.name.as_str())).collect();
    let cells = |x: &f64| {
        let value = |line: &&Line| line.points.iter().find(|point| point.0 == *x).map(|point| exact(round(point.1)));
        let values = lines.iter().map(|line| value(line).unwrap_or_else(|| "–".to_owned()));
        ("", [exact(*x)].into_iter().chain(values).collect())
    };
    let title = format!("All points, in {}", curve.y);
    let _ = writeln!(page, "<details><summary>{}</summary>", escape(&title));
    plain_table(&escape(&format!("{}. {title}", curve.title)), &heads, all.iter().map(cells), page);
    page.push_str("</details>\n");
}

/// The SVG element without a fixed size, with a description for screen readers.
fn drawing(graph: &Graph, words: &mut Words) -> Result<String> {
    let (svg, values) = graph.svg()?;
    Ok(spots(&svg, " data-lines", &graph.words(), values, words))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::super::tests::SMALL;
    use super::*;

    #[test]
    fn every_row_has_published_and_measured_figures_and_the_reason() {
        let (mut page, mut words) = (String::new(), Words::default());
        section(&parse(SMALL).expect("a record"), &mut words, &mut page).expect("a section");
        let row = |name: &str| {
            let start = page.find(&format!("<th scope=\"row\">{name}<")).unwrap_or_else(|| panic!("no {name}"));
            let cells = page[start..].lines().next().expect("a row").split("<td").skip(1);
            cells.filter_map(|cell| cell.split(['>', '<']).nth(1)).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("vfork"), ["1.0", "2.0", "–", "1.5", "3.0", "–", "1.50", "1,234", "The machine's speed."]);
        let fork = ["4.0", "5.0", "2.50", "3,000", "3,001", "1000.17", "600.10", "9", "It copies."];
        assert_eq!(row("fork &amp; exec"), fork);
        assert_eq!(row("forkless"), ["–", "–", "–", "–", "–", "–", "–", "0", "Not measured here."]);
        assert_eq!(row("fork, touched"), ["101", "2,500", "24.88", "1,200", "–", "30", "Copies."]);
        assert_eq!(row("absent"), ["–", "–", "–", "–", "–", "0", "There is none."]);
        assert_eq!(row("100"), ["1,300.25", "–", "91"], "every point");
        for part in [
            "×: total s relative to “vfork”.",
            "a &lt;fast&gt; one",
            "do not use its figures",
            "there is no perl",
            "1.0 → 200",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert!(words.contains("fork, touched · 100 MiB\n1,300.25 µs"));
        assert_eq!(page.matches("<svg role=\"img\"").count(), 2);
        for tag in ["section", "table", "details", "figure", "ul", "div"] {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
