//! A robust futex: the kernel marks a word when the child leaves its memory, and wakes a waiter.
//!
//! The kernel clears a child's futex word (`CLONE_CHILD_CLEARTID`) only if another process still uses the same address
//! space. That is not so for a child with its own memory, or a child that outlives the process that cloned it. Such a
//! child puts a word into its *robust list* instead: the futexes that a thread holds. The kernel marks them when the
//! thread executes a program or ends.
//!
//! Source: set_robust_list(2); exit_robust_list() and handle_futex_death() in kernel/futex/core.c, exec_mm_release() in
//! kernel/fork.c.
//!
//! # Safety
//! As for [`child`](crate::child).

use crate::sync::AtomicU32;
use crate::sys::{self, Result, uapi};
use core::ptr::null;

/// `struct robust_list_head`, and the one entry of its list.
#[repr(C)]
pub struct Robust {
    first: *const Robust,
    /// From an entry to its futex word.
    offset: isize,
    pending: *const (),
    /// The entry: it leads back to the head.
    entry: *const Robust,
}

/// Length of `struct robust_list_head`, in bytes.
const HEAD: usize = 3 * size_of::<usize>();

/// The word's value while the child holds it: the thread ID in the child's PID namespace, with FUTEX_WAITERS, because
/// the kernel would wake no waiter otherwise.
pub fn held() -> u32 {
    sys::gettid() as u32 | uapi::FUTEX_WAITERS
}

/// Makes `word` the only entry of the calling thread's robust list, which lies in `list`. The word must be [`held`].
///
/// # Errors
/// Those of `set_robust_list(2)`. Then the kernel will not mark the word.
pub unsafe fn watch(list: *mut Robust, word: &AtomicU32) -> Result<()> {
    // SAFETY: only the child uses the list, which lies beside its frame and is there until it has left.
    unsafe {
        let entry = &raw const (*list).entry;
        let offset = word.as_ptr() as isize - entry as isize;
        list.write(Robust { first: entry.cast(), offset, pending: null(), entry: list });
        sys::syscall(uapi::__NR_set_robust_list, [list as usize, HEAD, 0, 0, 0, 0]).map(drop)
    }
}
