//! The figures in the README: one picture and one table, from a record.

use std::{fmt::Write, fs, path::Path};

use anyhow::{Context, Result, ensure};

use super::{
    condition::Condition,
    properties::PROPERTIES,
    record::{Report, write_to},
    rows::Row,
    summary::{Loss, behind_a_rival},
    units::figure,
};

/// The marks around the figures.
const BEGIN: &str = "<!-- figures: written by `forkless bench report --readme` -->\n";
const END: &str = "<!-- end of figures -->\n";

/// The methods beside ours: their names in the record, and the heads of their columns.
const METHODS: [(&str, &str); 6] = [
    ("floor", "vfork baseline"),
    ("fork", "`fork`"),
    ("posix_spawn", "`posix_spawn`"),
    ("std", "Rust std"),
    ("cpython", "Python"),
    ("node-spawn", "Node"),
];

/// The methods of forkless in the table: the others are in the record.
const LAUNCH: &str = "forkless-launch";
const STATUS: &str = "forkless-status";

/// Writes the figures of a record, whose pictures are in `pictures`, between the marks of the file.
///
/// # Errors
/// If the file has no marks or cannot be written, or the pictures are not below its directory.
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

fn figures(report: &Report, place: &str) -> Result<String> {
    let mut text = String::new();
    let words = "Median time of a launch by open files of the calling process, for each method";
    let _ = writeln!(
        text,
        "<picture>\n<source media=\"(prefers-color-scheme: dark)\" srcset=\"{place}/files-dark.svg\">\n\
         <img alt=\"{words}\" src=\"{place}/files.svg\">\n</picture>\n"
    );
    let heads = METHODS.map(|(_, head)| head).join(" | ");
    let _ = writeln!(
        text,
        "| launching process, µs | {heads} | forkless |\n| --- |{} ---: |",
        " ---: |".repeat(METHODS.len())
    );
    let mut lines = vec![("small process, until the call returns".to_owned(), Condition::SMALL)];
    lines.push(("small process".to_owned(), Condition::SMALL));
    lines.extend(others(report).map(|condition| (condition.describe(), condition)));
    ensure!(lines.len() > 2, "the record has none of the sweeps");
    for (index, (head, condition)) in lines.iter().enumerate() {
        let (ours, figure_of): (_, fn(&Row) -> f64) =
            if index == 0 { (LAUNCH, |row| row.held_p50_us) } else { (STATUS, |row| row.total_p50_us) };
        let cell = |launcher: &str| {
            let row = report.rows_of(condition).find(|row| row.launcher == launcher && row.lacks.is_none());
            row.map_or_else(|| "–".to_owned(), |row| figure(figure_of(row)))
        };
        let cells: Vec<String> = METHODS.iter().map(|(launcher, _)| cell(launcher)).collect();
        let _ = writeln!(text, "| {head} | {} | {} |", cells.join(" | "), cell(ours));
    }
    let _ = writeln!(
        text,
        "\nMedian times of launching a static program that only exits. `–`: not measured, or the method cannot do it.\n\
         First row: until the call returns; for forkless, [`launch()`](docs/gotchas.md#a-failure-to-start-is-reported-late).\n\
         Other rows: until the child has been reaped; for forkless, `status()`. The baseline is `vfork`, `execve` and `wait4` in C.\n\
         Measured on {}.\n{}\n[All figures]({place}) · [the methods](bench/FORMAT.md#launchers) · \
         [how they are measured](bench/METHODOLOGY.md) · [reasons to distrust them](bench/BIAS.md).",
        report.machine.describe_computer(),
        losses(report)
    );
    Ok(text)
}

/// The largest parent, the one with the most open files, and a change of user in a large one.
fn others(report: &Report) -> impl Iterator<Item = Condition> {
    let wanted = PROPERTIES.iter().filter(|property| ["memory", "files", "settings-user"].contains(&property.name));
    let ends = wanted.filter_map(|property| property.conditions(report).last().copied());
    ends.filter(|condition| *condition != Condition::SMALL)
}

/// Where the methods of forkless that are in the table lose, with the worst case.
fn losses(report: &Report) -> String {
    let Some(losses) = behind_a_rival(report) else { return "Other methods were not measured.".to_owned() };
    let shown = losses.iter().filter(|loss| [LAUNCH, STATUS].contains(&loss.launcher)).map(Loss::describe);
    let lost: Vec<String> = shown.map(|words| format!("`{}", words.replacen(' ', "` ", 1))).collect();
    match lost.len() {
        0 => "No other method has a total time that is clearly shorter, under any condition of the record.".to_owned(),
        _ => format!("Where another method has a shorter total time: {}.", lost.join("; ")),
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
            row("forkless-launch", Condition::SMALL, 9.0, 60.0),
            row("forkless-status", Condition::SMALL, 65.0, 65.0),
            row("floor", large, 20.0, 41.0),
            row("forkless-status", large, 66.0, 66.0),
        ];
        let text = figures(&Report::new(Machine::read(), rows, Vec::new()), "a/b").expect("figures");
        for line in [
            "<source media=\"(prefers-color-scheme: dark)\" srcset=\"a/b/files-dark.svg\">",
            "<img alt=\"Median time of a launch by open files of the calling process, for each method\" src=\"a/b/files.svg\">",
            "| launching process, µs | vfork baseline | `fork` | `posix_spawn` | Rust std | Python | Node | forkless |",
            "| small process, until the call returns | 20.0 | – | – | 30.0 | – | – | 9.0 |",
            "| small process | 40.0 | – | – | 60.0 | – | – | 65.0 |",
            "| 1 GiB of memory | 41.0 | – | – | – | – | – | 66.0 |",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in {text}");
        }
        assert!(!text.contains("`forkless-prepared`"));
        assert!(
            text.contains("`forkless-status` in 1 of 1 condition, at worst 8 % slower (small parent, to std)"),
            "{text}"
        );
    }
}
