//! The results as text: one table per condition, the summary, and the targets.

use std::fmt::Write;

use comfy_table::Color;

use super::{
    condition::{Condition, headline},
    layout::{Column, Layout, bullet, fitting, table, wrap},
    name::shown,
    record::Report,
    rows::{AliveRow, Row, enough},
    summary::summary,
    targets::Figure,
    units::figure,
};

/// Column headings of the page.
pub(crate) const HEADS: [&str; 14] = [
    "method",
    "blocked p50 µs",
    "p90",
    "p99",
    "max",
    "total p50 µs",
    "p90",
    "p99",
    "max",
    "× vfork",
    "launches/s",
    "CPU µs",
    "calls",
    "n",
];

/// The same for the text.
const COLUMNS: [Column; 14] = [
    ("launcher", 0),
    ("blocked\np50", 3),
    ("blocked\np90", 12),
    ("blocked\np99", 8),
    ("blocked\nmax", 10),
    ("total\np50", 1),
    ("total\np90", 11),
    ("total\np99", 4),
    ("total\nmax", 9),
    ("×\nvfork", 2),
    ("launches\nper s", 6),
    ("CPU", 5),
    ("calls", 7),
    ("n", 13),
];

/// The cells of a row, in the order of [`HEADS`].
pub(crate) fn cells(row: &Row) -> [String; 14] {
    [
        format!("{}{}", shown(row.launcher), marks(row)),
        figure(row.held_p50_us),
        or_dash(row.held_p90_us),
        tail(row.n, row.held_p99_us),
        or_dash(row.held_max_us),
        figure(row.total_p50_us),
        or_dash(row.total_p90_us),
        tail(row.n, row.total_p99_us),
        or_dash(row.total_max_us),
        row.ratio_to_floor.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
        figure(row.rate_per_s),
        figure(row.cpu_us),
        row.system_calls.map_or_else(|| "–".to_owned(), |calls| format!("{calls:.1}")),
        super::units::thousands(row.n),
    ]
}

/// Older records have zeroes for figures that were not measured yet.
fn or_dash(value: f64) -> String {
    if value > 0.0 { figure(value) } else { "–".to_owned() }
}

/// A 99th percentile of `n` values.
fn tail(n: u64, value: f64) -> String {
    enough(n, value).map_or_else(|| "–".to_owned(), figure)
}

/// The marks after the name of a row, which [`footnotes`] explain.
pub(crate) fn marks(row: &Row) -> String {
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
    let unlike = ways
        .into_iter()
        .map(|(way, launchers)| format!("† differs from the vfork baseline in {way}: {}", launchers.join(", ")));
    let lacks = |row: &Row| Some(format!("* {} does not apply: {}", shown(row.launcher), row.lacks.as_ref()?));
    unlike.chain(report.rows_of(condition).filter_map(lacks)).collect()
}

/// The lines above the tables.
const LEGEND: [&str; 4] = [
    "blocked: time until the call returns to the caller; total: until the child has been waited for. Times and CPU are in µs, p50 is the median.",
    "× vfork: total p50 relative to the vfork baseline (vfork, execve, wait4 in C), whose name in options and records is \"floor\"",
    "calls: system calls per launch; n: number of launches; launches/s: n by the time of the turns",
    "† and *: see below each table",
];

