//! `--results`: a tree of directories, or a table as CSV or JSON.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use forkless_jobs::{Ended, Sink, Standard, Stream};

use super::sources::Row;
use super::template::{Numbers, Template};

/// The directories of the jobs.
#[derive(Debug)]
pub(super) enum Naming {
    /// A tree: a level for the name and one for the value of each argument, by name.
    Tree { root: PathBuf, names: Vec<Vec<u8>> },
    /// A name with replacement strings.
    Template(Template),
}

impl Naming {
    /// The directory of a job. The run makes it.
    pub(super) fn directory(&self, args: &Row, numbers: Numbers) -> PathBuf {
        match self {
            Self::Template(template) => {
                let own = template.literal_start().len();
                PathBuf::from(OsString::from_vec(downward(&template.expand(args, numbers), own)))
            }
            Self::Tree { root, names } => {
                let mut levels: Vec<(Vec<u8>, &Vec<u8>)> = args
                    .iter()
                    .enumerate()
                    .map(|(place, value)| {
                        let name = names.get(place).cloned();
                        (name.unwrap_or_else(|| (place + 1).to_string().into_bytes()), value)
                    })
                    .collect();
                // By number first, then by name: 1a 1b 11a. A name without a number counts as 0.
                let number = |name: &[u8]| {
                    let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
                    digits.fold(0u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
                };
                if !names.is_empty() {
                    levels.sort_by_cached_key(|(name, value)| (number(name), name.clone(), *value));
                }
                let mut directory = root.clone();
                for (name, value) in levels {
                    directory.push(OsStr::from_bytes(&level(&name)));
                    directory.push(OsStr::from_bytes(&level(value)));
                }
                directory
            }
        }
    }
}

/// A path in which no name after the first `own` bytes leads up: the user has written those, and values the others.
fn downward(path: &[u8], own: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut end = 0;
    for name in path.split_inclusive(|byte| *byte == b'/') {
        end += name.len();
        let leads_up = name.strip_suffix(b"/").unwrap_or(name) == b"..";
        if leads_up && end > own {
            out.push(b'\\');
        }
        out.extend_from_slice(name);
    }
    out
}

/// A value as the name of one directory: it cannot lead to another one.
fn level(value: &[u8]) -> Vec<u8> {
    if value == b"." || value == b".." {
        return [b"\\", value].concat();
    }
    /// NAME_MAX of Linux.
    const LONGEST: usize = 255;
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        match byte {
            b'/' => out.extend_from_slice(b"\\_"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\0' => out.extend_from_slice(b"\\0"),
            byte => out.push(*byte),
        }
    }
    if out.len() > LONGEST {
        // The hash distinguishes values that begin alike.
        let hash = format!(
            "-{:016x}",
            out.iter().fold(FNV_START, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
        );
        out.truncate(LONGEST - hash.len());
        out.extend_from_slice(hash.as_bytes());
    }
    out
}

/// Constants of the hash FNV-1a, which is the same in each version.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x100_0000_01b3;

/// Drops the output, which the files of `--results` have.
#[derive(Debug)]
pub(super) struct Silent;

impl Sink for Silent {
    fn write(&mut self, _: u64, _: Stream, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// The form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableForm {
    /// With this byte between the columns.
    Separated(u8),
    Json,
}

/// The columns of a table and their names.
const HEAD: &[&str] = &["Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command"];

/// A table with a row for each job. The output of a job is kept in memory until its row is written.
#[derive(Debug)]
pub(super) struct Table {
    file: File,
    form: TableForm,
    host: String,
    names: Vec<Vec<u8>>,
    has_head: bool,
    held: BTreeMap<u64, [Vec<u8>; 2]>,
    /// With `--line-buffer` the output is written, too.
    standard: Option<Standard>,
}

impl Table {
    /// The table in a file of this name, if its ending is one of a table; `-.csv` is standard output.
    pub(super) fn open(path: &Path, host: &str, names: &[Vec<u8>], writes: bool) -> io::Result<Option<Self>> {
        let form = match path.extension().and_then(OsStr::to_str) {
            Some("csv") => TableForm::Separated(b','),
            Some("tsv") => TableForm::Separated(b'\t'),
            Some("json") => TableForm::Json,
            _ => return Ok(None),
        };
        let file = match path.file_stem() == Some(OsStr::new("-")) && path.parent() == Some(Path::new("")) {
            true => File::from(rustix::io::dup(rustix::stdio::stdout())?),
            false => File::create(path)?,
        };
        let (host, names) = (host.to_owned(), names.to_vec());
        let standard = writes.then(Standard::new);
        Ok(Some(Self { file, form, host, names, has_head: false, held: BTreeMap::new(), standard }))
    }

    fn head(&mut self, columns: usize, separator: u8) -> io::Result<()> {
        let mut row: Vec<Vec<u8>> = HEAD.iter().map(|name| name.as_bytes().to_vec()).collect();
        row.extend((0..columns).map(|place| {
            let name = self.names.get(place).cloned();
            name.unwrap_or_else(|| format!("V{}", place + 1).into_bytes())
        }));
        row.extend([b"Stdout".to_vec(), b"Stderr".to_vec()]);
        self.file.write_all(&separated(&row, separator))
    }
}

impl Sink for Table {
    fn write(&mut self, seq: u64, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if let Some(standard) = &mut self.standard {
            standard.write(seq, stream, bytes)?;
        }
        let held = self.held.entry(seq).or_default();
        held[usize::from(stream == Stream::Err)].extend_from_slice(bytes);
        Ok(())
    }

    fn written(&mut self, ended: &Ended) -> io::Result<()> {
        let [out, err] = self.held.remove(&ended.place.seq).unwrap_or_default();
        let (status, signal) = ended.ending.numbers();
        let status = if ended.timed_out { -1 } else { status };
        let started = ended.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let numbers = [
            ended.place.seq.to_string(),
            self.host.clone(),
            format!("{started:.3}"),
            format!("{:.3}", ended.runtime.as_secs_f64()),
            "0".to_owned(),
            out.len().to_string(),
            status.to_string(),
            signal.to_string(),
        ];
        let values = &ended.job.values[1..];
        let row = match self.form {
            TableForm::Separated(separator) => {
                if !std::mem::replace(&mut self.has_head, true) {
                    self.head(values.len(), separator)?;
                }
                let mut row: Vec<Vec<u8>> = numbers.into_iter().map(String::into_bytes).collect();
                row.push(ended.job.text.clone());
                row.extend_from_slice(values);
                row.extend([out, err]);
                separated(&row, separator)
            }
            TableForm::Json => json(&numbers, &ended.job.text, values, &out, &err),
        };
        self.file.write_all(&row)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.standard.as_mut().map_or(Ok(()), Sink::flush)
    }
}

fn separated(row: &[Vec<u8>], separator: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for (place, value) in row.iter().enumerate() {
        if place > 0 {
            out.push(separator);
        }
        if !value.iter().any(|byte| *byte == separator || b"\" \t\r\n".contains(byte)) {
            out.extend_from_slice(value);
            continue;
        }
        out.push(b'"');
        for byte in value {
            if *byte == b'"' {
                out.push(b'"');
            }
            out.push(*byte);
        }
        out.push(b'"');
    }
    out.push(b'\n');
    out
}

fn json(numbers: &[String], command: &[u8], values: &[Vec<u8>], out: &[u8], err: &[u8]) -> Vec<u8> {
    let mut line = b"{ ".to_vec();
    for (name, number) in HEAD.iter().zip(numbers) {
        let number = if *name == "Host" { text(number.as_bytes()) } else { number.clone().into_bytes() };
        line.extend_from_slice(format!("\"{name}\": ").as_bytes());
        line.extend_from_slice(&number);
        line.extend_from_slice(b", ");
    }
    line.extend_from_slice(b"\"Command\": ");
    line.extend_from_slice(&text(command));
    line.extend_from_slice(b", \"V\": [ ");
    line.extend_from_slice(&values.iter().map(|value| text(value)).collect::<Vec<_>>().join(&b","[..]));
    line.extend_from_slice(b" ], \"Stdout\": ");
    line.extend_from_slice(&text(out));
    line.extend_from_slice(b", \"Stderr\": ");
    line.extend_from_slice(&text(err));
    line.extend_from_slice(b" }\n");
    line
}

/// A string of JSON. Bytes that are not UTF-8 become the replacement character, because JSON cannot contain them.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = String::from("\"");
    for sign in String::from_utf8_lossy(bytes).chars() {
        match sign {
            '"' | '\\' => out.extend(['\\', sign]),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(sign))),
            sign => out.push(sign),
        }
    }
    out.push('"');
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_directories_without_leading_away() {
        assert_eq!(level(b"a/b\\c"), b"a\\_b\\\\c");
        assert_eq!(level(b".."), b"\\..");
        assert_eq!(level(b"/"), b"\\_");
        let [one, other] = [b"1", b"2"].map(|end| level(&[&[b'a'; 300][..], end].concat()));
        assert!(one.len() == 255 && other.len() == 255 && one[..238] == other[..238] && one != other);
        assert_eq!(level(&[b'a'; 255]), [b'a'; 255]);
    }

    #[test]
    fn values_in_a_name_lead_nowhere_up() {
        assert_eq!(downward(b"../out/a/b/", 7), b"../out/a/b/");
        assert_eq!(downward(b"../out/../../evil/", 7), b"../out/\\../\\../evil/");
        assert_eq!(downward(b"../", 0), b"\\../");
        assert_eq!(downward(b"out/.x../..", 4), b"out/.x../\\..");
        // The value comes after a dot.
        assert_eq!(downward(b"./", 1), b"./");
        assert_eq!(downward(b"../up", 1), b"\\../up");
    }

    #[test]
    fn tables_quote_what_needs_it() {
        let row = [&b"a"[..], b"b\"c,", b"d e", b""].map(<[u8]>::to_vec);
        assert_eq!(separated(&row, b','), b"a,\"b\"\"c,\",\"d e\",\n");
        assert_eq!(text(b"a\"\\\n\xff"), "\"a\\\"\\\\\\u000a\u{fffd}\"".as_bytes());
    }
}
