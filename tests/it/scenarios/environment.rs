//! A child gets the environment at the time of the launch, whatever changes it, and however many variables there are.

use crate::allocator;
use crate::elf::Programs;
use forkless::{Command, Stdio};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command as Other, ExitStatus, Output, Stdio as OtherStdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Variables that are taken out one by one; between them are as many that stay.
const TAKEN: usize = 300;

fn name(letter: char, number: usize) -> String {
    format!("{letter}{number:03}")
}

/// The environment of a child, entry by entry.
fn of_child() -> Vec<Vec<u8>> {
    entries(Command::new("/usr/bin/env").arg("-0").stdin(Stdio::null()).output())
}

/// The same by a line, without the shell if that is one that is known.
fn of_line() -> Vec<Vec<u8>> {
    entries(forkless::shell("/usr/bin/env -0").output())
}

/// The same by the shell.
fn of_shell() -> Vec<Vec<u8>> {
    entries(Other::new("/bin/sh").args(["-c", "/usr/bin/env -0"]).output())
}

fn entries(output: std::io::Result<Output>) -> Vec<Vec<u8>> {
    let output = output.expect("env");
    assert!(output.status.success());
    let mut entries: Vec<_> = output.stdout.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    assert_eq!(entries.pop().as_deref(), Some(&b""[..]));
    entries
}

fn of_caller() -> Vec<Vec<u8>> {
    let entry = |(name, value): (OsString, OsString)| [name.into_vec(), b"=".to_vec(), value.into_vec()].concat();
    std::env::vars_os().map(entry).collect()
}

#[track_caller]
fn same(one: Vec<Vec<u8>>, other: Vec<Vec<u8>>, when: &str) {
    let differ = one.iter().zip(&other).find(|(one, other)| one != other);
    let differ = differ.map(|(one, other)| (one.escape_ascii().to_string(), other.escape_ascii().to_string()));
    assert!(one == other, "{when}: {} entries by {}, {differ:?}", one.len(), other.len());
}

/// Again as a program with those variables.
fn check_again(words: &[&str]) {
    let mut command = Other::new("/proc/self/exe");
    command.args(words).stdin(OtherStdio::null());
    for number in 0..TAKEN {
        command.env(name('T', number), "taken").env(name('S', number), "stays");
    }
    assert!(command.status().expect("starts").success());
}

scenario!(a_changed_environment_is_noticed);
/// One change after the other, beginning with one or the other kind, by the only thread and then beside others.
pub fn a_changed_environment_is_noticed(args: &[String]) {
    if args.is_empty() {
        for first in ["0", "1", "2", "5", "8"] {
            check_again(&["environment::a_changed_environment_is_noticed", first]);
            check_again(&["environment::a_changed_environment_is_noticed", first, "beside"]);
        }
        return;
    }
    // SAFETY: the only thread that touches the environment.
    let set = |name: &str, value: &str| unsafe { std::env::set_var(name, value) };
    // SAFETY: as above.
    let remove = |name: &str| unsafe { std::env::remove_var(name) };
    let wipe = |name: &str| {
        let name = CString::new(name).expect("no NUL");
        // SAFETY: the only thread; a string of the environment is written to within its length, as programs do with secrets.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            assert!(!value.is_null());
            libc::memset(value.cast(), 0, libc::strlen(value));
        }
    };
    let steps: [&dyn Fn(); 9] = [
        &|| {},
        &|| set("T005", "another value"),
        &|| remove("T006"),
        &|| remove("T007"),
        &|| set("T005", "taken"),
        &|| set("NEW", "1"),
        &|| remove("NEW"),
        &|| set("T006", "taken"),
        &|| wipe("T008"),
    ];
    if args.get(1).is_some_and(|word| word == "beside") {
        // From the first other thread on libc does not say any more that there is none.
        thread::spawn(|| {}).join().expect("a thread");
    }
    same(of_child(), of_caller(), "at first");
    same(of_line(), of_shell(), "by a line, at first");
    let first = args[0].parse().expect("a number");
    for (n, step) in steps.iter().enumerate().skip(first) {
        step();
        same(of_child(), of_caller(), &format!("after step {n}"));
        same(of_line(), of_shell(), &format!("by a line, after step {n}"));
    }
    // Where PWD is not right any more, what was found when it was does not count.
    std::env::set_current_dir("/tmp").expect("a directory");
    same(of_line(), of_shell(), "by a line, elsewhere");
}

