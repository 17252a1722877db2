//! What the bench prints unless `--tables` is given: the headline and the summary, in at most [`MOST`] lines.

use super::{
    archive::Archived,
    condition::{Condition, headline},
    layout::{Layout, bullet, wrap},
    name::shown,
    record::Report,
    rows::Row,
    summary::{besides, comparison, duel, duel_words, losses, opening, pace, speed, telling},
    table::targets,
    units::{count, figure, thousands},
};

/// Maximum number of lines, with those that follow the digest.
const MOST: usize = 25;
/// Lines that are kept free for notes, if there are too many results.
const FOR_NOTES: usize = 4;
/// Methods that are named where forkless is not compared with others.
const NAMED: usize = 3;

/// The headline, the summary and the notes, then `end`. If they have more than [`MOST`] lines, less important conditions and further
/// notes are left out, and the last entry says how many and where they are: `elsewhere`. The targets, if requested, are additional.
pub(crate) fn digest(record: &Archived, layout: &Layout, elsewhere: &str, end: &str) -> String {
    let (report, width) = (&record.report, layout.width);
    let targets = if layout.targets { format!("\n{}", targets(&report.targets, layout)) } else { String::new() };
    let mut text = wrap("", "  ", &report.machine.place(), width) + "\n";
    if let Some(line) = finding(report) {
        let (on, off) = if layout.colour { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
        text.push_str(&format!("{on}{}{off}\n\n", wrap("", "", &line, width).trim_end()));
    }
    text.push_str(&wrap("", "  ", "Summary: median of each launch, forkless and the fastest alternative", width));
    let entries = |lines: Vec<String>| lines.iter().map(|line| bullet(line, width)).collect::<Vec<_>>();
    let (results, slower) = (entries(results(report)), entries(slower(report).into_iter().collect()));
    let notes = entries(distinct(&record.notes).map(|note| format!("Note: {note}.")).collect());
    let rest = |results: usize, notes: usize| {
        let counts = [(results, "result", "results"), (notes, "note", "notes")].into_iter().filter(|(n, ..)| *n > 0);
        let words: Vec<_> = counts.map(|(n, one, more)| count(n as u64, one, more)).collect();
        bullet(&format!("Not shown: {}; see {elsewhere}.", words.join(" and ")), width)
    };
    let mut room = MOST.saturating_sub([&*text, end, &slower.concat()].into_iter().map(lines).sum());
    if lines(&results.concat()) + lines(&notes.concat()) <= room {
        return text + &results.concat() + &slower.concat() + &notes.concat() + &targets + end;
    }
    room = room.saturating_sub(lines(&rest(results.len(), notes.len())));
    let kept = lines(&notes.concat()).min(FOR_NOTES);
    let (shown, left_out) = that_fit(&results, room.saturating_sub(kept));
    let (shown_notes, left_out_notes) = that_fit(&notes, room.saturating_sub(lines(&shown)));
    text + &shown + &slower.concat() + &shown_notes + &rest(left_out, left_out_notes) + &targets + end
}

/// The most important result in a sentence.
fn finding(report: &Report) -> Option<String> {
    let first = || telling(report).iter().find_map(|condition| duel_words(report, condition));
    opening(report).map(|opening| opening.finding).or_else(first).map(|finding| format!("{finding}."))
}

/// A line for each condition, the most important first, and other figures.
fn results(report: &Report) -> Vec<String> {
    let important = telling(report);
    let others = report.conditions().into_iter().filter(|condition| !important.contains(condition));
    let lines = |conditions: &[Condition]| -> Vec<String> {
        conditions.iter().filter_map(|condition| result(report, condition)).collect()
    };
    let waiting = report.alive.iter().max_by_key(|row| row.children).map(|row| row.children).and_then(|most| {
        let rows = report.alive.iter().filter(|row| row.children == most);
        let best = rows.min_by(|a, b| a.cpu_p50_us.total_cmp(&b.cpu_p50_us))?;
        let (children, cpu) = (thousands(most as u64), figure(best.cpu_p50_us));
        Some(format!(
            "Exit of one of {children} children: {cpu} µs of CPU time with {}, the fastest method.",
            best.waiter
        ))
    });
    let figures = besides(report);
    // The comparison with wait(2), if both were measured, says more.
    let waiting = waiting.filter(|_| !figures.iter().any(|line| line.contains("children alive")));
    [lines(&important), figures, waiting.into_iter().collect(), lines(&others.collect::<Vec<_>>())].concat()
}

/// The comparison under a condition, or the fastest methods if there is none.
fn result(report: &Report, condition: &Condition) -> Option<String> {
    let side = |row: &Row| format!("{} {}", shown(row.launcher), pace(row));
    let words = match duel(report, condition) {
        Some(duel) => format!("{}, {} ({})", pace(duel.best), side(duel.rival), comparison(duel.factor())),
        None => {
            let mut rows: Vec<&Row> = report.rows_of(condition).collect();
            rows.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
            rows.truncate(NAMED);
            rows.iter().map(|row| side(row)).collect::<Vec<_>>().join(", ")
        }
    };
    (!words.is_empty()).then(|| format!("{}: {words}.", headline(condition)))
}

/// How many methods of forkless are slower than the fastest alternative, and the worst case. `None` if nothing was compared.
fn slower(report: &Report) -> Option<String> {
    report.conditions().iter().find_map(|condition| duel(report, condition))?;
    let losses = losses(report);
    let worst = losses.iter().max_by(|a, b| a.factor.total_cmp(&b.factor));
    let words = worst.map_or_else(
        || "no method of forkless".to_owned(),
        |loss| {
            let methods = count(losses.len() as u64, "method", "methods");
            let worst = format!("{}, {}", loss.launcher, comparison(1.0 / loss.factor));
            format!("{methods} of forkless; at worst {worst} ({})", loss.worst)
        },
    );
    Some(format!("Slower than the fastest alternative under some condition: {words}."))
}

/// Each note once.
fn distinct(notes: &[String]) -> impl Iterator<Item = &String> {
    notes.iter().enumerate().filter(|(at, note)| !notes[..*at].contains(note)).map(|(_, note)| note)
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

    use super::super::archive;
    use super::*;

    const END: &str = "\nPage with plots and tables:\ntarget/bench/index.html\n";

    fn layout(width: usize) -> Layout {
        Layout { width, colour: false, targets: false }
    }

    fn full(notes: &[&str]) -> Archived {
        let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("record/2026-11-22");
        let mut record = archive::read(&record).expect("a record");
        record.notes = notes.iter().map(|note| (*note).to_owned()).collect();
        record
    }

    /// With all conditions and methods, with long notes and many.
    #[test]
    fn digest_has_at_most_25_lines_and_says_what_is_not_shown() {
        let path = "a/long/path/".repeat(50);
        let many: Vec<String> = (0..30).map(|number| format!("method {number} is not installed")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (notes, shown) in
            [(&[][..], None), (&["stopped after 3 rows", &path], Some("stopped")), (&many, Some("29"))]
        {
            for width in [60, 80, 200] {
                let text = digest(&full(notes), &layout(width), "--tables", END);
                assert!(text.lines().count() <= 25, "{}: {text}", text.lines().count());
                assert!(text.ends_with(END) && text.contains("Not shown: "), "{text}");
                assert!(
                    text.contains("- Small parent: ") && text.contains("Slower than the fastest alternative"),
                    "{text}"
                );
                assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
                if let Some(first) = shown.filter(|shown| *shown != "29") {
                    assert!(text.contains(first), "{text}");
                }
                assert_eq!(text.contains("method 0 is not"), notes.len() == many.len(), "{text}");
            }
        }
    }

    #[test]
    fn a_note_is_printed_once() {
        let text = digest(&full(&["one thing", "another", "one thing"]), &layout(200), "--tables", END);
        assert_eq!((text.matches("one thing").count(), text.matches("another").count()), (1, 1), "{text}");
    }

    #[test]
    fn methods_are_named_where_forkless_was_not_measured() {
        let mut record = full(&[]);
        record.report.rows.retain(|row| !row.is_ours() && row.condition() == Condition::SMALL);
        record.report.alive.clear();
        let text = digest(&record, &layout(80), "--tables", END);
        let line = text.lines().find(|line| line.starts_with("- Small parent: ")).expect("a result");
        assert!(line.matches(", ").count() + 1 == NAMED, "{text}");
        assert!(!text.contains("Slower") && !text.contains("Not shown"), "{text}");
    }
}
