//! The charts: each sweep as a few panels side by side, and the figures as a table.
//!
//! Longer than other files, because all charts are defined here, with their titles and metrics.

use super::{
    condition::Condition,
    name::shown,
    plots::is_bound,
    record::Report,
    rows::{AliveRow, Row, enough},
    setting::Setting,
    summary,
    units::{bytes, figure, mebibytes, thousands},
};

/// One property of the parent, or one use, for all methods.
pub(crate) struct Chart {
    /// File name without suffix; also the anchor in the page.
    pub(crate) name: &'static str,
    /// The topic.
    pub(crate) title: &'static str,
    /// The result, as a heading.
    pub(crate) finding: String,
    /// Explains what is varied, in one or two sentences.
    pub(crate) about: String,
    pub(crate) panels: Vec<Panel>,
    /// The index of the panel that is also written as a file.
    picture: usize,
    pub(crate) table: Grid,
}

impl Chart {
    /// The panel that represents the chart in a file.
    pub(crate) fn picture(&self) -> &Panel {
        &self.panels[self.picture]
    }
}

/// One diagram.
#[derive(Clone)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x_title: &'static str,
    pub(crate) unit: Unit,
    pub(crate) body: Body,
    /// Smallest and largest value, of this panel or of all panels on the same scale.
    pub(crate) span: (f64, f64),
}

impl Panel {
    /// The panel with its own scale, to show it without the others.
    pub(crate) fn alone(&self) -> Self {
        with_spans(vec![self.clone()]).remove(0)
    }
}

#[derive(Clone)]
pub(crate) enum Body {
    /// A line for each launcher, over labels at these positions.
    Lines { ticks: Vec<String>, at: Vec<f64>, lines: Vec<Line> },
    /// Rows of dots, one below the other.
    Dots(Vec<DotRow>),
}

/// A row of dots: one method, or one program by several methods. A row without dots is the heading of those below it.
#[derive(Clone)]
pub(crate) struct DotRow {
    pub(crate) name: String,
    /// Right of the dots.
    pub(crate) value: String,
    pub(crate) dots: Vec<Point>,
}

#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) launcher: &'static str,
    pub(crate) points: Vec<Point>,
}

/// One value with its description.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) launcher: &'static str,
    /// The index of the tick.
    pub(crate) tick: usize,
    pub(crate) value: f64,
    /// The 99th percentile, if the value is the median.
    pub(crate) tail: Option<f64>,
    /// The description, one figure per line.
    pub(crate) words: String,
}

/// The unit of a value. Times have a logarithmic axis, rates a linear one from zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Time,
    Rate,
}

impl Unit {
    /// A label of an axis: 100 µs, 20 ms, 15,000.
    pub(crate) fn tick(self, value: f64) -> String {
        let plain = |value: f64| {
            let whole = thousands(value.round() as u64);
            if (value - value.round()).abs() < 1e-6 { whole } else { format!("{value}") }
        };
        match self {
            Self::Rate => plain(value),
            Self::Time if value >= 1e6 => format!("{} s", plain(value / 1e6)),
            Self::Time if value >= 1e3 => format!("{} ms", plain(value / 1e3)),
            Self::Time => format!("{} µs", plain(value)),
        }
    }

    /// A label of a value: 38.0 µs, 20.5 ms, 15,345/s.
    pub(crate) fn short(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{}/s", thousands(value.round() as u64)),
            Self::Time if value >= 1e6 => format!("{:.1} s", value / 1e6),
            Self::Time if value >= 1e4 => format!("{:.1} ms", value / 1e3),
            Self::Time => format!("{} µs", figure(value)),
        }
    }
}

/// A table with groups of columns.
pub(crate) struct Grid {
    pub(crate) groups: Vec<String>,
    /// The same in each group.
    pub(crate) heads: Vec<&'static str>,
    /// The rows by launcher, with its marks; a figure that was not measured is a dash.
    pub(crate) rows: Vec<(String, Vec<String>)>,
}

/// A measured figure.
#[derive(Clone, Copy)]
struct Metric {
    /// The title of the panel.
    title: &'static str,
    /// The heading of the column.
    head: &'static str,
    unit: Unit,
    /// The index of its 99th percentile in a [`Cell`], if that is drawn in the same panel.
    tail: Option<usize>,
    /// Drawn as a panel, or in the table only.
    drawn: bool,
}

const HELD: Metric = Metric {
    title: "Caller blocked, median: until the call returns",
    head: "blocked µs",
    unit: Unit::Time,
    tail: None,
    drawn: true,
};
const TOTAL: Metric = Metric {
    title: "Total, median: until the child is reaped",
    head: "total µs",
    unit: Unit::Time,
    tail: None,
    drawn: true,
};
/// Only in tables, or as the mark of another metric.
const TAIL: Metric =
    Metric { title: "Total, 99th percentile", head: "p99 µs", unit: Unit::Time, tail: None, drawn: false };
const RATE: Metric =
    Metric { title: "Launches per second, all together", head: "per s", unit: Unit::Rate, tail: None, drawn: true };

