//! Draws a chart as SVG: lines over ticks. The page and the files use the same drawing.

use std::fmt::Write;

use super::{
    charts::{Chart, Line, Panel},
    looks::{Appearance, style},
    name::shown,
    units::{thousands, time},
};

/// The sizes of a drawing, in pixels.
struct Size {
    width: f64,
    height: f64,
    /// The font size; marks and lines are in proportion.
    font: f64,
    /// The space above the diagram, for labels of the y axis on its left, and for the names of the lines on its right.
    top: f64,
    left: f64,
    right: f64,
    has_values: bool,
}

/// A chart in a file.
const PICTURE: Size =
    Size { width: 1_160.0, height: 620.0, font: 17.0, top: 100.0, left: 90.0, right: 290.0, has_values: true };
/// A panel of the page, as wide as a phone, so that the text is readable there.
const PANEL: Size =
    Size { width: 360.0, height: 316.0, font: 10.0, top: 10.0, left: 46.0, right: 118.0, has_values: false };

/// The chart as an SVG file, with its finding and with the last value of each line.
pub(crate) fn file(chart: &Chart, dark: bool) -> String {
    let (panel, Size { width, height, font, .. }) = (&chart.panels[0], &PICTURE);
    let paper = if dark { "#16181B" } else { "#FFFFFE" };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui,'DejaVu Sans',sans-serif\" font-size=\"{font}\">\n<style>{}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{paper}\"/>\n\
         <text x=\"16\" y=\"36\" font-size=\"22\">{}</text>\n",
        style(dark),
        escape(&chart.finding)
    );
    text(&mut svg, ("faint", "start"), (16.0, 66.0), panel.title);
    draw(chart, panel, &[panel], &PICTURE, &mut svg);
    svg + "</svg>\n"
}

/// A panel as an SVG element of the page, with the scale of all panels of its chart that have its unit.
pub(crate) fn element(chart: &Chart, panel: &Panel) -> String {
    let Size { width, height, font, .. } = PANEL;
    let words = escape(&format!("{}. {}", chart.title, panel.title));
    let mut svg =
        format!("<svg role=\"img\" aria-label=\"{words}\" viewBox=\"0 0 {width} {height}\" font-size=\"{font}\">\n");
    let alike: Vec<&Panel> = chart.panels.iter().filter(|other| other.is_rate == panel.is_rate).collect();
    draw(chart, panel, &alike, &PANEL, &mut svg);
    svg + "</svg>"
}

/// A value of a panel: 38.0 µs, 15,345/s.
pub(crate) fn value_words(panel: &Panel, value: f64) -> String {
    if panel.is_rate { format!("{}/s", thousands(value.round() as u64)) } else { time(value) }
}

/// The axes, the lines with their values as tooltips, and their names. `alike`: the panels with the same scale.
fn draw(chart: &Chart, panel: &Panel, alike: &[&Panel], size: &Size, svg: &mut String) {
    let Size { font, left, .. } = *size;
    let (bottom, right) = (size.height - 3.6 * font, size.width - size.right);
    let all = alike.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points).map(|(_, value)| *value);
    let axis = Axis::new(all, panel.is_rate);
    let y = |value: f64| bottom - axis.part(value) * (bottom - size.top);
    for value in axis.labels() {
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{left} {:.1}H{right}\"/>", y(value));
        text(svg, ("faint", "end"), (left - 0.5 * font, y(value) + 0.35 * font), &axis.format_value(value));
    }
    // Some space at both ends, for half of a label.
    let inset = 0.06 * (right - left);
    let (first, last) = (chart.at[0], chart.at[chart.at.len() - 1]);
    let x = |tick: usize| left + inset + (chart.at[tick] - first) / (last - first) * (right - left - 2.0 * inset);
    for tick in labelled(chart, x, font) {
        text(svg, ("faint", "middle"), (x(tick), bottom + 1.4 * font), &chart.ticks[tick]);
    }
    text(svg, ("faint", "middle"), ((left + right) / 2.0, size.height - 0.8 * font), chart.title);
    for Line { look: Appearance { launcher, class, mark }, points } in &panel.lines {
        let at: Vec<String> = points.iter().map(|(tick, value)| format!("{:.1} {:.1}", x(*tick), y(*value))).collect();
        let width = if *class == "ours" { 0.2 } else { 0.12 } * font;
        let _ = writeln!(svg, "<polyline class=\"{class}\" stroke-width=\"{width:.1}\" points=\"{}\"/>", at.join(" "));
        let _ = writeln!(svg, "<g class=\"{class}\">");
        for ((tick, value), at) in points.iter().zip(at) {
            let words = format!("{}, {}: {}", shown(launcher), chart.ticks[*tick], value_words(panel, *value));
            let _ = write!(svg, "<path transform=\"translate({at})scale({})\" d=\"{mark}\">", font / 12.5);
            let _ = writeln!(svg, "<title>{}</title></path>", escape(&words));
        }
        *svg += "</g>\n";
    }
    names(panel, (x, y), size, svg);
}

