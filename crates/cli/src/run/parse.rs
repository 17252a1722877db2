//! Parsers of option values.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    time::Duration,
};

use signal_hook::low_level::signal_name;

use crate::near::did_you_mean;

/// Where a file descriptor of the program comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FdSource {
    /// The stream of forkless.
    Inherit,
    /// `/dev/null`.
    Null,
    /// A file descriptor that forkless inherited.
    Fd(i32),
    /// The same file as another descriptor of the program.
    SameAs(i32),
    /// A file.
    File(PathBuf, Mode),
}

/// Whether forkless has inherited this descriptor. Those that it opens itself are close-on-exec.
pub(crate) fn is_inherited(number: i32) -> bool {
    // SAFETY: F_GETFD touches no memory; a number that is not open is an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// The error for a descriptor that forkless has not inherited.
pub(crate) fn not_inherited(number: i32) -> String {
    format!("fd {number} is not open; open it for forkless, as the shell does with {number}<FILE")
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It must exist.
    Read,
    /// Created or truncated.
    Write,
    /// Created if it does not exist; writes append.
    Append,
    /// Created if it does not exist, not truncated.
    ReadWrite,
}

/// A file for a given descriptor number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FdRequest {
    pub(crate) number: i32,
    pub(crate) source: FdSource,
}

/// A signal, or all signals that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalChoice {
    All,
    One(i32),
}

impl SignalChoice {
    pub(crate) fn numbers(self) -> Vec<i32> {
        match self {
            Self::One(number) => vec![number],
            // KILL and STOP cannot be changed; 32 and 33 are reserved by libc.
            Self::All => (1..=64).filter(|n| ![libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(n)).collect(),
        }
    }
}

/// A variable of the environment: its name and its value.
pub(crate) type Assignment = (OsString, OsString);

/// `NAME=VALUE`; the value may be empty and may contain `=`.
pub(crate) fn assignment(word: OsString) -> Result<Assignment, String> {
    match split(&word, b'=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        Some(_) => Err("the variable has no name; write NAME=VALUE".to_owned()),
        None => Err("must be NAME=VALUE".to_owned()),
    }
}

/// The name of a variable.
pub(crate) fn variable(word: OsString) -> Result<OsString, String> {
    if word.is_empty() {
        return Err("the name of a variable must not be empty".to_owned());
    }
    match split(&word, b'=') {
        Some((name, _)) => Err(format!("the name of a variable contains no =; write {}", name.display())),
        None => Ok(word),
    }
}

/// The value of `--stdin`.
pub(crate) fn input(word: OsString) -> Result<FdSource, String> {
    stream(word, Mode::Read)
}

/// The value of `--stdout` and `--stderr`.
pub(crate) fn output(word: OsString) -> Result<FdSource, String> {
    match word.as_bytes() {
        b"stdout" => Ok(FdSource::SameAs(1)),
        b"stderr" => Ok(FdSource::SameAs(2)),
        _ => match prefixed(&word, b"append:") {
            Some(path) => file(path, Mode::Append),
            None => stream(word, Mode::Write),
        },
    }
}

fn stream(word: OsString, mode: Mode) -> Result<FdSource, String> {
    match word.as_bytes() {
        b"inherit" => Ok(FdSource::Inherit),
        b"null" => Ok(FdSource::Null),
        _ => match prefixed(&word, b"fd:") {
            Some(number) => Ok(FdSource::Fd(fd_number(&number)?)),
            None => file(word, mode),
        },
    }
}

/// The value of `--fd`.
pub(crate) fn fd_request(word: OsString) -> Result<FdRequest, String> {
    let (number, source) = split(&word, b'=').ok_or("must be N=SOURCE")?;
    let number = fd_number(&number)?;
    let modes: [(&[u8], Mode); 4] =
        [(b"r:", Mode::Read), (b"w:", Mode::Write), (b"a:", Mode::Append), (b"rw:", Mode::ReadWrite)];
    let source = if source == "null" {
        FdSource::Null
    } else if let Ok(ours) = fd_number(&source) {
        FdSource::Fd(ours)
    } else {
        let opened = modes.iter().find_map(|(prefix, mode)| Some((prefixed(&source, prefix)?, *mode)));
        let (path, mode) = opened.ok_or("the source must be a number, null, r:FILE, w:FILE, a:FILE or rw:FILE")?;
        file(path, mode)?
    };
    Ok(FdRequest { number, source })
}

/// The value of `--open`: the same as for `--fd`, but only files.
pub(crate) fn open_request(word: OsString) -> Result<FdRequest, String> {
    match fd_request(word)? {
        request @ FdRequest { source: FdSource::File(..), .. } => Ok(request),
        _ => Err("the source must be r:FILE, w:FILE, a:FILE or rw:FILE".to_owned()),
    }
}

fn file(path: OsString, mode: Mode) -> Result<FdSource, String> {
    if path.is_empty() {
        return Err("the file name is empty".to_owned());
    }
    Ok(FdSource::File(path.into(), mode))
}

/// A file descriptor number.
pub(crate) fn fd_number(word: &OsStr) -> Result<i32, String> {
    let digits = word.to_str().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()).ok_or_else(|| format!("{word:?} is not a file descriptor number"))
}

