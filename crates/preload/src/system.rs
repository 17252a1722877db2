//! `system(3)`: the parts before and after the wait, which is in `c/system.c`.

use crate::inherit;
use crate::log::Story;
use crate::next;
use crate::popen::has_room;
use crate::sealed::{Mask, sealed};
use crate::settings::Settings;
use crate::spawn::{killed_by, reserve};
use forkless::ShellChild;
use forkless_capi::boundary::{as_libc, set_errno, shielded};
use forkless_capi::error::Failure;
use forkless_capi::handle::optional;
use forkless_capi::stream::shell;
use forkless_capi::system::{Waiting, has_shell};
use forkless_core::sys::signal::bit;
use libc::{c_char, c_int, pid_t};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;

/// A running command line, for which the caller waits.
struct Running {
    child: ShellChild,
    _waiting: Waiting,
    /// The caller's signal mask.
    mask: u64,
}

/// libc's function.
type System = unsafe extern "C" fn(*const c_char) -> c_int;

/// Starts the line. Returns 1 and stores the pid; SIGCHLD then stays blocked. Or returns 0, and stores the result if it is
/// already known, or libc's function if the call is left to libc.
///
/// # Safety
/// `line` is as `system(3)` requires; the other pointers are writable.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn forkless_preload_system_begin(
    line: *const c_char,
    answer: *mut c_int,
    running: *mut *mut Running,
    pid: *mut pid_t,
    of_libc: *mut Option<System>,
) -> c_int {
    sealed(|mask| {
        if let Some(theirs) = Settings::get().off.then(next::system).flatten() {
            // SAFETY: a valid pointer of the caller.
            unsafe { of_libc.write(Some(theirs)) };
            return 0;
        }
        // SAFETY: the caller's contract.
        let Some(line) = (unsafe { optional(line) }) else {
            // SAFETY: a valid pointer of the caller.
            unsafe { answer.write(has_shell() as c_int) };
            return 0;
        };
        let known = match shielded(|| begin(line, mask)) {
            Ok(Ok(mut started)) => {
                mask.give_back(mask.before() | bit(libc::SIGCHLD));
                // SAFETY: valid pointers of the caller.
                unsafe {
                    pid.write(started.child.handle().id() as pid_t);
                    running.write(Box::into_raw(Box::new(started)));
                }
                return 1;
            }
            Ok(Err(signal)) => signal,
            // A bug of this library, and the line may have run: it must not run twice.
            Err(failure) if failure.errno() == libc::ENOTRECOVERABLE => {
                set_errno(libc::ENOTRECOVERABLE);
                127 << 8
            }
            // libc makes the call again: it needs less memory, and what it returns on failure differs by its version.
            Err(failure) => {
                if failure.errno() != libc::ENOMEM {
                    Story::begin().left("system", "it failed here");
                }
                // SAFETY: a valid pointer of the caller.
                unsafe { of_libc.write(next::system()) };
                127 << 8
            }
        };
        // SAFETY: a valid pointer of the caller.
        unsafe { answer.write(known) };
        0
    })
}

/// A running line, or the immediate result of `system(3)`.
fn begin(line: &OsStr, mask: &Mask) -> Result<Result<Running, c_int>, Failure> {
    has_room(line)?;
    let story = Story::begin();
    let mut line = (line, shell(line));
    let waiting = Waiting::begin_blocked();
    let settings = line.1.settings();
    waiting.ready(settings);
    mask.ready(settings);
    // Wait by pid, unless the kernel discards exit statuses (SIGCHLD is ignored).
    settings.pidfd(forkless_capi::stream::is_status_discarded());
    inherit::by_setting(settings, &Settings::get().inherit, |_| false);
    inherit::spare(settings, Settings::get());
    reserve(settings);
    match line.1.spawn() {
        Ok(mut child) => {
            story.end("system", line.0, line.1.taken(), child.handle());
            Ok(Ok(Running { child, _waiting: waiting, mask: mask.before() }))
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
unsafe extern "C-unwind" fn forkless_preload_system_end(running: *mut Running) -> c_int {
    sealed(|mask| {
        // SAFETY: the caller's contract.
        let mut running = unsafe { Box::from_raw(running) };
        mask.give_back(running.mask);
        as_libc(-1, || Ok(running.child.wait()?.into_raw()))
    })
}

/// The thread is cancelled: kills the line's program and reaps it.
///
/// # Safety
/// As for [`forkless_preload_system_end`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn forkless_preload_system_cancelled(running: *mut Running) {
    sealed(|mask| {
        // SAFETY: the caller's contract.
        let mut running = unsafe { Box::from_raw(running) };
        mask.give_back(running.mask);
        let _ = shielded(|| {
            running.child.handle().kill()?;
            Ok(running.child.handle().wait().map(drop)?)
        });
    });
}
