//! Values of options: durations, sizes, delimiters, limits.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use forkless_jobs::{Halt, HaltOn, HaltWhen, Limit, Timeout};

pub(super) fn bytes(word: &OsStr) -> Vec<u8> {
    word.as_bytes().to_vec()
}

/// `10`, `1.5h`, `1d3.5h16.6m4s`: seconds unless a unit follows.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("not a duration (such as 10, 1.5h or 2m30s): {text:?}");
    let mut seconds = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().map_err(|_| wrong())?;
        let mut signs = rest[end..].chars();
        seconds += number
            * match signs.next() {
                None | Some('s' | 'S') => 1.0,
                Some('m' | 'M') => 60.0,
                Some('h' | 'H') => 3600.0,
                Some('d' | 'D') => 86_400.0,
                Some(_) => return Err(wrong()),
            };
        rest = signs.as_str();
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// `10`, `2k` (thousands) or `2K` (1024), with m, M, g, G, t, T, p and P.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("not a size (such as 1000, 64k or 1M): {text:?}");
    let text = text.trim();
    let end = text.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| wrong())?;
    let unit: f64 = match &text[end..] {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        "p" => 1e15,
        "K" => 1024.0,
        "M" => 1024f64.powi(2),
        "G" => 1024f64.powi(3),
        "T" => 1024f64.powi(4),
        "P" => 1024f64.powi(5),
        _ => return Err(wrong()),
    };
    Ok((number * unit) as u64)
}

/// The size of the blocks of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockSize {
    /// So many bytes.
    Bytes(u64),
    /// So much that each slot gets so many blocks.
    PerSlot(u64),
}

/// A [`size`], or the number of blocks for each slot, with a minus sign.
pub(crate) fn block_size(text: &str) -> Result<BlockSize, String> {
    match text.trim().strip_prefix('-') {
        None => size(text).map(BlockSize::Bytes),
        Some(count) => match size(count) {
            Ok(count) if count > 0 => Ok(BlockSize::PerSlot(count)),
            _ => Err(format!("not a size (such as 64k), or a number of blocks for each slot (such as -2): {text:?}")),
        },
    }
}

/// The number of slots on a machine with so many CPUs; `None` for `0`: as many as possible.
pub(super) fn slots(text: &str, cpus: impl FnOnce() -> usize) -> Result<Option<usize>, String> {
    let wrong = || format!("not a number of jobs (such as 8, +2, -1, 50% or a file with one of these): {text:?}");
    let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
    let text = text.trim();
    let count = if let Some(percent) = text.strip_suffix('%') {
        let percent = amount(percent).ok_or_else(wrong)?;
        (cpus() as f64 * percent / 100.0) as usize
    } else if let Some(more) = text.strip_prefix('+') {
        cpus().saturating_add(number(more)?)
    } else if let Some(fewer) = text.strip_prefix('-') {
        cpus().saturating_sub(number(fewer)?)
    } else {
        match number(text)? {
            0 => return Ok(None),
            count => count,
        }
    };
    Ok(Some(count.max(1)))
}

/// A number of running processes, or a percentage of the CPUs.
pub(super) fn load(text: &str, cpus: impl Fn() -> usize) -> Result<f64, String> {
    let load = match text.strip_suffix('%') {
        Some(percent) => amount(percent).map(|percent| cpus() as f64 * percent / 100.0),
        None => amount(text).map(|load| load.max(0.01)),
    };
    load.ok_or_else(|| format!("--load: not a number or a percentage: {text:?}"))
}

/// A number that is not negative, infinite or `nan`.
fn amount(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite() && number.is_sign_positive())
}

