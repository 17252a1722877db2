//! Lines for a shell, which run without it where the result is the same.

use crate::boundary::to_status;
use crate::child::ChildHandle;
use crate::command::{self, Settable};
use crate::error::{Error, Failure, bad};
use crate::handle::{self, NULL, free, give, shared};
use crate::run;
use forkless::{Command, ShellCommand, ShellEnding};
use libc::{c_char, c_int, size_t};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How the line was started, and the translation of its program's status to the shell's.
pub(crate) struct LineEnding {
    ending: ShellEnding,
    route: String,
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_command_spawn_line(
    command: *mut Settable,
    child: *mut *mut ChildHandle,
    ending: *mut *mut LineEnding,
    error: *mut Error,
) -> c_int {
    if child.is_null() || ending.is_null() {
        // SAFETY: `error` is null or writable (forkless.h).
        return unsafe { to_status(error, || Err(bad("the pointer to the result is null"))) };
    }
    let spawn = |command: &mut Command| {
        let (made, route) = of_command(command, |line| {
            let made = line.spawn_kept()?.into_parts();
            Ok((made, line.taken().map(ToString::to_string).unwrap_or_default()))
        })?;
        // SAFETY: neither is null (checked above), so both are writable (forkless.h).
        unsafe {
            child.write(run::child(Ok(made.0))?);
            ending.write(handle::out(LineEnding { ending: made.1, route }));
        }
        Ok(0)
    };
    // SAFETY: `command` is null or a live handle; `error` is null or writable (forkless.h).
    unsafe { to_status(error, || command::run(command, spawn)) }
}

/// Calls `work` with the command as a line, and then turns the line back into the command.
fn of_command<T>(
    command: &mut Command,
    work: impl FnOnce(&mut ShellCommand) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match ShellCommand::of(std::mem::replace(command, Command::new(""))) {
        Ok(mut line) => {
            let done = work(&mut line);
            std::mem::swap(command, line.settings());
            done
        }
        Err(other) => {
            *command = *other;
            Err(bad("not the path of a shell with the arguments -c and a line"))
        }
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_ending_status(
    ending: *const LineEnding,
    program: c_int,
    status: *mut c_int,
    error: *mut Error,
) -> c_int {
    let translate = || {
        // SAFETY: `ending` is null or a live handle (forkless.h).
        let ending = &unsafe { shared(ending) }?.ending;
        let program = ExitStatus::from_raw(program);
        if !ending.has_room(program)? {
            return Err(Failure::Refused(libc::EAGAIN, "standard error's pipe is full: read from it and try again"));
        }
        Ok(ending.status(program)?.into_raw())
    };
    // SAFETY: `status` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || give(status, translate)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_ending_route(ending: *const LineEnding, text: *mut c_char, size: size_t) -> c_int {
    // SAFETY: `ending` is null or a live handle; `text` is null or has `size` bytes (forkless.h).
    unsafe { to_status(NULL, || handle::text_out(&shared(ending)?.route, text, size)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_ending_free(ending: *mut LineEnding) {
    // SAFETY: `ending` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { free(ending) };
}
