//! The values of `forkless run`'s options: sizes, durations, id maps, signals, numbers, descriptors. What each must be is
//! worked out a second time here, in another way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

// `parse` is the command's, and needs `near` in the root of its crate.
#[allow(dead_code, reason = "the command uses all of it")]
#[path = "../../crates/cli/src/near.rs"]
mod near;
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

fn amount(word: &str) -> Option<u64> {
    if word == "unlimited" {
        return Some(u64::MAX);
    }
    let word = word.to_ascii_uppercase();
    let (number, shift) = [("K", 10), ("M", 20), ("G", 30), ("T", 40)]
        .into_iter()
        .find_map(|(unit, shift)| {
            let number = word.strip_suffix("IB").and_then(|word| word.strip_suffix(unit));
            Some((number.or_else(|| word.strip_suffix(unit))?, shift))
        })
        .unwrap_or((&word, 0));
    let bytes = long_digits(number)?.checked_mul(1 << shift)?;
    u64::try_from(bytes).ok().filter(|&bytes| bytes != u64::MAX)
}

/// A time in nanoseconds, read from its end: units get larger. `Ok(None)` if a number has more than 14 digits on either side of
/// the point; `Err` if it is no time at all.
fn duration(word: &str) -> Result<Option<u128>, ()> {
    let units = [("ms", 1_000_000u128), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];
    let units = [units[0], units[1], units[2], units[3], ("d", 86_400_000_000_000)];
    let is_letter = |c: char| c.is_ascii_alphabetic();
    if !word.ends_with(is_letter) {
        return number(word, 1_000_000_000);
    }
    let (mut rest, mut sum, mut allowed) = (word, Some(0), &units[..]);
    while !rest.is_empty() {
        let before = rest.trim_end_matches(is_letter);
        let place = allowed.iter().position(|(name, _)| *name == &rest[before.len()..]).ok_or(())?;
        rest = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        sum = number(&before[rest.len()..], allowed[place].1)?.zip(sum).map(|(one, sum)| one + sum);
        allowed = &allowed[place + 1..];
    }
    Ok(sum)
}

/// A decimal number of units; the results as for [`duration`].
fn number(text: &str, unit: u128) -> Result<Option<u128>, ()> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !is(whole) || !is(part) {
        return Err(());
    }
    if whole.len() > 14 || part.len() > 14 {
        return Ok(None);
    }
    let part_of_it = digits(part).unwrap_or(0) * unit / 10u128.pow(part.len() as u32);
    Ok(Some(digits(whole).unwrap_or(0) * unit + part_of_it))
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
            assert!(far <= 5 + wanted / 1_000_000_000_000, "{word:?}: {found:?}, not {wanted} ns");
        }
        // Beyond what a duration holds.
        (Err(_), Ok(Some(wanted))) => assert!(wanted > Duration::MAX.as_nanos(), "{word:?}"),
        (Ok(found), Err(())) => panic!("{word:?} is {found:?}"),
    }
    if let Ok(signal) = parse::signal(word) {
        assert!((1..=64).contains(&signal), "{word:?}");
        assert_eq!(parse::signals(word), Ok(parse::SignalChoice::One(signal)));
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
