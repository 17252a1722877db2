//! Draws charts with the same code as files (PNG, SVG) and as panels of the page.

use std::{fs, sync::Once};

use anyhow::{Result, anyhow};
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    prelude::*,
    style::{
        FontStyle, register_font,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    axes::{Decades, Positions, spread},
    charts::{Body, Chart, DotRow, Line, Panel, Unit},
    name::shown,
};

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
    /// Colours for a dark page.
    dark: bool,
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
    dark: false,
};

/// A panel of the page, as wide as a phone, so that the text is readable there.
const PANEL: Layout = Layout {
    size: (360, 316),
    title: 0,
    font: 12,
    names: 118,
    values: 46,
    step: 14,
    stroke: 2,
    mark: 3,
    margin: 4,
    dark: false,
};

/// Space for the name left of a dot (per letter) and for the value right of it, relative to the font size.
pub(crate) const DOT_LETTER: f64 = 0.59;
const DOT_VALUE: f64 = 5.6;
/// Height of the line of a dot, relative to the font size.
const DOT_LINE: f64 = 1.45;

/// The appearance of a line. The test below checks that the colours differ for people with colour vision deficiency.
pub(crate) struct Look {
    launcher: &'static str,
    pub(crate) light: RGBColor,
    pair: Pair,
    mark: Mark,
}

impl Look {
    /// Does the line belong to the context, without a name beside it?
    pub(crate) fn is_grey(&self) -> bool {
        self.pair.1 == OTHER.1
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Circle,
    Square,
    Diamond,
    Triangle,
    Cross,
}

/// One hue for methods of forkless: lines of one hue differ by their marks and labels.
pub(crate) const OURS: Pair = Pair((21, 96, 216), (90, 162, 255));
/// The two methods of libc that most programs use.
pub(crate) const FORK: Pair = Pair((166, 42, 0), (232, 96, 44));
pub(crate) const SPAWN: Pair = Pair((185, 130, 0), (240, 192, 48));
/// The context: all other methods.
pub(crate) const OTHER: Pair = Pair((164, 164, 162), (106, 111, 118));
/// The vfork baseline, titles and the names of lines.
pub(crate) const INK: Pair = Pair((30, 30, 30), (242, 242, 242));
/// Grid, axis labels, and the names of methods that are not coloured.
pub(crate) const GRID: Pair = Pair((221, 221, 219), (58, 61, 66));
pub(crate) const AXIS: Pair = Pair((92, 92, 90), (169, 173, 179));
pub(crate) const PAPER: Pair = Pair((255, 255, 254), (22, 24, 27));

/// A colour on a light and on a dark page.
#[derive(Clone, Copy)]
pub(crate) struct Pair((u8, u8, u8), (u8, u8, u8));

impl Pair {
    pub(crate) const fn light(self) -> RGBColor {
        let Self((red, green, blue), _) = self;
        RGBColor(red, green, blue)
    }

    pub(crate) const fn dark(self) -> RGBColor {
        let Self(_, (red, green, blue)) = self;
        RGBColor(red, green, blue)
    }

    /// The same to the eye, but not equal: tooltips find a line by its colour.
    const fn variant(self, number: u8) -> Self {
        let Self((red, green, blue), dark) = self;
        Self((red, green, blue ^ number), dark)
    }
}

const fn look(launcher: &'static str, pair: Pair, mark: Mark) -> Look {
    Look { launcher, light: pair.light(), pair, mark }
}

/// Launchers with a line in the charts, in the order in which they are drawn: the context first, the baseline on top. At most
/// five are coloured. The prepared forms of forkless are only in the tables: their lines would cover the others.
static LOOKS: [Look; 19] = [
    look("system", OTHER.variant(1), Mark::Cross),
    look("std", OTHER.variant(2), Mark::Square),
    look("go", OTHER.variant(3), Mark::Triangle),
    look("cpython", OTHER.variant(4), Mark::Triangle),
    look("java", OTHER.variant(5), Mark::Cross),
    look("node-spawn", OTHER.variant(6), Mark::Diamond),
    look("glib", OTHER.variant(7), Mark::Triangle),
    look("perl-system", OTHER.variant(8), Mark::Square),
    look("libuv", OTHER.variant(9), Mark::Diamond),
    // A removed launcher, for older records.
    look("forkless-pool", OTHER.variant(10), Mark::Circle),
    look("wait-any", FORK.variant(1), Mark::Square),
    look("fork", FORK, Mark::Square),
    look("posix_spawn", SPAWN, Mark::Diamond),
    look("forkless-spawn", OURS.variant(1), Mark::Triangle),
    look("forkless-launch", OURS.variant(2), Mark::Diamond),
    look("forkless-wait-set", OURS.variant(3), Mark::Circle),
    look("forkless-status", OURS, Mark::Circle),
    look("floor", INK, Mark::Circle),
    look("epoll", INK.variant(1), Mark::Circle),
];

/// The launchers that have a line, in the order in which they are drawn.
pub(crate) fn drawn() -> impl Iterator<Item = &'static str> {
    LOOKS.iter().map(|look| look.launcher)
}

