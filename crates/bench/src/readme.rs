//! The figures in the README: three pictures and a table against the peers, from a record.

use std::{fmt::Write, fs, path::Path};

use anyhow::{Context, Result, ensure};

use super::{
    condition::Condition,
    record::{Report, write_to},
    rows::Row,
    summary,
    units::figure,
};

/// What stands around the figures.
const BEGIN: &str = "<!-- figures: written by `forkless bench report --readme` -->\n";
const END: &str = "<!-- end of figures -->\n";

/// The pictures, with their words for those who cannot see them.
const PICTURES: [(&str, &str); 3] = [
    ("memory", "Median time of a launch by memory of the parent, by each way"),
    ("files", "Median time of a launch by open files of the parent, by each way"),
    ("threads", "Launches per second by threads that launch at once, by each way"),
];

/// Ours that stand in the table: the whole range is in the record.
const OURS: [&str; 3] = ["forkless-spawn", "forkless-launch", "forkless-status"];

/// Writes the figures of a record, whose pictures are in `pictures`, between the marks of the file.
///
/// # Errors
/// When there are no marks, the pictures are not below the file's directory, or it cannot be written.
pub(crate) fn update(file: &Path, report: &Report, pictures: &Path) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let base = fs::canonicalize(file)?;
    let place = fs::canonicalize(pictures)?;
    let place = base.parent().and_then(|base| place.strip_prefix(base).ok());
    let place = place.and_then(Path::to_str).with_context(|| {
        format!("the pictures in {} are not below the directory of {}", pictures.display(), file.display())
    })?;
    write_to(file, &spliced(&text, &figures(report, place)?).with_context(|| format!("{}", file.display()))?)
}

fn spliced(text: &str, figures: &str) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("has no line {}", BEGIN.trim_end()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("has no line {}", END.trim_end()))?;
    Ok(format!("{before}{BEGIN}{figures}{END}{after}"))
}

/// A column: its head, its condition and what is taken from a row.
type Column = (String, Condition, fn(&Row) -> f64);

fn figures(report: &Report, place: &str) -> Result<String> {
    let mut text = String::new();
    for (name, words) in PICTURES {
        let _ = writeln!(text, "![{words}]({place}/{name}.png)\n");
    }
    let columns = columns(report);
    ensure!(columns.len() > 3, "the record has none of the sweeps");
    let heads: Vec<&str> = columns.iter().map(|(head, ..)| head.as_str()).collect();
    let _ = writeln!(text, "| µs | {} |\n| --- |{}", heads.join(" | "), " ---: |".repeat(heads.len()));
    let mut launchers: Vec<&str> = Vec::new();
    for row in report.rows_of(&Condition::SMALL).filter(|row| !row.is_ours() || OURS.contains(&row.launcher)) {
        launchers.push(row.launcher);
    }
    for launcher in launchers {
        let cell = |(_, condition, value): &Column| {
            let row = report.rows_of(condition).find(|row| row.launcher == launcher);
            row.map_or_else(|| "–".to_owned(), |row| figure(value(row)))
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        let _ = writeln!(text, "| `{launcher}` | {} |", cells.join(" | "));
    }
    let _ = writeln!(
        text,
        "\nThe floor is a `vfork`, an `execve` and a `wait4` in C. *Held* is the median time until the caller goes on; all else but \
         p99 is the median until the child has been reaped. Measured on {}. {}\n[All rows, versions, and where the others of ours lose]({place}) · [what each \
         launcher is](bench/FORMAT.md#launchers).",
        report.machine.place(),
        losses(report)
    );
    Ok(text)
}

/// The small parent, and the end of each sweep.
fn columns(report: &Report) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for condition in summary::telling(report) {
        if condition == Condition::SMALL {
            columns.push(("small process: held".to_owned(), condition, |row| row.held_p50_us));
            columns.push(("total".to_owned(), condition, |row| row.total_p50_us));
            columns.push(("total p99".to_owned(), condition, |row| row.total_p99_us));
        } else if condition.threads > 1 {
            columns.push((format!("{}: launches/s", condition.words()), condition, |row| row.rate_per_s));
        } else if condition.is_sweep_of_parent() {
            columns.push((condition.words(), condition, |row| row.total_p50_us));
        }
    }
    columns
}

/// Where those of ours that are in the table lose: what is worst is not left to the reader to find.
fn losses(report: &Report) -> String {
    let losses = summary::losses(report);
    let lost: Vec<String> = losses
        .iter()
        .filter(|loss| OURS.contains(&loss.launcher))
        .map(|loss| format!("`{}", loss.words().replacen(' ', "` ", 1)))
        .collect();
    match lost.len() {
        0 => "None of these three loses to another way in the record.".to_owned(),
        _ => format!("Where these lose to another way in the record, of all conditions: {}.", lost.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::*;

    #[test]
    fn the_block_is_replaced_and_nothing_else() {
        let text = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(spliced(&text, "new\n").expect("marks"), format!("before\n{BEGIN}new\n{END}after\n"));
        for broken in ["before", BEGIN, END] {
            assert!(spliced(broken, "new").is_err());
        }
    }

    #[test]
    fn the_table_has_the_rows_of_the_record() {
        let large = Condition { parent_mib: 1024, ..Condition::SMALL };
        let rows = vec![
            row("floor", Condition::SMALL, 20.0, 40.0),
            row("std", Condition::SMALL, 30.0, 60.0),
            row("forkless-prepared", Condition::SMALL, 30.0, 60.0),
            row("forkless-status", Condition::SMALL, 65.0, 65.0),
            row("floor", large, 20.0, 41.0),
            row("forkless-status", large, 66.0, 66.0),
        ];
        let text = figures(&Report::new(Machine::read(), rows, Vec::new()), "a/b").expect("figures");
        for line in [
            "![Median time of a launch by memory of the parent, by each way](a/b/memory.png)",
            "| µs | small process: held | total | total p99 | 1 GiB of memory |",
            "| `std` | 30.0 | 60.0 | 120 | – |",
            "| `forkless-status` | 65.0 | 65.0 | 130 | 66.0 |",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in {text}");
        }
        assert!(!text.contains("`forkless-prepared`"));
        assert!(text.contains("`forkless-status` in 1 of 1, at worst by 8 % (small parent, to std)"), "{text}");
    }
}