/// The names of the methods on the right, each as near as possible to its last point, with a line to it. In a file also the value,
/// because an image in a page has no tooltips.
fn names(panel: &Panel, (x, y): (impl Fn(usize) -> f64, impl Fn(f64) -> f64), size: &Size, svg: &mut String) {
    let font = size.font;
    let mut ends: Vec<(&Appearance, usize, f64)> =
        panel.lines.iter().filter_map(|line| line.points.last().map(|end| (line.look, end.0, end.1))).collect();
    ends.sort_by(|a, b| b.2.total_cmp(&a.2));
    let wanted: Vec<f64> = ends.iter().map(|(.., value)| y(*value)).collect();
    let places = spread(&wanted, 1.3 * font, (size.top, size.height - font));
    let left = size.width - size.right;
    for ((Appearance { launcher, class, .. }, tick, value), at) in ends.into_iter().zip(places) {
        let (from, to) = (y(value), left + 1.2 * font);
        let path = format!("{:.1} {from:.1} {left} {from:.1} {to:.1} {at:.1}", x(tick));
        let _ = writeln!(svg, "<polyline class=\"lead {class}\" points=\"{path}\"/>");
        let value = if size.has_values { format!(" {}", value_words(panel, value)) } else { String::new() };
        let kind = if *class == "other" { "faint" } else { "" };
        text(svg, (kind, "start"), (to + 0.3 * font, at + 0.35 * font), &format!("{}{value}", shown(launcher)));
    }
}

fn text(svg: &mut String, (class, anchor): (&str, &str), (x, y): (f64, f64), words: &str) {
    let words = escape(words);
    let _ = writeln!(svg, "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}

/// Escapes text for elements and quoted attributes of HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The ticks that have a label: those that would overlap are left out, except for the last and the first one.
fn labelled(chart: &Chart, x: impl Fn(usize) -> f64, font: f64) -> Vec<usize> {
    // A letter is 0.56 of the font size wide.
    let half = |tick: usize| (chart.ticks[tick].chars().count() as f64 * 0.28 + 0.3) * font;
    let mut kept: Vec<usize> = Vec::new();
    let last = chart.ticks.len() - 1;
    for tick in [last].into_iter().chain(0..last) {
        if kept.iter().all(|other| (x(tick) - x(*other)).abs() >= half(tick) + half(*other)) {
            kept.push(tick);
        }
    }
    kept
}

/// The y axis: logarithmic for times, linear from zero for rates.
struct Axis {
    low: f64,
    high: f64,
    is_rate: bool,
}

impl Axis {
    /// With some space around the values.
    fn new(values: impl Iterator<Item = f64>, is_rate: bool) -> Self {
        let (low, high) =
            values.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        let (low, high) = if is_rate { (0.0, high * 1.1) } else { (low / 1.3, high * 1.3) };
        Self { low, high, is_rate }
    }

    /// The position of a value on the axis, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let (low, high) = (self.low, self.high);
        if self.is_rate { value / high } else { (value / low).ln() / (high / low).ln() }
    }

    /// Two to seven values with a label: at 1, 2 and 5 times powers of ten, or at fewer of them.
    fn labels(&self) -> Vec<f64> {
        let decades = self.low.max(1.0).log10().floor() as i32..=self.high.log10().ceil() as i32;
        if self.is_rate {
            let mut steps = decades.rev().flat_map(|ten| [5.0, 2.0, 1.0].map(|step| step * 10f64.powi(ten)));
            let step = steps.find(|step| self.high / step >= 3.0).unwrap_or(1.0);
            return (0..=(self.high / step) as u32).map(|count| f64::from(count) * step).collect();
        }
        let at = |every: usize, steps: &[f64]| -> Vec<f64> {
            let tens = decades.clone().step_by(every).map(|ten| 10f64.powi(ten));
            let values = tens.flat_map(|ten| steps.iter().map(move |step| step * ten));
            values.filter(|value| (self.low..=self.high).contains(value)).collect()
        };
        let all = [at(1, &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0]), at(1, &[1.0, 2.0, 5.0]), at(1, &[1.0]), at(2, &[1.0])];
        all.iter().find(|values| (2..=7).contains(&values.len())).unwrap_or(&all[1]).clone()
    }

    /// A label: 100 µs, 20 ms, 15,000.
    fn format_value(&self, value: f64) -> String {
        match value {
            _ if self.is_rate => thousands(value as u64),
            value if value >= 1e6 => format!("{} s", value / 1e6),
            value if value >= 1e3 => format!("{} ms", value / 1e3),
            value => format!("{value} µs"),
        }
    }
}

