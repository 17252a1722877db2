//! The command with its replacement strings, and the lines made of it.
//!
//! Longer than most files: a sixth is tests, and the lengths of lines belong to what makes the lines.

use std::collections::HashMap;

use super::change::Change;
use super::counted;
use super::quote::{Language, Level, Lexer, push_at, push_word};

const PERL: &str =
    "{= … =} is Perl, which is not supported: use {.}, {/}, --plus, or the shell, as in 'x={}; echo ${x%.*}'";

/// The strings that are replaced.
#[derive(Debug, Clone)]
pub(super) struct Strings {
    /// `{}`, `{.}`, `{/}` and so on, or what the options have in their place.
    values: Vec<(Vec<u8>, Change)>,
    /// `{#}`
    seq: Vec<u8>,
    /// `{%}`
    slot: Vec<u8>,
    /// The further ones of `--plus`.
    plus: bool,
    /// The columns that have a name.
    names: HashMap<Vec<u8>, usize>,
}

impl Default for Strings {
    fn default() -> Self {
        let value = |text: &str, change| (text.as_bytes().to_vec(), change);
        let values = vec![
            value("{}", Change::None),
            value("{.}", Change::NoExtension(1)),
            value("{/}", Change::Base),
            value("{//}", Change::Directory),
            value("{/.}", Change::BaseNoExtension(1)),
        ];
        Self { values, seq: b"{#}".to_vec(), slot: b"{%}".to_vec(), plus: false, names: HashMap::new() }
    }
}

impl Strings {
    pub(super) fn rename(&mut self, from: &str, to: &[u8]) {
        match from {
            "{#}" => self.seq = to.to_vec(),
            "{%}" => self.slot = to.to_vec(),
            _ => {
                let found = self.values.iter_mut().find(|(text, _)| text == from.as_bytes());
                found.into_iter().for_each(|(text, _)| *text = to.to_vec());
            }
        }
    }

    /// Adds the strings of `--plus`.
    pub(super) fn plus(&mut self) {
        let more = [
            ("{+/}", Change::Above),
            ("{+.}", Change::Extension(1)),
            ("{+..}", Change::Extension(2)),
            ("{+...}", Change::Extension(3)),
            ("{..}", Change::NoExtension(2)),
            ("{...}", Change::NoExtension(3)),
            ("{/..}", Change::BaseNoExtension(2)),
            ("{/...}", Change::BaseNoExtension(3)),
        ];
        self.values.extend(more.map(|(text, change)| (text.as_bytes().to_vec(), change)));
        self.plus = true;
    }

    /// Gives names to the columns.
    pub(super) fn name(&mut self, names: &[Vec<u8>]) {
        self.names = names.iter().cloned().zip(1..).collect();
    }

    /// The replacement string at the start of the text, and its length.
    fn at(&self, text: &[u8]) -> Result<Option<(Part, usize)>, String> {
        let numbers = [(&self.seq, None), (&self.slot, None)];
        let values = self.values.iter().map(|(string, change)| (string, Some(change)));
        let all = numbers.into_iter().chain(values).filter(|(string, _)| text.starts_with(string));
        // Strings that have been renamed may begin like others.
        if let Some((string, change)) = all.max_by_key(|(string, _)| string.len()) {
            let part = match change {
                Some(change) => {
                    let (which, change) = (Which::All, change.clone());
                    Part::Value(Value { which, change, levels: Vec::new(), is_code: false })
                }
                None if *string == self.seq => Part::Seq,
                None => Part::Slot,
            };
            return Ok(Some((part, string.len())));
        }
        if text.starts_with(b"{=") && text.windows(2).any(|two| two == b"=}") {
            return Err(PERL.to_owned());
        }
        let Some(end) = text.iter().position(|&byte| byte == b'}').filter(|_| text[0] == b'{') else {
            return Ok(None);
        };
        let inner = &text[1..end];
        Ok(self.inner(inner)?.map(|part| (part, end + 1)))
    }

    /// Whether a line has Perl, which may be spread over several words.
    fn has_perl(&self, line: &[u8]) -> bool {
        let begin = line.windows(2).position(|two| two == b"{=");
        let is_renamed = self.values.iter().any(|(string, _)| string.starts_with(b"{="));
        !is_renamed && begin.is_some_and(|begin| line[begin..].windows(2).any(|two| two == b"=}"))
    }

