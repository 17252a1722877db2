//! From arguments to commands, and from commands to jobs.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
};

use forkless_jobs::{Filled, Input, Job, JobPlace, JobSource, Next, Run, Stdin};

use super::read::{Found, Reader, Separator, TOO_LONG};

/// How arguments are put into commands.
pub(super) struct Packing {
    pub(super) separator: Separator,
    pub(super) end: Option<Vec<u8>>,
    pub(super) replace: Option<Vec<u8>>,
    pub(super) max_args: Option<u64>,
    pub(super) max_lines: Option<u64>,
    /// In bytes, each argument with its NUL byte.
    pub(super) max_chars: usize,
    /// The most bytes of one argument that the kernel takes, without its NUL byte.
    pub(super) longest: usize,
    /// The most bytes with a pointer for each argument: the kernel's limit.
    pub(super) with_pointers: usize,
    pub(super) exit_if_exceeded: bool,
    pub(super) runs_if_empty: bool,
}

/// What is done around each command.
#[derive(Default)]
pub(super) struct Around {
    pub(super) verbose: bool,
    pub(super) interactive: bool,
    pub(super) open_tty: bool,
    pub(super) keeps_stdin: bool,
    pub(super) slot_var: Option<OsString>,
}

/// Makes a job for each command.
pub(super) struct Packer {
    input: Input,
    reader: Reader,
    packing: Packing,
    around: Around,
    /// The command and its initial arguments.
    initial: Vec<OsString>,
    initial_chars: usize,
    /// The arguments of the next command, and their bytes together with the initial ones.
    args: Vec<OsString>,
    chars: usize,
    lines: u64,
    ready: VecDeque<Vec<OsString>>,
    found: Vec<Found>,
    any: bool,
    /// The input has been read to its end, with this error.
    over: Option<Result<(), &'static str>>,
}

const NO_ROOM: &str = "cannot fit a single argument within the limit of the command's length (-s)";
const LIST_TOO_LONG: &str = "argument list too long for -s";

fn chars(words: &[OsString]) -> usize {
    words.iter().map(|word| word.len() + 1).sum()
}

impl Packer {
    pub(super) fn new(input: Input, initial: Vec<OsString>, packing: Packing, around: Around) -> Self {
        let initial_chars = chars(&initial);
        // With -I the input takes the place of a part of these words: the whole is compared when it is known.
        let taken = if packing.replace.is_some() { 0 } else { initial_chars };
        let most = packing.max_chars.saturating_sub(taken + 1).min(packing.longest);
        let over = (taken > packing.max_chars).then_some(Err(NO_ROOM));
        Self {
            input,
            reader: Reader::new(packing.separator, packing.end.clone(), most),
            packing,
            around,
            initial,
            initial_chars,
            args: Vec::new(),
            chars: initial_chars,
            lines: 0,
            ready: VecDeque::new(),
            found: Vec::new(),
            any: false,
            over,
        }
    }

    /// Seeks a file back over what was read and not used, for the next process that reads it: POSIX, "Utility Description
    /// Defaults", INPUT FILES.
    pub(super) fn give_back(&self) {
        let unused = self.input.bytes().len() as i64;
        if unused > 0 {
            // A pipe cannot seek.
            let _ = rustix::fs::seek(&self.input, rustix::fs::SeekFrom::Current(-unused));
        }
    }

    /// Reads until a command is complete. Returns false if input must come first.
    fn advance(&mut self) -> io::Result<bool> {
        while self.ready.is_empty() && self.over.is_none() {
            let Self { input, reader, found, .. } = self;
            let mut count = 0;
            for &byte in input.bytes() {
                count += 1;
                reader.take(byte, found);
                if !found.is_empty() {
                    break;
                }
            }
            input.consume(count);
            if found.is_empty() {
                match input.fill()? {
                    Filled::Data => {}
                    Filled::Later => return Ok(false),
                    Filled::End => reader.finish(found),
                }
            }
            for found in std::mem::take(&mut self.found) {
                if self.over.is_some() {
                    break;
                }
                if let Err(why) = self.handle(found) {
                    self.over = Some(Err(why));
                }
            }
        }
        Ok(true)
    }

