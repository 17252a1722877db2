//! Commands: programs, arguments, environment, descriptors, signals.

use crate::boundary::to_status;
use crate::error::{Failure, bad};
use crate::handle::{self, Handle, NULL, copy, give, list, number, out, shared, signal, text};
use forkless::{Command, Stdio};
use libc::{c_char, c_int, mode_t, pid_t};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::Duration;

/// Defines setters of a command: their names, parameters, and their work. The first parameter of each is the handle, and the
/// result is 0 or a negative errno.
macro_rules! setters {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) $command:ident => $work:block)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(command: *mut $crate::command::Settable, $($arg: $kind),*) -> c_int {
            // SAFETY: handles are null or live; other pointers are null, or strings, lists or arrays (forkless.h).
            unsafe {
                to_status(NULL, || {
                    $crate::command::set(command, |$command| {
                        $work
                        Ok(0)
                    })
                })
            }
        }
    )* };
}

pub(crate) use setters;

/// A command, and the first failure of a setter: after that the command is not run. `refused` is beside the lock, because a
/// setter also fails while another thread holds it.
pub(crate) struct Settable {
    command: Handle<Command>,
    refused: OnceLock<(c_int, String)>,
}

impl Settable {
    fn new(command: Command) -> Self {
        Self { command: Handle::new(command), refused: OnceLock::new() }
    }
}

/// Changes a command. All setters do so by this function.
///
/// # Safety
/// As for [`handle::with`].
pub(crate) unsafe fn set(
    command: *const Settable,
    work: impl FnOnce(&mut Command) -> Result<c_int, Failure>,
) -> Result<c_int, Failure> {
    // SAFETY: the caller's contract.
    let Settable { command, refused } = unsafe { shared(command) }?;
    // SAFETY: a reference is a valid pointer.
    unsafe { handle::with(command, work) }.inspect_err(|failure| {
        refused.get_or_init(|| (failure.errno(), failure.to_string()));
    })
}

