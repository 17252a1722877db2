//! Input sources: where the values come from, and how several sources make the rows of a table.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::vec;

use regex::bytes::Regex;

use super::csv::fields;
use super::message::say;
use super::records::{Pull, Records};
use super::values::Trim;

/// The values of one job, before several are packed into one.
pub(super) type Row = Vec<Vec<u8>>;

/// How records become rows.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Splits a record into columns.
    pub(super) columns: Option<Columns>,
    pub(super) trim: Trim,
    /// This record ends a source.
    pub(super) eof: Option<Vec<u8>>,
    /// A record that ends in a blank goes on in the next one (`-L`).
    pub(super) continues: bool,
    /// Blank records are left out.
    pub(super) skips_blank: bool,
}

/// What separates the columns of a record.
#[derive(Debug)]
pub(super) enum Columns {
    Regex(Regex),
    /// This byte, but not in quotes.
    Csv(u8),
}

impl Reading {
    fn split(&self, record: Vec<u8>) -> io::Result<Row> {
        let trimmed = |value: &[u8]| self.trim.apply(value).to_vec();
        Ok(match &self.columns {
            Some(Columns::Regex(columns)) => columns.split(&record).map(trimmed).collect(),
            Some(Columns::Csv(separator)) => fields(&record, *separator)?.iter().map(|value| trimmed(value)).collect(),
            None if self.trim == Trim::default() => vec![record],
            None => vec![trimmed(&record)],
        })
    }
}

/// A source's records.
#[derive(Debug)]
pub(super) enum Stream {
    Arguments(vec::IntoIter<Vec<u8>>),
    Records(Records),
}

impl Stream {
    /// Whether it is known that nothing follows.
    fn is_at_end(&self) -> bool {
        match self {
            Self::Arguments(values) => values.len() == 0,
            Self::Records(records) => records.is_at_end(),
        }
    }

    /// Waits until there may be more.
    fn wait(&self) -> io::Result<()> {
        match self {
            Self::Arguments(_) => Ok(()),
            Self::Records(records) => records.input().wait(),
        }
    }

    fn pull(&mut self) -> io::Result<Pull<Vec<u8>>> {
        match self {
            Self::Arguments(values) => Ok(values.next().map_or(Pull::End, Pull::Item)),
            Self::Records(records) => records.next().map(|pulled| match pulled {
                Pull::Item(record) if record.contains(&0) => Pull::Item(without_nul(&record)),
                pulled => pulled,
            }),
        }
    }
}

/// No argument can contain a NUL byte.
fn without_nul(record: &[u8]) -> Vec<u8> {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        say("the input contains a NUL byte, which no argument can: it is replaced by \\0; is --null (-0) missing?");
    }
    record.split(|byte| *byte == 0).collect::<Vec<_>>().join(&b"\\0"[..])
}

#[derive(Debug)]
struct RowSource {
    stream: Stream,
    ended: bool,
    /// The start of a record that goes on.
    begun: Vec<u8>,
    /// There are other sources.
    has_others: bool,
    /// What has been read, if it is needed again.
    kept: Vec<Row>,
    keeps: bool,
    has_values: bool,
}

impl RowSource {
    fn pull(&mut self, reading: &Reading) -> io::Result<Pull<Row>> {
        while !self.ended {
            let mut record = std::mem::take(&mut self.begun);
            match self.stream.pull()? {
                // Also after the start of a record, which is the last one then.
                Pull::Item(next) if reading.eof.as_ref() == Some(&next) => self.ended = true,
                Pull::Item(next) if record.is_empty() => record = next,
                Pull::Item(next) => record.extend_from_slice(&next),
                Pull::Later => {
                    self.begun = record;
                    return Ok(Pull::Later);
                }
                Pull::End => self.ended = true,
            }
            if self.ended && record.is_empty() {
                break;
            }
            let goes_on = record.ends_with(b" ") || record.ends_with(b"\t");
            if reading.continues && goes_on && !self.ended && !self.stream.is_at_end() {
                self.begun = record;
                continue;
            }
            if reading.skips_blank && record.trim_ascii().is_empty() {
                continue;
            }
            self.has_values = true;
            let row = reading.split(record)?;
            if self.keeps {
                self.kept.push(row.clone());
            }
            return Ok(Pull::Item(row));
        }
        self.ended = true;
        Ok(Pull::End)
    }

    /// The row at a place, from what has been read or from the stream.
    fn at(&mut self, place: usize, reading: &Reading) -> io::Result<Pull<Row>> {
        match self.kept.get(place) {
            Some(row) => Ok(Pull::Item(row.clone())),
            None => self.pull(reading),
        }
    }
}

