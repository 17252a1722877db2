//! Functions that start a program with one call, for `waitpid(2)`.

use crate::boundary::to_status;
use crate::error::{Failure, bad};
use crate::handle::{NULL, list, text, text_out};
use forkless::{Child, Command, Step, internal::Released};
use forkless_core::sys::{self, uapi};
use libc::{c_char, c_int, pid_t, size_t};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The name of a step.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_step_words(step: c_int, text: *mut c_char, size: size_t) -> c_int {
    // SAFETY: `text` is null or has `size` bytes (forkless.h).
    unsafe {
        to_status(NULL, || {
            let step = u32::try_from(step).ok().and_then(Step::of_code);
            text_out(step.ok_or(Failure::Refused(libc::ENOENT, "no such step"))?.describe(), text, size)
        })
    }
}

/// The version, as a string that lives as long as the process.
#[unsafe(no_mangle)]
extern "C" fn forkless_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Settings for a child that starts like one of libc's functions, except for its descriptors.
pub fn like_libc(command: &mut Command) -> &mut Command {
    command.signal_inherit(libc::SIGPIPE)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_spawn(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> pid_t {
    let run = || {
        // SAFETY: `path` is null or a string (forkless.h).
        let path = unsafe { text(path) }?;
        if path.is_empty() {
            return Err(Failure::Refused(libc::ENOENT, "the program's name is empty"));
        }
        // PATH is not searched, as with execve(2).
        let is_path = path.as_bytes().contains(&b'/');
        let mut program = OsString::from(if is_path { "" } else { "./" });
        program.push(path);
        // SAFETY: `argv` and `envp` are null or lists that end in a null pointer (forkless.h).
        unsafe { spawn(&program, argv, envp) }
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, run) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_spawnp(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> pid_t {
    // SAFETY: `file` is null or a string; `argv` and `envp` are null or lists that end in a null pointer (forkless.h).
    unsafe { to_status(NULL, || spawn(text(file)?, argv, envp)) }
}

/// # Safety
/// `argv` and `envp` are null or lists of strings that end in a null pointer.
unsafe fn spawn(program: &OsStr, argv: *const *const c_char, envp: *const *const c_char) -> Result<pid_t, Failure> {
    // SAFETY: the caller's contract.
    let argv = unsafe { list(argv) }?;
    let (name, args) = argv.split_first().ok_or(bad("the list of arguments is empty"))?;
    let mut command = Command::new(program);
    like_libc(&mut command).inherit_all(true).pidfd(false);
    if envp.is_null() {
        command.arg0(name).args(args);
    } else {
        let entries = (0..).map_while(|n| {
            // SAFETY: the caller's contract: all entries before the null pointer are strings.
            let text = unsafe { *envp.add(n) };
            // SAFETY: as above.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
        });
        let paths = places(program, entries.clone());
        command.exactly(paths, argv.iter().map(|&arg| arg.to_owned()).collect(), entries);
    }
    released(command.spawn()?)
}

/// Releases a child and returns its pid, for `waitpid(2)`.
pub(crate) fn released(child: Child) -> Result<pid_t, Failure> {
    match child.release()? {
        Released::Running { pid, .. } => Ok(pid),
        Released::Killed(_) => {
            Err(Failure::Refused(libc::ECANCELED, "the child was killed before it could run the program"))
        }
    }
}

/// The paths that `execvp(3)` would try in this environment.
fn places<'a>(file: &OsStr, mut environment: impl Iterator<Item = &'a CStr>) -> Vec<OsString> {
    let path = environment.find_map(|entry| entry.to_bytes().strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    // An empty name would be the directories themselves.
    if file.is_empty() || file.as_bytes().contains(&b'/') { vec![file.to_owned()] } else { places_in(path, file) }
}

/// The directories that `execvp(3)` searches without PATH.
pub const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// The file in each directory of a PATH, without directories longer than PATH_MAX; an empty one is the working
/// directory.
pub fn places_in(path: &[u8], file: &OsStr) -> Vec<OsString> {
    const PATH_MAX: usize = 4096;
    let place = |directory: &[u8]| {
        let mut place = OsStr::from_bytes(directory).to_owned();
        if !directory.is_empty() {
            place.push("/");
        }
        place.push(file);
        place
    };
    path.split(|&byte| byte == b':').filter(|directory| directory.len() < PATH_MAX).map(place).collect()
}

#[unsafe(no_mangle)]
extern "C" fn forkless_fd_inherit(fd: c_int, on: c_int) -> c_int {
    let set = || {
        let failed = |errno| Failure::Io(std::io::Error::from_raw_os_error(errno));
        let flags = sys::descriptor_flags(fd).map_err(failed)?;
        let flags = if on != 0 { flags & !libc::FD_CLOEXEC } else { flags | libc::FD_CLOEXEC };
        // SAFETY: F_SETFD takes a number, and changes only the flags of the descriptor.
        unsafe { sys::fcntl(fd, uapi::F_SETFD, flags as usize) }.map(|_| 0).map_err(failed)
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, set) }
}
