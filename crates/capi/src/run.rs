//! Functions that run a command or a prepared command.

use crate::boundary::to_status;
use crate::child::{ChildHandle, raw};
use crate::command::{self, Settable};
use crate::error::{Error, Failure, bad};
use crate::handle::{self, Handle, NULL, give, out, shared};
use forkless::{Child, Prepared};
use libc::{c_char, c_int, size_t};
use std::io;

/// The handle of a child, or the error.
pub(crate) fn child(child: io::Result<Child>) -> Result<*mut ChildHandle, Failure> {
    Ok(out(Handle::new(Some(child?))))
}

/// Defines functions that run something: the handle, how to get its content, the result, and the work.
macro_rules! runs {
    ($(fn $name:ident($by:ident: $kind:ty) -> $made:ty, $reach:path, $one:ident => $work:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($by: *mut $kind, result: *mut $made, error: *mut Error) -> c_int {
            // SAFETY: the handle is null or live; `result` and `error` are null or writable (forkless.h).
            unsafe { to_status(error, || $reach($by, |$one| give(result, || $work))) }
        }
    )* };
}

/// As [`handle::with`], for handles that threads share.
///
/// # Safety
/// As for [`handle::with`].
unsafe fn with_shared<T, R>(handle: *const T, work: impl FnOnce(&T) -> Result<R, Failure>) -> Result<R, Failure> {
    // SAFETY: the caller's contract.
    work(unsafe { shared(handle) }?)
}

runs! {
    fn forkless_command_spawn(command: Settable) -> *mut ChildHandle, command::run, one => child(one.spawn());
    fn forkless_command_launch(command: Settable) -> *mut ChildHandle, command::run, one => child(one.launch());
    fn forkless_command_status(command: Settable) -> c_int, command::run, one => raw(one.status());
    fn forkless_command_prepare(command: Settable) -> *mut Prepared, command::run, one => Ok(out(one.prepare()?));
    fn forkless_prepared_spawn(prepared: Prepared) -> *mut ChildHandle, with_shared, one => child(one.spawn());
    fn forkless_prepared_launch(prepared: Prepared) -> *mut ChildHandle, with_shared, one => child(one.launch());
    fn forkless_prepared_status(prepared: Prepared) -> c_int, with_shared, one => raw(one.status());
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_prepared_steps(prepared: *const Prepared, text: *mut c_char, size: size_t) -> c_int {
    // SAFETY: `prepared` is null or a live handle; `text` is null or has `size` bytes (forkless.h).
    unsafe {
        to_status(NULL, || {
            let steps: String = shared(prepared)?.steps().iter().flat_map(|step| [step, "\n"]).collect();
            handle::text_out(&steps, text, size)
        })
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_prepared_free(prepared: *mut Prepared) {
    // SAFETY: `prepared` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { handle::free(prepared) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_launch_all(
    prepared: *const *mut Prepared,
    count: size_t,
    children: *mut *mut ChildHandle,
    errors: *mut c_int,
) -> c_int {
    let work = || {
        if count > 0 && (children.is_null() || errors.is_null()) {
            return Err(bad("the pointer to the result is null"));
        }
        // SAFETY: `prepared` is null or has `count` elements (forkless.h).
        let all = unsafe { handle::slice(prepared, count) }?;
        // SAFETY: each element is null or a live handle (forkless.h).
        let all: Result<Vec<_>, _> = all.iter().map(|&one| unsafe { shared(one) }.cloned()).collect();
        let mut launched: c_int = 0;
        for (n, made) in forkless::launch_all(&all?).into_iter().enumerate() {
            let (handle, errno) = match child(made) {
                Ok(handle) => (handle, 0),
                Err(failure) => (std::ptr::null_mut(), -failure.errno()),
            };
            launched = launched.saturating_add((errno == 0) as c_int);
            // SAFETY: both arrays have `count` elements (forkless.h), and are not null (checked above).
            unsafe { (children.add(n).write(handle), errors.add(n).write(errno)) };
        }
        Ok(launched)
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, work) }
}
