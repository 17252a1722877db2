//! The main function. It does what Rust's runtime does before `main`, except what makes every `forkless run` slower: the
//! runtime reads `/proc/self/maps` and maps a signal stack to explain a stack overflow.

use std::{
    ffi::c_int,
    io::{self, Write},
    process::ExitCode,
};

use crate::run;

// All of it: the linker reads it before the standard library, which refers to it.
#[cfg(static_unwinder)]
#[link(name = "gcc_eh", kind = "static", modifiers = "+whole-archive")]
unsafe extern "C" {}

/// Called by the C runtime.
// SAFETY: a program has one function of this name, which the C runtime calls. Rust's own is left out (`no_main`).
#[cfg(all(not(test), target_env = "gnu"))]
#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    prepare();
    number(crate::begin())
}

/// Prepares the process as Rust's runtime does.
pub(crate) fn prepare() {
    keep_standard_numbers();
    run::note_sigpipe();
    // SAFETY: an ignored signal runs no code. A closed pipe is an error of the write, and not the end of forkless.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Opens `/dev/null` for each standard stream that is closed. Otherwise the next file would get its number, and messages
/// would be written to it. For programs the stream stays closed: exec closes it.
fn keep_standard_numbers() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: `streams` has 3 entries.
    unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) };
    let closed = libc::O_CLOEXEC;
    for _ in streams.iter().filter(|stream| stream.revents & libc::POLLNVAL != 0) {
        // SAFETY: the path ends with NUL. The lowest free number, which open(2) returns, is that of the first closed stream.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | closed) };
    }
}

/// Writes what is buffered, and returns the number of the exit code, which [`ExitCode`] does not expose.
#[cfg_attr(not(target_env = "gnu"), allow(dead_code, reason = "Rust's main function does this"))]
fn number(code: ExitCode) -> c_int {
    // There is nowhere to report that the last output cannot be written.
    let _ = io::stdout().flush();
    (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).map_or(1, c_int::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_keep_their_numbers() {
        for code in [0, 1, 2, 124, 125, 255] {
            assert_eq!(number(ExitCode::from(code)), c_int::from(code));
        }
    }
}
