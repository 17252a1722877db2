//! Records of an input: pieces that a delimiter ends, as they come.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use forkless_jobs::{Filled, Input};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::csv::{record_ends, toggles};

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pull<T> {
    Item(T),
    /// Nothing yet: the input must become readable first.
    Later,
    End,
}

/// A source of bytes.
#[derive(Debug)]
pub(super) enum Feed {
    Input(Input),
    /// Bytes that are there already, and how many of them have been consumed.
    #[cfg(test)]
    Memory(Vec<u8>, usize),
}

impl Feed {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Input(input) => input.bytes(),
            #[cfg(test)]
            Self::Memory(bytes, start) => &bytes[*start..],
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Input(input) => Some(input.as_fd()),
            #[cfg(test)]
            Self::Memory(..) => None,
        }
    }

    /// Waits until there may be more.
    pub(super) fn wait(&self) -> io::Result<()> {
        let Some(fd) = self.fd() else { return Ok(()) };
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn is_ended(&self) -> bool {
        match self {
            Self::Input(input) => input.is_ended(),
            #[cfg(test)]
            Self::Memory(..) => true,
        }
    }

    pub(super) fn consume(&mut self, count: usize) {
        match self {
            Self::Input(input) => input.consume(count),
            #[cfg(test)]
            Self::Memory(_, start) => *start += count,
        }
    }

    pub(super) fn fill(&mut self) -> io::Result<Filled> {
        match self {
            Self::Input(input) => input.fill(),
            #[cfg(test)]
            Self::Memory(..) => Ok(Filled::End),
        }
    }
}

/// The records of an input.
#[derive(Debug)]
pub(super) struct Records {
    feed: Feed,
    delimiter: Vec<u8>,
    /// Quotes protect the delimiter, a newline.
    is_csv: bool,
    /// What has been searched ends within quotes.
    is_quoted: bool,
    /// So many bytes of the feed hold no delimiter.
    searched: usize,
}

impl Records {
    /// Records that end in this delimiter. Without one, all of the input is one record.
    pub(super) fn new(feed: Feed, delimiter: &[u8]) -> Self {
        Self { feed, delimiter: delimiter.to_vec(), is_csv: false, is_quoted: false, searched: 0 }
    }

    /// Lines of comma-separated values.
    pub(super) fn csv(feed: Feed) -> Self {
        Self { is_csv: true, ..Self::new(feed, b"\n") }
    }

    /// Whether it is known that nothing follows.
    pub(super) fn is_at_end(&self) -> bool {
        self.feed.is_ended() && self.feed.bytes().is_empty()
    }

    pub(super) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The next record, without its delimiter.
    pub(super) fn next(&mut self) -> io::Result<Pull<Vec<u8>>> {
        loop {
            let bytes = self.feed.bytes();
            if let Some(end) = self.find(bytes) {
                let record = bytes[..end].to_vec();
                self.feed.consume(end + self.delimiter.len());
                (self.searched, self.is_quoted) = (0, false);
                return Ok(Pull::Item(record));
            }
            if self.is_csv {
                self.is_quoted ^= toggles(&bytes[self.searched..]);
            }
            // A delimiter may have begun at the end.
            self.searched = bytes.len().saturating_sub(self.delimiter.len().saturating_sub(1));
            match self.feed.fill()? {
                Filled::Data => {}
                Filled::Later => return Ok(Pull::Later),
                Filled::End => {
                    let rest = self.feed.bytes().to_vec();
                    self.feed.consume(rest.len());
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
            let mut records = Records::new(Feed::Memory(text.into(), 0), delimiter.as_bytes());
            let mut found = Vec::new();
            while let Pull::Item(record) = records.next().expect("no error") {
                found.push(String::from_utf8(record).expect("UTF-8"));
            }
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
