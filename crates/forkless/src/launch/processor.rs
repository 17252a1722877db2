//! Keeping a process that is to be woken on its waker's processor, where there are no others to speak of.
//!
//! A wake goes to an idle processor, if there is one. With two of them the other one is mostly asleep, or busy with the child
//! before, and to wake it takes longer (14 µs on a virtual machine, all of them the waker's) than it takes until the waker
//! waits for something and leaves its own.
//!
//! Source: select_task_rq_fair() in kernel/sched/fair.c; sched_setaffinity(2).

use forkless_core::sys::{self, uapi};

/// So many are few.
const FEW: u32 = 2;

/// Is that a set of few?
pub(crate) fn are_few(words: &[u64]) -> bool {
    words.iter().map(|word| word.count_ones()).sum::<u32>() <= FEW && words.iter().skip(1).all(|&word| word == 0)
}

/// The one that the calling thread is on, if its number is below 64.
pub(crate) fn own() -> Option<u32> {
    let mut cpu = 0u32;
    // SAFETY: the kernel writes a number.
    unsafe { sys::syscall(uapi::__NR_getcpu, [&raw mut cpu as usize, 0, 0, 0, 0, 0]) }.ok()?;
    (cpu < 64).then_some(cpu)
}

/// Keeps a process of ours on one processor; says whether it is. Its own affinity is to be put back when it is awake.
pub(crate) fn keep(pid: i32, cpu: u32) -> bool {
    let mask = 1u64 << cpu;
    let args = [pid as usize, 8, &raw const mask as usize, 0, 0, 0];
    // SAFETY: the kernel reads a mask; the pid is a child's of ours that nobody has reaped.
    unsafe { sys::syscall(uapi::__NR_sched_setaffinity, args) }.is_ok()
}