/// The appearance of a launcher's line.
pub(crate) fn look_of(launcher: &str) -> Option<&'static Look> {
    LOOKS.iter().find(|look| look.launcher == launcher)
}

/// All colours.
fn pairs() -> impl Iterator<Item = Pair> {
    LOOKS.iter().map(|look| look.pair).chain([OTHER, GRID, AXIS, PAPER])
}

/// CSS rules that change the colours of a drawing on a dark page and remove its background.
pub(crate) fn dark_style() -> String {
    let rule = |pair: Pair| {
        let (name, dark) = (hex(pair.light()), hex(pair.dark()));
        let dark = if pair.1 == PAPER.1 { "none" } else { &dark };
        format!("svg [fill=\"{name}\"]{{fill:{dark}}}svg [stroke=\"{name}\"]{{stroke:{dark}}}")
    };
    pairs().map(rule).collect()
}

/// The colour that a drawing uses in place of a light one.
fn shade(light: RGBColor, dark: bool) -> RGBColor {
    let other = || pairs().find(|pair| pair.light() == light).map(Pair::dark);
    if dark { other().unwrap_or(light) } else { light }
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

/// The colours of a dot and of its name.
fn kind(launcher: &str) -> (RGBColor, RGBColor) {
    let named = |look: &Look| (look.pair.light(), INK.light());
    match look_of(launcher).filter(|look| !look.is_grey()) {
        Some(look) => named(look),
        None if is_ours(launcher) => (OURS.light(), INK.light()),
        None => (OTHER.light(), AXIS.light()),
    }
}

/// The position of a value, for the tooltip.
pub(crate) struct Spot {
    pub(crate) at: (i32, i32),
    pub(crate) colour: String,
    pub(crate) words: String,
}

impl Chart {
    /// The chart as the text of an SVG file, for a light or a dark page.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(crate) fn svg(&self, dark: bool) -> Result<String> {
        let mut text = String::new();
        let layout = Layout { dark, ..PICTURE };
        let area = SVGBackend::with_string(&mut text, layout.size_of(self.picture())).into_drawing_area();
        self.picture().alone().draw(&area, &layout, &self.finding)?;
        drop(area);
        Ok(text)
    }

    /// The chart as a PNG file.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(crate) fn png(&self, dark: bool) -> Result<Vec<u8>> {
        // plotters can draw a PNG only to a file, so use a private temporary directory.
        let place = tempfile::tempdir()?;
        let path = place.path().join("chart.png");
        let layout = Layout { dark, ..PICTURE };
        let area = BitMapBackend::new(&path, layout.size_of(self.picture())).into_drawing_area();
        self.picture().alone().draw(&area, &layout, &self.finding)?;
        drop(area);
        Ok(fs::read(&path)?)
    }
}

impl Layout {
    /// Space for the title and the line below it.
    fn head(&self) -> u32 {
        if self.title == 0 { self.margin } else { self.margin + self.title * 3 / 2 + self.font * 3 }
    }

    /// The colour on this page.
    fn ink(&self, light: RGBColor) -> RGBColor {
        shade(light, self.dark)
    }