    fn handle(&mut self, found: Found) -> Result<(), &'static str> {
        match found {
            Found::Argument(text) if self.packing.replace.is_some() => return self.replace(&text),
            Found::Argument(text) => return self.push(text),
            Found::Lines(lines) => {
                self.lines += lines;
                if self.packing.max_lines.is_some_and(|most| self.lines >= most) {
                    self.complete();
                    self.lines = 0;
                }
            }
            Found::End => {
                let runs_empty = self.packing.runs_if_empty && !self.any && self.packing.replace.is_none();
                if !self.args.is_empty() || runs_empty {
                    self.complete();
                }
                self.over = Some(Ok(()));
            }
            Found::Wrong(why) => {
                // What came before it is still run.
                if !self.args.is_empty() && !self.packing.exit_if_exceeded {
                    self.complete();
                }
                return Err(why);
            }
        }
        Ok(())
    }

    /// Adds an argument to the command.
    fn push(&mut self, text: Vec<u8>) -> Result<(), &'static str> {
        let Packing { max_chars, with_pointers, max_args, max_lines, exit_if_exceeded, .. } = self.packing;
        let length = text.len() + 1;
        if self.chars + length > max_chars {
            if self.args.is_empty() {
                return Err(NO_ROOM);
            }
            if exit_if_exceeded && (max_lines.is_some() || max_args.is_some()) {
                return Err(LIST_TOO_LONG);
            }
            self.complete();
        }
        let pointers = (self.initial.len() + self.args.len() + 2) * size_of::<usize>();
        if !self.args.is_empty() && self.chars + length + pointers > with_pointers {
            self.complete();
        }
        self.chars += length;
        self.args.push(until_nul(text));
        if max_args.is_some_and(|most| self.args.len() as u64 >= most) {
            self.complete();
        }
        Ok(())
    }

    /// Makes the command of one line.
    fn replace(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let pattern = self.packing.replace.as_deref().unwrap_or_default();
        let mut words = Vec::with_capacity(self.initial.len());
        let mut chars = 0;
        for (n, word) in self.initial.iter().enumerate() {
            // The name of the command stays.
            let text = if n == 0 { word.as_bytes().to_vec() } else { replaced(word.as_bytes(), pattern, line) };
            chars += text.len() + 1;
            if chars > self.packing.max_chars || text.len() > self.packing.longest {
                return Err(TOO_LONG);
            }
            words.push(until_nul(text));
        }
        self.any = true;
        self.ready.push_back(words);
        Ok(())
    }

    fn complete(&mut self) {
        let args = std::mem::take(&mut self.args);
        self.ready.push_back(self.initial.iter().cloned().chain(args).collect());
        (self.chars, self.any) = (self.initial_chars, true);
    }

    /// Whether the command is to be run. Prints it first for `-t` and `-p`; for `-p`, reads the answer from the terminal.
    fn has_consent(&self, words: &[OsString]) -> io::Result<bool> {
        if !self.around.verbose && !self.around.interactive {
            return Ok(true);
        }
        let line: Vec<Vec<u8>> = words.iter().map(|word| quoted(word)).collect();
        let mut line = line.join(&b' ');
        line.extend_from_slice(if self.around.interactive { b" ?..." } else { b"\n" });
        io::stderr().write_all(&line)?;
        if !self.around.interactive {
            return Ok(true);
        }
        let mut answer = Vec::new();
        let terminal = File::open("/dev/tty")
            .map_err(|error| io::Error::new(error.kind(), format!("failed to open /dev/tty for reading: {error}")))?;
        BufReader::new(terminal).read_until(b'\n', &mut answer)?;
        Ok(matches!(answer.first(), Some(b'y' | b'Y')))
    }

    fn job(&self, words: Vec<OsString>, place: JobPlace) -> io::Result<Job> {
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        let mut job = Job { run: Run::Program { program, args: words.collect() }, ..Job::default() };
        if let Some(name) = &self.around.slot_var {
            job.env.push((name.clone(), (place.slot - 1).to_string().into()));
        }
        if self.around.open_tty {
            job.stdin = Stdin::File(File::open("/dev/tty")?);
        } else if self.around.keeps_stdin {
            job.stdin = Stdin::Inherit;
        }
        Ok(job)
    }
}

