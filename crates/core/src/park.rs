//! Children cloned ahead: the process that makes them, and what each does until it is launched.
//!
//! A pool's *refiller* is a process in the host's memory, like every child here, that is never launched. It clones the
//! others with `CLONE_PARENT`, so that they are the host's children and not its own. What they inherit is the refiller's and
//! never changes: the host's threads may come and go, change their ids or their limits, and no child is half the one and half
//! the other. Whether that is still what the caller has is found out at the launch, by comparing.
//!
//! What a child *shares* with the host until it is launched is as it is then: descriptors (`CLONE_FILES`) and, other than
//! for children cloned at the launch, directory, root and umask (`CLONE_FS`).
//!
//! # Safety
//! As for [`child`]. The [`Shared`] block outlives the refiller and every parked child. No atomic operation here
//! reads and writes at once: on aarch64 that may be a call of a helper that is not ours (outline atomics).

use crate::child;
use crate::frame::{Frame, GO, GO_AWAY, GO_WAIT, LEFT, RUNNING};
use crate::sys::{self, Result, errno, uapi};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32};

/// The most children that one pool can have parked.
pub const SEATS: usize = 128;

/// [`Seat::state`]: nothing is here.
pub const EMPTY: u32 = 0;
/// [`Seat::state`]: a stack is here, for a child to be cloned on.
pub const WANTED: u32 = 1;
/// [`Seat::state`]: the refiller is cloning.
pub const CLONING: u32 = 2;
/// [`Seat::state`]: a child waits here to be launched.
pub const PARKED: u32 = 3;
/// [`Seat::state`]: somebody who launches has it.
pub const TAKEN: u32 = 4;
/// [`Seat::state`]: a stack is here, for the child that was launched last from here to clone its successor on.
pub const HEIR: u32 = 5;

/// The place of one parked child.
#[repr(C)]
pub struct Seat {
    /// Whose it is now: the host's (`EMPTY`, `TAKEN`, and `PARKED` until it takes it) or the refiller's.
    pub state: AtomicU32,
    /// The frame at the end of the child's stack.
    pub frame: AtomicPtr<Frame>,
    /// With `HEIR`, and `CLONING` after that: the pid of the child that is to clone, or 0.
    pub maker: AtomicI32,
}

/// What host, refiller and parked children tell each other.
#[repr(C)]
pub struct Shared {
    /// Rises when children are to be made; the refiller sleeps on it.
    pub demand: AtomicU32,
    /// 1: the refiller is to end.
    pub end: AtomicU32,
    /// How many could not be. The refiller's own.
    pub failures: AtomicU32,
    /// Why the last one could not.
    pub errno: AtomicI32,
    /// 1: what the refiller is has been written to `identity`.
    pub is_ready: AtomicU32,
    /// The refiller's, and so every parked child's.
    pub identity: UnsafeCell<Identity>,
    /// The host's pid.
    pub host: i32,
    /// The host's thread that is the parent of all that is parked.
    pub owner: i32,
    /// 1: the host is an ordinary process for the scheduler, and parked children are not, until they are launched.
    pub batch: u32,
    /// Lowest address of a stack and its length, from the frame's address downwards.
    pub stack_length: u64,
    /// The places.
    pub seats: [Seat; SEATS],
}

// SAFETY: the identity is written by the refiller before it says that it is ready, and read after that.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// How many supplementary groups are compared; who has more is like nobody.
const GROUPS: usize = 64;

/// Who a thread is, for the kernel: what a few fast system calls tell.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Real, effective and saved user id, then group id.
    ids: [u32; 6],
    groups: [u32; GROUPS],
    group_count: u32,
    /// Effective, permitted, inheritable: low halves, then high ones.
    capabilities: [u32; 6],
    securebits: u32,
    no_new_privs: u32,
    /// Of filters: 0 none, 2 some.
    seccomp: u32,
    session: i32,
}

impl Identity {
    /// Nobody's.
    pub const NONE: Self = Self {
        ids: [0; 6],
        groups: [0; GROUPS],
        group_count: u32::MAX,
        capabilities: [0; 6],
        securebits: 0,
        no_new_privs: 0,
        seccomp: 0,
        session: 0,
    };

