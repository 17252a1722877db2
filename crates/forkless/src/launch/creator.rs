//! The thread that clones the child.
//!
//! For the kernel a child's parent is the *thread* that cloned it. Nearly always that is the calling thread, at no
//! cost. In two cases it must be another thread:
//!
//! - A parent-death signal is sent when the thread that cloned ends, even if the process lives on. So a *keeper*
//!   clones: a thread that is started when first needed and never ends. The child inherits from it. So it must have
//!   the ids, capabilities, filters, namespaces and so on of the calling thread ([`Inherited`]); if none has, the calling
//!   thread starts another one. Nearly always there is one for the whole process.
//! - A child in an existing PID namespace must be cloned by a thread that has joined it. A thread is started for that
//!   one launch.
//!
//! Source: forget_original_parent() in kernel/exit.c; pidns_install() in kernel/pid_namespace.c.

use crate::identity::namespaces::{Namespaces, Tasks};
use crate::identity::{Identity, Place, filters, place};
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
use std::thread::{self, ThreadId};

/// Why a child could not be cloned by another thread.
#[derive(Debug)]
pub(crate) enum CreatorError {
    /// No thread could be started.
    Thread(io::Error),
    /// `setns(2)` failed.
    Join(i32),
    /// The calling thread does not share the process's file-descriptor table.
    OwnTable,
    /// What the calling thread gives its children could not be read.
    Unknown(io::Error),
    /// The calling thread differs from all keepers in this, and there are [`MOST`] of them.
    Differs(&'static str),
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

/// Calls `start`, which starts a thread. The thread inherits a mask that blocks the host's signals. If it is the
/// process's second thread, the filters of the first one are noted.
pub(crate) fn starting_thread<T>(start: impl FnOnce() -> T) -> T {
    filters::look();
    without_signals(start)
}

/// Calls `start` with the host's signals blocked: the kernel delivers none of them to this thread meanwhile.
pub(super) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
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
        let thread = starting_thread(|| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, joined));
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

/// A thread that clones for other threads.
struct Keeper {
    /// The [process](process::generation) that started the thread: a forked copy does not have it.
    process: u32,
    /// The thread that started it.
    starter: ThreadId,
    /// Its own thread ID.
    thread: i32,
    jobs: Sender<Job>,
    /// The one that was started before.
    next: *const Keeper,
}

/// The keeper that was started last. None is ever freed, because another thread may be using it, and because the kernel
/// would send the children their signals if it ended.
static KEEPERS: AtomicPtr<Keeper> = AtomicPtr::new(null_mut());

/// The most keepers of one process. Each thread with restrictions of its own may need one.
const MOST: usize = 8;

/// This process's keepers, from `first` on.
fn keepers<'a>(first: *const Keeper) -> impl Iterator<Item = &'a Keeper> {
    let me = process::generation();
    // SAFETY: never freed once they are published.
    let all = std::iter::successors(unsafe { first.as_ref() }, |keeper| unsafe { keeper.next.as_ref() });
    // Those that a forked copy does not have were started before its own.
    all.take_while(move |keeper| keeper.process == me || planted!("keeper-of-the-original"))
}

/// Starts a keeper, unless another thread has added one to `known` meanwhile. It has all that the calling thread gives
/// its children.
fn add_keeper(known: *mut Keeper) -> Result<(), CreatorError> {
    // The keeper keeps the file-descriptor table of the thread that starts it, so that must be the process's
    // table. A first thread that has ended has no memory and no table to compare.
    let first = sys::getpid();
    if is_the_same(KCMP_VM, first) && !shares_table(first) {
        return Err(CreatorError::OwnTable);
    }
    let new = Keeper { next: known, ..start(process::generation()).map_err(CreatorError::Thread)? };
    let new = Box::into_raw(Box::new(new));
    if KEEPERS.compare_exchange(known, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // Another thread has published its keeper first. Dropping the sender ends the thread that was just started.
        // SAFETY: made above, and published nowhere.
        drop(unsafe { Box::from_raw(new) });
    }
    Ok(())
}

/// What a child inherits from the thread that clones it, and what a thread can have for itself alone, but for
/// scheduling. A domain of Landlock is not among it: no thread can see whether another one of its process is in one.
struct Inherited {
    identity: Identity,
    directory: Option<Place>,
    umask: Option<u32>,
    /// If the thread can have other ones than its process.
    namespaces: Option<Namespaces>,
}

impl Inherited {
    /// The calling thread's, which has its filters from `thread`.
    fn of_caller(thread: ThreadId) -> io::Result<Self> {
        let tasks = Tasks::of(sys::getpid()).map_err(io::Error::from_raw_os_error)?;
        let identity = Identity::of_thread(&tasks, thread)?;
        let (umask, _) = identity.status().umask_and_ignored();
        let enters = identity.status().enters_namespaces();
        let namespaces = enters.then(|| tasks.namespaces(sys::gettid())).transpose();
        let namespaces = namespaces.map_err(io::Error::from_raw_os_error)?;
        Ok(Self { identity, directory: place("."), umask, namespaces })
    }

