//! `system(3)`: what stands before and after its wait, which is in `c/system.c`.

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

/// A line that runs, while its caller waits.
struct Running {
    child: ShellChild,
    _waiting: Waiting,
}

/// Starts it; 0 if there is nothing to wait for, and the answer is known.
///
/// # Safety
/// `line` is as `system(3)` says; the others are places.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_preload_system_begin(
    line: *const c_char,
    answer: *mut c_int,
    running: *mut *mut Running,
    pid: *mut pid_t,
) -> c_int {
    // SAFETY: the caller's.
    let line = unsafe { optional(line) };
    let Some(line) = line else {
        // SAFETY: the caller's place.
        unsafe { answer.write(has_shell() as c_int) };
        return 0;
    };
    match shielded(|| begin(line)) {
        Ok(Ok(mut started)) => {
            // SAFETY: the caller's places.
            unsafe {
                pid.write(started.child.handle().id() as pid_t);
                running.write(Box::into_raw(Box::new(started)));
            }
            1
        }
        Ok(Err(known)) => {
            // SAFETY: the caller's place.
            unsafe { answer.write(known) };
            0
        }
        Err(failure) => {
            set_errno(failure.errno());
            // SAFETY: the caller's place.
            unsafe { answer.write(-1) };
            0
        }
    }
}

/// A running line, or what `system(3)` is to answer at once.
fn begin(line: &OsStr) -> Result<Result<Running, c_int>, Failure> {
    let story = Story::begin();
    let mut line = (line, shell(line));
    let waiting = Waiting::begin();
    let settings = line.1.settings();
    waiting.ready(settings);
    // By number, unless the kernel forgets how children end.
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
        // A shell that cannot be executed is one that has ended with 127.
        Err(error) if forkless::Error::of(&error).is_some_and(|detail| detail.step() == Step::Exec) => {
            Ok(Err(127 << 8))
        }
        // One that was killed before it could begin has been killed.
        Err(error) => match killed_by(&error) {
            Some(signal) => Ok(Err(signal)),
            None => Err(error.into()),
        },
    }
}

/// The answer, after the line has ended.
///
/// # Safety
/// From [`forkless_preload_system_begin`], and not used any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_preload_system_end(running: *mut Running) -> c_int {
    // SAFETY: the caller's.
    let mut running = unsafe { Box::from_raw(running) };
    as_libc(-1, || Ok(running.child.wait()?.into_raw()))
}

/// The thread is cancelled: the line is killed, and nothing of it is left.
///
/// # Safety
/// As for [`forkless_preload_system_end`].
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_preload_system_cancelled(running: *mut Running) {
    // SAFETY: the caller's.
    let mut running = unsafe { Box::from_raw(running) };
    let _ = shielded(|| {
        if !planted!("preload-cancelled-line-goes-on") {
            running.child.handle().kill()?;
        }
        Ok(running.child.handle().wait().map(drop)?)
    });
}

/// Does libc do it?
#[unsafe(no_mangle)]
extern "C" fn forkless_preload_system_of_libc() -> Option<unsafe extern "C" fn(*const c_char) -> c_int> {
    next::system().filter(|_| Settings::get().off)
}
