//! The arguments after the options: a command, and sources of values.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::options::ParallelOptions;

/// Where values come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Arguments(Vec<Vec<u8>>),
    /// `-` is standard input.
    File(PathBuf),
}

/// A source of values, and whether it is linked to the one before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) origin: Origin,
    pub(super) is_linked: bool,
}

/// The parsed arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) command: Vec<Vec<u8>>,
    pub(super) sources: Vec<Given>,
}

impl Asked {
    /// Parses the arguments. Files of `-a` come first; without any source, standard input is one.
    pub(super) fn of(options: &ParallelOptions) -> Self {
        let bytes = |text: &Option<std::ffi::OsString>, default: &str| {
            text.as_ref().map_or_else(|| default.as_bytes().to_vec(), |text| text.as_bytes().to_vec())
        };
        let values = bytes(&options.arg_sep, ":::");
        let files = bytes(&options.arg_file_sep, "::::");
        let with_plus = |text: &[u8]| [text, b"+"].concat();
        let separators = [
            (values.clone(), false, false),
            (with_plus(&values), false, true),
            (files.clone(), true, false),
            (with_plus(&files), true, true),
        ];
        let mut asked = Self::default();
        let file = |path: &PathBuf| Given { origin: Origin::File(path.clone()), is_linked: false };
        asked.sources.extend(options.arg_file.iter().map(file));
        let mut present: Option<(bool, bool)> = None;
        for word in options.words.iter().map(|word| word.as_bytes()) {
            if let Some((_, are_files, is_linked)) = separators.iter().find(|(text, ..)| text == word) {
                present = Some((*are_files, *is_linked));
                if !are_files {
                    asked.sources.push(Given { origin: Origin::Arguments(Vec::new()), is_linked: *is_linked });
                }
                continue;
            }
            match (present, asked.sources.last_mut()) {
                (None, _) => asked.command.push(word.to_vec()),
                (Some((true, is_linked)), _) => {
                    let path = PathBuf::from(OsStr::from_bytes(word));
                    asked.sources.push(Given { origin: Origin::File(path), is_linked });
                }
                (Some(_), Some(Given { origin: Origin::Arguments(values), .. })) => values.push(word.to_vec()),
                (Some(_), _) => {}
            }
        }
        if asked.sources.is_empty() {
            asked.sources.push(Given { origin: Origin::File("-".into()), is_linked: false });
        }
        asked
    }
}

/// The words of the environment variable PARALLEL: separated by blanks; quotes and backslashes as in a shell.
pub(super) fn split_words(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(end), byte) if byte == end => quote = None,
            (Some(b'\''), byte) => word.get_or_insert_default().push(byte),
            (_, b'\\') => word.get_or_insert_default().extend(bytes.next()),
            (Some(_), byte) => word.get_or_insert_default().push(byte),
            (None, b'\'' | b'"') => {
                word.get_or_insert_default();
                quote = Some(byte);
            }
            (None, byte) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (None, byte) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_environment_are_separated_as_by_a_shell() {
        let expected = [&b"-k"[..], b"--tagstring", b"a b", b"c d", b"", b"x"];
        assert_eq!(split_words(br#" -k --tagstring a\ b "c d" '' x "#), expected);
    }
}
