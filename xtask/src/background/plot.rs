//! Draws a curve as SVG: axes, ticks, lines and a legend, with linear scales.

use super::record::Curve;
use std::fmt::Write as _;

const SIZE: (f64, f64) = (960.0, 480.0);
/// The plot area: left, top, right, bottom.
const AREA: (f64, f64, f64, f64) = (70.0, 44.0, 640.0, 420.0);
/// Colours that are distinguishable with colour vision deficiency.
pub(crate) const COLOURS: [&str; 7] = ["#cc3311", "#ee7733", "#0077bb", "#33bbee", "#aa3377", "#117733", "#333333"];

/// The curve as SVG. `flat` leaves out the lines of fork, whose scale would hide differences between the others.
pub(super) fn svg(curve: &Curve, flat: bool) -> String {
    let lines = || curve.lines.iter().filter(|line| !(line.points.is_empty() || flat && line.id.starts_with("fork ")));
    let points = || lines().flat_map(|line| &line.points);
    let (x_end, x_step) = scale(points().map(|point| point.0).fold(0.0, f64::max));
    let (y_end, y_step) = scale(points().map(|point| point.1).fold(0.0, f64::max));
    let (left, top, right, bottom) = AREA;
    let x_at = |x: f64| left + x / x_end * (right - left);
    let y_at = |y: f64| bottom - y / y_end * (bottom - top);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{left}\" y=\"24\" font-size=\"16\">{}</text>\n",
        SIZE.0,
        SIZE.1,
        escaped(&curve.title)
    );
    for n in 0..=(x_end / x_step).round() as u32 {
        let (value, x) = (f64::from(n) * x_step, x_at(f64::from(n) * x_step));
        let _ = writeln!(text, "<path d=\"M{x:.1} {bottom}V{top}\" stroke=\"#eeeeee\"/>");
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>", bottom + 16.0);
    }
    for n in 0..=(y_end / y_step).round() as u32 {
        let (value, y) = (f64::from(n) * y_step, y_at(f64::from(n) * y_step));
        let _ = writeln!(text, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#eeeeee\"/>");
        let _ = writeln!(text, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", left - 6.0, y + 4.0);
    }
    let _ = writeln!(text, "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>");
    let _ =
        writeln!(text, "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>", bottom + 36.0, escaped(&curve.x));
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        left - 6.0,
        top - 10.0,
        escaped(&curve.y)
    );
    for (n, line) in lines().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let path: Vec<_> = line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", x_at(*x), y_at(*y))).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        let y = top + 10.0 + n as f64 * 22.0;
        let (from, to) = (right + 16.0, right + 40.0);
        let _ = writeln!(text, "<path d=\"M{from} {y}H{to}\" stroke=\"{colour}\" stroke-width=\"3\"/>");
        let _ = writeln!(text, "<text x=\"{}\" y=\"{}\">{}</text>", to + 6.0, y + 4.0, escaped(&line.name));
    }
    text + "</svg>\n"
}

/// The end of a scale to `largest`, and the distance of its ticks: 1, 2 or 5 times a power of ten, ten ticks at most.
pub(crate) fn scale(largest: f64) -> (f64, f64) {
    let largest = if largest > 0.0 { largest } else { 1.0 };
    let power = 10f64.powf((largest / 10.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * power).find(|step| largest / step <= 10.0).unwrap_or(largest);
    ((largest / step).ceil() * step, step)
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::scale;

    #[test]
    fn scale_ends_at_a_tick() {
        assert_eq!(scale(1024.0), (1200.0, 200.0));
        assert_eq!(scale(100.0), (100.0, 10.0));
        assert_eq!(scale(0.0), (1.0, 0.1));
    }
}
