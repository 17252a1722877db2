//! `popen(3)`, and the parts of closing its streams that `c/close.c` calls.

use crate::heap;
use crate::inherit::{self, runs};
use crate::log::Story;
use crate::next;
use crate::sealed::{Mask, sealed};
use crate::settings::{Inherit, Settings};
use crate::spawn::{killed_by, reserve};
use forkless::internal::posix::FileAction;
use forkless::{ShellChild, ShellCommand};
use forkless_capi::boundary::{as_libc, errno, set_errno};
use forkless_capi::error::{Failure, bad};
use forkless_capi::handle::text;
use forkless_capi::lock::Lock;
use forkless_capi::stream::table::{self, Entry};
use forkless_capi::stream::{End, Running, Stream, plug, shell};
use libc::{FILE, c_char, c_int, pid_t};
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// # Safety
/// As `popen(3)` says.
pub(crate) unsafe fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    if Settings::get().off {
        let Some(popen) = next::popen() else { return refused(null_mut()) };
        // SAFETY: the caller's contract.
        return unsafe { popen(command, mode) };
    }
    sealed(|mask| {
        as_libc(null_mut(), || {
            // SAFETY: the caller's contract.
            let (line, (end, close_on_exec)) = unsafe { (text(command)?, parse(CStr::from_ptr(mode))?) };
            has_room(line)?;
            open(line, end, close_on_exec, mask)
        })
    })
}

/// Fails with ENOMEM if there is no memory to launch a line.
pub(crate) fn has_room(line: &OsStr) -> Result<(), Failure> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the environment, which libc's functions read at this moment too.
    match unsafe { heap::has_room([environ, std::ptr::null()], line.len()) } {
        true => Ok(()),
        false => Err(Failure::Refused(libc::ENOMEM, "no memory")),
    }
}

fn refused<T>(answer: T) -> T {
    set_errno(libc::ENOSYS);
    answer
}

/// `r` or `w`, and whether there is an `e`, in any order; repetitions are allowed.
fn parse(mode: &CStr) -> Result<(End, bool), Failure> {
    let (mut reads, mut writes, mut close_on_exec) = (false, false, false);
    for letter in mode.to_bytes() {
        match letter {
            b'r' => reads = true,
            b'w' => writes = true,
            b'e' => close_on_exec = true,
            _ => return Err(bad("the mode has a letter other than r, w and e")),
        }
    }
    match (reads, writes) {
        (true, false) => Ok((End::Reads, close_on_exec)),
        (false, true) => Ok((End::Writes, close_on_exec)),
        _ => Err(bad("the mode is neither r nor w")),
    }
}

fn open(line: &OsStr, end: End, close_on_exec: bool, mask: &Mask) -> Result<*mut FILE, Failure> {
    let story = Story::begin();
    let settings = Settings::get();
    let mut command = shell(line);
    plug(command.settings(), end);
    mask.ready(command.settings());
    inherit::by_setting(command.settings(), &settings.inherit, |fd| OPEN.has(fd));
    inherit::spare(command.settings(), settings);
    reserve(command.settings());
    let mut child = start(&mut command, settings, end)?;
    story.end("popen", line, command.taken(), child.handle());
    let handle = child.handle();
    let pipe = match end {
        End::Reads => handle.stdout.take().map(OwnedFd::from),
        End::Writes => handle.stdin.take().map(OwnedFd::from),
    };
    let pipe = pipe.ok_or(bad("no pipe"))?;
    let fd = pipe.as_raw_fd();
    let stream = Stream::open(Some(pipe), end)?;
    EVER.store(true, Ordering::Relaxed);
    table::insert(Entry { stream: stream.get(), running: Running::Line(child) })?;
    if !close_on_exec {
        OPEN.add(fd);
        // SAFETY: sets flags of a descriptor that this function owns.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    }
    Ok(stream.release())
}

/// Starts the command line, without the descriptors of earlier streams.
///
/// An earlier stream may be at 0, 1 or 2 if the caller had closed those. If the new program has its own pipe at that
/// number, there is nothing to close.
///
/// If a signal kills the child before it could begin, another one is started and gets that signal, because the caller must
/// see a child that was killed. A seccomp filter kills every child, by SIGSYS: the tries end after `FILTERED` of these.
fn start(command: &mut ShellCommand, settings: &Settings, end: End) -> io::Result<ShellChild> {
    let pipe = match end {
        End::Reads => libc::STDOUT_FILENO,
        End::Writes => libc::STDIN_FILENO,
    };
    let inherits = |fd: RawFd| fd <= libc::STDERR_FILENO || settings.inherit == Inherit::All;
    const FILTERED: usize = 10;
    let (mut signal, mut filtered) = (None, 0);
    loop {
        let started = OPEN.without_others(
            |fd| fd != pipe && inherits(fd),
            |others| {
                let close = others.into_iter().map(|(first, last)| FileAction::CloseRange(first, last)).collect();
                command.settings().file_actions(close);
                command.spawn()
            },
        );
        match (started, signal) {
            (Ok(mut child), Some(signal)) => {
                child.handle().signal(signal)?;
                return Ok(child);
            }
            (Err(error), _) if killed_by(&error).is_some() && filtered < FILTERED => {
                signal = killed_by(&error);
                filtered += usize::from(signal == Some(libc::SIGSYS));
            }
            (answer, _) => return answer,
        }
    }
}

/// libc's function, which always exists.
type Close = unsafe extern "C" fn(*mut FILE) -> c_int;

#[unsafe(no_mangle)]
extern "C-unwind" fn forkless_preload_pclose_of_libc() -> Close {
    next::pclose().unwrap_or(missing)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn forkless_preload_fclose_of_libc() -> Close {
    next::fclose().unwrap_or(missing)
}

unsafe extern "C" fn missing(_: *mut FILE) -> c_int {
    refused(-1)
}

/// Removes a stream from the tables and returns its entry; null if this library has not opened it. `pid`: the program.
///
/// # Safety
/// `stream` is open or null; `pid` is writable.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn forkless_preload_taken(stream: *mut FILE, pid: *mut pid_t) -> *mut Entry {
    if stream.is_null() || !EVER.load(Ordering::Relaxed) {
        return null_mut();
    }
    // Most streams are of other functions, and are closed without further work.
    let before = errno();
    let is_ours = table::has(stream);
    set_errno(before);
    if !is_ours {
        return null_mut();
    }
    sealed(|_| {
        let Some(mut entry) = take(stream) else { return null_mut() };
        // SAFETY: a valid pointer of the caller.
        unsafe { pid.write(entry.running.handle().id() as pid_t) };
        Box::into_raw(Box::new(entry))
    })
}

/// Reaps the program of a stream that was closed, and returns the result of `pclose(3)`. `unwritten`: the errno of closing, or
/// 0.
///
/// # Safety
/// The entry that was removed for the stream.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn forkless_preload_closed(taken: *mut Entry, unwritten: c_int) -> c_int {
    sealed(|_| {
        // SAFETY: by the caller's contract the pointer is of Box::into_raw.
        let mut entry = unsafe { Box::from_raw(taken) };
        as_libc(-1, || match entry.running.wait()?.into_raw() {
            // The program succeeded, but has not received all the data.
            0 if unwritten != 0 => Err(Failure::Refused(unwritten, "the program did not receive all buffered data")),
            status => Ok(status),
        })
    })
}