    /// What is between braces: `2.`, `name/`, and what `--plus` adds.
    fn inner(&self, inner: &[u8]) -> Result<Option<Part>, String> {
        if self.plus {
            match inner {
                b"##" => return Ok(Some(Part::Total)),
                b"0#" => return Ok(Some(Part::PaddedSeq)),
                b"0%" => return Ok(Some(Part::PaddedSlot)),
                b"slot" => return Ok(Some(Part::Text(b"${PARALLEL_JOBSLOT}".to_vec()))),
                // Those of this machine.
                b"host" | b"sshlogin" => return Ok(Some(Part::Text(b":".to_vec()))),
                b"hgrp" | b"agrp" => return Ok(Some(Part::Text(Vec::new()))),
                b"uniq" | b"choose_k" => {
                    return Err(format!("{{{}}} is not supported", String::from_utf8_lossy(inner)));
                }
                _ => {}
            }
        }
        let sign = usize::from(inner.starts_with(b"-"));
        let digits = sign + inner[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = || std::str::from_utf8(&inner[..digits]).ok()?.parse::<isize>().ok();
        if let Some(number) = number().filter(|_| digits > sign) {
            return Ok(self.change(&inner[digits..])?.map(|change| Part::of(number, change)));
        }
        // The longest name: names may contain what follows a name.
        for length in (1..=inner.len()).rev() {
            if let Some(column) = self.names.get(&inner[..length]) {
                if let Some(change) = self.change(&inner[length..])? {
                    return Ok(Some(Part::of(*column as isize, change)));
                }
            }
        }
        match self.plus {
            true => Ok(Change::dynamic(inner)?.map(|change| Part::of(0, change))),
            false => Ok(None),
        }
    }

    /// What follows the number or the name in braces.
    fn change(&self, rest: &[u8]) -> Result<Option<Change>, String> {
        let full = [b"{", rest, b"}"].concat();
        let standard = self.values.iter().find(|(string, _)| *string == full).map(|(_, change)| change.clone());
        match standard {
            None if self.plus => Change::dynamic(rest),
            found => Ok(found),
        }
    }
}

/// Which arguments of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    /// From 1, or from the last one if negative.
    Nth(isize),
}

/// A value's place.
#[derive(Debug, Clone)]
struct Value {
    which: Which,
    change: Change,
    /// What surrounds the place.
    levels: Vec<Level>,
    /// The value is part of the command: it is not quoted.
    is_code: bool,
}

/// A piece of the command.
#[derive(Debug, Clone)]
enum Part {
    Text(Vec<u8>),
    Value(Value),
    Seq,
    Slot,
    PaddedSeq,
    PaddedSlot,
    Total,
}

impl Part {
    /// A position of 0 means all.
    fn of(number: isize, change: Change) -> Self {
        let which = if number == 0 { Which::All } else { Which::Nth(number) };
        Self::Value(Value { which, change, levels: Vec::new(), is_code: false })
    }

    /// The place of the argument at a position, and that position.
    fn position(&self) -> Option<(&Value, isize)> {
        match self {
            Self::Value(value) => match value.which {
                Which::Nth(number) => Some((value, number)),
                Which::All => None,
            },
            _ => None,
        }
    }

    fn is_all(&self) -> bool {
        matches!(self, Self::Value(Value { which: Which::All, .. }))
    }
}

/// How several arguments fill a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Each replacement string becomes all arguments.
    Arguments,
    /// Each word with a replacement string is repeated (`-X`).
    Words,
}

/// The numbers of the job that a line is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) seq: u64,
    pub(super) slot: usize,
    pub(super) slots: usize,
    /// 0 if the command does not need it.
    pub(super) total: u64,
}

/// A part of the command that is repeated as a whole, if it is: a word, or all of it.
#[derive(Debug, Clone)]
struct Unit {
    parts: Vec<Part>,
    repeats: bool,
    /// The blanks that follow it.
    gap: Vec<u8>,
}

/// A command with replacement strings.
#[derive(Debug, Clone)]
pub(super) struct Template {
    units: Vec<Unit>,
    quoted: bool,
    language: Language,
    /// Without the parts for the argument at a position, if it has any.
    even: Option<Box<Template>>,
}

/// The length of a line to which arguments are added.
#[derive(Debug, Default)]
pub(super) struct Length {
    /// The number of arguments.
    count: usize,
    /// Without the parts for the argument at a position.
    even: usize,
    /// Of the parts for a position from the start, once there is such an argument.
    fixed: Vec<Option<usize>>,
}

