//! What comes over the border: handles, texts, lists, numbers.

use crate::error::{Error, Failure, bad};
use forkless_core::planted;
use libc::{c_char, c_int, size_t};
use std::ffi::{CStr, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// For functions that say no more than a number.
pub(crate) const NULL: *mut Error = null_mut();

/// A handle that one thread uses at a time.
pub(crate) type Handle<T> = Mutex<T>;

/// Works with what a handle holds. A second thread at the same time is told EBUSY.
///
/// # Safety
/// `handle` is null or one that this library has given out and not freed.
pub(crate) unsafe fn with<T, R>(
    handle: *const Handle<T>,
    work: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: the caller's.
    let handle = unsafe { shared(handle) }?;
    match handle.try_lock() {
        Ok(mut inside) => work(&mut inside),
        Err(TryLockError::WouldBlock) if planted!("c-busy-handle-waits") => {
            work(&mut *handle.lock().map_err(|_| Failure::Panic)?)
        }
        Err(TryLockError::WouldBlock) => Err(Failure::Refused(libc::EBUSY, "another thread is using this handle")),
        Err(TryLockError::Poisoned(_)) => Err(Failure::Panic),
    }
}

/// What any number of threads use at a time.
///
/// # Safety
/// `handle` is null or good for as long as the reference is used.
pub(crate) unsafe fn shared<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's.
    unsafe { handle.as_ref() }.ok_or(bad("a null pointer"))
}

/// Writes an output, which is made only if it can be written.
///
/// # Safety
/// `place` is null or may be written to.
pub(crate) unsafe fn give<T>(place: *mut T, make: impl FnOnce() -> Result<T, Failure>) -> Result<c_int, Failure> {
    if place.is_null() && !planted!("c-null-place-written-to") {
        return Err(bad("no place for the result"));
    }
    let made = make()?;
    // SAFETY: the caller's.
    unsafe { place.write(made) };
    Ok(0)
}

/// The handle that C is given of this.
pub(crate) fn out<T>(inside: T) -> *mut T {
    Box::into_raw(Box::new(inside))
}

/// Takes a handle back; a null pointer is nothing.
///
/// # Safety
/// As for [`with`]; it is not used afterwards.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: made by `out`, and nobody else's.
        crate::boundary::quietly(|| drop(unsafe { Box::from_raw(handle) }));
    }
}

/// A text of the caller's, in whatever encoding.
///
/// # Safety
/// `text` is null or ends in NUL, and stays as it is while it is used.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a OsStr, Failure> {
    // SAFETY: the caller's.
    unsafe { optional(text) }.ok_or(bad("a null pointer in place of a text"))
}

/// The same, where a null pointer means none.
///
/// # Safety
/// As for [`text`].
pub unsafe fn optional<'a>(text: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: not null, and the caller's.
    (!text.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// A text for a function that takes UTF-8.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn utf8<'a>(chars: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller's.
    unsafe { text(chars) }?.to_str().ok_or(Failure::Refused(libc::EILSEQ, "not UTF-8"))
}

/// A list of texts that ends in a null pointer.
///
/// # Safety
/// `list` is null or such a list, and stays as it is while it is used.
pub unsafe fn list<'a>(list: *const *const c_char) -> Result<Vec<&'a OsStr>, Failure> {
    if list.is_null() {
        return Err(bad("a null pointer in place of a list"));
    }
    // SAFETY: the caller's: up to the null pointer there are texts.
    let texts = (0..).map_while(|n| unsafe { optional(*list.add(n)) });
    Ok(texts.collect())
}

/// `count` things of the caller's.
///
/// # Safety
/// `first` is null or the first of them.
pub(crate) unsafe fn slice<'a, T>(first: *const T, count: size_t) -> Result<&'a [T], Failure> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(bad("a null pointer in place of an array")),
        (false, count) if count > isize::MAX as usize / size_of::<T>().max(1) => Err(bad("an array beyond memory")),
        // SAFETY: the caller's.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// A close-on-exec copy of a descriptor of the caller's.
pub(crate) fn copy(fd: c_int) -> Result<OwnedFd, Failure> {
    if fd < 0 {
        return Err(Failure::Refused(libc::EBADF, "no descriptor"));
    }
    if planted!("c-copy-without-close-on-exec") {
        // SAFETY: a number; what is made is ours.
        return Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(libc::dup(fd)) });
    }
    // SAFETY: it is copied at once, and a number that is not open is an error of the copying.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?)
}

/// The number of a descriptor in the child.
pub(crate) fn number(number: c_int) -> Result<c_int, Failure> {
    if number < 0 { Err(Failure::Refused(libc::EBADF, "a descriptor's number below 0")) } else { Ok(number) }
}

pub(crate) fn signal(signal: c_int) -> Result<c_int, Failure> {
    if (1..=64).contains(&signal) { Ok(signal) } else { Err(bad("no such signal")) }
}

/// Milliseconds; none if negative.
pub(crate) fn limit(ms: i64) -> Option<Duration> {
    if planted!("c-no-limit-is-no-time") {
        return Some(Duration::from_millis(ms.max(0) as u64));
    }
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The same, where none is none to speak of.
pub(crate) fn duration(ms: i64) -> Duration {
    limit(ms).unwrap_or(Duration::MAX)
}

/// As much of a text as there is room for, with a NUL, cut between characters.
pub(crate) fn put_text(text: &str, room: &mut [c_char]) {
    let mut end = text.len().min(room.len().saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_bytes(&text.as_bytes()[..end], room);
}

/// The same of bytes, which may be cut anywhere.
fn put_bytes(bytes: &[u8], room: &mut [c_char]) {
    let spare = if planted!("c-bytes-without-their-end") { 0 } else { 1 };
    let Some(most) = room.len().checked_sub(spare) else { return };
    for (place, byte) in room.iter_mut().zip(bytes.iter().take(most).chain([&0])) {
        *place = *byte as c_char;
    }
}

/// A text as `snprintf(3)` gives it: the answer is its whole length.
///
/// # Safety
/// `room` is null or `size` bytes may be written there.
pub(crate) unsafe fn text_out(text: &str, room: *mut c_char, size: size_t) -> Result<c_int, Failure> {
    // SAFETY: the caller's.
    unsafe { put_out(text.len(), room, size, |room| put_text(text, room)) }
}

/// The same of a path.
///
/// # Safety
/// As there.
pub(crate) unsafe fn path_out(path: &Path, room: *mut c_char, size: size_t) -> Result<c_int, Failure> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: the caller's.
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
        // SAFETY: the caller's.
        put(unsafe { std::slice::from_raw_parts_mut(room, size) });
    } else if size > 0 {
        return Err(bad("no room for the text"));
    }
    c_int::try_from(length).map_err(|_| Failure::Refused(libc::EOVERFLOW, "a text too long"))
}
