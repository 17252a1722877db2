//! The command line before clap sees it: short options whose value is optional, as in `-l3` and `-i`.
//!
//! Such a value is attached to its option. clap knows that only as `--max-lines=3`, so these options are rewritten to
//! their long names. All other words stay as they are.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// Options without a value.
const FLAGS: &[u8] = b"0oprtx";
/// Options whose value may be attached, or is the next word.
const VALUES: &[u8] = b"aEdILnPs";
/// Options whose value, if any, is attached.
const OPTIONAL: &[(u8, &str)] = &[(b'e', "--eof"), (b'i', "--replace"), (b'l', "--max-lines")];

/// Long options whose value may be the next word.
const LONG_VALUES: [&str; 6] = ["arg-file", "delimiter", "max-args", "max-chars", "max-procs", "process-slot-var"];

/// Options that exclude each other: the last one counts.
const PACKING: [(u8, &str); 5] =
    [(b'I', "--replace"), (b'i', "--replace"), (b'L', "--max-lines"), (b'l', "--max-lines"), (b'n', "--max-args")];

/// The one of [`PACKING`] that came last.
#[derive(Default)]
struct LastPackingOption(Option<&'static str>);

impl LastPackingOption {
    /// Notes an option, and warns of an earlier one that it overrides. Returns false if the option itself has no effect.
    fn note(&mut self, letter: u8, is_one: bool) -> bool {
        let Some((_, name)) = PACKING.iter().find(|(known, _)| *known == letter) else { return true };
        if let Some(before) = self.0.filter(|before| before != name) {
            // With a replacement, each command has one line anyway.
            if *name == "--max-args" && is_one && before == "--replace" {
                return false;
            }
            super::say(&format!("warning: {before} and {name} exclude each other; the value of {before} is ignored"));
        }
        self.0 = Some(name);
        true
    }
}

/// Rewrites the words of `forkless xargs`; those of other subcommands stay.
pub fn arguments(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.get(1).is_none_or(|word| word != "xargs") {
        return words;
    }
    let mut rest = words.split_off(2).into_iter();
    let mut packing = LastPackingOption::default();
    while let Some(word) = rest.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" || !bytes.starts_with(b"-") || bytes == b"-" {
            words.push(word);
            break;
        }
        if let Some(long) = bytes.strip_prefix(b"--") {
            let takes_next = !long.contains(&b'=') && has_value(long);
            let value = if takes_next { rest.next() } else { None };
            let is_one = value.as_deref() == Some(OsStr::new("1")) || bytes.ends_with(b"=1");
            let name = name_of(long);
            let letter = PACKING
                .iter()
                .find(|(_, full)| (name.len() > 4 || name.starts_with(b"r")) && full.as_bytes()[2..].starts_with(name));
            if letter.is_none_or(|(letter, _)| packing.note(*letter, is_one)) {
                words.push(word);
                words.extend(value);
            }
            continue;
        }
        cluster(bytes, &mut rest, &mut words, &mut packing);
    }
    words.extend(rest);
    words
}

fn name_of(long: &[u8]) -> &[u8] {
    long.split(|&byte| byte == b'=').next().unwrap_or(long)
}

/// Whether this long option, perhaps abbreviated, has a value in the next word.
fn has_value(long: &[u8]) -> bool {
    !long.is_empty() && LONG_VALUES.iter().any(|name| name.as_bytes().starts_with(long))
}

/// Rewrites one word of short options, such as `-0n5`.
fn cluster(
    bytes: &[u8],
    rest: &mut impl Iterator<Item = OsString>,
    words: &mut Vec<OsString>,
    packing: &mut LastPackingOption,
) {
    let mut at = 1;
    while at < bytes.len() {
        let letter = bytes[at];
        let attached = &bytes[at + 1..];
        if let Some((_, long)) = OPTIONAL.iter().find(|(short, _)| *short == letter) {
            packing.note(letter, false);
            let value = if attached.is_empty() { Vec::new() } else { [b"=", attached].concat() };
            words.push(OsString::from_vec([long.as_bytes(), &value].concat()));
            return;
        }
        let option = OsString::from_vec(vec![b'-', letter]);
        if VALUES.contains(&letter) {
            let value = if attached.is_empty() { rest.next() } else { Some(OsString::from_vec(attached.to_vec())) };
            if packing.note(letter, value.as_deref() == Some(OsStr::new("1"))) {
                words.push(option);
                words.extend(value);
            }
            return;
        }
        if !FLAGS.contains(&letter) {
            // For clap to report.
            words.push(OsString::from_vec([b"-", &bytes[at..]].concat()));
            return;
        }
        words.push(option);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let words = ["forkless", "xargs"].into_iter().chain(line.split(' ')).map(OsString::from);
        let words = arguments(words).into_iter().skip(2).map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_that_are_attached_get_long_names() {
        for (line, expected) in [
            ("-0i echo -i", "-0 --replace echo -i"),
            ("-l3 -eEND x", "--max-lines=3 --eof=END x"),
            ("-ri{} -P4 cat -l", "-r --replace={} -P 4 cat -l"),
            ("-n 1 -I X -n1 echo", "-n 1 -I X echo"),
            ("-I X -n2 echo", "-I X -n 2 echo"),
            ("--replace --max-args 1 e", "--replace e"),
            ("--max-args 1 -i e", "--max-args 1 --replace e"),
            ("--max-p 3 -l -- -i", "--max-p 3 --max-lines -- -i"),
            ("-0Z echo", "-0 -Z echo"),
            ("-E -i echo", "-E -i echo"),
        ] {
            assert_eq!(rewritten(line), expected, "{line}");
        }
    }

    #[test]
    fn words_of_other_subcommands_stay() {
        let words = ["forkless", "run", "-i", "env"].map(OsString::from);
        assert_eq!(arguments(words.clone().into_iter()), words);
    }
}