impl Template {
    /// The text before the first replacement string.
    pub(super) fn literal_start(&self) -> Vec<u8> {
        let parts = self.units.first().map_or(&[][..], |unit| &unit.parts);
        let texts = parts.iter().map_while(|part| if let Part::Text(text) = part { Some(&text[..]) } else { None });
        texts.collect::<Vec<_>>().concat()
    }

    /// Parses a command. `quoted`: each of its words is quoted (`--quote`); `appends`: the values come last if the command
    /// has no replacement string.
    pub(super) fn parse(
        words: &[Vec<u8>],
        strings: &Strings,
        fill: Fill,
        quoted: bool,
        appends: bool,
        language: Language,
    ) -> Result<Self, String> {
        let mut parsed = words.iter().map(|word| split(word, strings)).collect::<Result<Vec<_>, _>>()?;
        if strings.has_perl(&words.join(&b' ')) {
            return Err(PERL.to_owned());
        }
        let has_any = parsed.iter().flatten().any(|part| !matches!(part, Part::Text(_)));
        let is_missing = parsed.is_empty();
        if appends && !has_any && !has_text_string(words, strings) {
            parsed.push(vec![Part::of(0, Change::None)]);
        }
        mark_code(&mut parsed, is_missing, quoted);
        let units = if quoted {
            let gap = |last: bool| if last { Vec::new() } else { b" ".to_vec() };
            let count = parsed.len();
            let unit = |(place, parts): (usize, Vec<Part>)| {
                let repeats = fill == Fill::Words && parts.iter().any(Part::is_all);
                Unit { parts, repeats, gap: gap(place + 1 == count) }
            };
            parsed.into_iter().enumerate().map(unit).collect()
        } else {
            let mut line = join(parsed);
            find_levels(&mut line, language)?;
            match fill {
                Fill::Words => words_of(line, language),
                Fill::Arguments => vec![Unit { parts: line, repeats: false, gap: Vec::new() }],
            }
        };
        let mut template = Self { units, quoted, language, even: None };
        if template.units.iter().flat_map(|unit| &unit.parts).any(|part| part.position().is_some()) {
            let mut even = template.clone();
            even.units.iter_mut().for_each(|unit| unit.parts.retain(|part| part.position().is_none()));
            template.even = Some(Box::new(even));
        }
        Ok(template)
    }

    /// A text with replacement strings that is no shell line: values are not quoted. None are added.
    pub(super) fn text(text: &[u8], strings: &Strings) -> Result<Self, String> {
        Self::text_filled(text, strings, Fill::Arguments)
    }

    /// The same for a text whose words may be repeated.
    pub(super) fn text_filled(text: &[u8], strings: &Strings, fill: Fill) -> Result<Self, String> {
        let mut parts = split(text, strings)?;
        for part in &mut parts {
            if let Part::Value(value) = part {
                value.is_code = true;
            }
        }
        let language = Language::Posix;
        let units = match fill {
            Fill::Words => words_of(parts, language),
            Fill::Arguments => vec![Unit { parts, repeats: false, gap: Vec::new() }],
        };
        Ok(Self { units, quoted: false, language, even: None })
    }

    /// Whether the line depends on the number of all jobs.
    pub(super) fn has_total(&self) -> bool {
        let mut parts = self.units.iter().flat_map(|unit| &unit.parts);
        parts.any(|part| matches!(part, Part::Total | Part::PaddedSeq))
    }

    /// Whether anything in it is replaced.
    pub(super) fn is_constant(&self) -> bool {
        self.units.iter().flat_map(|unit| &unit.parts).all(|part| matches!(part, Part::Text(_)))
    }

