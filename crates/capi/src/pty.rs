//! The functions of pseudo-terminals.

use crate::boundary::{self, to_status};
use crate::child::{self, ChildHandle};
use crate::command::setters;
use crate::error::{Error, Failure, bad};
use crate::handle::{self, NULL, copy, duration, free, give, out, shared};
use crate::output::OutputHandle;
use forkless::{Pty, PtySize};
use libc::{c_char, c_int, c_void, pid_t, size_t, ssize_t, winsize};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};

/// The structure of `<sys/ioctl.h>`.
fn in_c(size: PtySize) -> winsize {
    winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: size.x_pixels, ws_ypixel: size.y_pixels }
}

fn in_rust(size: &winsize) -> PtySize {
    let mut found = PtySize::new(size.ws_row, size.ws_col);
    (found.x_pixels, found.y_pixels) = (size.ws_xpixel, size.ws_ypixel);
    found
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pty_open(size: *const winsize, pty: *mut *mut Pty, error: *mut Error) -> c_int {
    let open = || {
        // SAFETY: `size` is null or points to a struct winsize (forkless.h).
        let size = unsafe { size.as_ref() }.map(in_rust).unwrap_or_default();
        Ok(out(Pty::open(size)?))
    };
    // SAFETY: `pty` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || give(pty, open)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pty_free(pty: *mut Pty) {
    // SAFETY: `pty` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { free(pty) };
}

setters! {
    fn forkless_command_pty(pty: *const Pty) command => {
        command.pty(shared(pty)?);
    }
}

/// Defines functions of a terminal: their parameters and their work.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) $pty:ident => $work:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(pty: *const Pty, $($arg: $kind),*) -> c_int {
            // SAFETY: `pty` is null or live; other pointers are null or valid, `text` for `size` bytes (forkless.h).
            unsafe {
                to_status(NULL, || {
                    let $pty = shared(pty)?;
                    $work
                })
            }
        }
    )* };
}

methods! {
    fn forkless_pty_fd() pty => Ok(pty.as_raw_fd());
    fn forkless_pty_path(text: *mut c_char, size: size_t) pty => handle::path_out(&pty.path()?, text, size);
    fn forkless_pty_follower() pty => Ok(pty.follower()?.into_raw_fd());
    fn forkless_pty_size(size: *mut winsize) pty => give(size, || Ok(in_c(pty.size()?)));
    fn forkless_pty_resize(size: *const winsize) pty => Ok(pty.resize(in_rust(shared(size)?)).map(|()| 0)?);
    fn forkless_pty_make_raw() pty => Ok(pty.make_raw().map(|()| 0)?);
    fn forkless_pty_echo(on: c_int) pty => Ok(pty.echo(on != 0).map(|()| 0)?);
    fn forkless_pty_copy_modes(fd: c_int) pty => Ok(pty.copy_modes(copy(fd)?).map(|()| 0)?);
    fn forkless_pty_send_eof() pty => Ok(pty.send_eof().map(|()| 0)?);
    fn forkless_pty_set_nonblocking(on: c_int) pty => Ok(pty.set_nonblocking(on != 0).map(|()| 0)?);
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pty_foreground_group(pty: *const Pty) -> pid_t {
    // SAFETY: `pty` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || Ok(shared(pty)?.foreground_group()?.unwrap_or(0) as pid_t)) }
}

/// As [`to_status`], for a number of bytes.
fn bytes(work: impl FnOnce() -> Result<usize, Failure>) -> ssize_t {
    match boundary::shielded(work) {
        Ok(count) => count as ssize_t,
        Err(failure) => -(failure.errno() as ssize_t),
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pty_read(pty: *const Pty, buffer: *mut c_void, size: size_t) -> ssize_t {
    bytes(|| {
        if buffer.is_null() && size > 0 {
            return Err(bad("the pointer to the buffer is null"));
        }
        // SAFETY: `pty` is null or a live handle (forkless.h).
        let mut pty = unsafe { shared(pty) }?;
        if size == 0 {
            return Ok(0);
        }
        // SAFETY: `buffer` has `size` bytes (forkless.h), which the kernel only writes to.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size.min(isize::MAX as usize)) };
        Ok(pty.read(buffer)?)
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pty_write(pty: *const Pty, data: *const c_void, size: size_t) -> ssize_t {
    bytes(|| {
        // SAFETY: `pty` is null or a live handle; `data` is null or has `size` bytes (forkless.h).
        let (mut pty, data) = unsafe { (shared(pty)?, handle::slice(data.cast::<u8>(), size)?) };
        Ok(pty.write(data)?)
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pty_read_until_exit(
    pty: *const Pty,
    child: *mut ChildHandle,
    linger_ms: i64,
    output: *mut *mut OutputHandle,
    error: *mut Error,
) -> c_int {
    let read = || {
        let mut text = Vec::new();
        // SAFETY: `pty` and `child` are null or live handles (forkless.h).
        unsafe {
            let pty = shared(pty)?;
            child::with(child, |child| {
                let status = pty.read_until_exit(child, duration(linger_ms), &mut text)?;
                Ok(OutputHandle::plain(status, text, Vec::new(), Some(child)))
            })
        }
    };
    // SAFETY: `output` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || give(output, read)) }
}
