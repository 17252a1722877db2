//! Entry of a child that was created by fork, and how its caller learns that it has left.
//!
//! Such a child has a copy of its caller's memory, so the kernel clears no futex word when it calls exec or exits. But the
//! kernel releases [`robust`] futexes. So the frame lies in a mapping that both processes share, next to a futex word that
//! is in the child's robust list until it leaves. This needs no descriptor, which would have to be kept out of other
//! children and of the program, and which a hook might close.
//!
//! # Safety
//! As for [`child`], except that the child may do anything to its own memory.

use crate::child;
use crate::frame::Frame;
use crate::robust::{self, Robust};
use crate::sync::AtomicU32;
use crate::sys::{self, uapi};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Release;

/// [`ForkFrame::owner`]: the child has not taken the word yet.
pub const NO_OWNER: u32 = 0;

/// [`ForkFrame::owner`]: the kernel does not support robust futexes (user-mode emulation).
pub const UNWATCHED: u32 = uapi::FUTEX_TID_MASK;

/// [`ForkFrame::owner`], a bit: the child has left, by exec or exit. The kernel sets it.
pub const OWNER_LEFT: u32 = uapi::FUTEX_OWNER_DIED;

/// The mapping that caller and child share.
#[repr(C)]
pub struct ForkFrame {
    /// The run.
    pub frame: Frame,
    /// The futex word that the child holds: [`NO_OWNER`], then the child's thread ID with FUTEX_WAITERS, then
    /// [`OWNER_LEFT`]; or [`UNWATCHED`].
    pub owner: AtomicU32,
    /// Set by the caller when the child may begin, as [`Frame::go`].
    pub gate: AtomicU32,
    list: UnsafeCell<Robust>,
}

/// Takes the word, waits for the gate, and plays the frame's plan.
pub unsafe fn play(shared: *mut ForkFrame) -> ! {
    // SAFETY: the mapping is shared, and is never unmapped in the child.
    unsafe {
        watch(shared);
        pass_gate(&(*shared).gate, &(*shared).frame);
        child::play(&raw mut (*shared).frame)
    }
}

unsafe fn watch(shared: *mut ForkFrame) {
    // SAFETY: all of it lies in the mapping; only the child uses the list.
    unsafe {
        (*shared).owner.store(robust::held(), Release);
        let answer = robust::watch((*shared).list.get(), &(*shared).owner);
        if answer.is_err() {
            (*shared).owner.store(UNWATCHED, Release);
        }
    }
}

/// Waits at the gate; exits if the caller has failed.
fn pass_gate(gate: &AtomicU32, frame: &Frame) {
    if child::await_word(gate, frame).is_err() {
        sys::exit(127);
    }
}
