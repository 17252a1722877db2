//! Programs as streams: `popen(3)` and its like.

use crate::boundary::{answer, as_libc};
use crate::error::{Failure, bad};
use crate::handle::{NULL, list, text};
use crate::simple::like_libc;
use forkless::{Child, Command, ShellChild, ShellCommand, Stdio};
use forkless_core::planted;
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

/// A line for `/bin/sh`, which runs without it where that makes no difference, started as libc starts it.
pub fn shell(line: &OsStr) -> ShellCommand {
    let line = line.as_bytes();
    let is_like_option = !planted!("c-line-taken-for-an-option") && matches!(line.first(), Some(b'-' | b'+'));
    let mut command = if is_like_option { forkless::shell([b" ", line].concat()) } else { forkless::shell(line) };
    like_libc(command.settings());
    command
}

/// What a stream belongs to.
pub enum Running {
    /// Of a list of arguments.
    Program(Child),
    /// Of a line for the shell.
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

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Program(child) => child.wait(),
            Self::Line(line) => line.wait(),
        }
    }
}

/// Which end of the program the stream is, with the mode that `fdopen(3)` is to have.
#[derive(Clone, Copy)]
pub enum End {
    /// The caller reads what the program writes.
    Reads,
    /// The program reads what the caller writes.
    Writes,
}

impl End {
    /// `r` or `w`, and an `e`, which says what is so in any case.
    ///
    /// # Safety
    /// `mode` is null or a text.
    pub(crate) unsafe fn of(mode: *const c_char) -> Result<Self, Failure> {
        // SAFETY: the caller's.
        match unsafe { text(mode) }?.as_encoded_bytes() {
            b"r" | b"re" | b"er" => Ok(Self::Reads),
            b"w" | b"we" | b"ew" => Ok(Self::Writes),
            _ => Err(bad("a mode that is neither r nor w")),
        }
    }

    fn mode(self) -> &'static CStr {
        match self {
            Self::Reads => c"r",
            Self::Writes => c"w",
        }
    }
}

/// A stream for a descriptor, which is closed if there can be none. It takes bytes, not wide characters, as libc's `popen(3)` has it.
pub struct Stream(*mut FILE);

unsafe extern "C" {
    /// `fwide(3)`, which the libc crate leaves out.
    fn fwide(stream: *mut FILE, mode: c_int) -> c_int;
}

impl Stream {
    /// A stream of the caller's end.
    pub fn open(fd: Option<OwnedFd>, end: End) -> Result<Self, Failure> {
        let fd = fd.ok_or(bad("no pipe"))?.into_raw_fd();
        // SAFETY: a descriptor that is ours, and a mode.
        let stream = unsafe { libc::fdopen(fd, end.mode().as_ptr()) };
        if !stream.is_null() {
            // SAFETY: a stream of our own.
            unsafe { fwide(stream, -1) };
            return Ok(Self(stream));
        }
        let error = io::Error::last_os_error();
        // SAFETY: it has not become a stream's.
        unsafe { libc::close(fd) };
        Err(error.into())
    }

    /// The stream, which stays with this.
    pub fn get(&self) -> *mut FILE {
        self.0
    }

    /// It becomes the caller's.
    pub fn release(self) -> *mut FILE {
        let stream = self.0;
        std::mem::forget(self);
        stream
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { libc::fclose(self.0) };
    }
}

/// What the stream has to do with standard error.
pub(crate) fn set_stderr(command: &mut Command, flags: c_int) -> Result<(), Failure> {
    match flags {
        0 => {}
        STDERR_NULL => _ = command.stderr(Stdio::null()),
        STDERR_MERGE => _ = command.stderr(Stdio::dup_of(1)),
        _ => return Err(bad("no such flags")),
    }
    Ok(())
}

/// Does the kernel forget how children ended, unless there is a pidfd? Else their ends are asked for by number.
pub fn forgets() -> bool {
    forkless::sigchld_discards()
}

/// What the program has at the stream's end of it.
pub fn plug(settings: &mut Command, end: End) {
    match end {
        End::Reads => settings.stdout(Stdio::piped()),
        End::Writes => settings.stdin(Stdio::piped()),
    }
    .pidfd(forgets() && !planted!("c-stream-status-forgotten"));
}

