//! Lines for a shell: what is taken for a simple command is one when it is written again, each word in quotes, and has no error of
//! syntax for dash, bash and busybox (`sh -n` executes nothing).
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// The shells, as they are asked whether a line is one.
const SHELLS: [&[&str]; 3] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"]];

fuzz_target!(|line: &[u8]| {
    thread_local! {
        static TURN: Cell<usize> = const { Cell::new(0) };
    }
    if !forkless::fuzzed::line(line) {
        return;
    }
    let turn = TURN.get();
    TURN.set(turn + 1);
    // A process costs as much as a thousand lines.
    if !turn.is_multiple_of(64) {
        return;
    }
    let [program, args @ ..] = SHELLS[turn / 64 % SHELLS.len()] else { return };
    let mut shell = Command::new(program);
    shell.args(args).args(["-n", "-c"]).arg(OsStr::from_bytes(line)).stdin(Stdio::null());
    if let Ok(output) = shell.output() {
        assert!(output.status.success(), "{program}: {:?}", String::from_utf8_lossy(&output.stderr));
    }
});
