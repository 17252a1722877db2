//! Closures of the caller that run in a forked child before exec.

use forkless_core::frame::Frame;
use forkless_core::sys::errno;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

type Work = dyn FnMut() -> io::Result<()> + Send + Sync;

/// A closure that runs before exec: in a forked child, which has its own copy, or in the caller, by `Command::exec`. Copies of a
/// command share it.
pub(crate) struct Closure(Mutex<Box<Work>>);

impl Closure {
    pub(crate) fn new(work: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Mutex::new(Box::new(work)))
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
        // Another thread calls it, or did so when this child was forked; or it has called `exec` itself.
        let Ok(mut work) = closure.0.try_lock() else { return errno::EBUSY };
        match catch_unwind(AssertUnwindSafe(&mut *work)) {
            Ok(Ok(())) => {}
            // As std does for an error without an errno.
            Ok(Err(error)) => return error.raw_os_error().filter(|&number| number > 0).unwrap_or(errno::EINVAL),
            Err(panic) => {
                // Its destructor could panic too. What the closure has left incomplete stays locked.
                std::mem::forget((panic, work));
                return PANICKED;
            }
        }
    }
    0
}