/// Counted in a separate run; NaN if it was not.
const CALLS: Metric =
    Metric { title: "System calls per launch", head: "calls", unit: Unit::Rate, tail: None, drawn: false };

/// The figures of each kind of chart, in order.
const SMALL: [Metric; 4] =
    [HELD, Metric { title: "Total, median, with a mark at p99", tail: Some(2), ..TOTAL }, TAIL, CALLS];
const TIMES: [Metric; 3] = [HELD, TOTAL, TAIL];
const RATES: [Metric; 3] = [RATE, TOTAL, TAIL];
const TOTALS: [Metric; 2] = [Metric { title: "total, median, with a mark at p99", tail: Some(1), ..TOTAL }, TAIL];
const RATE_ONLY: [Metric; 2] = [Metric { title: "launches per second", ..RATE }, TAIL];
const CPU: [Metric; 8] = [
    Metric { title: "CPU time of the parent, median", head: "CPU µs", ..TOTAL },
    Metric { head: "CPU p90 µs", drawn: false, ..TOTAL },
    Metric { title: "CPU time of the parent, 99th percentile", head: "CPU p99 µs", ..TOTAL },
    Metric { head: "CPU max µs", drawn: false, ..TOTAL },
    Metric { title: "Latency from the kill, median", head: "latency µs", ..TOTAL },
    Metric { head: "latency p90 µs", drawn: false, ..TOTAL },
    Metric { head: "latency p99 µs", drawn: false, ..TOTAL },
    Metric { head: "latency max µs", drawn: false, ..TOTAL },
];

/// The 99th percentile, if there are enough launches for one.
fn tail(row: &Row) -> f64 {
    enough(row.n, row.total_p99_us).unwrap_or(f64::NAN)
}

fn times_and_calls(row: &Row) -> Vec<f64> {
    vec![row.held_p50_us, row.total_p50_us, tail(row), row.system_calls.unwrap_or(f64::NAN)]
}

fn times(row: &Row) -> Vec<f64> {
    vec![row.held_p50_us, row.total_p50_us, tail(row)]
}

fn rates(row: &Row) -> Vec<f64> {
    vec![row.rate_per_s, row.total_p50_us, tail(row)]
}

/// In the order of [`CPU`].
fn costs(row: &AliveRow) -> Vec<f64> {
    let known = |value: f64| if value > 0.0 { value } else { f64::NAN };
    let tail = |value: f64| enough(row.n as u64, value).unwrap_or(f64::NAN);
    let cpu = [row.cpu_p50_us, known(row.cpu_p90_us), tail(row.cpu_p99_us), known(row.cpu_max_us)];
    let latency = [row.latency_p50_us, known(row.latency_p90_us), tail(row.latency_p99_us), known(row.latency_max_us)];
    [cpu, latency].concat()
}

fn totals(row: &Row) -> Vec<f64> {
    vec![row.total_p50_us, tail(row)]
}

fn rate_only(row: &Row) -> Vec<f64> {
    vec![row.rate_per_s, tail(row)]
}

/// One launcher at one tick.
struct Cell {
    launcher: &'static str,
    tick: usize,
    n: u64,
    values: Vec<f64>,
    /// After the name, in tables.
    marks: String,
}

/// The charts for which the rows have enough points.
pub(crate) fn charts(report: &Report) -> Vec<Chart> {
    let mut charts: Vec<Chart> = start(report).into_iter().collect();
    charts.extend(sweeps().iter().filter_map(|sweep| sweep.chart(report)));
    charts.extend([small(report), output(report), warm(report), tasks(report), alive(report)].into_iter().flatten());
    charts
}

/// The methods of the first chart, and their names there.
const STOCK: [(&str, &str); 3] =
    [("fork", "fork + exec"), ("posix_spawn", "posix_spawn"), ("forkless-status", "forkless")];

/// The first chart: what most programs use and forkless, from a small, a large and a many-socket process.
fn start(report: &Report) -> Option<Chart> {
    let opening = summary::opening(report)?;
    let conditions = &opening.conditions;
    let ticks: Vec<String> = conditions.iter().map(summary::process).collect();
    let mut cells = cells_of(report, conditions, totals);
    cells.retain(|cell| STOCK.iter().any(|(launcher, _)| *launcher == cell.launcher));
    let mut rows = Vec::new();
    for (tick, words) in ticks.iter().enumerate() {
        rows.push(DotRow { name: format!("From {words}"), value: String::new(), dots: Vec::new() });
        for (launcher, name) in STOCK {
            let Some(cell) = cells.iter().find(|cell| cell.launcher == launcher && cell.tick == tick) else { continue };
            let dot = Point { tail: None, ..point(cell, 0, &TOTALS[0], &TOTALS, &ticks) };
            rows.push(DotRow { name: name.to_owned(), value: Unit::Time.short(dot.value), dots: vec![dot] });
        }
    }
    let title = "Median time until the child is reaped (log scale)".to_owned();
    let panel = Panel { title, x_title: "", unit: Unit::Time, body: Body::Dots(rows), span: (0.0, 0.0) };
    Some(Chart {
        name: "start",
        title: "Start of a program",
        finding: opening.finding,
        about: opening.sentence,
        panels: with_spans(vec![panel]),
        picture: 0,
        table: grid(ticks, &TOTALS, &cells),
    })
}