/// All tables and the summary.
pub(crate) fn render(report: &Report, notes: &[String], layout: &Layout) -> String {
    let width = layout.width;
    let mut text = wrap("", "", &report.machine.words(), width) + "\n";
    LEGEND.iter().for_each(|line| text.push_str(&wrap("", "  ", line, width)));
    // The same columns in each table.
    let rows: Vec<_> = report.rows.iter().map(cells).collect();
    let chosen = fitting(&COLUMNS, &rows, width);
    text.push_str(&left_out(&COLUMNS, &chosen, width));
    for condition in report.conditions() {
        let _ = write!(text, "\n{}", wrap("", "  ", &headline(&condition), width));
        let rows: Vec<_> = report.rows_of(&condition).map(|row| (cells(row), tint(row))).collect();
        text.push_str(&table(&COLUMNS, &chosen, &rows, layout.colour));
        for line in footnotes(report, &condition) {
            text.push_str(&wrap("  ", "    ", &line, width));
        }
    }
    if !report.alive.is_empty() {
        let rows: Vec<_> = report.alive.iter().map(|row| (alive_cells(row), alive_tint(row))).collect();
        let chosen = fitting(&ALIVE_COLUMNS, &rows.iter().map(|(cells, _)| cells.clone()).collect::<Vec<_>>(), width);
        let _ = write!(text, "\n{}", wrap("", "  ", ALIVE_TITLE, width));
        text.push_str(&left_out(&ALIVE_COLUMNS, &chosen, width));
        text.push_str(&table(&ALIVE_COLUMNS, &chosen, &rows, layout.colour));
    }
    let _ = writeln!(text, "\nSummary");
    for line in summary(report) {
        text.push_str(&bullet(&line, width));
    }
    for note in notes {
        text.push_str(&bullet(&format!("Note: {note}."), width));
    }
    if layout.targets && !report.targets.is_empty() {
        let _ = write!(text, "\n{}", targets(&report.targets, layout));
    }
    text
}

fn tint(row: &Row) -> Option<Color> {
    match row.launcher {
        "floor" => Some(Color::Yellow),
        _ => row.is_ours().then_some(Color::Green),
    }
}

/// Names the columns for which the lines are too short.
fn left_out(columns: &[Column], chosen: &[usize], width: usize) -> String {
    let left = columns.iter().enumerate().filter(|(index, _)| !chosen.contains(index));
    let names: Vec<String> = left.map(|(_, (head, _))| head.replace('\n', " ")).collect();
    if names.is_empty() {
        return String::new();
    }
    let text = format!("Columns for a wider terminal, also in table.txt: {}", names.join(", "));
    wrap("", "  ", &text, width)
}

/// Column headings of the table with many children alive, on the page.
pub(crate) const ALIVE_HEADS: [&str; 13] = [
    "waiter",
    "children",
    "CPU p50 µs",
    "p90",
    "p99",
    "max",
    "× few",
    "latency p50 µs",
    "p90",
    "p99",
    "max",
    "bytes per child",
    "n",
];

/// The same for the text.
const ALIVE_COLUMNS: [Column; 13] = [
    ("waiter", 0),
    ("children", 1),
    ("CPU\np50", 2),
    ("CPU\np90", 10),
    ("CPU\np99", 6),
    ("CPU\nmax", 8),
    ("×\nfew", 3),
    ("latency\np50", 4),
    ("latency\np90", 11),
    ("latency\np99", 7),
    ("latency\nmax", 9),
    ("bytes per\nchild", 5),
    ("n", 12),
];

/// The cells of a row, in the order of [`ALIVE_HEADS`].
pub(crate) fn alive_cells(row: &AliveRow) -> [String; 13] {
    let if_any = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    [
        row.waiter.to_owned(),
        super::units::thousands(row.children as u64),
        figure(row.cpu_p50_us),
        or_dash(row.cpu_p90_us),
        tail(row.n as u64, row.cpu_p99_us),
        or_dash(row.cpu_max_us),
        if_any(row.ratio_to_few.map(|ratio| format!("{ratio:.2}"))),
        figure(row.latency_p50_us),
        or_dash(row.latency_p90_us),
        tail(row.n as u64, row.latency_p99_us),
        or_dash(row.latency_max_us),
        if_any(row.parent_bytes.map(figure)),
        super::units::thousands(row.n as u64),
    ]
}

/// The title of that table.
pub(crate) const ALIVE_TITLE: &str = "Exit of one of many children: cost for the parent";

fn alive_tint(row: &AliveRow) -> Option<Color> {
    row.waiter.starts_with("forkless").then_some(Color::Green)
}

