//! One job: what to run, and what to call it, where and when.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Where and when the next job would run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPlace {
    /// The number of the job, from 1.
    pub seq: u64,
    /// The lowest free slot, from 1.
    pub slot: usize,
}

/// A job, as a [`JobSource`](crate::JobSource) makes it.
///
/// ```
/// use forkless_jobs::Job;
/// let mut job = Job::program("convert", ["a.png", "a.jpg"]);
/// job.env.push(("LANG".into(), "C".into()));
/// assert_eq!(job.text, b"convert a.png a.jpg");
/// ```
#[derive(Debug, Default)]
pub struct Job {
    /// What to run.
    pub run: Run,
    /// Additions to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its standard input.
    pub stdin: Stdin,
    /// The text that stands for the job in the log, in a dry run and in messages.
    pub text: Vec<u8>,
    /// Written before each line of its output, if it is captured.
    pub tag: Vec<u8>,
    /// Written to standard output before its output, without the tag, if it is captured.
    pub head: Vec<u8>,
    /// A directory that gets the files `stdout`, `stderr` and `seq`, if the output is captured.
    pub results: Option<PathBuf>,
    /// How long it may run; the shorter one of this and [`Options::timeout`](crate::Options::timeout) counts.
    pub timeout: Option<Duration>,
    /// How often it is launched, at most, until it succeeds; otherwise [`Options::tries`](crate::Options::tries) counts.
    pub tries: Option<u32>,
    /// Values of the caller, such as the columns of its input. They come back with the job's end.
    pub values: Vec<Vec<u8>>,
}

/// What a job runs.
#[derive(Debug)]
pub enum Run {
    /// A program, looked up in PATH, with its arguments.
    Program {
        /// The program.
        program: OsString,
        /// Its arguments, without `argv[0]`.
        args: Vec<OsString>,
    },
    /// A line for `/bin/sh -c`, or for another [shell](crate::Options::shell), by [`forkless::shell()`]: without the shell
    /// where the result is the same.
    Line(Vec<u8>),
}

impl Default for Run {
    fn default() -> Self {
        Self::Line(Vec::new())
    }
}

/// The standard input of a job.
#[derive(Debug, Default)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// That of this process.
    Inherit,
    /// This file, at its present position.
    File(File),
    /// A pipe with these bytes.
    Bytes(Vec<u8>),
    /// A pipe with these bytes, and then with those of [`JobSource::more`](crate::JobSource::more) while the job runs. Such
    /// a job is not tried again.
    Stream(Vec<u8>),
}

impl Job {
    /// A program with its arguments. The text is both, joined by blanks, without quotes.
    pub fn program<S: Into<OsString>>(program: impl Into<OsString>, args: impl IntoIterator<Item = S>) -> Self {
        let (program, args) = (program.into(), args.into_iter().map(Into::into).collect::<Vec<OsString>>());
        let words: Vec<&[u8]> =
            std::iter::once(&program).chain(&args).map(|word: &OsString| OsStr::as_bytes(word)).collect();
        Self { text: words.join(&b' '), run: Run::Program { program, args }, ..Self::default() }
    }

    /// A line for `/bin/sh -c`, or for another [shell](crate::Options::shell).
    pub fn line(line: impl Into<Vec<u8>>) -> Self {
        let line = line.into();
        Self { text: line.clone(), run: Run::Line(line), ..Self::default() }
    }
}
