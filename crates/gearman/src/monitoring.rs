//! The payload of mod_gearman: checks of Naemon and Nagios, and their results.
//!
//! A payload is lines `key=value`, sealed in an [`Envelope`](crate::cipher::Envelope). A result is a job in the
//! background, for the queue that the check names. Names and output are bytes: a server may write them in any encoding, and
//! finds a host by the same bytes.

use std::time::Duration;

/// The type of a job of a monitoring server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// A check of a service.
    Service,
    /// A check of a host.
    Host,
    /// A command without a result: an event handler, or a notification.
    #[default]
    Command,
}

/// A job of a monitoring server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Check {
    /// What it is.
    pub sort: Sort,
    /// The queue for its result; empty: there is none.
    pub result_queue: Vec<u8>,
    /// The host that is checked.
    pub host: Vec<u8>,
    /// The service that is checked; empty: the host itself is.
    pub service: Vec<u8>,
    /// When the server has planned the check, in seconds since 1970; 0: unknown.
    pub core_time: f64,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// What to run.
    pub line: Vec<u8>,
}

impl Check {
    /// Parses an opened payload. `None`: it is no job of a monitoring server, or was sealed with another key.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut check = Self::default();
        let (mut is_known, mut has_line, mut times) = (false, false, [0.0; 3]);
        for line in payload.split(|&byte| byte == b'\n') {
            let Some(at) = line.iter().position(|&byte| byte == b'=') else { continue };
            let (name, value) = (&line[..at], &line[at + 1..]);
            let seconds = || {
                let number = std::str::from_utf8(value).ok()?.trim().parse::<f64>().ok();
                number.filter(|seconds| seconds.is_finite())
            };
            let seconds = || seconds().unwrap_or(0.0);
            match name {
                b"type" => {
                    is_known = true;
                    check.sort = match value {
                        b"service" => Sort::Service,
                        b"host" => Sort::Host,
                        _ => Sort::Command,
                    };
                }
                b"result_queue" => check.result_queue = value.to_vec(),
                b"host_name" => check.host = value.to_vec(),
                b"service_description" => check.service = value.to_vec(),
                b"core_time" => times[0] = seconds(),
                b"next_check" => times[1] = seconds(),
                b"start_time" => times[2] = seconds(),
                b"timeout" => {
                    let limit = Duration::try_from_secs_f64(seconds()).ok();
                    check.timeout = limit.filter(|limit| !limit.is_zero());
                }
                b"command_line" => {
                    has_line = true;
                    check.line = value.to_vec();
                }
                _ => {}
            }
        }
        check.core_time = times.into_iter().find(|time| *time > 0.0).unwrap_or(0.0);
        (is_known && has_line && !check.line.is_empty()).then_some(check)
    }

    /// Whether a result is expected.
    pub fn has_result(&self) -> bool {
        self.sort != Sort::Command && !self.result_queue.is_empty() && !self.result_queue.contains(&0)
    }
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End<'a> {
    /// With this exit code and output.
    Exited(i32, &'a [u8], &'a [u8]),
    /// By this signal, with this standard output.
    Killed(i32, &'a [u8]),
    /// It took too long.
    TimedOut,
    /// It was too old when it came.
    TooOld,
    /// It may not run, or cannot.
    Refused(&'a str),
}

/// The exit code for CRITICAL and for UNKNOWN, by the guidelines for monitoring plugins.
const CRITICAL: i32 = 2;
const UNKNOWN: i32 = 3;
/// Exit codes of a shell: the program is not found, or not executable; a signal's number is added to the third.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
const SIGNALLED: i32 = 128;
/// Exit codes that mod_gearman takes for those of a shell whose command was killed by a signal.
const SIGNALS: std::ops::RangeInclusive<i32> = 129..=143;

impl End<'_> {
    /// The exit code and the output that the monitoring server gets.
    pub fn verdict(&self, sort: Sort, worker: &str) -> (i32, Vec<u8>) {
        let bounds = |code: i32, why: &str, out: &[u8]| {
            let words =
                format!("CRITICAL: Return code of {code} is out of bounds.{why} (worker: {worker})").into_bytes();
            let said = text(out);
            // The first line is the summary; what the plugin has written follows as its details.
            (CRITICAL, if said.is_empty() { words } else { [&words[..], b"\n", &said].concat() })
        };
        match self {
            Self::Exited(code @ 0..=3, out, err) => (*code, output(out, err)),
            Self::Exited(NOT_FOUND, ..) => {
                bounds(NOT_FOUND, " Make sure the plugin you're trying to run actually exists.", b"")
            }
            Self::Exited(NOT_EXECUTABLE, ..) => {
                bounds(NOT_EXECUTABLE, " Make sure the plugin you're trying to run is executable.", b"")
            }
            // A shell reports the signal that has killed its command by such a code.
            Self::Exited(code, out, _) if SIGNALS.contains(code) => {
                Self::Killed(code - SIGNALLED, out).verdict(sort, worker)
            }
            Self::Exited(code, out, _) => bounds(*code, "", out),
            Self::Killed(signal, out) => {
                bounds(SIGNALLED + signal, &format!(" Plugin exited by signal {}.", name_of(*signal)), out)
            }
            Self::TimedOut => {
                let what = if sort == Sort::Host { "Host" } else { "Service" };
                (CRITICAL, format!("({what} Check Timed Out On Worker: {worker})").into_bytes())
            }
            Self::TooOld => (UNKNOWN, b"(Could Not Start Check In Time)".to_vec()),
            Self::Refused(why) => (UNKNOWN, format!("UNKNOWN: not run: {why} (worker: {worker})").into_bytes()),
        }
    }
}

