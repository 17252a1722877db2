//! The figures for people, on a terminal: one table per condition, what it comes to in words, and the targets.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

use super::{
    alive::AliveRow,
    conditions::Condition,
    record::{Report, Row},
    targets::Figure,
};

/// Heads of the columns, used by the page as well.
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
    "× floor",
    "launches/s",
    "CPU µs",
    "calls",
    "n",
];

/// A row in the words of [`HEADS`].
pub(crate) fn cells(row: &Row) -> [String; 14] {
    let marks = [(row.unlike.is_some(), " †"), (row.lacks.is_some(), " *")];
    let marks: String = marks.iter().filter_map(|(is_so, mark)| is_so.then_some(*mark)).collect();
    [
        format!("{}{marks}", row.launcher),
        figure(row.held_p50_us),
        figure(row.held_p90_us),
        figure(row.held_p99_us),
        figure(row.held_max_us),
        figure(row.total_p50_us),
        figure(row.total_p90_us),
        figure(row.total_p99_us),
        figure(row.total_max_us),
        row.ratio_to_floor.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
        figure(row.rate_per_s),
        figure(row.cpu_us),
        row.system_calls.map_or_else(|| "–".to_owned(), |calls| format!("{calls:.1}")),
        super::conditions::thousands(row.n),
    ]
}

/// Three or four digits that count: 82.4, 1,853.
pub(crate) fn figure(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { super::conditions::thousands(value.round() as u64) }
}

/// What the marked rows of a condition lack, a line each, and in what they are unlike the floor, a line for each way to be.
pub(crate) fn footnotes(report: &Report, condition: &Condition) -> Vec<String> {
    let mut ways: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in report.rows_of(condition) {
        let Some(unlike) = row.unlike.as_deref() else { continue };
        match ways.iter_mut().find(|(way, _)| *way == unlike) {
            Some((_, launchers)) => launchers.push(row.launcher),
            None => ways.push((unlike, vec![row.launcher])),
        }
    }
    let unlike =
        ways.into_iter().map(|(way, launchers)| format!("† other {way} than the floor: {}", launchers.join(", ")));
    let lacks = |row: &Row| Some(format!("* {} does less: without {}", row.launcher, row.lacks.as_ref()?));
    unlike.chain(report.rows_of(condition).filter_map(lacks)).collect()
}

/// All of it.
pub(crate) fn render(report: &Report, notes: &[String], colour: bool) -> String {
    let mut text = format!("{}\n", report.machine.words());
    for condition in report.conditions() {
        let _ = write!(text, "\n{}\n{}\n", headline(&condition), condition_table(report, &condition, colour));
        for line in footnotes(report, &condition) {
            let _ = writeln!(text, "  {line}");
        }
    }
    if !report.alive.is_empty() {
        let _ = write!(text, "\n{ALIVE_TITLE}\n{}\n", alive_table(&report.alive, colour));
    }
    let _ = writeln!(text, "\nIn short");
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

/// Heads of the table with many children alive.
pub(crate) const ALIVE_HEADS: [&str; 9] = [
    "waiter",
    "children",
    "CPU p50 µs",
    "CPU p99 µs",
    "× few",
    "latency p50 µs",
    "latency p99 µs",
    "bytes per child",
    "n",
];

/// A row in the words of [`ALIVE_HEADS`].
pub(crate) fn alive_cells(row: &AliveRow) -> [String; 9] {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    [
        row.waiter.to_owned(),
        super::conditions::thousands(row.children as u64),
        figure(row.cpu_p50_us),
        figure(row.cpu_p99_us),
        or_dash(row.ratio_to_few.map(|ratio| format!("{ratio:.2}"))),
        figure(row.latency_p50_us),
        figure(row.latency_p99_us),
        or_dash(row.parent_bytes.map(figure)),
        super::conditions::thousands(row.n as u64),
    ]
}

/// The title of that table.
pub(crate) const ALIVE_TITLE: &str = "One of many children ends: cost for the parent per exit";

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

/// The words of a condition as a title.
pub(crate) fn headline(condition: &Condition) -> String {
    let words = condition.words();
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => words,
    }
}

