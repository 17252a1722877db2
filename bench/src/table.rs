//! The results as tables: their columns, and the text with one table per condition.

use std::fmt::Write;

use comfy_table::Color;

use super::{
    condition::{Condition, headline},
    digest,
    layout::{Column, Layout, fitting, table, wrap},
    name::shown,
    record::Report,
    rows::{AliveRow, Row, enough},
    units::{figure, thousands},
};

/// The columns of the methods under a condition.
pub(crate) const COLUMNS: [Column<Row>; 14] = [
    ("launcher", 0, |row| format!("{}{}", shown(row.launcher), marks(row))),
    ("blocked\np50", 3, |row| figure(row.held_p50_us)),
    ("blocked\np90", 12, |row| figure(row.held_p90_us)),
    ("blocked\np99", 8, |row| or_dash(enough(row.n, row.held_p99_us).map(figure))),
    ("blocked\nmax", 10, |row| figure(row.held_max_us)),
    ("total\np50", 1, |row| figure(row.total_p50_us)),
    ("total\np90", 11, |row| figure(row.total_p90_us)),
    ("total\np99", 4, |row| or_dash(enough(row.n, row.total_p99_us).map(figure))),
    ("total\nmax", 9, |row| figure(row.total_max_us)),
    ("×\nvfork", 2, |row| ratio(row.ratio_to_floor)),
    ("launches\nper s", 6, |row| figure(row.rate_per_s)),
    ("CPU", 5, |row| figure(row.cpu_us)),
    ("calls", 7, |row| or_dash(row.system_calls.map(figure))),
    ("n", 13, |row| thousands(row.n)),
];

/// The columns of the methods to wait for one of many children.
pub(crate) const ALIVE_COLUMNS: [Column<AliveRow>; 13] = [
    ("waiter", 0, |row| row.waiter.to_owned()),
    ("children", 1, |row| thousands(row.children as u64)),
    ("CPU\np50", 2, |row| figure(row.cpu_p50_us)),
    ("CPU\np90", 10, |row| figure(row.cpu_p90_us)),
    ("CPU\np99", 6, |row| or_dash(enough(row.n as u64, row.cpu_p99_us).map(figure))),
    ("CPU\nmax", 8, |row| figure(row.cpu_max_us)),
    ("×\nfew", 3, |row| ratio(row.ratio_to_few)),
    ("latency\np50", 4, |row| figure(row.latency_p50_us)),
    ("latency\np90", 11, |row| figure(row.latency_p90_us)),
    ("latency\np99", 7, |row| or_dash(enough(row.n as u64, row.latency_p99_us).map(figure))),
    ("latency\nmax", 9, |row| figure(row.latency_max_us)),
    ("bytes per\nchild", 5, |row| or_dash(row.parent_bytes.map(figure))),
    ("n", 12, |row| thousands(row.n as u64)),
];

/// The title of the table with [`ALIVE_COLUMNS`].
pub(crate) const ALIVE_TITLE: &str = "Exit of one of many children: cost for the parent";

fn or_dash(words: Option<String>) -> String {
    words.unwrap_or_else(|| "–".to_owned())
}

fn ratio(value: Option<f64>) -> String {
    or_dash(value.map(|value| format!("{value:.2}")))
}

/// The marks after the name of a row, which [`footnotes`] explain.
fn marks(row: &Row) -> String {
    let marks = [(row.unlike.is_some(), " †"), (row.lacks.is_some(), " *")];
    marks.iter().filter_map(|(is_so, mark)| is_so.then_some(*mark)).collect()
}

/// Explains the marked rows of a condition: how they differ from the vfork baseline, and what they do not do.
pub(crate) fn footnotes(report: &Report, condition: &Condition) -> Vec<String> {
    let mut ways: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in report.rows_of(condition) {
        let Some(unlike) = row.unlike.as_deref() else { continue };
        match ways.iter_mut().find(|(way, _)| *way == unlike) {
            Some((_, launchers)) => launchers.push(shown(row.launcher)),
            None => ways.push((unlike, vec![shown(row.launcher)])),
        }
    }
    let unlike =
        |(way, names): (&str, Vec<&str>)| format!("† differs from the vfork baseline in {way}: {}", names.join(", "));
    let lacks = |row: &Row| Some(format!("* {} does not apply: {}", shown(row.launcher), row.lacks.as_ref()?));
    ways.into_iter().map(unlike).chain(report.rows_of(condition).filter_map(lacks)).collect()
}

/// The lines above the tables.
pub(crate) const LEGEND: [&str; 4] = [
    "blocked: time until the call returns to the caller; total: until the child has been waited for. Times and CPU are in µs, p50 is the median.",
    "× vfork: total p50 relative to the vfork baseline (vfork, execve, wait4 in C), whose name in options and records is \"floor\"",
    "calls: system calls per launch; n: number of launches; launches/s: n by the time of the turns",
    "† and *: see below each table",
];

