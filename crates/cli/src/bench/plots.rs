//! The figures to look at: each plot once as SVG and once as PNG, by the same code.

use std::{path::Path, sync::Once};

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

use super::{
    alive::AliveRow,
    conditions::{Condition, mebibytes, thousands},
    record::{Report, Row},
    settings::Setting,
};

/// Size of each plot in pixels; the labels of the lines stand right of the plot area.
const SIZE: (u32, u32) = (1_160, 620);
/// Room for those labels.
const LABEL_WIDTH: u32 = 300;
const FONT: &str = "sans-serif";

/// One sweep: a line per contestant over the values of one property of the parent.
pub(crate) struct Plot {
    /// File name without ending.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    x_title: &'static str,
    y_title: &'static str,
    /// What each position on the x axis stands for.
    ticks: Vec<String>,
    logarithmic: bool,
    lines: Vec<Line>,
}

struct Line {
    launcher: &'static str,
    /// Position on the x axis and value.
    points: Vec<(f64, f64)>,
}

/// Contestants worth a line, each with a colour that also people who see few colours can tell apart, where lines of
/// the same family differ in lightness. The prepared forms lie so close to the plain ones that their lines would cover
/// them, so the plots have the two ends of our range only; the tables have them all.
const COLOURS: [(&str, RGBColor); 12] = [
    ("fork", RGBColor(204, 51, 17)),
    ("posix_spawn", RGBColor(0, 119, 187)),
    ("system", RGBColor(170, 110, 40)),
    ("popen", RGBColor(205, 140, 30)),
    ("std", RGBColor(120, 94, 180)),
    ("go", RGBColor(0, 150, 170)),
    ("cpython", RGBColor(200, 160, 0)),
    ("libuv", RGBColor(200, 80, 140)),
    ("forkless-spawn", RGBColor(70, 175, 100)),
    ("forkless-prepared", RGBColor(60, 150, 110)),
    ("forkless-prepared-status", RGBColor(0, 110, 60)),
    // Last, so that its thin line is drawn over the thick ones that it meets.
    ("floor", RGBColor(30, 30, 30)),
];

/// Ways to wait for one of many children, the bound last as above.
const WAITER_COLOURS: [(&str, RGBColor); 4] = [
    ("wait-any", RGBColor(204, 51, 17)),
    ("libuv", RGBColor(200, 80, 140)),
    ("forkless-wait-set", RGBColor(0, 110, 60)),
    ("epoll", RGBColor(30, 30, 30)),
];

fn colour(launcher: &str) -> Option<RGBColor> {
    COLOURS.iter().chain(&WAITER_COLOURS).find(|(name, _)| *name == launcher).map(|(_, colour)| *colour)
}

/// Whether others are measured against it: its line is thin.
fn is_bound(launcher: &str) -> bool {
    ["floor", "epoll"].contains(&launcher)
}

/// The plots that the rows give enough points for.
pub(crate) fn plots(report: &Report) -> Vec<Plot> {
    let total = |row: &Row| row.total_p50_us;
    let wanted = [
        by_memory("memory", "Launch and wait, by memory of the parent", |c| {
            (Condition { parent_mib: 0, ..*c } == Condition::SMALL).then_some(c.parent_mib)
        })
        .plot(report, true),
        by_memory("settings-user", "Launch with a change of user, by memory of the parent", |c| {
            (Condition { parent_mib: 0, ..*c } == Condition { setting: Setting::User, ..Condition::SMALL })
                .then_some(c.parent_mib)
        })
        .plot(report, true),
        by_memory("settings-all", "Launch with all settings, by memory of the parent", |c| {
            (Condition { parent_mib: 0, ..*c } == Condition { setting: Setting::All, ..Condition::SMALL })
                .then_some(c.parent_mib)
        })
        .plot(report, true),
        Sweep {
            name: "files",
            title: "Launch and wait, by open files of the parent",
            x_title: "open files of the parent (close-on-exec)",
            y_title: "median total time, µs",
            of: |c| (Condition { fds: 3, ..*c } == Condition::SMALL).then_some(c.fds),
            tick: thousands,
            value: total,
        }
        .plot(report, true),
        Sweep {
            name: "files-pipes",
            title: "Launch and wait with three pipes, by open files of the parent",
            x_title: "open files of the parent (close-on-exec)",
            y_title: "median total time, µs",
            of: |c| (Condition { fds: 3, pipes: 0, ..*c } == Condition::SMALL && c.pipes > 0).then_some(c.fds),
            tick: thousands,
            value: total,
        }
        .plot(report, true),
        Sweep {
            name: "threads",
            title: "Launches per second, by threads that launch at once",
            x_title: "threads",
            y_title: "launches per second, all threads together",
            of: |c| (Condition { threads: 1, ..*c } == Condition::SMALL).then_some(c.threads as u64),
            tick: thousands,
            value: |row| row.rate_per_s,
        }
        .plot(report, false),
        alive(report),
    ];
    wanted.into_iter().flatten().collect()
}

