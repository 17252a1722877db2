//! The first steps of a child that a zygote clones for the caller: it takes on the caller's attributes.
//!
//! Such a child inherits the working directory, the limits and everything else from the zygote. Attributes that can be
//! changed are changed here, before the plan is played, in an order in which each step is still permitted. The caller
//! compares the others in the meantime ([`Comparison`]).
//!
//! # How its end is reported
//! The kernel clears a child's futex word (`CLONE_CHILD_CLEARTID`) only if another process still uses the same
//! address space. That is never true for a child whose zygote was killed. So the word is in the child's [`robust`]
//! list instead.
//!
//! # Safety
//! As for [`child`](crate::child).

use crate::child::{await_word, play};
use crate::frame::{Frame, GO, GO_AWAY, GO_WAIT};
use crate::robust::{self, Robust};
use crate::signals;
use crate::sync::{self, AtomicU32, fence};
use crate::sys::{self, Result, prctl, uapi};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

/// The number of resource limits.
pub const LIMITS: usize = 16;

/// The maximum size of a CPU set, in words of 64 CPUs.
pub const CPU_WORDS: usize = 128;

/// No umask.
pub const SAME: u32 = u32::MAX;

/// A frame, and the attributes that the child takes on before it plays.
#[repr(C)]
pub struct Sent {
    /// The run.
    pub frame: Frame,
    /// The attributes that cannot be changed.
    pub comparison: Comparison,
    /// 1: the caller sleeps until the child exists.
    pub announce: u32,
    /// The child's robust list.
    robust: UnsafeCell<Robust>,
    /// The attributes to take on.
    pub adopt: Adopt,
}

/// The caller's comparison of attributes, which a child waits for.
#[repr(C)]
pub struct Comparison {
    /// [`GO_WAIT`] until it is known.
    result: AtomicU32,
    /// 1: the child sleeps until `result` changes, or is about to sleep.
    waits: AtomicU32,
}

impl Comparison {
    /// A comparison that has found no difference, or one that is made while the child runs (`meanwhile`).
    pub fn new(meanwhile: bool) -> Self {
        Self { result: AtomicU32::new(if meanwhile { GO_WAIT } else { GO }), waits: AtomicU32::new(0) }
    }

    /// The caller's half.
    pub fn conclude(&self, are_equal: bool) {
        self.result.store(if are_equal { GO } else { GO_AWAY }, SeqCst);
        // Both sides store first and load then (SeqCst): either the child sees the result, or the caller sees that it
        // waits.
        if self.waits.load(SeqCst) != 0 {
            sync::futex_wake(&self.result);
        }
    }

    /// The child's half. ECHILD: there is a difference.
    pub fn await_result(&self, frame: &Frame) -> Result<()> {
        if self.result.load(SeqCst) != GO {
            self.waits.store(1, SeqCst);
            await_word(&self.result, frame)?;
        }
        Ok(())
    }
}

/// The attributes that a child takes on. `differs` has a bit for each number of [`what`] that differs from the
/// zygote's.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct Adopt {
    /// Bits of [`what`].
    pub differs: u32,
    /// A descriptor of the caller's working directory.
    pub directory: i32,
    /// The caller's umask; [`SAME`]: the helper has it.
    pub umask: u32,
    /// The caller's process group.
    pub group: i32,
    /// The signals that the caller ignores.
    pub ignored: u64,
    /// The limits that differ, a bit for each.
    pub limits: u32,
    /// `nice(2)`'s value.
    pub nice: i32,
    /// `sched_setscheduler(2)`: policy and priority.
    pub scheduler: [i32; 2],
    /// Its time slice in nanoseconds, without a real-time policy and since Linux 6.12; 0: the helper's.
    pub slice: u64,
    /// `ioprio_set(2)`.
    pub io_priority: i32,
    /// `personality(2)`.
    pub personality: u32,
    /// PR_SET_TIMERSLACK.
    pub timer_slack: u64,
    /// Soft and hard limits by number.
    pub values: [[u64; 2]; LIMITS],
    /// The number of words in `cpus`.
    pub cpu_words: u32,
    /// The CPU affinity.
    pub cpus: [u64; CPU_WORDS],
}