    /// The height of charts with dots depends on their number.
    fn size_of(&self, panel: &Panel) -> (u32, u32) {
        match &panel.body {
            Body::Lines { .. } => self.size,
            Body::Dots(rows) => {
                let rows = rows.len() as f64 * DOT_LINE * f64::from(self.font);
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
        area.fill(&layout.ink(PAPER.light())).map_err(words)?;
        if layout.title > 0 {
            // The finding, and below it what is drawn.
            let style = |size| (FONT, size).into_text_style(area);
            let place = (layout.margin as i32, layout.margin as i32);
            area.draw_text(title, &style(layout.title).color(&layout.ink(INK.light())), place).map_err(words)?;
            let below = (place.0, place.1 + layout.title as i32 * 3 / 2);
            area.draw_text(&self.title, &style(layout.font).color(&layout.ink(AXIS.light())), below).map_err(words)?;
        }
        let (low, high) = self.span;
        let spots = match (&self.body, self.unit) {
            (Body::Lines { ticks, at, lines }, Unit::Time) => {
                Lines { panel: self, layout, ticks, at, lines }.draw(area, Decades::new(low / 1.3, high * 1.5))
            }
            (Body::Lines { ticks, at, lines }, Unit::Rate) => {
                Lines { panel: self, layout, ticks, at, lines }.draw(area, 0.0..high * 1.1)
            }
            (Body::Dots(rows), Unit::Time) => {
                Dots { panel: self, layout, rows }.draw(area, Decades::new(low / 1.3, high * 1.15))
            }
            (Body::Dots(rows), Unit::Rate) => Dots { panel: self, layout, rows }.draw(area, 0.0..high * 1.05),
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
    /// The position of each tick.
    at: &'a [f64],
    lines: &'a [Line],
}

impl Lines<'_> {
    fn draw<B, Y>(&self, area: &DrawingArea<B, Shift>, y: Y) -> Drawn<B>
    where
        B: DrawingBackend,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let layout = self.layout;
        let wide = (layout.size.0 - layout.names - layout.values) / layout.font;
        let mut chart = ChartBuilder::on(area)
            .margin(layout.margin)
            .margin_top(layout.head() + layout.font / 2)
            .margin_right(layout.names)
            .x_label_area_size(layout.font * 3 + layout.font / 2)
            .y_label_area_size(layout.values)
            .build_cartesian_2d(Positions::new(self.ticks, self.at, f64::from(wide)), y)?;
        let grid = layout.ink(GRID.light());
        let words = (FONT, layout.font).into_font().color(&layout.ink(AXIS.light()));
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(grid)
            .y_labels(if layout.title > 0 { 8 } else { 6 })
            .bold_line_style(grid)
            .axis_desc_style(words.clone())
            .label_style(words)
            .x_desc(self.panel.x_title)
            .x_labels(self.ticks.len() * 4)
            .y_label_formatter(&|value| self.panel.unit.tick(*value))
            .draw()?;
        let (mut labels, mut spots) = (Vec::new(), Vec::new());
        for line in self.lines {
            let Some(look) = look_of(line.launcher) else { continue };
            let width =
                if is_ours(line.launcher) && !look.is_grey() { layout.stroke } else { layout.stroke.div_ceil(2) };
            let colour = layout.ink(look.light);
            let style = ShapeStyle::from(&colour).stroke_width(width);
            let at: Vec<(f64, f64)> = line.points.iter().map(|point| (self.at[point.tick], point.value)).collect();
            chart.draw_series([PathElement::new(at.clone(), style)])?;
            for (at, point) in at.iter().zip(&line.points) {
                let at = chart.backend_coord(at);
                if !look.is_grey() {
                    draw_mark(area, at, layout.mark, (look, colour))?;
                }
                spots.push(Spot { at, colour: hex(look.light), words: point.words.clone() });
            }
            if let Some(end) = spots.last().filter(|_| !look.is_grey()) {
                let value = line.points.last().map_or(0.0, |point| point.value);
                let value =
                    if layout.title > 0 { format!("  {}", self.panel.unit.short(value)) } else { String::new() };
                let is_early = line.points.last().is_some_and(|point| point.tick + 1 < self.ticks.len());
                labels.push(Label { text: format!("{}{value}", shown(line.launcher)), colour, end: end.at, is_early });
            }
        }
        if layout.title > 0 {
            self.context(area)?;
        }
        self.name(area, labels)?;
        Ok(spots)
    }

    /// Names the grey lines of a file, which has no tooltips.
    fn context<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let (layout, names) = (self.layout, grey_names(self.lines));
        if names.is_empty() {
            return Ok(());
        }
        let colour = layout.ink(AXIS.light());
        let style = (FONT, layout.font * 9 / 10).into_text_style(area).color(&colour);
        let place = (layout.margin as i32, (layout.margin + layout.title * 3 / 2 + layout.font * 3 / 2) as i32);
        area.draw_text(&format!("grey: {}", names.join(", ")), &style, place)
    }

    /// Writes the names of the lines at the right, each as close as possible to its last point, connected by a thin line.
    fn name<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        labels: Vec<Label>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let layout = self.layout;
        let (early, mut labels): (Vec<_>, Vec<_>) = labels.into_iter().partition(|label| label.is_early);
        for label in early {
            let ink = layout.ink(INK.light());
            let style = (FONT, layout.font).into_text_style(area).color(&ink).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw_text(&label.text, &style, (label.end.0 + layout.mark * 2, label.end.1))?;
        }
        labels.sort_by_key(|label| label.end.1);
        let wanted: Vec<i32> = labels.iter().map(|label| label.end.1).collect();
        let (highest, lowest) = ((layout.font / 2 + layout.head()) as i32, (layout.size.1 - layout.font) as i32);
        // The same position for all, also for lines that end earlier.
        let right = (layout.size.0 - layout.names) as i32;
        let (unit, ink) = (layout.font as i32, layout.ink(INK.light()));
        for (label, y) in labels.iter().zip(spread(&wanted, layout.step, (highest, lowest))) {
            let (x, from_y) = label.end;
            let left = right + unit * 5 / 4;
            let thin = ShapeStyle::from(&label.colour.mix(0.6)).stroke_width(1);
            let path = [(x + layout.mark + 1, from_y), (right + unit / 3, from_y), (left - 3, y)];
            area.draw(&PathElement::new(path, thin))?;
            let style = (FONT, layout.font).into_text_style(area).color(&ink);
            area.draw_text(&label.text, &style.pos(Pos::new(HPos::Left, VPos::Center)), (left, y))?;
        }
        Ok(())
    }
}

