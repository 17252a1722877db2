//! The settings in the environment: `FORKLESS`, `FORKLESS_LOG`, `FORKLESS_INHERIT`, `FORKLESS_CHILDREN`.
//!
//! They are read when the library is first used. No lock protects that, because in a forked process another thread's
//! lock would never be released. Two threads that read them at the same time get the same values.

use libc::{c_char, c_int};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The descriptors that a child inherits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Inherit {
    /// All that are not close-on-exec, as with libc.
    All,
    /// The standard streams, these, and the targets of file actions.
    Only(Vec<c_int>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// All calls are left to libc.
    pub(crate) off: bool,
    /// Each launch is reported on standard error.
    pub(crate) log: bool,
    pub(crate) inherit: Inherit,
    /// Programs are started without this library in LD_PRELOAD.
    pub(crate) spares_children: bool,
}

impl Settings {
    /// The settings of this process.
    pub(crate) fn get() -> &'static Self {
        static KNOWN: AtomicPtr<Settings> = AtomicPtr::new(null_mut());
        let known = KNOWN.load(Ordering::Acquire);
        if !known.is_null() {
            // SAFETY: allocated below and never freed.
            return unsafe { &*known };
        }
        let words = [c"FORKLESS", c"FORKLESS_LOG", c"FORKLESS_INHERIT", c"FORKLESS_CHILDREN"].map(variable);
        let (found, complaint) = Self::of(words);
        let found = Box::into_raw(Box::new(found));
        match KNOWN.compare_exchange(null_mut(), found, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                if let Some(complaint) = complaint {
                    say(complaint);
                }
                // SAFETY: allocated above and never freed.
                unsafe { &*found }
            }
            Err(theirs) => {
                // SAFETY: allocated above, and no other thread has seen it; the other one is never freed.
                unsafe {
                    drop(Box::from_raw(found));
                    &*theirs
                }
            }
        }
    }

    /// The settings, and the error in them.
    fn of([off, log, inherit, children]: [Option<&CStr>; 4]) -> (Self, Option<&'static str>) {
        let is_on = |value: Option<&CStr>| value.is_some_and(|value| !matches!(value.to_bytes(), b"" | b"0"));
        let (inherit, complaint) = match inherit.map(CStr::to_bytes) {
            None | Some(b"" | b"all") => (Inherit::All, None),
            Some(list) => match numbers(list) {
                Some(numbers) => (Inherit::Only(numbers), None),
                None => {
                    let complaint =
                        "FORKLESS_INHERIT is neither \"all\" nor a list such as \"stdio\" or \"stdio,5,7\": ignored";
                    (Inherit::All, Some(complaint))
                }
            },
        };
        let is_off = |value: Option<&CStr>| value.is_some_and(|value| value.to_bytes() == b"off");
        let found = Self { off: is_off(off), log: is_on(log), inherit, spares_children: is_off(children) };
        (found, complaint)
    }
}

/// Parses `stdio` and numbers, separated by commas. The standard streams are always included.
fn numbers(list: &[u8]) -> Option<Vec<c_int>> {
    let mut numbers = Vec::new();
    for word in list.split(|&byte| byte == b',') {
        match (word, std::str::from_utf8(word).ok().and_then(|word| word.parse().ok())) {
            (b"stdio", _) | (_, Some(0..=2)) => {}
            (_, Some(number)) if number > 0 => numbers.push(number),
            _ => return None,
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// `LD_PRELOAD` without this library, which is recognized by its file name.
pub(crate) fn without_us(list: &[u8]) -> Vec<u8> {
    const OURS: &[u8] = b"libforkless_preload.so";
    let is_other = |path: &&[u8]| !path.is_empty() && path.rsplit(|&byte| byte == b'/').next() != Some(OURS);
    list.split(|byte| b": ".contains(byte)).filter(is_other).collect::<Vec<_>>().join(&b':')
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends in NUL; the value is read at once, as libc's own functions do.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: not null, so a string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Writes a line with a single write(2); does nothing if standard error is closed.
pub(crate) fn say(line: &str) {
    let line = format!("forkless: {line}\n");
    // SAFETY: if the descriptor is closed, the write fails; nothing else is done with it.
    let stderr = unsafe { BorrowedFd::borrow_raw(2) };
    let _ = forkless::internal::write_quietly(stderr, line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed() {
        let plain = Settings { off: false, log: false, inherit: Inherit::All, spares_children: false };
        assert_eq!(Settings::of([None; 4]), (plain, None));
        let all = Settings::of([c"off", c"1", c"stdio", c"off"].map(Some));
        let expected = Settings { off: true, log: true, inherit: Inherit::Only(vec![]), spares_children: true };
        assert_eq!(all, (expected, None));
        let found = Settings::of([c"on", c"0", c"7,stdio,5,1", c"on"].map(Some)).0;
        assert_eq!(found.inherit, Inherit::Only(vec![5, 7]));
        assert_eq!(without_us(b"/a/libforkless_preload.so"), b"");
        assert_eq!(without_us(b"libx.so:/b/libforkless_preload.so y.so:"), b"libx.so:y.so");
        for wrong in [c"-1", c"3,,4", c"stdout", c"4 5", c"99999999999"] {
            let (found, complaint) = Settings::of([None, None, Some(wrong), None]);
            assert!(found.inherit == Inherit::All && complaint.is_some(), "{wrong:?}");
        }
    }
}
