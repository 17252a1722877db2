//! The resources that a child has used, and the limits that it has reached.

use forkless_core::sys::uapi::rusage;
use std::time::Duration;

/// The resources that a child has used, with the children that it waited for: `getrusage(2)`, read with the exit
/// status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Time from the launch until the end was noticed.
    pub wall_time: Duration,
    /// CPU time in user mode, with the kernel's resolution.
    pub user_time: Duration,
    /// CPU time in the kernel.
    pub system_time: Duration,
    /// Largest resident set, in KiB. Until the exec the child shares the caller's memory, which is counted too.
    pub max_rss_kib: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Blocks read, in units of 512 bytes.
    pub blocks_in: u64,
    /// Blocks written, in units of 512 bytes.
    pub blocks_out: u64,
    /// Voluntary context switches: it gave up the CPU to wait.
    pub voluntary_switches: u64,
    /// Involuntary context switches: the scheduler took the CPU from it.
    pub involuntary_switches: u64,
}

impl Usage {
    pub(crate) fn new(usage: &rusage, wall_time: Duration) -> Self {
        let time =
            |seconds: i64, micros: i64| Duration::from_secs(seconds as u64) + Duration::from_micros(micros as u64);
        Self {
            wall_time,
            user_time: time(usage.ru_utime.tv_sec, usage.ru_utime.tv_usec),
            system_time: time(usage.ru_stime.tv_sec, usage.ru_stime.tv_usec),
            max_rss_kib: usage.ru_maxrss as u64,
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            blocks_in: usage.ru_inblock as u64,
            blocks_out: usage.ru_oublock as u64,
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }
}

/// How often a child, together with all that it has started, has reached the limits of
/// [`Command::memory_max`](crate::Command::memory_max) and [`Command::tasks_max`](crate::Command::tasks_max):
/// from [`Child::limit_events`](crate::Child::limit_events).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitEvents {
    /// Processes that the kernel has killed because memory was exhausted: `oom_kill` in `memory.events`.
    pub oom_kills: u64,
    /// How often the memory was about to exceed its limit: `max` in `memory.events`. The kernel then frees caches, so this alone is no
    /// failure.
    pub memory_max: u64,
    /// Forks and new threads that failed with EAGAIN: `max` in `pids.events`.
    pub tasks_max: u64,
}