/// Sources that are linked (`:::+`): one row of each makes one row.
#[derive(Debug)]
struct Group {
    sources: Vec<RowSource>,
    /// The place in all of them.
    place: usize,
    /// What has been read of the row that is under way.
    half: Vec<Row>,
    /// The present row.
    row: Row,
}

/// How several sources combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Combine {
    /// Every row of each with every row of the others; the last one varies fastest.
    Product,
    /// The first with the first and so on; shorter ones start again (`--link`).
    Link,
}

#[derive(Debug)]
pub(super) struct Sources {
    groups: Vec<Group>,
    reading: Reading,
    combine: Combine,
    /// The rows of the groups before this one are set.
    level: usize,
    began: bool,
    /// The group that waits for input.
    waiting: usize,
    made: usize,
}

impl Sources {
    /// `streams`: each with whether it is linked to the one before.
    pub(super) fn new(streams: Vec<(Stream, bool)>, reading: Reading, combine: Combine) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let several = streams.len() > 1;
        for (stream, is_linked) in streams {
            let source = RowSource {
                stream,
                ended: false,
                begun: Vec::new(),
                has_others: several,
                kept: Vec::new(),
                keeps: false,
                has_values: false,
            };
            match groups.last_mut() {
                Some(group) if is_linked && combine == Combine::Product => group.sources.push(source),
                _ => groups.push(Group { sources: vec![source], place: 0, half: Vec::new(), row: Vec::new() }),
            }
        }
        for (place, group) in groups.iter_mut().enumerate() {
            // The rows of the first group are needed once.
            let again = place > 0 || combine == Combine::Link;
            group.sources.iter_mut().for_each(|source| source.keeps = again && several);
        }
        Self { groups, reading, combine, level: 0, began: false, waiting: 0, made: 0 }
    }

    /// The descriptor that must become readable after [`Pull::Later`].
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        let group = &self.groups[self.waiting];
        match &group.sources.get(group.half.len())?.stream {
            Stream::Records(records) => Some(records.input().as_fd()),
            Stream::Arguments(_) => None,
        }
    }

    /// Reads the names of all columns; waits for them.
    pub(super) fn read_header(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for source in self.groups.iter_mut().flat_map(|group| &mut group.sources) {
            let row = loop {
                match source.stream.pull()? {
                    Pull::Item(record) => break self.reading.split(record)?,
                    Pull::End => break Row::new(),
                    Pull::Later => source.stream.wait()?,
                }
            };
            names.extend(row);
        }
        Ok(names)
    }

    /// Waits until there may be more, after [`Pull::Later`].
    pub(super) fn wait(&self) -> io::Result<()> {
        let group = &self.groups[self.waiting];
        group.sources.get(group.half.len()).map_or(Ok(()), |source| source.stream.wait())
    }

    /// The next row.
    pub(super) fn next(&mut self) -> io::Result<Pull<Row>> {
        let pulled = match self.combine {
            Combine::Product => self.next_of_product()?,
            Combine::Link => self.next_of_link()?,
        };
        self.made += usize::from(matches!(pulled, Pull::Item(_)));
        Ok(pulled)
    }

    fn next_of_product(&mut self) -> io::Result<Pull<Row>> {
        if self.groups.is_empty() {
            return Ok(Pull::End);
        }
        if std::mem::replace(&mut self.began, true) && self.level == self.groups.len() {
            self.level -= 1;
        }
        while self.level < self.groups.len() {
            self.waiting = self.level;
            match self.groups[self.level].advance(&self.reading)? {
                Pull::Item(()) => self.level += 1,
                Pull::Later => return Ok(Pull::Later),
                // The first one decides on the end; the others start again for its next row.
                Pull::End if self.level == 0 => return Ok(Pull::End),
                Pull::End => {
                    self.groups[self.level].place = 0;
                    self.level -= 1;
                }
            }
        }
        let mut sources = self.groups.iter().flat_map(|group| &group.sources);
        if sources.all(|source| source.ended && !source.has_values) {
            return Ok(Pull::End);
        }
        Ok(Pull::Item(self.groups.iter().flat_map(|group| group.row.iter().cloned()).collect()))
    }

    fn next_of_link(&mut self) -> io::Result<Pull<Row>> {
        for place in self.level..self.groups.len() {
            (self.waiting, self.level) = (place, place);
            let group = &mut self.groups[place];
            match group.advance(&self.reading)? {
                Pull::Item(()) => {}
                Pull::Later => return Ok(Pull::Later),
                Pull::End => {
                    // Begins again.
                    group.place = 0;
                    match group.advance(&self.reading)? {
                        Pull::Item(()) => {}
                        _ => group.row = vec![Vec::new()],
                    }
                }
            }
        }
        self.level = 0;
        let sources = || self.groups.iter().flat_map(|group| &group.sources);
        // The longest one has just begun again, or there was nothing at all.
        let longest = sources().map(|source| source.kept.len()).max().unwrap_or_default();
        if sources().all(|source| source.ended) && self.made >= longest {
            return Ok(Pull::End);
        }
        Ok(Pull::Item(self.groups.iter().flat_map(|group| group.row.iter().cloned()).collect()))
    }
}

