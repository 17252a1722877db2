//! The way into a plan for a child that was made by fork, and how its parent sees that it has left.
//!
//! Such a child has a copy of its parent's memory, so the kernel does not clear a word in it when the child calls exec or
//! ends. So the frame lies in a mapping that both share, and beside it a word that is in the child's [`robust`] list:
//! the child owns it until it leaves. No descriptor is needed, nothing has to be kept out of other children or of the child's own
//! table, and a hook may close whatever it likes.
//!
//! # Safety
//! As for [`child`], except that the child may do to its memory what it likes.

use crate::child;
use crate::frame::Frame;
use crate::planted;
use crate::robust::{self, Robust};
use crate::sys::{self, uapi};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Release;

/// [`ForkFrame::owner`]: the child has not got so far.
pub const NO_OWNER: u32 = 0;

/// [`ForkFrame::owner`]: the kernel does not keep watch here (user-mode emulation does not know robust futexes).
pub const UNWATCHED: u32 = uapi::FUTEX_TID_MASK;

/// [`ForkFrame::owner`], a bit: the child has left, by exec or exit. The kernel sets it.
pub const OWNER_LEFT: u32 = uapi::FUTEX_OWNER_DIED;

/// What parent and child share.
#[repr(C)]
pub struct ForkFrame {
    /// The run.
    pub frame: Frame,
    /// Held by the child: [`NO_OWNER`], the child's thread id and FUTEX_WAITERS, then [`OWNER_LEFT`]; or [`UNWATCHED`].
    pub owner: AtomicU32,
    /// The parent's word that the child may begin, as [`Frame::go`].
    pub gate: AtomicU32,
    list: UnsafeCell<Robust>,
}

/// Takes the word, waits for the gate, and plays the frame's plan.
pub unsafe fn play(shared: *mut ForkFrame) -> ! {
    // SAFETY: the mapping is the child's as much as the parent's, and is never unmapped in the child.
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
        if answer.is_err() && !planted!("unwatched-child-not-told") {
            (*shared).owner.store(UNWATCHED, Release);
        }
    }
}

/// A child that is not let in has nothing more to do.
fn pass_gate(gate: &AtomicU32, frame: &Frame) {
    if !planted!("gate-not-awaited") && child::await_word(gate, frame).is_err() {
        sys::exit(127);
    }
}