    /// The line for these arguments.
    pub(super) fn expand(&self, args: &[Vec<u8>], numbers: Numbers) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        for unit in &self.units {
            match unit.repeats {
                true => {
                    for place in 0..args.len() {
                        if place > 0 {
                            out.push(b' ');
                        }
                        self.push(&mut out, &unit.parts, args, place..place + 1, numbers);
                    }
                }
                false => self.push(&mut out, &unit.parts, args, 0..args.len(), numbers),
            }
            out.extend_from_slice(&unit.gap);
        }
        out
    }

    /// Appends a unit, in which "all arguments" are those in `range`.
    fn push(
        &self,
        out: &mut Vec<u8>,
        parts: &[Part],
        args: &[Vec<u8>],
        range: std::ops::Range<usize>,
        numbers: Numbers,
    ) {
        counted::looked_at(range.len() + 1);
        if self.quoted {
            return self.push_quoted(out, parts, args, range, numbers);
        }
        for part in parts {
            match part {
                Part::Value(value) if value.which == Which::All => {
                    for (place, arg) in args[range.clone()].iter().enumerate() {
                        if place > 0 {
                            out.push(b' ');
                        }
                        self.push_value(out, value, arg);
                    }
                }
                Part::Value(value) => {
                    if let Some(arg) = nth(args, value.which) {
                        self.push_value(out, value, arg);
                    }
                }
                other => push_number(out, other, numbers),
            }
        }
    }

    fn push_value(&self, out: &mut Vec<u8>, value: &Value, arg: &[u8]) {
        let made = value.change.apply(arg);
        match value.is_code {
            true => out.extend_from_slice(&made),
            false => push_at(out, &made, &value.levels, self.language),
        }
    }

    /// Appends a word of `--quote`: what is between two arguments is a blank outside of the quotes.
    fn push_quoted(
        &self,
        out: &mut Vec<u8>,
        parts: &[Part],
        args: &[Vec<u8>],
        range: std::ops::Range<usize>,
        numbers: Numbers,
    ) {
        let mut word = Vec::new();
        for part in parts {
            match part {
                Part::Value(value) if value.which == Which::All => {
                    for (place, arg) in args[range.clone()].iter().enumerate() {
                        if place > 0 {
                            push_word(out, &word, self.language);
                            out.push(b' ');
                            word.clear();
                        }
                        word.extend_from_slice(&value.change.apply(arg));
                    }
                }
                Part::Value(value) => {
                    let made = nth(args, value.which).map(|arg| value.change.apply(arg));
                    word.extend_from_slice(&made.unwrap_or_default());
                }
                other => push_number(&mut word, other, numbers),
            }
        }
        push_word(out, &word, self.language);
    }

    /// The length of the line for these arguments.
    pub(super) fn length(&self, args: &[Vec<u8>], numbers: Numbers) -> usize {
        self.expand(args, numbers).len()
    }

    /// The length of a line with the arguments of one more row. `at` gives the argument at a position, the new ones
    /// included. Of the arguments that the line has already, it reads only those at such positions.
    ///
    /// [`Self::is_estimated`]: the length is at most this.
    pub(super) fn lengthen<'a>(
        &self,
        length: &mut Length,
        row: &[Vec<u8>],
        numbers: Numbers,
        at: impl Fn(isize) -> Option<&'a [u8]>,
    ) -> usize {
        let even = self.even.as_deref().unwrap_or(self);
        length.even = match length.count {
            0 => even.length(row, numbers),
            _ => length.even + row.iter().map(|value| even.growth(value, numbers)).sum::<usize>(),
        };
        length.count += row.len();
        let mut all = length.even;
        let mut place = 0;
        for unit in &self.units {
            for (value, number) in unit.parts.iter().filter_map(Part::position) {
                length.fixed.resize(length.fixed.len().max(place + 1), None);
                let known = length.fixed[place];
                let one = known.or_else(|| at(number).map(|arg| self.value_length(value, arg)));
                if number > 0 {
                    length.fixed[place] = one;
                }
                all += one.unwrap_or(0) * if unit.repeats { length.count } else { 1 };
                place += 1;
            }
        }
        // Words get quotes because of what else is in them.
        all + if self.is_estimated() { 4 * self.units.iter().map(|unit| unit.parts.len()).sum::<usize>() } else { 0 }
    }

    /// Whether [`Self::lengthen`] may return more than the length: what quotes a word needs depends on all of its parts, and
    /// what stands around all arguments is in the first word and in the last.
    pub(super) fn is_estimated(&self) -> bool {
        let is_around = |unit: &Unit| !unit.repeats && unit.parts.len() > 1 && unit.parts.iter().any(Part::is_all);
        self.quoted && (self.even.is_some() || self.units.iter().any(is_around))
    }

    fn value_length(&self, value: &Value, arg: &[u8]) -> usize {
        let mut piece = Vec::new();
        match self.quoted {
            true => push_word(&mut piece, &value.change.apply(arg), self.language),
            false => self.push_value(&mut piece, value, arg),
        }
        counted::looked_at(1);
        piece.len()
    }

    /// By how much the line grows with one more argument, at most, if it has one at least.
    fn growth(&self, arg: &Vec<u8>, numbers: Numbers) -> usize {
        let one = std::slice::from_ref(arg);
        let mut grown = 0;
        let mut piece = Vec::new();
        for unit in &self.units {
            match unit.repeats {
                true => {
                    self.push(&mut piece, &unit.parts, one, 0..1, numbers);
                    grown += 1;
                }
                false => {
                    for part in unit.parts.iter().filter(|part| part.is_all()) {
                        self.push(&mut piece, std::slice::from_ref(part), one, 0..1, numbers);
                        grown += 1;
                    }
                }
            }
        }
        grown + piece.len()
    }
}