/// Output without NUL bytes, and without newlines at its end.
fn text(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().rposition(|byte| !b"\n\r\0".contains(byte)).map_or(0, |last| last + 1);
    bytes[..end].iter().copied().filter(|byte| *byte != 0).collect()
}

/// What a plugin has reported: its standard output. Standard error is shown only where that is empty.
fn output(out: &[u8], err: &[u8]) -> Vec<u8> {
    match (text(out), text(err)) {
        (out, _) if !out.is_empty() => out,
        (_, err) if !err.is_empty() => [b"(No output on stdout) stderr: ", &err[..]].concat(),
        _ => b"(No output returned from plugin)".to_vec(),
    }
}

fn name_of(signal: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
    ];
    let found = NAMES.iter().find(|(number, _)| *number == signal);
    found.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// The result of a check, for its queue, before it is sealed. Times are seconds since 1970.
pub fn result(check: &Check, end: &End<'_>, worker: &str, started: f64, finished: f64) -> Vec<u8> {
    let (code, text) = end.verdict(check.sort, worker);
    let core_time = if check.core_time > 0.0 { check.core_time } else { started };
    let mut lines = [b"host_name=", &check.host[..], b"\n"].concat();
    if !check.service.is_empty() {
        lines.extend([b"service_description=", &check.service[..], b"\n"].concat());
    }
    let rest = format!(
        "core_start_time={core_time:.6}\nstart_time={started:.6}\nfinish_time={finished:.6}\nreturn_code={code}\n\
         exited_ok=1\nsource=forkless gearman-worker @ {worker}\ntype=active\noutput="
    );
    [&lines, rest.as_bytes(), &escaped(&text), b"\n\n\n"].concat()
}

