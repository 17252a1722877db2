//! Draws charts with the same code as files (PNG, SVG) and as panels of the page.

use std::{fs, sync::Once};

use anyhow::{Result, anyhow};
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
    },
    prelude::*,
    style::{
        FontStyle, register_font,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::charts::{Body, Chart, Line, Panel, Point, Unit};

pub(crate) const FONT: &str = "sans-serif";

/// Sizes, in pixels.
struct Layout {
    size: (u32, u32),
    /// Font size of the title; 0: the page prints the title.
    title: u32,
    /// Font size of axes and labels.
    font: u32,
    /// Space for the names of the lines, right of the diagram.
    names: u32,
    /// Space for the labels of the y axis.
    values: u32,
    /// Minimum distance between two labels.
    step: i32,
    /// Line width for methods of forkless; others are thinner.
    stroke: u32,
    /// Radius of the marks.
    mark: i32,
    margin: u32,
}

/// A chart in a file.
const PICTURE: Layout = Layout {
    size: (1_160, 620),
    title: 26,
    font: 17,
    names: 270,
    values: 78,
    step: 22,
    stroke: 4,
    mark: 5,
    margin: 16,
};

/// A panel of the page, as wide as a phone, so that the text is readable there.
const PANEL: Layout =
    Layout { size: (360, 316), title: 0, font: 12, names: 118, values: 46, step: 14, stroke: 2, mark: 3, margin: 4 };

/// Space for the name left of a dot (per letter) and for the value right of it, relative to the font size.
const DOT_LETTER: f64 = 0.59;
const DOT_VALUE: f64 = 5.2;
/// Height of the line of a dot, relative to the font size.
const DOT_LINE: f64 = 1.45;

/// The appearance of a line. Marks and lightness also distinguish lines for people with colour vision deficiency.
pub(crate) struct Look {
    launcher: &'static str,
    pub(crate) light: RGBColor,
    /// Colour on a dark page.
    dark: &'static str,
    mark: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Circle,
    Square,
    Diamond,
    Triangle,
    Cross,
}

const fn look(launcher: &'static str, light: (u8, u8, u8), dark: &'static str, mark: Mark) -> Look {
    Look { launcher, light: RGBColor(light.0, light.1, light.2), dark, mark }
}

/// Launchers with a line in the charts. Methods of forkless are blue. Their prepared forms are only in the tables: their lines would
/// cover the others.
static LOOKS: [Look; 19] = [
    look("fork", (190, 45, 10), "#ff8f66", Mark::Square),
    look("posix_spawn", (150, 85, 0), "#f0b04a", Mark::Diamond),
    look("system", (104, 104, 104), "#a6a6a6", Mark::Cross),
    look("std", (122, 60, 160), "#cfa2f2", Mark::Square),
    look("go", (0, 118, 108), "#4fd0c0", Mark::Triangle),
    look("cpython", (128, 110, 0), "#dccb4c", Mark::Triangle),
    look("java", (156, 64, 64), "#f2a0a0", Mark::Cross),
    look("node-spawn", (70, 118, 36), "#a5d66f", Mark::Diamond),
    look("glib", (92, 92, 148), "#bdbdf0", Mark::Triangle),
    look("perl-system", (122, 108, 80), "#c8b78e", Mark::Square),
    look("libuv", (176, 46, 124), "#ff8ac4", Mark::Diamond),
    look("wait-any", (190, 46, 12), "#ff8e64", Mark::Square),
    look("forkless-spawn", (60, 110, 190), "#86b6f5", Mark::Circle),
    look("forkless-launch", (20, 120, 160), "#5fcbee", Mark::Circle),
    // A removed launcher, for older records.
    look("forkless-pool", (70, 90, 150), "#a9b8f0", Mark::Circle),
    look("forkless-wait-set", (10, 75, 158), "#5aa0ff", Mark::Circle),
    look("forkless-status", (10, 75, 160), "#5aa2ff", Mark::Circle),
    // Last, so that these thin lines are drawn on top of thick ones.
    look("floor", (30, 30, 30), "#f2f2f2", Mark::Circle),
    look("epoll", (32, 32, 32), "#f0f0f0", Mark::Circle),
];

/// The appearance of other launchers, in charts with dots.
const OTHER: (RGBColor, &str) = (RGBColor(130, 84, 40), "#d9a877");
const OURS: (RGBColor, &str) = (RGBColor(10, 76, 162), "#5ca4ff");
const BOUND: (RGBColor, &str) = (RGBColor(31, 31, 31), "#f1f1f1");
/// Colours of the grid and of the axis labels.
pub(crate) const GRID: (RGBColor, &str) = (RGBColor(221, 221, 219), "#3a3d42");
pub(crate) const AXIS: (RGBColor, &str) = (RGBColor(92, 92, 90), "#a9adb3");
pub(crate) const PAPER: (RGBColor, &str) = (RGBColor(255, 255, 254), "none");

/// The launchers that have a line, in the order in which they are drawn.
pub(crate) fn drawn() -> impl Iterator<Item = &'static str> {
    LOOKS.iter().map(|look| look.launcher)
}