/// Moves ascending positions apart to at least `step`, within the given range as far as it has room.
fn spread(wanted: &[f64], step: f64, (first, last): (f64, f64)) -> Vec<f64> {
    let (mut down, mut up) = (wanted.to_vec(), wanted.to_vec());
    for index in 1..wanted.len() {
        down[index] = down[index].max(down[index - 1] + step);
        let above = wanted.len() - 1 - index;
        up[above] = up[above].min(up[above + 1] - step);
    }
    // Down and up alone would move the last or the first of a group by its whole height.
    let mut places: Vec<f64> = down.iter().zip(&up).map(|(down, up)| (down + up) / 2.0).collect();
    for (index, place) in places.iter_mut().enumerate() {
        let below = wanted.len() - 1 - index;
        *place = place.min(last - below as f64 * step).max(first + index as f64 * step);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::super::charts::{charts, tests::report};
    use super::*;

    fn numbers(svg: &str, before: &str) -> Vec<f64> {
        svg.split(before)
            .skip(1)
            .map(|rest| rest.split('"').next().expect("a quote").parse().expect("a number"))
            .collect()
    }

    #[test]
    fn file_has_the_finding_every_line_and_its_last_value() {
        let memory = &charts(&report())[0];
        let (light, dark) = (file(memory, false), file(memory, true));
        for text in [
            "104.1 ms with fork",
            "vfork baseline 80.0 µs",
            "fork 104.1 ms",
            "forkless-status 79.0 µs",
            "1 GiB",
            "10 ms",
        ] {
            assert!(light.contains(text) && dark.contains(text), "{text} is missing in {light}");
        }
        assert!(light.contains("#0072B2") && light.contains("#FFFFFE"), "{light}");
        assert!(dark.contains("#56B4E9") && dark.contains("#16181B"), "{dark}");
    }

    #[test]
    fn values_have_tooltips_and_lie_in_the_drawing() {
        for chart in charts(&report()) {
            for panel in &chart.panels {
                let svg = element(&chart, panel);
                let values: usize = panel.lines.iter().map(|line| line.points.len()).sum();
                assert_eq!(svg.matches("<title>").count(), values);
                assert_eq!(svg.matches("<polyline class=\"lead").count(), panel.lines.len(), "a line to each name");
                assert!(numbers(&svg, " x=\"").iter().all(|x| (0.0..PANEL.width).contains(x)), "{svg}");
                assert!(numbers(&svg, " y=\"").iter().all(|y| (0.0..PANEL.height).contains(y)), "{svg}");
            }
        }
    }

    #[test]
    fn axes_have_labels_also_within_a_decade() {
        let labels = |low, high, is_rate| Axis::new([low, high].into_iter(), is_rate).labels();
        assert_eq!(labels(260.0, 700.0, false), [200.0, 300.0, 400.0, 500.0, 700.0]);
        assert_eq!(labels(26.0, 700.0, false), [20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(labels(39.0, 20_000.0, false), [100.0, 1_000.0, 10_000.0]);
        assert_eq!(labels(900.0, 14_000.0, true), [0.0, 5_000.0, 10_000.0, 15_000.0]);
        let axis = Axis::new([39.0, 20_000.0].into_iter(), false);
        assert_eq!([100.0, 1_500.0, 2e6].map(|value| axis.format_value(value)), ["100 µs", "1.5 ms", "2 s"]);
        assert!(axis.part(39.0) > 0.0 && axis.part(20_000.0) < 1.0);
    }

    #[test]
    fn names_keep_their_distance_near_their_points() {
        assert_eq!(spread(&[10.0, 100.0, 200.0], 20.0, (0.0, 500.0)), [10.0, 100.0, 200.0]);
        assert_eq!(spread(&[100.0, 100.0, 100.0], 20.0, (0.0, 500.0)), [80.0, 100.0, 120.0]);
        assert_eq!(spread(&[490.0, 495.0], 20.0, (0.0, 500.0)), [480.0, 500.0]);
        assert_eq!(spread(&[5.0, 6.0, 7.0], 20.0, (10.0, 500.0)), [10.0, 30.0, 50.0]);
    }
}
