//! Signals that end the bench: the first is noted, so that the results so far are printed and everything is removed; a second one
//! kills.

use std::{
    fs, process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use signal_hook::{
    SigId,
    consts::{SIGHUP, SIGINT, SIGTERM},
    low_level,
};

/// The handlers, removed on drop.
pub(crate) struct Interrupt {
    stop: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    handlers: Vec<SigId>,
}

impl Interrupt {
    /// Handles SIGINT, SIGTERM and SIGHUP. One that this process ignores stays ignored, as under nohup(1).
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub(crate) fn install() -> Result<Self> {
        let mut own = Self { stop: Arc::default(), signal: Arc::default(), handlers: Vec::new() };
        let ignored = ignored();
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0) {
            own.handle(signal).context("cannot install a signal handler")?;
        }
        Ok(own)
    }

    fn handle(&mut self, number: i32) -> Result<()> {
        let (stop, signal, own) = (Arc::clone(&self.stop), Arc::clone(&self.signal), process::id());
        let word = usize::try_from(number)?;
        let note = move || {
            // Ctrl-C reaches the children, too. One that shares this memory until its exec (vfork) must not note a first
            // signal here: that of this process would then be the second.
            if process::id() != own {
                return;
            }
            if stop.load(Ordering::Relaxed) {
                let _ = low_level::emulate_default_handler(number);
            }
            signal.store(word, Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
        };
        // SAFETY: getpid(2), atomic stores and emulate_default_handler are async-signal-safe, and none of it panics.
        self.handlers.push(unsafe { low_level::register(number, note) }?);
        Ok(())
    }

    /// Set by a signal.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// The signal that has arrived.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.handlers.drain(..).for_each(|handler| _ = low_level::unregister(handler));
    }
}

/// The ignored signals as a mask; 0 if that cannot be read.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
