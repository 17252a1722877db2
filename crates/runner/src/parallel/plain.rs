//! Parses the most common options without clap, whose definitions take more memory and time than the run itself needs at its
//! start.
//!
//! Whatever this module does not know, clap parses: other options, other forms of these, options that exclude each other, and
//! every mistake. A test compares the results of both parsers.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::options::ParallelOptions;
use super::values;

/// `None`: clap must parse these arguments.
pub fn plain(words: &[OsString]) -> Option<Box<ParallelOptions>> {
    let mut options = Box::new(ParallelOptions::default());
    let mut seen = Vec::new();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first().filter(|(word, _)| word.as_bytes().starts_with(b"-")) {
        rest = after;
        let (name, attached) = match word.to_str()? {
            // A short option of one letter may have its value in the same word.
            word if !word.starts_with("--") => (word.get(..2)?, word.get(2..).filter(|value| !value.is_empty())),
            word => (word, None),
        };
        let field = set_flag(&mut options, name);
        let field = match field {
            Some(_) if attached.is_some() => return None,
            Some(field) => field,
            None => {
                let value = match attached {
                    Some(value) => OsStr::new(value),
                    None => {
                        let (value, after) = rest.split_first()?;
                        rest = after;
                        value
                    }
                };
                set_value(&mut options, name, value)?
            }
        };
        if seen.contains(&field) {
            return None;
        }
        seen.push(field);
    }
    options.words = rest.to_vec();
    Some(options)
}

/// Sets an option without a value. Returns its short name, or what it excludes.
fn set_flag(options: &mut ParallelOptions, name: &str) -> Option<u8> {
    match name {
        "-0" | "--null" => options.null = true,
        "-k" | "--keep-order" => options.keep_order = true,
        "-q" | "--quote" => options.quote = true,
        "-r" => options.no_run_if_empty = true,
        "-u" | "--ungroup" => options.ungroup = true,
        "--lb" | "--line-buffer" => options.line_buffer = true,
        "--plain" => options.plain = true,
        "--tag" => options.tag = true,
        _ => return None,
    }
    Some(match name {
        "--null" => b'0',
        "--plain" => b'p',
        "--lb" | "--line-buffer" | "--ungroup" => b'u',
        _ => name.trim_start_matches('-').as_bytes()[0],
    })
}

fn set_value(options: &mut ParallelOptions, name: &str, value: &OsStr) -> Option<u8> {
    // clap may parse such a value differently.
    let text = value.to_str().filter(|text| !text.is_empty() && !text.starts_with(['-', '=']))?;
    match name {
        "-j" | "-P" | "--jobs" => options.jobs = Some(text.to_owned()),
        "-n" => options.max_args = Some(values::size(text).ok()?),
        "-N" => options.max_replace_args = Some(values::size(text).ok()?),
        "-a" => options.arg_file = vec![text.into()],
        "--joblog" => options.joblog = Some(value.to_owned()),
        _ => return None,
    }
    Some(match name {
        "-P" | "--jobs" => b'j',
        "--joblog" => b'l',
        _ => name.as_bytes()[1],
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    #[test]
    fn the_plain_parse_has_the_result_of_clap() {
        let options = [
            "",
            "-0",
            "--null",
            "-k",
            "--keep-order",
            "--no-keep-order",
            "-q",
            "-r",
            "-u",
            "--ungroup",
            "--lb",
            "--group",
            "--tag",
            "--plain",
            "-j2",
            "-j 3",
            "-j +1",
            "-j -1",
            "-j-1",
            "-j=4",
            "-P 50%",
            "--jobs 0",
            "--jobs=2",
            "-n 2",
            "-n2k",
            "-N 3",
            "-N x",
            "-a f",
            "-ku",
            "-k2",
            "--joblog log",
            "--joblog -x",
            "--jobl log",
            "-j",
            "--resume",
            "-v",
        ];
        let commands = ["", "echo", "echo -n -- {} ::: -k a", ":::+ a", "-- echo", "- x"];
        let mut plainly = 0;
        // To build the definitions takes much longer than to parse a line.
        let mut command = ParallelOptions::augment_args(clap::Command::new("parallel").no_binary_name(true));
        for one in options {
            for other in options {
                for words in commands {
                    let line = format!("{one} {other} {words}");
                    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
                    let Some(options) = plain(&words) else { continue };
                    plainly += 1;
                    let matches = command.try_get_matches_from_mut(&words);
                    let whole = matches.and_then(|matches| ParallelOptions::from_arg_matches(&matches));
                    assert_eq!(format!("{options:?}"), format!("{:?}", whole.expect(&line)), "{line}");
                }
            }
        }
        assert!(plainly > 1000, "only {plainly} lines were parsed without clap");
    }
}
