//! Threads that touch memory while others launch: whoever copies or locks the address space for long holds them up, and they
//! whoever does.

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

/// What each thread has: as much as a last-level cache gives a core, or so.
const LENGTH: usize = 4 << 20;

/// The CPU clocks of those that run.
static CLOCKS: Mutex<Vec<libc::clockid_t>> = Mutex::new(Vec::new());

/// CPU time of all that run now: it is in that of the process, but none of what launches cost.
pub(crate) fn cpu_time() -> Duration {
    let Ok(clocks) = CLOCKS.lock() else { return Duration::ZERO };
    clocks.iter().map(|&clock| time_of(clock)).sum()
}

fn time_of(clock: libc::clockid_t) -> Duration {
    // The clock is that of a thread which is joined only after it was taken off the list.
    nix::time::ClockId::from_raw(clock).now().map_or(Duration::ZERO, Duration::from)
}

/// The threads; they end when it is dropped.
pub(crate) struct Faulting {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Faulting {
    /// Starts them.
    ///
    /// # Errors
    /// When there is no memory or no thread to be had.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let mut faulting = Self { stop: Arc::default(), threads: Vec::new() };
        for _ in 0..count {
            let memory = Memory::new()?;
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

/// The CPU clock of this thread, for others to read.
fn own_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: this thread is alive, and the pointer is to a live integer.
    let answer = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
    (answer == 0).then_some(clock)
}

/// Memory of a thread's own.
struct Memory(*mut std::ffi::c_void);

// SAFETY: whoever has it has the mapping alone.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), LENGTH, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }
        .context("no memory")?;
        // SAFETY: the range is the mapping just made; kernels without huge pages refuse it, which is as good.
        let _ = unsafe { rustix::mm::madvise(start, LENGTH, Advice::LinuxNoHugepage) };
        Ok(Self(start))
    }

    /// Writes to every page, and gives them all back.
    fn fault(&self) {
        for offset in (0..LENGTH).step_by(rustix::param::page_size()) {
            // SAFETY: offset < LENGTH, so the byte is inside the mapping, which is ours alone.
            unsafe { self.0.cast::<u8>().add(offset).write_volatile(1) };
        }
        // SAFETY: nothing is kept in it.
        let _ = unsafe { rustix::mm::madvise(self.0, LENGTH, Advice::LinuxDontNeed) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and nobody else has its address.
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
    fn threads_fault_and_their_time_is_known() {
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
