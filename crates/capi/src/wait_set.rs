//! The functions of wait sets.

use crate::boundary::to_status;
use crate::child::{ChildHandle, raw};
use crate::error::{Error, Failure, bad};
use crate::handle::{self, Handle, NULL, free, give, limit, out};
use forkless::{Ended, Key, WaitSet};
use libc::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

type SetHandle = Handle<WaitSet<Value>>;

/// A pointer of the caller, which is never dereferenced.
struct Value(*mut c_void);

// SAFETY: the pointer is only returned to the caller.
unsafe impl Send for Value {}

/// `forkless_ended`.
#[repr(C)]
pub(crate) struct CEnded {
    child: *mut ChildHandle,
    value: *mut c_void,
    status: c_int,
    error: c_int,
}

impl CEnded {
    fn of(ended: Ended<Value>) -> Self {
        let (status, error) = match raw(ended.status) {
            Ok(status) => (status, 0),
            Err(failure) => (0, -failure.errno()),
        };
        Self { child: out(Handle::new(Some(ended.child))), value: ended.value.0, status, error }
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_waitset_new(set: *mut *mut SetHandle) -> c_int {
    // SAFETY: `set` is null or writable (forkless.h).
    unsafe { to_status(NULL, || give(set, || Ok(out(Handle::new(WaitSet::new()?))))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_waitset_free(set: *mut SetHandle) {
    // SAFETY: `set` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { free(set) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_waitset_insert(
    set: *mut SetHandle,
    child: *mut ChildHandle,
    value: *mut c_void,
    key: *mut u64,
    error: *mut Error,
) -> c_int {
    let insert = |set: &mut WaitSet<Value>| {
        // SAFETY: `child` is null or a live handle (forkless.h).
        let inserted = unsafe {
            handle::with(child, |place| {
                let taken = place.take().ok_or(bad("the child is in a wait set"))?;
                set.insert(taken, Value(value)).map_err(|mut not| {
                    let why = std::mem::replace(&mut not.error, std::io::Error::from_raw_os_error(0));
                    *place = Some(not.into_inner().0);
                    why.into()
                })
            })
        }?;
        // SAFETY: `child` is a live handle, now empty, that the caller does not use any more (forkless.h).
        unsafe { free(child) };
        if !key.is_null() {
            // SAFETY: not null, so writable (forkless.h).
            unsafe { key.write(inserted.to_bits()) };
        }
        Ok(0)
    };
    // SAFETY: `set` is null or a live handle; `error` is null or writable (forkless.h).
    unsafe { to_status(error, || handle::with(set, insert)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_waitset_remove(set: *mut SetHandle, key: u64, child: *mut *mut ChildHandle) -> c_int {
    let remove = |set: &mut WaitSet<Value>| {
        let taken = set.remove(Key::from_bits(key)).ok_or(NOT_THERE)?;
        Ok(out(Handle::new(Some(taken.0))))
    };
    // SAFETY: `set` is null or a live handle; `child` is null or writable (forkless.h).
    unsafe { to_status(NULL, || handle::with(set, |set| give(child, || remove(set)))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_waitset_signal(set: *mut SetHandle, key: u64, number: c_int) -> c_int {
    let signal = |set: &mut WaitSet<Value>| {
        let (child, _) = set.get(Key::from_bits(key)).ok_or(NOT_THERE)?;
        Ok(child.signal(number).map(|()| 0)?)
    };
    // SAFETY: `set` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || handle::with(set, signal)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_waitset_wait(
    set: *mut SetHandle,
    timeout_ms: i64,
    ended: *mut CEnded,
    error: *mut Error,
) -> c_int {
    let wait = |set: &mut WaitSet<Value>| {
        if ended.is_null() {
            return Err(bad("the pointer to the result is null"));
        }
        let found = match limit(timeout_ms) {
            Some(limit) => set.wait_timeout(limit)?,
            None => set.wait()?,
        };
        let Some(found) = found else { return Ok(0) };
        // SAFETY: not null, so writable (forkless.h).
        unsafe { ended.write(CEnded::of(found)) };
        Ok(1)
    };
    // SAFETY: `set` is null or a live handle; `error` is null or writable (forkless.h).
    unsafe { to_status(error, || handle::with(set, wait)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_waitset_count(set: *mut SetHandle) -> c_int {
    // SAFETY: `set` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || handle::with(set, |set| Ok(set.len() as c_int))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_waitset_fd(set: *mut SetHandle) -> c_int {
    // SAFETY: `set` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || handle::with(set, |set| Ok(set.as_fd().as_raw_fd()))) }
}

const NOT_THERE: Failure = Failure::Refused(libc::ENOENT, "no such child in the set");
