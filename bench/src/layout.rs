//! Text that fits the terminal: its width, wrapped paragraphs, and tables that leave out columns.

use std::io::{IsTerminal, stdout};

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

/// How to render the results as text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Maximum length of a line.
    pub(crate) width: usize,
    pub(crate) colour: bool,
    /// Add the project's own targets.
    pub(crate) targets: bool,
}

impl Layout {
    /// For standard output.
    pub(crate) fn of_stdout(targets: bool) -> Self {
        let is_terminal = stdout().is_terminal();
        let colour = is_terminal && std::env::var_os("NO_COLOR").is_none();
        let size = if is_terminal { rustix::termios::tcgetwinsize(stdout()).ok() } else { None };
        let columns = std::env::var("COLUMNS").ok();
        Self { width: choose_width(size.map(|size| size.ws_col), columns.as_deref()), colour, targets }
    }

    /// For a file: all columns, lines of any length.
    pub(crate) fn of_file(targets: bool) -> Self {
        Self { width: usize::MAX, colour: false, targets }
    }
}

/// The width of the terminal, else that of the variable `COLUMNS`, else 80; at least 60.
fn choose_width(terminal: Option<u16>, columns: Option<&str>) -> usize {
    let terminal = terminal.map(usize::from).filter(|width| *width > 0);
    let columns = columns.and_then(|text| text.trim().parse().ok()).filter(|width| *width > 0);
    terminal.or(columns).unwrap_or(80).max(60)
}

/// Breaks a paragraph into lines of at most `width` characters, with a newline after each. `first` and `rest` are put before the
/// first and the other lines. A word that is longer than a line is split.
pub(crate) fn wrap(first: &str, rest: &str, text: &str, width: usize) -> String {
    let room = width.saturating_sub(rest.chars().count().max(first.chars().count())).max(1);
    let letters = text.split_whitespace().map(|word| word.chars().collect::<Vec<char>>());
    let (mut lines, mut line, mut gap) = (String::new(), first.to_owned(), "");
    for word in letters.flat_map(|letters| letters.chunks(room).map(String::from_iter).collect::<Vec<_>>()) {
        if !gap.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines += &(line + "\n");
            (line, gap) = (rest.to_owned(), "");
        }
        line = line + gap + &word;
        gap = " ";
    }
    lines + &line + "\n"
}

/// A column of a table of rows `R`: its heading, which may have several lines, its rank, and the cell of a row. The columns with
/// the highest ranks are left out first if the table is too wide.
pub(crate) type Column<R> = (&'static str, u8, fn(&R) -> String);

/// The columns, in their order, that fit into `width` together with those of lower rank. The first is always one of them.
pub(crate) fn fitting<'a, R>(columns: &'a [Column<R>], rows: &[&R], width: usize) -> Vec<&'a Column<R>> {
    let needs = |(head, _, cell): &Column<R>| {
        let cells = rows.iter().map(|row| cell(row).chars().count());
        // The padding of a cell and the border on its right.
        head.lines().map(|line| line.chars().count()).chain(cells).max().unwrap_or(0) + 2
    };
    let mut by_rank: Vec<&Column<R>> = columns.iter().collect();
    by_rank.sort_by_key(|column| column.1);
    // The border on the left.
    let mut left = width.saturating_sub(1);
    // No column of higher rank, although it may be narrower: the rule must be simple to state.
    let fits = |column: &&&Column<R>| left.checked_sub(needs(column)).map(|rest| left = rest).is_some();
    let count = by_rank.iter().take_while(fits).count().max(1);
    let last = by_rank[..count].last().map_or(0, |column| column.1);
    columns.iter().filter(|column| column.1 <= last).collect()
}

/// A table of these columns, with a colour for each row. All columns but the first are aligned to the right.
pub(crate) fn table<R>(columns: &[&Column<R>], rows: &[&R], tint: impl Fn(&R) -> Option<Color>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|(head, ..)| head));
    let is_tinted = rows.iter().any(|row| tint(row).is_some());
    if is_tinted {
        table.enforce_styling()
    } else {
        table.force_no_tty()
    };
    for row in rows {
        let coloured = |cell: String| tint(row).map_or_else(|| Cell::new(&cell), |tint| Cell::new(&cell).fg(tint));
        table.add_row(columns.iter().map(|(.., cell)| coloured(cell(row))));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// A line below the headings, no other borders.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_is_that_of_the_terminal_then_of_the_variable() {
        assert_eq!(choose_width(Some(132), Some("90")), 132);
        assert_eq!(choose_width(None, Some("90")), 90);
        assert_eq!(choose_width(Some(0), Some(" 90 ")), 90);
        for columns in [None, Some(""), Some("wide"), Some("0"), Some("-1")] {
            assert_eq!(choose_width(None, columns), 80, "{columns:?}");
        }
        assert_eq!((choose_width(Some(12), None), choose_width(None, Some("1"))), (60, 60));
    }

    #[test]
    fn paragraphs_are_wrapped_and_long_words_split() {
        assert_eq!(wrap("- ", "  ", "one two three", 9), "- one two\n  three\n");
        assert_eq!(wrap("- ", "  ", "one", 80), "- one\n");
        assert_eq!(wrap("- ", "  ", "", 80), "- \n");
        assert_eq!(wrap("", "  ", "µµµµ abcdefghijk", 6), "µµµµ\n  abcd\n  efgh\n  ijk\n");
        let lines = wrap("- ", "  ", &"word longerword ".repeat(40), 31);
        assert!(lines.lines().all(|line| line.chars().count() <= 31), "{lines}");
    }

    #[test]
    fn columns_of_high_rank_are_left_out_first() {
        let columns: [Column<[&str; 4]>; 4] = [
            ("name", 0, |row| row[0].to_owned()),
            ("a", 2, |row| row[1].to_owned()),
            ("bb\nb", 1, |row| row[2].to_owned()),
            ("c", 3, |row| row[3].to_owned()),
        ];
        let row = ["longer", "12345", "1", "7"];
        let heads = |width| fitting(&columns, &[&row], width).iter().map(|column| column.0).collect::<Vec<_>>();
        assert_eq!(heads(1 + 8 + 7 + 4 + 3), ["name", "a", "bb\nb", "c"]);
        assert_eq!(heads(1 + 8 + 7 + 4 + 2), ["name", "a", "bb\nb"]);
        assert_eq!(heads(1 + 8 + 7 + 3), ["name", "bb\nb"]);
        assert_eq!(heads(1), ["name"]);
        let text = table(&fitting(&columns, &[&row], 80), &[&row], |_| None);
        assert!(text.lines().all(|line| line.chars().count() <= 1 + 8 + 7 + 4 + 3), "{text}");
    }
}
