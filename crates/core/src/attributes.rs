//! The attributes that a child takes on from its caller: how the process that clones it reads and compares them.
//!
//! A zygote's helper and the template of a warm program use this; the child's part is in
//! [`zygote_child`](crate::zygote_child).

use crate::sys::{self, Result, prctl, uapi};
use crate::zygote_child::{Adopt, CPU_WORDS, LIMITS, NO_ATTRIBUTES, SchedulerAttributes, what};

/// Reads the attributes that a child would inherit from the calling thread and that a child can take on, except the working
/// directory, umask and ignored signals. `differs` gets a bit for each attribute that a filter forbids to read.
pub fn observe(adopt: &mut Adopt) {
    let mut unread = 0;
    let mut ask = |what: i32, number: u32, args: [usize; 6]| {
        // SAFETY: each call returns a number, or writes into memory that is large enough.
        unsafe { sys::syscall(number, args) }.unwrap_or_else(|_| {
            unread |= 1 << what;
            0
        })
    };
    for (number, value) in adopt.values.iter_mut().enumerate() {
        ask(what::LIMIT, uapi::__NR_prlimit64, [0, number, 0, value.as_mut_ptr() as usize, 0, 0]);
    }
    adopt.group = ask(what::GROUP, uapi::__NR_getpgid, [0; 6]) as i32;
    // The system call returns 20 minus the nice value.
    adopt.nice = 20 - ask(what::NICE, uapi::__NR_getpriority, [0; 6]) as i32;
    let mut priority = 0i32;
    let policy = ask(what::SCHEDULER, uapi::__NR_sched_getscheduler, [0; 6]) as i32;
    ask(what::SCHEDULER, uapi::__NR_sched_getparam, [0, &raw mut priority as usize, 0, 0, 0, 0]);
    adopt.slice = match policy as u32 {
        uapi::SCHED_NORMAL | uapi::SCHED_BATCH => slice(),
        _ => 0,
    };
    (adopt.scheduler, adopt.nice) = after_reset(policy, adopt.nice).unwrap_or(([policy, priority], adopt.nice));
    let cpus = [0, CPU_WORDS * 8, adopt.cpus.as_mut_ptr() as usize, 0, 0, 0];
    adopt.cpu_words = (ask(what::AFFINITY, uapi::__NR_sched_getaffinity, cpus) / 8) as u32;
    adopt.io_priority = ask(what::IO_PRIORITY, uapi::__NR_ioprio_get, [1, 0, 0, 0, 0, 0]) as i32;
    let get_slack = [prctl::PR_GET_TIMERSLACK as usize, 0, 0, 0, 0, 0];
    adopt.timer_slack = ask(what::TIMER_SLACK, uapi::__NR_prctl, get_slack) as u64;
    let get_personality = [u32::MAX as usize, 0, 0, 0, 0, 0];
    adopt.personality = ask(what::PERSONALITY, uapi::__NR_personality, get_personality) as u32;
    adopt.differs = unread;
}

/// The time slice of the calling thread; 0: it cannot be read, or this kernel has none.
fn slice() -> u64 {
    let mut found = NO_ATTRIBUTES;
    let args = [0, &raw mut found as usize, size_of::<SchedulerAttributes>(), 0, 0, 0];
    // SAFETY: the kernel writes at most the size.
    unsafe { sys::syscall(uapi::__NR_sched_getattr, args) }.map_or(0, |_| found.runtime)
}

/// Scheduler and nice value of a child whose parent has this policy, if children do not inherit all of the policy
/// (SCHED_RESET_ON_FORK): sched_fork() in kernel/sched/core.c.
fn after_reset(policy: i32, nice: i32) -> Option<([i32; 2], i32)> {
    const RESET_ON_FORK: i32 = uapi::SCHED_RESET_ON_FORK as i32;
    if policy & RESET_ON_FORK == 0 {
        return None;
    }
    match (policy & !RESET_ON_FORK) as u32 {
        uapi::SCHED_FIFO | uapi::SCHED_RR | uapi::SCHED_DEADLINE => Some(([uapi::SCHED_NORMAL as i32, 0], 0)),
        other => Some(([other as i32, 0], nice.max(0))),
    }
}

/// Marks the attributes that the child must take on: those that differ between the caller (`asked`) and the helper
/// (`own`). `kept`: the helper is bound to one CPU. Of an attribute that the caller could not read, the child has the
/// helper's, which is the caller's at the helper's start.
pub fn mark_differences(own: &mut Adopt, asked: &mut Adopt, kept: bool) {
    let unread = asked.differs;
    let is_read = |what: i32| unread >> what & 1 == 0;
    if !is_read(what::AFFINITY) {
        asked.cpu_words = own.cpu_words;
        for (asked, own) in asked.cpus.iter_mut().zip(&own.cpus) {
            // SAFETY: a reference. Volatile, because the compiler would make a call of memcpy of this loop.
            unsafe { (&raw mut *asked).write_volatile(*own) };
        }
    }
    // RLIMIT_NPROC applies to the clone itself, so the helper takes it on before.
    let nproc = uapi::RLIMIT_NPROC as usize;
    let differs = asked.values[nproc] != own.values[nproc] && is_read(what::LIMIT);
    if differs && sys::setrlimit(uapi::RLIMIT_NPROC, &asked.values[nproc]).is_ok() {
        own.values[nproc] = asked.values[nproc];
    }
    // A child's default slack, which PR_SET_TIMERSLACK of 0 restores, is the slack of the process that cloned it. 0 is the
    // slack of a real-time policy, which the child takes on.
    if is_read(what::TIMER_SLACK) && asked.timer_slack != own.timer_slack && asked.timer_slack != 0 {
        if set_timer_slack(asked.timer_slack).is_ok() {
            own.timer_slack = asked.timer_slack;
        }
    }
    asked.limits = (0..LIMITS).filter(|&n| asked.values[n] != own.values[n]).fold(0, |bits, n| bits | 1 << n);
    let words = (asked.cpu_words as usize).min(CPU_WORDS);
    let differs = [
        (what::DIRECTORY, true),
        (what::GROUP, asked.group != own.group && is_read(what::GROUP)),
        (what::LIMIT, is_read(what::LIMIT) && asked.limits != 0),
        (what::NICE, asked.nice != own.nice && is_read(what::NICE)),
        (
            what::SCHEDULER,
            (asked.scheduler != own.scheduler || asked.slice != 0 && asked.slice != own.slice)
                && is_read(what::SCHEDULER),
        ),
        (
            what::AFFINITY,
            kept || asked.cpu_words != own.cpu_words
                || asked.cpus.iter().zip(&own.cpus).take(words).any(|(asked, own)| asked != own),
        ),
        (what::IO_PRIORITY, asked.io_priority != own.io_priority && is_read(what::IO_PRIORITY)),
        (what::TIMER_SLACK, asked.timer_slack != own.timer_slack && is_read(what::TIMER_SLACK)),
        (what::PERSONALITY, asked.personality != own.personality && is_read(what::PERSONALITY)),
    ];
    asked.differs = differs.into_iter().filter(|(_, differs)| *differs).fold(0, |bits, (what, _)| bits | 1 << what);
}

/// PR_SET_TIMERSLACK of the calling process, in nanoseconds.
fn set_timer_slack(slack: u64) -> Result<()> {
    let args = [prctl::PR_SET_TIMERSLACK as usize, slack as usize, 0, 0, 0, 0];
    // SAFETY: changes a number of the calling process.
    unsafe { sys::syscall(uapi::__NR_prctl, args) }.map(drop)
}
