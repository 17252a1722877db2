//! Parses the most common options without clap, whose definitions take more memory and time than the run itself needs at its
//! start.
//!
//! Whatever this module does not know, clap parses: other options, other forms of these, options that exclude each other, and
//! every mistake. A test compares the results of both parsers.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use super::XargsOptions;

/// `None`: clap must parse these arguments, in which [`super::arguments`] has separated the short options.
pub fn plain(words: &[OsString]) -> Option<XargsOptions> {
    let mut options = XargsOptions::default();
    let mut seen = Vec::new();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first().filter(|(word, _)| word.as_bytes().starts_with(b"-")) {
        let &[b'-', letter] = word.as_bytes() else { return None };
        if seen.contains(&letter) {
            return None;
        }
        seen.push(letter);
        rest = after;
        match letter {
            b'0' => options.null = true,
            b'o' => options.open_tty = true,
            b'p' => options.interactive = true,
            b'r' => options.no_run_if_empty = true,
            b't' => options.verbose = true,
            b'x' => options.exit = true,
            _ => {
                let (value, after) = rest.split_first()?;
                rest = after;
                set(&mut options, letter, value)?;
            }
        }
    }
    if seen.iter().filter(|letter| b"ILn".contains(letter)).count() > 1 {
        return None;
    }
    options.words = rest.to_vec();
    Some(options)
}

fn set(options: &mut XargsOptions, letter: u8, value: &OsString) -> Option<()> {
    // clap may parse such a value differently.
    if value.is_empty() || value.as_bytes().starts_with(b"-") {
        return None;
    }
    let number = || {
        let digits = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<u64>().ok().filter(|number| *number > 0)
    };
    match letter {
        b'I' => options.replace = Some(value.clone()),
        b'L' => options.max_lines = Some(number()?),
        b'n' => options.max_args = Some(number()?),
        b's' => options.max_chars = Some(number()?),
        b'P' => options.max_procs = Some(u32::try_from(number()?).ok()?),
        b'a' => options.arg_file = Some(value.into()),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::xargs::arguments;

    fn by_clap(words: &[OsString]) -> Option<String> {
        let command = XargsOptions::augment_args(clap::Command::new("xargs").no_binary_name(true));
        let matches = command.try_get_matches_from(words).ok()?;
        XargsOptions::from_arg_matches(&matches).ok().map(|options| format!("{options:?}"))
    }

    #[test]
    fn the_plain_parse_has_the_result_of_clap() {
        let options = [
            "",
            "-0",
            "-r",
            "-t",
            "-o",
            "-p",
            "-x",
            "-n1",
            "-n 2",
            "-n 0",
            "-n +3",
            "-n -1",
            "-P4",
            "-P 0",
            "-L2",
            "-s 100",
            "-I {}",
            "-I -x",
            "-i",
            "-a file",
            "-d ,",
            "-E end",
            "-0rn5",
            "-l",
            "-eX",
            "--null",
            "-n",
            "-Z",
            "-n 99999999999999999999",
        ];
        let commands = ["", "echo", "echo -n -- x", "-- echo", "- x"];
        let mut plainly = 0;
        for one in options {
            for other in options {
                for command in commands {
                    let line = format!("{one} {other} {command}");
                    let given = ["forkless", "xargs"].into_iter().chain(line.split_whitespace());
                    let words = arguments(given.map(OsString::from)).split_off(2);
                    if let Some(options) = plain(&words) {
                        plainly += 1;
                        assert_eq!(Some(format!("{options:?}")), by_clap(&words), "{line}");
                    }
                }
            }
        }
        assert!(plainly > 400, "only {plainly} lines were parsed without clap");
    }
}