scenario!(an_environment_that_changes_concurrently_is_copied_consistently);
/// While another thread takes variables out, a child has all that stay, and of the others those that were there at one
/// moment during its launch.
pub fn an_environment_that_changes_concurrently_is_copied_consistently(args: &[String]) {
    if args.is_empty() {
        return (0..crate::observe::scaled(10)).for_each(|_| {
            check_again(&["environment::an_environment_that_changes_concurrently_is_copied_consistently", "again"])
        });
    }
    // Seen whole before it changes.
    assert_eq!(of_child(), of_caller());
    let (gone, start) = (AtomicUsize::new(0), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for number in 0..TAKEN {
                // SAFETY: no other thread reads the environment but by `std::env`, and by the library under test.
                unsafe { std::env::remove_var(name('T', number)) };
                gone.store(number + 1, Ordering::SeqCst);
                if number % 8 == 0 {
                    thread::yield_now();
                }
            }
        });
        start.wait();
        loop {
            let before = gone.load(Ordering::SeqCst);
            let entries = of_child();
            let after = (gone.load(Ordering::SeqCst) + 1).min(TAKEN);
            let numbers = |letter: u8| -> Vec<usize> {
                let value = if letter == b'T' { "=taken" } else { "=stays" };
                let ours = entries.iter().filter(|entry| entry[0] == letter && entry.ends_with(value.as_bytes()));
                let number = |entry: &Vec<u8>| String::from_utf8_lossy(&entry[1..4]).parse().expect("a number");
                ours.map(number).collect()
            };
            let sorted = |mut numbers: Vec<usize>| {
                numbers.sort_unstable();
                numbers
            };
            assert_eq!(sorted(numbers(b'S')), (0..TAKEN).collect::<Vec<_>>(), "those that stay");
            let left = sorted(numbers(b'T'));
            assert!((before..=after).contains(&(TAKEN - left.len())), "{} left of {before}..={after}", left.len());
            assert_eq!(left, (TAKEN - left.len()..TAKEN).collect::<Vec<_>>(), "a moment's");
            if before == TAKEN {
                break;
            }
        }
    });
}

scenario!(launches_do_not_copy_each_variable);
/// Beside another thread a launch allocates no more for many variables than for few, and no more bytes: they are not copied.
pub fn launches_do_not_copy_each_variable(args: &[String]) {
    let programs = Programs::new();
    if args.is_empty() {
        let run = |more: usize| {
            let mut command = Other::new("/proc/self/exe");
            command.args(["environment::launches_do_not_copy_each_variable", "again"]).env_clear();
            command.env("PWD", std::env::current_dir().expect("a directory"));
            (0..more).for_each(|number| _ = command.env(name('T', number), "x"));
            let output = command.output().expect("starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("numbers")
        };
        let (few, many) = (run(3), run(300));
        assert!(few.lines().all(|line| !line.contains(": 0")), "{few}");
        return assert_eq!(few, many, "in 10 launches");
    }
    thread::spawn(|| {}).join().expect("a thread");
    let program = programs.exits(0);
    let ways: [(&str, &dyn Fn() -> ExitStatus); 2] = [
        ("command", &|| Command::new(&program).status().expect("status")),
        ("line", &|| forkless::shell(program.as_os_str().as_bytes()).status().expect("status")),
    ];
    for (name, launch) in ways {
        assert!(launch().success());
        let before = (allocator::calls(), allocator::bytes());
        (0..10).for_each(|_| assert!(launch().success()));
        println!("{name}: {} allocations, bytes: {}", allocator::calls() - before.0, allocator::bytes() - before.1);
    }
}
