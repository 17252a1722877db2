//! `--args`: options that are read from a descriptor. They are put in the place of the option before anything is parsed, because the
//! order of mounts counts.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use clap::{Arg, Command};

use super::{super::parse, privileges::open_fd};
use crate::usage::{long_option, short_option};

/// Maximum number of words of all descriptors.
const MOST: usize = 9000;

/// The arguments of `forkless run` with the words that each `--args FD` stands for. `definition` is called only if there may
/// be one: the number of values that each option has shows where the program begins.
///
/// # Errors
/// If a descriptor cannot be read, or if its words are not options with all their values.
pub(crate) fn expand(words: Vec<OsString>, definition: impl FnOnce() -> Command) -> Result<Vec<OsString>, String> {
    if !words.iter().any(|word| is_args(word)) {
        return Ok(words);
    }
    let definition = definition();
    let mut left = Left { read: VecDeque::new(), line: words.into(), room: MOST };
    let mut expanded = Vec::new();
    while let Some((word, is_read)) = left.next() {
        if is_args(&word) {
            let given = parse::split(&word, b'=').map(|(_, number)| number);
            match given.map_or_else(|| left.value(&word, is_read), |number| Ok(Some(number)))? {
                Some(number) => left.read(&number)?,
                // The parser reports what is missing.
                None => expanded.push(word),
            }
        } else if word.as_bytes().starts_with(b"-") && word.len() > 1 && word != "--" {
            let count = values(&definition, &word);
            expanded.push(word.clone());
            for _ in 0..count {
                expanded.extend(left.value(&word, is_read)?);
            }
        } else if is_read {
            return Err(format!("--args: {word:?} is not an option; give the program on the command line"));
        } else if word != "--" && parse::split(&word, b'=').is_some() {
            expanded.push(word);
        } else {
            // The program begins, and all that follows belongs to it.
            expanded.push(word);
            expanded.extend(left.line);
            break;
        }
    }
    Ok(expanded)
}

fn is_args(word: &OsStr) -> bool {
    word == "--args" || word.as_bytes().starts_with(b"--args=")
}

/// The words that are left.
struct Left {
    /// Those that were read, which come first.
    read: VecDeque<OsString>,
    /// Those of the command line.
    line: VecDeque<OsString>,
    /// How many may still be read: a descriptor may name itself, and an endless one would fill the memory.
    room: usize,
}

impl Left {
    /// The next word, and whether it was read.
    fn next(&mut self) -> Option<(OsString, bool)> {
        let read = self.read.pop_front().map(|word| (word, true));
        read.or_else(|| Some((self.line.pop_front()?, false)))
    }

    /// A value of the option. It must come from the source of the option: a word of the command line could be the program.
    fn value(&mut self, option: &OsStr, is_read: bool) -> Result<Option<OsString>, String> {
        if !is_read {
            return Ok(self.line.pop_front());
        }
        let lacking = || format!("--args: the last option, {}, lacks a value", option.display());
        self.read.pop_front().map(Some).ok_or_else(lacking)
    }

    fn read(&mut self, number: &OsStr) -> Result<(), String> {
        let number = parse::fd_number(number).map_err(|why| format!("--args: {why}"))?;
        let file: File = open_fd("--args", number as u32).map_err(|failure| failure.message)?.into();
        let mut bytes = Vec::new();
        // The most that a command line may have.
        let mut limited = file.take(2 << 20);
        limited.read_to_end(&mut bytes).map_err(|error| format!("--args: cannot read fd {number}: {error}"))?;
        let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        let words: Vec<OsString> = match text {
            [] => Vec::new(),
            text => text.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect(),
        };
        if limited.limit() == 0 || words.len() > self.room {
            return Err(format!("--args: fd {number} has more than {MOST} words or 2 MiB"));
        }
        self.room -= words.len();
        words.into_iter().rev().for_each(|word| self.read.push_front(word));
        Ok(())
    }
}

/// The number of words after the option that are its values.
fn values(definition: &Command, word: &OsStr) -> usize {
    let Some(text) = word.to_str() else { return 0 };
    let least = |arg: &Arg| match arg.is_require_equals_set() {
        true => 0,
        false => arg.get_num_args().map_or(0, |range| range.min_values()),
    };
    if let Some(long) = text.strip_prefix("--") {
        return long_option(definition, long).map_or(0, least);
    }
    // Of a group of letters, the first that takes a value takes the rest.
    for (place, letter) in text.char_indices().skip(1) {
        match short_option(definition, letter).map_or(0, least) {
            0 => {}
            count if place + letter.len_utf8() == text.len() => return count,
            _ => return 0,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    /// A descriptor with these words, each ended by NUL, as an inherited one.
    fn with(text: &str) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text.replace(' ', "\0").as_bytes()).expect("writable");
        file.rewind().expect("a file");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("open");
        file
    }

    fn expanded(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        expand(words, crate::definition_of_run).map(|words| words.join(OsStr::new(" ")).into_string().expect("text"))
    }

    #[test]
    fn words_of_a_descriptor_take_the_place_of_the_option() {
        let file = with("--tmpfs /a --bind /b /c ");
        let fd = file.as_raw_fd();
        let all = Ok(format!("--dir /x --tmpfs /a --bind /b /c --dir /y A=1 true --args {fd}"));
        assert_eq!(expanded(&format!("--dir /x --args {fd} --dir /y A=1 true --args {fd}")), all);
        let last = with("-iC /");
        assert_eq!(expanded(&format!("--args={} -- --args 3", last.as_raw_fd())), Ok("-iC / -- --args 3".to_owned()));
        let empty = with("");
        assert_eq!(expanded(&format!("--args {} true", empty.as_raw_fd())), Ok("true".to_owned()));
    }

    /// Values that look like the option are values.
    #[test]
    fn values_of_other_options_are_no_options() {
        for line in ["--env --args=9 true", "--bind --args 9 true", "-u --args true", "-C --args=9 sh", "sh --args 9"] {
            assert_eq!(expanded(line), Ok(line.to_owned()));
        }
        assert_eq!(expanded("--args"), Ok("--args".to_owned()), "the parser says that a value is missing");
    }

    #[test]
    fn words_that_are_no_complete_options_are_errors() {
        for (text, wrong) in [
            ("--tmpfs /a sh ", "\"sh\" is not an option"),
            ("A=1 ", "\"A=1\" is not an option"),
            ("-- ", "\"--\" is not an option"),
            ("--bind /b ", "--bind, lacks a value"),
            ("--args ", "--args, lacks a value"),
        ] {
            let file = with(text);
            let error = expanded(&format!("--args {} true", file.as_raw_fd())).expect_err(text);
            assert!(error.contains(wrong), "{text}: {error}");
        }
        assert!(expanded("--args 999 true").is_err_and(|error| error.contains("fd 999 is not open")));
        assert!(expanded("--args x true").is_err_and(|error| error.contains("not a file descriptor")));
        let many = with(&"-i ".repeat(MOST + 1));
        assert!(expanded(&format!("--args {} true", many.as_raw_fd())).is_err_and(|error| error.contains("more than")));
    }
}