/// The appearance of a launcher's line.
pub(crate) fn look_of(launcher: &str) -> Option<&'static Look> {
    LOOKS.iter().find(|look| look.launcher == launcher)
}

/// CSS rules that change the colours of a drawing on a dark page and remove its background.
pub(crate) fn dark_style() -> String {
    let looks = LOOKS.iter().map(|look| (look.light, look.dark));
    let rule = |(light, dark): (RGBColor, &str)| {
        let name = hex(light);
        format!("svg [fill=\"{name}\"]{{fill:{dark}}}svg [stroke=\"{name}\"]{{stroke:{dark}}}")
    };
    looks.chain([OTHER, OURS, BOUND, GRID, AXIS, PAPER]).map(rule).collect()
}

pub(crate) fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// Is it a baseline? Its line is thin.
pub(crate) fn is_bound(launcher: &str) -> bool {
    ["floor", "epoll"].contains(&launcher)
}

fn is_ours(launcher: &str) -> bool {
    launcher.starts_with("forkless")
}

/// The colour of a kind.
fn kind(launcher: &str) -> RGBColor {
    match launcher {
        name if is_bound(name) => BOUND.0,
        name if is_ours(name) => OURS.0,
        _ => OTHER.0,
    }
}

/// The position of a value, for the tooltip.
pub(crate) struct Spot {
    pub(crate) at: (i32, i32),
    pub(crate) colour: String,
    pub(crate) words: String,
}

impl Chart {
    /// The chart as the text of an SVG file.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(crate) fn svg(&self) -> Result<String> {
        let mut text = String::new();
        let size = PICTURE.size_of(self.picture());
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        self.picture().alone().draw(&area, &PICTURE, self.title)?;
        drop(area);
        Ok(text)
    }

    /// The chart as a PNG file.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(crate) fn png(&self) -> Result<Vec<u8>> {
        // plotters can draw a PNG only to a file, so use a private temporary directory.
        let place = tempfile::tempdir()?;
        let path = place.path().join("chart.png");
        let size = PICTURE.size_of(self.picture());
        self.picture().alone().draw(&BitMapBackend::new(&path, size).into_drawing_area(), &PICTURE, self.title)?;
        Ok(fs::read(path)?)
    }
}

impl Layout {
    /// The height of charts with dots depends on their number.
    fn size_of(&self, panel: &Panel) -> (u32, u32) {
        match &panel.body {
            Body::Lines { .. } => self.size,
            Body::Dots(points) => {
                let rows = points.len() as f64 * DOT_LINE * f64::from(self.font);
                (self.size.0, rows as u32 + self.title * 2 + self.font * 3 + 2 * self.margin)
            }
        }
    }
}

impl Panel {
    /// The panel for the page: an SVG element, and the positions of the values.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(crate) fn svg(&self) -> Result<(String, Vec<Spot>)> {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, PANEL.size_of(self)).into_drawing_area();
        let spots = self.draw(&area, &PANEL, "")?;
        drop(area);
        Ok((text, spots))
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, layout: &Layout, title: &str) -> Result<Vec<Spot>> {
        register_fonts();
        let words = |error: DrawingAreaErrorKind<B::ErrorType>| anyhow!("cannot draw {}: {error}", self.title);
        area.fill(&PAPER.0).map_err(words)?;
        let title = if layout.title > 0 { format!("{title}. {}", self.title) } else { String::new() };
        let (low, high) = self.span;
        let spots = match (&self.body, self.unit) {
            (Body::Lines { ticks, lines }, Unit::Time) => {
                let y = (low / 1.5..high * 1.5).log_scale();
                Lines { panel: self, layout, ticks, lines, title }.draw(area, y)
            }
            (Body::Lines { ticks, lines }, Unit::Rate) => {
                Lines { panel: self, layout, ticks, lines, title }.draw(area, 0.0..high * 1.1)
            }
            (Body::Dots(points), Unit::Time) => {
                Dots { panel: self, layout, points, title }.draw(area, (low / 1.3..high * 1.15).log_scale())
            }
            (Body::Dots(points), Unit::Rate) => {
                Dots { panel: self, layout, points, title }.draw(area, 0.0..high * 1.05)
            }
        };
        let spots = spots.map_err(words)?;
        area.present().map_err(words)?;
        Ok(spots)
    }
}

