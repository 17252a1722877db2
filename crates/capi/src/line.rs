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

/// How the line was started, and what the shell would make of its program's status.
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
        // SAFETY: the header's contract.
        return unsafe { to_status(error, || Err(bad("the pointer to the result is null"))) };
    }
    let spawn = |command: &mut Command| {
        let (made, route) = of_command(command, |line| {
            let made = line.spawn_kept()?.into_parts();
            Ok((made, line.taken().map(ToString::to_string).unwrap_or_default()))
        })?;
        // SAFETY: checked above, and the header's contract.
        unsafe {
            child.write(run::child(Ok(made.0))?);
            ending.write(handle::out(LineEnding { ending: made.1, route }));
        }
        Ok(0)
    };
    // SAFETY: the header's contract.
    unsafe { to_status(error, || command::run(command, spawn)) }
}

/// Works with the command as a line. Afterwards it is a command again.
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
        // SAFETY: the header's contract.
        let ending = &unsafe { shared(ending) }?.ending;
        let program = ExitStatus::from_raw(program);
        if !ending.has_room(program)? {
            return Err(Failure::Refused(libc::EAGAIN, "the pipe is full: read it first"));
        }
        Ok(ending.status(program)?.into_raw())
    };
    // SAFETY: the header's contract.
    unsafe { to_status(error, || give(status, translate)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_ending_route(ending: *const LineEnding, text: *mut c_char, size: size_t) -> c_int {
    // SAFETY: the header's contract.
    unsafe { to_status(NULL, || handle::text_out(&shared(ending)?.route, text, size)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_ending_free(ending: *mut LineEnding) {
    // SAFETY: the header's contract.
    unsafe { free(ending) };
}
