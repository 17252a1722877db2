//! Follows a shell line, to know what surrounds a place in it.
//!
//! It must be right for each shell of a language. Where shells differ, or where the grammar would have to be known, it
//! gives up: no value may stand after that.

use super::level::{Language, Level};

/// What has been opened, and is not closed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    /// `'…'`
    Single,
    /// `$'…'`, in shells that have it.
    Ansi,
    /// `$'…'`, in shells that may have it.
    Unknown,
    /// `"…"`
    Double,
    /// Backquotes.
    Backquote { quoted: bool },
    /// `(…)` and `$(…)`
    Parenthesis(Parenthesis),
    /// `${…}`
    Brace { quoted: bool, stage: Stage },
    /// From `#` to the end of the line.
    Comment,
    /// A here-document, after the newline.
    Here(Here),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parenthesis {
    /// It follows `$`, `<` or `>`.
    substitutes: bool,
    /// It has commands: it is no pattern, and no list.
    has_commands: bool,
    /// `a=(`
    list: bool,
    /// `((`
    arithmetic: bool,
    /// It has the word `case`: a `)` may belong to a pattern.
    case: bool,
}

/// How far `${…}` has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    Name,
    Colon,
    /// `-`, `=`, `+` or `?` and a text.
    Text,
    /// Something else, such as `#` and a pattern.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Here {
    /// `<<-`
    tabs: bool,
    /// What ends it.
    delimiter: Vec<u8>,
    /// A part of the delimiter is quoted: nothing is expanded.
    quoted: bool,
    /// The line that is being read.
    line: Vec<u8>,
}

