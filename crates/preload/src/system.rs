//! `system(3)`: the parts before and after the wait, which is in `c/system.c`.

use crate::inherit;
use crate::log::Story;
use crate::next;
use crate::popen::killed_by;
use crate::settings::Settings;
use crate::spawn::RESERVED;
use forkless::planted;
use forkless::{ShellChild, Step};
use forkless_capi::boundary::{as_libc, set_errno, shielded};
use forkless_capi::error::Failure;
use forkless_capi::handle::optional;
use forkless_capi::stream::shell;
use forkless_capi::system::{Waiting, has_shell};
use libc::{c_char, c_int, pid_t};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;

/// A running command line, for which the caller waits.
struct Running {
    child: ShellChild,
    _waiting: Waiting,
}

/// Starts the line. Returns the pid, or 0 if the result is already known and stored.
///
/// # Safety
/// `line` is as `system(3)` says; the others are pointers to results.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_preload_system_begin(
    line: *const c_char,
    answer: *mut c_int,
    running: *mut *mut Running,
    pid: *mut pid_t,
) -> c_int {
    // SAFETY: the caller's contract.
    let line = unsafe { optional(line) };
    let Some(line) = line else {
        // SAFETY: a valid pointer of the caller.
        unsafe { answer.write(has_shell() as c_int) };
        return 0;
    };
    match shielded(|| begin(line)) {
        Ok(Ok(mut started)) => {
            // SAFETY: valid pointers of the caller.
            unsafe {
                pid.write(started.child.handle().id() as pid_t);
                running.write(Box::into_raw(Box::new(started)));
            }
            1
        }
        Ok(Err(known)) => {
            // SAFETY: a valid pointer of the caller.
            unsafe { answer.write(known) };
            0
        }
        Err(failure) => {
            set_errno(failure.errno());
            // SAFETY: a valid pointer of the caller.
            unsafe { answer.write(-1) };
            0
        }
    }
}

/// A running line, or the immediate result of `system(3)`.
fn begin(line: &OsStr) -> Result<Result<Running, c_int>, Failure> {
    let story = Story::begin();
    let mut line = (line, shell(line));
    let waiting = Waiting::begin();
    let settings = line.1.settings();
    waiting.ready(settings);
    // Wait by pid, unless the kernel discards exit statuses (SIGCHLD is ignored).
    settings.pidfd(forkless_capi::stream::forgets());
    inherit::by_setting(settings, &Settings::get().inherit, |_| false);
    inherit::spare(settings, Settings::get());
    for signal in RESERVED {
        settings.signal_ignore(signal);
    }
    match line.1.spawn() {
        Ok(mut child) => {
            story.end("system", line.0, line.1.taken(), child.handle());
            Ok(Ok(Running { child, _waiting: waiting }))
        }
        // If the shell cannot be executed, the status is that of a shell that exited with 127.
        Err(error) if forkless::Error::of(&error).is_some_and(|detail| detail.step() == Step::Exec) => {
            Ok(Err(127 << 8))
        }
        // A child that was killed before it could begin counts as killed by that signal.
        Err(error) => match killed_by(&error) {
            Some(signal) => Ok(Err(signal)),
            None => Err(error.into()),
        },
    }
}

/// The result, after the line has ended.
///
/// # Safety
/// From [`forkless_preload_system_begin`], and not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_preload_system_end(running: *mut Running) -> c_int {
    // SAFETY: the caller's contract.
    let mut running = unsafe { Box::from_raw(running) };
    as_libc(-1, || Ok(running.child.wait()?.into_raw()))
}

/// The thread is cancelled: kills the line's program and reaps it.
///
/// # Safety
/// As for [`forkless_preload_system_end`].
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_preload_system_cancelled(running: *mut Running) {
    // SAFETY: the caller's contract.
    let mut running = unsafe { Box::from_raw(running) };
    let _ = shielded(|| {
        if !planted!("preload-cancelled-line-goes-on") {
            running.child.handle().kill()?;
        }
        Ok(running.child.handle().wait().map(drop)?)
    });
}

/// libc's `system`, if FORKLESS leaves calls to libc; else null.
#[unsafe(no_mangle)]
extern "C" fn forkless_preload_system_of_libc() -> Option<unsafe extern "C" fn(*const c_char) -> c_int> {
    next::system().filter(|_| Settings::get().off)
}
