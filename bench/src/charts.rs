//! What the charts show: the figures of the methods over each property of the parent, as panels side by side.

use std::collections::BTreeSet;

use super::{
    looks::{APPEARANCES, Appearance},
    name::Name,
    properties::{PROPERTIES, Property},
    record::Report,
    rows::{AliveRow, Row, enough},
    summary::{heading, result, waiting},
    units::thousands,
};

/// One property of the parent, for all methods.
pub(crate) struct Chart {
    /// File name without suffix; also the anchor in the page.
    pub(crate) name: &'static str,
    /// The topic, which is also the title of the x axis.
    pub(crate) title: &'static str,
    /// The result, as a heading.
    pub(crate) finding: String,
    /// What is varied, in one or two sentences.
    pub(crate) about: String,
    /// The ticks of the x axis, and their positions, ascending.
    pub(crate) ticks: Vec<String>,
    pub(crate) at: Vec<f64>,
    /// At least one; the first represents the chart in a file.
    pub(crate) panels: Vec<Panel>,
}

/// One diagram: the values of the methods over the ticks.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// Rates have a linear axis from zero, times in microseconds a logarithmic one.
    pub(crate) is_rate: bool,
    /// In the order of [`APPEARANCES`].
    pub(crate) lines: Vec<Line>,
}

/// The values of one method: the indices of their ticks, ascending, with the value. There are two at least.
pub(crate) struct Line {
    pub(crate) look: &'static Appearance,
    pub(crate) points: Vec<(usize, f64)>,
}

/// A measured figure: the title of its panel, and its value, if it was measured.
type Metric<R> = (&'static str, fn(&R) -> Option<f64>);

const BLOCKED: Metric<Row> = ("Caller blocked, median: until the call returns", |row| Some(row.held_p50_us));
const TOTAL: Metric<Row> = ("Total, median: until the child is reaped", |row| Some(row.total_p50_us));
const RATE: Metric<Row> = ("Launches per second, all together", |row| Some(row.rate_per_s));
const WAITING: [Metric<AliveRow>; 3] = [
    ("CPU time of the parent, median", |row| Some(row.cpu_p50_us)),
    ("CPU time of the parent, 99th percentile", |row| enough(row.n as u64, row.cpu_p99_us)),
    ("Latency from the kill, median", |row| Some(row.latency_p50_us)),
];

/// The charts for which the record has enough rows.
pub(crate) fn charts(report: &Report) -> Vec<Chart> {
    let sweeps = PROPERTIES.iter().filter_map(|property| sweep(report, property));
    sweeps.chain(alive(report)).collect()
}

/// One property; `None` without a method that was measured with two of its values.
fn sweep(report: &Report, property: &Property) -> Option<Chart> {
    let conditions = property.conditions(report);
    let last = *conditions.last()?;
    let values: Vec<u64> = conditions.iter().filter_map(property.value).collect();
    let ticks: Vec<String> = values.iter().copied().map(property.words).collect();
    let tick = |row: &Row| conditions.iter().position(|condition| *condition == row.condition());
    let cells: Vec<_> = report.rows.iter().filter_map(|row| Some((row.launcher, tick(row)?, row))).collect();
    let metrics: &[Metric<Row>] = match last {
        last if last.tasks > 0 => &[RATE],
        last if last.threads > 1 => &[RATE, TOTAL],
        last if last.output > 0 => &[TOTAL],
        _ => &[TOTAL, BLOCKED],
    };
    let scale = match values[..] {
        [0, _, _, ..] => " The x axis is logarithmic, and linear below its second value.",
        [_, _, _, ..] => " The x axis is logarithmic.",
        _ => "",
    };
    let finding = heading(report, &last).or_else(|| result(report, &last)).unwrap_or_else(|| property.title.to_owned());
    let (name, title, about) = (property.name, property.title, format!("{}{scale}", property.about));
    let panels = panels(metrics, &cells);
    (!panels.is_empty()).then(|| Chart { name, title, finding, about, ticks, at: positions(&values), panels })
}

/// The cost of an exit by the number of children.
fn alive(report: &Report) -> Option<Chart> {
    let counts: BTreeSet<u64> = report.alive.iter().map(|row| row.children as u64).collect();
    let counts: Vec<u64> = counts.into_iter().collect();
    let tick = |row: &AliveRow| counts.iter().position(|count| *count == row.children as u64);
    let cells: Vec<_> = report.alive.iter().filter_map(|row| Some((row.waiter, tick(row)?, row))).collect();
    let panels = panels(&WAITING, &cells);
    (!panels.is_empty()).then(|| Chart {
        name: "alive",
        title: "Children alive",
        finding: waiting(report).unwrap_or_else(|| "Exit of one of many children".to_owned()),
        about: "The cost for the parent to find the child that ended. epoll is the baseline.".to_owned(),
        ticks: counts.iter().copied().map(thousands).collect(),
        at: positions(&counts),
        panels,
    })
}

/// A panel for each metric, with a line for each method that has a look and two points at least: engines have no large parent in a
/// short run, and not all methods take part in all sweeps.
fn panels<R>(metrics: &[Metric<R>], cells: &[(Name, usize, &R)]) -> Vec<Panel> {
    let mut panels = Vec::new();
    for (title, value) in metrics {
        let line = |look: &'static Appearance| {
            let own = cells.iter().filter(|(launcher, ..)| *launcher == look.launcher);
            let mut points: Vec<(usize, f64)> = own.filter_map(|(_, tick, row)| Some((*tick, value(row)?))).collect();
            points.sort_by_key(|(tick, _)| *tick);
            (points.len() > 1).then_some(Line { look, points })
        };
        let lines: Vec<Line> = APPEARANCES.iter().filter_map(line).collect();
        if !lines.is_empty() {
            panels.push(Panel { title, is_rate: *title == RATE.0, lines });
        }
    }
    panels
}

