//! Launches of every form, with a function called after each that a debugger can stop at.

use crate::elf::Programs;
use crate::observe;
use forkless::{Command, Stdio};
use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Where a debugger stops. `round` counts the launches.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn forkless_test_launched(round: u32) {
    black_box(round);
}

part!(run);
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

part!(repeatedly);
/// Launches until a file `end` exists in this directory. When there is one `pause` it makes one `paused`, and goes on when a tracer
/// has been there for longer than the library believes an earlier look: a launch that has begun before cannot know of it.
pub fn repeatedly(args: &[String]) {
    const LONGER_THAN_THE_WINDOW: Duration = Duration::from_millis(150);
    let place = Path::new(args.first().expect("a directory"));
    let [end, pause, paused] = ["end", "pause", "paused"].map(|name| place.join(name));
    let programs = Programs::new();
    let program = programs.exits(6);
    let mut round = 0;
    while !end.exists() {
        if round > 10 && pause.exists() && !paused.exists() {
            fs::write(&paused, "").expect("a file");
            while !is_traced() && !end.exists() {
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(LONGER_THAN_THE_WINDOW);
        }
        assert_eq!(Command::new(&program).status().expect("status").code(), Some(6));
        round += 1;
        forkless_test_launched(round);
    }
    println!("{round} launches");
}

fn is_traced() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    !status.contains("TracerPid:\t0\n")
}
