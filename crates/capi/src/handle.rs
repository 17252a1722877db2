//! Conversion of parameters: handles, strings, lists, numbers.

use crate::error::{Error, Failure, bad, put_bytes, put_text};
use libc::{c_char, c_int, size_t};
use std::ffi::{CStr, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// For functions without an error parameter.
pub(crate) const NULL: *mut Error = null_mut();

/// A handle that one thread uses at a time.
pub(crate) type Handle<T> = Mutex<T>;

/// Locks a handle and works with its content. A second thread gets EBUSY.
///
/// # Safety
/// `handle` is null, or was returned by this library and has not been freed.
pub(crate) unsafe fn with<T, R>(
    handle: *const Handle<T>,
    work: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: the caller's contract.
    let handle = unsafe { shared(handle) }?;
    match handle.try_lock() {
        Ok(mut inside) => work(&mut inside),
        Err(TryLockError::WouldBlock) => Err(Failure::Refused(libc::EBUSY, "another thread is using this handle")),
        Err(TryLockError::Poisoned(_)) => Err(Failure::Panic),
    }
}

/// Dereferences a handle that any number of threads may use at the same time, or another required pointer.
///
/// # Safety
/// `handle` is null, or valid for as long as the reference is used.
pub(crate) unsafe fn shared<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle.as_ref() }.ok_or(bad("a handle or a required pointer is null"))
}

/// Writes an output parameter. The value is only made if it can be written.
///
/// # Safety
/// `place` is null or a valid pointer.
pub(crate) unsafe fn give<T>(place: *mut T, make: impl FnOnce() -> Result<T, Failure>) -> Result<c_int, Failure> {
    if place.is_null() {
        return Err(bad("the pointer to the result is null"));
    }
    let made = make()?;
    // SAFETY: the caller's contract.
    unsafe { place.write(made) };
    Ok(0)
}

/// Allocates a handle.
pub(crate) fn out<T>(inside: T) -> *mut T {
    Box::into_raw(Box::new(inside))
}

/// Frees a handle; does nothing with a null pointer.
///
/// # Safety
/// As for [`with`]; the handle is not used afterwards.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: allocated by `out`, and owned by this call.
        crate::boundary::quietly(|| drop(unsafe { Box::from_raw(handle) }));
    }
}

/// A string of the caller, in any encoding.
///
/// # Safety
/// `text` is null or ends in NUL, and does not change while it is used.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a OsStr, Failure> {
    // SAFETY: the caller's contract.
    unsafe { optional(text) }.ok_or(bad("a string is a null pointer"))
}

/// The same, but a null pointer means none.
///
/// # Safety
/// As for [`text`].
pub unsafe fn optional<'a>(text: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: not null, and the caller's contract.
    (!text.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// A string that must be UTF-8.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn utf8<'a>(chars: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller's contract.
    unsafe { text(chars) }?.to_str().ok_or(Failure::Refused(libc::EILSEQ, "a string is not UTF-8"))
}

/// A list of strings that ends in a null pointer.
///
/// # Safety
/// `list` is null or such a list, and does not change while it is used.
pub unsafe fn list<'a>(list: *const *const c_char) -> Result<Vec<&'a OsStr>, Failure> {
    if list.is_null() {
        return Err(bad("a list is a null pointer"));
    }
    // SAFETY: the caller's contract: all entries before the null pointer are strings.
    let texts = (0..).map_while(|n| unsafe { optional(*list.add(n)) });
    Ok(texts.collect())
}

/// The size limit of an array, in bytes: Linux gives a process at most 2^56 bytes of addresses. A copy has a header or a NUL
/// in addition, so a size near `isize::MAX` would make it panic.
const LARGEST: usize = if usize::BITS == 64 { 1 << 56 } else { 1 << 30 };

/// An array of the caller with `count` elements.
///
/// # Safety
/// `first` is null or points to the first of them.
pub(crate) unsafe fn slice<'a, T>(first: *const T, count: size_t) -> Result<&'a [T], Failure> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(bad("an array is a null pointer")),
        (false, count) if count > LARGEST / size_of::<T>().max(1) => {
            Err(bad("the array is larger than the address space"))
        }
        // SAFETY: the caller's contract.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// A close-on-exec duplicate of a descriptor of the caller.
pub(crate) fn copy(fd: c_int) -> Result<OwnedFd, Failure> {
    if fd < 0 {
        return Err(Failure::Refused(libc::EBADF, "negative file descriptor"));
    }
    // SAFETY: the descriptor is only borrowed for the duplication, which fails if it is closed.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?)
}

/// Checks the number of a descriptor in the child.
pub(crate) fn number(number: c_int) -> Result<c_int, Failure> {
    if number < 0 { Err(Failure::Refused(libc::EBADF, "negative file descriptor")) } else { Ok(number) }
}

pub(crate) fn signal(signal: c_int) -> Result<c_int, Failure> {
    if (1..=64).contains(&signal) { Ok(signal) } else { Err(bad("no such signal")) }
}

/// Converts milliseconds; none if negative.
pub(crate) fn limit(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The same as a duration, which is endless if the number is negative.
pub(crate) fn duration(ms: i64) -> Duration {
    limit(ms).unwrap_or(Duration::MAX)
}

/// Returns a string as `snprintf(3)` does: the result is its full length.
///
/// # Safety
/// `room` is null, or `size` bytes may be written there.
pub(crate) unsafe fn text_out(text: &str, room: *mut c_char, size: size_t) -> Result<c_int, Failure> {
    // SAFETY: the caller's contract.
    unsafe { put_out(text.len(), room, size, |room| put_text(text, room)) }
}

/// The same with a path.
///
/// # Safety
/// As for [`text_out`].
pub(crate) unsafe fn path_out(path: &Path, room: *mut c_char, size: size_t) -> Result<c_int, Failure> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: the caller's contract.
    unsafe { put_out(bytes.len(), room, size, |room| put_bytes(bytes, room)) }
}

/// # Safety
/// As for [`text_out`].
unsafe fn put_out(
    length: usize,
    room: *mut c_char,
    size: size_t,
    put: impl FnOnce(&mut [c_char]),
) -> Result<c_int, Failure> {
    if !room.is_null() && size > 0 {
        // No longer than the string needs: a caller may pass a `size` that is larger than its buffer.
        // SAFETY: the caller's contract.
        put(unsafe { std::slice::from_raw_parts_mut(room, size.min(length + 1)) });
    } else if size > 0 {
        return Err(bad("the buffer is a null pointer"));
    }
    c_int::try_from(length).map_err(|_| Failure::Refused(libc::EOVERFLOW, "the string is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_the_address_space_are_no_undefined_behaviour() {
        let mut room = [1; 8];
        // SAFETY: more is not written than the string has.
        let length = unsafe { text_out("exec", room.as_mut_ptr(), usize::MAX) };
        assert_eq!((length.expect("a length"), room[3], room[4]), (4, b'c' as c_char, 0));
        let byte = 0u8;
        for count in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 16] {
            // SAFETY: refused before any byte is read.
            assert!(unsafe { slice(&raw const byte, count) }.is_err(), "{count}");
        }
    }
}
