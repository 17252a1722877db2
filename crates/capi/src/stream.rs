//! Streams to and from programs: `popen(3)` and similar functions.

use crate::boundary::{as_libc, to_status};
use crate::error::{Failure, bad};
use crate::handle::{NULL, list, text};
use crate::simple::like_libc;
use forkless::{Child, Command, ShellChild, ShellCommand, Stdio};
use libc::{FILE, c_char, c_int};
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr::null_mut;

pub mod table;

use table::Entry;

const STDERR_NULL: c_int = 1;
const STDERR_MERGE: c_int = 2;

/// A command line, which runs without a shell if the result is the same, started as libc starts it.
pub fn shell(line: &OsStr) -> ShellCommand {
    let line = line.as_bytes();
    let is_like_option = matches!(line.first(), Some(b'-' | b'+'));
    let mut command = if is_like_option { forkless::shell([b" ", line].concat()) } else { forkless::shell(line) };
    like_libc(command.settings());
    command
}

/// The child of a stream.
pub enum Running {
    /// A child with a list of arguments.
    Program(Child),
    /// A child of a command line.
    Line(ShellChild),
}

impl Running {
    /// The child itself.
    pub fn handle(&mut self) -> &mut Child {
        match self {
            Self::Program(child) => child,
            Self::Line(line) => line.handle(),
        }
    }

    /// Waits for its end and returns the status.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Program(child) => child.wait(),
            Self::Line(line) => line.wait(),
        }
    }
}

/// The direction of a stream, with the mode for `fdopen(3)`.
#[derive(Clone, Copy)]
pub enum End {
    /// The caller reads what the program writes.
    Reads,
    /// The program reads what the caller writes.
    Writes,
}

impl End {
    /// `r` or `w`, and optionally `e`, which is the default here.
    ///
    /// # Safety
    /// `mode` is null or a string.
    pub(crate) unsafe fn of(mode: *const c_char) -> Result<Self, Failure> {
        // SAFETY: the caller's contract.
        match unsafe { text(mode) }?.as_encoded_bytes() {
            b"r" | b"re" | b"er" => Ok(Self::Reads),
            b"w" | b"we" | b"ew" => Ok(Self::Writes),
            _ => Err(bad("the mode is neither r nor w")),
        }
    }

    fn mode(self) -> &'static CStr {
        match self {
            Self::Reads => c"r",
            Self::Writes => c"w",
        }
    }
}

/// A stream for a descriptor. If it cannot be opened, the descriptor is closed. It is byte-oriented, as that of libc's
/// `popen(3)`.
pub struct Stream(*mut FILE);

unsafe extern "C" {
    /// `fwide(3)`, which the libc crate leaves out.
    fn fwide(stream: *mut FILE, mode: c_int) -> c_int;
}

impl Stream {
    /// Opens a stream of the caller's end.
    pub fn open(fd: Option<OwnedFd>, end: End) -> Result<Self, Failure> {
        let fd = fd.ok_or(bad("no pipe"))?.into_raw_fd();
        // SAFETY: a descriptor that this function owns, and a mode.
        let stream = unsafe { libc::fdopen(fd, end.mode().as_ptr()) };
        if !stream.is_null() {
            // SAFETY: a stream that this function owns.
            unsafe { fwide(stream, -1) };
            return Ok(Self(stream));
        }
        let error = io::Error::last_os_error();
        // SAFETY: no stream owns the descriptor.
        unsafe { libc::close(fd) };
        Err(error.into())
    }

    /// The stream, which this object still owns.
    pub fn get(&self) -> *mut FILE {
        self.0
    }

    /// Gives the stream to the caller.
    pub fn release(self) -> *mut FILE {
        let stream = self.0;
        std::mem::forget(self);
        stream
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: this object owns the stream.
        unsafe { libc::fclose(self.0) };
    }
}

/// Redirects standard error according to the flags.
pub(crate) fn set_stderr(command: &mut Command, flags: c_int) -> Result<(), Failure> {
    match flags {
        0 => {}
        STDERR_NULL => _ = command.stderr(Stdio::null()),
        STDERR_MERGE => _ = command.stderr(Stdio::dup_of(1)),
        _ => return Err(bad("unknown flags")),
    }
    Ok(())
}

/// Whether the kernel discards exit statuses (SIGCHLD is ignored), so that only a pidfd keeps them. Otherwise children
/// are waited for by pid.
pub fn is_status_discarded() -> bool {
    forkless::internal::is_sigchld_ignored()
}

/// Connects the program's end of the pipe.
pub fn plug(settings: &mut Command, end: End) {
    match end {
        End::Reads => settings.stdout(Stdio::piped()),
        End::Writes => settings.stdin(Stdio::piped()),
    }
    .pidfd(is_status_discarded());
}

