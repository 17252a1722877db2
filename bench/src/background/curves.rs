//! The graphs of the background, drawn as they were published: with linear axes from zero, unlike the charts of the bench. The names
//! of the lines are below the graph, because they are too long to be beside it.

use anyhow::{Result, anyhow};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    super::{
        charts::{Unit, exact},
        plots::{AXIS, FONT, GRID, Look, PAPER, Spot, draw_mark, hex, look_of, register_fonts},
        statistics::round,
    },
    Curve, Line,
};

/// As wide as a phone, so that the text is readable there; the height excludes the names.
const SIZE: (u32, u32) = (360, 262);
const FONT_SIZE: u32 = 12;
/// Height of the line of a name.
const NAME: u32 = 17;
/// Space for the labels of the y axis.
const VALUES: u32 = 50;
const MARK: i32 = 3;
/// Approximate number of marks on a line.
const MARKS: usize = 8;

/// The launchers whose colours and marks the lines use, in this order: for other methods, and for those of forkless.
const OTHERS: [&str; 7] = ["fork", "posix_spawn", "libuv", "go", "std", "cpython", "node-spawn"];
const OURS: [&str; 3] = ["forkless-status", "forkless-launch", "forkless-spawn"];

/// A graph of some lines of a curve.
pub(super) struct Graph<'a> {
    pub(super) title: String,
    curve: &'a Curve,
    lines: Vec<(&'a Line, &'static Look)>,
}

/// The graph of the curve and, if lines of fork would hide differences between the others, another one without them.
pub(super) fn graphs(curve: &Curve) -> Vec<Graph<'_>> {
    let (mut others, mut ours) = (OTHERS.into_iter().cycle(), OURS.into_iter().cycle());
    let look = |line: &Line| if line.is_ours() { ours.next() } else { others.next() };
    let looks: Vec<_> = curve.lines.iter().map(look).collect();
    let lines: Vec<_> =
        curve.lines.iter().zip(looks).filter_map(|(line, look)| Some((line, look_of(look?)?))).collect();
    let drawn: Vec<_> = lines.into_iter().filter(|(line, _)| line.points.len() > 1).collect();
    let flat: Vec<_> = drawn.iter().copied().filter(|(line, _)| !line.id.starts_with("fork ")).collect();
    let title = format!("{}, by {}", curve.y, curve.x);
    let mut graphs = Vec::new();
    if flat.len() > 1 && flat.len() < drawn.len() {
        graphs.push(Graph { title: format!("The same without fork: {title}"), curve, lines: flat });
    }
    if !drawn.is_empty() {
        graphs.insert(0, Graph { title, curve, lines: drawn });
    }
    graphs
}

