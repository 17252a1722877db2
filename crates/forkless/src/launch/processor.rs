//! Keeping a process that is to be woken on its waker's processor, where there are no others to speak of.
//!
//! A wake goes to an idle processor, if there is one. With two of them the other one is mostly asleep, or busy with the child
//! before, and to wake it takes longer (14 µs on a virtual machine, all of them the waker's) than it takes until the waker
//! waits for something and leaves its own.
//!
//! Source: select_task_rq_fair() in kernel/sched/fair.c; sched_setaffinity(2).

use crate::kernel;

/// So many are few.
const FEW: u32 = 2;

/// Is that a set of few?
pub(crate) fn are_few(words: &[u64]) -> bool {
    words.iter().map(|word| word.count_ones()).sum::<u32>() <= FEW && words.iter().skip(1).all(|&word| word == 0)
}

/// The one that the calling thread is on, if its number is below 64.
pub(crate) fn own() -> Option<u32> {
    kernel::cpu().ok().filter(|&cpu| cpu < 64)
}

/// Keeps a process of ours on one processor; says whether it is. Its own affinity is to be put back when it is awake.
pub(crate) fn keep(pid: i32, cpu: u32) -> bool {
    // The pid is a child's of ours that nobody has reaped.
    kernel::set_affinity(pid, 1 << cpu).is_ok()
}
