//! Records of an input: pieces that a delimiter ends, as they come.

use std::io;

use forkless_jobs::{Filled, Input};

use super::csv::{has_odd_quotes, record_ends};

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pull<T> {
    Item(T),
    /// Nothing yet: the input must become readable first.
    Later,
    End,
}

/// The records of an input.
#[derive(Debug)]
pub(super) struct Records {
    input: Input,
    delimiter: Vec<u8>,
    /// Quotes protect the delimiter, a newline.
    is_csv: bool,
    /// What has been searched ends within quotes.
    is_quoted: bool,
    /// So many bytes of the input hold no delimiter.
    searched: usize,
}

impl Records {
    /// Records that end in this delimiter. Without one, all of the input is one record.
    pub(super) fn new(input: Input, delimiter: &[u8]) -> Self {
        Self { input, delimiter: delimiter.to_vec(), is_csv: false, is_quoted: false, searched: 0 }
    }

    /// Lines of comma-separated values.
    pub(super) fn csv(input: Input) -> Self {
        Self { is_csv: true, ..Self::new(input, b"\n") }
    }

    /// Whether it is known that nothing follows.
    pub(super) fn is_at_end(&self) -> bool {
        self.input.is_ended() && self.input.bytes().is_empty()
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }

    /// The next record, without its delimiter.
    pub(super) fn next(&mut self) -> io::Result<Pull<Vec<u8>>> {
        loop {
            let bytes = self.input.bytes();
            if let Some(end) = self.find(bytes) {
                let record = bytes[..end].to_vec();
                self.input.consume(end + self.delimiter.len());
                (self.searched, self.is_quoted) = (0, false);
                return Ok(Pull::Item(record));
            }
            if self.is_csv {
                self.is_quoted ^= has_odd_quotes(&bytes[self.searched..]);
            }
            // A delimiter may have begun at the end.
            self.searched = bytes.len().saturating_sub(self.delimiter.len().saturating_sub(1));
            match self.input.fill()? {
                Filled::Data => {}
                Filled::Later => return Ok(Pull::Later),
                Filled::End => {
                    let rest = self.input.bytes().to_vec();
                    self.input.consume(rest.len());
                    self.searched = 0;
                    return Ok(if rest.is_empty() { Pull::End } else { Pull::Item(rest) });
                }
            }
        }
    }

    fn find(&self, bytes: &[u8]) -> Option<usize> {
        let rest = &bytes[self.searched.min(bytes.len())..];
        if self.is_csv {
            return record_ends(rest, self.is_quoted).next().map(|place| place + self.searched);
        }
        memchr::memmem::find(rest, &self.delimiter)
            .filter(|_| !self.delimiter.is_empty())
            .map(|place| place + self.searched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn records_end_in_the_delimiter_or_with_the_input() {
        let cases: [(&str, &str, &[&str]); 6] = [
            ("a\nb\n", "\n", &["a", "b"]),
            ("a\n\nb", "\n", &["a", "", "b"]),
            ("axxbxxc", "xx", &["a", "b", "c"]),
            ("a\0b\n\0", "\0", &["a", "b\n"]),
            ("", "\n", &[]),
            ("a\nb\n", "", &["a\nb\n"]),
        ];
        for (text, delimiter, expected) in cases {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(text.as_bytes()).and_then(|()| file.rewind()).expect("no error");
            let mut records = Records::new(Input::new(file), delimiter.as_bytes());
            let mut found = Vec::new();
            while let Pull::Item(record) = records.next().expect("no error") {
                found.push(String::from_utf8(record).expect("UTF-8"));
            }
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