impl Graph<'_> {
    /// The SVG text, and the positions of the values.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(super) fn svg(&self) -> Result<(String, Vec<Spot>)> {
        let mut text = String::new();
        let size = (SIZE.0, SIZE.1 + NAME * self.lines.len() as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let spots = self.draw(&area).map_err(|error| anyhow!("cannot draw {}: {error}", self.curve.name))?;
        area.present().map_err(|error| anyhow!("cannot draw {}: {error}", self.curve.name))?;
        drop(area);
        Ok((text, spots))
    }

    /// A description for screen readers: the ends of each line.
    pub(super) fn words(&self) -> String {
        let at = |(x, y): &(f64, f64)| format!("{} at {}", tick(&self.curve.y, *y), exact(*x));
        let ends = self.lines.iter().filter_map(|(line, _)| Some((line, line.points.first()?, line.points.last()?)));
        let lines: Vec<String> =
            ends.map(|(line, first, last)| format!("{} from {} to {}", line.name, at(first), at(last))).collect();
        format!("{}. {}. {}. The tables below have all values.", self.curve.title, self.title, lines.join("; "))
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<Vec<Spot>, DrawingAreaErrorKind<B::ErrorType>> {
        register_fonts();
        area.fill(&PAPER.light())?;
        let (above, names) = area.split_vertically(SIZE.1);
        let points = || self.lines.iter().flat_map(|(line, _)| &line.points);
        let end = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
        let (x_end, y_end) = (end(|point| point.0) * 1.02, end(|point| point.1) * 1.06);
        let mut chart = ChartBuilder::on(&above)
            .margin(4)
            .margin_top(FONT_SIZE / 2 + 4)
            .margin_right(FONT_SIZE)
            .x_label_area_size(FONT_SIZE * 3 + FONT_SIZE / 2)
            .y_label_area_size(VALUES)
            .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
        let words = (FONT, FONT_SIZE).into_font().color(&AXIS.light());
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(GRID.light())
            .bold_line_style(GRID.light())
            .axis_desc_style(words.clone())
            .label_style(words)
            .x_desc(&self.curve.x)
            .x_labels(6)
            .y_labels(6)
            .x_label_formatter(&|x| exact(round(*x)))
            .y_label_formatter(&|y| tick(&self.curve.y, round(*y)))
            .draw()?;
        let mut spots = Vec::new();
        for (row, (line, look)) in self.lines.iter().enumerate() {
            let width = if line.is_ours() { 2 } else { 1 };
            let style = ShapeStyle::from(&look.light).stroke_width(width);
            chart.draw_series([PathElement::new(line.points.clone(), style)])?;
            let every = line.points.len().div_ceil(MARKS);
            for (index, (x, y)) in line.points.iter().enumerate() {
                let at = chart.backend_coord(&(*x, *y));
                if index % every == 0 || index + 1 == line.points.len() {
                    draw_mark(&above, at, MARK, (look, look.light))?;
                }
                let words =
                    format!("{} · {} {}\n{} {}", line.name, exact(*x), self.curve.x, exact(round(*y)), self.curve.y);
                spots.push(Spot { at, colour: hex(look.light), words });
            }
            self.name(&names, row, line, look)?;
        }
        Ok(spots)
    }

    /// Draws a sample of a line below the graph, with its name and its last value.
    fn name<B: DrawingBackend>(
        &self,
        names: &DrawingArea<B, Shift>,
        row: usize,
        line: &Line,
        look: &Look,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let y = (NAME * row as u32 + NAME / 2) as i32;
        let style = ShapeStyle::from(&look.light).stroke_width(2);
        names.draw(&PathElement::new([(6, y), (30, y)], style))?;
        draw_mark(names, (18, y), MARK, (look, look.light))?;
        let ink = AXIS.light();
        let text = (FONT, FONT_SIZE).into_text_style(names).color(&ink);
        names.draw_text(&line.name, &text.pos(Pos::new(HPos::Left, VPos::Center)), (38, y))?;
        let value = line.points.last().map_or(String::new(), |point| short(&self.curve.y, point.1));
        let text = text.pos(Pos::new(HPos::Right, VPos::Center));
        names.draw_text(&value, &text, (SIZE.0 as i32 - 4, y))
    }
}

/// A label for an axis or a short description.
fn tick(unit: &str, value: f64) -> String {
    if unit == "µs" { Unit::Time.tick(value) } else { format!("{} {unit}", exact(value)) }
}

fn short(unit: &str, value: f64) -> String {
    if unit == "µs" { Unit::Time.short(value) } else { format!("{} {unit}", exact(round(value))) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::parse;
    use super::super::tests::SMALL;
    use super::*;

    #[test]
    fn every_line_is_drawn_in_a_different_colour() {
        let background = parse(SMALL).expect("a record");
        let graphs = graphs(&background.curves[0]);
        let spots: Vec<usize> = graphs.iter().map(|graph| graph.svg().expect("svg").1.len()).collect();
        assert_eq!(spots, [8, 5], "all of them, and the same without fork");
        let (svg, spots) = graphs[0].svg().expect("svg");
        let colours: BTreeSet<&str> = spots.iter().map(|spot| spot.colour.as_str()).collect();
        assert_eq!(colours.len(), 3);
        for text in ["fork, touched", "forkless, status", "2,500 µs", "90.0 µs", "MiB"] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        assert!(!svg.contains("absent"));
        assert_eq!(spots[1].words, "fork, touched · 100 MiB\n1,300.25 µs");
        let height = (SIZE.1 + 3 * NAME) as i32;
        assert!(spots.iter().all(|spot| spot.at.0 > 0 && spot.at.0 < 360 && spot.at.1 > 0 && spot.at.1 < height));
        // Higher values are further up, later ones further right.
        assert!(spots[0].at.1 > spots[1].at.1 && spots[0].at.0 < spots[1].at.0);
        let words = graphs[1].words();
        assert!(words.contains("vfork from 100 µs at 0 to 101 µs at 200"), "{words}");
    }
}
