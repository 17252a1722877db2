//! The functions of a child handle.

use crate::boundary::to_status;
use crate::error::{self, Error, Failure, bad};
use crate::handle::{self, Handle, NULL, duration, give, limit};
use crate::output::{LimitEvents, OutputHandle, Usage};
use crate::simple::released;
use forkless::{Change, Child, Route};
use libc::{c_char, c_int, pid_t, size_t};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;

/// A status as of `waitpid(2)`.
pub(crate) fn raw(status: std::io::Result<std::process::ExitStatus>) -> Result<c_int, Failure> {
    Ok(status?.into_raw())
}

/// `None` only while a wait set or forkless_child_release takes the child out, before the handle is freed.
pub(crate) type ChildHandle = Handle<Option<Child>>;

/// # Safety
/// As for [`handle::with`].
pub(crate) unsafe fn with<R>(
    child: *const ChildHandle,
    work: impl FnOnce(&mut Child) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::with(child, |child| work(child.as_mut().ok_or(IN_SET)?)) }
}

/// Defines functions of a child: their parameters and their work.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) $error:expr, $child:ident => $work:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(child: *mut ChildHandle, $($arg: $kind),*) -> c_int {
            // SAFETY: `child` is null or live; other pointers are null or writable, `text` for `size` bytes (forkless.h).
            unsafe { to_status($error, || with(child, |$child| $work)) }
        }
    )* };
}