/// What the end of one child costs, by how many there are.
fn alive(report: &Report) -> Option<Plot> {
    let mut counts: Vec<usize> = report.alive.iter().map(|row| row.children).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut lines = Vec::new();
    for (launcher, _) in WAITER_COLOURS {
        let rows = report.alive.iter().filter(|row| row.waiter == launcher);
        let point = |row: &AliveRow| Some((counts.iter().position(|c| *c == row.children)? as f64, row.cpu_p50_us));
        lines.push(Line { launcher, points: in_order(rows.filter_map(point).collect()) });
    }
    lines.retain(|line| line.points.len() == counts.len());
    (counts.len() > 1 && !lines.is_empty()).then(|| Plot {
        name: "alive",
        title: "One of many children ends, by children alive".to_owned(),
        x_title: "children alive",
        y_title: "median CPU time of the parent per exit, µs",
        ticks: counts.into_iter().map(|count| thousands(count as u64)).collect(),
        logarithmic: true,
        lines,
    })
}

/// The sweep of memory under a setting, which `of` selects.
fn by_memory(name: &'static str, title: &'static str, of: fn(&Condition) -> Option<u64>) -> Sweep {
    Sweep {
        name,
        title,
        x_title: "touched memory of the parent",
        y_title: "median total time, µs",
        of,
        tick: |mib| if mib == 0 { "small".to_owned() } else { mebibytes(mib) },
        value: |row| row.total_p50_us,
    }
}

/// How to get a plot from the rows.
struct Sweep {
    name: &'static str,
    title: &'static str,
    x_title: &'static str,
    y_title: &'static str,
    /// The value of the property for a condition that belongs to the sweep.
    of: fn(&Condition) -> Option<u64>,
    tick: fn(u64) -> String,
    value: fn(&Row) -> f64,
}

impl Sweep {
    /// `None` where there are not two points to join.
    fn plot(&self, report: &Report, logarithmic: bool) -> Option<Plot> {
        let mut values: Vec<u64> = report.conditions().iter().filter_map(|c| (self.of)(c)).collect();
        values.sort_unstable();
        values.dedup();
        let mut lines = Vec::new();
        for (launcher, _) in COLOURS {
            let points: Vec<(f64, f64)> = report
                .rows
                .iter()
                .filter(|row| row.launcher == launcher)
                .filter_map(|row| {
                    let value = (self.of)(&row.condition())?;
                    Some((values.iter().position(|v| *v == value)? as f64, (self.value)(row)))
                })
                .collect();
            // The thread sweep has fewer contestants than the row for one thread.
            if points.len() == values.len() {
                lines.push(Line { launcher, points: in_order(points) });
            }
        }
        (values.len() > 1 && !lines.is_empty()).then(|| Plot {
            name: self.name,
            title: self.title.to_owned(),
            x_title: self.x_title,
            y_title: self.y_title,
            ticks: values.into_iter().map(self.tick).collect(),
            logarithmic,
            lines,
        })
    }
}

