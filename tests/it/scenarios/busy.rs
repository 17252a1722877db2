//! ETXTBSY: threads that write a program and start it at once, while the others' children come and go.

use crate::elf::{self, Programs};
use crate::foreign;
use crate::observe;
use forkless::{Command, Error, Stdio};
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const THREADS: usize = 8;

scenario!(a_program_just_written_is_never_busy, a_program_just_written_at_a_high_descriptor_is_never_busy["high"]);
/// Launches of this crate never find their program busy. With `high`, the files being written have numbers from 64 on,
/// of which the kernel copies none; below 64 it copies all and then closes them (`sane_fdtable_size` in fs/file.c), which
/// is what the retry is for.
pub fn a_program_just_written_is_never_busy(args: &[String]) {
    let mut fill: Vec<File> = Vec::new();
    while args.iter().any(|arg| arg == "high") && fill.len() < 64 {
        fill.push(File::open("/dev/null").expect("open"));
    }
    let high = !fill.is_empty();
    stress(observe::scaled(2000), |path, thread| {
        let mut command = Command::new(path);
        if high {
            // Nothing is held, so nothing has to be tried again.
            command.retry_busy(Duration::ZERO);
        }
        match thread % 4 {
            0 => {
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            }
            1 => {
                command.stdout(Stdio::piped());
            }
            _ => {}
        }
        let status =
            if thread % 2 == 0 { command.spawn().and_then(|mut child| child.wait()) } else { command.status() };
        match status {
            Ok(status) => assert_eq!(status.code(), Some(5)),
            Err(error) => {
                let errno = Error::of(&error).and_then(Error::errno);
                panic!("{error} (errno {errno:?}; {} is {})", libc::ETXTBSY, "ETXTBSY");
            }
        }
        true
    });
    observe::assert_no_orphans();
}

scenario!(a_program_just_written_is_busy_for_posix_spawn);
/// `posix_spawn` finds it busy sooner or later: the stress is one.
/// Negative control: `posix_spawn` fails in the same stress.
pub fn a_program_just_written_is_busy_for_posix_spawn(_: &[String]) {
    const ROUNDS: usize = 40;
    let (busy, launches) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for _ in 0..ROUNDS {
        stress(100, |path, _| {
            launches.fetch_add(1, Relaxed);
            match foreign::posix_spawn(path, None) {
                Ok(pid) => assert_eq!(foreign::wait(pid, 0), Ok((pid, 5 << 8))),
                Err(libc::ETXTBSY) => {
                    busy.fetch_add(1, Relaxed);
                }
                Err(error) => panic!("posix_spawn: errno {error}"),
            }
            busy.load(Relaxed) == 0
        });
        if busy.load(Relaxed) > 0 {
            eprintln!("posix_spawn: {} busy of {}", busy.load(Relaxed), launches.load(Relaxed));
            return;
        }
    }
    panic!(
        "posix_spawn never found a program busy in {} launches: this stress proves nothing here",
        launches.load(Relaxed)
    );
}

/// In each thread, `count` times: writes, closes and starts a new program. Ends early if `start` returns false.
fn stress(count: usize, start: impl Fn(&Path, usize) -> bool + Sync) {
    let programs = Programs::new();
    let bytes = elf::program(5);
    let go_on = AtomicBool::new(true);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (programs, bytes, go_on, start) = (&programs, &bytes, &go_on, &start);
            scope.spawn(move || {
                for n in 0..count {
                    if !go_on.load(Relaxed) {
                        return;
                    }
                    let path = programs.path(&format!("fresh-{thread}-{n}"));
                    elf::write(&path, bytes);
                    if !start(&path, thread) {
                        go_on.store(false, Relaxed);
                    }
                    fs::remove_file(&path).expect("remove");
                }
            });
        }
    });
}