/// How far the operator of a here-document has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pending {
    /// After `<<`.
    Operator,
    /// Before or in the delimiter, in these quotes.
    Delimiter(Here, Option<u8>),
    /// The next newline begins it. The number of frames at its operator.
    Ready(Here, usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Lexer {
    language: Language,
    frames: Vec<Frame>,
    /// After a backslash that takes the next byte.
    escaped: bool,
    /// After a backslash in backquotes, which the shell removes first before some bytes.
    escaped_in_backquote: bool,
    /// The byte before, and the last one that is no blank.
    before: Option<u8>,
    solid: Option<u8>,
    /// What was before a value that may be absent.
    hollow: Option<Option<u8>>,
    /// The word that is being read.
    word: Vec<u8>,
    /// A command may begin after the last word, since it is one such as `do`.
    after_keyword: bool,
    pending: Option<Pending>,
    /// Why nothing is known of the rest.
    lost: Option<&'static str>,
}

/// Stands for the byte before, after `$$`.
const TWO_DOLLARS: u8 = 1;
const ABSENT: &str = "an argument that may be absent";
const HERE: &str = "this here-document";
const BRACE: &str = "this `${…}`";
const BACKQUOTE: &str = "this text in backquotes";
const PARENTHESIS: &str = "these parentheses";

impl Lexer {
    pub(crate) fn new(language: Language) -> Self {
        Self {
            language,
            frames: Vec::new(),
            escaped: false,
            escaped_in_backquote: false,
            before: None,
            solid: None,
            hollow: None,
            word: Vec::new(),
            after_keyword: false,
            pending: None,
            lost: None,
        }
    }

    /// Whether the same is open in both, so that the text between them can be repeated.
    pub(crate) fn is_as_deep_as(&self, other: &Self) -> bool {
        let has_backslash = self.escaped || self.escaped_in_backquote;
        self.frames == other.frames && !has_backslash && self.lost.is_none() && self.pending.is_none()
    }

    /// Takes the next byte of the line.
    pub(crate) fn take(&mut self, byte: u8) {
        if self.lost.is_some() {
            return;
        }
        let Some(opened) = self.frames.iter().position(|frame| matches!(frame, Frame::Backquote { .. })) else {
            return self.feed(byte);
        };
        if std::mem::take(&mut self.escaped_in_backquote) {
            let is_quoted = self.frames[opened] == Frame::Backquote { quoted: true };
            match byte {
                b'`' => self.give_up("nested backquotes"),
                b'\\' | b'$' => self.feed(byte),
                b'"' if is_quoted => self.feed(byte),
                // Some shells join the lines before they recognize quotes and comments, some after.
                b'\n' if self.escaped || matches!(self.frames.last(), Some(Frame::Single | Frame::Comment)) => {
                    self.give_up(BACKQUOTE);
                }
                _ => {
                    self.feed(b'\\');
                    self.feed(byte);
                }
            }
            return;
        }
        match byte {
            b'\\' => self.escaped_in_backquote = true,
            b'`' => self.close_backquote(opened),
            _ => self.feed(byte),
        }
    }

    fn close_backquote(&mut self, opened: usize) {
        match &self.frames[opened + 1..] {
            [] | [Frame::Comment] if !self.escaped && self.pending.is_none() => {
                self.frames.truncate(opened);
                self.in_word();
            }
            // An unmatched quote, perhaps: shells differ.
            _ => self.give_up(BACKQUOTE),
        }
    }

    /// What has been read is a part of a word.
    fn in_word(&mut self) {
        self.before = Some(b'x');
        self.solid = self.before;
        self.word.push(0);
        self.hollow = None;
    }

    fn give_up(&mut self, reason: &'static str) {
        self.lost.get_or_insert(reason);
    }

    /// Takes a byte, after what backquotes do to it.
    fn feed(&mut self, byte: u8) {
        if std::mem::take(&mut self.escaped) {
            return self.feed_escaped(byte);
        }
        match self.frames.last() {
            Some(Frame::Single | Frame::Ansi | Frame::Unknown) => return self.feed_quoted(byte),
            Some(Frame::Comment) if byte != b'\n' => return,
            Some(Frame::Comment) => {
                self.frames.pop();
            }
            Some(Frame::Here(_)) => return self.feed_here(byte),
            _ => {}
        }
        if self.pending.is_some() && self.feed_pending(byte) {
            return;
        }
        let hollow = self.hollow.take();
        let before = self.before.replace(byte);
        let solid = self.solid;
        if !byte.is_ascii_whitespace() || byte == b'\n' {
            self.solid = Some(byte);
        }
        if byte == b'\\' {
            // What was before the backslash counts if a newline follows it.
            self.before = before;
            self.escaped = true;
            return;
        }
        let opens = matches!((hollow, byte), (Some(Some(b'$' | TWO_DOLLARS)), b'(' | b'{' | b'[' | b'\'' | b'"'))
            || matches!((hollow, byte), (Some(Some(b'<' | b'>')), b'<' | b'('));
        if opens {
            return self.give_up(ABSENT);
        }
        let is_posix = self.language != Language::Fish;
        let after_dollar = before == Some(b'$');
        match (self.frames.last(), byte) {
            (_, b'`') if is_posix => {
                let frame = Frame::Backquote { quoted: self.is_quoted() };
                self.open(frame);
            }
            (Some(Frame::Double), b'"') => {
                self.frames.pop();
            }
            // Some shells end the surrounding quotes there, some do not.
            (Some(Frame::Brace { quoted: true, .. }), b'"' | b'\'') => {
                self.give_up("quotes in `\"${…}\"`");
            }
            (Some(Frame::Parenthesis(Parenthesis { arithmetic: true, substitutes: true, .. })), b'"' | b'\'') => {
                self.give_up("quotes in `$((…))`");
            }
            // Before fish 3.4 it was text.
            (Some(Frame::Double), b'(') if after_dollar && !is_posix => self.give_up("`$(…)` in double quotes"),
            (_, b'(') if after_dollar => self.parenthesis(before, solid),
            (_, b'{') if after_dollar && is_posix => {
                let frame = Frame::Brace { quoted: self.is_quoted(), stage: Stage::Start };
                self.open(frame);
            }
            (_, b'[') if after_dollar && is_posix => self.give_up("`$[…]`"),
            (_, b'$') if after_dollar => self.before = Some(TWO_DOLLARS),
            // In zsh, the second `$` begins an expansion.
            (_, b'(' | b'{' | b'[' | b'\'') if before == Some(TWO_DOLLARS) => self.give_up("`$$`"),
            (Some(Frame::Double), _) => {}
            (Some(Frame::Brace { quoted, stage }), _) => self.feed_brace(byte, before, *quoted, *stage),
            _ => self.feed_code(byte, before, solid, hollow),
        }
    }

    fn feed_escaped(&mut self, byte: u8) {
        let is_shell = !matches!(self.frames.last(), Some(Frame::Single | Frame::Ansi | Frame::Here(_)));
        if byte != b'\n' || !is_shell {
            return self.in_word();
        }
        // The newline is removed, and what is around it joined.
        match self.before {
            Some(b'$' | b'<' | b'>') => self.give_up("a backslash at the end of a line"),
            // fish has a blank there, or not.
            _ if self.language == Language::Fish => self.before = Some(b'|'),
            _ => {}
        }
    }

    /// In quotes that have no expansions.
    fn feed_quoted(&mut self, byte: u8) {
        match (self.frames.last(), byte) {
            (_, b'\'') => {
                self.frames.pop();
                self.in_word();
            }
            (Some(Frame::Ansi), b'\\') => self.escaped = true,
            (Some(Frame::Single), b'\\') if self.language == Language::Fish => self.escaped = true,
            (Some(Frame::Unknown), b'\\') => self.give_up("`$'…'`, which not each shell has"),
            _ => {}
        }
    }

    fn feed_brace(&mut self, byte: u8, before: Option<u8>, quoted: bool, stage: Stage) {
        match byte {
            b'}' => {
                self.frames.pop();
                return self.in_word();
            }
            // Some shells count braces.
            b'{' => return self.give_up(BRACE),
            // Flags of zsh, and commands in braces.
            b'(' | b'|' | b' ' | b'\t' | b'\n' if stage == Stage::Start => return self.give_up(BRACE),
            b'(' if !quoted && matches!(before, Some(b'<' | b'>')) => return self.give_up(BRACE),
            b'\'' => return self.single(before),
            b'"' => return self.open(Frame::Double),
            _ => {}
        }
        let next = match (stage, byte) {
            (Stage::Start | Stage::Name, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_') => Stage::Name,
            (Stage::Name, b':') => Stage::Colon,
            (Stage::Name | Stage::Colon, b'-' | b'=' | b'+' | b'?') => Stage::Text,
            (Stage::Text, _) => Stage::Text,
            _ => Stage::Other,
        };
        if let Some(Frame::Brace { stage, .. }) = self.frames.last_mut() {
            *stage = next;
        }
    }

    /// Takes a byte where words are read: outside of quotes and braces.
    fn feed_code(&mut self, byte: u8, before: Option<u8>, solid: Option<u8>, hollow: Option<Option<u8>>) {
        const ENDS: &[u8] = b" \t\n;&|()<>";
        if byte == b'#' {
            let begins = |before: Option<u8>| before.is_none_or(|byte| ENDS.contains(&byte));
            if hollow.is_some_and(begins) {
                return self.give_up(ABSENT);
            }
            if begins(before) {
                return self.comment(before);
            }
        }
        match ENDS.contains(&byte) {
            true => self.end_word(),
            false => self.word.push(byte),
        }
        match byte {
            b'\'' => self.single(before),
            b'"' => self.open(Frame::Double),
            b'(' => self.parenthesis(before, solid),
            b')' => self.close_parenthesis(),
            b'<' if before == Some(b'<') && self.language != Language::Fish => self.pending = Some(Pending::Operator),
            _ => {}
        }
    }

    fn end_word(&mut self) {
        const BEFORE_COMMANDS: [&[u8]; 10] =
            [b"if", b"then", b"else", b"elif", b"do", b"while", b"until", b"time", b"!", b"{"];
        let word = std::mem::take(&mut self.word);
        if word.is_empty() {
            return;
        }
        self.after_keyword = BEFORE_COMMANDS.contains(&&word[..]);
        if word == b"case" && self.language != Language::Fish {
            if let Some(Frame::Parenthesis(parenthesis)) = self.frames.last_mut() {
                parenthesis.case = true;
            }
        }
    }

    /// At a `#` where a word may begin.
    fn comment(&mut self, before: Option<u8>) {
        // In an array, or in a pattern of `[[ … ]]`, it may be text. So it is after some operators.
        let is_certain = before.is_none_or(|byte| b" \t\n;".contains(&byte));
        match self.frames.last() {
            Some(Frame::Parenthesis(Parenthesis { has_commands: true, arithmetic: false, .. })) | None
                if is_certain =>
            {
                self.frames.push(Frame::Comment);
            }
            Some(Frame::Backquote { .. }) if is_certain => self.frames.push(Frame::Comment),
            _ => self.give_up("this `#`"),
        }
    }

    fn single(&mut self, before: Option<u8>) {
        let frame = match self.language {
            Language::Fish => Frame::Single,
            _ if before != Some(b'$') => Frame::Single,
            Language::Bash => Frame::Ansi,
            Language::Posix => Frame::Unknown,
        };
        self.frames.push(frame);
    }

    fn parenthesis(&mut self, before: Option<u8>, solid: Option<u8>) {
        let substitutes = matches!(before, Some(b'$' | b'<' | b'>'));
        let arithmetic = match self.frames.last_mut() {
            Some(Frame::Parenthesis(outer)) if before == Some(b'(') => {
                outer.arithmetic = true;
                outer.substitutes
            }
            _ => false,
        };
        let has_commands = substitutes || solid.is_none_or(|byte| b"\n;&|({".contains(&byte));
        let has_commands = has_commands || self.after_keyword && matches!(before, Some(b' ' | b'\t'));
        let is_in_arithmetic = self.is_in_arithmetic();
        let inner = Parenthesis {
            substitutes: substitutes || arithmetic,
            has_commands: has_commands || is_in_arithmetic || self.language == Language::Fish,
            list: before == Some(b'='),
            arithmetic: arithmetic || is_in_arithmetic,
            case: false,
        };
        self.open(Frame::Parenthesis(inner));
    }

    fn close_parenthesis(&mut self) {
        match self.frames.last() {
            Some(Frame::Parenthesis(Parenthesis { case: true, .. })) => self.give_up("`case` in parentheses"),
            Some(Frame::Parenthesis(Parenthesis { substitutes, .. })) => {
                let substitutes = *substitutes;
                if self.pending.is_some() {
                    return self.give_up(HERE);
                }
                self.frames.pop();
                if substitutes {
                    self.in_word();
                }
            }
            Some(Frame::Backquote { .. }) => self.give_up(PARENTHESIS),
            _ => {}
        }
    }

    fn is_in_arithmetic(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Parenthesis(Parenthesis { arithmetic: true, .. })))
    }

    fn is_quoted(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Double | Frame::Brace { quoted: true, .. }))
    }

    fn open(&mut self, frame: Frame) {
        if !matches!(frame, Frame::Double | Frame::Parenthesis(_)) {
            self.before = None;
            self.solid = None;
        }
        // What stands in quotes is no keyword.
        self.word.clear();
        if frame == Frame::Double {
            self.word.push(0);
        }
        self.frames.push(frame);
    }

    /// Takes a byte after `<<`. Returns whether it has been consumed.
    fn feed_pending(&mut self, byte: u8) -> bool {
        let pending = match self.pending.take() {
            // A here-string.
            Some(Pending::Operator) if byte == b'<' => {
                self.in_word();
                return true;
            }
            Some(Pending::Operator) => {
                // Arithmetic may have the same operator.
                let is_sure = !self.is_in_arithmetic() && !self.word.contains(&b'[');
                let in_backquote = self.frames.iter().any(|frame| matches!(frame, Frame::Backquote { .. }));
                if !is_sure || in_backquote {
                    let here = Here { quoted: true, ..Here::default() };
                    self.pending = Some(Pending::Ready(here, usize::MAX));
                    return false;
                }
                let here = Here { tabs: byte == b'-', ..Here::default() };
                self.pending = Some(Pending::Delimiter(here, None));
                return byte == b'-' || self.feed_pending(byte);
            }
            Some(Pending::Delimiter(mut here, quote)) => match (quote, byte) {
                (None, b' ' | b'\t') if here.delimiter.is_empty() && !here.quoted => {
                    Some(Pending::Delimiter(here, None))
                }
                (None, b'\'' | b'"') => {
                    here.quoted = true;
                    Some(Pending::Delimiter(here, Some(byte)))
                }
                (Some(quote), byte) if quote == byte => Some(Pending::Delimiter(here, None)),
                (None, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>') => {
                    self.pending = Some(Pending::Ready(here, self.frames.len()));
                    self.before = Some(b'x');
                    return self.feed_pending(byte);
                }
                (_, b'\\' | b'$' | b'`' | b'\n') => {
                    self.give_up(HERE);
                    None
                }
                _ => {
                    here.delimiter.push(byte);
                    Some(Pending::Delimiter(here, quote))
                }
            },
            Some(Pending::Ready(here, depth)) => {
                let is_second = byte == b'<' && self.before == Some(b'<');
                match byte {
                    b'\n' if depth == self.frames.len() => self.frames.push(Frame::Here(here)),
                    b'\n' => self.give_up(HERE),
                    b'<' if is_second && depth != usize::MAX => self.give_up("two here-documents"),
                    _ => {
                        self.pending = Some(Pending::Ready(here, depth));
                        return false;
                    }
                }
                self.before = Some(b'\n');
                self.solid = self.before;
                self.word.clear();
                return true;
            }
            None => None,
        };
        self.pending = pending;
        true
    }

    fn feed_here(&mut self, byte: u8) {
        let Some(Frame::Here(here)) = self.frames.last_mut() else { return };
        if byte != b'\n' {
            return here.line.push(byte);
        }
        let line = std::mem::take(&mut here.line);
        let tabs = if here.tabs { line.iter().take_while(|byte| **byte == b'\t').count() } else { 0 };
        let text = &line[tabs..];
        let count = |wanted: u8| text.iter().filter(|byte| **byte == wanted).count();
        let is_whole = count(b'(') == count(b')') && count(b'{') == count(b'}') && count(b'`') % 2 == 0;
        if text == here.delimiter {
            self.frames.pop();
            self.before = Some(b'\n');
            self.solid = self.before;
        } else if text.starts_with(&here.delimiter) || !here.quoted && (!is_whole || text.ends_with(b"\\")) {
            // Some shells end the here-document there, or after the next line.
            self.give_up(HERE);
        }
    }

    /// Takes a value's place, which counts as a letter. `may_be_absent`: nothing may stand there.
    pub(crate) fn take_value(&mut self, may_be_absent: bool) {
        self.escaped = false;
        self.escaped_in_backquote = false;
        match self.frames.last_mut() {
            Some(Frame::Here(here)) => here.line.push(0),
            Some(Frame::Brace { stage: stage @ (Stage::Start | Stage::Name), .. }) => *stage = Stage::Name,
            Some(Frame::Brace { stage: stage @ Stage::Colon, .. }) => *stage = Stage::Other,
            _ => {}
        }
        if matches!(self.pending, Some(Pending::Operator | Pending::Delimiter(..))) {
            self.give_up(HERE);
        }
        let before = self.before.replace(b'x');
        self.solid = self.before;
        self.hollow = may_be_absent.then_some(self.hollow.unwrap_or(before));
        if !may_be_absent {
            self.word.push(0);
        }
    }

    /// What surrounds the place after the last byte. Inside of parentheses and backquotes, the quotes around them do not
    /// count; backquotes count everywhere inside.
    ///
    /// # Errors
    /// It cannot be known, or no value can stand there: what prevents it.
    pub(crate) fn levels(&self) -> Result<Vec<Level>, &'static str> {
        if let Some(reason) = self.lost {
            return Err(reason);
        }
        if self.escaped || self.escaped_in_backquote {
            return Err("a backslash");
        }
        match (self.frames.last(), &self.pending) {
            (Some(Frame::Unknown), _) => return Err("`$'`, which not each shell has"),
            (_, Some(Pending::Operator | Pending::Delimiter(..))) => return Err("`<<`"),
            _ => {}
        }
        // zsh runs some of what is in the parentheses of a pattern.
        let is_pattern =
            |frame: &Frame| matches!(frame, Frame::Parenthesis(Parenthesis { has_commands: false, list: false, .. }));
        if self.frames.iter().any(is_pattern) {
            return Err("`(` in a word or pattern");
        }
        let is_backquote = |level: &Level| matches!(level, Level::Backquote | Level::QuotedBackquote);
        let mut levels: Vec<Level> = Vec::new();
        for frame in &self.frames {
            match frame {
                Frame::Parenthesis(_) => levels.retain(is_backquote),
                Frame::Backquote { quoted } => {
                    levels.retain(is_backquote);
                    levels.push(if *quoted { Level::QuotedBackquote } else { Level::Backquote });
                }
                Frame::Brace { quoted: true, stage } => {
                    levels.retain(is_backquote);
                    levels.push(if *stage == Stage::Text { Level::Text } else { Level::Pattern });
                }
                Frame::Brace { quoted: false, .. } | Frame::Here(_) => {}
                Frame::Single => levels.push(Level::Single),
                Frame::Ansi | Frame::Unknown => levels.push(Level::Ansi),
                Frame::Double => levels.push(Level::Double),
                Frame::Comment => levels.push(Level::Comment),
            }
        }
        let is_word = levels.last().is_none_or(is_backquote);
        if is_word && matches!(self.before, Some(b'$' | TWO_DOLLARS)) && self.language != Language::Fish {
            levels.push(Level::Dollar);
        }
        Ok(levels)
    }
}
