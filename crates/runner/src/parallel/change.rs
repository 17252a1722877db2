//! How replacement strings change a value: `{.}`, `{/}` and the like, and those of `--plus`.

use std::borrow::Cow;

use regex::bytes::{NoExpand, Regex, RegexBuilder};

/// A change of a value.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// `{}`
    None,
    /// `{.}`, `{..}`, `{...}`: without so many extensions.
    NoExtension(usize),
    /// `{/}`
    Base,
    /// `{//}`
    Directory,
    /// `{/.}`, `{/..}`, `{/...}`
    BaseNoExtension(usize),
    /// `{+/}`: all before the last slash.
    Above,
    /// `{+.}`, `{+..}`, `{+...}`: the last so many extensions.
    Extension(usize),
    /// `{:-TEXT}`
    Default(Vec<u8>),
    /// `{:N}` and `{:N:LENGTH}`
    Part(usize, Option<usize>),
    /// `{#RE}`, `{##RE}`, `{%%RE}`: without the match at an end.
    Without(Regex),
    /// `{%RE}`: the part before the shortest match at the end.
    Before(Regex),
    /// `{/RE/TEXT}` and `{//RE/TEXT}`: the first match, or all, are replaced.
    Replace { matches: Regex, all: bool, text: Vec<u8> },
    /// `{^RE}`, `{^^RE}`, `{,RE}`, `{,,RE}`: the matches in capitals or in small letters.
    Case { matches: Regex, all: bool, upper: bool },
}

impl Change {
    /// Applies it to a value.
    pub(super) fn apply<'a>(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::None => value,
            Self::NoExtension(count) => &value[..extensions(value, *count).unwrap_or(value.len())],
            Self::Base => base(value),
            Self::Directory => directory(value),
            Self::BaseNoExtension(count) => {
                let base = base(value);
                &base[..extensions(base, *count).unwrap_or(base.len())]
            }
            Self::Above => &value[..last(value, b'/').unwrap_or(0)],
            // GNU parallel takes all behind the last dot, also of a directory.
            Self::Extension(1) => last(value, b'.').map_or(&[][..], |place| &value[place + 1..]),
            Self::Extension(count) => extensions(value, *count).map_or(&[][..], |place| &value[place + 1..]),
            Self::Default(text) if value.is_empty() => return text.clone().into(),
            Self::Default(_) => value,
            Self::Part(start, length) => {
                let rest = value.get(*start..).unwrap_or_default();
                &rest[..length.unwrap_or(rest.len()).min(rest.len())]
            }
            Self::Before(matches) => {
                matches.captures(value).and_then(|found| found.get(1)).map_or(value, |kept| kept.as_bytes())
            }
            Self::Without(matches) => return matches.replace(value, NoExpand(b"")),
            Self::Replace { matches, all, text } => return matches.replacen(value, usize::from(!all), NoExpand(text)),
            Self::Case { matches, all, upper } => {
                let changed = |found: &regex::bytes::Captures<'_>| match upper {
                    true => found[0].to_ascii_uppercase(),
                    false => found[0].to_ascii_lowercase(),
                };
                return matches.replacen(value, usize::from(!all), changed);
            }
        }
        .into()
    }

    /// One of the strings of `--plus` that contain a text, without its braces.
    pub(super) fn dynamic(text: &[u8]) -> Result<Option<Self>, String> {
        let Ok(text) = std::str::from_utf8(text) else { return Ok(None) };
        let (sign, rest) = text.split_at_checked(1).unwrap_or(("", ""));
        let doubled = rest.strip_prefix(sign).filter(|rest| !rest.is_empty());
        let argument = doubled.unwrap_or(rest);
        if argument.is_empty() {
            return Ok(None);
        }
        let change = match sign {
            ":" => return Ok(Self::colon(rest)),
            "#" => Self::Without(expression(&format!("^(?:{argument})"), doubled.is_none())?),
            // What stays is as long as possible.
            "%" if doubled.is_none() => Self::Before(expression(&format!("(?s)^(.*)(?:{argument})$"), false)?),
            "%" => Self::Without(expression(&format!("(?:{argument})$"), false)?),
            "/" => {
                let Some((matches, text)) = argument.split_once('/').filter(|(matches, _)| !matches.is_empty()) else {
                    return Ok(None);
                };
                let (all, text) = (doubled.is_some(), text.as_bytes().to_vec());
                Self::Replace { matches: expression(matches, false)?, all, text }
            }
            "^" | "," => {
                let start = if doubled.is_some() { "" } else { "^" };
                let matches = expression(&format!("{start}(?:{argument})"), false)?;
                Self::Case { matches, all: doubled.is_some(), upper: sign == "^" }
            }
            _ => return Ok(None),
        };
        Ok(Some(change))
    }

    fn colon(rest: &str) -> Option<Self> {
        if let Some(text) = rest.strip_prefix('-') {
            return Some(Self::Default(text.as_bytes().to_vec()));
        }
        match rest.split_once(':') {
            Some((start, length)) => Some(Self::Part(start.parse().ok()?, Some(length.parse().ok()?))),
            None => Some(Self::Part(rest.parse().ok()?, None)),
        }
    }
}

