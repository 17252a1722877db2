//! The functions of warm programs.

use crate::boundary::to_status;
use crate::command::{self, Settable};
use crate::error::{Error, Failure, bad};
use crate::handle::{NULL, duration, free, give, optional, out, shared};
use forkless::warm::{Warm, WarmOptions, WarmStats};
use forkless::{Command, Prepared};
use libc::{c_char, c_int, pid_t, size_t};

/// `forkless_warm_options`. Later versions append members; `size` says which of them the caller has.
#[repr(C)]
pub(crate) struct WOptions {
    size: size_t,
    library: *const c_char,
    templates: size_t,
    idle_ms: i64,
    life_ms: i64,
    launches: u32,
}

/// `forkless_warm_stats`; the caller's may be a shorter, older version.
#[repr(C)]
pub(crate) struct WStats {
    warm: u64,
    cold: u64,
    starts: u64,
    refusals: u64,
    idle: u64,
    crashes: u64,
}

/// # Safety
/// `given` is null or points to options, whose `library` is null or a string.
unsafe fn open(given: *const WOptions) -> Result<Warm, Failure> {
    // SAFETY: the caller's contract.
    let Some(given) = (unsafe { given.as_ref() }) else { return Ok(Warm::of_process()?) };
    if given.size != size_of::<WOptions>() {
        return Err(bad("the options have an unknown size"));
    }
    let mut how = WarmOptions::new();
    // SAFETY: the caller's contract.
    if let Some(library) = unsafe { optional(given.library) } {
        how.library(library);
    }
    how.templates(given.templates).launches(given.launches);
    Ok(how.idle(duration(given.idle_ms)).life(duration(given.life_ms)).open()?)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_warm_open(options: *const WOptions, warm: *mut *mut Warm, error: *mut Error) -> c_int {
    // SAFETY: `options` is null or initialized; `warm` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || give(warm, || Ok(out(open(options)?)))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_warm_free(warm: *mut Warm) {
    // SAFETY: `warm` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { free(warm) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_command_warm(command: *mut Settable, warm: *const Warm) -> c_int {
    let set = || {
        // SAFETY: `warm` is null or a live handle (forkless.h).
        let warm = unsafe { shared(warm) }?;
        let set = |command: &mut Command| {
            // The command becomes an owner of the set: the caller may free the handle at any time.
            command.warm(warm);
            Ok(0)
        };
        // SAFETY: `command` is null or a live handle (forkless.h).
        unsafe { command::set(command, set) }
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, set) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_warm_start(warm: *const Warm, prepared: *const Prepared, error: *mut Error) -> c_int {
    // SAFETY: `warm` and `prepared` are null or live handles (forkless.h).
    let start = || unsafe { Ok(shared(warm)?.start(shared(prepared)?).map(|()| 0)?) };
    // SAFETY: `error` is null or writable (forkless.h).
    unsafe { to_status(error, start) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_warm_templates(warm: *const Warm, pids: *mut pid_t, count: size_t) -> c_int {
    let list = || {
        // SAFETY: `warm` is null or a live handle (forkless.h).
        let found = unsafe { shared(warm) }?.templates();
        if pids.is_null() && count > 0 {
            return Err(bad("the array is a null pointer"));
        }
        for (n, pid) in found.iter().take(count).enumerate() {
            // SAFETY: `pids` is not null, and has `count` elements (forkless.h).
            unsafe { pids.add(n).write(*pid as pid_t) };
        }
        Ok(found.len() as c_int)
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, list) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_warm_get_stats(warm: *const Warm, stats: *mut WStats, size: size_t) -> c_int {
    let get = || {
        if stats.is_null() {
            return Err(bad("the pointer to the result is null"));
        }
        // SAFETY: `warm` is null or a live handle (forkless.h).
        let WarmStats { warm, cold, starts, refusals, idle, crashes, .. } = unsafe { shared(warm) }?.stats();
        let found = WStats { warm, cold, starts, refusals, idle, crashes };
        // SAFETY: `stats` has `size` bytes (forkless.h).
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), stats.cast(), size.min(size_of::<WStats>()))
        };
        Ok(0)
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, get) }
}
