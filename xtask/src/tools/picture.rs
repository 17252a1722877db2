//! Draws the longest stop of the event loop as bars, a panel for each situation.

use super::Situation;
use super::record::Row;
use crate::background::plot::{COLOURS, escaped};
use std::fmt::Write as _;

const WIDTH: f64 = 900.0;
/// From the names to the right end of the longest bar.
const LEFT: f64 = 210.0;
const RIGHT: f64 = 560.0;
const BAR: f64 = 18.0;
const TITLE: f64 = 40.0;

/// The left end of the scale, which is logarithmic: a millisecond. Shorter stops have no bar.
const START: f64 = 1.0;

/// The place of a time on the scale, which ends at `end`.
fn place(ms: f64, end: f64) -> f64 {
    LEFT + (ms.max(START) / START).log10() / (end / START).log10() * (RIGHT - LEFT)
}

/// The stops as SVG. All panels have one scale, so that they can be compared.
pub(super) fn svg(rows: &[Row]) -> String {
    let mut situations: Vec<Situation> = rows.iter().map(|row| row.situation).collect();
    situations.dedup();
    let height = situations.len() as f64 * TITLE + rows.len() as f64 * BAR + 50.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"18\" font-size=\"14\">Longest stop of a timer of 5 ms beside tool calls, in milliseconds: each line is ten times the one before</text>\n"
    );
    let longest = rows.iter().map(Row::stop_ms).fold(10.0, f64::max);
    let end = 10f64.powf(longest.log10().ceil());
    for power in 0..=end.log10() as i32 {
        let (ms, bottom) = (10f64.powi(power), height - 24.0);
        let x = place(ms, end);
        let _ = writeln!(text, "<line x1=\"{x:.1}\" y1=\"30\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>");
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{ms}</text>", bottom + 16.0);
    }
    let mut top = 14.0;
    for situation in situations {
        let _ = writeln!(
            text,
            "<text x=\"10\" y=\"{}\" font-weight=\"bold\">{}</text>",
            top + 28.0,
            escaped(&situation.words())
        );
        top += TITLE;
        for row in rows.iter().filter(|row| row.situation == situation) {
            let width = place(row.stop_ms(), end) - LEFT;
            let colour = if row.is_ours { COLOURS[5] } else { COLOURS[2] };
            let (name, middle) = (escaped(row.parent), top + 12.0);
            let _ = writeln!(text, "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>", LEFT - 8.0);
            let _ = writeln!(
                text,
                "<rect x=\"{LEFT}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>",
                top + 2.0,
                BAR - 6.0
            );
            let label = format!("{:.1} ms; {:.0} µs of the parent's CPU per call", row.stop_ms(), row.own_us());
            let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{middle}\">{label}</text>", LEFT + width + 6.0);
            top += BAR;
        }
    }
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::{LEFT, RIGHT, place};

    #[test]
    fn each_power_of_ten_has_the_same_length() {
        let middle = (LEFT + RIGHT) / 2.0;
        for (ms, expected) in [(0.0, LEFT), (1.0, LEFT), (10.0, middle), (100.0, RIGHT)] {
            assert!((place(ms, 100.0) - expected).abs() < 1e-6, "{ms}");
        }
    }
}
