//! Entry of a child that was created by fork, and how its parent learns that it has left.
//!
//! Such a child has a copy of its parent's memory. When it calls exec or exits, the kernel does not clear a futex word:
//! it clears the word of CLONE_CHILD_CLEARTID only if another process uses the same address space. But for every
//! process the kernel releases the robust futexes that it holds: it marks each as left by its owner, and wakes a
//! waiter. So the frame lies in a mapping that both processes share, next to a futex word that the child holds until it
//! leaves. This needs no descriptor. Nothing has to be kept out of other children or out of the child's own table, and
//! a hook may close any descriptor.
//!
//! Source: set_robust_list(2); exit_robust_list() and handle_futex_death() in kernel/futex/core.c, exec_mm_release() in
//! kernel/fork.c.
//!
//! # Safety
//! As for [`child`], except that the child may do anything to its own memory.

use crate::child;
use crate::frame::Frame;
use crate::planted;
use crate::sys::{self, uapi};
use core::cell::UnsafeCell;
use core::ptr::null;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Release;

/// [`Shared::owner`]: the child has not taken the word yet.
pub const NO_OWNER: u32 = 0;

/// [`Shared::owner`]: the kernel does not support robust futexes (user-mode emulation).
pub const UNWATCHED: u32 = uapi::FUTEX_TID_MASK;

/// [`Shared::owner`], a bit: the child has left, by exec or exit. The kernel sets it.
pub const OWNER_LEFT: u32 = uapi::FUTEX_OWNER_DIED;

/// The mapping that parent and child share.
#[repr(C)]
pub struct Shared {
    /// The run.
    pub frame: Frame,
    /// The futex word that the child holds: [`NO_OWNER`], then the child's thread ID with FUTEX_WAITERS, then
    /// [`OWNER_LEFT`]; or [`UNWATCHED`].
    pub owner: AtomicU32,
    /// Set by the parent when the child may begin, as [`Frame::go`].
    pub gate: AtomicU32,
    list: UnsafeCell<Robust>,
}

/// struct robust_list_head, and the only entry of its list.
#[repr(C)]
struct Robust {
    first: *const Robust,
    /// The offset from an entry to its futex word.
    offset: isize,
    pending: *const (),
    /// The entry, which points back to the head.
    entry: *const Robust,
}

/// Length of struct robust_list_head, in bytes.
const HEAD: usize = 24;

/// Takes the word, waits for the gate, and plays the frame's plan.
pub unsafe fn play(shared: *mut Shared) -> ! {
    // SAFETY: the mapping is shared, and is never unmapped in the child.
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
        // Without FUTEX_WAITERS the kernel would wake no waiter. The thread ID is that in the child's own PID
        // namespace.
        (*owner).store(sys::gettid() as u32 | uapi::FUTEX_WAITERS, Release);
        let answer = sys::syscall(uapi::__NR_set_robust_list, [list as usize, HEAD, 0, 0, 0, 0]);
        if answer.is_err() && !planted!("unwatched-child-not-told") {
            (*owner).store(UNWATCHED, Release);
        }
    }
}

/// Waits at the gate; exits if the parent has failed.
fn pass_gate(gate: &AtomicU32, frame: &Frame) {
    if !planted!("gate-not-awaited") && child::await_word(gate, frame).is_err() {
        sys::exit(127);
    }
}