/// `struct sched_attr` of `sched_setattr(2)`, with utilization clamps.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SchedulerAttributes {
    /// The size of this structure.
    pub size: u32,
    /// SCHED_OTHER and so on.
    pub policy: u32,
    /// SCHED_FLAG_RESET_ON_FORK and so on.
    pub flags: u64,
    /// The nice value.
    pub nice: i32,
    /// The real-time priority.
    pub priority: u32,
    /// The time slice, or the runtime of SCHED_DEADLINE.
    pub runtime: u64,
    /// Of SCHED_DEADLINE.
    pub deadline: u64,
    /// Of SCHED_DEADLINE.
    pub period: u64,
    /// The least and the most utilization.
    pub clamps: [u32; 2],
}

/// No attributes.
pub const NO_ATTRIBUTES: SchedulerAttributes = SchedulerAttributes {
    // Without the clamps, which the first kernels with this call do not have.
    size: 48,
    policy: 0,
    flags: 0,
    nice: 0,
    priority: 0,
    runtime: 0,
    deadline: 0,
    period: 0,
    clamps: [0; 2],
};

/// The attributes that a child inherits from the process that clones it, and that it can change: a number and a name
/// for each.
macro_rules! taken_on {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        /// The attributes by number.
        pub mod what {
            $(#[doc = concat!("The ", $words, ".")] pub const $name: i32 = $number;)*
            /// No attribute: one that the child cannot change differs from the caller's.
            pub const CHECKED: i32 = 10;
            /// The futex word in the child's robust list.
            pub const WORD: i32 = 11;
            /// The umask.
            pub const UMASK: i32 = 12;

            /// The name of an attribute, for errors.
            pub fn name_of(what: i32) -> Option<&'static str> {
                match what {
                    $($name => Some($words),)*
                    WORD => Some("robust list"),
                    UMASK => Some("umask"),
                    _ => None,
                }
            }
        }
    };
}

taken_on! {
    DIRECTORY = 0, "working directory";
    GROUP = 1, "process group";
    LIMIT = 2, "resource limits";
    NICE = 3, "nice value";
    SCHEDULER = 4, "scheduler";
    AFFINITY = 5, "CPU affinity";
    IO_PRIORITY = 6, "I/O priority";
    TIMER_SLACK = 7, "timer slack";
    PERSONALITY = 8, "personality";
    SIGNALS = 9, "ignored signals";
}

/// Entry of a child in the memory of the zygote that cloned it: takes on the caller's attributes, and plays the plan.
pub unsafe extern "C-unwind" fn play_sent(frame: *mut Frame) -> ! {
    // SAFETY: the frame is the first field of a Sent (contract of the process that cloned this child), and plays by
    // `play`'s contract.
    unsafe {
        adopt(&*frame.cast::<Sent>());
        play(frame)
    }
}

/// Takes on the caller's attributes; on failure exits, with the reason in the frame. The caller may return from its
/// launch meanwhile.
pub unsafe fn adopt(sent: &Sent) {
    // SAFETY: this is the child (module contract).
    unsafe {
        watch_word(sent);
        announce(sent);
        adopt_attributes(sent);
    }
}

/// As [`adopt`], but the caller waits: until [`announce`] it can still launch cold.
pub unsafe fn adopt_unannounced(sent: &Sent) {
    // SAFETY: this is the child (module contract).
    unsafe {
        watch_word(sent);
        adopt_attributes(sent);
    }
}

/// Marks the word as held, so that the kernel marks it when the child leaves. Wakes a caller that only waits until the child
/// exists.
pub fn announce(sent: &Sent) {
    sent.frame.word.store(robust::held(), Release);
    if sent.announce != 0 {
        sync::futex_wake(&sent.frame.word);
    }
}