/// All methods with the small parent.
fn small(report: &Report) -> Option<Chart> {
    let cells = cells_of(report, &[Condition::SMALL], times_and_calls);
    (cells.len() > 1).then(|| Chart {
        name: "small",
        title: "A small process",
        finding: summary::duel_words(report, &Condition::SMALL).unwrap_or_else(|| "A small process".to_owned()),
        about: "The parent has little memory, three open files and one thread. Here the methods differ least."
            .to_owned(),
        panels: dots(&["small parent".to_owned()], &SMALL, &cells),
        picture: 1,
        table: grid(vec!["small parent".to_owned()], &SMALL, &cells),
    })
}

/// How to make a line chart from the rows.
struct Sweep {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    x_title: &'static str,
    /// What the values are, after the last one in the heading.
    unit: &'static str,
    /// The value of the property, if the condition belongs to the sweep.
    of: fn(&Condition) -> Option<u64>,
    tick: fn(u64) -> String,
    metrics: [Metric; 3],
    values: fn(&Row) -> Vec<f64>,
    picture: usize,
}

/// Memory of the parent, without settings. The other sweeps are variants of this one.
const MEMORY: Sweep = Sweep {
    name: "memory",
    title: "Memory of the parent",
    about: "fork copies the page tables, so it takes longer the more memory the parent has. Methods that share the memory do not.",
    x_title: "touched memory of the parent",
    unit: " of memory",
    of: |c| (Condition { parent_mib: 0, ..*c } == Condition::SMALL).then_some(c.parent_mib),
    tick: |mib| if mib == 0 { "small".to_owned() } else { mebibytes(mib) },
    metrics: TIMES,
    values: times,
    picture: 1,
};

fn sweeps() -> Vec<Sweep> {
    let settings = [
        setting("settings-user", "A change of user, by memory", |c| under(c, Setting::User)),
        setting("settings-user-namespace", "A user namespace, by memory", |c| under(c, Setting::UserNamespace)),
        setting("settings-all", "All settings, by memory", |c| under(c, Setting::All)),
    ];
    size().into_iter().chain(surroundings()).chain(settings).collect()
}

/// Sweeps of the parent's size: memory, mappings, open files.
fn size() -> Vec<Sweep> {
    vec![
        MEMORY,
        Sweep {
            name: "mappings",
            title: "Mappings of the parent",
            about: "Many small mappings instead of much memory, as from libraries, mapped files and thread stacks.",
            x_title: "mappings added to the parent",
            unit: " mappings",
            of: |c| (Condition { mappings: 0, ..*c } == Condition::SMALL).then_some(c.mappings),
            tick: thousands,
            ..MEMORY
        },
        Sweep {
            name: "files",
            title: "Open files of the parent",
            about: "Close-on-exec files, such as the sockets of a server. A method that copies the file-descriptor table must close them all again.",
            x_title: "open files of the parent (close-on-exec)",
            unit: " open files",
            of: |c| (Condition { fds: 3, ..*c } == Condition::SMALL).then_some(c.fds),
            tick: thousands,
            ..MEMORY
        },
        Sweep {
            name: "files-pipes",
            title: "Open files, with three pipes to the child",
            about: "The same with the child's standard streams on pipes. Creating and closing the pipes is included in the time.",
            x_title: "open files of the parent (close-on-exec)",
            unit: " open files",
            of: |c| (Condition { fds: 3, pipes: 0, ..*c } == Condition::SMALL && c.pipes > 0).then_some(c.fds),
            tick: thousands,
            ..MEMORY
        },
        Sweep {
            name: "files-inherited",
            title: "Open files that the child inherits",
            about: "The same files, but not close-on-exec. By the rule of POSIX, most methods pass them all to the child, and so does \
                    forkless-inherit. The other methods of forkless pass none.",
            x_title: "open files of the parent (not close-on-exec)",
            unit: " open files",
            of: |c| {
                let plain = Condition { fds: 3, close_on_exec: true, ..*c } == Condition::SMALL;
                (plain && (!c.close_on_exec || *c == Condition::SMALL)).then_some(c.fds)
            },
            tick: thousands,
            ..MEMORY
        },
    ]
}

