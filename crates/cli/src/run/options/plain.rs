//! Parses the most common options without clap.
//!
//! Clap parses what this module does not accept: other options, other forms of these, and every mistake. To define the
//! options to clap and to parse with them takes as long as to execute a small program. The values are parsed by the same
//! functions, and a test compares the results of both parsers.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use super::{RunOptions, parse};

/// `None`: clap must parse these arguments.
pub(super) fn parse(words: &[OsString]) -> Option<Box<RunOptions>> {
    let mut options = Box::new(RunOptions { signal: libc::SIGTERM, ..RunOptions::default() });
    let mut seen = Vec::new();
    let mut rest = words;
    loop {
        let (word, after) = rest.split_first()?;
        if !word.as_bytes().starts_with(b"-") {
            break;
        }
        rest = after;
        let (name, value) = split(word)?;
        // Clap accepts few options twice.
        if seen.contains(&name) && !["unset", "env"].contains(&name) {
            return None;
        }
        seen.push(name);
        if set_flag(&mut options, name) {
            if value.is_some() {
                return None;
            }
            continue;
        }
        let value = match value {
            Some(value) => value,
            None => {
                let (value, after) = rest.split_first()?;
                rest = after;
                // A word that begins with - may be the next option.
                (!value.as_bytes().starts_with(b"-")).then_some(value.as_os_str())?
            }
        };
        if value.is_empty() {
            return None;
        }
        set_value(&mut options, name, value)?;
    }
    // These require a timeout.
    if options.timeout.is_none() && seen.iter().any(|name| ["signal", "kill-after"].contains(name)) {
        return None;
    }
    options.words = rest.to_vec();
    Some(options)
}

/// An option's long name and its value after `=`.
fn split(word: &OsStr) -> Option<(&str, Option<&OsStr>)> {
    let Some(long) = word.as_bytes().strip_prefix(b"--") else { return Some((of_letter(word)?, None)) };
    let end = long.iter().position(|byte| *byte == b'=');
    let name = str::from_utf8(&long[..end.unwrap_or(long.len())]).ok()?;
    Some((name, end.map(|end| OsStr::from_bytes(&long[end + 1..]))))
}

fn of_letter(word: &OsStr) -> Option<&'static str> {
    Some(match word.as_bytes() {
        b"-i" => "ignore-environment",
        b"-u" => "unset",
        b"-C" => "chdir",
        b"-s" => "signal",
        b"-k" => "kill-after",
        _ => return None,
    })
}

/// Sets the option of this name, if it takes no value; otherwise returns false.
fn set_flag(options: &mut RunOptions, name: &str) -> bool {
    let flag = match name {
        "ignore-environment" => &mut options.ignore_environment,
        "no-new-privs" => &mut options.privileges.0.no_new_privs,
        _ => return false,
    };
    *flag = true;
    true
}

fn set_value(options: &mut RunOptions, name: &str, value: &OsStr) -> Option<()> {
    match name {
        "unset" => options.unset.push(parse::variable(value.to_owned()).ok()?),
        "env" => options.env.push(parse::assignment(value.to_owned()).ok()?),
        "chdir" => options.chdir = Some(value.into()),
        "timeout" => options.timeout = Some(parse::duration(value.to_str()?).ok()?),
        "signal" => options.signal = parse::signal(value.to_str()?).ok()?,
        "kill-after" => options.kill_after = Some(parse::duration(value.to_str()?).ok()?),
        "nice" => options.scheduling.0.nice = Some(value.to_str()?.parse().ok()?),
        _ => options.limits.0.set(name, value.to_str()?)?,
    }
    Some(())
}
