//! The way into a plan for a child that was made by fork, and how its parent sees that it has left.
//!
//! Such a child has a copy of its parent's memory, so the kernel does not clear a word in it when the child calls exec or
//! ends: that is done where memory is shared alone. What it does then for every process is to release the robust futexes
//! that the process holds: it marks each as left by its owner and wakes who waits for it. So the frame lies in a mapping
//! that both share, and beside it a word that the child owns until it leaves. No descriptor is needed, nothing has to be
//! kept out of other children or of the child's own table, and a hook may close whatever it likes.
//!
//! Source: set_robust_list(2); exit_robust_list() and handle_futex_death() in kernel/futex/core.c, exec_mm_release() in
//! kernel/fork.c.
//!
//! # Safety
//! As for [`child`], except that the child may do to its memory what it likes.

use crate::child;
use crate::frame::Frame;
use crate::planted;
use crate::sys::{self, uapi};
use core::cell::UnsafeCell;
use core::ptr::null;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Release;

/// [`Shared::owner`]: the child has not got so far.
pub const NO_OWNER: u32 = 0;

/// [`Shared::owner`]: the kernel does not keep watch here (user-mode emulation does not know robust futexes).
pub const UNWATCHED: u32 = uapi::FUTEX_TID_MASK;

/// [`Shared::owner`], a bit: the child has left, by exec or exit. The kernel sets it.
pub const OWNER_LEFT: u32 = uapi::FUTEX_OWNER_DIED;

/// What parent and child share.
#[repr(C)]
pub struct Shared {
    /// The run.
    pub frame: Frame,
    /// Held by the child: [`NO_OWNER`], the child's thread id and FUTEX_WAITERS, then [`OWNER_LEFT`]; or [`UNWATCHED`].
    pub owner: AtomicU32,
    /// The parent's word that the child may begin, as [`Frame::go`].
    pub gate: AtomicU32,
    list: UnsafeCell<Robust>,
}

/// struct robust_list_head, and the one entry of its list.
#[repr(C)]
struct Robust {
    first: *const Robust,
    /// From an entry to its futex word.
    offset: isize,
    pending: *const (),
    /// The entry: it leads back to the head.
    entry: *const Robust,
}

/// Length of struct robust_list_head, in bytes.
const HEAD: usize = 24;

/// Takes the word, waits for the gate, and plays the frame's plan.
pub unsafe fn play(shared: *mut Shared) -> ! {
    // SAFETY: the mapping is the child's as much as the parent's, and is never unmapped in the child.
    unsafe {
        watch(shared);
        pass_gate(&(*shared).gate, &(*shared).frame);
        child::play(&raw mut (*shared).frame)
    }
}

unsafe fn watch(shared: *mut Shared) {
    // SAFETY: all of it lies in the mapping; only the child uses the list.
    unsafe {
        let list = (*shared).list.get();
        let entry = &raw const (*list).entry;
        let owner = &raw const (*shared).owner;
        let offset = owner as isize - entry as isize;
        list.write(Robust { first: entry.cast(), offset, pending: null(), entry: list });
        // With FUTEX_WAITERS, or the kernel wakes nobody. By the number that the child has in its own namespace.
        (*owner).store(sys::gettid() as u32 | uapi::FUTEX_WAITERS, Release);
        let answer = sys::syscall(uapi::__NR_set_robust_list, [list as usize, HEAD, 0, 0, 0, 0]);
        if answer.is_err() && !planted!("unwatched-child-not-told") {
            (*owner).store(UNWATCHED, Release);
        }
    }
}

/// A child that is not let in has nothing more to do.
fn pass_gate(gate: &AtomicU32, frame: &Frame) {
    if !planted!("gate-not-awaited") && child::await_word(gate, frame).is_err() {
        sys::exit(127);
    }
}
