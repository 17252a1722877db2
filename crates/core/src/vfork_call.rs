//! A function of the caller's own in a child that shares the caller's memory, while the caller stands still (`CLONE_VFORK`).
//!
//! The function is not of this crate, so the rules of this crate do not bind it: whoever passes it answers for what it does. (The
//! other code from outside runs in children with memory of their own: the hook of [`OpCode::PreExec`](crate::plan::OpCode::PreExec), and a
//! zygote's functions.) No handler of the caller's runs in the child. The function has the caller's signal mask.
//!
//! # Safety
//! As for [`child`](crate::child), and for the function as `vfork(2)` says.

use crate::{signals, sys};
use core::ffi::c_void;

/// What the child is given.
#[repr(C)]
pub struct Called {
    /// The function; what it returns is the exit status.
    pub function: unsafe extern "C" fn(*mut c_void) -> i32,
    /// Its argument.
    pub argument: *mut c_void,
    /// The caller's mask, where everything but SIGSYS is blocked and the caller's handlers are still to be put away.
    pub mask: Option<u64>,
}

/// Calls it, and ends the child with what it returned.
pub unsafe extern "C-unwind" fn call(called: *mut Called) -> ! {
    // SAFETY: the caller stands still, so this and the function's argument stay; the tables of signals are the child's own.
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
