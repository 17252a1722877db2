//! The boundary: what every exported function does before and after its work.

use crate::error::{Error, Failure};
use libc::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the work of a function that returns a number or a negative errno, and writes a failure to `error`.
///
/// # Safety
/// `error` is null or a valid pointer.
pub(crate) unsafe fn to_status(error: *mut Error, work: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let failure = match shielded(work) {
        Ok(number) => return number,
        Err(failure) => failure,
    };
    if !error.is_null() {
        // SAFETY: the caller's contract.
        unsafe { error.write(Error::new(&failure)) };
    }
    -failure.errno()
}

/// Runs the work of a replacement for a libc function: on failure, sets errno and returns `failed`.
pub fn as_libc<T>(failed: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    shielded(work).unwrap_or_else(|failure| {
        set_errno(failure.errno());
        failed
    })
}

/// Runs the work of a function that cannot fail.
pub(crate) fn quietly(work: impl FnOnce()) {
    // A panic in a destructor has been printed; there is no way to report it.
    let _ = shielded(|| {
        work();
        Ok(())
    });
}

/// Catches panics, disables thread cancellation during the work, and preserves errno.
pub fn shielded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    /// `PTHREAD_CANCEL_DISABLE` of glibc and musl, which the libc crate leaves out.
    const DISABLE: c_int = 1;
    unsafe extern "C" {
        safe fn pthread_setcancelstate(state: c_int, old: Option<&mut c_int>) -> c_int;
    }
    let (errno, mut cancel) = (errno(), 0);
    // A cancelled thread is unwound, which is undefined behaviour in Rust frames.
    pthread_setcancelstate(DISABLE, Some(&mut cancel));
    let done = catch_unwind(AssertUnwindSafe(work));
    pthread_setcancelstate(cancel, None);
    set_errno(errno);
    done.unwrap_or(Err(Failure::Panic))
}

/// This thread's errno.
pub fn errno() -> c_int {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_is_an_error_and_errno_is_preserved() {
        let mut error = Error::default();
        set_errno(7);
        // SAFETY: a local variable.
        let answer = unsafe {
            to_status(&mut error, || {
                set_errno(5);
                panic!("on purpose")
            })
        };
        assert_eq!((answer, errno()), (-libc::ENOTRECOVERABLE, 7));
        // SAFETY: the message ends in NUL.
        let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
        assert!(message.to_str().is_ok_and(|text| text.contains("bug in the library")), "{message:?}");
        assert_eq!(as_libc(-1, || panic!("on purpose")), -1);
        assert_eq!(errno(), libc::ENOTRECOVERABLE);
    }
}
