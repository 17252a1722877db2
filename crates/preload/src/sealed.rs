//! What each exported function does first and last: no signal handler runs while the library works, and the thread is not
//! cancelled.
//!
//! libc's functions do the same. A handler would find the [heap](crate::heap) locked by its own thread, could leave the
//! function by `siglongjmp(3)`, and could reap a child whose pid the caller does not have yet.

use forkless::Command;
use forkless_core::signals::blocked_in_caller;
use forkless_core::sys;
use libc::c_int;
use std::alloc::{Layout, alloc, dealloc};

/// The calling thread's signal mask. Bit n-1 is signal n.
pub(crate) struct Mask {
    before: u64,
    after: u64,
}

impl Mask {
    /// Makes the program start with the mask that the caller had.
    pub(crate) fn ready(&self, command: &mut Command) {
        command.inherit_signal_mask(false);
        for signal in (1..=64).filter(|signal| self.before & 1 << (signal - 1) != 0) {
            command.signal_block(signal);
        }
    }

    /// The mask that the caller had.
    pub(crate) fn before(&self) -> u64 {
        self.before
    }

    /// Sets the mask that the caller gets back.
    pub(crate) fn give_back(&mut self, mask: u64) {
        self.after = mask;
    }
}

/// Calls `work` with all signals blocked and cancellation disabled. Under a seccomp filter SIGSYS stays unblocked: the
/// filter may trap calls of the library, which the program's handler answers; the kernel kills a process that blocks SIGSYS.
/// The last call may unwind the thread, if it was cancelled meanwhile and its cancellation is asynchronous. So nothing
/// that needs to be dropped is alive then, nor in the caller.
pub(crate) fn sealed<T: Copy>(work: impl FnOnce(&mut Mask) -> T) -> T {
    /// `PTHREAD_CANCEL_DISABLE` of glibc, which the libc crate leaves out.
    const DISABLE: c_int = 1;
    unsafe extern "C-unwind" {
        safe fn pthread_setcancelstate(state: c_int, old: Option<&mut c_int>) -> c_int;
    }
    let mut cancel = 0;
    pthread_setcancelstate(DISABLE, Some(&mut cancel));
    let blocked = sys::set_signal_mask(blocked_in_caller());
    // Only a filter can refuse the call. Then handlers run as always.
    let before = blocked.or_else(|_| sys::signal_mask()).unwrap_or(0);
    let mut mask = Mask { before, after: before };
    let answer = on_own_stack(|| work(&mut mask));
    let _ = sys::set_signal_mask(mask.after);
    pthread_setcancelstate(cancel, None);
    answer
}

/// Calls `work` on a stack in memory of this library, which needs 12 KiB: libc's functions fit on the stack of a thread with
/// PTHREAD_STACK_MIN or of a signal handler with SIGSTKSZ.
fn on_own_stack<T: Copy>(work: impl FnOnce() -> T) -> T {
    /// With room for much deeper calls in the library. Only pages that are used become memory.
    const SIZE: usize = 192 << 10;
    const LAYOUT: Layout = match Layout::from_size_align(SIZE, 16) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };
    // SAFETY: the size is not 0.
    let stack = unsafe { alloc(LAYOUT) };
    if stack.is_null() {
        return work();
    }
    // A panic must not unwind from one stack to the other: it ends the process, as in any function of the C ABI. What may
    // panic is inside of `shielded`.
    // SAFETY: memory of that size and alignment, used by this call alone.
    let answer = unsafe { psm::on_stack(stack, SIZE, work) };
    // SAFETY: allocated above.
    unsafe { dealloc(stack, LAYOUT) };
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_put_back() {
        let before = sys::signal_mask().expect("a mask");
        let inside = sealed(|mask| (mask.before(), sys::signal_mask()));
        assert_eq!(inside, (before, Ok(!(1 << 8 | 1 << 18))));
        assert_eq!(sys::signal_mask(), Ok(before));
    }
}
