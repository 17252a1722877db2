//! Several rows into one job: `-n`, `-N`, `-L`, `-X`, `-m`, `--xargs`, `-s`.

use std::collections::VecDeque;
use std::io;

use super::records::Pull;
use super::sources::{Row, Sources};
use super::template::{Length, Numbers, Template};

/// What fits in one job.
#[derive(Debug, Clone)]
pub(super) struct PackLimits {
    /// So many rows at most.
    pub(super) rows: usize,
    /// One row is read, and none of its values is used (`-n 0`).
    pub(super) drops_values: bool,
    /// As many rows as the length of the line allows.
    pub(super) fills: bool,
    /// The last rows are spread evenly over all slots.
    pub(super) spreads: bool,
    /// The line must be shorter than this.
    pub(super) length: usize,
}

impl Default for PackLimits {
    fn default() -> Self {
        Self { rows: 1, drops_values: false, fills: false, spreads: false, length: LONGEST }
    }
}

/// The kernel takes no argument of more bytes than this, with its NUL (MAX_ARG_STRLEN).
pub(super) const LONGEST: usize = 131_072;

/// Makes the arguments of jobs from rows.
#[derive(Debug)]
pub(super) struct RowPacker {
    sources: Sources,
    pub(super) limits: PackLimits,
    /// The rows of the job that is being packed.
    rows: Vec<Row>,
    /// For each of them, how many values come before it.
    starts: Vec<usize>,
    /// The length of its line.
    length: Length,
    /// A row that did not fit.
    next: Option<Row>,
    /// The last rows, spread over the slots.
    last: VecDeque<Vec<Row>>,
    taken: u64,
}

