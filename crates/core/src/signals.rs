//! Signal dispositions and the mask that the program starts with.
//!
//! `CLONE_CLEAR_SIGHAND` gives the child a signal table of its own in which no handler is left, so no code of the
//! parent's can run in it. *Ignored* signals stay ignored over clone and exec, so what is to be at its default is
//! reset one by one; normally that is SIGPIPE alone, which the Rust runtime ignores.
//!
//! # Safety
//! As for [`child`](crate::child); the signal table is the child's own.

use crate::frame::Frame;
use crate::plan::Op;
use crate::sys::{self, Result, uapi};

/// Gives every signal in `set` (bit n-1 is signal n) its default action.
pub unsafe fn set_default(set: u64) -> Result<()> {
    // SAFETY: the module's contract.
    unsafe { set_all(set, 0) }
}

/// Ignores every signal in `set`.
pub unsafe fn set_ignored(set: u64) -> Result<()> {
    // SAFETY: the module's contract.
    unsafe { set_all(set, 1) }
}

/// Sets the action of each signal in `set` to `handler`, which is SIG_DFL (0) or SIG_IGN (1).
unsafe fn set_all(set: u64, handler: usize) -> Result<()> {
    let mut rest = set;
    while rest != 0 {
        let signal = rest.trailing_zeros() + 1;
        rest &= rest - 1;
        // SAFETY: SIG_DFL and SIG_IGN are not addresses.
        unsafe { sys::set_signal_action(signal, &action(handler)) }?;
    }
    Ok(())
}

fn action(handler: usize) -> uapi::kernel_sigaction {
    // SAFETY: all zeroes is SIG_DFL without flags; the handler is an optional function pointer of word size, for which
    // the kernel reads 0 as SIG_DFL and 1 as SIG_IGN.
    unsafe {
        let mut action: uapi::kernel_sigaction = core::mem::zeroed();
        (&raw mut action.sa_handler_kernel).cast::<usize>().write(handler);
        action
    }
}

/// Plays [`OpCode::SigMask`](crate::plan::OpCode::SigMask).
pub unsafe fn set_mask(frame: &Frame, op: &Op) -> Result<()> {
    let mask = match (op.a, frame.has_caller_mask) {
        (0, _) => op.set,
        // The caller's own mask came with the clone, unless that was made with everything blocked.
        (_, 0) if op.set == 0 => return Ok(()),
        // SAFETY: the child's own mask.
        (_, 0) => return unsafe { sys::block_signals(op.set) },
        (_, _) => frame.caller_mask | op.set,
    };
    // SAFETY: the child's own mask.
    unsafe { sys::set_signal_mask(mask) }.map(drop)
}

/// What `CLONE_CLEAR_SIGHAND` would have done: no handler is left. Every signal is blocked while this runs.
pub fn reset_handlers() -> Result<()> {
    for signal in 1..=64 {
        let Ok(old) = sys::signal_action(signal) else { continue };
        // SAFETY: an optional function pointer read as the word it is.
        let handler = unsafe { (&raw const old.sa_handler_kernel).cast::<usize>().read() };
        if handler > 1 {
            // SAFETY: SIG_DFL is not an address; the table is the child's own, as no CLONE_SIGHAND was asked for.
            unsafe { sys::set_signal_action(signal, &action(0)) }?;
        }
    }
    Ok(())
}
