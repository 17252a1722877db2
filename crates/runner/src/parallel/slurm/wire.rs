//! The lines between `forkless parallel --slurm` and its workers, which travel through the streams of srun.
//!
//! Orders go to srun's standard input, which Slurm copies to all workers: a line each, `KIND NODE FIELD…` with tabs
//! between. Answers come from srun's standard output. Slurm does not mix lines of up to 1,024 bytes; so each answer is a
//! line of at most [`LONGEST`] bytes: [`MARK`], the worker's number, and records, each after another mark. Whatever else
//! is written there, as by a prolog of the site, has no mark.

use std::io;

/// The byte before the number and each record.
pub(super) const MARK: u8 = 0x1e;

/// The length of a line of answers, at most.
pub(super) const LONGEST: usize = 1000;

/// The length of a piece of output in a record, at most, with its escapes.
const PIECE: usize = 880;

/// Adds a field, with a tab before it.
pub(super) fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'\t');
    for &byte in bytes {
        escape(out, byte);
    }
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\0' => out.extend_from_slice(b"\\0"),
        MARK => out.extend_from_slice(b"\\m"),
        byte => out.push(byte),
    }
}

/// The bytes of a field.
pub(super) fn plain(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match (byte, byte == b'\\') {
            (byte, false) => byte,
            _ => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => b'\0',
                Some(b'm') => MARK,
                _ => b'\\',
            },
        });
    }
    out
}

/// The number in a field.
pub(super) fn number<T: std::str::FromStr>(field: Option<&[u8]>) -> Option<T> {
    std::str::from_utf8(field?).ok()?.parse().ok()
}

/// The first piece of output that fits into a record, and the rest.
pub(super) fn piece(bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut out = Vec::new();
    for (at, &byte) in bytes.iter().enumerate() {
        if out.len() + 2 > PIECE {
            return (out, &bytes[at..]);
        }
        escape(&mut out, byte);
    }
    (out, &[])
}

/// Answers of a worker on their way out.
#[derive(Debug)]
pub(super) struct Outbox {
    rank: u64,
    whole: Vec<u8>,
    /// The line that is being filled. Empty: none is begun.
    line: Vec<u8>,
}

impl Outbox {
    pub(super) fn new(rank: u64) -> Self {
        Self { rank, whole: Vec::new(), line: Vec::new() }
    }

    /// Adds a record of at most 900 bytes.
    pub(super) fn add(&mut self, record: &[u8]) {
        if self.line.len() + record.len() + 2 > LONGEST {
            self.end_line();
        }
        if self.line.is_empty() {
            self.line.push(MARK);
            self.line.extend_from_slice(self.rank.to_string().as_bytes());
        }
        self.line.push(MARK);
        self.line.extend_from_slice(record);
    }

    fn end_line(&mut self) {
        if !self.line.is_empty() {
            self.whole.append(&mut self.line);
            self.whole.push(b'\n');
        }
    }

    /// Whether so much waits that it should go out.
    pub(super) fn is_full(&self) -> bool {
        !self.whole.is_empty()
    }

    /// Takes what waits, as whole lines.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.end_line();
        std::mem::take(&mut self.whole)
    }
}

/// The number of a worker and the records of its line; `None`: the line is not one of a worker.
pub(super) fn parse_answer(line: &[u8]) -> Option<(usize, impl Iterator<Item = &[u8]>)> {
    let mut parts = line.strip_prefix(&[MARK])?.split(|&byte| byte == MARK);
    let rank = number(parts.next())?;
    Some((rank, parts))
}

/// Lines that come in pieces.
#[derive(Debug, Default)]
pub(super) struct WireLines(Vec<u8>);

impl WireLines {
    /// Adds bytes, and passes each whole line to `to`, without its newline.
    pub(super) fn each(&mut self, bytes: &[u8], mut to: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.0[start..]) {
            to(&self.0[start..start + length])?;
            start += length + 1;
        }
        self.0.drain(..start);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let mut out = Vec::new();
        field(&mut out, &all);
        assert_eq!(out[0], b'\t');
        assert!(!out[1..].iter().any(|byte| b"\n\t\0\x1e".contains(byte)));
        assert_eq!(plain(&out[1..]), all);
    }

    #[test]
    fn lines_of_answers_are_short_and_whole() {
        let mut outbox = Outbox::new(12);
        let text: Vec<u8> = (0..100_000u32).map(|n| (n * 7 % 256) as u8).collect();
        let mut rest = &text[..];
        while !rest.is_empty() {
            let (record, left) = piece(rest);
            outbox.add(&[b"o", &record[..]].concat());
            rest = left;
        }
        let (mut lines, mut found, sent) = (WireLines::default(), Vec::new(), outbox.take());
        // In pieces of any length.
        for part in sent.chunks(77) {
            lines
                .each(part, |line| {
                    assert!(line.len() < LONGEST, "{}", line.len());
                    let (rank, records) = parse_answer(line).expect("an answer");
                    assert_eq!(rank, 12);
                    records.for_each(|record| found.extend(plain(&record[1..])));
                    Ok(())
                })
                .expect("lines");
        }
        assert!(found == text);
        assert!(parse_answer(b"slurm prolog: hello").is_none());
    }
}
