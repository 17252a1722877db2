//! Captured output.

use crate::boundary::to_status;
use crate::command::{self, Settable};
use crate::error::{Error, Failure, bad};
use crate::handle::{self, duration, give, limit, out, shared, slice};
use forkless::{Capture, Captured, Child, Command, Content, Prepared};
use libc::{c_char, c_int, size_t};
use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// `forkless_usage`: nanoseconds, KiB and counts.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Usage {
    wall_ns: u64,
    user_ns: u64,
    system_ns: u64,
    max_rss_kib: u64,
    minor_faults: u64,
    major_faults: u64,
    blocks_in: u64,
    blocks_out: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

impl Usage {
    pub(crate) fn of(usage: &forkless::Usage) -> Self {
        Self {
            wall_ns: usage.wall_time.as_nanos() as u64,
            user_ns: usage.user_time.as_nanos() as u64,
            system_ns: usage.system_time.as_nanos() as u64,
            max_rss_kib: usage.max_rss_kib,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
            blocks_in: usage.blocks_in,
            blocks_out: usage.blocks_out,
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
        }
    }
}

/// `forkless_limit_events`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct LimitEvents {
    oom_kills: u64,
    memory_max: u64,
    tasks_max: u64,
}

impl LimitEvents {
    pub(crate) fn of(events: forkless::LimitEvents) -> Self {
        let forkless::LimitEvents { oom_kills, memory_max, tasks_max, .. } = events;
        Self { oom_kills, memory_max, tasks_max }
    }
}

/// `forkless_output`. Only this library allocates it, so later versions can append members.
#[repr(C)]
struct Output {
    status: c_int,
    flags: c_int,
    out: *const c_char,
    out_size: size_t,
    err: *const c_char,
    err_size: size_t,
    out_cut: u64,
    err_cut: u64,
    input_left: size_t,
    usage: Usage,
    limit_events: LimitEvents,
}

const TIMED_OUT: c_int = 1;
const HELD_OPEN: c_int = 2;

/// The structure that C sees, and the memory that it points to.
#[repr(C)]
pub(crate) struct OutputHandle {
    seen: Output,
    kept: [Kept; 2],
}

/// The bytes of a stream.
enum Kept {
    /// With a NUL appended.
    Bytes(Vec<u8>),
    Mapped(Content),
}

impl Kept {
    fn new(content: Content, is_mapped: bool) -> Self {
        if is_mapped { Self::Mapped(content) } else { Self::ended(content.into_vec()) }
    }

    fn ended(mut bytes: Vec<u8>) -> Self {
        bytes.push(0);
        Self::Bytes(bytes)
    }

    fn pointer_and_length(&self) -> (*const c_char, size_t) {
        match self {
            Self::Bytes(bytes) => (bytes.as_ptr().cast(), bytes.len() - 1),
            Self::Mapped(content) => (content.as_ptr().cast(), content.len()),
        }
    }
}

impl OutputHandle {
    /// Of a child that has been waited for.
    pub(crate) fn plain(status: ExitStatus, out: Vec<u8>, err: Vec<u8>, child: Option<&Child>) -> *mut Self {
        let (usage, events) = (child.and_then(Child::usage), child.and_then(Child::limit_events));
        Self::new(status, [Kept::ended(out), Kept::ended(err)], usage, events)
    }

    fn new(
        status: ExitStatus,
        kept: [Kept; 2],
        usage: Option<&forkless::Usage>,
        events: Option<forkless::LimitEvents>,
    ) -> *mut Self {
        let [(out_at, out_size), (err_at, err_size)] = [kept[0].pointer_and_length(), kept[1].pointer_and_length()];
        let seen = Output {
            status: status.into_raw(),
            flags: 0,
            out: out_at,
            out_size,
            err: err_at,
            err_size,
            out_cut: 0,
            err_cut: 0,
            input_left: 0,
            usage: usage.map(Usage::of).unwrap_or_default(),
            limit_events: events.map(LimitEvents::of).unwrap_or_default(),
        };
        out(Self { seen, kept })
    }