impl Group {
    /// Goes on to the next row.
    fn advance(&mut self, reading: &Reading) -> io::Result<Pull<()>> {
        while self.half.len() < self.sources.len() {
            let source = &mut self.sources[self.half.len()];
            match source.at(self.place, reading)? {
                Pull::Item(row) => self.half.push(row),
                Pull::Later => return Ok(Pull::Later),
                // A source without any value has an empty one beside others.
                Pull::End if self.place == 0 && !source.has_values && source.has_others => {
                    self.half.push(vec![Vec::new()])
                }
                Pull::End => {
                    self.half.clear();
                    return Ok(Pull::End);
                }
            }
        }
        self.row = self.half.drain(..).flatten().collect();
        self.place += 1;
        Ok(Pull::Item(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(values: &[&str]) -> Stream {
        let values: Vec<Vec<u8>> = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        Stream::Arguments(values.into_iter())
    }

    fn rows(sources: &mut Sources) -> Vec<String> {
        let mut found = Vec::new();
        while let Pull::Item(row) = sources.next().expect("no error") {
            let words: Vec<_> = row.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect();
            found.push(words.join(" "));
        }
        found
    }

    fn combined(streams: &[(&[&str], bool)], combine: Combine) -> Vec<String> {
        let streams = streams.iter().map(|(values, is_linked)| (arguments(values), *is_linked)).collect();
        rows(&mut Sources::new(streams, Reading::default(), combine))
    }

    #[test]
    fn the_last_source_varies_fastest() {
        let made = combined(&[(&["a", "b"], false), (&["1", "2"], false), (&["x", "y"], false)], Combine::Product);
        assert_eq!(made, ["a 1 x", "a 1 y", "a 2 x", "a 2 y", "b 1 x", "b 1 y", "b 2 x", "b 2 y"]);
    }

    #[test]
    fn linked_sources_go_together() {
        let made = combined(&[(&["a", "b", "c"], false), (&["1", "2"], true), (&["x", "y"], false)], Combine::Product);
        assert_eq!(made, ["a 1 x", "a 1 y", "b 2 x", "b 2 y"]);
        let made = combined(&[(&["a", "b", "c"], false), (&["1", "2"], false), (&["x"], false)], Combine::Link);
        assert_eq!(made, ["a 1 x", "b 2 x", "c 1 x"]);
        assert_eq!(combined(&[(&["a", "b"], false)], Combine::Link), ["a", "b"]);
    }

    #[test]
    fn a_source_without_values_has_an_empty_one_beside_others() {
        assert_eq!(combined(&[(&["a"], false), (&[], false)], Combine::Product), ["a "]);
        assert_eq!(combined(&[(&[], false), (&["a", "b"], false)], Combine::Product), [" a", " b"]);
        assert!(combined(&[(&[], false)], Combine::Product).is_empty());
        assert!(combined(&[(&[], false), (&[], false)], Combine::Product).is_empty());
    }

    #[test]
    fn records_are_split_trimmed_and_left_out() {
        let columns = Regex::new("[,;]+").expect("an expression");
        let reading = Reading { columns: Some(Columns::Regex(columns)), trim: Trim::BOTH, ..Reading::default() };
        let mut sources = Sources::new(vec![(arguments(&["a , b;;c", "d"]), false)], reading, Combine::Product);
        assert_eq!(rows(&mut sources), ["a b c", "d"]);
        let reading = Reading { eof: Some(b"end".to_vec()), skips_blank: true, ..Reading::default() };
        let mut sources =
            Sources::new(vec![(arguments(&["a", " ", "", "end", "b"]), false)], reading, Combine::Product);
        assert_eq!(rows(&mut sources), ["a"]);
        let streams = vec![(arguments(&["x", "1", "2"]), false), (arguments(&["y", "3"]), false)];
        let mut sources = Sources::new(streams, Reading::default(), Combine::Product);
        assert_eq!(sources.read_header().expect("no error"), [b"x".to_vec(), b"y".to_vec()]);
        assert_eq!(rows(&mut sources), ["1 3", "2 3"]);
        let reading = Reading { continues: true, ..Reading::default() };
        let mut sources = Sources::new(vec![(arguments(&["a ", "b", "c "]), false)], reading, Combine::Product);
        assert_eq!(rows(&mut sources), ["a b", "c "]);
    }
}