    /// Becomes the calling thread's: nine system calls. After an error (one is refused, or there are too many groups) it is nobody's.
    ///
    /// Source: getresuid(2), getgroups(2), capget(2), prctl(2), getsid(2).
    pub fn read(&mut self) -> Result<()> {
        let at = |word: &mut u32| word as *mut u32 as usize;
        self.group_count = u32::MAX;
        let [ruid, euid, suid, rgid, egid, sgid] = &mut self.ids;
        let mut header = [0x2008_0522u32, 0];
        // SAFETY: the kernel writes the words that each call names, all of which live here.
        unsafe {
            sys::syscall(uapi::__NR_getresuid, [at(ruid), at(euid), at(suid), 0, 0, 0])?;
            sys::syscall(uapi::__NR_getresgid, [at(rgid), at(egid), at(sgid), 0, 0, 0])?;
            let sets = self.capabilities.as_mut_ptr() as usize;
            sys::syscall(uapi::__NR_capget, [header.as_mut_ptr() as usize, sets, 0, 0, 0, 0])?;
            self.securebits = prctl(PR_GET_SECUREBITS, 0)? as u32;
            self.no_new_privs = prctl(PR_GET_NO_NEW_PRIVS, 0)? as u32;
            // Built without filters, the kernel knows no such question.
            self.seccomp = prctl(PR_GET_SECCOMP, 0).unwrap_or(0) as u32;
            self.session = sys::syscall(uapi::__NR_getsid, [0; 6])? as i32;
            let groups = self.groups.as_mut_ptr() as usize;
            self.group_count = sys::syscall(uapi::__NR_getgroups, [GROUPS, groups, 0, 0, 0, 0])? as u32;
        }
        Ok(())
    }

    /// Is it somebody's, and the same as another one? The host asks, so this may call what compares memory.
    #[inline]
    pub fn is_like(&self, other: &Self) -> bool {
        let groups = |of: &Self| of.group_count as usize;
        (self.group_count, self.securebits, self.no_new_privs, self.seccomp, self.session)
            == (other.group_count, other.securebits, other.no_new_privs, other.seccomp, other.session)
            && (self.ids, self.capabilities) == (other.ids, other.capabilities)
            && self.groups.get(..groups(self)).is_some_and(|own| Some(own) == other.groups.get(..groups(other)))
    }

    /// May it enter namespaces? Who has no CAP_SYS_ADMIN, and is one of several threads, cannot (`unshare(2)`, `setns(2)`).
    pub fn may_enter_namespaces(&self) -> bool {
        const CAP_SYS_ADMIN: u32 = 21;
        self.capabilities[1] & 1 << CAP_SYS_ADMIN != 0
    }
}

const PR_SET_PDEATHSIG: usize = 1;
const PR_SET_NAME: usize = 15;
const PR_GET_SECCOMP: usize = 21;
const PR_GET_SECUREBITS: usize = 27;
const PR_GET_NO_NEW_PRIVS: usize = 39;

unsafe fn prctl(what: usize, value: usize) -> Result<usize> {
    // SAFETY: the caller answers for what is asked.
    unsafe { sys::syscall(uapi::__NR_prctl, [what, value, 0, 0, 0, 0]) }
}

const SECOND: uapi::__kernel_timespec = uapi::__kernel_timespec { tv_sec: 1, tv_nsec: 0 };

/// How long the refiller sleeps before it looks whether the host is still there. That the host has died is told by a signal;
/// only who may not be sent one, because the host has dropped its privileges, finds out by looking.
const PATIENCE: uapi::__kernel_timespec = uapi::__kernel_timespec { tv_sec: 5, tv_nsec: 0 };

/// The same for a parked child, which the refiller sends away unless that has been killed.
const LONG_PATIENCE: uapi::__kernel_timespec = uapi::__kernel_timespec { tv_sec: 60, tv_nsec: 0 };

/// Ends with the host's thread that is its parent, however that ends: exec, exit, a signal.
unsafe fn end_with_host(shared: &Shared) {
    const SIGKILL: usize = 9;
    // SAFETY: changes this process, which is not the host; asks whether a thread is there.
    unsafe {
        let _ = prctl(PR_SET_PDEATHSIG, SIGKILL);
        // A thread that ended before that sends nothing.
        let args = [shared.host as usize, shared.owner as usize, 0, 0, 0, 0];
        if sys::syscall(uapi::__NR_tgkill, args) == Err(errno::ESRCH) {
            sys::exit(0);
        }
    }
}

