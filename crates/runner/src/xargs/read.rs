//! From the bytes of the input to arguments: quotes, delimiters, lines and the end.

/// How the input is separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    /// Blanks and newlines, with quotes and backslashes.
    Blanks,
    /// Newlines, with quotes and backslashes; blanks in front of a line are skipped. For replacements.
    Lines,
    /// This byte alone.
    Byte(u8),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Argument(Vec<u8>),
    /// So many lines have ended since the last one of these.
    Lines(u64),
    /// The input has ended.
    End,
    /// The input is invalid: the reason.
    Wrong(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Space,
    Normal,
    Quote(u8),
    Backslash,
}

/// Takes bytes one by one.
pub(super) struct Reader {
    separator: Separator,
    end: Option<Vec<u8>>,
    /// The longest argument.
    most: usize,
    state: State,
    text: Vec<u8>,
    /// The byte before this one, in the same line.
    before: u8,
    lines: u64,
    /// The argument that is being read is the first one of its line.
    first: bool,
}

const SINGLE: &str = "unmatched single quote; quotes are special unless -0 or -d is given";
const DOUBLE: &str = "unmatched double quote; quotes are special unless -0 or -d is given";
pub(super) const TOO_LONG: &str = "argument line too long";

fn unmatched(quote: u8) -> Found {
    Found::Wrong(if quote == b'\'' { SINGLE } else { DOUBLE })
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

impl Reader {
    pub(super) fn new(separator: Separator, end: Option<Vec<u8>>, most: usize) -> Self {
        let text = Vec::new();
        Self { separator, end, most, state: State::Space, text, before: 0, lines: 0, first: true }
    }

    /// Takes the next byte; what it has ended is added to `found`.
    pub(super) fn take(&mut self, byte: u8, found: &mut Vec<Found>) {
        if let Separator::Byte(end) = self.separator {
            if byte == end {
                self.lines += 1;
                found.push(Found::Argument(std::mem::take(&mut self.text)));
                self.end_line(found);
            } else {
                self.add(byte, found);
            }
            return;
        }
        let before = std::mem::replace(&mut self.before, byte);
        match self.state {
            State::Space if is_space(byte) => {}
            State::Space | State::Normal => {
                self.state = State::Normal;
                self.normal(byte, before, found);
            }
            State::Quote(quote) if byte == b'\n' => found.push(unmatched(quote)),
            State::Quote(quote) if byte == quote => self.state = State::Normal,
            State::Quote(_) => self.add(byte, found),
            State::Backslash => {
                self.state = State::Normal;
                self.add(byte, found);
            }
        }
    }

    fn normal(&mut self, byte: u8, before: u8, found: &mut Vec<Found>) {
        let is_blank = |byte| matches!(byte, b' ' | b'\t');
        match byte {
            b'\n' => {
                self.lines += u64::from(!is_blank(before));
                if self.argument(found) {
                    self.end_line(found);
                }
            }
            byte if is_blank(byte) && self.separator == Separator::Blanks => {
                if self.argument(found) {
                    self.first = false;
                    self.state = State::Space;
                }
            }
            b'\\' => self.state = State::Backslash,
            b'\'' | b'"' => self.state = State::Quote(byte),
            byte => self.add(byte, found),
        }
    }

    fn add(&mut self, byte: u8, found: &mut Vec<Found>) {
        if self.text.len() >= self.most {
            found.push(Found::Wrong(TOO_LONG));
        }
        self.text.push(byte);
    }

    /// An argument is complete. Returns false if it ends the input.
    fn argument(&mut self, found: &mut Vec<Found>) -> bool {
        let text = std::mem::take(&mut self.text);
        if self.end.as_ref() == Some(&text) {
            if !self.first {
                self.end_line(found);
            }
            found.push(Found::End);
            return false;
        }
        found.push(Found::Argument(text));
        true
    }

    fn end_line(&mut self, found: &mut Vec<Found>) {
        found.push(Found::Lines(std::mem::take(&mut self.lines)));
        (self.state, self.before, self.first) = (State::Space, 0, true);
    }

    /// The input has ended.
    pub(super) fn finish(&mut self, found: &mut Vec<Found>) {
        if !self.text.is_empty() {
            if let State::Quote(quote) = self.state {
                found.push(unmatched(quote));
                return;
            }
            if matches!(self.separator, Separator::Byte(_)) {
                found.push(Found::Argument(std::mem::take(&mut self.text)));
            } else if !self.argument(found) {
                return;
            }
            self.end_line(found);
        }
        found.push(Found::End);
    }
}