/// The stream of what has been started.
pub(crate) fn open(mut running: Running, end: End) -> Result<*mut FILE, Failure> {
    let child = running.handle();
    let pipe = match end {
        End::Reads => child.stdout.take().map(OwnedFd::from),
        End::Writes => child.stdin.take().map(OwnedFd::from),
    };
    let stream = Stream::open(pipe, end)?;
    if planted!("c-stream-outlives-exec") {
        // SAFETY: flags of a descriptor of ours.
        unsafe { libc::fcntl(libc::fileno(stream.0), libc::F_SETFD, 0) };
    }
    table::insert(Entry { stream: stream.0, running })?;
    Ok(stream.release())
}

/// A command of a list of arguments.
///
/// # Safety
/// `argv` is null or such a list.
unsafe fn of_argv(argv: *const *const c_char) -> Result<Command, Failure> {
    // SAFETY: the caller's.
    let argv = unsafe { list(argv) }?;
    let (program, args) = argv.split_first().ok_or(bad("an empty list of arguments"))?;
    let mut command = Command::new(program);
    like_libc(command.args(args));
    Ok(command)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    as_libc(null_mut(), || {
        // SAFETY: the header's contract.
        let (mut line, end) = unsafe { (shell(text(command)?), End::of(mode)?) };
        plug(line.settings(), end);
        open(Running::Line(line.spawn()?), end)
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_popenv(argv: *const *const c_char, mode: *const c_char, flags: c_int) -> *mut FILE {
    as_libc(null_mut(), || {
        // SAFETY: the header's contract.
        let (mut command, end) = unsafe { (of_argv(argv)?, End::of(mode)?) };
        set_stderr(&mut command, flags)?;
        plug(&mut command, end);
        open(Running::Program(command.spawn()?), end)
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_popen2(
    argv: *const *const c_char,
    flags: c_int,
    to_child: *mut *mut FILE,
    from_child: *mut *mut FILE,
) -> c_int {
    let work = || {
        if to_child.is_null() || from_child.is_null() {
            return Err(bad("no place for the result"));
        }
        // SAFETY: the header's contract.
        let mut command = unsafe { of_argv(argv) }?;
        set_stderr(&mut command, flags)?;
        plug(&mut command, End::Reads);
        plug(&mut command, End::Writes);
        let mut child = command.spawn()?;
        let writes = Stream::open(child.stdin.take().map(OwnedFd::from), End::Writes)?;
        let reads = Stream::open(child.stdout.take().map(OwnedFd::from), End::Reads)?;
        table::insert(Entry { stream: reads.0, running: Running::Program(child) })?;
        // SAFETY: the header's contract.
        unsafe { (to_child.write(writes.release()), from_child.write(reads.release())) };
        Ok(0)
    };
    // SAFETY: no error to write to.
    unsafe { answer(NULL, work) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pclose(stream: *mut FILE) -> c_int {
    as_libc(-1, || {
        // SAFETY: the header's contract.
        let (_, status) = unsafe { close(stream) }.ok_or(NOT_OURS)?;
        // What closing said has been met by whoever wrote; as with pclose(3) the answer is the program's.
        Ok(status?)
    })
}

pub(crate) const NOT_OURS: Failure = Failure::Refused(libc::EINVAL, "no stream of this library's");

/// Closes a stream and waits for what it belongs to: how closing it went, and the status. None if it is not one of ours, which
/// stays as it is.
///
/// # Safety
/// The stream is null or open, and is not used any more.
pub(crate) unsafe fn close(stream: *mut FILE) -> Option<(io::Result<()>, io::Result<c_int>)> {
    if stream.is_null() {
        return None;
    }
    // Out of the table first: its number may be another stream's as soon as it is closed.
    let mut entry = table::remove(stream)?;
    // SAFETY: it is open, and nobody else's.
    let closed = unsafe {
        wait_for_room(stream);
        if libc::fclose(stream) == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    Some((closed, entry.running.wait().map(ExitStatusExt::into_raw)))
}

/// Waits until the pipe takes what the stream holds back, so that `fclose(3)` does not: a signal that comes while it did would
/// lose that. A pipe that takes anything takes PIPE_BUF bytes, as many as a stream holds unless `setvbuf(3)` gave it more.
///
/// # Safety
/// The stream is open.
unsafe fn wait_for_room(stream: *mut FILE) {
    unsafe extern "C" {
        /// Of glibc and musl: bytes written to a stream and not to its descriptor. The libc crate leaves it out.
        fn __fpending(stream: *mut FILE) -> libc::size_t;
    }
    // SAFETY: the caller's.
    unsafe {
        if __fpending(stream) == 0 {
            return;
        }
        let mut room = libc::pollfd { fd: libc::fileno(stream), events: libc::POLLOUT, revents: 0 };
        while libc::poll(&mut room, 1, -1) < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {}
    }
}
