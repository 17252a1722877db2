//! Values as words of a shell line. Whatever a value contains, the shell takes it as data.

/// The language of the shell that runs the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// sh, dash, bash, zsh, ksh.
    Posix,
    /// fish, where a backslash escapes inside single quotes.
    Fish,
}

/// What surrounds a place in a shell line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// `'…'`
    Single,
    /// `"…"`
    Double,
    /// `$'…'`
    Ansi,
    /// Backquotes.
    Backquote,
    /// Backquotes inside of `"…"`.
    QuotedBackquote,
    /// `$(…)` or `(…)`: a line of its own.
    Parenthesis,
    /// From `#` to the end of the line.
    Comment,
}

/// Appends the value as one word.
pub(super) fn push_word(out: &mut Vec<u8>, value: &[u8], language: Language) {
    if value.iter().all(|byte| is_plain(*byte)) && !value.is_empty() {
        return out.extend_from_slice(value);
    }
    match language {
        Language::Posix => push_posix(out, value),
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
    // Of use in nearly all lines, and without a copy.
    if levels.is_empty() {
        return push_word(out, value, language);
    }
    let mut text = match levels.last() {
        // The value alone: quotes in it would be part of the text.
        Some(Level::Single | Level::Ansi) => value.to_vec(),
        _ => word(value, language),
    };
    for level in levels.iter().rev() {
        text = within(*level, &text, language);
    }
    out.extend_from_slice(&text);
}

/// The text, so that it reads the same inside of this.
fn within(level: Level, text: &[u8], language: Language) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 8);
    match level {
        Level::Single if language == Language::Fish => {
            push_escaped(&mut out, text, b"\\'");
        }
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
        // By number: dash has no `$'…'` and takes it for `'…'`, where a quote would end.
        Level::Ansi => {
            for &byte in text {
                match byte {
                    b'\'' => out.extend_from_slice(br"\047"),
                    b'\\' => out.extend_from_slice(br"\134"),
                    byte => out.push(byte),
                }
            }
        }
        // It is left out of the levels around a place.
        Level::Parenthesis => out.extend_from_slice(text),
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

/// What no shell interprets, anywhere in a word.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-+./".contains(&byte)
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

/// Follows a shell line, to know what surrounds a place in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Lexer {
    levels: Vec<Level>,
    /// After a backslash that takes the next byte.
    escaped: bool,
    /// The byte before.
    before: Option<u8>,
}

impl Lexer {
    /// Takes the next byte of the line.
    pub(super) fn take(&mut self, byte: u8) {
        if std::mem::take(&mut self.escaped) {
            // A backslash and a newline are nothing, so what came before them counts.
            if byte != b'\n' {
                self.before = Some(b'\\');
            }
            return;
        }
        let before = self.before.replace(byte);
        match (self.levels.last(), byte) {
            (Some(Level::Single | Level::Ansi), b'\'')
            | (Some(Level::Double), b'"')
            | (Some(Level::Comment), b'\n') => {
                self.levels.pop();
            }
            // Backquotes end before the comments in them are looked for.
            (Some(Level::Comment), b'`') if self.levels.contains(&Level::Backquote) => self.end_backquote(),
            (Some(Level::Single | Level::Comment), _) => {}
            (_, b'\\') => {
                self.escaped = true;
                self.before = before;
            }
            (Some(Level::Ansi), _) => {}
            (_, b'`') if self.levels.contains(&Level::Backquote) => self.end_backquote(),
            (_, b'`') => self.levels.push(Level::Backquote),
            (_, b'(') if before == Some(b'$') => self.levels.push(Level::Parenthesis),
            (Some(Level::Double), _) => {}
            (_, b'\'') if before == Some(b'$') => self.levels.push(Level::Ansi),
            (_, b'\'') => self.levels.push(Level::Single),
            (_, b'"') => self.levels.push(Level::Double),
            (_, b'(') => self.levels.push(Level::Parenthesis),
            (Some(Level::Parenthesis), b')') => {
                self.levels.pop();
            }
            (_, b'#') if before.is_none_or(|byte| b" \t\n;&|()`".contains(&byte)) => self.levels.push(Level::Comment),
            _ => {}
        }
    }

    fn end_backquote(&mut self) {
        if let Some(place) = self.levels.iter().rposition(|level| *level == Level::Backquote) {
            self.levels.truncate(place);
        }
    }

    /// Takes a value's place, which counts as a letter.
    pub(super) fn take_value(&mut self) {
        self.escaped = false;
        self.before = Some(b'x');
    }

