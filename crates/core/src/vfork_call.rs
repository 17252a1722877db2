//! Calls a function of the user in a child that shares the caller's memory, while the caller is suspended
//! (`CLONE_VFORK`).
//!
//! The function is not part of this crate: the code that passes it is responsible for what it does. No signal handler
//! of the caller runs in the child, and the function has the caller's signal mask.
//!
//! # Safety
//! As for [`child`](crate::child), and for the function as `vfork(2)` says.

use crate::{signals, sys};
use core::ffi::c_void;

/// The argument of the child's entry.
#[repr(C)]
pub struct Called {
    /// The function, which returns the exit status.
    pub function: unsafe extern "C" fn(*mut c_void) -> i32,
    /// Its argument.
    pub argument: *mut c_void,
    /// The caller's mask, if everything but SIGSYS is blocked and the caller's handlers must still be reset.
    pub mask: Option<u64>,
}

/// Calls the function, and exits with its result.
pub unsafe extern "C-unwind" fn call(called: *mut Called) -> ! {
    // SAFETY: the caller is suspended, so this and the function's argument stay valid; the signal table is the child's
    // own.
    let status = unsafe {
        if let Some(mask) = (*called).mask {
            signals::block_all();
            if signals::reset_handlers(None).is_err() || sys::set_signal_mask(mask).is_err() {
                sys::exit(127);
            }
        }
        ((*called).function)((*called).argument)
    };
    sys::exit(status)
}