methods! {
    fn forkless_child_pidfd() NULL, child => child.pidfd().map(|fd| fd.as_raw_fd()).ok_or(NO_FD);
    fn forkless_child_fd(child_fd: c_int) NULL, child => pipe(child, child_fd);
    fn forkless_child_take_fd(child_fd: c_int) NULL, child => take(child, child_fd);
    fn forkless_child_take_handed_back() NULL, child => {
        child.take_handed_back()?.map(OwnedFd::into_raw_fd).ok_or(NO_FD)
    };
    fn forkless_child_route(text: *mut c_char, size: size_t) NULL, child => {
        handle::text_out(&child.route().to_string(), text, size)
    };
    fn forkless_child_cold_reason(text: *mut c_char, size: size_t) NULL, child => {
        handle::text_out(child.cold_reason().ok_or(NO_REASON)?, text, size)
    };
    fn forkless_child_launcher() NULL, child => Ok(launcher(child.route()));
    fn forkless_child_usage(usage: *mut Usage) NULL, child => {
        give(usage, || child.usage().map(Usage::of).ok_or(Failure::Refused(libc::ENODATA, "the child has not been waited for")))
    };
    fn forkless_child_limit_events(events: *mut LimitEvents) NULL, child => {
        const NONE: Failure = Failure::Refused(libc::ENODATA, "the child has no limits, or has not been waited for");
        give(events, || child.limit_events().map(LimitEvents::of).ok_or(NONE))
    };
    fn forkless_child_skipped(index: size_t, skipped: *mut Error) NULL, child => match child.skipped().get(index) {
        Some(one) => give(skipped, || Ok(error::skipped_step(one))).map(|_| 1),
        None => Ok(0),
    };
    fn forkless_child_kill_on_free(on: c_int) NULL, child => {
        child.kill_on_drop(on != 0);
        Ok(0)
    };
    fn forkless_child_wait_exec(timeout_ms: i64, error: *mut Error) error, child => match limit(timeout_ms) {
        Some(limit) => Ok(child.wait_exec_timeout(limit)? as c_int),
        None => Ok(child.wait_exec().map(|()| 1)?),
    };
    fn forkless_child_wait(status: *mut c_int, error: *mut Error) error, child => give(status, || raw(child.wait()));
    fn forkless_child_try_wait(status: *mut c_int, error: *mut Error) error, child => {
        ended(status, || Ok(child.try_wait()?.map(ExitStatusExt::into_raw)))
    };
    fn forkless_child_wait_timeout(timeout_ms: i64, status: *mut c_int, error: *mut Error) error, child => {
        ended(status, || match limit(timeout_ms) {
            Some(limit) => Ok(child.wait_timeout(limit)?.map(ExitStatusExt::into_raw)),
            // No timeout, as in the other functions. Unlike `wait`, this leaves the child's standard input open.
            None => loop {
                if let Some(status) = child.wait_timeout(duration(timeout_ms))? {
                    break Ok(Some(status.into_raw()));
                }
            },
        })
    };
    fn forkless_child_wait_change(timeout_ms: i64, status: *mut c_int, error: *mut Error) error, child => {
        ended(status, || Ok(child.wait_change(limit(timeout_ms))?.map(change)))
    };
    fn forkless_child_kill() NULL, child => Ok(child.kill().map(|()| 0)?);
    fn forkless_child_signal(number: c_int) NULL, child => Ok(child.signal(number).map(|()| 0)?);
    fn forkless_child_signal_group(number: c_int) NULL, child => Ok(child.signal_group(number).map(|()| 0)?);
    fn forkless_child_terminate(number: c_int, grace_ms: i64, status: *mut c_int, error: *mut Error) error, child => {
        give(status, || raw(child.terminate(number, duration(grace_ms))))
    };
    fn forkless_child_terminate_group(
        number: c_int, grace_ms: i64, status: *mut c_int, error: *mut Error
    ) error, child => give(status, || raw(child.terminate_group(number, duration(grace_ms))));
    fn forkless_child_output(output: *mut *mut OutputHandle, error: *mut Error) error, child => {
        give(output, || read(child))
    };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_child_pid(child: *mut ChildHandle) -> pid_t {
    // SAFETY: `child` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || with(child, |child| Ok(child.id() as pid_t))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_child_release(child: *mut ChildHandle) -> pid_t {
    let release = || {
        // SAFETY: `child` is null or a live handle (forkless.h).
        let given_up = unsafe { handle::with(child, |child| child.take().ok_or(IN_SET)) }?;
        // SAFETY: `child` is a live handle, now empty, that the caller does not use afterwards (forkless.h).
        unsafe { handle::free(child) };
        released(given_up)
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, release) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_child_free(child: *mut ChildHandle) {
    // SAFETY: `child` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { handle::free(child) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_reap_orphans() -> size_t {
    let mut left = 0;
    crate::boundary::quietly(|| left = forkless::reap_orphans());
    left
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_set_dumpable(dumpable: c_int) -> c_int {
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, || Ok(forkless::set_dumpable(dumpable != 0).map(|()| 0)?)) }
}

const IN_SET: Failure = Failure::Refused(libc::EINVAL, "the child is in a wait set");

/// The FORKLESS_LAUNCHER_ number of a route.
fn launcher(route: Route) -> c_int {
    match route {
        Route::Fork { .. } => 1,
        Route::PosixSpawn { .. } => 2,
        Route::Zygote { .. } => 4,
        Route::Warm => 5,
        _ => 0,
    }
}

const NO_REASON: Failure =
    Failure::Refused(libc::ENOENT, "the launch was warm, or the command has no set of templates");

const NO_FD: Failure = Failure::Refused(libc::ENOENT, "the child has no such descriptor");

/// The caller's end of a pipe, which the handle keeps.
fn pipe(child: &Child, number: c_int) -> Result<c_int, Failure> {
    let fd = match number {
        0 => child.stdin.as_ref().map(AsRawFd::as_raw_fd),
        1 => child.stdout.as_ref().map(AsRawFd::as_raw_fd),
        2 => child.stderr.as_ref().map(AsRawFd::as_raw_fd),
        _ => None,
    };
    fd.ok_or(NO_FD)
}

/// The caller's end of a pipe or of a socket pair, which the caller then owns.
fn take(child: &mut Child, number: c_int) -> Result<c_int, Failure> {
    let pipe = match number {
        0 => child.stdin.take().map(OwnedFd::from),
        1 => child.stdout.take().map(OwnedFd::from),
        2 => child.stderr.take().map(OwnedFd::from),
        _ => None,
    };
    pipe.or_else(|| child.take_socket(number)).map(OwnedFd::into_raw_fd).ok_or(NO_FD)
}

/// Returns 1 and the status, or 0 if there is none yet.
///
/// # Safety
/// `status` is null or a valid pointer.
unsafe fn ended(status: *mut c_int, work: impl FnOnce() -> Result<Option<c_int>, Failure>) -> Result<c_int, Failure> {
    if status.is_null() {
        return Err(bad("the pointer to the result is null"));
    }
    let Some(found) = work()? else { return Ok(0) };
    // SAFETY: the caller's contract.
    unsafe { status.write(found) };
    Ok(1)
}

/// The status as of `waitpid(2)`, for `WIFSTOPPED` and similar macros.
fn change(change: Change) -> c_int {
    match change {
        Change::Stopped(signal) => signal << 8 | 0x7f,
        Change::Ended(status) => status.into_raw(),
        _ => 0xffff,
    }
}

/// Reads the pipes until end of file, and waits.
fn read(child: &mut Child) -> Result<*mut OutputHandle, Failure> {
    let output = child.read_to_end()?;
    Ok(OutputHandle::plain(output.status, output.stdout, output.stderr, Some(child)))
}