/// Sweeps of other properties: page faults, environment, PATH, threads.
fn surroundings() -> Vec<Sweep> {
    vec![
        Sweep {
            name: "faulting",
            title: "Page faults in other threads",
            about: "Other threads of the parent map, touch and unmap memory, and so contend for the locks that a launch may need.",
            x_title: "other threads causing page faults",
            unit: " faulting threads",
            of: |c| (Condition { faulting: 0, ..*c } == Condition::SMALL).then_some(c.faulting as u64),
            tick: thousands,
            ..MEMORY
        },
        Sweep {
            name: "environment",
            title: "Size of the environment",
            about: "A larger environment of the parent, which the child inherits. The kernel copies it at exec; some methods also copy it before.",
            x_title: "added to the environment",
            unit: " of environment",
            of: |c| (Condition { environment: 0, ..*c } == Condition::SMALL).then_some(c.environment),
            tick: |count| if count == 0 { "nothing".to_owned() } else { bytes(count) },
            ..MEMORY
        },
        Sweep {
            name: "path",
            title: "Search in PATH",
            about: "Other directories of PATH come before that of the program. With 0, the program is launched by its path.",
            x_title: "directories of PATH before that of the program",
            unit: " searched directories",
            of: |c| (Condition { path_misses: 0, ..*c } == Condition::SMALL).then_some(c.path_misses),
            tick: thousands,
            ..MEMORY
        },
        Sweep {
            name: "threads",
            title: "Threads that launch at once",
            about: "All threads launch as fast as they can. Higher is better in the first panel, lower in the second. A caller of vfork is woken \
                    at the exec and again at the exit, one of status() at the exit only. With more threads than CPUs another thread runs \
                    meanwhile, so CPU time alone limits all methods.",
            x_title: "threads",
            unit: " threads",
            of: |c| (Condition { threads: 1, ..*c } == Condition::SMALL).then_some(c.threads as u64),
            tick: thousands,
            metrics: RATES,
            values: rates,
            picture: 0,
        },
    ]
}

fn setting(name: &'static str, title: &'static str, of: fn(&Condition) -> Option<u64>) -> Sweep {
    let about = "With these settings of the child, other methods fall back to fork. The vfork baseline does not apply them; methods \
                 marked with * in the tables apply only some.";
    Sweep { name, title, about, of, ..MEMORY }
}

fn under(condition: &Condition, setting: Setting) -> Option<u64> {
    (Condition { parent_mib: 0, ..*condition } == Condition { setting, ..Condition::SMALL })
        .then_some(condition.parent_mib)
}

impl Sweep {
    /// `None` with fewer than two points.
    fn chart(&self, report: &Report) -> Option<Chart> {
        let mut conditions: Vec<Condition> =
            report.conditions().into_iter().filter(|condition| (self.of)(condition).is_some()).collect();
        conditions.sort_by_key(|condition| (self.of)(condition));
        conditions.dedup();
        let values: Vec<u64> = conditions.iter().filter_map(|c| (self.of)(c)).collect();
        let ticks: Vec<String> = values.iter().copied().map(self.tick).collect();
        let cells = cells_of(report, &conditions, self.values);
        let panels = lines(&ticks, &positions(&values), &self.metrics, &cells, self.x_title);
        let about = match values[..] {
            [0, first, _, ..] => {
                format!("{} The x axis is logarithmic, and linear below {}.", self.about, (self.tick)(first))
            }
            [_, _, _, ..] => format!("{} The x axis is logarithmic.", self.about),
            _ => self.about.to_owned(),
        };
        let finding = ticks
            .first()
            .zip(ticks.last())
            .and_then(|(first, last)| summary::trend(report, &conditions, (first, &format!("{last}{}", self.unit))));
        (ticks.len() > 1 && !panels.is_empty()).then(|| Chart {
            name: self.name,
            title: self.title,
            finding: finding.unwrap_or_else(|| self.title.to_owned()),
            about,
            panels,
            picture: self.picture,
            table: grid(ticks, &self.metrics, &cells),
        })
    }
}

/// The places of ascending values on an axis that is logarithmic, but linear between 0, if that is one of them, and the next value.
fn positions(values: &[u64]) -> Vec<f64> {
    let unit = values.iter().copied().find(|value| *value > 0).unwrap_or(1) as f64;
    let position = |value: f64| if value <= unit { value / unit } else { 1.0 + (value / unit).ln() };
    values.iter().map(|value| position(*value as f64)).collect()
}

/// Capture of the child's output.
fn output(report: &Report) -> Option<Chart> {
    let is_it = |c: &Condition| c.output > 0 && Condition { output: 0, ..*c } == Condition::SMALL;
    let conditions: Vec<Condition> = report.conditions().into_iter().filter(is_it).collect();
    let ticks: Vec<String> = conditions.iter().map(|condition| bytes(condition.output)).collect();
    let cells = cells_of(report, &conditions, totals);
    (!cells.is_empty()).then(|| Chart {
        name: "output",
        title: "Captured output",
        finding: most_of(report, &conditions, "Captured output"),
        about: "The parent reads all output of the child into memory.".to_owned(),
        panels: dots(&ticks, &TOTALS, &cells),
        picture: 0,
        table: grid(ticks, &TOTALS, &cells),
    })
}

/// The methods of the chart with warm programs, from left to right where the template pays off.
const WARM: [&str; 2] = ["forkless-warm", "posix_spawn"];