    /// What surrounds the place after the last byte. Inside of parentheses and backquotes, the quotes around them do not
    /// count; backquotes count everywhere inside.
    pub(super) fn levels(&self) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        for level in &self.levels {
            let is_quoted = levels.last() == Some(&Level::Double);
            if matches!(level, Level::Parenthesis | Level::Backquote) {
                levels.retain(|outer| matches!(outer, Level::Backquote | Level::QuotedBackquote));
            }
            match level {
                Level::Parenthesis => {}
                Level::Backquote if is_quoted => levels.push(Level::QuotedBackquote),
                level => levels.push(*level),
            }
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(value: &str) -> String {
        String::from_utf8(word(value.as_bytes(), Language::Posix)).expect("UTF-8")
    }

    #[test]
    fn only_words_that_need_it_are_quoted() {
        assert_eq!(quoted("a/b-c_d.e+f"), "a/b-c_d.e+f");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r#"'it'"'"'s'"#);
        assert_eq!(quoted("''"), r#""'"''"'""#);
        assert_eq!(quoted("'a"), r#""'"'a'"#);
        assert_eq!(quoted("~"), "'~'");
    }

    fn at(template: &str) -> Vec<Level> {
        let mut lexer = Lexer::default();
        template.bytes().for_each(|byte| lexer.take(byte));
        lexer.levels()
    }

    #[test]
    fn a_place_in_a_line_knows_what_surrounds_it() {
        use Level::*;
        assert_eq!(at("echo "), []);
        assert_eq!(at("echo '"), [Single]);
        assert_eq!(at("echo 'a' "), []);
        assert_eq!(at(r#"echo "a '"#), [Double]);
        assert_eq!(at(r#"echo "$(cat "#), []);
        assert_eq!(at(r#"echo "$(cat ")" ""#), [Double]);
        assert_eq!(at(r#"echo "`cat "#), [QuotedBackquote]);
        assert_eq!(at("echo `echo $(cat "), [Backquote]);
        assert_eq!(at(r#"echo "$(cat ) "#), [Double]);
        assert_eq!(at("echo \\' "), []);
        assert_eq!(at("echo `cat "), [Backquote]);
        assert_eq!(at("echo `cat` "), []);
        assert_eq!(at("echo a#b "), []);
        assert_eq!(at("echo # it's "), [Comment]);
        assert_eq!(at("echo $'a\\'"), [Ansi]);
        assert_eq!(at("( cd "), []);
    }

    #[test]
    fn no_value_runs_wherever_it_stands() {
        let values =
            ["$(touch ran)", "`touch ran`", "'; touch ran; '", "\"; touch ran; \"", "a\ntouch ran", "\\", "* ~ $HOME"];
        for value in values {
            for line in ["printf %s ", "printf %s '", "printf %s \"", "x=`printf %s ", ": # "] {
                let directory = tempfile::tempdir().expect("a directory");
                let mut text = line.as_bytes().to_vec();
                push_at(&mut text, value.as_bytes(), &at(line), Language::Posix);
                text.extend_from_slice(match line.bytes().find(|byte| b"'\"`".contains(byte)) {
                    Some(b'`') => b"`; printf %s \"$x\"",
                    Some(b'"') => b"\"",
                    Some(_) => b"'",
                    None => b"",
                });
                let mut shell = std::process::Command::new("/bin/sh");
                let words = [std::ffi::OsStr::new("-c"), std::os::unix::ffi::OsStrExt::from_bytes(&text[..])];
                let output = shell.args(words).current_dir(&directory).output().expect("a shell");
                assert!(output.status.success(), "{line} {value}: {output:?}");
                assert!(!directory.path().join("ran").exists(), "{line} {value}");
                if line.ends_with("%s ") || line.ends_with('\'') {
                    assert_eq!(output.stdout, value.as_bytes(), "{line}");
                }
            }
        }
    }

    /// Lines in which the place is not surrounded by what it seems to be, with what follows the place.
    #[test]
    fn no_value_runs_in_odd_lines() {
        let odd =
            [("echo $'", "'"), ("echo `echo hi # now` '", "'"), ("echo \\\n# note ", ""), ("echo a\\\nb# '", "'")];
        for value in ["';touch ran;'", "';touch ran #", "a\ntouch ran #", "$(touch ran)"] {
            for (line, rest) in odd {
                let directory = tempfile::tempdir().expect("a directory");
                let mut text = line.as_bytes().to_vec();
                push_at(&mut text, value.as_bytes(), &at(line), Language::Posix);
                text.extend_from_slice(rest.as_bytes());
                for shell in ["/bin/dash", "/bin/bash"].into_iter().filter(|shell| std::path::Path::new(shell).exists())
                {
                    let words = [std::ffi::OsStr::new("-c"), std::os::unix::ffi::OsStrExt::from_bytes(&text[..])];
                    let output = std::process::Command::new(shell).args(words).current_dir(&directory).output();
                    output.expect("a shell");
                    assert!(!directory.path().join("ran").exists(), "{shell} {line} {value}");
                }
            }
        }
    }

    #[test]
    fn quotes_of_fish_are_escaped_in_quotes() {
        let mut text = b"echo '".to_vec();
        push_at(&mut text, br"x\' ; touch ran #", &at("echo '"), Language::Fish);
        assert_eq!(text, br"echo 'x\\\' ; touch ran #");
    }
}
