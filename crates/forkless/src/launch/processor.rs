//! Keeps a process that is about to be woken on its waker's CPU, on machines with few CPUs.
//!
//! The kernel wakes a process on an idle CPU, if there is one. With two CPUs the other one is mostly in a sleep
//! state, or busy with the previous child. Waking it takes longer than the waker takes to block and to free its own
//! CPU: 14 µs on a virtual machine, all of them the waker's time.
//!
//! Source: select_task_rq_fair() in kernel/sched/fair.c; sched_setaffinity(2).

use crate::kernel;

/// The maximum that counts as few.
const FEW: u32 = 2;

/// Whether a CPU set has at most [`FEW`] CPUs, all with numbers below 64.
pub(crate) fn is_few(words: &[u64]) -> bool {
    words.iter().map(|word| word.count_ones()).sum::<u32>() <= FEW && words.iter().skip(1).all(|&word| word == 0)
}

/// The CPU that the calling thread runs on, if its number is below 64.
pub(crate) fn own() -> Option<u32> {
    kernel::cpu().ok().filter(|&cpu| cpu < 64)
}

/// Binds a child to one CPU; returns whether that worked. The caller must restore the affinity once the child is
/// awake.
pub(crate) fn keep(pid: i32, cpu: u32) -> bool {
    // The child has not been reaped, so the PID is its own.
    kernel::set_affinity(pid, 1 << cpu).is_ok()
}