/// All tables and the whole summary.
pub(crate) fn render(report: &Report, notes: &[String], layout: &Layout) -> String {
    let width = layout.width;
    let mut text = wrap("", "", &report.machine.describe(), width) + "\n";
    LEGEND.iter().for_each(|line| text += &wrap("", "  ", line, width));
    // The same columns in each table.
    let chosen = fitting(&COLUMNS, &report.rows.iter().collect::<Vec<_>>(), width);
    text += &left_out(&COLUMNS, &chosen, width);
    let tint = |name: &str| match name {
        "floor" => layout.colour.then_some(Color::Yellow),
        name => (layout.colour && name.starts_with("forkless")).then_some(Color::Green),
    };
    for condition in report.conditions() {
        let _ = write!(text, "\n{}", wrap("", "  ", &headline(&condition), width));
        let rows: Vec<&Row> = report.rows_of(&condition).collect();
        text += &table(&chosen, &rows, |row| tint(row.launcher));
        footnotes(report, &condition).iter().for_each(|line| text += &wrap("  ", "    ", line, width));
    }
    if !report.alive.is_empty() {
        let rows: Vec<&AliveRow> = report.alive.iter().collect();
        let chosen = fitting(&ALIVE_COLUMNS, &rows, width);
        let _ = write!(text, "\n{}", wrap("", "  ", ALIVE_TITLE, width));
        text += &left_out(&ALIVE_COLUMNS, &chosen, width);
        text += &table(&chosen, &rows, |row| tint(row.waiter));
    }
    text + &digest::full(report, notes, layout)
}

/// Names the columns for which the lines are too short.
fn left_out<R>(columns: &[Column<R>], chosen: &[&Column<R>], width: usize) -> String {
    let left = columns.iter().filter(|column| chosen.iter().all(|other| other.1 != column.1));
    let names: Vec<String> = left.map(|(head, ..)| head.replace('\n', " ")).collect();
    if names.is_empty() {
        return String::new();
    }
    let text = format!("Columns for a wider terminal, also in table.txt: {}", names.join(", "));
    wrap("", "  ", &text, width)
}

#[cfg(test)]
mod tests {
    use super::super::contestant::Contestant;
    use super::super::crowd::Exit;
    use super::super::machine::Machine;
    use super::super::record::tests::{report, row};
    use super::super::setting::Setting;
    use super::*;

    const WIDE: Layout = Layout { width: usize::MAX, colour: false, targets: true };

    #[test]
    fn rows_that_do_less_are_marked_and_not_compared() {
        let user = Condition { setting: Setting::User, ..Condition::SMALL };
        let less = |launcher, total| Row { lacks: Some("ids".to_owned()), ..row(launcher, user, 40.0, total) };
        let rows = vec![
            less("floor", 80.0),
            less("go", 50.0),
            row("fork", user, 99.0, 200.0),
            row("forkless-spawn", user, 50.0, 100.0),
        ];
        let report = Report::new(Machine::read(), rows, Vec::new());
        let text = render(&report, &[], &WIDE);
        for part in [
            "vfork baseline *",
            "go *",
            "* go does not apply: ids",
            "1.25",
            "forkless-spawn †",
            "† differs from the vfork baseline in fds: forkless-spawn",
            "Change of user: forkless-spawn 100 µs, fork 200 µs (2.0 × as fast).",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(!text.contains("Slower than the vfork baseline"), "it did less: {text}");
    }

    #[test]
    fn text_has_every_row_and_colour_only_on_request() {
        let report = report();
        let text = render(&report, &["1 instead of 2 files".to_owned()], &WIDE);
        assert_eq!(text.matches("posix_spawn  ").count(), 2, "{text}");
        assert!(text.contains("- 1 instead of 2 files."));
        assert!(!text.contains('\u{1b}'));
        assert!(render(&report, &[], &Layout { colour: true, ..WIDE }).contains('\u{1b}'));
    }

    /// All methods with their marks, long notes, and large figures.
    #[test]
    fn no_line_is_longer_than_the_width() {
        let user = Condition { setting: Setting::All, parent_mib: 8192, fds: 60_000, ..Condition::SMALL };
        let mut rows: Vec<Row> = Contestant::ALL.iter().map(|c| row(c.name(), user, 123_456.0, 1_234_567.0)).collect();
        rows.iter_mut().for_each(|row| row.lacks = Some("ids, limits, namespaces".to_owned()));
        rows.extend(Contestant::ALL.iter().map(|c| row(c.name(), Condition::SMALL, 81.0, 91.0)));
        let exits: Vec<Exit> = (1..=100).map(|n| Exit { cpu_ns: n * 100_000, latency_ns: n * 1_000_000 }).collect();
        let alive = [100, 30_000].map(|children| AliveRow::new("forkless-wait-set", children, &exits));
        let report = Report::new(Machine::read(), rows, alive.to_vec());
        let notes = vec![format!("no rows of node: {}", "a/long/path".repeat(20)), "word ".repeat(60)];
        let mut columns = Vec::new();
        for width in [60, 80, 100, 132, 200] {
            let text = render(&report, &notes, &Layout { width, ..WIDE });
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{} of {width} columns: {line}", line.chars().count());
            }
            let head = text.lines().find(|line| line.contains("launcher ")).expect("a table").to_owned();
            columns.push(head.split_whitespace().count());
            assert!(text.contains("p50") && text.contains("NOT met") && text.contains("forkless-wait-set"), "{text}");
        }
        assert!(columns.is_sorted() && columns.first() < columns.last(), "{columns:?}");
    }
}