type Drawn<B> = Result<Vec<Spot>, DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// A diagram of lines that is being drawn.
struct Lines<'a> {
    panel: &'a Panel,
    layout: &'a Layout,
    ticks: &'a [String],
    lines: &'a [Line],
    title: String,
}

impl Lines<'_> {
    fn draw<B, Y>(&self, area: &DrawingArea<B, Shift>, y: Y) -> Drawn<B>
    where
        B: DrawingBackend,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let layout = self.layout;
        let mut builder = ChartBuilder::on(area);
        if layout.title > 0 {
            builder.caption(&self.title, (FONT, layout.title).into_font().color(&BOUND.0));
        }
        let mut chart = builder
            .margin(layout.margin)
            .margin_top(layout.margin + layout.font / 2)
            .margin_right(layout.names)
            .x_label_area_size(layout.font * 3 + layout.font / 2)
            .y_label_area_size(layout.values)
            .build_cartesian_2d(Positions(self.ticks), y)?;
        let words = (FONT, layout.font).into_font().color(&AXIS.0);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(GRID.0)
            .y_labels(if layout.title > 0 { 8 } else { 6 })
            .bold_line_style(GRID.0)
            .axis_desc_style(words.clone())
            .label_style(words)
            .x_desc(self.panel.x_title)
            .x_labels(self.ticks.len() * 4)
            .y_label_formatter(&|value| self.panel.unit.tick(*value))
            .draw()?;
        let (mut labels, mut spots) = (Vec::new(), Vec::new());
        for line in self.lines {
            let Some(look) = look_of(line.launcher) else { continue };
            let width = if is_ours(line.launcher) { layout.stroke } else { layout.stroke.div_ceil(2) };
            let style = ShapeStyle::from(&look.light).stroke_width(width);
            let at: Vec<(f64, f64)> = line.points.iter().map(|point| (point.tick as f64, point.value)).collect();
            chart.draw_series([PathElement::new(at.clone(), style)])?;
            for (at, point) in at.iter().zip(&line.points) {
                let at = chart.backend_coord(at);
                draw_mark(area, at, layout.mark, look)?;
                spots.push(Spot { at, colour: hex(look.light), words: point.words.clone() });
            }
            if let Some(end) = spots.last() {
                let value = line.points.last().map_or(0.0, |point| point.value);
                let value =
                    if layout.title > 0 { format!("  {}", self.panel.unit.short(value)) } else { String::new() };
                labels.push(Label { text: format!("{}{value}", line.launcher), colour: look.light, end: end.at });
            }
        }
        self.name(area, labels)?;
        Ok(spots)
    }

    /// Writes the names of the lines at the right, each as close as possible to its last point, connected by a thin line.
    fn name<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        mut labels: Vec<Label>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let layout = self.layout;
        labels.sort_by_key(|label| label.end.1);
        let wanted: Vec<i32> = labels.iter().map(|label| label.end.1).collect();
        let (highest, lowest) = ((layout.font / 2 + layout.title * 2) as i32, (layout.size.1 - layout.font) as i32);
        // The same position for all, also for lines that end earlier.
        let right = (layout.size.0 - layout.names) as i32;
        let unit = layout.font as i32;
        for (label, y) in labels.iter().zip(spread(&wanted, layout.step, (highest, lowest))) {
            let (x, from_y) = label.end;
            let left = right + unit * 5 / 4;
            let thin = ShapeStyle::from(&label.colour.mix(0.6)).stroke_width(1);
            let path = [(x + layout.mark + 1, from_y), (right + unit / 3, from_y), (left - 3, y)];
            area.draw(&PathElement::new(path, thin))?;
            let style = (FONT, layout.font).into_text_style(area).color(&label.colour);
            area.draw_text(&label.text, &style.pos(Pos::new(HPos::Left, VPos::Center)), (left, y))?;
        }
        Ok(())
    }
}

pub(crate) fn draw_mark<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    (x, y): (i32, i32),
    size: i32,
    look: &Look,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let full = look.light.filled();
    match look.mark {
        Mark::Circle => area.draw(&Circle::new((x, y), size, full)),
        Mark::Square => area.draw(&Rectangle::new([(x - size, y - size), (x + size, y + size)], full)),
        Mark::Diamond => {
            let far = size + 1;
            area.draw(&Polygon::new([(x - far, y), (x, y - far), (x + far, y), (x, y + far)], full))
        }
        Mark::Triangle => area.draw(&TriangleMarker::new((x, y), size + 2, full)),
        Mark::Cross => area.draw(&Cross::new((x, y), size, ShapeStyle::from(&look.light).stroke_width(2))),
    }
}