/// Exits, with the reason in the frame.
pub fn fail(frame: &Frame, error: i32) -> ! {
    frame.errno.store(error, Relaxed);
    // If this has not been done yet, the kernel would not mark the word.
    frame.word.store(robust::held(), Release);
    fence(Release);
    sys::exit(127)
}

unsafe fn watch_word(sent: &Sent) {
    let frame = &sent.frame;
    frame.detail.store(what::WORD, Relaxed);
    // SAFETY: this is the child (module contract).
    if let Err(error) = unsafe { robust::watch(sent.robust.get(), &frame.word) } {
        fail(frame, error)
    }
}

unsafe fn adopt_attributes(sent: &Sent) {
    // SAFETY: this is the child (module contract).
    if let Err(error) = unsafe { take_on(sent) } {
        fail(&sent.frame, error)
    }
}

/// On failure the frame's `detail` names the attribute.
unsafe fn take_on(sent: &Sent) -> Result<()> {
    let Sent { frame, adopt, .. } = sent;
    let call = |what: i32, number: u32, args: [usize; 6]| {
        if adopt.differs >> what & 1 == 0 {
            return Ok(());
        }
        frame.detail.store(what, Relaxed);
        // SAFETY: each call changes only the child; the memory that it reads is in `adopt`.
        unsafe { sys::syscall(number, args) }.map(drop)
    };
    if adopt.umask != SAME {
        frame.detail.store(what::UMASK, Relaxed);
        // SAFETY: changes the child, which shares its umask with no other process.
        unsafe { sys::syscall(uapi::__NR_umask, [adopt.umask as usize, 0, 0, 0, 0, 0]) }?;
    }
    call(what::DIRECTORY, uapi::__NR_fchdir, [adopt.directory as usize, 0, 0, 0, 0, 0])?;
    call(what::GROUP, uapi::__NR_setpgid, [0, adopt.group as usize, 0, 0, 0, 0])?;
    for (number, value) in adopt.values.iter().enumerate() {
        if adopt.limits >> number & 1 == 1 {
            call(what::LIMIT, uapi::__NR_prlimit64, [0, number, value.as_ptr() as usize, 0, 0, 0])?;
        }
    }
    let [policy, priority] = adopt.scheduler;
    if adopt.slice != 0 {
        let attributes =
            SchedulerAttributes { policy: policy as u32, nice: adopt.nice, runtime: adopt.slice, ..NO_ATTRIBUTES };
        call(what::SCHEDULER, uapi::__NR_sched_setattr, [0, &raw const attributes as usize, 0, 0, 0, 0])?;
    } else {
        let priority = &raw const priority as usize;
        call(what::SCHEDULER, uapi::__NR_sched_setscheduler, [0, policy as usize, priority, 0, 0, 0])?;
    }
    call(what::NICE, uapi::__NR_setpriority, [0, 0, adopt.nice as isize as usize, 0, 0, 0])?;
    let cpus = [0, adopt.cpu_words as usize * 8, adopt.cpus.as_ptr() as usize, 0, 0, 0];
    call(what::AFFINITY, uapi::__NR_sched_setaffinity, cpus)?;
    call(what::IO_PRIORITY, uapi::__NR_ioprio_set, [1, 0, adopt.io_priority as usize, 0, 0, 0])?;
    call(
        what::TIMER_SLACK,
        uapi::__NR_prctl,
        [prctl::PR_SET_TIMERSLACK as usize, adopt.timer_slack as usize, 0, 0, 0, 0],
    )?;
    call(what::PERSONALITY, uapi::__NR_personality, [adopt.personality as usize, 0, 0, 0, 0, 0])?;
    frame.detail.store(what::SIGNALS, Relaxed);
    // SAFETY: the signal table is the child's own; the zygote ignores no signals.
    unsafe { signals::set_ignored(adopt.ignored) }?;
    frame.detail.store(what::CHECKED, Relaxed);
    sent.comparison.await_result(frame)?;
    frame.detail.store(-1, Relaxed);
    Ok(())
}