fn in_order(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

impl Plot {
    /// The plot as the text of an SVG file.
    pub(crate) fn svg(&self) -> Result<String> {
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
        Ok(text)
    }

    /// Writes the plot as a PNG file.
    pub(crate) fn write_png(&self, path: &Path) -> Result<()> {
        self.draw(&BitMapBackend::new(path, SIZE).into_drawing_area())
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<()> {
        register_fonts();
        let words = |error: DrawingAreaErrorKind<B::ErrorType>| anyhow!("cannot draw {}: {error}", self.name);
        area.fill(&WHITE).map_err(words)?;
        if self.logarithmic {
            let (low, high) = self.span();
            self.draw_lines(area, (low / 1.6..high * 1.6).log_scale())
        } else {
            self.draw_lines(area, 0.0..self.span().1 * 1.12)
        }
        .map_err(words)?;
        area.present().map_err(words)
    }

    /// Smallest and largest value.
    fn span(&self) -> (f64, f64) {
        let values = || self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
        (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
    }

    fn draw_lines<B, Y>(&self, area: &DrawingArea<B, Shift>, y: Y) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
    where
        B: DrawingBackend,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 26))
            .margin(14)
            .margin_right(LABEL_WIDTH)
            .x_label_area_size(58)
            .y_label_area_size(86)
            .build_cartesian_2d(Positions(&self.ticks), y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .y_labels(8)
            .bold_line_style(RGBColor(215, 215, 215))
            .axis_desc_style((FONT, 18))
            .label_style((FONT, 16))
            .x_desc(self.x_title)
            .y_desc(self.y_title)
            .x_labels(self.ticks.len() * 4)
            .y_label_formatter(&|value| thousands(value.round() as u64))
            .draw()?;
        let mut labels = Vec::new();
        for line in &self.lines {
            let colour = colour(line.launcher).unwrap_or(BLACK);
            let width = if is_bound(line.launcher) { 1 } else { 3 };
            let style = ShapeStyle::from(&colour).stroke_width(width);
            chart.draw_series([PathElement::new(line.points.clone(), style)])?;
            chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
            if let Some(end) = line.points.last() {
                let text = format!("{}  {}", line.launcher, super::table::figure(end.1));
                labels.push(Label { text, colour, end: chart.backend_coord(end) });
            }
        }
        draw_labels(area, labels)
    }
}

/// An x axis of evenly spaced words: the values of a sweep begin at 0 and span powers of ten, which neither a linear nor
/// a logarithmic axis shows well.
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

    fn range(&self) -> std::ops::Range<f64> {
        -0.12..self.last() + 0.02
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
    /// Where the line ends, in pixels.
    end: (i32, i32),
}

/// Least distance between two labels, in pixels.
const LABEL_STEP: i32 = 21;

/// Writes the names of the lines at the right, each as near to the height of its last point as the others allow, with a
/// thin line from the one to the other.
fn draw_labels<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    mut labels: Vec<Label>,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    labels.sort_by_key(|label| label.end.1);
    let wanted: Vec<i32> = labels.iter().map(|label| label.end.1).collect();
    let lowest = SIZE.1 as i32 - 70;
    for (label, y) in labels.iter().zip(spread(&wanted, LABEL_STEP, lowest)) {
        let (x, from_y) = label.end;
        let left = x + 44;
        area.draw(&PathElement::new(
            [(x + 7, from_y), (x + 30, y), (left - 4, y)],
            ShapeStyle::from(&label.colour.mix(0.6)).stroke_width(1),
        ))?;
        let style = (FONT, 17).into_text_style(area).color(&label.colour).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(&label.text, &style, (left, y))?;
    }
    Ok(())
}

