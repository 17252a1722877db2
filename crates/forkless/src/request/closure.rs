//! Closures of the caller that run in a forked child before exec.

use forkless_core::frame::Frame;
use forkless_core::sys::errno;
use std::cell::UnsafeCell;
use std::io;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Work = dyn FnMut() -> io::Result<()> + Send + Sync;

/// A closure that runs in the child before exec. Only a forked child calls it, and it has its own copy.
pub(crate) struct Closure(UnsafeCell<Box<Work>>);

// SAFETY: the closure is Sync, and is changed only by a forked child, in its own memory and by its only thread.
unsafe impl Sync for Closure {}

// As std's types are: a panic of a closure leaves incomplete changes only in the child.
impl UnwindSafe for Closure {}
impl RefUnwindSafe for Closure {}

impl Closure {
    pub(crate) fn new(work: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(UnsafeCell::new(Box::new(work)))
    }
}

/// In place of an errno: a closure has panicked.
pub(crate) const PANICKED: i32 = i32::MAX;

/// Calls the closures in the child. `data`: the plan's list of closures.
///
/// A panic ends here: the child has a copy of the caller's stack, and must not unwind into it.
pub(crate) unsafe extern "C" fn call_all(frame: *const Frame, data: *const ()) -> i32 {
    // SAFETY: the child passes its frame and `hook_data`, the plan's closures. No other code changes them in this copy.
    let (frame, closures) = unsafe { (&*frame, &*data.cast::<Vec<Arc<Closure>>>()) };
    for (n, closure) in (0..).zip(closures) {
        frame.detail.store(n, Ordering::Relaxed);
        // SAFETY: the child's own copy, and its only thread.
        let work = unsafe { &mut *closure.0.get() };
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            // As std does for an error without an errno.
            Ok(Err(error)) => return error.raw_os_error().filter(|&number| number > 0).unwrap_or(errno::EINVAL),
            Err(panic) => {
                // Its destructor could panic too.
                std::mem::forget(panic);
                return PANICKED;
            }
        }
    }
    0
}
