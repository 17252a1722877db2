//! The thread that clones the child.
//!
//! For the kernel a child's parent is the *thread* that cloned it. Nearly always that is the calling thread, at no
//! cost. In two cases it must be another thread:
//!
//! - A parent-death signal is sent when the thread that cloned ends, even if the process lives on. So the *keeper*
//!   clones: one thread for the whole process, which is started when first needed and never ends.
//! - A child in an existing PID namespace must be cloned by a thread that has joined it. A thread is started for that
//!   one launch.
//!
//! Source: forget_original_parent() in kernel/exit.c; pidns_install() in kernel/pid_namespace.c.

use crate::kernel::{self, LIBCS};
use crate::plan::Creator;
use crate::process;
use forkless_core::planted;
use forkless_core::signals::ALL_BUT_SIGSYS;
use forkless_core::sys::{self, errno};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// Why a child could not be cloned by another thread.
#[derive(Debug)]
pub(crate) enum CreatorError {
    /// No thread could be started.
    Thread(io::Error),
    /// `setns(2)` failed.
    Join(i32),
    /// The calling thread does not share the process's file-descriptor table.
    OwnTable,
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
            Self::Process => on_keeper(work),
            Self::Member(namespace) => in_namespace(namespace, work),
        }
    }

    /// Whether the thread that clones blocks the host's signals, whatever the caller's mask is.
    pub(crate) fn blocks_signals(&self, is_first_thread: bool) -> bool {
        match self {
            Self::Caller => false,
            Self::Process => !is_first_thread,
            Self::Member(_) => true,
        }
    }
}

/// Calls `start` with the host's signals blocked. A thread that it starts inherits the mask, so the kernel delivers
/// none of these signals to it.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // Restored below.
    let blocked = ALL_BUT_SIGSYS & !LIBCS;
    let mask = if planted!("keeper-takes-signals") { Err(0) } else { sys::set_signal_mask(blocked) };
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
        let thread = without_signals(|| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, joined));
        let ended = thread.map_err(CreatorError::Thread)?.join();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The stack size of these threads in bytes: enough for a launch.
const STACK: usize = 256 * 1024;

/// One launch for the keeper.
struct Job {
    work: *mut (dyn FnMut() + Send),
    done: SyncSender<()>,
}

// SAFETY: the sender of a job waits until it is done, and does not touch the work meanwhile.
unsafe impl Send for Job {}

/// The thread that clones for other threads.
struct Keeper {
    /// The [process](process::generation) that started the thread: a forked copy does not have it.
    process: u32,
    /// Its thread ID.
    thread: i32,
    jobs: Sender<Job>,
}

/// Never freed, because another thread may be using it. Each forked process adds at most one.
static KEEPER: AtomicPtr<Keeper> = AtomicPtr::new(null_mut());

fn keeper() -> Result<&'static Keeper, CreatorError> {
    let me = process::generation();
    loop {
        let known = KEEPER.load(Ordering::Acquire);
        let is_ours = |keeper: &&Keeper| keeper.process == me || planted!("keeper-of-the-original");
        // SAFETY: never freed once it is published.
        if let Some(keeper) = unsafe { known.as_ref() }.filter(is_ours) {
            return if shares_table(keeper.thread) || planted!("keepers-table-not-compared") {
                Ok(keeper)
            } else {
                Err(CreatorError::OwnTable)
            };
        }
        // The keeper keeps the file-descriptor table of the thread that starts it, so that must be the process's
        // table. A first thread that has ended has no memory and no table to compare.
        let first = sys::getpid();
        if is_the_same(KCMP_VM, first) && !shares_table(first) {
            return Err(CreatorError::OwnTable);
        }
        let new = Box::into_raw(Box::new(start(me).map_err(CreatorError::Thread)?));
        if KEEPER.compare_exchange(known, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // Another thread has published its keeper first. Dropping the sender ends the thread that was just
            // started.
            // SAFETY: made above, and published nowhere.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

fn start(process: u32) -> io::Result<Keeper> {
    let (jobs, queue) = channel();
    let (tell, told) = sync_channel(1);
    let builder = thread::Builder::new().name("forkless-keeper".into()).stack_size(STACK);
    let keep = move || {
        let _ = tell.send(sys::gettid());
        keep(&queue);
    };
    without_signals(|| builder.spawn(keep))?;
    let thread = told.recv().map_err(|_| gone())?;
    Ok(Keeper { process, thread, jobs })
}

pub(super) const KCMP_VM: usize = 1;
const KCMP_FILES: usize = 2;

/// `kcmp(2)`: whether the calling thread shares `what` with another thread, of this process or another. `None` if the
/// call is refused.
pub(crate) fn shares(what: usize, thread: i32) -> Option<bool> {
    kernel::shares(what, thread).ok()
}

/// The same; true if it cannot be determined.
fn is_the_same(what: usize, thread: i32) -> bool {
    shares(what, thread).unwrap_or(true)
}

/// Whether the calling thread shares its file-descriptor table with another. It must share it with the thread that
/// clones: the child takes its descriptors from that table, and the kernel puts the pidfd into it.
fn shares_table(thread: i32) -> bool {
    is_the_same(KCMP_FILES, thread)
}

/// The error if the keeper has ended, which it never does: then no thread can clone.
fn gone() -> io::Error {
    io::Error::from_raw_os_error(errno::ESRCH)
}

fn keep(queue: &Receiver<Job>) {
    for job in queue {
        // SAFETY: the sender keeps it alive, and does not touch it, until `done` is sent. It does not unwind.
        unsafe { (*job.work)() };
        // The job's sender waits for this on every path.
        let _ = job.done.send(());
    }
}

/// Runs `work` on the keeper. A panic of `work` continues in the caller, and the keeper lives on.
fn on_keeper<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, CreatorError> {
    let keeper = keeper()?;
    let (mut work, mut answer) = (Some(work), None);
    let mut job = || answer = work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
    let (done, wait) = sync_channel(1);
    let erased: *mut (dyn FnMut() + Send + '_) = &raw mut job;
    // SAFETY: only the lifetime changes. The keeper uses it until it sends the word that is waited for below, and
    // drops the sender, which ends the wait too, only after that.
    let work =
        unsafe { std::mem::transmute::<*mut (dyn FnMut() + Send + '_), *mut (dyn FnMut() + Send + 'static)>(erased) };
    let gone = || CreatorError::Thread(gone());
    keeper.jobs.send(Job { work, done }).map_err(|_| gone())?;
    wait.recv().map_err(|_| gone())?;
    match answer.ok_or_else(gone)? {
        Ok(answer) => Ok(answer),
        Err(panic) => resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_does_so_in_its_caller_and_the_keeper_goes_on() {
        let panic = catch_unwind(|| on_keeper::<()>(|| panic!("on purpose"))).expect_err("a panic");
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        assert_eq!(on_keeper(|| 7).expect("a keeper"), 7);
    }
}