/// `never`, `soon,fail=1`, `now,success=50%`, and GNU parallel's older numbers.
pub(super) fn halt(text: &str) -> Result<Option<Halt>, String> {
    let wrong = |what: &str| format!("{what} (such as never, soon,fail=1 or now,success=10%): {text:?}");
    let one = |when, on| Ok(Some(Halt { when, on, limit: Limit::Count(1) }));
    match text {
        "0" => return Ok(None),
        "1" => return one(HaltWhen::Soon, HaltOn::Fail),
        "2" => return one(HaltWhen::Now, HaltOn::Fail),
        "-1" => return one(HaltWhen::Soon, HaltOn::Success),
        "-2" => return one(HaltWhen::Now, HaltOn::Success),
        _ => {}
    }
    if let Some(percent) = text.strip_suffix('%').and_then(amount) {
        return Ok(Some(Halt { when: HaltWhen::Soon, on: HaltOn::Fail, limit: Limit::Percent(percent) }));
    }
    let (when, why) = text.split_once(',').unwrap_or((text, ""));
    let when = match when {
        "never" => return Ok(None),
        "soon" => HaltWhen::Soon,
        "now" => HaltWhen::Now,
        _ => return Err(wrong("must begin with never, soon or now")),
    };
    let (on, limit) = why.split_once('=').ok_or_else(|| wrong("must go on with fail=, success= or done="))?;
    let on = match on {
        "fail" => HaltOn::Fail,
        "success" => HaltOn::Success,
        "done" => HaltOn::Done,
        _ => return Err(wrong("must go on with fail=, success= or done=")),
    };
    let limit = match limit.strip_suffix('%') {
        Some(percent) => amount(percent).map(Limit::Percent),
        None => limit.parse().ok().map(Limit::Count),
    };
    let limit = limit.ok_or_else(|| wrong("must end with a number or a percentage"))?;
    Ok(Some(Halt { when, on, limit }))
}

/// A duration, or a percentage of the median.
pub(super) fn timeout(text: &str) -> Result<Timeout, String> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = amount(percent).ok_or_else(|| format!("not a duration or a percentage: {text:?}"))?;
            Ok(Timeout::Percent(percent))
        }
        None => duration(text).map(Timeout::After),
    }
}

/// `TERM,200,TERM,100,KILL,25`: signals, and the milliseconds after each.
pub(super) fn termination(text: &str) -> Result<Vec<(i32, Duration)>, String> {
    let mut steps = Vec::new();
    let mut words = text.split(',');
    while let Some(name) = words.next() {
        let signal = signal(name).ok_or_else(|| format!("unknown signal {name:?} in {text:?}"))?;
        let time = words.next().unwrap_or("0");
        let time = time.parse().map_err(|_| format!("not a number of milliseconds: {time:?} in {text:?}"))?;
        steps.push((signal, Duration::from_millis(time)));
    }
    Ok(steps)
}

fn signal(name: &str) -> Option<i32> {
    const NAMES: &[(&str, i32)] = &[
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ABRT", libc::SIGABRT),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("CONT", libc::SIGCONT),
        ("STOP", libc::SIGSTOP),
        ("TSTP", libc::SIGTSTP),
        ("WINCH", libc::SIGWINCH),
    ];
    let name = name.strip_prefix("SIG").unwrap_or(name);
    match name.parse() {
        Ok(number) if (1..=64).contains(&number) => Some(number),
        _ => NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number),
    }
}

/// The bytes of a delimiter: itself, or an escape such as `\n`, `\t`, `\0`, `\x1e` or `\036`.
pub(super) fn delimiter(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let escape = match first {
            b'\\' => after.first().copied(),
            _ => None,
        };
        let (byte, used) = match escape {
            Some(b'n') => (b'\n', 1),
            Some(b't') => (b'\t', 1),
            Some(b'r') => (b'\r', 1),
            Some(b'a') => (7, 1),
            Some(b'b') => (8, 1),
            Some(b'f') => (12, 1),
            Some(b'v') => (11, 1),
            Some(b'\\') => (b'\\', 1),
            Some(b'x') => number(&after[1..], 16, 2).map_or((b'\\', 0), |(byte, used)| (byte, used + 1)),
            Some(b'0'..=b'7') => number(after, 8, 3).unwrap_or((b'\\', 0)),
            _ => (first, 0),
        };
        out.push(byte);
        rest = &rest[used..];
    }
    out
}

/// The bytes of a tag: `\t`, `\n`, `\r`, `\0` and `\101` are escapes. All other backslashes are themselves.
pub(super) fn tag(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let escape = match after.first() {
            Some(b't') if first == b'\\' => Some((b'\t', 1)),
            Some(b'n') if first == b'\\' => Some((b'\n', 1)),
            Some(b'r') if first == b'\\' => Some((b'\r', 1)),
            // One digit or three.
            _ if first == b'\\' => number(after, 8, 3).filter(|(_, used)| *used == 3).or_else(|| number(after, 8, 1)),
            _ => None,
        };
        let (byte, used) = escape.unwrap_or((first, 0));
        out.push(byte);
        rest = &after[used..];
    }
    out
}