/// The targets as a list, since most names of figures are long.
pub(crate) fn targets(figures: &[Figure], layout: &Layout) -> String {
    let mut text = wrap("", "  ", "Targets (ratios of medians of this run)", layout.width);
    let _ = writeln!(text, "          measured  target    figure");
    for figure in figures {
        let (verdict, colour) = if figure.met { ("met", "32") } else { ("NOT met", "31") };
        let numbers = format!("{:>10.3}  {:<8}", figure.value, target_words(figure));
        let first = format!("{verdict:<8}{numbers}  ");
        let lines = wrap(&first, &" ".repeat(first.chars().count()), &figure.figure, layout.width);
        if layout.colour {
            text.push_str(&lines.replacen(verdict, &format!("\u{1b}[{colour}m{verdict}\u{1b}[0m"), 1));
        } else {
            text.push_str(&lines);
        }
    }
    text
}

/// "≤ 1.05".
pub(crate) fn target_words(figure: &Figure) -> String {
    let sign = if figure.relation == "<=" { "≤" } else { "≥" };
    format!("{sign} {:.2}", figure.target)
}

#[cfg(test)]
mod tests {
    use super::super::contestant::Contestant;
    use super::super::crowd::Exit;
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::super::setting::Setting;
    use super::*;

    const WIDE: Layout = Layout { width: usize::MAX, colour: false, targets: true };

    fn report() -> Report {
        let small = Condition::SMALL;
        let crowd = Condition { threads: 4, ..small };
        let rows = vec![
            row("floor", small, 40.0, 80.0),
            row("posix_spawn", small, 60.0, 110.0),
            row("forkless-spawn", small, 50.0, 121.0),
            row("forkless-status", small, 55.0, 55.0),
            row("posix_spawn", crowd, 60.0, 100.0),
            row("forkless-status", crowd, 200.0, 200.0),
        ];
        Report::new(Machine::read(), rows, Vec::new())
    }

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
        assert_eq!(
            summary(&report)[0],
            "Change of user: forkless-spawn 100 µs, fastest alternative fork 200 µs (2.0 × as fast)."
        );
        assert_eq!(summary(&report).len(), 2, "no comparison with a baseline that did less");
        let text = render(&report, &[], &WIDE);
        for part in [
            "vfork baseline *",
            "go *",
            "* go does not apply: ids",
            "1.25",
            "forkless-spawn †",
            "† differs from the vfork baseline in fds: forkless-spawn",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn text_has_every_row_and_colour_only_on_request() {
        let report = report();
        let text = render(&report, &["1 instead of 2 files".to_owned()], &WIDE);
        assert_eq!(text.matches("posix_spawn  ").count(), 2, "{text}");
        assert!(text.contains("Note: 1 instead of 2 files."));
        assert!(!text.contains('\u{1b}'));
        assert!(render(&report, &[], &Layout { colour: true, ..WIDE }).contains('\u{1b}'));
    }

    #[test]
    fn figures_that_an_older_record_lacks_are_dashes() {
        let exits: Vec<Exit> = (1..=100).map(|n| Exit { cpu_ns: n * 100, latency_ns: n * 1_000 }).collect();
        let row = AliveRow::new("epoll", 100, &exits);
        let heads = |row: &AliveRow| ALIVE_HEADS.into_iter().zip(alive_cells(row)).skip(2).collect::<Vec<_>>();
        let shown = |cells: [&str; 11]| -> Vec<(&str, String)> {
            ALIVE_HEADS.into_iter().skip(2).zip(cells.map(str::to_owned)).collect()
        };
        assert_eq!(heads(&row), shown(["5.0", "9.0", "9.9", "10.0", "–", "50.0", "90.0", "99.0", "100", "–", "100"]));
        let zero = AliveRow { cpu_p90_us: 0.0, cpu_max_us: 0.0, latency_p90_us: 0.0, latency_max_us: 0.0, ..row };
        assert_eq!(heads(&zero), shown(["5.0", "–", "9.9", "–", "–", "50.0", "–", "99.0", "–", "–", "100"]));
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

    #[test]
    fn figures_have_three_significant_digits() {
        assert_eq!(figure(82.44), "82.4");
        assert_eq!(figure(99.97), "100");
        assert_eq!(figure(104_123.4), "104,123");
    }
}