impl JobSource for Packer {
    fn next(&mut self, place: JobPlace) -> io::Result<Next> {
        loop {
            if !self.advance()? {
                return Ok(Next::Later);
            }
            match (self.ready.pop_front(), self.over) {
                (Some(words), _) if self.has_consent(&words)? => return self.job(words, place).map(Next::Job),
                (Some(_), _) => {}
                (None, Some(Err(why))) => return Err(io::Error::other(why)),
                (None, _) => return Ok(Next::End),
            }
        }
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        Some(self.input.as_fd())
    }

    fn left(&mut self) -> Option<u64> {
        (self.over == Some(Ok(())) && self.ready.is_empty()).then_some(0)
    }
}

/// The argument that a program sees: it ends at a NUL byte.
fn until_nul(mut text: Vec<u8>) -> OsString {
    if let Some(end) = text.iter().position(|&byte| byte == 0) {
        text.truncate(end);
    }
    OsString::from_vec(text)
}

fn replaced(word: &[u8], pattern: &[u8], by: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(word.len() + by.len());
    let mut rest = word;
    while let Some(&byte) = rest.first() {
        if rest.starts_with(pattern) {
            text.extend_from_slice(by);
            rest = &rest[pattern.len()..];
        } else {
            text.push(byte);
            rest = &rest[1..];
        }
    }
    text
}

/// Quotes a word for a shell, as GNU xargs does. Control characters are escaped: they would act on the terminal.
fn quoted(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_bytes();
    let is_special = |(place, byte): (usize, &u8)| match byte {
        b'#' | b'~' => place == 0,
        b'{' | b'}' => bytes.len() == 1,
        byte => b" !\"$&'()*;<=>?[\\^`|".contains(byte),
    };
    let plain =
        bytes.utf8_chunks().all(|chunk| chunk.invalid().is_empty() && !chunk.valid().contains(char::is_control));
    if !bytes.is_empty() && plain && !bytes.iter().enumerate().any(is_special) {
        return bytes.to_vec();
    }
    // Double quotes are shorter.
    let is_apostrophe =
        plain && bytes.contains(&b'\'') && !bytes.iter().any(|byte| b"!\"#$&()*;<=>?[\\^`|~".contains(byte));
    if is_apostrophe {
        return [b"\"", bytes, b"\""].concat();
    }
    let mut out = b"'".to_vec();
    let mut is_escaped = false;
    let mut push = |out: &mut Vec<u8>, text: &[u8], escapes: bool| {
        match (escapes, is_escaped) {
            (true, false) => out.extend_from_slice(b"'$'"),
            (false, true) => out.extend_from_slice(b"''"),
            _ => {}
        }
        is_escaped = escapes;
        out.extend_from_slice(text);
    };
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\'' => push(&mut out, b"'\\''", false),
                char if !char.is_control() => push(&mut out, char.encode_utf8(&mut [0; 4]).as_bytes(), false),
                char => char.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push(&mut out, &escape(byte), true)),
            }
        }
        chunk.invalid().iter().for_each(|byte| push(&mut out, &escape(*byte), true));
    }
    out.push(b'\'');
    out
}

/// Within `$'…'`.
fn escape(byte: u8) -> Vec<u8> {
    match byte {
        7 => b"\\a".to_vec(),
        8 => b"\\b".to_vec(),
        b'\t' => b"\\t".to_vec(),
        b'\n' => b"\\n".to_vec(),
        11 => b"\\v".to_vec(),
        12 => b"\\f".to_vec(),
        b'\r' => b"\\r".to_vec(),
        byte => format!("\\{byte:03o}").into_bytes(),
    }
}