/// A signal by name, with or without `SIG`, or by number.
pub(crate) fn signal(word: &str) -> Result<i32, String> {
    let unknown = || {
        let names = (1..=31).filter_map(signal_name).map(|name| name.trim_start_matches("SIG"));
        let near = did_you_mean(word.trim_start_matches("SIG"), names);
        format!("no signal {word:?}: use a name such as TERM, or a number from 1 to 64{near}")
    };
    if let Ok(number) = word.parse::<i32>() {
        return if (1..=64).contains(&number) { Ok(number) } else { Err(unknown()) };
    }
    let name = word.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    // RTMIN+1, RTMAX-1.
    for (end, first) in [("RTMIN", libc::SIGRTMIN()), ("RTMAX", libc::SIGRTMAX())] {
        if let Some(distance) = name.strip_prefix(end) {
            let distance: i32 = if distance.is_empty() { 0 } else { distance.parse().map_err(|_| unknown())? };
            let number = first.checked_add(distance);
            return number.filter(|number| (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(number)).ok_or_else(unknown);
        }
    }
    let called = |number: &i32| signal_name(*number).is_some_and(|full| full.strip_prefix("SIG") == Some(name));
    (1..=31).find(called).or_else(|| rarely_named(name)).ok_or_else(unknown)
}

/// Signals for which signal-hook has no name, and second names, as in signal(7).
fn rarely_named(name: &str) -> Option<i32> {
    match name {
        "CLD" => Some(libc::SIGCHLD),
        "IOT" => Some(libc::SIGABRT),
        "PWR" => Some(libc::SIGPWR),
        "STKFLT" => Some(libc::SIGSTKFLT),
        "POLL" => Some(libc::SIGPOLL),
        _ => None,
    }
}

/// A signal, or `all`.
pub(crate) fn signals(word: &str) -> Result<SignalChoice, String> {
    if word == "all" { Ok(SignalChoice::All) } else { signal(word).map(SignalChoice::One) }
}

/// An octal number up to `most`.
pub(crate) fn octal(word: &str, most: u32) -> Result<u32, String> {
    // Without this check, "+7" would be accepted.
    let plain = word.bytes().all(|b| b.is_ascii_digit());
    let number = u32::from_str_radix(word, 8).ok().filter(|number| plain && *number <= most);
    number.ok_or_else(|| format!("must be an octal number of at most {most:o}"))
}

/// A number, decimal or with `0x`; a negative one means its two's complement.
pub(crate) fn number(word: &str) -> Result<u64, String> {
    let (negative, digits) = word.strip_prefix('-').map_or((false, word), |digits| (true, digits));
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    match number {
        Ok(number) if !digits.contains('+') => Ok(if negative { number.wrapping_neg() } else { number }),
        _ => Err(format!("{word:?} is not a number")),
    }
}

/// A number as above, of at most 32 bits.
pub(crate) fn number32(word: &str) -> Result<u32, String> {
    number(word)?.try_into().map_err(|_| format!("{word:?} does not fit in 32 bits"))
}

/// A time: a number of seconds, or numbers with units, such as `1m30s`, from the largest unit to the smallest; also all that
/// timeout(1) takes: `1e3`, `0x10m`, `inf`.
pub(crate) fn duration(word: &str) -> Result<Duration, String> {
    units(word).or_else(|why| floating(word).ok_or(why))
}

/// A number as strtod(3) reads it, with one unit at most. A time that is too large means no limit.
fn floating(word: &str) -> Option<Duration> {
    let text = std::ffi::CString::new(word).ok()?;
    let mut end = std::ptr::null_mut();
    // SAFETY: a string that ends with NUL; `end` then points into it.
    let (number, rest) = unsafe {
        let number = libc::strtod(text.as_ptr(), &raw mut end);
        (number, &word[end.offset_from(text.as_ptr()).unsigned_abs()..])
    };
    let unit = match rest {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let is_time = rest.len() < word.len() && number >= 0.0 && !word.starts_with(char::is_whitespace);
    is_time.then(|| Duration::try_from_secs_f64(number * unit).unwrap_or(Duration::MAX))
}

fn units(word: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001)];
    let wrong = || "must be like 10, 1.5s, 200ms, 5m, 1m30s, 2h or 1d".to_owned();
    let number_end = |text: &str| text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (mut rest, mut seconds, mut units) = (word, 0.0, &UNITS[..]);
    loop {
        let (number, after) = rest.split_at(number_end(rest));
        let value: f64 = number.parse().map_err(|_| wrong())?;
        let (unit, next) = after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        if after.is_empty() && rest == word {
            seconds = value;
            break;
        }
        let place = units.iter().position(|(name, _)| *name == unit).ok_or_else(wrong)?;
        seconds += value * units[place].1;
        (rest, units) = (next, &units[place + 1..]);
        if rest.is_empty() {
            break;
        }
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| "is too long".to_owned())
}

