//! Text that fits the terminal: its width, wrapped paragraphs, and tables that leave out columns.

use std::io::{IsTerminal, stdout};

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

/// The width if nothing else is known.
const USUAL_WIDTH: usize = 80;
/// The minimum: a narrower terminal is treated as this wide.
const LEAST_WIDTH: usize = 60;

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
    terminal.or(columns).unwrap_or(USUAL_WIDTH).max(LEAST_WIDTH)
}

/// Breaks a paragraph into lines of at most `width` characters, with a newline after each. `first` and `rest` are put before the
/// first and the other lines. A word that is longer than a line is split.
pub(crate) fn wrap(first: &str, rest: &str, text: &str, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), first.to_owned());
    let mut is_empty = true;
    let room = width.saturating_sub(rest.chars().count().max(first.chars().count())).max(1);
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(room) {
            if !is_empty && line.chars().count() + 1 + piece.len() > width {
                lines.push_str(&line);
                lines.push('\n');
                line = rest.to_owned();
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.extend(piece);
            is_empty = false;
        }
    }
    lines + &line + "\n"
}

/// An entry of a list: the lines after the first are indented.
pub(crate) fn bullet(text: &str, width: usize) -> String {
    wrap("- ", "  ", text, width)
}

/// A column of a table: its heading, which may have several lines, and its rank. The columns with the highest ranks are left out
/// first if the table is too wide.
pub(crate) type Column = (&'static str, u8);

/// The columns, in their order, that fit into `width` together with those of lower rank. The first is always one of them.
pub(crate) fn fitting<const N: usize>(columns: &[Column; N], rows: &[[String; N]], width: usize) -> Vec<usize> {
    let needs = |index: usize| {
        let cells = rows.iter().map(|row| row[index].as_str());
        // The padding of a cell and the border on its right.
        columns[index].0.lines().chain(cells).map(|text| text.chars().count()).max().unwrap_or(0) + 2
    };
    let mut by_rank: Vec<usize> = (0..N).collect();
    by_rank.sort_by_key(|index| columns[*index].1);
    // The border on the left.
    let mut left = width.saturating_sub(1);
    let mut fitting = Vec::new();
    for index in by_rank {
        match left.checked_sub(needs(index)) {
            Some(rest) => left = rest,
            None if fitting.is_empty() => left = 0,
            // No column of higher rank, although it may be narrower: the rule must be simple to state.
            None => break,
        }
        fitting.push(index);
    }
    fitting.sort_unstable();
    fitting
}

/// A table of the chosen columns, with a colour for each row. All columns but the first are aligned to the right.
pub(crate) fn table<const N: usize>(
    columns: &[Column; N],
    chosen: &[usize],
    rows: &[([String; N], Option<Color>)],
    colour: bool,
) -> String {
    let mut table = new_table(colour);
    table.set_header(chosen.iter().map(|index| columns[*index].0));
    for (cells, tint) in rows {
        table.add_row(chosen.iter().map(|index| match tint {
            Some(tint) => Cell::new(&cells[*index]).fg(*tint),
            None => Cell::new(&cells[*index]),
        }));
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

/// An empty table.
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
        assert_eq!(bullet("one two three", 9), "- one two\n  three\n");
        assert_eq!(bullet("one", 80), "- one\n");
        assert_eq!(bullet("", 80), "- \n");
        assert_eq!(wrap("", "  ", "µµµµ abcdefghijk", 6), "µµµµ\n  abcd\n  efgh\n  ijk\n");
        let lines = wrap("- ", "  ", &"word longerword ".repeat(40), 31);
        assert!(lines.lines().all(|line| line.chars().count() <= 31), "{lines}");
    }

    #[test]
    fn columns_of_high_rank_are_left_out_first() {
        let columns = [("name", 0), ("a", 2), ("bb\nb", 1), ("c", 3)];
        let rows = [["longer", "12345", "1", "7"].map(str::to_owned)];
        let all = fitting(&columns, &rows, 1 + 8 + 7 + 4 + 3);
        assert_eq!(all, [0, 1, 2, 3]);
        assert_eq!(fitting(&columns, &rows, 1 + 8 + 7 + 4 + 2), [0, 1, 2]);
        assert_eq!(fitting(&columns, &rows, 1 + 8 + 7 + 3), [0, 2]);
        assert_eq!(fitting(&columns, &rows, 1), [0]);
        let text = table(&columns, &all, &rows.map(|row| (row, None)), false);
        assert!(text.lines().all(|line| line.chars().count() <= 1 + 8 + 7 + 4 + 3), "{text}");
    }
}