    /// The first difference, as errors name it. `shares`: the threads have working directory and umask in common, so
    /// what differs was changed between the two readings.
    fn difference(&self, other: &Self, shares: bool) -> Option<&'static str> {
        if planted!("keeper-not-compared") {
            return None;
        }
        let own = [
            (!shares && self.directory != other.directory, "working directory"),
            (!shares && self.umask != other.umask, "umask"),
            (self.namespaces != other.namespaces, "namespaces"),
        ];
        let found = own.into_iter().find(|(differs, _)| *differs).map(|(_, words)| words);
        self.identity.difference(&other.identity).or(found)
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
    starting_thread(|| builder.spawn(keep))?;
    let thread = told.recv().map_err(|_| gone())?;
    Ok(Keeper { process, starter: thread::current().id(), thread, jobs, next: null_mut() })
}

pub(super) const KCMP_VM: usize = 1;
const KCMP_FILES: usize = 2;
const KCMP_FS: usize = 3;

/// `kcmp(2)`: whether the calling thread shares `what` with another thread, of this process or another. `None` if the
/// call is refused.
pub(crate) fn shares(what: usize, thread: i32) -> Option<bool> {
    kernel::shares(what, thread).ok()
}

/// The same; true if it cannot be determined.
fn is_the_same(what: usize, thread: i32) -> bool {
    shares(what, thread).unwrap_or(true) || planted!("every-thread-taken-for-the-caller")
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

/// How often the keepers are compared before another one is started: while another thread changes what the threads have
/// in common, as by setuid(2), two readings may differ.
const LOOKS: usize = 5;

/// Runs `work` on a keeper that has all that the calling thread gives its children.
fn on_keeper<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, CreatorError> {
    let caller_id = sys::gettid();
    let mut work = Some(work);
    loop {
        let known = KEEPERS.load(Ordering::Acquire);
        let mut difference = None;
        let looks = if known.is_null() { 0 } else { LOOKS };
        for _ in 0..looks {
            let caller = Inherited::of_caller(thread::current().id()).map_err(CreatorError::Unknown)?;
            for keeper in keepers(known) {
                if !shares_table(keeper.thread) && !planted!("keepers-table-not-compared") {
                    return Err(CreatorError::OwnTable);
                }
                let (work, starter) = (&mut work, keeper.starter);
                let compared = keeper.run(|| {
                    let found = Inherited::of_caller(starter)?;
                    let shares_fs = shares(KCMP_FS, caller_id) == Some(true);
                    Ok(match caller.difference(&found, shares_fs) {
                        None => Ok(work.take().map(|work| work())),
                        Some(difference) => Err(difference),
                    })
                })?;
                match compared.map_err(CreatorError::Unknown)? {
                    Ok(answer) => return answer.ok_or_else(|| CreatorError::Thread(gone())),
                    Err(found) => difference = Some(found),
                }
            }
        }
        match difference {
            Some(difference) if keepers(known).count() >= MOST => return Err(CreatorError::Differs(difference)),
            _ => add_keeper(known)?,
        }
    }
}

impl Keeper {
    /// Runs `work` on this thread. A panic of `work` continues in the caller, and the keeper lives on.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, CreatorError> {
        let (mut work, mut answer) = (Some(work), None);
        let mut job = || answer = work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
        let (done, wait) = sync_channel(1);
        let erased: *mut (dyn FnMut() + Send + '_) = &raw mut job;
        // SAFETY: only the lifetime changes. The keeper uses it until it sends the word that is waited for below, and
        // drops the sender, which ends the wait too, only after that.
        let work = unsafe {
            std::mem::transmute::<*mut (dyn FnMut() + Send + '_), *mut (dyn FnMut() + Send + 'static)>(erased)
        };
        let gone = || CreatorError::Thread(gone());
        self.jobs.send(Job { work, done }).map_err(|_| gone())?;
        wait.recv().map_err(|_| gone())?;
        match answer.ok_or_else(gone)? {
            Ok(answer) => Ok(answer),
            Err(panic) => resume_unwind(panic),
        }
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