/// Moves ascending positions apart to at least `step`, downwards first, then up again where the last ones went below
/// `lowest`.
fn spread(wanted: &[i32], step: i32, lowest: i32) -> Vec<i32> {
    let mut placed: Vec<i32> = Vec::with_capacity(wanted.len());
    // Groups that touch are centred on the mean of what they want: nobody is pushed far while others sit well.
    let mut groups: Vec<Vec<i32>> = Vec::new();
    for &y in wanted {
        groups.push(vec![y]);
        while groups.len() > 1 {
            let upper = &groups[groups.len() - 2];
            let lower = &groups[groups.len() - 1];
            if first_of(upper, step, lowest) + upper.len() as i32 * step <= first_of(lower, step, lowest) {
                break;
            }
            let lower = groups.pop().unwrap_or_default();
            if let Some(upper) = groups.last_mut() {
                upper.extend(lower);
            }
        }
    }
    for group in &groups {
        let first = first_of(group, step, lowest);
        placed.extend((0..group.len() as i32).map(|index| first + index * step));
    }
    placed
}

/// Where the first label of a group goes.
fn first_of(group: &[i32], step: i32, lowest: i32) -> i32 {
    let count = group.len() as i32;
    let mean = group.iter().sum::<i32>() / count;
    let extent = (count - 1) * step;
    (mean - extent / 2).min(lowest - extent)
}

/// The bitmap backend draws with a font of ours, because a bare machine has none. In an SVG the viewer's own font is
/// used; ours only serves to measure.
fn register_fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let font = dejavu::sans::regular();
        // Cannot fail: the font is a constant, and the test below draws with it.
        let _ = register_font(FONT, FontStyle::Normal, font);
    });
}

#[cfg(test)]
mod tests {
    use super::{super::machine::Machine, super::record::tests::row, *};

    fn report() -> Report {
        let mut rows = Vec::new();
        for (parent_mib, fork) in [(0, 240.0), (100, 10_000.0), (1024, 104_000.0)] {
            let condition = Condition { parent_mib, ..Condition::SMALL };
            rows.push(row("floor", condition, 40.0, 80.0));
            rows.push(row("fork", condition, fork, fork + 60.0));
            rows.push(row("forkless-prepared-status", condition, 79.0, 79.0));
        }
        Report::new(Machine::read(), rows, Vec::new())
    }

    #[test]
    fn a_sweep_becomes_a_plot_with_every_line_named() {
        let plots = plots(&report());
        assert_eq!(plots.iter().map(|p| p.name).collect::<Vec<_>>(), ["memory"]);
        let svg = plots[0].svg().expect("svg");
        for text in ["floor", "fork", "forkless-prepared-status", "1 GiB", "100 MiB", "median total time"] {
            assert!(svg.contains(text), "{text} is missing");
        }
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("memory.png");
        plots[0].write_png(&path).expect("png");
        assert!(std::fs::read(&path).expect("file").starts_with(b"\x89PNG"));
    }

    #[test]
    fn children_alive_become_a_plot() {
        let row = |waiter, children, cpu_p50_us| AliveRow {
            waiter,
            children,
            n: 100,
            cpu_p50_us,
            cpu_p99_us: cpu_p50_us,
            latency_p50_us: cpu_p50_us,
            latency_p99_us: cpu_p50_us,
            ratio_to_few: None,
            parent_bytes: None,
        };
        let rows = vec![
            row("wait-any", 100, 5.0),
            row("wait-any", 10_000, 900.0),
            row("forkless-wait-set", 100, 6.0),
            row("forkless-wait-set", 10_000, 6.5),
        ];
        let plots = plots(&Report::new(Machine::read(), Vec::new(), rows));
        assert_eq!(plots.iter().map(|p| p.name).collect::<Vec<_>>(), ["alive"]);
        let svg = plots[0].svg().expect("svg");
        for text in ["wait-any  900", "forkless-wait-set  6.5", "10,000", "children alive"] {
            assert!(svg.contains(text), "{text} is missing");
        }
    }

    #[test]
    fn labels_keep_their_distance() {
        assert_eq!(spread(&[10, 100, 200], 20, 500), [10, 100, 200]);
        assert_eq!(spread(&[100, 100, 100], 20, 500), [80, 100, 120]);
        assert_eq!(spread(&[490, 495], 20, 500), [480, 500]);
        let crowded = spread(&[10, 300, 305, 310, 318, 322], 20, 500);
        assert!(crowded.windows(2).all(|pair| pair[1] - pair[0] >= 20), "{crowded:?}");
    }
}
