//! Tells what a program started by a line finds, in a file, as text that two runs can be compared by.
//!
//! `shellprobe [WORDS…]`; the file is named by FUZZ_REPORT. Writes a word to both outputs, and then does what words of these
//! forms say: `exitN`, `killN`, `in` (copies standard input). Has no Rust runtime around `main`, as `probe` has none.

#![no_main]

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The program.
///
/// # Safety
/// Called once, by the C runtime, with the argument vector.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    forkless_tests::patience::end_after(20);
    let mut text = String::new();
    // First of all, before anything could open a descriptor.
    descriptors(&mut text);
    // SAFETY: main's arguments, and the environment, which does not change.
    let (argv, env) = unsafe { (list(words), list(environ)) };
    assert_eq!(argv.len(), count as usize);
    for (kind, entries) in [("arg", &argv), ("env", &env)] {
        for entry in entries {
            let _ = writeln!(text, "{kind} {}", entry.escape_ascii());
        }
    }
    let directory = std::env::current_dir().unwrap_or_default();
    let _ = writeln!(text, "cwd {}", directory.as_os_str().as_bytes().escape_ascii());
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    for line in String::from_utf8_lossy(&status).lines() {
        if ["Umask:", "SigBlk:", "SigIgn:", "SigCgt:"].iter().any(|key| line.starts_with(key)) {
            let _ = writeln!(text, "{line}");
        }
    }
    let file = env.iter().find_map(|entry| entry.strip_prefix(b"FUZZ_REPORT="));
    if let Some(file) = file {
        let _ = std::fs::write(std::ffi::OsStr::from_bytes(file), text);
    }
    put(1, b"out\n");
    put(2, b"err\n");
    argv.iter().skip(1).find_map(|word| act(word)).unwrap_or(0)
}

/// # Safety
/// A list of strings that ends in a null pointer and does not change.
unsafe fn list(mut entries: *const *const c_char) -> Vec<&'static [u8]> {
    let mut found = Vec::new();
    // SAFETY: the caller's list.
    unsafe {
        while !entries.is_null() && !(*entries).is_null() {
            found.push(CStr::from_ptr(*entries).to_bytes());
            entries = entries.add(1);
        }
    }
    found
}

/// Number, target and flags of each open descriptor below 32. What a pipe or a process is called differs from run to run.
fn descriptors(text: &mut String) {
    for fd in 0..32 {
        // SAFETY: asks about numbers, whatever they are.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags >= 0 {
            let target = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
            let target = target.as_os_str().as_bytes();
            let in_process =
                target.strip_prefix(b"/proc/").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit));
            let target = match target {
                _ if target.starts_with(b"pipe:") => &b"pipe"[..],
                _ if in_process => b"a process",
                other => other,
            };
            let _ = writeln!(text, "fd {fd} {} {flags:o}", target.escape_ascii());
        }
    }
}

fn act(word: &[u8]) -> Option<c_int> {
    let word = std::str::from_utf8(word).ok()?;
    if let Some(code) = word.strip_prefix("exit") {
        return code.parse().ok();
    }
    if let Some(signal) = word.strip_prefix("kill") {
        let signal: c_int = signal.parse().ok()?;
        // Of `kill2` and `2>f` a line makes `kill22>f`. Nobody would continue a program that has stopped.
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
        if !stops {
            // SAFETY: ends this process, if anything.
            unsafe { libc::raise(signal) };
        }
    }
    if word == "in" {
        let mut buffer = [0; 64];
        // SAFETY: reads into the buffer.
        let count = unsafe { libc::read(0, buffer.as_mut_ptr().cast(), buffer.len()) };
        put(1, &buffer[..usize::try_from(count).unwrap_or(0)]);
    }
    None
}

fn put(fd: c_int, text: &[u8]) {
    // SAFETY: writes the text's bytes.
    unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
}