/// Entry of the refiller.
pub unsafe extern "C-unwind" fn refill(frame: *mut Frame) -> ! {
    const SCHED_BATCH: usize = 3;
    // SAFETY: the frame and the shared block outlive this process (module contract).
    let shared = unsafe { &*(*frame).pool };
    // SAFETY: changes this process; the name ends in NUL; the kernel reads a priority of 0.
    unsafe {
        end_with_host(shared);
        // Out of the way of signals for the host's group, and of a terminal's, with all that will be parked. They have no
        // groups of their own: a successor would be in that of its maker, which then could not become a session's leader.
        let _ = sys::syscall(uapi::__NR_setpgid, [0; 6]);
        let _ = prctl(PR_SET_NAME, c"forkless-pool".as_ptr() as usize);
        if shared.batch != 0 {
            // Who is woken does not push its waker off the processor.
            let priority = 0i32;
            let args = [0, SCHED_BATCH, &raw const priority as usize, 0, 0, 0];
            let _ = sys::syscall(uapi::__NR_sched_setscheduler, args);
        }
        // One that cannot be read is nobody's, and no child is launched.
        let _ = (*shared.identity.get()).read();
    }
    shared.is_ready.store(1, Release);
    sys::futex_wake_within(&shared.is_ready);
    while shared.end.load(Acquire) == 0 {
        let asked = shared.demand.load(Acquire);
        let mut failed = false;
        for seat in &shared.seats {
            if seat.state.load(Acquire) == WANTED && shared.end.load(Relaxed) == 0 {
                // SAFETY: the seat is the refiller's while it is wanted.
                failed = unsafe { fill(shared, seat) }.is_err();
                if failed {
                    break;
                }
            }
        }
        // The limit that was met may be over in a while, without anybody asking.
        let patience = if failed { &SECOND } else { &PATIENCE };
        if shared.demand.load(Acquire) == asked
            && sys::futex_wait_within(&shared.demand, asked, Some(patience)).is_err()
            && sys::getppid() != shared.host
        {
            send_away(shared);
            break;
        }
    }
    sys::exit(0)
}

/// The host is gone without a word, and nobody will reap or end what it has parked.
fn send_away(shared: &Shared) {
    for seat in &shared.seats {
        // SAFETY: the frame of a parked child, in memory that is there as long as the child.
        if let (PARKED, Some(frame)) = (seat.state.load(Acquire), unsafe { seat.frame.load(Acquire).as_ref() }) {
            frame.go.store(GO_AWAY, Release);
            sys::futex_wake_within(&frame.go);
        }
    }
}

/// Clones one child to a seat that is the caller's.
unsafe fn fill(shared: &Shared, seat: &Seat) -> Result<()> {
    let frame = seat.frame.load(Acquire);
    // SAFETY: the frame is nobody's but the caller's until the child exists.
    let answer = unsafe {
        // First: should this process be killed amid the clone, the number of an earlier child must not be taken for the new one's.
        (*frame).pid.store(0, Relaxed);
        seat.state.store(CLONING, Release);
        clone(shared, frame)
    };
    match answer {
        Ok(_) => {
            seat.state.store(PARKED, Release);
            Ok(())
        }
        Err(error) => {
            shared.errno.store(error, Relaxed);
            shared.failures.store(shared.failures.load(Relaxed).wrapping_add(1), Relaxed);
            seat.state.store(WANTED, Release);
            Err(error)
        }
    }
}

/// The clone itself, of a child like the calling process, which is one of the pool's.
unsafe fn clone(shared: &Shared, frame: *mut Frame) -> Result<i32> {
    // SAFETY: `fill`'s.
    unsafe {
        (*frame).step.store(0, Relaxed);
        (*frame).errno.store(0, Relaxed);
        (*frame).detail.store(-1, Relaxed);
        (*frame).go.store(GO_WAIT, Relaxed);
        (*frame).pool = shared;
        (*frame).word.store(RUNNING, Release);
        let flags = uapi::CLONE_VM
            | uapi::CLONE_FILES
            | uapi::CLONE_FS
            | uapi::CLONE_PARENT
            | uapi::CLONE_PARENT_SETTID
            | uapi::CLONE_CHILD_CLEARTID;
        let args = uapi::clone_args {
            flags: flags.into(),
            pidfd: 0,
            child_tid: (*frame).word.as_ptr() as u64,
            // Written before the child runs, so that it is known even if this process does not live to tell.
            parent_tid: (*frame).pid.as_ptr() as u64,
            exit_signal: 0,
            stack: frame as u64 - shared.stack_length,
            stack_size: shared.stack_length,
            tls: 0,
            set_tid: 0,
            set_tid_size: 0,
            cgroup: 0,
        };
        let answer = sys::clone3_call(&args, 64, park, frame);
        if answer.is_err() {
            // There is no child.
            (*frame).word.store(LEFT, Release);
        }
        answer
    }
}