/// A diagram of dots that is being drawn.
struct Dots<'a> {
    panel: &'a Panel,
    layout: &'a Layout,
    points: &'a [Point],
    title: String,
}

impl Dots<'_> {
    fn draw<B, X>(&self, area: &DrawingArea<B, Shift>, x: X) -> Drawn<B>
    where
        B: DrawingBackend,
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
    {
        let layout = self.layout;
        let font = f64::from(layout.font);
        let mut builder = ChartBuilder::on(area);
        if layout.title > 0 {
            builder.caption(&self.title, (FONT, layout.title).into_font().color(&BOUND.0));
        }
        let longest = self.points.iter().map(|point| point.launcher.len()).max().unwrap_or(0);
        let names = (DOT_LETTER * font * longest as f64) as u32 + layout.font / 2;
        let mut chart = builder
            .margin(layout.margin)
            .margin_right((DOT_VALUE * font) as u32)
            .x_label_area_size(layout.font * 2)
            .margin_left(names + layout.font / 2)
            .build_cartesian_2d(x, 0.0..self.points.len() as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(GRID.0)
            .bold_line_style(GRID.0)
            .label_style((FONT, layout.font).into_font().color(&AXIS.0))
            .x_labels(4)
            .x_label_formatter(&|value| {
                if self.is_room_for(*value) { self.panel.unit.tick(*value) } else { String::new() }
            })
            .draw()?;
        let right = layout.size.0 as i32 - layout.margin as i32;
        let (_, high) = self.panel.span;
        let mut spots = Vec::new();
        for (index, point) in self.points.iter().enumerate() {
            let row = (self.points.len() - index) as f64 - 0.5;
            let at = chart.backend_coord(&(point.value.min(high), row));
            let colour = kind(point.launcher);
            if let Some(tail) = point.tail {
                let (end, reach) = (chart.backend_coord(&(tail, row)), layout.mark + 1);
                area.draw(&PathElement::new([at, end], colour.mix(0.7)))?;
                area.draw(&PathElement::new([(end.0, end.1 - reach), (end.0, end.1 + reach)], colour))?;
            }
            let size = if is_bound(point.launcher) { layout.mark } else { layout.mark + 1 };
            area.draw(&Circle::new(at, size, colour.filled()))?;
            let style = (FONT, layout.font).into_text_style(area).color(&colour);
            let place = |side| style.clone().pos(Pos::new(side, VPos::Center));
            area.draw_text(point.launcher, &place(HPos::Right), (names as i32 - layout.mark * 2, at.1))?;
            area.draw_text(&self.panel.unit.short(point.value), &place(HPos::Right), (right, at.1))?;
            spots.push(Spot { at, colour: hex(colour), words: point.words.clone() });
        }
        Ok(spots)
    }
}

impl Dots<'_> {
    /// With more than four powers of ten, every other label is omitted.
    fn is_room_for(&self, value: f64) -> bool {
        let (low, high) = self.panel.span;
        self.panel.unit == Unit::Rate || high / low < 3e3 || (value.log10().round() as i32).rem_euclid(2) == 1
    }
}

/// An x axis with evenly spaced labels: the values of a sweep start at 0 and span powers of ten, which suits neither a linear nor a
/// logarithmic axis.
struct Positions<'a>(&'a [String]);

impl Positions<'_> {
    fn last(&self) -> f64 {
        self.0.len().saturating_sub(1) as f64
    }
}

impl Ranged for Positions<'_> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let range = self.range();
        let part = (value - range.start) / (range.end - range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        (0..self.0.len()).map(|position| position as f64).collect()
    }

    /// A tenth of the width as left margin, and space at the right for half of the last label.
    fn range(&self) -> std::ops::Range<f64> {
        -0.1 * self.last().max(1.0)..self.last() * 1.08
    }
}

impl ValueFormatter<f64> for Positions<'_> {
    fn format_ext(&self, value: &f64) -> String {
        self.0.get(value.round() as usize).cloned().unwrap_or_default()
    }
}

/// The name of a line and its last value, beside the last point.
struct Label {
    text: String,
    colour: RGBColor,
    /// The end of the line, in pixels.
    end: (i32, i32),
}