impl RowPacker {
    pub(super) fn new(sources: Sources, limits: PackLimits) -> Self {
        let (rows, starts, length) = Default::default();
        Self { sources, limits, rows, starts, length, next: None, last: VecDeque::new(), taken: 0 }
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The arguments of the next job.
    ///
    /// # Errors
    /// Those of the sources; a row that does not fit alone.
    pub(super) fn next(&mut self, template: &Template, numbers: Numbers) -> io::Result<Pull<Row>> {
        if let Some(rows) = self.last.pop_front() {
            return Ok(Pull::Item(self.join(rows)));
        }
        loop {
            let is_full = self.rows.len() >= self.limits.rows;
            if is_full && !self.limits.spreads {
                return Ok(Pull::Item(self.finish()));
            }
            let row = match self.next.take().map_or_else(|| self.sources.next(), |row| Ok(Pull::Item(row)))? {
                Pull::Item(row) => row,
                Pull::Later => return Ok(Pull::Later),
                Pull::End if self.rows.is_empty() => return Ok(Pull::End),
                Pull::End if self.limits.spreads => return Ok(Pull::Item(self.spread(numbers.slots))),
                Pull::End => return Ok(Pull::Item(self.finish())),
            };
            // The last rows are spread even if they fill a job. Only the row after them shows that they are not the last.
            if is_full {
                self.next = Some(row);
                return Ok(Pull::Item(self.finish()));
            }
            self.rows.push(row);
            if !self.add(template, numbers)? {
                self.next = self.rows.pop();
                return Ok(Pull::Item(self.finish()));
            }
        }
    }

    /// Whether the last row fits beside the others.
    fn add(&mut self, template: &Template, numbers: Numbers) -> io::Result<bool> {
        if self.limits.rows == 1 && !self.limits.fills && self.limits.length == LONGEST {
            return Ok(true);
        }
        let Self { rows, starts, length, .. } = self;
        let [.., row] = &rows[..] else { return Ok(true) };
        if rows.len() == 1 {
            (*starts, *length) = (Vec::new(), Length::default());
        }
        let before = match (starts.last(), rows.len().checked_sub(2).and_then(|place| rows.get(place))) {
            (Some(start), Some(row)) => start + row.len(),
            _ => 0,
        };
        starts.push(before);
        let count = before + row.len();
        // A position is from 1, or from the last one if negative.
        let at = |number: isize| {
            let place = if number > 0 { number as usize - 1 } else { count.checked_sub(number.unsigned_abs())? };
            let row = starts.partition_point(|start| *start <= place).checked_sub(1)?;
            Some(rows[row].get(place - starts[row])?.as_slice())
        };
        let mut length = template.lengthen(length, row, numbers, at);
        if length >= self.limits.length && template.is_estimated() {
            length = template.length(&rows.iter().flatten().cloned().collect::<Row>(), numbers);
        }
        if length < self.limits.length {
            return Ok(true);
        }
        if rows.len() == 1 {
            let text = String::from_utf8_lossy(&row.join(&b' ')).into_owned();
            return Err(io::Error::other(format!(
                "the command line is too long ({length} bytes; it must have fewer than {}) at input {}: {text}",
                self.limits.length, self.taken
            )));
        }
        Ok(false)
    }

    /// The held rows, evenly over the slots; returns the first part.
    fn spread(&mut self, slots: usize) -> Row {
        let each = self.rows.len().div_ceil(slots.max(1));
        let mut parts: VecDeque<Vec<Row>> = self.rows.chunks(each).map(<[Row]>::to_vec).collect();
        self.rows.clear();
        let first = parts.pop_front().unwrap_or_default();
        self.last = parts;
        self.join(first)
    }

    fn finish(&mut self) -> Row {
        let rows = std::mem::take(&mut self.rows);
        self.join(rows)
    }

    fn join(&mut self, mut rows: Vec<Row>) -> Row {
        self.taken += rows.len() as u64;
        match (self.limits.drops_values, rows.len()) {
            (true, _) => Row::new(),
            // Without a copy.
            (false, 1) => rows.swap_remove(0),
            (false, _) => rows.into_iter().flatten().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::counted;
    use crate::parallel::quote::Language;
    use crate::parallel::sources::{Combine, Reading, Stream};
    use crate::parallel::template::{Fill, Strings};

    fn lines(command: &str, count: usize, fill: Fill, limits: PackLimits, slots: usize) -> Vec<String> {
        let values: Vec<_> = (1..=count).map(|number| number.to_string().into_bytes()).collect();
        let streams = vec![(Stream::Arguments(values.into_iter()), false)];
        let mut packer = RowPacker::new(Sources::new(streams, Reading::default(), Combine::Product), limits);
        let words = [command.as_bytes().to_vec()];
        let template =
            Template::parse(&words, &Strings::default(), fill, false, true, Language::Posix).expect("a template");
        let mut made = Vec::new();
        let mut numbers = Numbers { seq: 1, slot: 1, slots, total: 0 };
        while let Pull::Item(args) = packer.next(&template, numbers).expect("no error") {
            made.push(String::from_utf8(template.expand(&args, numbers)).expect("UTF-8"));
            numbers.seq += 1;
        }
        made
    }

    #[test]
    fn so_many_rows_make_a_job() {
        let limits = PackLimits { rows: 2, ..PackLimits::default() };
        assert_eq!(lines("echo", 5, Fill::Arguments, limits.clone(), 2), ["echo 1 2", "echo 3 4", "echo 5"]);
        assert_eq!(lines("echo {2} {1}", 3, Fill::Arguments, limits, 2), ["echo 2 1", "echo  3"]);
        let limits = PackLimits { drops_values: true, ..PackLimits::default() };
        assert_eq!(lines("echo", 2, Fill::Arguments, limits, 2), ["echo ", "echo "]);
    }

    #[test]
    fn as_many_rows_as_fit_make_a_job_and_the_last_ones_go_to_all_slots() {
        let limits = PackLimits { rows: usize::MAX, fills: true, spreads: true, length: 20, ..PackLimits::default() };
        let made = lines("echo", 30, Fill::Arguments, limits.clone(), 3);
        let expected = ["echo 1 2 3 4 5 6 7", "echo 8 9 10 11 12", "echo 13 14 15 16 17", "echo 18 19 20 21 22"];
        assert_eq!(made[..4], expected);
        assert_eq!(made[4..], ["echo 23 24 25 26 27", "echo 28", "echo 29", "echo 30"]);
        let full = PackLimits { rows: 3, ..limits.clone() };
        assert_eq!(lines("echo", 6, Fill::Arguments, full, 3), ["echo 1 2 3", "echo 4", "echo 5", "echo 6"]);
        let limits = PackLimits { spreads: false, ..limits };
        assert_eq!(lines("echo x{}y", 3, Fill::Words, limits.clone(), 3), ["echo x1y x2y x3y"]);
        assert_eq!(lines("echo {1} {}", 6, Fill::Words, limits, 3), ["echo 1 1 2 3 4 5 6"]);
    }

    /// What is done for a row does not depend on how many rows the job has.
    #[test]
    fn rows_are_packed_in_linear_work() {
        const COUNT: usize = 5_000;
        for command in ["echo", "echo {1} {}", "echo {1} {-1}", "echo x{}{2}"] {
            for (fill, fills) in [(Fill::Arguments, false), (Fill::Words, true)] {
                let before = counted::arguments();
                let limits = PackLimits { rows: COUNT, fills, ..PackLimits::default() };
                let made = lines(command, COUNT, fill, limits, 2);
                assert_eq!(made.len(), 1, "{command}");
                let measured = counted::arguments() - before;
                assert!(measured <= 12 * COUNT, "{command}: {measured} arguments were looked at for {COUNT}");
            }
        }
    }
}