/// The kernel's RLIM_INFINITY.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// A number, with a suffix in powers of 1024 (`K` is `KiB`, as in systemd and prlimit), or `unlimited`.
pub(crate) fn amount(word: &str) -> Result<u64, String> {
    if word == "unlimited" {
        return Ok(UNLIMITED);
    }
    let (digits, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len()));
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        // Some programs take MB for 1000 × 1000 bytes, some for 1024 × 1024.
        "KB" | "MB" | "GB" | "TB" => {
            let prefix = &unit[..1];
            return Err(format!("{unit} is ambiguous: use {prefix} or {prefix}iB, in powers of 1024"));
        }
        _ => 64,
    };
    // The highest number means unlimited to the kernel; require the word instead.
    let number = digits.parse::<u64>().ok().zip(1u64.checked_shl(shift)).and_then(|(n, unit)| n.checked_mul(unit));
    number.filter(|number| *number != UNLIMITED).ok_or_else(|| {
        format!("{word:?} is not an amount: must be a number, optionally with K, M, G or T, or unlimited")
    })
}

/// `IN:OUT:COUNT`, ids inside and outside, as for unshare(1).
pub(crate) fn id_map(word: &str) -> Result<[u32; 3], String> {
    // Without this check, "+7" would be accepted.
    let plain = word.bytes().all(|b| b.is_ascii_digit() || b == b':');
    let numbers: Option<Vec<u32>> = word.split(':').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[inside, outside, count]) if plain && count > 0 => Ok([inside, outside, count]),
        _ => Err("must be IN:OUT:COUNT, three numbers with COUNT at least 1".to_owned()),
    }
}

