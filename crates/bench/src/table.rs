//! The results as text: one table per condition, the summary, and the targets.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

use super::{
    condition::{Condition, headline},
    record::Report,
    rows::{AliveRow, Row},
    summary::summary,
    targets::Figure,
    units::figure,
};

/// Column headings, also used by the page.
pub(crate) const HEADS: [&str; 14] = [
    "launcher",
    "held p50 µs",
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

/// The cells of a row, in the order of [`HEADS`].
pub(crate) fn cells(row: &Row) -> [String; 14] {
    [
        format!("{}{}", row.launcher, marks(row)),
        figure(row.held_p50_us),
        or_dash(row.held_p90_us),
        figure(row.held_p99_us),
        or_dash(row.held_max_us),
        figure(row.total_p50_us),
        or_dash(row.total_p90_us),
        figure(row.total_p99_us),
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
            Some((_, launchers)) => launchers.push(row.launcher),
            None => ways.push((unlike, vec![row.launcher])),
        }
    }
    let unlike = ways
        .into_iter()
        .map(|(way, launchers)| format!("† differs from the vfork baseline in {way}: {}", launchers.join(", ")));
    let lacks = |row: &Row| Some(format!("* {} does not apply: {}", row.launcher, row.lacks.as_ref()?));
    unlike.chain(report.rows_of(condition).filter_map(lacks)).collect()
}

/// The lines above the tables.
const LEGEND: &str = "\
held: time until the caller continues; total: until the child has been waited for
× vfork: total p50 relative to \"floor\", the vfork baseline (vfork, execve, wait4 in C)
calls: system calls per launch; n: number of launches; † and *: see below each table
";

/// All tables and the summary.
pub(crate) fn render(report: &Report, notes: &[String], colour: bool) -> String {
    let mut text = format!("{}\n\n{LEGEND}", report.machine.words());
    for condition in report.conditions() {
        let _ = write!(text, "\n{}\n{}\n", headline(&condition), condition_table(report, &condition, colour));
        for line in footnotes(report, &condition) {
            let _ = writeln!(text, "  {line}");
        }
    }
    if !report.alive.is_empty() {
        let _ = write!(text, "\n{ALIVE_TITLE}\n{}\n", alive_table(&report.alive, colour));
    }
    let _ = writeln!(text, "\nSummary");
    for line in summary(report) {
        let _ = writeln!(text, "- {line}");
    }
    for note in notes {
        let _ = writeln!(text, "- Note: {note}.");
    }
    if !report.targets.is_empty() {
        let _ = write!(text, "\nTargets (ratios of medians of this run)\n{}\n", target_table(&report.targets, colour));
    }
    text
}

/// Column headings of the table with many children alive.
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

/// The cells of a row, in the order of [`ALIVE_HEADS`].
pub(crate) fn alive_cells(row: &AliveRow) -> [String; 13] {
    let if_any = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    [
        row.waiter.to_owned(),
        super::units::thousands(row.children as u64),
        figure(row.cpu_p50_us),
        or_dash(row.cpu_p90_us),
        figure(row.cpu_p99_us),
        or_dash(row.cpu_max_us),
        if_any(row.ratio_to_few.map(|ratio| format!("{ratio:.2}"))),
        figure(row.latency_p50_us),
        or_dash(row.latency_p90_us),
        figure(row.latency_p99_us),
        or_dash(row.latency_max_us),
        if_any(row.parent_bytes.map(figure)),
        super::units::thousands(row.n as u64),
    ]
}

/// The title of that table.
pub(crate) const ALIVE_TITLE: &str = "Exit of one of many children: cost for the parent";

fn alive_table(rows: &[AliveRow], colour: bool) -> Table {
    let mut table = new_table(colour);
    table.set_header(ALIVE_HEADS);
    for row in rows {
        let tint = row.waiter.starts_with("forkless").then_some(Color::Green);
        table.add_row(alive_cells(row).map(|text| match tint {
            Some(tint) => Cell::new(text).fg(tint),
            None => Cell::new(text),
        }));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A line below the headings, no other borders.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// An empty table.
pub fn new_table(colour: bool) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    if colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

fn condition_table(report: &Report, condition: &Condition, colour: bool) -> Table {
    let mut table = new_table(colour);
    table.set_header(HEADS);
    for row in report.rows_of(condition) {
        let tint = match row.launcher {
            "floor" => Some(Color::Yellow),
            name if name.starts_with("forkless") => Some(Color::Green),
            _ => None,
        };
        table.add_row(cells(row).map(|text| match tint {
            Some(tint) => Cell::new(text).fg(tint),
            None => Cell::new(text),
        }));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn target_table(figures: &[Figure], colour: bool) -> Table {
    let mut table = new_table(colour);
    table.set_header(["figure", "measured", "target", ""]);
    for figure in figures {
        let (verdict, tint) = if figure.met { ("met", Color::Green) } else { ("NOT met", Color::Red) };
        table.add_row([
            Cell::new(&figure.figure),
            Cell::new(format!("{:.3}", figure.value)).set_alignment(CellAlignment::Right),
            Cell::new(target_words(figure)).set_alignment(CellAlignment::Right),
            Cell::new(verdict).fg(tint),
        ]);
    }
    table
}

/// "≤ 1.05".
pub(crate) fn target_words(figure: &Figure) -> String {
    let sign = if figure.relation == "<=" { "≤" } else { "≥" };
    format!("{sign} {:.2}", figure.target)
}

#[cfg(test)]
mod tests {
    use super::super::crowd::Exit;
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::super::setting::Setting;
    use super::*;

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
        let text = render(&report, &[], false);
        for part in [
            "floor *",
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
        let text = render(&report, &["1 instead of 2 files".to_owned()], false);
        assert_eq!(text.matches("posix_spawn  ").count(), 2, "{text}");
        assert!(text.contains("Note: 1 instead of 2 files."));
        assert!(!text.contains('\u{1b}'));
        assert!(render(&report, &[], true).contains('\u{1b}'));
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

    #[test]
    fn figures_have_three_significant_digits() {
        assert_eq!(figure(82.44), "82.4");
        assert_eq!(figure(99.97), "100");
        assert_eq!(figure(104_123.4), "104,123");
    }
}
