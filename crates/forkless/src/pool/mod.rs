//! Children cloned ahead of their launch.

use crate::child::Child;
use crate::error::Error;
use crate::launch::Form;
use crate::pipes::Defaults;
use crate::prepared::Prepared;
use crate::step::Step;
use forkless_core::park::SEATS;
use std::ffi::OsStr;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

mod generation;

mod inner;

mod owner;

pub(crate) use inner::{Inner, Taken};
use owner::Owner;

/// How a [`Pool`] is kept.
///
/// ```
/// use forkless::PoolOptions;
/// use std::time::Duration;
/// let pool = PoolOptions::new().marks(2, 8).idle(Duration::from_secs(60)).start()?;
/// assert_eq!(pool.stats().high, 8);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PoolOptions {
    low: usize,
    high: usize,
    idle: Option<Duration>,
    recheck: Duration,
    fixed_namespaces: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PoolOptions {
    /// Marks of 4 and 16, 10 seconds of idleness, settings compared every 10 ms.
    pub fn new() -> Self {
        Self {
            low: 4,
            high: 16,
            idle: Some(Duration::from_secs(10)),
            recheck: Duration::from_millis(10),
            fixed_namespaces: false,
        }
    }

    /// New children are made when no more than `low` are left, until there are `high` (at most 128).
    pub fn marks(&mut self, low: usize, high: usize) -> &mut Self {
        (self.low, self.high) = (low, high);
        self
    }

    /// How long nothing must have been launched for the parked children to be ended; the next launch makes new ones. `None`:
    /// they are kept.
    pub fn idle(&mut self, time: impl Into<Option<Duration>>) -> &mut Self {
        self.idle = time.into();
        self
    }

    /// How long a thread's settings may go without being compared with those of the parked children: see [`Pool`]. Zero
    /// compares at each launch, for some 15 µs.
    pub fn recheck(&mut self, time: Duration) -> &mut Self {
        self.recheck = time;
        self
    }

    /// No thread that launches enters another namespace (but for mount namespaces, which are noticed in any case) without
    /// calling [`Pool::refresh`]. Saves a privileged caller, who could, six system calls for each launch; who has no
    /// CAP_SYS_ADMIN saves nothing.
    pub fn fixed_namespaces(&mut self, fixed: bool) -> &mut Self {
        self.fixed_namespaces = fixed;
        self
    }

    /// Starts the pool. Its children are made in the background.
    ///
    /// # Errors
    /// `InvalidInput` if `low` is not below `high`, or `high` above 128; `Unsupported` where a pool cannot be: `clone3(2)`
    /// or `unshare(2)` of CLONE_FS is refused (as by the default filter of container engines), there is no `/proc`, or the
    /// process's children are born in another process-id namespace than its own; else the errors of `clone3` and of a
    /// thread's start. Nothing is left of a pool that did not start.
    pub fn start(&self) -> io::Result<Pool> {
        if self.low >= self.high || self.high > SEATS {
            let what = format!(
                "marks of {} and {}: the low one must be below the high one, and that at most {SEATS}",
                self.low, self.high
            );
            return Err(Error::check(OsStr::new(NAME), what).into());
        }
        Owner::start(self.clone()).map(|owner| Pool { owner })
    }
}

/// What errors call a pool.
const NAME: &str = "a pool";