/// Opens the stream of a child that has been started.
pub(crate) fn open(mut running: Running, end: End) -> Result<*mut FILE, Failure> {
    let child = running.handle();
    let pipe = match end {
        End::Reads => child.stdout.take().map(OwnedFd::from),
        End::Writes => child.stdin.take().map(OwnedFd::from),
    };
    let stream = Stream::open(pipe, end)?;
    table::insert(Entry { stream: stream.0, running })?;
    Ok(stream.release())
}

/// A command from a list of arguments.
///
/// # Safety
/// `argv` is null or a list of strings that ends in a null pointer.
unsafe fn of_argv(argv: *const *const c_char) -> Result<Command, Failure> {
    // SAFETY: the caller's contract.
    let argv = unsafe { list(argv) }?;
    let (program, args) = argv.split_first().ok_or(bad("the list of arguments is empty"))?;
    let mut command = Command::new(program);
    like_libc(command.args(args));
    Ok(command)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    as_libc(null_mut(), || {
        // SAFETY: `command` and `mode` are null or strings (forkless.h).
        let (mut line, end) = unsafe { (shell(text(command)?), End::of(mode)?) };
        plug(line.settings(), end);
        open(Running::Line(line.spawn()?), end)
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_popenv(argv: *const *const c_char, mode: *const c_char, flags: c_int) -> *mut FILE {
    as_libc(null_mut(), || {
        // SAFETY: `argv` is null or a list that ends in a null pointer; `mode` is null or a string (forkless.h).
        let (mut command, end) = unsafe { (of_argv(argv)?, End::of(mode)?) };
        set_stderr(&mut command, flags)?;
        plug(&mut command, end);
        open(Running::Program(command.spawn()?), end)
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_popen2(
    argv: *const *const c_char,
    flags: c_int,
    to_child: *mut *mut FILE,
    from_child: *mut *mut FILE,
) -> c_int {
    let work = || {
        if to_child.is_null() || from_child.is_null() {
            return Err(bad("the pointer to the result is null"));
        }
        // SAFETY: `argv` is null or a list that ends in a null pointer (forkless.h).
        let mut command = unsafe { of_argv(argv) }?;
        set_stderr(&mut command, flags)?;
        plug(&mut command, End::Reads);
        plug(&mut command, End::Writes);
        let mut child = command.spawn()?;
        let writes = Stream::open(child.stdin.take().map(OwnedFd::from), End::Writes)?;
        let reads = Stream::open(child.stdout.take().map(OwnedFd::from), End::Reads)?;
        table::insert(Entry { stream: reads.0, running: Running::Program(child) })?;
        // SAFETY: neither is null (checked above), so both are writable (forkless.h).
        unsafe { (to_child.write(writes.release()), from_child.write(reads.release())) };
        Ok(0)
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, work) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pclose(stream: *mut FILE) -> c_int {
    as_libc(-1, || {
        // SAFETY: `stream` is null or open, and is not used after it was closed, as for pclose(3) (forkless.h).
        let (_, status) = unsafe { close(stream) }.ok_or(NOT_OURS)?;
        // An error of fclose(3) is ignored here: as with pclose(3) the result is the program's status.
        Ok(status?)
    })
}

pub(crate) const NOT_OURS: Failure = Failure::Refused(libc::EINVAL, "not a stream of this library");

/// Closes a stream and waits for its child. Returns the result of closing, and the status; or None for a stream that
/// this library has not opened, which stays open.
///
/// # Safety
/// The stream is null or open, and is not used after it was closed.
pub(crate) unsafe fn close(stream: *mut FILE) -> Option<(io::Result<()>, io::Result<c_int>)> {
    if stream.is_null() {
        return None;
    }
    // Removed from the table first: once the descriptor is closed, its number may be another stream's.
    let mut entry = table::remove(stream)?;
    // SAFETY: the stream is open and owned here.
    let closed = unsafe {
        wait_for_room(stream);
        if libc::fclose(stream) == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    Some((closed, entry.running.wait().map(ExitStatusExt::into_raw)))
}

/// Waits until the pipe has room for the buffered data, so that `fclose(3)` does not block: a signal handler that
/// interrupts its write would make it lose the data. A pipe that is writable takes PIPE_BUF bytes, the size of a
/// stream's buffer unless `setvbuf(3)` changed it.
///
/// # Safety
/// The stream is open.
unsafe fn wait_for_room(stream: *mut FILE) {
    unsafe extern "C" {
        /// Of glibc and musl: the number of bytes in the stream's buffer that have not been written. The libc crate
        /// leaves it out.
        fn __fpending(stream: *mut FILE) -> libc::size_t;
    }
    // SAFETY: the caller's contract.
    unsafe {
        if __fpending(stream) == 0 {
            return;
        }
        let mut room = libc::pollfd { fd: libc::fileno(stream), events: libc::POLLOUT, revents: 0 };
        while libc::poll(&mut room, 1, -1) < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {}
    }
}
