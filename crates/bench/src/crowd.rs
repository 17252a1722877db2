//! Children that are alive, and what it costs to be told that one of them ended.

use std::fs;

use anyhow::{Context, Result};

/// One exit, from the kill on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    /// CPU time of the parent, user and system, from after the kill until it knew which child has ended.
    pub(crate) cpu_ns: u64,
    /// Time from the kill until then.
    pub(crate) latency_ns: u64,
}

/// Children that are alive, and a way to wait for them.
pub(crate) trait Crowd {
    /// Launches or kills until so many are alive. Not timed.
    fn resize(&mut self, count: usize) -> Result<()>;

    /// Kills a child and waits for whichever ends first, which must be that one; so many times.
    fn exits(&mut self, count: usize) -> Result<Vec<Exit>>;

    /// Memory of the process that waits.
    fn memory(&self) -> Result<Memory>;
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// What the heap has given out; 0 where that is not known.
    heap: u64,
    /// Anonymous memory that is resident.
    resident: u64,
}

impl Memory {
    /// The larger of the two: the heap may have had room, and not all memory is of the heap.
    pub(crate) fn growth_since(self, before: Self) -> f64 {
        self.heap.saturating_sub(before.heap).max(self.resident.saturating_sub(before.resident)) as f64
    }

    /// Resident memory of a process.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn of(process: &str) -> Result<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/status")).context("status of a process")?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(Self { heap: 0, resident: kib << 10 })
    }

    /// Anonymous memory that is resident, in bytes.
    #[cfg(test)]
    pub(crate) fn resident(self) -> u64 {
        self.resident
    }

    pub(crate) fn own() -> Result<Self> {
        // What was freed before goes back first, so that it is not taken from again unseen.
        #[cfg(target_env = "gnu")]
        // SAFETY: it has no precondition.
        unsafe {
            libc::malloc_trim(0)
        };
        Ok(Self { heap: heap_in_use(), ..Self::of("self")? })
    }
}

#[cfg(target_env = "gnu")]
fn heap_in_use() -> u64 {
    // SAFETY: it has no precondition and returns plain integers.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

#[cfg(not(target_env = "gnu"))]
fn heap_in_use() -> u64 {
    0
}