/// The argument at a position.
fn nth(args: &[Vec<u8>], which: Which) -> Option<&Vec<u8>> {
    match which {
        Which::All => None,
        Which::Nth(number) if number > 0 => args.get(number as usize - 1),
        Which::Nth(number) => args.get(args.len().checked_sub(number.unsigned_abs())?),
    }
}

fn push_number(out: &mut Vec<u8>, part: &Part, numbers: Numbers) {
    let width = |number: u64| number.max(1).to_string().len();
    let text = match part {
        Part::Text(text) => return out.extend_from_slice(text),
        Part::Value(_) => return,
        Part::Seq => numbers.seq.to_string(),
        Part::Slot => numbers.slot.to_string(),
        Part::Total => numbers.total.to_string(),
        Part::PaddedSeq => format!("{:0width$}", numbers.seq, width = width(numbers.total)),
        Part::PaddedSlot => format!("{:0width$}", numbers.slot, width = width(numbers.slots as u64)),
    };
    out.extend_from_slice(text.as_bytes());
}

/// Splits a word at its replacement strings.
fn split(word: &[u8], strings: &Strings) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = Vec::new();
    let mut rest = word;
    while let Some(first) = rest.first() {
        match strings.at(rest)? {
            Some((part, length)) => {
                if !text.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                }
                parts.push(part);
                rest = &rest[length..];
            }
            None => {
                text.push(*first);
                rest = &rest[1..];
            }
        }
    }
    if !text.is_empty() || parts.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

/// Whether the command has a string that is replaced by a text: then no argument is added.
fn has_text_string(words: &[Vec<u8>], strings: &Strings) -> bool {
    const TEXTS: [&[u8]; 5] = [b"{slot}", b"{host}", b"{sshlogin}", b"{hgrp}", b"{agrp}"];
    let has = |word: &[u8], text: &[u8]| word.windows(text.len()).any(|window| window == text);
    strings.plus && words.iter().any(|word| TEXTS.iter().any(|text| has(word, text)))
}

/// A command that begins with a replacement string: that argument is the command, wherever else it stands. Other
/// arguments stay data.
fn mark_code(parsed: &mut [Vec<Part>], is_missing: bool, quoted: bool) {
    let first = match parsed.first().and_then(|parts| parts.first()) {
        Some(Part::Value(value)) if !quoted || is_missing => value.which,
        _ => return,
    };
    for part in parsed.iter_mut().flatten() {
        if let Part::Value(value) = part {
            value.is_code = first == Which::All || value.which == first;
        }
    }
}

/// The words as one line.
fn join(words: Vec<Vec<Part>>) -> Vec<Part> {
    let mut line: Vec<Part> = Vec::new();
    for (place, word) in words.into_iter().enumerate() {
        let blank = (place > 0).then(|| Part::Text(b" ".to_vec()));
        for part in blank.into_iter().chain(word) {
            match (line.last_mut(), part) {
                (Some(Part::Text(text)), Part::Text(more)) => text.extend_from_slice(&more),
                (_, part) => line.push(part),
            }
        }
    }
    line
}

/// Finds out what surrounds each value.
fn find_levels(line: &mut [Part], language: Language) -> Result<(), String> {
    let mut lexer = Lexer::new(language);
    for part in line {
        if let Part::Value(value) = part {
            match lexer.levels() {
                Ok(levels) => value.levels = levels,
                // A user's code is not quoted at all.
                Err(_) if value.is_code => {}
                Err(reason) => {
                    return Err(format!(
                        "cannot insert a value after {reason}: put the command in a script, and the value after its name"
                    ));
                }
            }
        }
        take(&mut lexer, part);
    }
    Ok(())
}

