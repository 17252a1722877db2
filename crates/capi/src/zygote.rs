//! The functions of zygotes.

use crate::boundary::to_status;
use crate::child::{ChildHandle, raw};
use crate::error::{Error, Failure, bad};
use crate::handle::{NULL, free, give, list, optional, out, shared, slice, utf8};
use crate::output::OutputHandle;
use crate::run::child;
use forkless::Prepared;
use forkless::zygote::{Registry, Restart, Zygote, ZygoteOptions, ZygoteStats, serve_if_asked};
use libc::{c_char, c_int, c_void, pid_t, size_t};
use std::io;

/// `forkless_zygote_options`. Later versions append members; `size` says which of them the caller has.
#[repr(C)]
pub(crate) struct ZOptions {
    size: size_t,
    program: *const c_char,
    args: *const *const c_char,
    restart: c_int,
}

/// `forkless_zygote_stats`; the caller's may be a shorter, older version.
#[repr(C)]
pub(crate) struct ZStats {
    launches: u64,
    starts: u64,
    deaths: u64,
}

/// `forkless_zygote_function`: called in a child, with data of the launch.
type CFunction = unsafe extern "C" fn(*const c_void, size_t) -> c_int;

/// `forkless_zygote_entry`.
#[repr(C)]
pub(crate) struct CEntry {
    name: *const c_char,
    function: Option<CFunction>,
}

/// `forkless_zygote_call`.
#[repr(C)]
pub(crate) struct CCall {
    name: *const c_char,
    bytes: *const c_void,
    size: size_t,
}

/// # Safety
/// `entries` is null or has `count` elements, whose names are null or strings and whose functions may run in a child.
unsafe fn registry(entries: *const CEntry, count: size_t) -> Result<Registry, Failure> {
    let mut functions = Registry::new();
    // SAFETY: the caller's contract.
    for entry in unsafe { slice(entries, count) }? {
        let function = entry.function.ok_or(bad("the function is a null pointer"))?;
        // SAFETY: the caller's contract.
        let name = unsafe { utf8(entry.name) }?;
        functions.add(name, move |bytes| {
            // SAFETY: the caller's contract; the bytes exist until the function returns.
            match unsafe { function(bytes.as_ptr().cast(), bytes.len()) } {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno.saturating_abs())),
            }
        });
    }
    Ok(functions)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_zygote_serve_if_asked(entries: *const CEntry, count: size_t) -> c_int {
    let serve = || {
        // SAFETY: `entries` is null or has `count` elements, each with a name and a function (forkless.h).
        serve_if_asked(&unsafe { registry(entries, count) }?);
        Ok(0)
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, serve) }
}

/// # Safety
/// `given` is null or points to options, whose `program` is null or a string, and `args` null or a list.
unsafe fn options(given: *const ZOptions) -> Result<ZygoteOptions, Failure> {
    let mut how = ZygoteOptions::new();
    // SAFETY: the caller's contract.
    let Some(given) = (unsafe { given.as_ref() }) else { return Ok(how) };
    if given.size != size_of::<ZOptions>() {
        return Err(bad("the options have an unknown size"));
    }
    // SAFETY: the caller's contract.
    if let Some(program) = unsafe { optional(given.program) } {
        how.program(program);
    }
    if !given.args.is_null() {
        // SAFETY: the caller's contract.
        for arg in unsafe { list(given.args) }? {
            how.arg(arg);
        }
    }
    how.restart(match given.restart {
        0 => Restart::Always,
        1 => Restart::Never,
        _ => return Err(bad("unknown restart policy")),
    });
    Ok(how)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_zygote_start(
    options: *const ZOptions,
    zygote: *mut *mut Zygote,
    error: *mut Error,
) -> c_int {
    // SAFETY: `options` is null or initialized; `zygote` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || give(zygote, || Ok(out(Zygote::start(&self::options(options)?)?)))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_zygote_free(zygote: *mut Zygote) {
    // SAFETY: `zygote` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { free(zygote) };
}

/// The calls that the child makes, in this order.
///
/// # Safety
/// For `'a`, `calls` is null or has `count` elements, with `name` null or a string and `bytes` null or of `size` bytes.
unsafe fn calls<'a>(calls: *const CCall, count: size_t) -> Result<Vec<(&'a str, &'a [u8])>, Failure> {
    // SAFETY: the caller's contract.
    let all = unsafe { slice(calls, count) }?.iter();
    // SAFETY: the caller's contract.
    all.map(|call| unsafe { Ok((utf8(call.name)?, slice(call.bytes.cast(), call.size)?)) }).collect()
}

/// Defines functions that run a prepared command with a zygote: their parameters between the command and the result,
/// and their work.
macro_rules! runs {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) -> $made:ty, $zygote:ident, $prepared:ident => $work:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            zygote: *const Zygote,
            prepared: *const Prepared,
            $($arg: $kind,)*
            result: *mut $made,
            error: *mut Error
        ) -> c_int {
            // SAFETY: handles are null or live, `list` null or of `count` calls, the rest null or writable (forkless.h).
            unsafe {
                to_status(error, || {
                    let ($zygote, $prepared) = (shared(zygote)?, shared(prepared)?);
                    give(result, || $work)
                })
            }
        }
    )* };
}

runs! {
    fn forkless_zygote_spawn() -> *mut ChildHandle, zygote, prepared => child(zygote.spawn(prepared));
    fn forkless_zygote_launch() -> *mut ChildHandle, zygote, prepared => child(zygote.launch(prepared));
    fn forkless_zygote_spawn_with(
        list: *const CCall, count: size_t
    ) -> *mut ChildHandle, zygote, prepared => child(zygote.spawn_with(prepared, &calls(list, count)?));
    fn forkless_zygote_launch_with(
        list: *const CCall, count: size_t
    ) -> *mut ChildHandle, zygote, prepared => child(zygote.launch_with(prepared, &calls(list, count)?));
    fn forkless_zygote_status() -> c_int, zygote, prepared => raw(zygote.status(prepared));
    fn forkless_zygote_output() -> *mut OutputHandle, zygote, prepared => {
        let output = zygote.output(prepared)?;
        Ok(OutputHandle::plain(output.status, output.stdout, output.stderr, None))
    };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_zygote_pid(zygote: *const Zygote) -> pid_t {
    let pid = || {
        // SAFETY: `zygote` is null or a live handle (forkless.h).
        let pid = unsafe { shared(zygote) }?.pid();
        pid.map(|pid| pid as c_int).ok_or(Failure::Refused(libc::ENOENT, "the helper is not running"))
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, pid) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_zygote_get_stats(zygote: *const Zygote, stats: *mut ZStats, size: size_t) -> c_int {
    let get = || {
        if stats.is_null() {
            return Err(bad("the pointer to the result is null"));
        }
        // SAFETY: `zygote` is null or a live handle (forkless.h).
        let ZygoteStats { launches, starts, deaths, .. } = unsafe { shared(zygote) }?.stats();
        let found = ZStats { launches, starts, deaths };
        // SAFETY: `stats` has `size` bytes (forkless.h).
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), stats.cast(), size.min(size_of::<ZStats>()))
        };
        Ok(0)
    };
    // SAFETY: no error to write to.
    unsafe { to_status(NULL, get) }
}
