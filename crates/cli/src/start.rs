//! The main function. It does what Rust's runtime does before `main`, except what makes every `forkless run` slower: the
//! runtime reads `/proc/self/maps` and maps a signal stack to explain a stack overflow.

use std::{
    ffi::{CStr, OsStr, OsString, c_char, c_int},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    process::ExitCode,
};

use crate::run;

// All of it: the linker reads it before the standard library, which refers to it.
#[cfg(all(static_unwinder, not(test)))]
#[link(name = "gcc_eh", kind = "static", modifiers = "+whole-archive")]
unsafe extern "C" {}

/// Called by the C runtime.
// SAFETY: a program has one function of this name, which the C runtime calls with these arguments. The Rust runtime's own
// is left out (`no_main`).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: the C runtime passes `count` strings, which live as long as the process.
    let args = unsafe { arguments(count, words) };
    keep_standard_numbers();
    run::look();
    // SAFETY: an ignored signal runs no code. A closed pipe is an error of the write, and not the end of forkless.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let code = crate::command(&args);
    // There is nowhere to report that the last output cannot be written.
    let _ = io::stdout().flush();
    number(code)
}

/// The arguments of the process.
///
/// # Safety
/// `words` is an array of `count` strings.
unsafe fn arguments(count: c_int, words: *const *const c_char) -> Vec<OsString> {
    let word = |index| {
        // SAFETY: the index is below the count (caller).
        let word = unsafe { CStr::from_ptr(*words.add(index)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    };
    (0..usize::try_from(count).unwrap_or(0)).map(word).collect()
}

/// Opens `/dev/null` for each standard stream that is closed. Otherwise the next file would get its number, and messages
/// would be written to it.
fn keep_standard_numbers() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: an array of 3 entries.
    unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) };
    for _ in streams.iter().filter(|stream| stream.revents & libc::POLLNVAL != 0) {
        // SAFETY: a string; the lowest free number is that of the first closed stream.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    }
}

/// The number of an exit code, which [`ExitCode`] does not give out.
fn number(code: ExitCode) -> c_int {
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