fn take(lexer: &mut Lexer, part: &Part) {
    match part {
        Part::Text(text) => text.iter().for_each(|byte| lexer.take(*byte)),
        // All arguments are at least one, so their place is not empty.
        Part::Value(value) => lexer.take_value(value.which != Which::All),
        _ => lexer.take_value(false),
    }
}

/// The words of a line, at its blanks, quoted or not. What begins inside of quotes and ends outside of them, or the
/// reverse, is not repeated: the quotes would be, too.
fn words_of(line: Vec<Part>, language: Language) -> Vec<Unit> {
    let empty = || Unit { parts: Vec::new(), repeats: false, gap: Vec::new() };
    let mut units = vec![empty()];
    let mut lexer = Lexer::new(language);
    let mut opened = lexer.clone();
    let mut push = |part: Part, is_gap: bool| {
        if !is_gap && units.last().is_some_and(|unit| !unit.gap.is_empty()) {
            units.push(empty());
            opened = lexer.clone();
        }
        take(&mut lexer, &part);
        let Some(unit) = units.last_mut() else { return };
        match part {
            Part::Text(text) if is_gap => unit.gap.extend_from_slice(&text),
            part => {
                unit.parts.push(part);
                let is_even = lexer.is_as_deep_as(&opened);
                unit.repeats = is_even && unit.parts.iter().any(Part::is_all);
            }
        }
    };
    for part in line {
        let Part::Text(text) = part else {
            push(part, false);
            continue;
        };
        for piece in text.chunk_by(|left, right| left.is_ascii_whitespace() == right.is_ascii_whitespace()) {
            push(Part::Text(piece.to_vec()), piece.first().is_some_and(u8::is_ascii_whitespace));
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Numbers = Numbers { seq: 7, slot: 2, slots: 10, total: 120 };

    fn bytes(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    fn parse(words: &[&str], fill: Fill, quoted: bool) -> Template {
        let mut strings = Strings::default();
        strings.plus();
        strings.name(&bytes(&["name", "x.y"]));
        Template::parse(&bytes(words), &strings, fill, quoted, true, Language::Posix).expect("a template")
    }

    fn line(words: &[&str], args: &[&str]) -> String {
        let made = parse(words, Fill::Arguments, false).expand(&bytes(args), FIRST);
        String::from_utf8(made).expect("UTF-8")
    }

    #[test]
    fn values_take_their_places() {
        assert_eq!(line(&["echo"], &["a b"]), "echo 'a b'");
        assert_eq!(line(&["echo", "{2}", "{1.}", "{-1/}", "{3}x"], &["a.b", "c/d"]), "echo c/d a d x");
        assert_eq!(line(&["echo", "{#}-{%}"], &["a"]), "echo 7-2");
        assert_eq!(line(&["echo", "{0#} {##} {0%}"], &["a"]), "echo 007 120 02");
        assert_eq!(line(&["echo", "{name}", "{x.y}", "{name.}"], &["a.b", "c"]), "echo a.b c a");
        assert_eq!(line(&["echo", "{slot}"], &["a"]), "echo ${PARALLEL_JOBSLOT}");
        assert_eq!(line(&["echo", "{unknown}"], &["a"]), "echo {unknown} a");
        assert_eq!(line(&["echo", "x{}y"], &["a", "b"]), "echo xa by");
        assert_eq!(line(&["echo", "{}"], &[]), "echo ");
    }

    #[test]
    fn a_value_is_code_only_where_the_command_begins_with_it() {
        assert_eq!(line(&[], &["echo a | wc"]), "echo a | wc");
        assert_eq!(line(&["{}"], &["echo a"]), "echo a");
        assert_eq!(line(&["{} x {.}"], &["echo a"]), "echo a x echo a");
        assert_eq!(line(&["{1}", "{2}", "{1}"], &["ls -l", "a b"]), "ls -l 'a b' ls -l");
        assert_eq!(line(&[" {}"], &["a b"]), " 'a b'");
    }

    #[test]
    fn words_are_repeated_with_context() {
        let expand = |words: &[&str], args: &[&str]| {
            String::from_utf8(parse(words, Fill::Words, false).expand(&bytes(args), FIRST)).expect("UTF-8")
        };
        assert_eq!(expand(&["echo", "{}", "x{.}y", "z"], &["a.b", "c"]), "echo a.b c xay xcy z");
        assert_eq!(expand(&["echo \"{}\"  {1}"], &["a", "b"]), "echo \"a\" \"b\"  a");
        assert_eq!(expand(&["echo {#}{} {#}"], &["a", "b"]), "echo 7a 7b 7");
    }

    #[test]
    fn words_in_half_of_the_quotes_are_not_repeated() {
        let expand = |command: &str| {
            let args = bytes(&["a b", "$(x)"]);
            String::from_utf8(parse(&[command], Fill::Words, false).expand(&args, FIRST)).expect("UTF-8")
        };
        assert_eq!(expand("echo \"x{} y\""), r#"echo "x'a b' '\$(x)' y""#);
        assert_eq!(expand("echo 'x {}'"), "echo 'x a b $(x)'");
        assert_eq!(expand("echo 'x {} y'"), "echo 'x a b $(x) y'");
        assert_eq!(expand("echo $(cat {})"), "echo $(cat 'a b' '$(x)')");
        assert_eq!(expand("echo \"x{}y\""), r#"echo "x'a b'y" "x'\$(x)'y""#);
    }

    #[test]
    fn quoted_words_are_quoted_with_their_values() {
        let expand = |words: &[&str], args: &[&str]| {
            String::from_utf8(parse(words, Fill::Arguments, true).expand(&bytes(args), FIRST)).expect("UTF-8")
        };
        assert_eq!(expand(&["bash", "-c", "echo {} \"$x\""], &["a  b"]), "bash -c 'echo a  b \"$x\"'");
        assert_eq!(expand(&["echo", "x{}y", "{}"], &["a b", "c"]), "echo 'xa b' cy 'a b' c");
        assert_eq!(expand(&["{}", "foo"], &["x y"]), "'x y' foo");
    }

    #[test]
    fn growth_is_the_difference_of_lengths() {
        for fill in [Fill::Words, Fill::Arguments] {
            for words in [&["echo", "{}", "x{.}y"][..], &["echo"], &["echo '{}' {/}"], &["echo {#}{}"]] {
                let template = parse(words, fill, false);
                let args = bytes(&["a.b", "c d", "it's", "x/y"]);
                for count in 1..args.len() {
                    let grown = template.length(&args[..=count], FIRST) - template.length(&args[..count], FIRST);
                    assert_eq!(template.growth(&args[count], FIRST), grown, "{words:?}");
                }
            }
        }
    }

    #[test]
    fn a_length_that_grows_is_that_of_the_line() {
        let commands: [&[&str]; 11] = [
            &["echo"],
            &["echo", "x y{}z", "{}it's '"],
            &["echo", "{}x y", "{}{}"],
            &["echo", "'{}'"],
            &["echo {1} {} {-1}"],
            &["echo", "{2}{.}", "x{3/}y{-2}", "z"],
            &["echo '{}' {7}"],
            &["echo {#}{}{1} {2}"],
            &["{1} {}"],
            &["echo \"{-3} {1.}\" {}{-1}"],
            &["echo {1}"],
        ];
        let args = bytes(&["a.b", "c d", "it's", "x/y", "", "long enough", "$(z)", "8", "nine"]);
        for fill in [Fill::Words, Fill::Arguments] {
            for (words, columns) in commands.iter().flat_map(|words| [(words, 1), (words, 3)]) {
                let template = parse(words, fill, false);
                let quoted = parse(words, fill, true);
                let (mut length, mut most) = (Length::default(), Length::default());
                for end in (columns..=args.len()).step_by(columns) {
                    let at = |number| nth(&args[..end], Which::Nth(number)).map(Vec::as_slice);
                    let row = &args[end - columns..end];
                    let found = template.lengthen(&mut length, row, FIRST, at);
                    assert_eq!(found, template.length(&args[..end], FIRST), "{words:?} {fill:?} {end}");
                    let found = quoted.lengthen(&mut most, row, FIRST, at);
                    let expected = quoted.length(&args[..end], FIRST);
                    let fits = if quoted.is_estimated() { found >= expected } else { found == expected };
                    assert!(fits, "{words:?} {fill:?} {end}, quoted: {found}, and the line has {expected}");
                }
            }
        }
    }

    #[test]
    fn perl_is_refused_by_name() {
        let parsed = Template::parse(
            &bytes(&["echo {= s/a/b/ =}"]),
            &Strings::default(),
            Fill::Arguments,
            false,
            true,
            Language::Posix,
        );
        assert!(parsed.expect_err("refused").contains("is Perl"));
    }
}
