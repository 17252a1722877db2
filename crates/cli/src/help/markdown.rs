//! From the Markdown of our documents to man pages: paragraphs, lists, tables and code, in the macros of man(7).

use std::iter::Peekable;

use roff::{Inline, Roff, bold, italic, roman};

/// Longer source lines are hard to read and to compare; mandoc(1) warns of them.
const LONGEST: usize = 60;

/// Words in one font each.
pub(super) type Words = Vec<(Font, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Font {
    Roman,
    Bold,
    Italic,
}

/// Adds a document. Its headings become sections.
pub(super) fn document(page: &mut Roff, text: &str) {
    // The first paragraph of a section begins without a request.
    let mut is_first = true;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let heading = line.strip_prefix("## ").map(|title| ("SH", title.to_uppercase()));
        let heading = heading.or_else(|| line.strip_prefix("### ").map(|title| ("SS", title.to_owned())));
        let is_heading = heading.is_some();
        if let Some((request, title)) = heading {
            page.control(request, [title.as_str()]);
        } else if line.starts_with("```") {
            code(page, lines.by_ref().take_while(|line| !line.starts_with("```")));
        } else if line.starts_with('|') {
            table(page, line, &mut lines);
        } else if let Some(item) = line.strip_prefix("- ") {
            page.control("IP", ["\\(bu", "2"]);
            paragraph(page, &joined(item, &mut lines));
        } else {
            if !is_first {
                page.control("PP", []);
            }
            paragraph(page, &joined(line, &mut lines));
        }
        is_first = is_heading;
    }
}

/// The lines of a paragraph or of an item as one.
fn joined<'a>(first: &'a str, lines: &mut Peekable<impl Iterator<Item = &'a str>>) -> String {
    let mut text = first.to_owned();
    let begins_another = |line: &&str| line.is_empty() || line.starts_with(['|', '#', '`']) || line.starts_with("- ");
    while let Some(line) =
        lines.next_if(|line| !begins_another(line) || line.starts_with('`') && !line.starts_with("```"))
    {
        text.push(' ');
        text += line.trim();
    }
    text
}

fn code<'a>(page: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    page.control("PP", []).control("RS", ["4"]).control("EX", []);
    for line in lines {
        // An empty line would end the example in some formatters.
        page.text([roman(if line.is_empty() { "\u{a0}" } else { line })]);
    }
    page.control("EE", []).control("RE", []);
}

/// Each row as a tagged paragraph: man(7) has no tables, and tbl(1) is not everywhere.
fn table<'a>(page: &mut Roff, header: &str, lines: &mut Peekable<impl Iterator<Item = &'a str>>) {
    let titles = cells(header);
    while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
        let row = cells(row);
        if row.iter().all(|cell| cell.chars().all(|letter| letter == '-' || letter == ':')) {
            continue;
        }
        tag(page, &split_words(row.first().map_or("", String::as_str)));
        for (number, cell) in row.iter().enumerate().skip(1).filter(|(_, cell)| !cell.is_empty()) {
            if number > 1 {
                page.control("br", []);
            }
            let title = titles.get(number).filter(|title| row.len() > 2 && !title.is_empty());
            paragraph(page, &title.map_or_else(|| cell.clone(), |title| format!("{title}: {cell}")));
        }
    }
}

fn cells(row: &str) -> Vec<String> {
    // A vertical bar inside a cell is escaped.
    let row = row.trim().trim_matches('|').replace("\\|", "\u{1}");
    row.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
}

/// The first line of a tagged paragraph.
pub(super) fn tag(page: &mut Roff, words: &Words) {
    page.control("TP", []).text(words.iter().map(|(font, word)| inline(*font, word)).collect::<Vec<_>>());
}

/// A paragraph of Markdown.
pub(super) fn paragraph(page: &mut Roff, text: &str) {
    fill(page, &split_words(text));
}

/// Paragraphs of plain text.
pub(super) fn plain(page: &mut Roff, text: &str) {
    for (number, part) in text.split("\n\n").filter(|part| !part.is_empty()).enumerate() {
        if number > 0 {
            page.control("IP", []);
        }
        fill(page, &vec![(Font::Roman, part.replace('\n', " "))]);
    }
}