/// Splits at the first `separator`.
pub(crate) fn split(word: &OsStr, separator: u8) -> Option<(OsString, OsString)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|b| *b == separator)?;
    Some((OsString::from_vec(bytes[..at].to_vec()), OsString::from_vec(bytes[at + 1..].to_vec())))
}

fn prefixed(word: &OsStr, prefix: &[u8]) -> Option<OsString> {
    word.as_bytes().strip_prefix(prefix).map(|rest| OsString::from_vec(rest.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_accepts_the_forms_of_timeout() {
        for (word, ms) in [("10", 10_000), ("1.5s", 1_500), ("200ms", 200), ("2m", 120_000), ("0", 0), (".5", 500)] {
            assert_eq!(duration(word), Ok(Duration::from_millis(ms)), "{word}");
        }
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3_600)));
        assert_eq!(duration("1d"), Ok(Duration::from_secs(86_400)));
        for (word, seconds) in [("1e1", 10), ("0x10", 16), ("1e1m", 600), ("+5", 5), ("0x1p2h", 14_400)] {
            assert_eq!(duration(word), Ok(Duration::from_secs(seconds)), "{word}");
        }
        for word in ["inf", "INFINITY", "infinity", "1e99d", "99999999999999999999999"] {
            assert_eq!(duration(word), Ok(Duration::MAX), "{word}");
        }
        for word in ["", "s", "-1", "1x", "nan", "1 s", " 1", "-inf", "1e", "0x", "inf d"] {
            assert!(duration(word).is_err(), "{word}");
        }
    }

    #[test]
    fn duration_adds_units_from_large_to_small() {
        for (word, ms) in [("1m30s", 90_000), ("1h0m1s", 3_601_000), ("1d12h", 129_600_000), ("1s500ms", 1_500)] {
            assert_eq!(duration(word), Ok(Duration::from_millis(ms)), "{word}");
        }
        for word in ["30s1m", "1m1m", "1m30", "1m30x", "1m s", "1m-30s", "m30s", "1min", "1ms1s"] {
            assert!(duration(word).is_err(), "{word}");
        }
    }

    #[test]
    fn amount_is_in_powers_of_1024_and_refuses_ambiguous_units() {
        for word in ["1M", "1MiB", "1m", "1mib", "1024K", "1048576"] {
            assert_eq!(amount(word), Ok(1 << 20), "{word}");
        }
        assert_eq!((amount("2TiB"), amount("unlimited"), amount("0")), (Ok(2 << 40), Ok(UNLIMITED), Ok(0)));
        for word in ["1MB", "1kb", "5GB"] {
            assert!(amount(word).is_err_and(|why| why.contains("ambiguous") && why.contains("1024")), "{word}");
        }
        for word in ["", "M", "1B", "1MiBs", "1.5G", "-1", "1 M", "16777216T", "18446744073709551615"] {
            assert!(amount(word).is_err(), "{word}");
        }
    }

    #[test]
    fn signal_accepts_names_and_numbers() {
        for (word, number) in [("TERM", 15), ("SIGTERM", 15), ("term", 15), ("9", 9), ("USR1", 10), ("WINCH", 28)] {
            assert_eq!(signal(word), Ok(number), "{word}");
        }
        assert_eq!((signal("RTMIN+1"), signal("RTMIN")), (Ok(libc::SIGRTMIN() + 1), Ok(libc::SIGRTMIN())));
        assert_eq!((signal("SIGRTMAX-2"), signal("rtmax")), (Ok(libc::SIGRTMAX() - 2), Ok(libc::SIGRTMAX())));
        for (word, number) in [("CLD", libc::SIGCHLD), ("IOT", libc::SIGABRT), ("SIGPOLL", libc::SIGPOLL)] {
            assert_eq!(signal(word), Ok(number), "{word}");
        }
        for word in
            ["", "0", "65", "-1", "NONSENSE", "SIG", "RTMIN+99", "RTMIN+2147483647", "RTMIN-2147483648", "RTMAX+1"]
        {
            assert!(signal(word).is_err(), "{word}");
        }
        assert_eq!(signals("all"), Ok(SignalChoice::All));
        assert!(!SignalChoice::All.numbers().contains(&9));
        // Every signal number below 32 has a name.
        let names = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP \
                     TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS";
        for (index, name) in names.split_whitespace().enumerate() {
            assert_eq!(signal(name), Ok(index as i32 + 1), "{name}");
        }
    }

    #[test]
    fn streams_and_descriptors_accept_each_kind_of_source() {
        assert_eq!(input("null".into()), Ok(FdSource::Null));
        assert_eq!(input("fd:7".into()), Ok(FdSource::Fd(7)));
        assert_eq!(input("./null".into()), Ok(FdSource::File("./null".into(), Mode::Read)));
        assert_eq!(output("stdout".into()), Ok(FdSource::SameAs(1)));
        assert_eq!(output("append:log".into()), Ok(FdSource::File("log".into(), Mode::Append)));
        for word in ["fd:", "fd:x", "fd:-1", ""] {
            assert!(input(word.into()).is_err(), "{word}");
        }
        assert_eq!(fd_request("5=3".into()), Ok(FdRequest { number: 5, source: FdSource::Fd(3) }));
        assert_eq!(
            fd_request("5=rw:a=b".into()),
            Ok(FdRequest { number: 5, source: FdSource::File("a=b".into(), Mode::ReadWrite) })
        );
        for word in ["5", "x=3", "5=", "5=file", "=3", "5=r:"] {
            assert!(fd_request(word.into()).is_err(), "{word}");
        }
        assert_eq!(
            open_request("0=r:x".into()),
            Ok(FdRequest { number: 0, source: FdSource::File("x".into(), Mode::Read) })
        );
        for word in ["0=3", "0=null", "0=x", "0=r:"] {
            assert!(open_request(word.into()).is_err(), "{word}");
        }
    }

    #[test]
    fn numbers_may_be_octal_hexadecimal_or_negative() {
        assert_eq!(octal("077", 0o777), Ok(0o77));
        for word in ["", "8", "1000", "+7", "-1", "0x1"] {
            assert!(octal(word, 0o777).is_err(), "{word}");
        }
        assert_eq!((number("10"), number("0x10"), number("-1")), (Ok(10), Ok(16), Ok(u64::MAX)));
        assert_eq!(number32("0x0040000"), Ok(0x40000));
        for word in ["", "-", "0x", "x", "+1", "0x+1", "--1", "18446744073709551616"] {
            assert!(number(word).is_err(), "{word}");
        }
        assert!(number32("-1").is_err());
    }

    #[test]
    fn id_map_requires_three_numbers() {
        assert_eq!(id_map("0:1000:1"), Ok([0, 1000, 1]));
        for word in ["", "0:1000", "0:1000:0", "0:1000:1:2", "a:0:1", "-1:0:1", "+0:1000:1"] {
            assert!(id_map(word).is_err(), "{word}");
        }
    }

    #[test]
    fn variable_is_a_name_alone() {
        assert_eq!(variable("A".into()), Ok("A".into()));
        assert!(variable("A=1".into()).is_err_and(|why| why.ends_with("write A")));
        assert!(variable("".into()).is_err());
    }

    #[test]
    fn assignment_requires_a_name() {
        assert_eq!(assignment("A=b=c".into()), Ok(("A".into(), "b=c".into())));
        assert_eq!(assignment("A=".into()), Ok(("A".into(), "".into())));
        assert!(assignment("A".into()).is_err());
        assert!(assignment("=b".into()).is_err());
    }
}