/// Children that are there before they are needed: a launch tells one of them what to do and wakes it.
///
/// A parked child is a process in the caller's memory, as every child here is before exec, that sleeps. A launch through
/// the pool does what [`Prepared::launch`] does, and gives the same child, without the time that the kernel takes for
/// `clone(2)`. New children are made by another process in the background. That pays where launches are many and steady,
/// and the caller must not be held up; who launches now and then loses a little.
///
/// ```
/// use forkless::{Command, Pool};
/// let pool = Pool::new()?;
/// let prepared = Command::new("true").prepare()?;
/// let mut child = pool.launch(&prepared)?;
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # What the child gets
/// What a child has that is cloned at the time of the launch:
/// - shared until then, and so as they are then: working directory, root, umask, descriptors, memory;
/// - compared at each launch with what the calling thread has: ids, groups, capabilities, securebits, no_new_privs, whether
///   there are seccomp filters, session, namespaces, and whether the thread has a directory or a descriptor table of its own;
///   the process group is joined;
/// - compared if they were not within the last 10 ms ([`PoolOptions::recheck`]), in each thread: ignored signals, resource
///   limits, nice value, scheduling policy, I/O priority, processors, timer slack, personality, bounding and ambient capabilities,
///   the number of filters, control groups.
///
/// Where something differs the child is cloned then and there, as without a pool, and where the whole process has changed
/// the parked children are replaced. So it is where a plan needs what cannot be had of a parked child: namespaces or a
/// control group to be born in, a parent-death signal, `oom_score_adj`, everything inherited. [`Child::route`] and
/// [`Pool::stats`] tell.
///
/// What nobody can ask the kernel for is not compared: Landlock domains, keyrings, security labels. Who changes
/// one of these, or does not want to wait 10 ms, calls [`refresh`](Self::refresh).
///
/// # The caller's process
/// - Parked children, and the process that makes them (`forkless-pool`), are children of the caller that no `waitpid(-1)`
///   sees and that raise no SIGCHLD. They count for RLIMIT_NPROC and `pids.max`. Tools show them with the caller's memory,
///   of which there is one.
/// - Drop the pool, or [`refresh`](Self::refresh) it, after privileges have been dropped: until then, processes that share the
///   memory still have them.
/// - A forked copy of the process has no pool: its launches through this handle clone.
/// - After exec, and when the process ends, they are killed by the kernel. What is left of each after *exec* is an entry in
///   the process table until the process ends: drop the pool before. A set-user-id program is executed without its
///   privileges while processes share the caller's directory (check_unsafe_exec() in fs/exec.c), and record locks
///   (`fcntl(2)`) are lost.
/// - A thread is started that sleeps: a process with a pool cannot enter a user namespace, as none with threads can.
#[derive(Debug)]
pub struct Pool {
    owner: Owner,
}

/// What a pool has done so far: from [`Pool::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// Children parked now.
    pub parked: usize,
    /// No more than this are left when new ones are made.
    pub low: usize,
    /// As many are made.
    pub high: usize,
    /// Launches that woke a parked child.
    pub pooled: u64,
    /// Launches that cloned because no child was parked: too many at once, or new ones could not be made.
    pub empty: u64,
    /// Launches that cloned because the calling thread differed from the parked children.
    pub differed: u64,
    /// Launches that cloned because the plan cannot be played by a parked child.
    pub unfit: u64,
    /// Parked children that somebody has killed.
    pub lost: u64,
    /// How often all parked children were replaced, because the process had changed, or on request.
    pub renewals: u64,
    /// How often no child could be made, and the errno of the last time.
    pub failures: u64,
    /// See `failures`.
    pub last_errno: Option<i32>,
    /// The process that makes the children; none while the pool is idle.
    pub refiller: Option<u32>,
}

impl Pool {
    /// A pool with the default [options](PoolOptions::new).
    ///
    /// # Errors
    /// As [`PoolOptions::start`].
    pub fn new() -> io::Result<Self> {
        PoolOptions::new().start()
    }

    /// As [`Prepared::launch`].
    ///
    /// # Errors
    /// As there.
    pub fn launch(&self, prepared: &Prepared) -> io::Result<Child> {
        let inner = Some(self.owner.inner());
        Child::start_in(inner, prepared.plan(), Form::Launch, Defaults::Inherit, true)
    }

    /// As [`Prepared::spawn`].
    ///
    /// # Errors
    /// As there.
    pub fn spawn(&self, prepared: &Prepared) -> io::Result<Child> {
        let inner = Some(self.owner.inner());
        Child::start_in(inner, prepared.plan(), Form::Spawn, Defaults::Inherit, true)
    }

    /// As [`Prepared::status`].
    ///
    /// # Errors
    /// As there.
    pub fn status(&self, prepared: &Prepared) -> io::Result<ExitStatus> {
        crate::wait::status_in(Some(self.owner.inner()), prepared.plan())
    }

    /// Ends the parked children and starts anew, from what the process is now. Returns when that has been done.
    ///
    /// # Errors
    /// As [`PoolOptions::start`]; launches through the pool clone from then on.
    pub fn refresh(&self) -> io::Result<()> {
        self.owner.refresh()
    }

    /// What the pool has done so far, and has now.
    pub fn stats(&self) -> PoolStats {
        self.owner.inner().stats()
    }
}

fn failed(errno: i32) -> Error {
    Error::new(OsStr::new(NAME), Step::Clone, errno)
}
