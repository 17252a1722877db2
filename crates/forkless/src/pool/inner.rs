//! What launches see of a pool.

use super::generation::Generation;
use super::{PoolOptions, PoolStats};
use crate::launch::Stack;
use crate::launch::surroundings::{Identity, Tasks, shares_files_and_directory};
use forkless_core::frame::Frame;
use forkless_core::sys::{self, errno, uapi};
use std::cell::Cell;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

/// See the module.
pub(crate) struct Inner {
    pub(super) options: PoolOptions,
    /// The process whose pool it is: a forked copy has none.
    pub(super) process: i32,
    /// The thread that started the refiller, which has what the process has.
    pub(super) owner: AtomicI32,
    tasks: Tasks,
    pub(super) generation: RwLock<Option<Generation>>,
    /// The owner has been asked for another generation.
    pub(super) asked: AtomicBool,
    /// Wakes the owner.
    wake: Box<dyn Fn() + Send + Sync>,
    counts: Counts,
}

/// What generations that are gone had, and what is no generation's.
#[derive(Default)]
pub(super) struct Counts {
    pooled: AtomicU64,
    empty: AtomicU64,
    differed: AtomicU64,
    unfit: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) renewals: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) last_errno: AtomicI32,
}

/// A parked child that has been told to go on.
pub(crate) struct Taken {
    pub(crate) pid: i32,
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) stack: Stack,
}

thread_local! {
    /// For this thread: with which generation of which pool its settings were compared last, and when.
    static COMPARED: Cell<Option<(usize, u64, Instant)>> = const { Cell::new(None) };
}

impl Inner {
    pub(super) fn new(options: PoolOptions, wake: Box<dyn Fn() + Send + Sync>) -> Result<Self, i32> {
        Ok(Self {
            options,
            process: sys::getpid(),
            owner: AtomicI32::new(0),
            tasks: Tasks::own()?,
            generation: RwLock::new(None),
            asked: AtomicBool::new(false),
            wake,
            counts: Counts::default(),
        })
    }

    /// Launches a parked child, if there is one that is what a clone of the calling thread would be. `ready` fills the frame.
    ///
    /// An error is that of `pidfd_open(2)`.
    pub(crate) fn take(&self, pidfd: bool, ready: impl FnOnce(&mut Frame)) -> Result<Option<Taken>, i32> {
        let count = |which: &AtomicU64| {
            which.fetch_add(1, Ordering::Relaxed);
        };
        if sys::getpid() != self.process {
            return Ok(None);
        }
        // While the owner is at it nobody waits.
        let Ok(generation) = self.generation.try_read() else {
            count(&self.counts.empty);
            return Ok(None);
        };
        let Some(generation) = &*generation else {
            count(&self.counts.empty);
            self.ask_owner();
            return Ok(None);
        };
        let Some(group) = self.is_like(generation) else {
            count(&self.counts.differed);
            self.ask_owner();
            return Ok(None);
        };
        if pidfd && !generation.opens_pidfds {
            // clone has its own way to make one.
            self.note_unfit();
            return Ok(None);
        }
        let Some(mut waiting) = generation.take() else {
            count(&self.counts.empty);
            if generation.is_alive() {
                generation.find_killed();
                generation.restock();
                generation.ask();
            } else {
                self.ask_owner();
            }
            return Ok(None);
        };
        let pid = waiting.pid;
        let pidfd = match pidfd.then(|| sys::pidfd_open(pid, 0)) {
            Some(Err(error)) => {
                waiting.put_back();
                if !matches!(error, errno::EMFILE | errno::ENFILE | errno::ENOMEM) {
                    // Refused by now.
                    self.note_unfit();
                    return Ok(None);
                }
                return Err(error);
            }
            // SAFETY: a new descriptor, ours.
            Some(Ok(fd)) => Some(unsafe { OwnedFd::from_raw_fd(fd) }),
            None => None,
        };
        ready(waiting.frame());
        let stack = waiting.go(group, self.options.low);
        count(&self.counts.pooled);
        Ok(Some(Taken { pid, pidfd, stack }))
    }

    /// Would a child of the calling thread be like those that are parked? Gives the process group that it would be in.
    fn is_like(&self, generation: &Generation) -> Option<i32> {
        let thread = sys::gettid();
        let mut identity = Identity::NONE;
        identity.read().ok()?;
        if !identity.is_like(&generation.identity) {
            return None;
        }
        if !shares_files_and_directory(thread, self.owner.load(Ordering::Relaxed)).ok()? {
            return None;
        }
        let privileged = identity.may_enter_namespaces() && !self.options.fixed_namespaces;
        if privileged && self.tasks.namespaces(thread).ok()? != generation.namespaces {
            return None;
        }
        let me = (&raw const *self as usize, generation.number);
        let recently = COMPARED
            .get()
            .is_some_and(|(pool, number, when)| (pool, number) == me && when.elapsed() < self.options.recheck);
        if !recently {
            if self.tasks.settings(0, thread).ok()? != generation.settings {
                return None;
            }
            COMPARED.set(Some((me.0, me.1, Instant::now())));
        }
        // SAFETY: a question.
        unsafe { sys::syscall(uapi::__NR_getpgid, [0; 6]) }.ok().map(|group| group as i32)
    }

    /// Has the owner look whether the parked children are still as the process is.
    fn ask_owner(&self) {
        if !self.asked.swap(true, Ordering::Relaxed) {
            (self.wake)();
        }
    }

    /// A plan cannot be played by a parked child.
    pub(crate) fn note_unfit(&self) {
        self.counts.unfit.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn launched(&self) -> u64 {
        self.counts.pooled.load(Ordering::Relaxed)
    }

    /// Keeps what a generation has counted that is about to end.
    pub(super) fn remember(&self, generation: &Generation) {
        let (failures, errno) = generation.failures();
        self.counts.lost.fetch_add(generation.lost.load(Ordering::Relaxed), Ordering::Relaxed);
        self.note_failures(failures.into(), errno);
    }

    pub(super) fn note_failures(&self, failures: u64, errno: i32) {
        self.counts.failures.fetch_add(failures, Ordering::Relaxed);
        if errno != 0 {
            self.counts.last_errno.store(errno, Ordering::Relaxed);
        }
    }

    pub(super) fn note_renewal(&self) {
        self.counts.renewals.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> PoolStats {
        let get = |which: &AtomicU64| which.load(Ordering::Relaxed);
        let counts = &self.counts;
        let mut stats = PoolStats {
            low: self.options.low,
            high: self.options.high,
            pooled: get(&counts.pooled),
            empty: get(&counts.empty),
            differed: get(&counts.differed),
            unfit: get(&counts.unfit),
            lost: get(&counts.lost),
            renewals: get(&counts.renewals),
            failures: get(&counts.failures),
            ..PoolStats::default()
        };
        let mut errno = counts.last_errno.load(Ordering::Relaxed);
        if sys::getpid() == self.process
            && let Ok(generation) = self.generation.read()
            && let Some(generation) = &*generation
        {
            let (failures, last) = generation.failures();
            stats.failures += u64::from(failures);
            stats.lost += get(&generation.lost);
            stats.parked = generation.parked();
            stats.refiller = generation.is_alive().then_some(generation.pid as u32);
            errno = if last == 0 { errno } else { last };
        }
        stats.last_errno = (errno != 0).then_some(errno);
        stats
    }
}
