//! The summary as text: in at most [`MOST`] lines, or with everything.

use std::fmt::Write;

use super::{
    layout::{Layout, wrap},
    record::Report,
    summary::{finding, results, shortfalls, slower},
    units::count,
};

/// Maximum number of lines of the digest, with those that follow it.
const MOST: usize = 25;
/// Lines that are kept free for notes, if there are too many results.
const FOR_NOTES: usize = 4;
const TITLE: &str = "Summary: the fastest method of forkless and the fastest alternative, medians";

/// The headline, the summary and the notes, then `end`. If they have more than [`MOST`] lines, less important conditions and further
/// notes are left out, and the last entry says how many and where they are: `elsewhere`. The targets, if requested, are additional.
pub(crate) fn digest(report: &Report, notes: &[String], layout: &Layout, elsewhere: &str, end: &str) -> String {
    let width = layout.width;
    let mut text = wrap("", "  ", &report.machine.describe_computer(), width) + "\n";
    if let Some(line) = finding(report) {
        let (on, off) = if layout.colour { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
        let _ = writeln!(text, "{on}{}{off}\n", wrap("", "", &line, width).trim_end());
    }
    text += &wrap("", "  ", TITLE, width);
    let entries = |lines: Vec<String>| lines.iter().map(|line| wrap("- ", "  ", line, width)).collect::<Vec<_>>();
    let (results, slower) = (entries(results(report)), entries(slower(report).into_iter().collect()).concat());
    let notes = entries(distinct(notes).iter().map(|note| format!("Note: {note}")).collect());
    let not_shown = |results: usize, notes: usize| {
        let mut words = vec![count(results as u64, "result", "results"), count(notes as u64, "note", "notes")];
        words.retain(|words| !words.starts_with("0 "));
        let line = wrap("- ", "  ", &format!("Not shown: {}; see {elsewhere}.", words.join(" and ")), width);
        if words.is_empty() { String::new() } else { line }
    };
    let (mut room, mut kept) = (MOST.saturating_sub([&*text, end, &slower].into_iter().map(lines).sum()), 0);
    if lines(&results.concat()) + lines(&notes.concat()) > room {
        room = room.saturating_sub(lines(&not_shown(results.len(), notes.len())));
        kept = lines(&notes.concat()).min(FOR_NOTES);
    }
    let (shown, left_out) = that_fit(&results, room.saturating_sub(kept));
    let (shown_notes, left_out_notes) = that_fit(&notes, room.saturating_sub(lines(&shown)));
    text + &shown + &slower + &shown_notes + &not_shown(left_out, left_out_notes) + &targets(report, layout) + end
}

/// The whole summary: all results, all cases in which forkless is slower, and the notes, with their headings.
pub(crate) fn lists(report: &Report, notes: &[String]) -> Vec<(&'static str, Vec<String>)> {
    let mut lists = vec![(TITLE, results(report))];
    lists.extend(shortfalls(report));
    lists.push(("Notes", distinct(notes)));
    lists.retain(|(_, lines)| !lines.is_empty());
    lists
}

/// The whole summary as text, with the targets, if requested.
pub(crate) fn full(report: &Report, notes: &[String], layout: &Layout) -> String {
    let mut text = String::new();
    for (title, lines) in lists(report, notes) {
        text += &format!("\n{}", wrap("", "  ", title, layout.width));
        lines.iter().for_each(|line| text += &wrap("- ", "  ", line, layout.width));
    }
    text + &targets(report, layout)
}

/// Each note once.
fn distinct(notes: &[String]) -> Vec<String> {
    let is_first = |at: &usize| !notes[..*at].contains(&notes[*at]);
    (0..notes.len()).filter(is_first).map(|at| format!("{}.", notes[at])).collect()
}

/// The targets as a list, since most names of figures are long; empty if not requested.
fn targets(report: &Report, layout: &Layout) -> String {
    if !layout.targets || report.targets.is_empty() {
        return String::new();
    }
    let mut text = "\nTargets (ratios of medians of this run)\n          measured  target    figure\n".to_owned();
    for figure in &report.targets {
        let (verdict, colour) = if figure.met { ("met", "32") } else { ("NOT met", "31") };
        let first = format!("{verdict:<8}{:>10.3}  {:<8}  ", figure.value, figure.goal());
        let lines = wrap(&first, &" ".repeat(first.chars().count()), &figure.figure, layout.width);
        let tinted = format!("\u{1b}[{colour}m{verdict}\u{1b}[0m");
        text += &if layout.colour { lines.replacen(verdict, &tinted, 1) } else { lines };
    }
    text
}

fn lines(text: &str) -> usize {
    text.lines().count()
}

/// The entries for which `room` lines are enough, and the number of the others.
fn that_fit(entries: &[String], room: usize) -> (String, usize) {
    let (mut text, mut left_out) = (String::new(), 0);
    for entry in entries {
        if lines(&text) + lines(entry) <= room {
            text.push_str(entry);
        } else {
            left_out += 1;
        }
    }
    (text, left_out)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::condition::Condition;
    use super::*;

    const END: &str = "\nPage with plots and tables:\ntarget/bench/index.html\n";

    fn layout(width: usize) -> Layout {
        Layout { width, colour: false, targets: false }
    }

    fn record() -> Report {
        Report::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("record/2026-11-22")).expect("a record")
    }

    /// With all conditions and methods, with long notes and many.
    #[test]
    fn digest_has_at_most_25_lines_and_says_what_is_not_shown() {
        let report = record();
        let long = ["stopped after 3 rows".to_owned(), "a/long/path/".repeat(50)];
        let many: Vec<String> = (0..30).map(|number| format!("method {number} is not installed")).collect();
        for (notes, shown) in [(&[][..], ""), (&long, "stopped after 3"), (&many, "method 0 is not")] {
            for width in [60, 80, 200] {
                let text = digest(&report, notes, &layout(width), "--tables", END);
                assert!(text.lines().count() <= 25, "{}: {text}", text.lines().count());
                assert!(text.ends_with(END) && text.contains("Not shown: ") && text.contains(shown), "{text}");
                assert!(text.contains("- Small parent: ") && text.contains("Slower than the fastest"), "{text}");
                assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            }
        }
        let text = full(&report, &many, &Layout { targets: true, ..layout(80) });
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in ["method 29 is not", "Slower than the vfork baseline", "99th percentile", "Targets", "NOT met"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn a_note_is_printed_once() {
        let notes = ["one thing", "another", "one thing"].map(str::to_owned);
        let text = digest(&record(), &notes, &layout(200), "--tables", END);
        assert_eq!((text.matches("one thing").count(), text.matches("another").count()), (1, 1), "{text}");
    }

    #[test]
    fn methods_are_named_where_forkless_was_not_measured() {
        let mut report = record();
        report.rows.retain(|row| !row.is_ours() && row.condition() == Condition::SMALL);
        report.alive.clear();
        let text = digest(&report, &[], &layout(80), "--tables", END);
        let line = text.lines().find(|line| line.starts_with("- Small parent: ")).expect("a result");
        assert!(line.matches(", ").count() == 2, "three methods: {text}");
        assert!(!text.contains("Slower") && !text.contains("Not shown"), "{text}");
    }
}