/// Runs or prepares a command, unless a setter has failed. All functions that do so call this one.
///
/// # Safety
/// As for [`handle::with`].
pub(crate) unsafe fn run<R>(
    command: *const Settable,
    work: impl FnOnce(&mut Command) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: the caller's contract.
    let Settable { command, refused } = unsafe { shared(command) }?;
    if let Some((errno, text)) = refused.get() {
        return Err(Failure::Before(*errno, text.clone()));
    }
    // SAFETY: a reference is a valid pointer.
    unsafe { handle::with(command, work) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_command_new(program: *const c_char, command: *mut *mut Settable) -> c_int {
    // SAFETY: `program` is null or a string; `command` is null or writable (forkless.h).
    unsafe { to_status(NULL, || give(command, || Ok(out(Settable::new(Command::new(text(program)?)))))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_command_new_argv(argv: *const *const c_char, command: *mut *mut Settable) -> c_int {
    let make = || {
        // SAFETY: `argv` is null or a list that ends in a null pointer (forkless.h).
        let argv = unsafe { list(argv) }?;
        let (program, args) = argv.split_first().ok_or(bad("the list of arguments is empty"))?;
        let mut command = Command::new(program);
        command.args(args);
        Ok(out(Settable::new(command)))
    };
    // SAFETY: `command` is null or writable (forkless.h).
    unsafe { to_status(NULL, || give(command, make)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_command_free(command: *mut Settable) {
    // SAFETY: `command` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { handle::free(command) };
}

/// Checks the name of an environment variable.
fn variable(name: &OsStr) -> Result<&OsStr, Failure> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(bad("the name of a variable is empty or has a = in it"));
    }
    Ok(name)
}

/// Sets the child's whole environment. As with `getenv(3)`, the first entry of a name counts; entries without a name
/// are left out.
pub(crate) fn set_environment(command: &mut Command, envp: &[&OsStr]) {
    command.env_clear();
    let entries: Vec<_> = envp.iter().rev().copied().collect();
    for entry in &entries {
        let bytes = entry.as_bytes();
        if let Some(end) = bytes.iter().position(|&byte| byte == b'=').filter(|&end| end > 0) {
            command.env(OsStr::from_bytes(&bytes[..end]), OsStr::from_bytes(&bytes[end + 1..]));
        }
    }
}

setters! {
    fn forkless_command_or_else(program: *const c_char) command => {
        command.or_else(text(program)?);
    }

    fn forkless_command_program_fd(fd: c_int) command => {
        command.program_fd(copy(fd)?);
    }

    fn forkless_command_arg(arg: *const c_char) command => {
        command.arg(text(arg)?);
    }

    fn forkless_command_args(args: *const *const c_char) command => {
        command.args(list(args)?);
    }

    fn forkless_command_arg0(arg0: *const c_char) command => {
        command.arg0(text(arg0)?);
    }

    fn forkless_command_env(name: *const c_char, value: *const c_char) command => {
        command.env(variable(text(name)?)?, text(value)?);
    }

    fn forkless_command_env_remove(name: *const c_char) command => {
        command.env_remove(variable(text(name)?)?);
    }

    fn forkless_command_env_clear() command => {
        command.env_clear();
    }

    fn forkless_command_envs(envp: *const *const c_char) command => {
        set_environment(command, &list(envp)?);
    }

    fn forkless_command_current_dir(path: *const c_char) command => {
        command.current_dir(text(path)?);
    }

    fn forkless_command_fd(child_fd: c_int, fd: c_int) command => {
        command.fd(Stdio::fd(number(fd)?), number(child_fd)?);
    }

    fn forkless_command_fd_inherit(child_fd: c_int) command => {
        command.fd(Stdio::inherit(), number(child_fd)?);
    }

    fn forkless_command_fd_null(child_fd: c_int) command => {
        command.fd(Stdio::null(), number(child_fd)?);
    }

    fn forkless_command_fd_pipe(child_fd: c_int) command => {
        if !(0..=2).contains(&child_fd) {
            return Err(bad("pipes are supported at 0, 1 and 2 only: use a socket pair for other descriptors"));
        }
        command.fd(Stdio::piped(), child_fd);
    }

    fn forkless_command_fd_socketpair(child_fd: c_int) command => {
        command.fd(Stdio::socketpair(), number(child_fd)?);
    }

    fn forkless_command_fd_dup(child_fd: c_int, of_child_fd: c_int) command => {
        command.fd(Stdio::dup_of(number(of_child_fd)?), number(child_fd)?);
    }

    fn forkless_command_fd_open(child_fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) command => {
        command.fd(Stdio::open(text(path)?, flags, mode), number(child_fd)?);
    }

    fn forkless_command_inherit_all(on: c_int) command => {
        command.inherit_all(on != 0);
    }

    fn forkless_command_setsid(on: c_int) command => {
        command.setsid(on != 0);
    }

    fn forkless_command_process_group(group: pid_t) command => {
        if group < 0 {
            return Err(bad("negative process group"));
        }
        command.process_group(group);
    }

    fn forkless_command_signal_default(number: c_int) command => {
        command.signal_default(signal(number)?);
    }

    fn forkless_command_signal_ignore(number: c_int) command => {
        command.signal_ignore(signal(number)?);
    }

    fn forkless_command_signal_inherit(number: c_int) command => {
        command.signal_inherit(signal(number)?);
    }

    fn forkless_command_signal_block(number: c_int) command => {
        command.signal_block(signal(number)?);
    }

    fn forkless_command_inherit_signal_mask(on: c_int) command => {
        command.inherit_signal_mask(on != 0);
    }

    fn forkless_command_pidfd(on: c_int) command => {
        command.pidfd(on != 0);
    }

    fn forkless_command_keep_record_locks(on: c_int) command => {
        command.keep_record_locks(on != 0);
    }

    fn forkless_command_kill_on_free(on: c_int) command => {
        command.kill_on_drop(on != 0);
    }

    fn forkless_command_autoreap(on: c_int) command => {
        command.autoreap(on != 0);
    }

    fn forkless_command_pidfd_autokill(on: c_int) command => {
        command.pidfd_autokill(on != 0);
    }

    fn forkless_command_retry_busy(limit_ms: u32) command => {
        command.retry_busy(Duration::from_millis(limit_ms.into()));
    }

    fn forkless_command_scripts_by_shell(on: c_int) command => {
        command.scripts_by_shell(on != 0);
    }
}
