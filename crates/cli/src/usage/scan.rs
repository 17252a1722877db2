//! Which word of a command line is taken by which option: the parser itself keeps this only for lines without a mistake.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use clap::{Arg, ArgAction, Command};

/// An option of the command line with the words it takes.
#[derive(Debug)]
pub(crate) struct Use<'a> {
    pub(crate) arg: &'a Arg,
    /// The option as typed, without a value after `=`.
    pub(crate) typed: String,
    /// The index of its word.
    pub(crate) at: usize,
    /// The index after its last word.
    pub(crate) end: usize,
}

impl Use<'_> {
    /// How many words after it the option takes.
    pub(crate) fn wants(&self) -> usize {
        self.arg.get_num_args().map_or(0, |range| range.max_values())
    }

    /// Its operands as the help shows them.
    pub(crate) fn operands(&self) -> Vec<String> {
        let names = self.arg.get_value_names().unwrap_or_default();
        names.iter().map(|name| name.as_str().to_owned()).collect()
    }

    /// Is its value taken only after `=`?
    pub(crate) fn has_required_equals(&self) -> bool {
        self.arg.is_require_equals_set()
    }
}

/// The options before the program, and the index of the program.
#[derive(Debug, Default)]
pub(crate) struct Scan<'a> {
    pub(crate) uses: Vec<Use<'a>>,
    pub(crate) program: Option<usize>,
}

/// Reads the words of a command that has been built.
pub(crate) fn scan<'a>(command: &'a Command, words: &[OsString]) -> Scan<'a> {
    let mut found = Scan::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let word = word.to_string_lossy();
        if word == "--" {
            found.program = Some(at + 1).filter(|next| *next < words.len());
            return found;
        }
        let named = match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some(long), _) => {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                long_option(command, name).map(|arg| (arg, format!("--{name}"), value.is_some()))
            }
            (None, Some(letters)) if !letters.is_empty() => cluster(command, letters),
            _ => {
                found.program = Some(at);
                return found;
            }
        };
        let Some((arg, typed, has_value)) = named else {
            at += 1;
            continue;
        };
        let taken = if has_value || arg.is_require_equals_set() || !has_values(arg) {
            0
        } else {
            values(arg, &words[at + 1..])
        };
        found.uses.push(Use { arg, typed, at, end: at + 1 + taken });
        at += 1 + taken;
    }
    found
}

/// The option of this long name or alias.
pub(crate) fn long_option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let called =
        |arg: &&Arg| arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|others| others.contains(&name));
    command.get_arguments().find(called)
}

/// The option of this letter, which may be an alias.
pub(crate) fn short_option(command: &Command, letter: char) -> Option<&Arg> {
    let called = |arg: &&Arg| {
        arg.get_short() == Some(letter) || arg.get_all_short_aliases().is_some_and(|others| others.contains(&letter))
    };
    command.get_arguments().find(called)
}

/// The last option of letters such as `-iu`; true if its value follows in the same word.
fn cluster<'a>(command: &'a Command, letters: &str) -> Option<(&'a Arg, String, bool)> {
    let mut last = None;
    for (at, letter) in letters.char_indices() {
        let arg = short_option(command, letter)?;
        let rest = &letters[at + letter.len_utf8()..];
        last = Some((arg, format!("-{letter}"), has_values(arg) && !rest.is_empty()));
        if has_values(arg) {
            break;
        }
    }
    last
}

fn has_values(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// How many of these words the option takes as values.
fn values(arg: &Arg, words: &[OsString]) -> usize {
    let most = arg.get_num_args().map_or(1, |range| range.max_values());
    let fits = |word: &&OsString| {
        let bytes = word.as_bytes();
        let is_number = word.to_str().is_some_and(|text| text.parse::<f64>().is_ok());
        let hyphen = arg.is_allow_hyphen_values_set() || arg.is_allow_negative_numbers_set() && is_number;
        !bytes.starts_with(b"-") || bytes == b"-" || hyphen
    };
    words.iter().take(most).take_while(fits).count()
}