/// A line below the head, and nothing else.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// A table without rows.
pub(crate) fn new_table(colour: bool) -> Table {
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
    table.set_header(["figure", "found", "target", ""]);
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

/// One line per condition on who was fastest of those that did all that was asked for, then one per row in which we lose. By the median of the total time, with
/// threads by launches per second.
pub(crate) fn summary(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let mut losses = Vec::new();
    for condition in report.conditions() {
        let rows: Vec<&Row> = report.rows_of(&condition).filter(|row| row.is_rival()).collect();
        let (ours, theirs): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(|r| r.launcher.starts_with("forkless"));
        let (Some(best), Some(rival)) = (fastest(&ours), fastest(&theirs)) else { continue };
        let words = condition.words();
        let factor = speed(best) / speed(rival);
        lines.push(format!(
            "{}: {} {}; next is {} with {} ({}).",
            headline(&condition),
            best.launcher,
            pace(best),
            rival.launcher,
            pace(rival),
            comparison(factor),
        ));
        for row in ours {
            let loss = speed(rival) / speed(row);
            // Less than one percent is not a loss but noise.
            if loss > 1.01 {
                losses.push(format!("{} is {} slower than {} ({words})", row.launcher, percent(loss), rival.launcher));
            }
        }
    }
    if !lines.is_empty() {
        let lost = if losses.is_empty() { "none of these rows".to_owned() } else { losses.join("; ") };
        lines.push(format!("Where forkless loses to another way: {lost}."));
    }
    lines.extend(behind_the_floor(report));
    lines
}

/// Which of our rows are behind the floor, each launcher with its worst condition. Without those with settings or tasks, of
/// which the floor knows nothing.
fn behind_the_floor(report: &Report) -> Option<String> {
    let mut worst: Vec<(&str, f64, String)> = Vec::new();
    for condition in report.conditions().into_iter().filter(|condition| condition.has_floor()) {
        let floor = report.rows_of(&condition).find(|row| row.launcher == "floor")?;
        for row in report.rows_of(&condition).filter(|row| row.launcher.starts_with("forkless")) {
            let loss = speed(floor) / speed(row);
            match worst.iter_mut().find(|(launcher, ..)| *launcher == row.launcher) {
                Some(entry) if entry.1 >= loss => {}
                Some(entry) => *entry = (row.launcher, loss, condition.words()),
                None => worst.push((row.launcher, loss, condition.words())),
            }
        }
    }
    let behind = worst.iter().filter(|(_, loss, _)| *loss > 1.01);
    let words: Vec<String> =
        behind.map(|(launcher, loss, words)| format!("{launcher} by {} ({words})", percent(*loss))).collect();
    match (worst.is_empty(), words.is_empty()) {
        (true, _) => None,
        (_, true) => Some("Behind the floor: none of these rows.".to_owned()),
        _ => Some(format!("Behind the floor, at worst: {}.", words.join("; "))),
    }
}

/// Launches per second where threads compete, else the inverse of the median time.
fn speed(row: &Row) -> f64 {
    if row.threads > 1 || row.tasks > 0 { row.rate_per_s } else { 1e6 / row.total_p50_us }
}

fn fastest<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    rows.iter().copied().max_by(|a, b| speed(a).total_cmp(&speed(b)))
}

fn pace(row: &Row) -> String {
    if row.threads > 1 || row.tasks > 0 {
        format!("{} launches/s", figure(row.rate_per_s))
    } else {
        format!("{} µs", figure(row.total_p50_us))
    }
}

fn comparison(factor: f64) -> String {
    match factor {
        f if f >= 1.995 => format!("{} × as fast", figure(f)),
        f if f >= 1.0 => format!("{} faster", percent(f)),
        f => format!("{} slower", percent(1.0 / f)),
    }
}

fn percent(factor: f64) -> String {
    format!("{:.0} %", (factor - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::{super::machine::Machine, super::record::tests::row, super::settings::Setting, *};

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
    fn summary_says_who_wins_and_where_we_lose() {
        let lines = summary(&report());
        assert_eq!(lines[0], "Small parent: forkless-status 55.0 µs; next is posix_spawn with 110 µs (2.0 × as fast).");
        assert_eq!(
            lines[1],
            "4 threads at once: forkless-status 20,000 launches/s; next is posix_spawn with 40,000 launches/s (100 % slower)."
        );
        assert_eq!(
            lines[2],
            "Where forkless loses to another way: forkless-spawn is 10 % slower than posix_spawn (small parent); \
             forkless-status is 100 % slower than posix_spawn (4 threads at once)."
        );
        assert_eq!(lines.len(), 3, "no floor under one of the conditions: no comparison with it");
    }

    #[test]
    fn summary_says_what_is_behind_the_floor() {
        let crowd = Condition { threads: 4, ..Condition::SMALL };
        let rows = vec![
            row("floor", Condition::SMALL, 40.0, 80.0),
            row("forkless-spawn", Condition::SMALL, 50.0, 88.0),
            row("forkless-status", Condition::SMALL, 50.0, 79.0),
            row("floor", crowd, 40.0, 80.0),
            row("forkless-spawn", crowd, 50.0, 100.0),
        ];
        let line = behind_the_floor(&Report::new(Machine::read(), rows, Vec::new()));
        assert_eq!(line.as_deref(), Some("Behind the floor, at worst: forkless-spawn by 25 % (4 threads at once)."));
    }

    #[test]
    fn rows_that_do_less_are_marked_and_do_not_compete() {
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
            "Change of user: forkless-spawn 100 µs; next is fork with 200 µs (2.0 × as fast)."
        );
        assert_eq!(summary(&report).len(), 2, "no comparison with a floor that did less");
        let text = render(&report, &[], false);
        for part in [
            "floor *",
            "go *",
            "* go does less: without ids",
            "1.25",
            "forkless-spawn †",
            "† other fds than the floor: forkless-spawn",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn the_text_holds_every_row_and_no_colour_unless_wanted() {
        let report = report();
        let text = render(&report, &["1 instead of 2 files".to_owned()], false);
        assert_eq!(text.matches("posix_spawn  ").count(), 2, "{text}");
        assert!(text.contains("Note: 1 instead of 2 files."));
        assert!(!text.contains('\u{1b}'));
        assert!(render(&report, &[], true).contains('\u{1b}'));
    }

    #[test]
    fn figures_have_the_digits_that_count() {
        assert_eq!(figure(82.44), "82.4");
        assert_eq!(figure(99.97), "100");
        assert_eq!(figure(104_123.4), "104,123");
    }
}