pub(crate) fn draw_mark<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    (x, y): (i32, i32),
    size: i32,
    (look, colour): (&Look, RGBColor),
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let full = colour.filled();
    match look.mark {
        Mark::Circle => area.draw(&Circle::new((x, y), size, full)),
        Mark::Square => area.draw(&Rectangle::new([(x - size, y - size), (x + size, y + size)], full)),
        Mark::Diamond => {
            let far = size + 1;
            area.draw(&Polygon::new([(x - far, y), (x, y - far), (x + far, y), (x, y + far)], full))
        }
        Mark::Triangle => area.draw(&TriangleMarker::new((x, y), size + 2, full)),
        Mark::Cross => area.draw(&Cross::new((x, y), size, ShapeStyle::from(&colour).stroke_width(2))),
    }
}

/// Does a line belong to the context?
pub(crate) fn is_grey(launcher: &str) -> bool {
    look_of(launcher).is_some_and(Look::is_grey)
}

/// The names of the lines of the context.
pub(crate) fn grey_names(lines: &[Line]) -> Vec<&'static str> {
    lines.iter().filter(|line| is_grey(line.launcher)).map(|line| shown(line.launcher)).collect()
}

/// A diagram of dots that is being drawn.
struct Dots<'a> {
    panel: &'a Panel,
    layout: &'a Layout,
    rows: &'a [DotRow],
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
        let longest = self.rows.iter().filter(|row| !row.dots.is_empty()).map(|row| row.name.chars().count()).max();
        let names = (DOT_LETTER * font * longest.unwrap_or(0) as f64) as u32 + layout.font / 2;
        let longest = self.rows.iter().map(|row| row.value.chars().count()).max().unwrap_or(0);
        let values = (DOT_LETTER * font * longest as f64).max(DOT_VALUE * font) as u32;
        let mut chart = ChartBuilder::on(area)
            .margin(layout.margin)
            .margin_top(layout.head())
            .margin_right(values + layout.font / 2)
            .x_label_area_size(layout.font * 2)
            .margin_left(names + layout.font / 2)
            .build_cartesian_2d(x, 0.0..self.rows.len() as f64)?;
        let grid = layout.ink(GRID.light());
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(grid)
            .bold_line_style(grid)
            .label_style((FONT, layout.font).into_font().color(&layout.ink(AXIS.light())))
            // A narrow axis, beside long names, has room for fewer labels.
            .x_labels((layout.size.0.saturating_sub(names + values) / (layout.font * 6)).clamp(2, 4) as usize)
            .x_label_formatter(&|value| self.panel.unit.tick(*value))
            .draw()?;
        let right = layout.size.0 as i32 - layout.margin as i32;
        let (_, high) = self.panel.span;
        let text = (FONT, layout.font).into_text_style(area);
        let mut spots = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let line = (self.rows.len() - index) as f64 - 0.5;
            let y = chart.backend_coord(&(high, line)).1;
            let Some(first) = row.dots.first() else {
                let place = (layout.margin as i32, y + layout.font as i32 / 5);
                area.draw_text(
                    &row.name,
                    &text.color(&layout.ink(INK.light())).pos(Pos::new(HPos::Left, VPos::Center)),
                    place,
                )?;
                continue;
            };
            if let Some(last) = row.dots.last().filter(|_| row.dots.len() > 1) {
                let ends = [first, last].map(|dot| chart.backend_coord(&(dot.value, line)));
                area.draw(&PathElement::new(ends, layout.ink(AXIS.light())))?;
            }
            for point in &row.dots {
                let at = chart.backend_coord(&(point.value.min(high), line));
                let colour = layout.ink(kind(point.launcher).0);
                if let Some(tail) = point.tail.filter(|tail| tail.is_finite()) {
                    let (end, reach) = (chart.backend_coord(&(tail, line)), layout.mark + 1);
                    area.draw(&PathElement::new([at, end], colour.mix(0.7)))?;
                    area.draw(&PathElement::new([(end.0, end.1 - reach), (end.0, end.1 + reach)], colour))?;
                }
                let size = if is_bound(point.launcher) { layout.mark } else { layout.mark + 1 };
                area.draw(&Circle::new(at, size, colour.filled()))?;
                spots.push(Spot { at, colour: hex(kind(point.launcher).0), words: point.words.clone() });
            }
            let ink = layout.ink(kind(first.launcher).1);
            let style = text.color(&ink).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw_text(&row.name, &style, (names as i32 - layout.mark, y))?;
            area.draw_text(&row.value, &style, (right, y))?;
        }
        Ok(spots)
    }
}

