//! The complete reply of a worker about a job: how it ended, its times, and its output.
//!
//! A workload requests it by its first line, [`ASK`] and options, which a shell takes for a comment. So another worker,
//! which gives the workload to a shell, runs the same job.

use std::fmt::Write as _;
use std::time::Duration;

/// The beginning of the first line of a workload that requests a record.
pub const ASK: &[u8] = b"#forkless record";

/// The beginning of a record.
const HEAD: &str = "forkless record 1\n";

/// A line to be run, and the form of the reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The line for the shell.
    pub line: Vec<u8>,
    /// The reply shall be a [`Record`].
    pub wants_record: bool,
    /// How long the job may run.
    pub timeout: Option<Duration>,
}

impl Request {
    /// Parses a workload.
    pub fn parse(workload: &[u8]) -> Self {
        let plain = || Self { line: workload.to_vec(), ..Self::default() };
        let Some(rest) = workload.strip_prefix(ASK) else { return plain() };
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return plain() };
        let (words, line) = (&rest[..end], &rest[end + 1..]);
        if !words.is_empty() && words[0] != b' ' {
            return plain();
        }
        let words = String::from_utf8_lossy(words);
        let seconds = words.split_whitespace().find_map(|word| word.strip_prefix("timeout=")?.parse::<f64>().ok());
        let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self { line: line.to_vec(), wants_record: true, timeout }
    }

    /// The workload.
    pub fn to_workload(&self) -> Vec<u8> {
        if !self.wants_record {
            return self.line.clone();
        }
        let mut workload = ASK.to_vec();
        if let Some(timeout) = self.timeout {
            workload.extend_from_slice(format!(" timeout={}", timeout.as_secs_f64()).as_bytes());
        }
        workload.push(b'\n');
        workload.extend_from_slice(&self.line);
        workload
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    /// Its exit code, or 0.
    pub exit: i32,
    /// The signal that killed it, or 0.
    pub signal: i32,
    /// It was killed because it took too long.
    pub timed_out: bool,
    /// Its output was longer than the worker's limit, and has been cut.
    pub cut: bool,
    /// When it was started: seconds since 1970.
    pub started: f64,
    /// How many seconds it ran.
    pub seconds: f64,
    /// Why it could not be started; empty: it was.
    pub refused: String,
    /// Its standard output.
    pub out: Vec<u8>,
    /// Its standard error.
    pub err: Vec<u8>,
}

impl Record {
    /// The reply.
    pub fn to_reply(&self) -> Vec<u8> {
        let Self { exit, signal, timed_out, cut, started, seconds, refused, out, err } = self;
        let mut text = HEAD.to_owned();
        let (timed_out, cut) = (u8::from(*timed_out), u8::from(*cut));
        let _ = write!(
            text,
            "exit={exit}\nsignal={signal}\ntimed_out={timed_out}\ncut={cut}\nstarted={started:.6}\nseconds={seconds:.6}\n"
        );
        if !refused.is_empty() {
            let _ = writeln!(text, "refused={}", refused.replace('\n', " "));
        }
        let _ = write!(text, "out={}\nerr={}\n\n", out.len(), err.len());
        [text.as_bytes(), out, err].concat()
    }

    /// Parses a reply. `None`: it is no whole record, as when another worker has replied.
    pub fn parse(reply: &[u8]) -> Option<Self> {
        let rest = reply.strip_prefix(HEAD.as_bytes())?;
        let end = rest.windows(2).position(|two| two == b"\n\n")?;
        let (head, bytes) = (std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 2..]);
        let mut record = Self::default();
        let (mut out, mut err) = (0, 0);
        for line in head.lines() {
            let (name, value) = line.split_once('=')?;
            match name {
                "exit" => record.exit = value.parse().ok()?,
                "signal" => record.signal = value.parse().ok()?,
                "timed_out" => record.timed_out = value == "1",
                "cut" => record.cut = value == "1",
                "started" => record.started = value.parse().ok()?,
                "seconds" => record.seconds = value.parse().ok()?,
                "refused" => value.clone_into(&mut record.refused),
                "out" => out = value.parse::<usize>().ok()?,
                "err" => err = value.parse::<usize>().ok()?,
                // A field of a later version.
                _ => {}
            }
        }
        let (first, second) = bytes.split_at_checked(out)?;
        if second.len() != err {
            return None;
        }
        (record.out, record.err) = (first.to_vec(), second.to_vec());
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_and_other_lines_stay_as_they_are() {
        let timeout = Some(Duration::from_millis(1500));
        let request = Request { line: b"echo 'a\nb'".to_vec(), wants_record: true, timeout };
        assert_eq!(request.to_workload(), b"#forkless record timeout=1.5\necho 'a\nb'");
        assert_eq!(Request::parse(&request.to_workload()), request);
        for line in [&b"echo a"[..], b"", b"#forkless record", b"#forkless recorder\necho a"] {
            assert_eq!(Request::parse(line), Request { line: line.to_vec(), ..Request::default() });
        }
    }

    #[test]
    fn a_record_comes_back_with_its_output() {
        let record = Record {
            exit: 3,
            timed_out: true,
            started: 1_795_362_973.752,
            seconds: 0.25,
            refused: "two lines".to_owned(),
            out: b"\n\n\0out".to_vec(),
            err: b"err\n\n".to_vec(),
            ..Record::default()
        };
        assert_eq!(Record::parse(&record.to_reply()), Some(record.clone()));
        let reply = record.to_reply();
        assert_eq!(Record::parse(&reply[..reply.len() - 1]), None, "it is not whole");
        assert_eq!(Record::parse(b"another reply"), None);
    }
}