/// Programs that may be warm: a row for each, with its time from a template and its time by exec.
fn warm(report: &Report) -> Option<Chart> {
    let found: Vec<Condition> = report.conditions().into_iter().filter(|c| !c.program.is_empty()).collect();
    let ticks: Vec<String> = found.iter().map(|condition| condition.program.to_owned()).collect();
    let cells = cells_of(report, &found, totals);
    let mut rows = Vec::new();
    let mut gains = Vec::new();
    for (tick, program) in ticks.iter().enumerate() {
        let of = |launcher| cells.iter().find(|cell| cell.launcher == launcher && cell.tick == tick);
        let dot = |cell| Point { tail: None, ..point(cell, 0, &TOTALS[0], &TOTALS, &ticks) };
        let dots: Vec<Point> = WARM.into_iter().filter_map(of).map(dot).collect();
        let value = match &dots[..] {
            [warm, cold] => {
                gains.push(cold.value / warm.value);
                format!("{} → {}", Unit::Time.short(cold.value), Unit::Time.short(warm.value))
            }
            [one] => {
                format!("{} {}", Unit::Time.short(one.value), if one.launcher == WARM[0] { "warm" } else { "cold" })
            }
            _ => continue,
        };
        rows.push(DotRow { name: command_name(program).to_owned(), value, dots });
    }
    gains.sort_by(f64::total_cmp);
    let finding = match (gains.first(), gains.last()) {
        (Some(least), Some(most)) => {
            format!("From a template, programs start and end {least:.1} to {most:.1} × as fast as by posix_spawn")
        }
        _ => "Warm programs".to_owned(),
    };
    let title = "Total, median (log scale): cold by posix_spawn → warm".to_owned();
    let panel = Panel { title, x_title: "", unit: Unit::Time, body: Body::Dots(rows), span: (0.0, 0.0) };
    (!cells.is_empty()).then(|| Chart {
        name: "warm",
        title: "Warm programs",
        finding,
        about: "Real programs, executed (cold), and cloned from a template that the dynamic loader has loaded already (warm, \
                experimental). Their own run is part of the time."
            .to_owned(),
        panels: with_spans(vec![panel]),
        picture: 0,
        table: grid(ticks, &TOTALS, &cells),
    })
}

/// `git` of `/usr/bin/git --version`.
fn command_name(line: &str) -> &str {
    let path = line.split(' ').next().unwrap_or(line);
    path.rsplit('/').next().unwrap_or(path)
}

/// The result under the first of these conditions.
fn most_of(report: &Report, conditions: &[Condition], title: &str) -> String {
    let words = conditions.iter().find_map(|condition| summary::duel_words(report, condition));
    words.unwrap_or_else(|| title.to_owned())
}

/// Launches from tasks of a runtime.
fn tasks(report: &Report) -> Option<Chart> {
    let found: Vec<Condition> = report.conditions().into_iter().filter(|condition| condition.tasks > 0).collect();
    let words = |c: &Condition| match (c.output > 0, c.fds > Condition::SMALL.fds) {
        (true, _) => "with output captured".to_owned(),
        (false, true) => format!("with {} open files", thousands(c.fds)),
        (false, false) => "small parent".to_owned(),
    };
    let ticks: Vec<String> = found.iter().map(words).collect();
    let cells = cells_of(report, &found, rate_only);
    (!cells.is_empty()).then(|| Chart {
        name: "tasks",
        title: "Launches from tokio tasks",
        finding: most_of(report, &found, "Launches from tokio tasks"),
        about: "Tasks of one runtime launch concurrently, await the exit and launch again. Higher is better; there is no baseline."
            .to_owned(),
        panels: dots(&ticks, &RATE_ONLY, &cells),
        picture: 0,
        table: grid(ticks, &RATE_ONLY, &cells),
    })
}

/// The cost of an exit by the number of children.
fn alive(report: &Report) -> Option<Chart> {
    let mut counts: Vec<usize> = report.alive.iter().map(|row| row.children).collect();
    counts.sort_unstable();
    counts.dedup();
    let cell = |row: &AliveRow| Cell {
        launcher: row.waiter,
        tick: counts.iter().position(|count| *count == row.children).unwrap_or(0),
        n: row.n as u64,
        values: costs(row),
        marks: String::new(),
    };
    let cells: Vec<Cell> = report.alive.iter().map(cell).collect();
    let ticks: Vec<String> = counts.iter().map(|count| thousands(*count as u64)).collect();
    let values: Vec<u64> = counts.iter().map(|count| *count as u64).collect();
    let panels = lines(&ticks, &positions(&values), &CPU, &cells, "children alive");
    // A heading has no full stop.
    let finding = summary::waiting(&report.alive).map(|words| words.trim_end_matches('.').to_owned());
    (ticks.len() > 1 && !panels.is_empty()).then(|| Chart {
        name: "alive",
        title: "Exit of one of many children",
        finding: finding.unwrap_or_else(|| "Exit of one of many children".to_owned()),
        about:
            "The cost for the parent to find the child that ended. epoll is the baseline. The x axis is logarithmic."
                .to_owned(),
        panels,
        picture: 0,
        table: grid(ticks, &CPU, &cells),
    })
}

fn cells_of(report: &Report, conditions: &[Condition], values: fn(&Row) -> Vec<f64>) -> Vec<Cell> {
    let cell = |row: &Row| {
        let tick = conditions.iter().position(|condition| *condition == row.condition())?;
        let marks = super::table::marks(row);
        Some(Cell { launcher: row.launcher, tick, n: row.n, values: values(row), marks })
    };
    report.rows.iter().filter_map(cell).collect()
}

