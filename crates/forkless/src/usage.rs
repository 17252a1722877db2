//! What a child has used.

use forkless_core::sys::uapi::rusage;
use std::time::Duration;

/// What a child, and the children that it waited for, have used: `getrusage(2)`, read with the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Time from the launch until the end was noticed.
    pub wall_time: Duration,
    /// Processor time in user mode, with the kernel's resolution.
    pub user_time: Duration,
    /// Processor time in the kernel.
    pub system_time: Duration,
    /// Largest resident set, in KiB. It counts the caller's memory until the exec, which the child shared.
    pub max_rss_kib: u64,
    /// Page faults served without input.
    pub minor_faults: u64,
    /// Page faults that needed input.
    pub major_faults: u64,
    /// Blocks read, in units of 512 bytes.
    pub blocks_in: u64,
    /// Blocks written, in units of 512 bytes.
    pub blocks_out: u64,
    /// Times it gave up the processor to wait.
    pub voluntary_switches: u64,
    /// Times it was taken off the processor.
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