fn expression(text: &str, shortest: bool) -> Result<Regex, String> {
    regular(text, |builder| {
        builder.swap_greed(shortest);
    })
}

/// Compiles a regular expression, or returns what is wrong with it.
pub(super) fn regular(text: &str, set: impl FnOnce(&mut RegexBuilder)) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false);
    set(&mut builder);
    builder.build().map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("cannot use the regular expression {text:?} (the syntax of Rust's regex, not of Perl): {why}")
    })
}

fn last(value: &[u8], byte: u8) -> Option<usize> {
    value.iter().rposition(|&found| found == byte)
}

fn base(value: &[u8]) -> &[u8] {
    &value[last(value, b'/').map_or(0, |place| place + 1)..]
}

/// Where the last so many extensions begin, if there are so many. They may be empty.
fn extensions(value: &[u8], count: usize) -> Option<usize> {
    let mut end = value.len();
    for _ in 0..count {
        let place = last(&value[..end], b'.')?;
        if value[place..end].contains(&b'/') {
            return None;
        }
        end = place;
    }
    Some(end)
}

/// dirname(1).
fn directory(value: &[u8]) -> &[u8] {
    let without_slashes = |value: &'_ [u8]| value.iter().rposition(|&byte| byte != b'/').map_or(0, |place| place + 1);
    let whole = &value[..without_slashes(value)];
    match last(whole, b'/') {
        None if whole.is_empty() && !value.is_empty() => b"/",
        None => b".",
        Some(place) => match without_slashes(&whole[..place]) {
            0 => b"/",
            end => &whole[..end],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(change: &Change, value: &str) -> String {
        String::from_utf8(change.apply(value.as_bytes()).into_owned()).expect("UTF-8")
    }

    #[test]
    fn names_are_taken_apart_as_by_gnu_parallel() {
        // {.} {/} {//} {/.}
        let cases = [
            ("a/b.c.d", ["a/b.c", "b.c.d", "a", "b.c"]),
            ("/x.y", ["/x", "x.y", "/", "x"]),
            ("b/.hidden", ["b/", ".hidden", "b", ""]),
            ("/a/", ["/a/", "", "/", ""]),
            ("a/b/", ["a/b/", "", "a", ""]),
            ("/", ["/", "", "/", ""]),
            ("x.", ["x", "x.", ".", "x"]),
            (".", ["", ".", ".", ""]),
            ("..", [".", "..", ".", "."]),
            ("dir.d/file", ["dir.d/file", "file", "dir.d", "file"]),
            ("a//b", ["a//b", "b", "a", "b"]),
        ];
        let changes = [Change::NoExtension(1), Change::Base, Change::Directory, Change::BaseNoExtension(1)];
        for (value, expected) in cases {
            for (change, expected) in changes.iter().zip(expected) {
                assert_eq!(made(change, value), expected, "{change:?} of {value}");
            }
        }
    }

    #[test]
    fn plus_takes_off_several_extensions() {
        assert_eq!(made(&Change::NoExtension(2), "a/b.c.d"), "a/b");
        assert_eq!(made(&Change::NoExtension(2), "x"), "x");
        assert_eq!(made(&Change::NoExtension(3), "a/b.c.d"), "a/b.c.d");
        assert_eq!(made(&Change::Extension(1), "a/b.c.d"), "d");
        assert_eq!(made(&Change::Extension(1), "x.y/a"), "y/a");
        for (value, without, extensions) in
            [("a..", "a", "."), ("a.b.", "a", "b."), ("...", ".", "."), (".a.b", "", "a.b")]
        {
            assert_eq!(made(&Change::NoExtension(2), value), without);
            assert_eq!(made(&Change::Extension(2), value), extensions);
        }
        assert_eq!(made(&Change::Extension(2), "a/b.c.d"), "c.d");
        assert_eq!(made(&Change::Above, "a/b.c.d"), "a");
        assert_eq!(made(&Change::Above, "x"), "");
    }

    fn dynamic(text: &str, value: &str) -> String {
        made(&Change::dynamic(text.as_bytes()).expect("a valid expression").expect("a known form"), value)
    }

    #[test]
    fn plus_has_the_expansions_of_bash() {
        assert_eq!(dynamic(":-x", ""), "x");
        assert_eq!(dynamic(":2", "abc"), "c");
        assert_eq!(dynamic(":1:1", "abc"), "b");
        assert_eq!(dynamic("#a.*b", "aabcab"), "cab");
        assert_eq!(dynamic("##a.*b", "aabcab"), "");
        assert_eq!(dynamic("%b.*", "abcab"), "abca");
        assert_eq!(dynamic("%%b.*", "abcab"), "a");
        assert_eq!(dynamic("/b/$X", "abab"), "a$Xab");
        assert_eq!(dynamic("//b/$X", "abab"), "a$Xa$X");
        assert_eq!(dynamic("^a", "aab"), "Aab");
        assert_eq!(dynamic("^^a", "aab"), "AAb");
        assert_eq!(dynamic(",A", "AAB"), "aAB");
        assert_eq!(dynamic(",,A", "AAB"), "aaB");
        assert!(Change::dynamic(b"#(?<=a)b").is_err());
        assert!(Change::dynamic(b"uniq").expect("no expression").is_none());
    }
}