/// A panel for each metric, with a line for each launcher with at least two points. All times of a chart have one scale.
fn lines(ticks: &[String], at_ticks: &[f64], metrics: &[Metric], cells: &[Cell], x_title: &'static str) -> Vec<Panel> {
    let mut panels = Vec::new();
    for (at, metric) in metrics.iter().enumerate().filter(|(_, metric)| metric.drawn) {
        let mut lines = Vec::new();
        for launcher in super::plots::drawn() {
            let mut points: Vec<Point> = cells
                .iter()
                .filter(|cell| cell.launcher == launcher)
                .map(|cell| point(cell, at, metric, metrics, ticks))
                .filter(|point| point.value.is_finite())
                .collect();
            points.sort_by_key(|point| point.tick);
            // Some methods have a single point: engines have no large parent in a short run, and not all take part in all sweeps.
            if points.len() > 1 {
                lines.push(Line { launcher, points });
            }
        }
        if !lines.is_empty() {
            let body = Body::Lines { ticks: ticks.to_vec(), at: at_ticks.to_vec(), lines };
            panels.push(Panel { title: metric.title.to_owned(), x_title, unit: metric.unit, body, span: (0.0, 0.0) });
        }
    }
    with_spans(panels)
}

/// A panel for each tick and metric, with a dot for each launcher: the baseline, then the best first. The panels of a tick have one
/// order, by the last metric.
fn dots(ticks: &[String], metrics: &[Metric], cells: &[Cell]) -> Vec<Panel> {
    let mut panels = Vec::new();
    let by = metrics.iter().rposition(|metric| metric.drawn).unwrap_or(0);
    for (tick, words) in ticks.iter().enumerate() {
        let mut here: Vec<&Cell> = cells.iter().filter(|cell| cell.tick == tick).collect();
        here.sort_by(|a, b| {
            let ascending = a.values[by].total_cmp(&b.values[by]);
            let best = if metrics[by].unit == Unit::Rate { ascending.reverse() } else { ascending };
            is_bound(b.launcher).cmp(&is_bound(a.launcher)).then(best)
        });
        for (at, metric) in metrics.iter().enumerate().filter(|(_, metric)| metric.drawn) {
            let points =
                here.iter().map(|cell| point(cell, at, metric, metrics, ticks)).filter(|point| point.value.is_finite());
            let row = |point: Point| DotRow {
                name: shown(point.launcher).to_owned(),
                value: metric.unit.short(point.value),
                dots: vec![point],
            };
            let rows: Vec<DotRow> = points.map(row).collect();
            if rows.is_empty() {
                continue;
            }
            let title = if ticks.len() > 1 { format!("{words}: {}", metric.title) } else { metric.title.to_owned() };
            let span = (0.0, 0.0);
            panels.push(Panel { title, x_title: "", unit: metric.unit, body: Body::Dots(rows), span });
        }
    }
    if ticks.len() > 1 {
        panels.into_iter().flat_map(|panel| with_spans(vec![panel])).collect()
    } else {
        with_spans(panels)
    }
}

fn point(cell: &Cell, at: usize, metric: &Metric, metrics: &[Metric], ticks: &[String]) -> Point {
    let mut words = format!("{} · {}", shown(cell.launcher), ticks[cell.tick]);
    for (metric, value) in metrics.iter().zip(&cell.values).filter(|(_, value)| value.is_finite()) {
        let line = match metric.head.strip_suffix(" µs") {
            Some(name) => format!("\n{name} {} µs", exact(*value)),
            None => format!("\n{} {}", metric.head, exact(*value)),
        };
        words.push_str(&line);
    }
    words.push_str(&format!("\nn {}", thousands(cell.n)));
    let tail = metric.tail.map(|tail| cell.values[tail]);
    Point { launcher: cell.launcher, tick: cell.tick, value: cell.values[at], tail, words }
}

/// All digits of the record: 20,498.303.
pub(crate) fn exact(value: f64) -> String {
    let text = format!("{value}");
    match text.split_once('.') {
        Some((whole, part)) => format!("{}.{part}", thousands(whole.parse().unwrap_or(0))),
        None => thousands(value as u64),
    }
}

/// Gives all panels of a unit a common scale.
fn with_spans(mut panels: Vec<Panel>) -> Vec<Panel> {
    let values = |panel: &Panel| -> Vec<f64> {
        let both = |point: &Point| [Some(point.value), point.tail];
        let values: Vec<Option<f64>> = match &panel.body {
            Body::Lines { lines, .. } => lines.iter().flat_map(|line| &line.points).flat_map(both).collect(),
            Body::Dots(rows) => rows.iter().flat_map(|row| &row.dots).flat_map(both).collect(),
        };
        values.into_iter().flatten().filter(|value| value.is_finite()).collect()
    };
    for unit in [Unit::Time, Unit::Rate] {
        let all: Vec<f64> = panels.iter().filter(|panel| panel.unit == unit).flat_map(values).collect();
        let span = (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max));
        panels.iter_mut().filter(|panel| panel.unit == unit).for_each(|panel| panel.span = span);
    }
    panels
}

