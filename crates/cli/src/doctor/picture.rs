//! The chart as a self-contained SVG for light and dark pages, with a text description for screen readers.

use std::fmt::Write;

use super::chart::{Chart, Line, Node, WIDTH, description};

/// The size of a character of the chart, and the margin, in pixels.
const ACROSS: usize = 10;
const DOWN: usize = 18;
const MARGIN: usize = 20;

/// Colours, as classes. The chart has its own background: an image does not know that of the page.
const STYLE: &str = "\
    .page{fill:#fff}.box{fill:#f4f6f8;stroke:#5b6770}.end{fill:#e3eefc;stroke:#2b5fa8}\
    .line{fill:none;stroke:#5b6770}.head{fill:#5b6770}text{fill:#1b2228}.word{fill:#4a555d}\
    .taken{stroke:#b3400a;stroke-width:3}.head.taken{fill:#b3400a;stroke:none}.box.taken,.end.taken{fill:#fdeee4}\
    @media(prefers-color-scheme:dark){\
    .page{fill:#14181c}.box{fill:#20272d;stroke:#93a1ab}.end{fill:#1b2e47;stroke:#7fb0f0}\
    .line{stroke:#93a1ab}.head{fill:#93a1ab}text{fill:#eef2f5}.word{fill:#c0cad1}\
    .taken{stroke:#ff9a5c}.head.taken{fill:#ff9a5c}.box.taken,.end.taken{fill:#43291a}}";

/// The SVG file.
pub(crate) fn svg(chart: &Chart) -> String {
    let (width, height) = (WIDTH * ACROSS + 2 * MARGIN, chart.height * DOWN + 2 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"title desc\" \
         font-family=\"Verdana,'DejaVu Sans',sans-serif\" font-size=\"14\">\n\
         <title id=\"title\">Choice of launcher</title>\n<desc id=\"desc\">{}</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n",
        escaped(&description())
    );
    // The path taken is drawn last, on top.
    for taken in [false, true] {
        for arrow in chart.arrows.iter().filter(|arrow| arrow.taken == taken) {
            out += &line(arrow.way, arrow.answer, taken);
        }
        chart.nodes.iter().filter(|node| node.taken == taken).for_each(|one| out += &node(one));
    }
    out + "</g>\n</svg>\n"
}

fn node(node: &Node) -> String {
    let (x, y) = (node.x * ACROSS, node.y * DOWN);
    let (width, height) = (node.width * ACROSS, node.height * DOWN);
    let (kind, round) = if node.is_end { ("end", height / 2) } else { ("box", 6) };
    let class = class(kind, node.taken);
    let mut out =
        format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\"/>\n");
    let middle = x + width / 2;
    // Centre the block of lines; 5 is the distance from the middle of a line to its baseline.
    let first = y + height / 2 + 5 - (node.lines.len().saturating_sub(1)) * DOWN / 2;
    let weight = if node.is_end { " font-weight=\"bold\"" } else { "" };
    for (index, words) in node.lines.iter().enumerate() {
        let y = first + index * DOWN;
        let _ =
            writeln!(out, "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\"{weight}>{}</text>", escaped(words));
    }
    out
}

/// An arrow: the line ends where the head begins, and the head ends at the box.
fn line(way: Line, answer: &str, taken: bool) -> String {
    const HEAD: usize = 9;
    let half_down = DOWN / 2;
    let right = |x: usize, y: usize| format!("M{x} {y}l-{HEAD} -5v10z");
    let (path, head, (word_x, word_y)) = match way {
        Line::Right { y, from, to } => {
            let (y, from, to) = (y * DOWN + half_down, from * ACROSS, (to + 1) * ACROSS);
            (format!("M{from} {y}H{}", to - HEAD), right(to, y), (from + 8, y - 6))
        }
        Line::Down { x, from, to } => {
            let (x, from, to) = (x * ACROSS, from * DOWN, (to + 1) * DOWN);
            (format!("M{x} {from}V{}", to - HEAD), format!("M{x} {to}l-5 -{HEAD}h10z"), (x + 10, from + 17))
        }
        Line::Corner { x, from, y, to } => {
            let (x, from) = (x * ACROSS, from * DOWN);
            let (y, to) = (y * DOWN + half_down, (to + 1) * ACROSS);
            (format!("M{x} {from}V{y}H{}", to - HEAD), right(to, y), (x + 10, from + 17))
        }
    };
    format!(
        "<path class=\"{}\" d=\"{path}\"/><path class=\"{}\" d=\"{head}\"/>\
         <text class=\"word\" x=\"{word_x}\" y=\"{word_y}\" font-size=\"13\">{answer}</text>\n",
        class("line", taken),
        class("head", taken)
    )
}

fn class(kind: &str, taken: bool) -> String {
    if taken { format!("{kind} taken") } else { kind.to_owned() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