/// The number at the start of the text, of at most so many digits, and how many it has.
fn number(text: &[u8], base: u32, most: usize) -> Option<(u8, usize)> {
    let digits = text.iter().take(most).take_while(|byte| char::from(**byte).is_digit(base)).count();
    let value = text[..digits].iter().fold(0, |sum, byte| sum * base + char::from(*byte).to_digit(base).unwrap_or(0));
    (digits > 0).then_some((value as u8, digits))
}

/// How blanks at the ends of input are trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Trim {
    pub(super) left: bool,
    pub(super) right: bool,
}

impl Trim {
    /// Both ends.
    pub(super) const BOTH: Self = Self { left: true, right: true };

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "n" => Ok(Self::default()),
            "l" => Ok(Self { left: true, right: false }),
            "r" => Ok(Self { left: false, right: true }),
            "lr" | "rl" => Ok(Self::BOTH),
            _ => Err("must be one of n, l, r, lr, rl".to_owned()),
        }
    }

    pub(super) fn apply<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        let value = if self.left { value.trim_ascii_start() } else { value };
        if self.right { value.trim_ascii_end() } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_add_their_units() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("1d3.5h16.6m4s"), Ok(Duration::from_secs(100_000)));
        assert!(duration("").is_err());
        assert!(duration("soon").is_err());
        assert!(duration("-1").is_err());
    }

    #[test]
    fn sizes_have_thousands_and_1024s() {
        assert_eq!(size("10"), Ok(10));
        assert_eq!(size("2k"), Ok(2000));
        assert_eq!(size("2K"), Ok(2048));
        assert_eq!(size("1.5M"), Ok(1_572_864));
        assert!(size("1x").is_err());
        assert!(size("").is_err());
    }

    #[test]
    fn a_negative_size_of_blocks_is_their_number_for_each_slot() {
        assert_eq!(block_size("2K"), Ok(BlockSize::Bytes(2048)));
        assert_eq!(block_size("-3"), Ok(BlockSize::PerSlot(3)));
        assert!(block_size("-0").is_err());
        assert!(block_size("--1").is_err());
    }

    #[test]
    fn slots_count_from_the_cpus() {
        assert_eq!(slots("3", || 4), Ok(Some(3)));
        assert_eq!(slots("+3", || 4), Ok(Some(7)));
        assert_eq!(slots("+18446744073709551615", || 4), Ok(Some(usize::MAX)));
        assert_eq!(slots("-3", || 4), Ok(Some(1)));
        assert_eq!(slots("-9", || 4), Ok(Some(1)));
        assert_eq!(slots("50%", || 4), Ok(Some(2)));
        assert_eq!(slots("0", || 4), Ok(None));
        assert!(slots("2.5", || 4).is_err());
    }

    #[test]
    fn halts_name_when_and_why() {
        assert_eq!(halt("never"), Ok(None));
        let expected = Halt { when: HaltWhen::Now, on: HaltOn::Success, limit: Limit::Percent(10.0) };
        assert_eq!(halt("now,success=10%"), Ok(Some(expected)));
        let expected = Halt { when: HaltWhen::Soon, on: HaltOn::Fail, limit: Limit::Count(1) };
        assert_eq!(halt("1"), Ok(Some(expected)));
        for wrong in ["foo", "now", "now,fail", "now,fail=x", "now,lost=1"] {
            assert!(halt(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn delimiters_have_escapes() {
        assert_eq!(delimiter(b","), b",");
        assert_eq!(delimiter(br"\n\n"), b"\n\n");
        assert_eq!(delimiter(br"\0"), b"\0");
        assert_eq!(delimiter(br"\x1ea"), b"\x1ea");
        assert_eq!(delimiter(br"\130"), b"X");
        assert_eq!(delimiter(br"\q"), br"\q");
    }

    #[test]
    fn a_termination_is_signals_and_times() {
        let expected = vec![(libc::SIGINT, Duration::from_millis(200)), (libc::SIGKILL, Duration::ZERO)];
        assert_eq!(termination("INT,200,SIGKILL"), Ok(expected));
        assert!(termination("FOO,1").is_err());
        assert!(termination("TERM,x").is_err());
    }
}
