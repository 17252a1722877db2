//! Launches of every form, with a function called after each that a debugger can stop at.

use crate::elf::Programs;
use crate::observe;
use forkless::{Command, Stdio};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

/// Where a debugger stops. `round` counts the launches.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn forkless_test_launched(round: u32) {
    black_box(round);
}

/// Launches in every form, from the first thread and from another, and ends. `debugged [PROGRAM]`: one that is linked
/// dynamically, as ltrace needs it, and that ends with 0.
pub fn run(args: &[String]) {
    let programs = Programs::new();
    let program = match args.first() {
        Some(program) => (program.into(), 0),
        None => (programs.exits(6), 6),
    };
    let mut round = 0;
    let mut launched = || {
        round += 1;
        forkless_test_launched(round);
    };
    each_form(&program, &mut launched);
    thread::scope(|scope| {
        scope.spawn(|| each_form(&program, &mut launched)).join().expect("a thread");
    });
    assert_eq!(round, 2 * FORMS);
    observe::assert_no_orphans();
    println!("{round} launches");
}

/// How often `launched` is called for each thread.
const FORMS: u32 = 6;

fn each_form((program, code): &(PathBuf, i32), launched: &mut impl FnMut()) {
    assert_eq!(Command::new(program).status().expect("status").code(), Some(*code));
    launched();
    assert_eq!(Command::new(program).spawn().expect("spawn").wait().expect("wait").code(), Some(*code));
    launched();
    assert_eq!(Command::new(program).launch().expect("launch").wait().expect("wait").code(), Some(*code));
    launched();
    assert_eq!(Command::new("/bin/echo").arg("said").output().expect("output").stdout, b"said\n");
    launched();
    let mut cat = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::piped()).launch().expect("launch");
    cat.stdin.take().expect("a pipe").write_all(b"passed").expect("write");
    assert_eq!(cat.wait_with_output().expect("output").stdout, b"passed");
    launched();
    assert!(Command::new("/no/such/program").spawn().is_err());
    launched();
}

/// Launches until a file of this name exists.
pub fn repeatedly(args: &[String]) {
    let end = Path::new(args.first().expect("a path"));
    let programs = Programs::new();
    let program = programs.exits(6);
    let mut round = 0;
    while !end.exists() {
        assert_eq!(Command::new(&program).status().expect("status").code(), Some(6));
        round += 1;
        forkless_test_launched(round);
    }
    println!("{round} launches");
}