/// Moves ascending positions apart to at least `step`, within the given range.
fn spread(wanted: &[i32], step: i32, (highest, lowest): (i32, i32)) -> Vec<i32> {
    let first_of = |group: &[i32]| first_of(group, step, (highest, lowest));
    let mut placed: Vec<i32> = Vec::with_capacity(wanted.len());
    // Centre each group of touching labels on the mean of their wanted positions, so that none is moved far.
    let mut groups: Vec<Vec<i32>> = Vec::new();
    for &y in wanted {
        groups.push(vec![y]);
        while groups.len() > 1 {
            let upper = &groups[groups.len() - 2];
            let lower = &groups[groups.len() - 1];
            if first_of(upper) + upper.len() as i32 * step <= first_of(lower) {
                break;
            }
            let lower = groups.pop().unwrap_or_default();
            if let Some(upper) = groups.last_mut() {
                upper.extend(lower);
            }
        }
    }
    for group in &groups {
        let first = first_of(group);
        placed.extend((0..group.len() as i32).map(|index| first + index * step));
    }
    placed
}

/// The position of the first label of a group. A group that does not fit starts at the top.
fn first_of(group: &[i32], step: i32, (highest, lowest): (i32, i32)) -> i32 {
    let count = group.len() as i32;
    let mean = group.iter().sum::<i32>() / count;
    let extent = (count - 1) * step;
    (mean - extent / 2).min(lowest - extent).max(highest)
}

/// The bitmap backend uses an embedded font, because a minimal machine has none. An SVG uses the viewer's font; the embedded one only
/// serves to measure text.
pub(crate) fn register_fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let font = dejavu::sans::regular();
        // Cannot fail: the font is a constant that the test below uses.
        let _ = register_font(FONT, FontStyle::Normal, font);
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::charts::charts;
    use super::super::condition::Condition;
    use super::super::machine::Machine;
    use super::super::record::Report;
    use super::super::record::tests::row;
    use super::*;

    fn drawings() -> Vec<Chart> {
        let mut rows = Vec::new();
        for (parent_mib, fork) in [(0, 240.0), (100, 10_000.0), (1024, 104_000.0)] {
            let condition = Condition { parent_mib, ..Condition::SMALL };
            rows.push(row("floor", condition, 40.0, 80.0));
            rows.push(row("fork", condition, fork, fork + 60.0));
            rows.push(row("forkless-status", condition, 79.0, 79.0));
        }
        charts(&Report::new(Machine::read(), rows, Vec::new()))
    }

    #[test]
    fn chart_file_names_every_line_and_its_last_value() {
        let memory = &drawings()[1];
        let svg = memory.svg().expect("svg");
        for text in ["floor  80.0", "fork  104.1 ms", "forkless-status  79.0", "1 GiB", "100 MiB", "Total, median"] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        assert!(memory.png().expect("png").starts_with(b"\x89PNG"));
    }

    #[test]
    fn panel_has_the_positions_of_its_values() {
        for chart in drawings() {
            for panel in &chart.panels {
                let (svg, spots) = panel.svg().expect("svg");
                let values = if chart.name == "small" { 3 } else { 9 };
                assert_eq!(spots.len(), values);
                let (width, height) = PANEL.size_of(panel);
                for Spot { at: (x, y), colour, words } in spots {
                    assert!(x > 0 && y > 0 && x < width as i32 && y < height as i32, "{words}");
                    assert!(svg.contains(&format!("fill=\"{colour}\"")), "{words}");
                }
            }
        }
    }

    #[test]
    fn every_colour_is_unique_and_has_a_dark_variant() {
        let kinds = [OTHER, OURS, BOUND, GRID, AXIS, PAPER].map(|(light, _)| hex(light));
        let all: Vec<String> = LOOKS.iter().map(|look| hex(look.light)).chain(kinds).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "tooltips identify lines by their colours");
        let style = dark_style();
        assert!(all.iter().all(|colour| style.contains(&format!("[stroke=\"{colour}\"]"))));
    }

    #[test]
    fn labels_keep_the_minimum_distance() {
        assert_eq!(spread(&[10, 100, 200], 20, (0, 500)), [10, 100, 200]);
        assert_eq!(spread(&[100, 100, 100], 20, (0, 500)), [80, 100, 120]);
        assert_eq!(spread(&[490, 495], 20, (0, 500)), [480, 500]);
        assert_eq!(spread(&[5, 6, 7], 20, (10, 500)), [10, 30, 50], "below the title");
        let crowded = spread(&[10, 300, 305, 310, 318, 322], 20, (0, 500));
        assert!(crowded.windows(2).all(|pair| pair[1] - pair[0] >= 20), "{crowded:?}");
    }
}
