//! Threads that cause page faults while others launch. They contend with a launch that copies or locks the address space.

use std::{
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Memory of each thread: about the share of one CPU in the last-level cache.
const LENGTH: usize = 4 << 20;

/// The CPU clocks of the running threads.
static CLOCKS: Mutex<Vec<libc::clockid_t>> = Mutex::new(Vec::new());

/// CPU time of all running threads, to be subtracted from that of the process.
pub(crate) fn cpu_time() -> Duration {
    let Ok(clocks) = CLOCKS.lock() else { return Duration::ZERO };
    clocks.iter().map(|&clock| time_of(clock)).sum()
}

fn time_of(clock: libc::clockid_t) -> Duration {
    // The thread is alive: it is joined only after its clock is removed from the list.
    nix::time::ClockId::from_raw(clock).now().map_or(Duration::ZERO, Duration::from)
}

/// The threads; they end on drop.
pub(crate) struct Faulting {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Faulting {
    /// Starts the threads.
    ///
    /// # Errors
    /// If memory or a thread cannot be allocated.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let mut faulting = Self { stop: Arc::default(), threads: Vec::new() };
        for _ in 0..count {
            let memory = ThreadMemory::new()?;
            let stop = Arc::clone(&faulting.stop);
            let (send, clock) = std::sync::mpsc::channel();
            let thread = thread::Builder::new().name("faulting".to_owned()).spawn(move || {
                let _ = send.send(own_clock());
                while !stop.load(Ordering::Relaxed) {
                    memory.fault();
                }
            });
            faulting.threads.push(thread.context("no thread")?);
            if let (Ok(Some(clock)), Ok(mut clocks)) = (clock.recv(), CLOCKS.lock()) {
                clocks.push(clock);
            }
        }
        Ok(faulting)
    }
}

impl Drop for Faulting {
    fn drop(&mut self) {
        if let Ok(mut clocks) = CLOCKS.lock() {
            clocks.clear();
        }
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The CPU clock of this thread, which other threads can read.
fn own_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: this thread is alive, and the pointer is to a live integer.
    let answer = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
    (answer == 0).then_some(clock)
}

/// The memory of a thread.
struct ThreadMemory(*mut std::ffi::c_void);

// SAFETY: the value owns the mapping exclusively.
unsafe impl Send for ThreadMemory {}

impl ThreadMemory {
    fn new() -> Result<Self> {
        // SAFETY: a new private mapping at an address chosen by the kernel overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), LENGTH, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }
        .context("no memory")?;
        // SAFETY: the range is the new mapping. Kernels without huge pages return an error, which is harmless.
        let _ = unsafe { rustix::mm::madvise(start, LENGTH, Advice::LinuxNoHugepage) };
        Ok(Self(start))
    }

    /// Writes to every page, then frees all pages.
    fn fault(&self) {
        for offset in (0..LENGTH).step_by(rustix::param::page_size()) {
            // SAFETY: offset < LENGTH, so the byte is inside the mapping, which only this thread uses.
            unsafe { self.0.cast::<u8>().add(offset).write_volatile(1) };
        }
        // SAFETY: the mapping contains no data that is used again.
        let _ = unsafe { rustix::mm::madvise(self.0, LENGTH, Advice::LinuxDontNeed) };
    }
}

impl Drop for ThreadMemory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no other code has its address.
        let _ = unsafe { rustix::mm::munmap(self.0, LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page faults of this process.
    fn faults() -> libc::c_long {
        use nix::sys::resource::{UsageWho, getrusage};
        getrusage(UsageWho::RUSAGE_SELF).expect("own usage").minor_page_faults()
    }

    #[test]
    fn threads_cause_page_faults_and_their_cpu_time_is_known() {
        let faulting = Faulting::start(2).expect("threads");
        let (before, time) = (faults(), cpu_time());
        let pages = (LENGTH / rustix::param::page_size()) as libc::c_long;
        while faults() < before + 4 * pages || cpu_time() == time {
            thread::yield_now();
        }
        drop(faulting);
        assert_eq!(cpu_time(), Duration::ZERO);
    }
}