/// Entry of a parked child: waits, and plays the plan that it is launched with.
pub unsafe extern "C-unwind" fn park(frame: *mut Frame) -> ! {
    // SAFETY: the host writes the rest of the frame only while this waits, and `go` last.
    unsafe {
        let (go, shared) = (&(*frame).go, &*(*frame).pool);
        let host = shared.host;
        end_with_host(shared);
        loop {
            match go.load(Acquire) {
                GO => break,
                GO_AWAY => sys::exit(0),
                _ => {}
            }
            if sys::futex_wait_within(go, GO_WAIT, Some(&LONG_PATIENCE)).is_err() && sys::getppid() != host {
                sys::exit(0);
            }
        }
        // First of all: when the successor is there, the thread that is the parent may end.
        let lives = prctl(PR_SET_PDEATHSIG, 0);
        if let Some(seat) = (*frame).seat.as_ref() {
            // Before anything is changed, so that it is what this one was. The shared block may be gone when this returns.
            let _ = fill(shared, seat);
        }
        match lives.and_then(|_| resume(&*frame)) {
            Ok(()) => child::play(frame),
            Err(error) => {
                (*frame).errno.store(error, Release);
                sys::exit(127)
            }
        }
    }
}

/// What a child that is cloned now would have been spared.
unsafe fn resume(frame: &Frame) -> Result<()> {
    const SCHED_OTHER: usize = 0;
    // SAFETY: changes this process, the child; the word's address is a name, be it still there or not.
    unsafe {
        sys::syscall(uapi::__NR_unshare, [uapi::CLONE_FS as usize, 0, 0, 0, 0, 0])?;
        sys::syscall(uapi::__NR_setpgid, [0, frame.group as usize, 0, 0, 0, 0])?;
        if frame.batch != 0 {
            let priority = 0i32;
            let args = [0, SCHED_OTHER, &raw const priority as usize, 0, 0, 0];
            sys::syscall(uapi::__NR_sched_setscheduler, args)?;
        }
        if frame.affinity != 0 {
            let args = [0, 8, &raw const frame.affinity as usize, 0, 0, 0];
            sys::syscall(uapi::__NR_sched_setaffinity, args)?;
        }
        // What was sent to it before it was launched was not meant for the program.
        let (all, no_time) = (!0u64, uapi::__kernel_timespec { tv_sec: 0, tv_nsec: 0 });
        let args = [&raw const all as usize, 0, &raw const no_time as usize, 8, 0, 0];
        while sys::syscall(uapi::__NR_rt_sigtimedwait, args).is_ok() {}
        if !frame.demand.is_null() {
            sys::futex_wake_within(&*frame.demand);
        }
    }
    Ok(())
}

/// What a pool's probe has found, in `detail`.
pub mod probed {
    /// A child can be launched; else `errno` says why not.
    pub const RESUMES: i32 = 1;
    /// `pidfd_open(2)` works.
    pub const PIDFD_OPEN: i32 = 2;
}

/// Entry of a child that finds out whether parked children would work here: it does what they do.
///
/// Each success is noted at once: a filter may kill it for the next call.
pub unsafe extern "C-unwind" fn probe(frame: *mut Frame) -> ! {
    // SAFETY: as for `child::probe`; changes the child alone.
    unsafe {
        let frame = &*frame;
        let answer = sys::syscall(uapi::__NR_setpgid, [0; 6]).and_then(|_| resume(frame));
        match answer {
            Ok(()) => frame.detail.store(probed::RESUMES, Release),
            Err(error) => frame.errno.store(error, Release),
        }
        // In a table of its own.
        let unshared = answer.is_ok() && sys::close_range(3, u32::MAX, sys::CLOSE_RANGE_UNSHARE).is_ok();
        if unshared && sys::pidfd_open(sys::getpid(), 0).is_ok() {
            frame.detail.store(probed::RESUMES | probed::PIDFD_OPEN, Release);
        }
    }
    sys::exit(0)
}