    fn captured(captured: Captured, is_mapped: bool) -> *mut Self {
        let kept = [captured.stdout, captured.stderr].map(|content| Kept::new(content, is_mapped));
        let handle = Self::new(captured.status, kept, captured.usage.as_ref(), captured.limit_events);
        // SAFETY: allocated above, and not shared yet.
        let seen = unsafe { &mut (*handle).seen };
        let flag = |is_so: bool, flag| if is_so { flag } else { 0 };
        seen.flags = flag(captured.timed_out, TIMED_OUT) | flag(captured.held_open, HELD_OPEN);
        (seen.out_cut, seen.err_cut) = (captured.stdout_cut, captured.stderr_cut);
        seen.input_left = captured.input_left;
        handle
    }
}

/// `forkless_capture`. Later versions append members; `size` says which of them the caller has.
#[repr(C)]
pub(crate) struct Options {
    size: size_t,
    flags: c_int,
    signal: c_int,
    input: *const c_void,
    input_size: size_t,
    limit: size_t,
    timeout_ms: i64,
    grace_ms: i64,
    linger_ms: i64,
}

const MERGED: c_int = 1;
const KILL_AT_LIMIT: c_int = 2;
const MEMORY_FILE: c_int = 4;

impl Options {
    /// # Safety
    /// `input` is null or has `input_size` bytes.
    unsafe fn read(&self) -> Result<Capture, Failure> {
        if self.size != size_of::<Self>() || self.flags & !(MERGED | KILL_AT_LIMIT | MEMORY_FILE) != 0 {
            return Err(bad("the options have an unknown size or unknown flags"));
        }
        let mut how = Capture::new()
            .merged(self.flags & MERGED != 0)
            .kill_at_limit(self.flags & KILL_AT_LIMIT != 0)
            .memory_file(self.flags & MEMORY_FILE != 0);
        if !self.input.is_null() {
            // SAFETY: the caller's contract.
            how = how.input(unsafe { slice(self.input.cast::<u8>(), self.input_size) }?);
        }
        if self.limit > 0 {
            how = how.limit(self.limit);
        }
        if let Some(time) = limit(self.timeout_ms) {
            how = how.timeout(time);
        }
        if self.signal != 0 {
            how = how.terminate(handle::signal(self.signal)?, duration(self.grace_ms));
        }
        Ok(match limit(self.linger_ms) {
            Some(time) => how.linger(time),
            None => how,
        })
    }
}

/// Reads the options and captures output.
///
/// # Safety
/// `options` is null or points to options whose `input` is null or has `input_size` bytes.
pub(crate) unsafe fn capture(
    options: *const Options,
    run: impl FnOnce(&Capture) -> std::io::Result<Captured>,
) -> Result<*mut OutputHandle, Failure> {
    if options.is_null() {
        return Ok(OutputHandle::captured(run(&Capture::new())?, false));
    }
    // SAFETY: not null, and the caller's contract.
    let options = unsafe { shared(options) }?;
    // SAFETY: the caller's contract.
    let how = unsafe { options.read() }?;
    Ok(OutputHandle::captured(run(&how)?, options.flags & MEMORY_FILE != 0))
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_command_capture(
    command: *mut Settable,
    options: *const Options,
    output: *mut *mut OutputHandle,
    error: *mut Error,
) -> c_int {
    // SAFETY: `command` is null or live, `options` null or initialized, `output` and `error` null or writable (forkless.h).
    unsafe {
        let run = |command: &mut Command| give(output, || capture(options, |how| command.capture(how)));
        to_status(error, || command::run(command, run))
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_prepared_capture(
    prepared: *mut Prepared,
    options: *const Options,
    output: *mut *mut OutputHandle,
    error: *mut Error,
) -> c_int {
    // SAFETY: `prepared` is null or live, `options` null or initialized, `output` and `error` null or writable (forkless.h).
    unsafe {
        let run = |prepared: &Prepared| give(output, || capture(options, |how| prepared.capture(how)));
        to_status(error, || run(shared(prepared)?))
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_output_free(output: *mut OutputHandle) {
    // SAFETY: `output` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { handle::free(output) };
}