/// The thread is cancelled while libc writes the rest: the library reaps the program some time after its end.
///
/// # Safety
/// The entry that was removed for the stream.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn forkless_preload_left(taken: *mut Entry) {
    sealed(|_| {
        // SAFETY: by the caller's contract the pointer is of Box::into_raw.
        let entry = unsafe { Box::from_raw(taken) };
        as_libc((), || {
            drop(entry);
            Ok(())
        });
    });
}

/// Whether this library has ever opened a stream. Most programs that close files have none.
static EVER: AtomicBool = AtomicBool::new(false);

/// Removes a stream of this library from the tables.
fn take(stream: *mut FILE) -> Option<Entry> {
    let before = errno();
    let entry = table::remove(stream);
    if entry.is_some() {
        // SAFETY: an open stream.
        let fd = unsafe { libc::fileno(stream) };
        // Closing it may wait until its program reads the last bytes. A program that another thread starts meanwhile must not
        // hold the stream open.
        if OPEN.has(fd) {
            // SAFETY: sets flags of the stream's descriptor.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        OPEN.remove(fd);
    }
    set_errno(before);
    entry
}

/// The descriptors of open streams that are not close-on-exec: POSIX requires them to be closed in children of later
/// calls.
///
/// One bit for each: recording one takes constant time, and a forked process never finds a half-done change.
struct OpenStreams {
    words: [AtomicU64; WORDS],
    /// One more than the index of the highest word that was ever used.
    used: AtomicU32,
    /// Locked while a child without these descriptors is created, so that none of their numbers is reused meanwhile.
    lock: Lock<()>,
}

/// Room for 2^20 descriptors, the default of `/proc/sys/fs/nr_open`.
const WORDS: usize = 1 << 14;

static OPEN: OpenStreams =
    OpenStreams { words: [const { AtomicU64::new(0) }; WORDS], used: AtomicU32::new(0), lock: Lock::new(()) };

impl OpenStreams {
    fn word(&self, fd: RawFd) -> Option<(&AtomicU64, u32)> {
        let fd = u32::try_from(fd).ok()?;
        Some((self.words.get((fd / 64) as usize)?, fd % 64))
    }

    fn has(&self, fd: RawFd) -> bool {
        self.word(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & 1 << bit != 0)
    }

    fn add(&self, fd: RawFd) {
        if let Some((word, bit)) = self.word(fd) {
            word.fetch_or(1 << bit, Ordering::Relaxed);
            self.used.fetch_max(fd as u32 / 64 + 1, Ordering::Release);
        }
    }

    fn remove(&self, fd: RawFd) {
        if let Some((word, bit)) = self.word(fd) {
            if self.has(fd) {
                self.lock.with(|(), _| word.fetch_and(!(1 << bit), Ordering::Relaxed));
            }
        }
    }

    /// Creates a child without the streams that it would inherit. `make` receives them as ranges of numbers.
    fn without_others<R>(&self, inherits: impl Fn(RawFd) -> bool, make: impl FnOnce(Vec<(RawFd, RawFd)>) -> R) -> R {
        let others = || self.all().filter(|&fd| inherits(fd));
        if others().next().is_none() {
            return make(Vec::new());
        }
        self.lock.with(|(), _| make(runs(others())))
    }

    fn all(&self) -> impl Iterator<Item = RawFd> {
        let words = self.words[..self.used.load(Ordering::Acquire) as usize].iter().enumerate();
        words.flat_map(|(n, word)| {
            let bits = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| bits & 1 << bit != 0).map(move |bit| (n * 64 + bit) as RawFd)
        })
    }
}