/// Newlines and backslashes as escapes, because a value is one line.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &[u8] = b"type=service\nresult_queue=check_results\nhost_name=web\nservice_description=Disk /\n\
        start_time=1700000000.0\nnext_check=1700000001.5\ncore_time=1700000002.25\ntimeout=60\n\
        command_line=/usr/lib/nagios/plugins/check_disk -w 10% -c a=b\n\n\n";

    #[test]
    fn a_check_has_its_fields() {
        let check = Check::parse(SERVICE).expect("a check");
        assert_eq!(check.sort, Sort::Service);
        let names = (&check.host[..], &check.service[..], &check.result_queue[..]);
        assert_eq!(names, (&b"web"[..], &b"Disk /"[..], &b"check_results"[..]));
        assert_eq!(check.line, b"/usr/lib/nagios/plugins/check_disk -w 10% -c a=b");
        assert_eq!((check.timeout, check.core_time), (Some(Duration::from_secs(60)), 1_700_000_002.25));
        let handler = Check::parse(b"type=eventhandler\nstart_time=1.0\ncommand_line=/bin/true\n\n").expect("a job");
        assert!(check.has_result() && !handler.has_result());
        for wrong in
            [&b""[..], b"type=service\n", b"command_line=/bin/true", b"\xff\xfe", b"type=host\ncommand_line=\n"]
        {
            assert_eq!(Check::parse(wrong), None);
        }
    }

    #[test]
    fn ends_have_the_verdicts_of_the_guidelines_and_of_mod_gearman() {
        let verdict_of = |end: End<'_>, sort| {
            let (code, text) = end.verdict(sort, "w");
            (code, String::from_utf8(text).expect("text"))
        };
        let verdict = |end: End<'_>| verdict_of(end, Sort::Service);
        assert_eq!(
            verdict(End::Exited(1, b"WARNING | a=1\nmore\n\n", b"noise")),
            (1, "WARNING | a=1\nmore".to_owned())
        );
        assert_eq!(verdict(End::Exited(3, b"", b"bad\n")), (3, "(No output on stdout) stderr: bad".to_owned()));
        assert_eq!(verdict(End::Exited(0, b"\n", b"")), (0, "(No output returned from plugin)".to_owned()));
        let out = |text: &str| (2, format!("CRITICAL: Return code of {text} (worker: w)"));
        assert_eq!(verdict(End::Exited(5, b"", b"x")), out("5 is out of bounds."));
        let (code, words) = verdict(End::Exited(5, b"bad | a=1\nmore\n", b"x"));
        assert_eq!((code, &*words), (2, "CRITICAL: Return code of 5 is out of bounds. (worker: w)\nbad | a=1\nmore"));
        assert_eq!(
            verdict(End::Exited(127, b"", b"")),
            out("127 is out of bounds. Make sure the plugin you're trying to run actually exists.")
        );
        assert_eq!(verdict(End::Killed(9, b"")), out("137 is out of bounds. Plugin exited by signal SIGKILL."));
        assert_eq!(verdict(End::Exited(137, b"a\n", b"")), verdict(End::Killed(9, b"a")));
        assert!(verdict(End::Killed(9, b"a")).1.ends_with(" (worker: w)\na"));
        for code in [128, 144, 255] {
            assert_eq!(verdict(End::Exited(code, b"", b"")), out(&format!("{code} is out of bounds.")));
        }
        assert_eq!(verdict(End::TimedOut), (2, "(Service Check Timed Out On Worker: w)".to_owned()));
        let host = verdict_of(End::TimedOut, Sort::Host);
        assert_eq!(host, (2, "(Host Check Timed Out On Worker: w)".to_owned()));
        assert_eq!(verdict(End::TooOld).0, 3);
    }

    #[test]
    fn a_result_is_one_line_for_each_value() {
        let check = Check::parse(SERVICE).expect("a check");
        let found = result(&check, &End::Exited(0, b"OK\npath C:\\new", b""), "w", 10.5, 11.0);
        let expected = "host_name=web\nservice_description=Disk /\ncore_start_time=1700000002.250000\n\
            start_time=10.500000\nfinish_time=11.000000\nreturn_code=0\nexited_ok=1\n\
            source=forkless gearman-worker @ w\ntype=active\noutput=OK\\npath C:\\\\new\n\n\n";
        assert_eq!(String::from_utf8(found).expect("text"), expected);
    }

    /// ISO 8859-1: the server would not find the service by any other bytes.
    #[test]
    fn names_and_output_in_any_encoding_come_back_as_they_are() {
        let check =
            Check::parse(b"type=service\nhost_name=h\xe4\nservice_description=\xff\ncommand_line=x").expect("a check");
        let found = result(&check, &End::Exited(0, b"gr\xfcn\0\n", b""), "w", 1.0, 2.0);
        assert!(found.starts_with(b"host_name=h\xe4\nservice_description=\xff\n"), "{}", found.escape_ascii());
        assert!(found.ends_with(b"\noutput=gr\xfcn\n\n\n"), "{}", found.escape_ascii());
    }
}
