//! Many children alive, and the cost of finding the one that ended.

use std::fs;

use anyhow::{Context, Result};

/// One exit, measured from the kill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    /// CPU time of the parent from after the kill until it has found and reaped the child.
    pub(crate) cpu_ns: u64,
    /// Wall time from the kill until then.
    pub(crate) latency_ns: u64,
}

/// Children alive, with a method to wait for them.
pub(crate) trait Crowd {
    /// Launches or kills children until `count` are alive. Not timed.
    fn resize(&mut self, count: usize) -> Result<()>;

    /// Kills a child and waits for any child to end, which must be that one; does this `count` times.
    fn exits(&mut self, count: usize) -> Result<Vec<Exit>>;

    /// Memory of the waiting process.
    fn memory(&self) -> Result<Memory>;
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Allocated heap memory; 0 if unknown.
    heap: u64,
    /// Resident anonymous memory.
    resident: u64,
}

impl Memory {
    /// The larger growth of the two: the heap may have had free memory, and not all memory is heap memory.
    pub(crate) fn growth_since(self, before: Self) -> f64 {
        self.heap.saturating_sub(before.heap).max(self.resident.saturating_sub(before.resident)) as f64
    }

    /// Resident memory of a process.
    ///
    /// # Errors
    /// If the process does not exist.
    pub(crate) fn of(process: &str) -> Result<Self> {
        let text =
            fs::read_to_string(format!("/proc/{process}/status")).context("cannot read the status of a process")?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(Self { heap: 0, resident: kib << 10 })
    }

    /// Resident anonymous memory, in bytes.
    #[cfg(test)]
    pub(crate) fn resident(self) -> u64 {
        self.resident
    }

    pub(crate) fn own() -> Result<Self> {
        // Return freed memory to the kernel first: reuse of it would not show as growth.
        #[cfg(target_env = "gnu")]
        // SAFETY: malloc_trim(3) has no precondition.
        unsafe {
            libc::malloc_trim(0)
        };
        Ok(Self { heap: heap_in_use(), ..Self::of("self")? })
    }
}

/// Allocated heap memory, in bytes; 0 if glibc is older than 2.33.
#[cfg(target_env = "gnu")]
fn heap_in_use() -> u64 {
    // SAFETY: a name that ends in NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
    if found.is_null() {
        return 0;
    }
    // SAFETY: glibc's function of this name has this type, no precondition, and returns plain integers.
    let info = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> libc::mallinfo2>(found)() };
    (info.uordblks + info.hblkhd) as u64
}

#[cfg(not(target_env = "gnu"))]
fn heap_in_use() -> u64 {
    0
}
