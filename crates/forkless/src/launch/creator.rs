//! The thread that clones the child.
//!
//! For the kernel a child's parent is the *thread* that cloned it. Nearly always that is the calling thread, at no
//! cost. In two cases it is a thread that is made for this one launch:
//!
//! - A parent-death signal is sent when the thread that cloned ends, even if the process lives on. So a caller that is not
//!   the process's first thread starts one, which clones and then sleeps until its child has ended.
//! - A child in an existing PID namespace must be cloned by a thread that has joined it.
//!
//! The kernel copies everything that a child inherits from the calling thread to that thread, and from there to the child:
//! copy_process() in kernel/fork.c. It is a thread of libc's, so set*id functions reach it.
//!
//! Source: forget_original_parent() in kernel/exit.c; pidns_install() in kernel/pid_namespace.c.

use crate::identity::filters;
use crate::kernel::{self, LIBCS};
use crate::plan::Creator;
use crate::process;
use forkless_core::signals::ALL_BUT_SIGSYS;
use forkless_core::sys::{self, errno, uapi};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// Why a child could not be cloned by another thread.
#[derive(Debug)]
pub(crate) enum CreatorError {
    /// No thread could be started.
    Thread(io::Error),
    /// There are [`MOST`] of them.
    TooMany,
    /// `setns(2)` failed.
    Join(i32),
}

impl Creator {
    /// Runs `work` on the creator's thread. `is_first_thread`: the calling thread is the process's first.
    pub(crate) fn run<T: Send>(
        &self,
        is_first_thread: bool,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, CreatorError> {
        match self {
            Self::Caller => Ok(work()),
            Self::Process if is_first_thread => Ok(work()),
            Self::Process => on_thread_of_its_own(work),
            Self::Member(namespace) => in_namespace(namespace, work),
        }
    }

    /// Whether the thread that clones blocks the host's signals, whatever the caller's mask is.
    pub(crate) fn has_blocked_signals(&self, is_first_thread: bool) -> bool {
        match self {
            Self::Caller => false,
            Self::Process => !is_first_thread,
            Self::Member(_) => true,
        }
    }
}

/// Calls `start`, which starts a thread. The thread inherits a mask that blocks the host's signals. If it is the
/// process's second thread, the filters of the first one are noted.
pub(crate) fn starting_thread<T>(start: impl FnOnce() -> T) -> T {
    filters::note_filters();
    without_signals(start)
}

/// Calls `start` with the host's signals blocked: the kernel delivers none of them to this thread meanwhile.
pub(super) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // Restored below.
    let blocked = ALL_BUT_SIGSYS & !LIBCS;
    let mask = sys::set_signal_mask(blocked);
    let answer = start();
    if let Ok(mask) = mask {
        let _ = sys::set_signal_mask(mask);
    }
    answer
}

fn in_namespace<T: Send>(namespace: &OwnedFd, work: impl FnOnce() -> T + Send) -> Result<T, CreatorError> {
    let joined = || {
        // This changes only the calling thread, which ends after this launch.
        kernel::join_pid_namespace(namespace.as_raw_fd()).map_err(CreatorError::Join).map(|()| work())
    };
    thread::scope(|scope| {
        let thread = starting_thread(|| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, joined));
        let ended = thread.map_err(CreatorError::Thread)?.join();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The stack size of these threads in bytes: enough for a launch.
const STACK: usize = 256 * 1024;

/// Runs `work`, which clones, on a new thread. The thread ends when its child has ended. A panic of `work` continues in the
/// caller.
fn on_thread_of_its_own<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, CreatorError> {
    let counted = Counted::take()?;
    let (sender, answer) = sync_channel(1);
    let body = move || {
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        drop(sender);
        outlive_children();
        drop(counted);
    };
    let builder = thread::Builder::new().name("forkless-parent".into()).stack_size(STACK);
    // SAFETY: the closure may outlive this function, but nothing that it borrows: `work` has been consumed, and its answer
    // moved out of the thread, when `recv` below returns. Without an answer `recv` returns when the sender has been dropped,
    // which comes after `work` too.
    starting_thread(|| unsafe { builder.spawn_unchecked(body) }).map_err(CreatorError::Thread)?;
    match answer.recv() {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => Err(CreatorError::Thread(io::Error::from_raw_os_error(errno::ESRCH))),
    }
}

/// The most threads that wait for their children at one time. Each takes a stack, of which the kernel backs some pages.
pub(super) const MOST: u32 = 1024;

/// Upper half: the [process](process::generation), because a forked copy has none of its threads. Lower half: their number.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// One of [`THREADS`].
struct Counted {
    process: u32,
}

impl Counted {
    fn take() -> Result<Self, CreatorError> {
        let process = process::generation();
        let next = |word: u64| {
            let count = if word >> 32 == u64::from(process) { word as u32 } else { 0 };
            (count < MOST).then(|| u64::from(process) << 32 | u64::from(count + 1))
        };
        match THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(Self { process }),
            Err(_) => Err(CreatorError::TooMany),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A copy that this thread has forked counts only threads of its own.
        if self.process == process::generation() {
            THREADS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// How long to sleep while a child is stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// Returns when no child of the calling thread lives. The kernel sends them their parent-death signals when this thread
/// ends. There may be several: those that a helper process has cloned for this process are children of the thread that has
/// cloned the helper.
///
/// Source: `forget_original_parent` in kernel/exit.c; `wait_consider_child` there: without WEXITED a child that has ended
/// does not count, whether or not it was reaped.
pub(crate) fn outlive_children() {
    // Only children of this thread. Nothing is reaped, and no report is taken from other code that waits.
    let options = uapi::WSTOPPED | uapi::WNOWAIT | uapi::__WNOTHREAD | uapi::__WALL;
    let mut report = sys::SignalInfo::EMPTY;
    loop {
        match sys::waitid(uapi::P_ALL, 0, &mut report, options, None) {
            Err(errno::ECHILD) => return,
            Err(errno::EINTR) => {}
            // A child is stopped, or the call is refused.
            Ok(()) | Err(_) => thread::sleep(STOPPED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_does_so_in_its_caller() {
        let panic = catch_unwind(|| on_thread_of_its_own::<()>(|| panic!("on purpose"))).expect_err("a panic");
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        assert_eq!(on_thread_of_its_own(|| 7).expect("a thread"), 7);
    }

    /// Also the count of another process is not this one's.
    #[test]
    fn threads_are_counted() {
        let count = || THREADS.load(Ordering::Relaxed) as u32;
        let one = Counted::take().expect("room");
        assert!(count() >= 1);
        let of_another = Counted { process: one.process.wrapping_add(1) };
        let before = count();
        drop(of_another);
        assert_eq!(count(), before);
        drop(one);
    }
}
