//! Values as words of a shell line. Whatever a value contains, the shell takes it as data.

mod level;
mod lexer;

pub(super) use level::{Language, Level};
pub(super) use lexer::Lexer;

/// Appends the value as one word.
pub(super) fn push_word(out: &mut Vec<u8>, value: &[u8], language: Language) {
    if is_plain_word(value) {
        return out.extend_from_slice(value);
    }
    match language {
        Language::Posix | Language::Bash => push_posix(out, value),
        Language::Fish => {
            out.push(b'\'');
            push_escaped(out, value, b"\\'");
            out.push(b'\'');
        }
    }
}

/// The value as one word.
pub(super) fn word(value: &[u8], language: Language) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 2);
    push_word(&mut out, value, language);
    out
}

/// Appends the value for a place that is surrounded by `levels`, the outermost first.
pub(super) fn push_at(out: &mut Vec<u8>, value: &[u8], levels: &[Level], language: Language) {
    // Nearly all lines take this path, which makes no copy.
    if levels.is_empty() {
        return push_word(out, value, language);
    }
    let mut text = match levels.last() {
        // The value alone: quotes in it would be part of the text.
        Some(Level::Single | Level::Ansi | Level::Pattern) => value.to_vec(),
        _ => word(value, language),
    };
    for level in levels.iter().rev() {
        text = within(*level, &text, language);
    }
    out.extend_from_slice(&text);
}

/// Escapes the text, so that a shell reads the same text inside of `level`.
fn within(level: Level, text: &[u8], language: Language) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 8);
    let is_fish = language == Language::Fish;
    match level {
        Level::Single if is_fish => push_escaped(&mut out, text, b"\\'"),
        Level::Double if is_fish => push_escaped(&mut out, text, b"\\$\""),
        Level::Single => {
            for (place, part) in text.split(|&byte| byte == b'\'').enumerate() {
                if place > 0 {
                    out.extend_from_slice(br"'\''");
                }
                out.extend_from_slice(part);
            }
        }
        Level::Double | Level::QuotedBackquote => push_escaped(&mut out, text, b"\\$`\""),
        Level::Backquote => push_escaped(&mut out, text, b"\\$`"),
        Level::Ansi => push_escaped(&mut out, text, b"\\'"),
        Level::Text => push_escaped(&mut out, text, b"\\$`\"}"),
        // An apostrophe may be a quote there, or not. A newline must stay: a shell removes one after a backslash.
        Level::Pattern => {
            for byte in text {
                if byte.is_ascii() && !is_plain(*byte) && *byte != b'\n' {
                    out.push(b'\\');
                }
                out.push(*byte);
            }
        }
        // `$'` would begin quotes of another kind.
        Level::Dollar => {
            if !text.first().is_some_and(|byte| is_plain(*byte)) {
                out.extend_from_slice(b"\"\"");
            }
            out.extend_from_slice(text);
        }
        Level::Comment => out.extend(text.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte })),
    }
    out
}

fn push_escaped(out: &mut Vec<u8>, text: &[u8], escaped: &[u8]) {
    for byte in text {
        if escaped.contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
}

/// Whether no shell interprets the byte, anywhere in a word.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-+./".contains(&byte)
}

/// Whether the shell takes it as a word without quotes. `case` begins a command whose parentheses do not match.
fn is_plain_word(value: &[u8]) -> bool {
    value.iter().all(|byte| is_plain(*byte)) && !value.is_empty() && value != b"case"
}

/// `'…'`, and each apostrophe as `"'"`. Apostrophes at either end get no empty quotes beside them.
fn push_posix(out: &mut Vec<u8>, value: &[u8]) {
    if value.is_empty() {
        return out.extend_from_slice(b"''");
    }
    let parts = value.split(|&byte| byte == b'\'');
    let last = parts.clone().count() - 1;
    for (place, part) in parts.enumerate() {
        if place > 0 {
            out.extend_from_slice(br#""'""#);
        }
        if part.is_empty() && (place == 0 || place == last) {
            continue;
        }
        out.push(b'\'');
        out.extend_from_slice(part);
        out.push(b'\'');
    }
}

#[cfg(test)]
mod tests;
