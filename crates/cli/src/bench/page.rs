//! One self-contained HTML page: the plots inlined, then all tables. It loads nothing, so it can be mailed or archived.

use std::fmt::Write;

use anyhow::Result;

use super::{
    plots::Plot,
    record::Report,
    table::{ALIVE_HEADS, ALIVE_TITLE, HEADS, alive_cells, cells, footnotes, headline, summary, target_words},
};

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
h1,h2{line-height:1.2}figure{margin:1.5rem 0}svg{max-width:100%;height:auto;border:1px solid #ddd}\
table{border-collapse:collapse;margin:.5rem 0 1.5rem;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #ddd}\
th:first-child,td:first-child{text-align:left}\
tr.floor{background:#f7f3e3}tr.ours{background:#eaf6ee}.no{color:#b00020;font-weight:bold}.scroll{overflow-x:auto}";

/// Writes the page.
///
/// # Errors
/// When a plot cannot be drawn.
pub(crate) fn render(report: &Report, plots: &[Plot], notes: &[String]) -> Result<String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>forkless bench</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Ways to launch a process</h1>\n\
         <p>{}</p>\n<p>Mitigations: {}</p>\n<ul>\n",
        escape(&report.machine.words()),
        escape(&report.machine.mitigations)
    );
    let notes = notes.iter().map(|note| format!("Note: {note}."));
    for line in summary(report).into_iter().chain(notes) {
        let _ = writeln!(page, "<li>{}</li>", escape(&line));
    }
    page.push_str("</ul>\n");
    for plot in plots {
        let svg = plot.svg()?;
        let _ = writeln!(page, "<figure>{}</figure>", named(&svg, &plot.title));
    }
    targets(report, &mut page);
    tables(report, &mut page);
    alive(report, &mut page);
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

fn targets(report: &Report, page: &mut String) {
    if report.targets.is_empty() {
        return;
    }
    page.push_str("<h2>Targets</h2>\n<div class=\"scroll\"><table>\n<tr><th>figure<th>found<th>target<th></tr>\n");
    for figure in &report.targets {
        let verdict = if figure.met { "<td>met" } else { "<td class=\"no\">not met" };
        let words = (escape(&figure.figure), target_words(figure));
        let _ = writeln!(page, "<tr><td>{}<td>{:.3}<td>{}{verdict}</tr>", words.0, figure.value, words.1);
    }
    page.push_str("</table></div>\n");
}

fn tables(report: &Report, page: &mut String) {
    for condition in report.conditions() {
        let _ = writeln!(page, "<h2>{}</h2>\n<div class=\"scroll\"><table>", escape(&headline(&condition)));
        let heads: String = HEADS.iter().map(|head| format!("<th>{}", escape(head))).collect();
        let _ = writeln!(page, "<tr>{heads}</tr>");
        for row in report.rows_of(&condition) {
            let class = match row.launcher {
                "floor" => " class=\"floor\"",
                name if name.starts_with("forkless") => " class=\"ours\"",
                _ => "",
            };
            let words: String = cells(row).iter().map(|cell| format!("<td>{}", escape(cell))).collect();
            let _ = writeln!(page, "<tr{class}>{words}</tr>");
        }
        page.push_str("</table></div>\n");
        for line in footnotes(report, &condition) {
            let _ = writeln!(page, "<p>{}</p>", escape(&line));
        }
    }
}

fn alive(report: &Report, page: &mut String) {
    if report.alive.is_empty() {
        return;
    }
    let heads: String = ALIVE_HEADS.iter().map(|head| format!("<th>{}", escape(head))).collect();
    let _ = writeln!(page, "<h2>{ALIVE_TITLE}</h2>\n<div class=\"scroll\"><table>\n<tr>{heads}</tr>");
    for row in &report.alive {
        let class = if row.waiter.starts_with("forkless") { " class=\"ours\"" } else { "" };
        let words: String = alive_cells(row).iter().map(|cell| format!("<td>{}", escape(cell))).collect();
        let _ = writeln!(page, "<tr{class}>{words}</tr>");
    }
    page.push_str("</table></div>\n");
}

/// The SVG element without a file's head, scalable, and with a name for those who cannot see it.
fn named(svg: &str, title: &str) -> String {
    let element = svg.find("<svg").map_or(svg, |start| &svg[start..]);
    let label = format!("<svg role=\"img\" aria-label=\"{}\"", escape(title));
    element.replacen("<svg", &label, 1)
}

/// Text for HTML, in elements as well as in quoted attributes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{conditions::Condition, machine::Machine, record::tests::row},
        *,
    };

    #[test]
    fn page_is_self_contained() {
        let large = Condition { parent_mib: 1024, ..Condition::SMALL };
        let rows = vec![
            row("floor", Condition::SMALL, 40.0, 80.0),
            row("forkless-status", Condition::SMALL, 70.0, 70.0),
            row("floor", large, 41.0, 81.0),
            row("forkless-status", large, 71.0, 71.0),
        ];
        let report = Report::new(Machine::read(), rows, Vec::new());
        let page = render(&report, &super::super::plots::plots(&report), &["<odd>".to_owned()]).expect("page");
        assert!(page.contains("<svg role=\"img\"") && page.contains("&lt;odd&gt;"));
        for outside in ["<script", "src=", "<link", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<h2>").count(), 3);
    }
}