/// The name of a line and its last value, beside the last point.
struct Label {
    text: String,
    colour: RGBColor,
    /// The end of the line, in pixels.
    end: (i32, i32),
    /// The line ends before the last position.
    is_early: bool,
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
        let svg = memory.svg(false).expect("svg");
        for text in
            ["vfork baseline  80.0", "fork  104.1 ms", "forkless-status  79.0", "1 GiB", "100 MiB", "Total, median"]
        {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        assert!(memory.png(false).expect("png").starts_with(b"\x89PNG"));
        let dark = memory.svg(true).expect("svg");
        for pair in [OURS, FORK, INK, GRID, AXIS, PAPER] {
            assert!(svg.contains(&hex(pair.light())) && dark.contains(&hex(pair.dark())));
            assert!(!dark.contains(&hex(pair.light())), "{} on a dark page", hex(pair.light()));
        }
    }

    #[test]
    fn panel_has_the_positions_of_its_values() {
        for chart in drawings() {
            for panel in &chart.panels {
                let (svg, spots) = panel.svg().expect("svg");
                let values = match chart.name {
                    "start" => 4,
                    "small" => 3,
                    _ => 9,
                };
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
    fn every_line_has_a_unique_colour_and_a_dark_variant() {
        let all: Vec<String> = pairs().map(|pair| hex(pair.light())).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "tooltips identify lines by their colours");
        let style = dark_style();
        assert!(all.iter().all(|colour| style.contains(&format!("[stroke=\"{colour}\"]"))));
    }

    #[test]
    fn at_most_five_lines_are_coloured() {
        // wait-any and forkless-wait-set wait, epoll and the vfork baseline are neutral.
        let neutral = |look: &&Look| look.is_grey() || look.pair.1 == INK.1;
        let coloured: Vec<_> = LOOKS
            .iter()
            .filter(|look| !neutral(look) && !look.launcher.contains("wait"))
            .map(|look| look.launcher)
            .collect();
        assert_eq!(coloured.len(), 5, "{coloured:?}");
        let mut ours = LOOKS.iter().filter(|look| is_ours(look.launcher) && !look.is_grey());
        assert!(ours.all(|look| look.pair.1 == OURS.1), "ours are of one hue");
    }
}
