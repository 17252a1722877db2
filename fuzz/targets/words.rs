//! The values of `forkless run`'s options: sizes, durations, id maps, signals, numbers, descriptors. What each must be is
//! worked out a second time here, in another way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

#[allow(dead_code, reason = "the command uses all of it")]
#[path = "../../crates/cli/src/run/parse.rs"]
mod parse;

/// A number of digits alone; none if it is too large for 38 of them.
fn digits(text: &str) -> Option<u128> {
    let is = !text.is_empty() && text.len() <= 38 && text.bytes().all(|byte| byte.is_ascii_digit());
    is.then(|| text.bytes().fold(0, |sum, byte| sum * 10 + u128::from(byte - b'0')))
}

/// Digits that may begin with as many zeroes as they like.
fn long_digits(text: &str) -> Option<u128> {
    let trimmed = text.trim_start_matches('0');
    if trimmed.is_empty() && !text.is_empty() { Some(0) } else { digits(trimmed) }
}

fn unit<'a, T: Copy>(word: &'a str, units: &[(&str, T)], none: T) -> (&'a str, T) {
    // The longest that fits.
    let fits = units.iter().filter(|(name, _)| word.ends_with(name)).max_by_key(|(name, _)| name.len());
    fits.map_or((word, none), |(name, value)| (&word[..word.len() - name.len()], *value))
}

fn amount(word: &str) -> Option<u64> {
    if word == "unlimited" {
        return Some(u64::MAX);
    }
    let (number, size) = unit(word, &[("K", 1u128 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)], 1);
    let bytes = long_digits(number)?.checked_mul(size)?;
    u64::try_from(bytes).ok().filter(|&bytes| bytes != u64::MAX)
}

/// In nanoseconds, if it is a time of fewer than 15 digits on either side of the point; `Err` if it is none at all.
fn duration(word: &str) -> Result<Option<u128>, ()> {
    let units = [("ms", 1_000_000u128), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];
    let units = [units[0], units[1], units[2], units[3], ("d", 86_400_000_000_000)];
    let (number, nanoseconds) = unit(word, &units, 1_000_000_000);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !is(whole) || !is(part) {
        return Err(());
    }
    if whole.len() > 14 || part.len() > 14 {
        return Ok(None);
    }
    let part_of_it = digits(part).unwrap_or(0) * nanoseconds / 10u128.pow(part.len() as u32);
    Ok(Some(digits(whole).unwrap_or(0) * nanoseconds + part_of_it))
}

fn id_map(word: &str) -> Option<[u32; 3]> {
    let parts: Vec<u32> =
        word.split(':').map(|part| long_digits(part).and_then(|n| u32::try_from(n).ok())).collect::<Option<_>>()?;
    <[u32; 3]>::try_from(parts).ok().filter(|parts| parts[2] > 0)
}

fn check(word: &str) {
    assert_eq!(parse::amount(word).ok(), amount(word), "{word:?}");
    assert_eq!(parse::id_map(word).ok(), id_map(word), "{word:?}");
    match (parse::duration(word), duration(word)) {
        (Err(_), Err(())) | (_, Ok(None)) => {}
        (Ok(found), Ok(Some(wanted))) => {
            // It goes by a floating-point number.
            let far = found.as_nanos().abs_diff(wanted);
            assert!(far <= 1 + wanted / 1_000_000_000_000, "{word:?}: {found:?}, not {wanted} ns");
        }
        // Beyond what a duration holds.
        (Err(_), Ok(Some(wanted))) => assert!(wanted > Duration::MAX.as_nanos(), "{word:?}"),
        (Ok(found), Err(())) => panic!("{word:?} is {found:?}"),
    }
    if let Ok(signal) = parse::signal(word) {
        assert!((1..=64).contains(&signal), "{word:?}");
        assert_eq!(parse::signals(word), Ok(parse::Signals::One(signal)));
    }
    for most in [0o777, 0o7777] {
        let plain = !word.is_empty() && word.bytes().all(|byte| (b'0'..b'8').contains(&byte));
        let wanted = u64::from_str_radix(word.trim_start_matches('0'), 8).unwrap_or(if word.contains(|c| c != '0') {
            u64::MAX
        } else {
            0
        });
        let wanted = (plain && wanted <= u64::from(most)).then_some(wanted as u32);
        assert_eq!(parse::octal(word, most).ok(), wanted, "{word:?}");
    }
    if let Ok(number) = parse::number(word) {
        // Written in the plain way it is the same.
        assert_eq!(parse::number(&format!("{number}")), Ok(number), "{word:?}");
        assert_eq!(parse::number(&format!("{number:#x}")), Ok(number), "{word:?}");
        assert_eq!(parse::number32(word).ok(), u32::try_from(number).ok(), "{word:?}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let word = OsStr::from_bytes(bytes).to_owned();
    if let Ok(text) = std::str::from_utf8(bytes) {
        check(text);
    }
    if let Ok((name, value)) = parse::assignment(word.clone()) {
        assert_eq!([name.as_bytes(), b"=", value.as_bytes()].concat(), bytes);
    }
    if let Ok(number) = parse::fd_number(&word) {
        assert!(number >= 0 && !bytes.is_empty());
    }
    let _ = (parse::input(word.clone()), parse::output(word.clone()), parse::open_request(word.clone()));
    if let Ok(request) = parse::fd_request(word) {
        assert!(request.number >= 0);
    }
});
