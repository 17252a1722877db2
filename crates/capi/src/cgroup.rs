//! The cgroup functions.

use crate::boundary::to_status;
use crate::error::{Error, Failure, bad};
use crate::handle::{self, duration, free, give, list, out, shared, text, text_out, utf8};
use forkless::Cgroup;
use libc::{c_char, c_int, size_t};
use std::os::fd::{AsFd, AsRawFd};
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_cgroup_own(text: *mut c_char, size: size_t, error: *mut Error) -> c_int {
    // SAFETY: `text` is null or has `size` bytes; `error` is null or writable (forkless.h).
    unsafe { to_status(error, || handle::path_out(&Cgroup::own()?, text, size)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_cgroup_hand_down(
    directory: *const c_char,
    controllers: *const *const c_char,
    error: *mut Error,
) -> c_int {
    let hand_down = || {
        // SAFETY: `directory` is null or a string; `controllers` is null or a list that ends in a null pointer (forkless.h).
        let (directory, controllers) = unsafe { (text(directory)?, list(controllers)?) };
        let names: Option<Vec<&str>> = controllers.into_iter().map(|name| name.to_str()).collect();
        let names = names.ok_or(Failure::Refused(libc::EILSEQ, "the name of a controller is not UTF-8"))?;
        Ok(Cgroup::hand_down(directory, &names).map(|()| 0)?)
    };
    // SAFETY: `error` is null or writable (forkless.h).
    unsafe { to_status(error, hand_down) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_cgroup_create(
    parent: *const c_char,
    name: *const c_char,
    cgroup: *mut *mut Cgroup,
    error: *mut Error,
) -> c_int {
    // SAFETY: `parent` and `name` are null or strings; `cgroup` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || give(cgroup, || Ok(out(Cgroup::create(text(parent)?, utf8(name)?)?)))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_cgroup_with_limits(
    parent: *const c_char,
    limits: *const *const c_char,
    cgroup: *mut *mut Cgroup,
    error: *mut Error,
) -> c_int {
    let make = || {
        // SAFETY: `parent` is null or a string; `limits` is null or a list that ends in a null pointer (forkless.h).
        let (parent, words) = unsafe { (if parent.is_null() { None } else { Some(text(parent)?) }, list(limits)?) };
        let words: Option<Vec<&str>> = words.into_iter().map(|word| word.to_str()).collect();
        let words = words.ok_or(Failure::Refused(libc::EILSEQ, "a limit is not UTF-8"))?;
        let limits: Vec<(&str, &str)> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        if limits.len() * 2 != words.len() {
            return Err(bad("a limit has no value"));
        }
        let made = match parent {
            Some(parent) => Cgroup::with_limits(parent, &limits),
            None => Cgroup::delegated().and_then(|parent| Cgroup::with_limits(parent, &limits)),
        };
        Ok(out(made?))
    };
    // SAFETY: `cgroup` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || give(cgroup, make)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_cgroup_free(cgroup: *mut Cgroup) {
    // SAFETY: `cgroup` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { free(cgroup) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_cgroup_remove(cgroup: *mut Cgroup, error: *mut Error) -> c_int {
    // SAFETY: `cgroup` is null or a live handle, and is not used afterwards; `error` is null or writable (forkless.h).
    unsafe { consume(cgroup, Cgroup::remove, error) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_cgroup_end(cgroup: *mut Cgroup, error: *mut Error) -> c_int {
    // SAFETY: `cgroup` is null or a live handle, and is not used afterwards; `error` is null or writable (forkless.h).
    unsafe { consume(cgroup, Cgroup::end, error) }
}

/// # Safety
/// `cgroup` is null or a live handle, and is not used afterwards, whatever the result. `error` is null or writable.
unsafe fn consume(cgroup: *mut Cgroup, work: fn(Cgroup) -> std::io::Result<()>, error: *mut Error) -> c_int {
    let consume = || {
        if cgroup.is_null() {
            return Err(bad("the handle is a null pointer"));
        }
        // SAFETY: not null, and the caller's contract.
        let taken = unsafe { Box::from_raw(cgroup) };
        Ok(work(*taken).map(|()| 0)?)
    };
    // SAFETY: the caller's contract.
    unsafe { to_status(error, consume) }
}

/// Defines cgroup functions: their parameters between the handle and the error, and their work.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) $cgroup:ident => $work:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(cgroup: *const Cgroup, $($arg: $kind,)* error: *mut Error) -> c_int {
            // SAFETY: `cgroup` is null or live; other pointers are null or valid, `text` for `size` bytes (forkless.h).
            unsafe {
                to_status(error, || {
                    let $cgroup = shared(cgroup)?;
                    $work
                })
            }
        }
    )* };
}

methods! {
    fn forkless_cgroup_path(text: *mut c_char, size: size_t) cgroup => handle::path_out(cgroup.path(), text, size);
    fn forkless_cgroup_directory() cgroup => Ok(cgroup.as_fd().as_raw_fd());
    fn forkless_cgroup_memory_max(bytes: u64) cgroup => Ok(cgroup.memory_max(bytes).map(|_| 0)?);
    fn forkless_cgroup_memory_high(bytes: u64) cgroup => Ok(cgroup.memory_high(bytes).map(|_| 0)?);
    fn forkless_cgroup_memory_swap_max(bytes: u64) cgroup => Ok(cgroup.memory_swap_max(bytes).map(|_| 0)?);
    fn forkless_cgroup_pids_max(count: u64) cgroup => Ok(cgroup.pids_max(count).map(|_| 0)?);
    fn forkless_cgroup_cpu_max(quota: u64, period: u64) cgroup => Ok(cgroup.cpu_max(quota, period).map(|_| 0)?);
    fn forkless_cgroup_cpu_weight(weight: u32) cgroup => Ok(cgroup.cpu_weight(weight).map(|_| 0)?);
    fn forkless_cgroup_io_weight(weight: u32) cgroup => Ok(cgroup.io_weight(weight).map(|_| 0)?);
    fn forkless_cgroup_set(file: *const c_char, value: *const c_char) cgroup => {
        Ok(cgroup.set(utf8(file)?, utf8(value)?).map(|_| 0)?)
    };
    fn forkless_cgroup_get(file: *const c_char, text: *mut c_char, size: size_t) cgroup => {
        text_out(&cgroup.get(utf8(file)?)?, text, size)
    };
    fn forkless_cgroup_counter(file: *const c_char, name: *const c_char, value: *mut u64) cgroup => {
        give(value, || {
            let counters = cgroup.counters(utf8(file)?)?;
            counters.get(utf8(name)?).copied().ok_or(Failure::Refused(libc::ENOENT, "no such counter in that file"))
        })
    };
    fn forkless_cgroup_memory_peak(bytes: *mut u64) cgroup => give(bytes, || Ok(cgroup.memory_peak()?));
    fn forkless_cgroup_pids_peak(count: *mut u64) cgroup => give(count, || Ok(cgroup.pids_peak()?));
    fn forkless_cgroup_oom_kills(count: *mut u64) cgroup => give(count, || Ok(cgroup.oom_kills()?));
    fn forkless_cgroup_cpu_time(nanoseconds: *mut u64) cgroup => {
        give(nanoseconds, || Ok(cgroup.cpu_time()?.as_nanos() as u64))
    };
    fn forkless_cgroup_freeze() cgroup => Ok(cgroup.freeze().map(|()| 0)?);
    fn forkless_cgroup_thaw() cgroup => Ok(cgroup.thaw().map(|()| 0)?);
    fn forkless_cgroup_wait_frozen(timeout_ms: i64) cgroup => Ok(cgroup.wait_frozen(duration(timeout_ms))? as c_int);
    fn forkless_cgroup_wait_empty(timeout_ms: i64) cgroup => Ok(cgroup.wait_empty(duration(timeout_ms))? as c_int);
    fn forkless_cgroup_kill() cgroup => Ok(cgroup.kill().map(|()| 0)?);
    fn forkless_cgroup_signal(number: c_int) cgroup => Ok(cgroup.signal(number).map(|()| 0)?);
    fn forkless_cgroup_terminate(number: c_int, grace_ms: i64) cgroup => {
        Ok(cgroup.terminate(number, duration(grace_ms))? as c_int)
    };
}