/// Breaks the text into short source lines, which the formatter fills again.
fn fill(page: &mut Roff, words: &Words) {
    let (mut line, mut width) = (Vec::new(), 0);
    for (font, text) in words {
        let mut rest = text.as_str();
        // The break takes the place of a space.
        while width + rest.len() > LONGEST {
            let room = LONGEST.saturating_sub(width).min(rest.len());
            let fits = rest.char_indices().rfind(|(place, letter)| *letter == ' ' && *place <= room);
            let Some((place, _)) = fits.or_else(|| rest.char_indices().find(|(_, letter)| *letter == ' ')) else {
                break;
            };
            line.push(inline(*font, &rest[..place]));
            page.text(std::mem::take(&mut line));
            (rest, width) = (&rest[place + 1..], 0);
        }
        line.push(inline(*font, rest));
        // With the escapes of the font.
        width += rest.len() + if *font == Font::Roman { 0 } else { 8 };
    }
    page.text(line);
}

fn inline(font: Font, text: &str) -> Inline {
    match font {
        Font::Roman => roman(text),
        Font::Bold => bold(text),
        Font::Italic => italic(text),
    }
}

/// Code is bold, as man-pages(7) has commands and options; of a link only the text remains.
fn split_words(text: &str) -> Words {
    let mut words = Words::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '[', '*']) {
        let (before, from) = rest.split_at(at);
        let found = marked(from, "`", "`", Font::Bold)
            .or_else(|| marked(from, "**", "**", Font::Bold))
            .or_else(|| marked(from, "*", "*", Font::Italic))
            .or_else(|| link(from));
        words.push((Font::Roman, before.to_owned()));
        match found {
            Some((word, after)) => {
                words.push(word);
                rest = after;
            }
            None => {
                words.push((Font::Roman, from[..1].to_owned()));
                rest = &from[1..];
            }
        }
    }
    words.push((Font::Roman, rest.to_owned()));
    words.retain(|(_, word)| !word.is_empty());
    words
}

type Marked<'a> = Option<((Font, String), &'a str)>;

fn marked<'a>(text: &'a str, open: &str, close: &str, font: Font) -> Marked<'a> {
    let (inside, after) = text.strip_prefix(open)?.split_once(close)?;
    (!inside.is_empty()).then(|| ((font, inside.to_owned()), after))
}

fn link(text: &str) -> Marked<'_> {
    let (inside, after) = text.strip_prefix('[')?.split_once("](")?;
    let (_, after) = after.split_once(')')?;
    (!inside.contains(']')).then(|| ((Font::Roman, inside.replace('`', "")), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let mut page = Roff::new();
        document(&mut page, text);
        page.to_roff()
    }

    #[test]
    fn tables_become_tagged_paragraphs() {
        let two = rendered("| signal | what happens |\n| --- | --- |\n| `TERM` | it is *forwarded* |\n");
        assert_eq!(two, ".TP\n\\fBTERM\\fR\nit is \\fIforwarded\\fR\n");
        let three = rendered("| signal | in place | supervised |\n| :-- | --- | --: |\n| `HUP` | a \\| b | c |\n");
        assert_eq!(three, ".TP\n\\fBHUP\\fR\nin place: a | b\n.br\nsupervised: c\n");
    }

    #[test]
    fn text_is_escaped_and_broken_into_short_lines() {
        assert_eq!(rendered("## Notes\n\n.not a request\n\nNext\n"), ".SH NOTES\n\\&.not a request\n.PP\nNext\n");
        let long = rendered(&"word `code` [link](to) ".repeat(30));
        assert!(long.lines().count() > 5 && long.lines().all(|line| line.len() < 130), "{long}");
        assert!(!long.contains("](") && !long.contains('`'), "{long}");
    }

    #[test]
    fn code_keeps_its_lines() {
        assert_eq!(rendered("```sh\na \\\n  b\n```\n"), ".PP\n.RS 4\n.EX\na \\\\\n  b\n.EE\n.RE\n");
    }
}