/// The positions of ascending values on an axis that is logarithmic, but linear from 0, if that is a value, to the next.
fn positions(values: &[u64]) -> Vec<f64> {
    let unit = values.iter().copied().find(|value| *value > 0).unwrap_or(1) as f64;
    let position = |value: f64| if value <= unit { value / unit } else { 1.0 + (value / unit).ln() };
    values.iter().map(|value| position(*value as f64)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::condition::Condition;
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::*;

    /// A sweep of memory, and threads.
    pub(crate) fn report() -> Report {
        let mut rows = Vec::new();
        for (parent_mib, fork) in [(0, 240.0), (100, 10_000.0), (1024, 104_000.0)] {
            let condition = Condition { parent_mib, ..Condition::SMALL };
            rows.push(row("floor", condition, 40.0, 80.0));
            rows.push(row("fork", condition, fork, fork + 60.0));
            rows.push(row("forkless-status", condition, 79.0, 79.0));
        }
        rows.push(row("go", Condition::SMALL, 50.0, 99.0));
        rows.push(row("forkless-status", Condition { threads: 4, ..Condition::SMALL }, 50.0, 100.0));
        Report::new(Machine::read(), rows, Vec::new())
    }

    #[test]
    fn sweep_has_a_finding_and_panels_with_the_points_of_its_conditions() {
        let charts = charts(&report());
        assert_eq!(charts.iter().map(|chart| chart.name).collect::<Vec<_>>(), ["memory", "threads"]);
        let [memory, threads] = &charts[..] else { panic!("two charts") };
        assert_eq!(memory.finding, "1 GiB of memory: 104.1 ms with fork, 79.0 µs with forkless");
        assert!(memory.about.contains("logarithmic") && !threads.about.contains("logarithmic"));
        assert_eq!(memory.ticks, ["small", "100 MiB", "1 GiB"]);
        assert_eq!(memory.at, [0.0, 1.0, 1.0 + 10.24f64.ln()], "logarithmic, and linear below the first value");
        let names = |chart: &Chart| chart.panels.iter().map(|panel| (panel.title, panel.is_rate)).collect::<Vec<_>>();
        assert_eq!(names(memory), [(TOTAL.0, false), (BLOCKED.0, false)]);
        assert_eq!(names(threads), [(RATE.0, true), (TOTAL.0, false)]);
        let lines = &memory.panels[0].lines;
        let launchers: Vec<&str> = lines.iter().map(|line| line.look.launcher).collect();
        assert_eq!(launchers, ["fork", "forkless-status", "floor"], "one point is no line");
        assert_eq!(lines[0].points, [(0, 300.0), (1, 10_060.0), (2, 104_060.0)]);
    }

    #[test]
    fn children_alive_have_a_chart_without_tails_of_few_exits() {
        let row = |waiter, children, n| AliveRow { waiter, children, cpu_p50_us: 5.0, n, ..AliveRow::default() };
        let rows = [row("epoll", 10_000, 99), row("epoll", 100, 100), row("wait-any", 100, 100)];
        let charts = charts(&Report::new(Machine::read(), Vec::new(), rows.to_vec()));
        assert_eq!(
            (charts.len(), charts[0].name, &charts[0].ticks[..]),
            (1, "alive", &["100", "10,000"].map(str::to_owned)[..])
        );
        let titles: Vec<&str> = charts[0].panels.iter().map(|panel| panel.title).collect();
        assert_eq!(titles, [WAITING[0].0, WAITING[2].0]);
    }
}
