//! Draws the rates of all runners as bars, a panel for each case.

use super::record::{Case, Row};
use crate::background::plot::{COLOURS, escaped, scale};
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
/// From the names to the right end of the longest bar.
const LEFT: f64 = 170.0;
const RIGHT: f64 = 640.0;
const BAR: f64 = 20.0;
const TITLE: f64 = 40.0;

/// The rates as SVG.
pub(super) fn svg(rows: &[Row]) -> String {
    let mut cases: Vec<Case> = rows.iter().map(|row| row.case).collect();
    cases.dedup();
    let height = cases.len() as f64 * TITLE + rows.len() as f64 * BAR + 20.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut top = 0.0;
    for case in cases {
        let rows = || rows.iter().filter(|row| row.case == case);
        let (end, _) = scale(rows().map(|row| row.jobs_per_s).fold(0.0, f64::max));
        let title = escaped(&format!("Jobs per second: {}", case.words()));
        let _ = writeln!(text, "<text x=\"10\" y=\"{}\" font-size=\"14\">{title}</text>", top + 28.0);
        top += TITLE;
        for row in rows() {
            let width = row.jobs_per_s / end * (RIGHT - LEFT);
            let colour = if row.is_ours { COLOURS[5] } else { COLOURS[2] };
            let (name, middle) = (escaped(row.runner), top + 13.0);
            let _ = writeln!(text, "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>", LEFT - 8.0);
            let _ = writeln!(
                text,
                "<rect x=\"{LEFT}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>",
                top + 2.0,
                BAR - 6.0
            );
            let label = format!("{:.0} ({:.2} × loop)", row.jobs_per_s, row.to_loop);
            let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{middle}\">{label}</text>", LEFT + width + 6.0);
            top += BAR;
        }
    }
    text + "</svg>\n"
}