fn grid(groups: Vec<String>, metrics: &[Metric], cells: &[Cell]) -> Grid {
    let mut heads: Vec<&'static str> = metrics.iter().map(|metric| metric.head).collect();
    let floors = cells.iter().filter(|cell| super::plots::is_bound(cell.launcher)).count();
    // The ratio of the total to that of the baseline, if that was measured.
    let total = metrics.iter().position(|metric| metric.head == TOTAL.head).filter(|_| floors > 0);
    heads.extend(total.map(|_| "× vfork"));
    heads.push("n");
    // A method measured only at the first tick is left out: the chart of the small parent shows it.
    let is_part = |cell: &&Cell| {
        let of_it = cells.iter().filter(|other| other.launcher == cell.launcher).count();
        of_it > 1 || groups.len() == 1 || cell.tick > 0
    };
    let mut launchers: Vec<(&'static str, &str)> = Vec::new();
    for cell in cells.iter().filter(is_part) {
        match launchers.iter_mut().find(|(launcher, _)| *launcher == cell.launcher) {
            Some(entry) if entry.1.len() < cell.marks.len() => entry.1 = &cell.marks,
            Some(_) => {}
            None => launchers.push((cell.launcher, &cell.marks)),
        }
    }
    let or_dash = |value: &f64| if value.is_finite() { figure(*value) } else { "–".to_owned() };
    let group = |launcher: &str, tick: usize| -> Vec<String> {
        let find = |name: &str| cells.iter().find(|cell| cell.launcher == name && cell.tick == tick);
        let Some(cell) = find(launcher) else { return vec!["–".to_owned(); heads.len()] };
        let mut words: Vec<String> = cell.values.iter().map(or_dash).collect();
        if let Some(total) = total {
            let ratio = find("floor").map(|floor| format!("{:.2}", cell.values[total] / floor.values[total]));
            words.push(ratio.unwrap_or_else(|| "–".to_owned()));
        }
        words.push(thousands(cell.n));
        words
    };
    let row = |(launcher, marks): &(&'static str, &str)| {
        (format!("{}{marks}", shown(launcher)), (0..groups.len()).flat_map(|tick| group(launcher, tick)).collect())
    };
    let rows = launchers.iter().map(row).collect();
    Grid { groups, heads, rows }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::*;

    fn report() -> Report {
        let mut rows = Vec::new();
        for (parent_mib, fork) in [(0, 240.0), (100, 10_000.0), (1024, 104_000.0)] {
            let condition = Condition { parent_mib, ..Condition::SMALL };
            rows.push(row("floor", condition, 40.0, 80.0));
            rows.push(row("fork", condition, fork, fork + 60.0));
            rows.push(row("forkless-status", condition, 79.0, 79.0));
        }
        rows.push(row("go", Condition::SMALL, 50.0, 99.0));
        Report::new(Machine::read(), rows, Vec::new())
    }

    #[test]
    fn sweep_has_a_finding_and_panels_for_blocked_and_total() {
        let charts = charts(&report());
        assert_eq!(charts.iter().map(|chart| chart.name).collect::<Vec<_>>(), ["start", "memory", "small"]);
        let memory = &charts[1];
        assert_eq!(
            memory.finding,
            "From small to 1 GiB of memory: fork goes from 300 µs to 104.1 ms; forkless stays at 79.0 µs"
        );
        assert_eq!(memory.panels.len(), 2);
        assert!(memory.panels.iter().all(|panel| panel.span == (40.0, 104_060.0)), "one scale for all times");
        let Body::Lines { ticks, at, lines } = &memory.panels[0].body else { panic!("no lines") };
        assert_eq!(ticks, &["small", "100 MiB", "1 GiB"]);
        assert_eq!(at, &[0.0, 1.0, 1.0 + 10.24f64.ln()], "logarithmic, and linear below the first value");
        let mut names: Vec<&str> = lines.iter().map(|line| line.launcher).collect();
        names.sort_unstable();
        assert_eq!(names, ["floor", "fork", "forkless-status"], "one point is no line");
        assert!(lines.iter().all(|line| line.points.len() == 3));
        let fork = lines.iter().find(|line| line.launcher == "fork").expect("fork");
        assert_eq!(fork.points[2].value, 104_000.0);
        assert_eq!(fork.points[2].words, "fork · 1 GiB\nblocked 104,000 µs\ntotal 104,060 µs\np99 208,120 µs\nn 100");
    }

    #[test]
    fn table_has_marks_and_a_dash_for_missing_figures() {
        let mut report = report();
        let of = |charts: Vec<Chart>, name| charts.into_iter().find(|chart| chart.name == name).expect("a chart").table;
        let small = of(charts(&report), "small");
        let go = small.rows.iter().find(|(launcher, _)| launcher == "go").expect("go");
        assert_eq!(go.1, ["50.0", "99.0", "198", "–", "1.24", "100"]);

        let large = Condition { parent_mib: 1024, ..Condition::SMALL };
        report.rows.push(Row { lacks: Some("ids".to_owned()), ..row("go", large, 60.0, 99.0) });
        let memory = of(charts(&report), "memory");
        assert_eq!(memory.heads, ["blocked µs", "total µs", "p99 µs", "× vfork", "n"]);
        let go = memory.rows.iter().find(|(launcher, _)| launcher == "go *").expect("go with its mark");
        assert_eq!(go.1[4..11], ["100", "–", "–", "–", "–", "–", "60.0"]);
        let launchers: Vec<&str> = memory.rows.iter().map(|(launcher, _)| launcher.as_str()).collect();
        assert_eq!(launchers, ["vfork baseline", "fork", "forkless-status †", "go *"]);
    }

    #[test]
    fn first_chart_has_three_methods_for_each_process() {
        let charts = charts(&report());
        let Body::Dots(rows) = &charts[0].panels[0].body else { panic!("no dots") };
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let expected = ["From a small process", "fork + exec", "forkless", "From a process with 1 GiB of memory"];
        assert_eq!(names[..4], expected);
        assert_eq!((rows[4].value.as_str(), rows[5].value.as_str()), ("104.1 ms", "79.0 µs"));
    }

    #[test]
    fn warm_chart_has_all_programs_cold_and_warm() {
        let mut rows = Vec::new();
        for (program, cold, warm) in [("/bin/true", 500.0, Some(200.0)), ("/usr/bin/curl --version", 5_300.0, None)] {
            let condition = Condition { program, ..Condition::SMALL };
            rows.push(row("posix_spawn", condition, 40.0, cold));
            rows.extend(warm.map(|warm| row("forkless-warm", condition, 40.0, warm)));
        }
        let charts = charts(&Report::new(Machine::read(), rows, Vec::new()));
        assert_eq!(charts.len(), 1);
        assert_eq!(charts[0].finding, "From a template, programs start and end 2.5 to 2.5 × as fast as by posix_spawn");
        let Body::Dots(rows) = &charts[0].panels[0].body else { panic!("no dots") };
        let shown: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.value.as_str(), row.dots.len())).collect();
        assert_eq!(shown, [("true", "500 µs → 200 µs", 2), ("curl", "5,300 µs cold", 1)]);
        let svg = charts[0].svg(false).expect("svg");
        assert!(
            svg.matches(" µs\n</text>").count() + svg.matches(" ms\n</text>").count() > 3,
            "an axis with labels: {svg}"
        );
    }

    #[test]
    fn few_launches_have_no_tail() {
        let mut report = report();
        report.rows.iter_mut().filter(|row| row.launcher == "fork").for_each(|row| row.n = 99);
        let charts = charts(&report);
        let fork = charts[1].table.rows.iter().find(|(launcher, _)| launcher == "fork").expect("fork");
        assert_eq!(fork.1[2], "–");
        let Body::Dots(rows) = &charts[2].panels[1].body else { panic!("no dots") };
        let tails: Vec<(&str, bool)> = rows
            .iter()
            .flat_map(|row| &row.dots)
            .map(|dot| (dot.launcher, dot.tail.is_some_and(f64::is_finite)))
            .collect();
        assert_eq!(tails.iter().filter(|(launcher, has)| *has == (*launcher == "fork")).count(), 0, "{tails:?}");
        // The baseline is first, then the fastest method.
        let totals: Vec<f64> = rows.iter().flat_map(|row| &row.dots).map(|dot| dot.value).collect();
        assert!(tails[0].0 == "floor" && totals[1..].is_sorted() && totals.len() == 4, "{tails:?} {totals:?}");
    }

    #[test]
    fn children_alive_have_a_chart() {
        let row =
            |waiter, children, cpu_p50_us| AliveRow { waiter, children, cpu_p50_us, n: 100, ..AliveRow::default() };
        let rows = vec![row("epoll", 100, 5.0), row("epoll", 10_000, 5.5), row("wait-any", 100, 5.0)];
        let charts = charts(&Report::new(Machine::read(), Vec::new(), rows));
        assert_eq!(charts.iter().map(|chart| chart.name).collect::<Vec<_>>(), ["alive"]);
        assert_eq!(charts[0].table.groups, ["100", "10,000"]);
        assert_eq!(charts[0].table.rows[0].1[..2], ["5.0", "–"], "a p90 of 0 is none");
    }

    #[test]
    fn values_have_separators_and_units() {
        assert_eq!(exact(20_498.303), "20,498.303");
        assert_eq!(exact(17.25), "17.25");
        assert_eq!(exact(5_000.0), "5,000");
        assert_eq!(Unit::Time.tick(20_000.0), "20 ms");
        assert_eq!(Unit::Time.tick(1_500.0), "1.5 ms");
        assert_eq!(Unit::Time.short(38.04), "38.0 µs");
        assert_eq!(Unit::Time.short(20_498.3), "20.5 ms");
        assert_eq!(Unit::Rate.short(15_344.6), "15,345/s");
    }
}
