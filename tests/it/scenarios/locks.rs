//! POSIX record locks of a caller that executes another program right after a launch.

use crate::observe::{self, skip};
use forkless::Command;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process;

fn lock(kind: i32) -> libc::flock {
    // SAFETY: zeroes are a valid lock, of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    lock
}

part!(after);
/// The program that the caller executes: ends with 1 if the file is no longer locked.
pub fn after(args: &[String]) {
    let [path] = args else { panic!("PATH") };
    // Time for the child to leave the first table.
    std::thread::sleep(std::time::Duration::from_millis(20));
    // Another process, which does not hold the lock.
    let status =
        process::Command::new("/proc/self/exe").args(["locks::expect_lock", path]).status().expect("a process");
    process::exit(if status.success() { 0 } else { 1 });
}

part!(expect_lock);
/// Succeeds if another process holds a lock on the file.
pub fn expect_lock(args: &[String]) {
    let file = File::options().read(true).write(true).open(&args[0]).expect("the file");
    let mut found = lock(libc::F_WRLCK);
    // SAFETY: the kernel writes a lock.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut found) }, 0);
    process::exit(if found.l_type == libc::F_UNLCK as i16 { 1 } else { 0 });
}

/// In how many of `rounds` runs the lock is lost.
fn lost(keeps: bool, rounds: usize) -> usize {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut lost = 0;
    for _ in 0..rounds {
        let mut host = process::Command::new("/proc/self/exe");
        host.arg("locks::host").arg(file.path()).arg(if keeps { "keeps" } else { "plain" });
        lost += !host.status().expect("a host").success() as usize;
    }
    lost
}

part!(host);
/// Takes the lock, launches, and executes [`after`].
pub fn host(args: &[String]) {
    let [path, keeps] = args else { panic!("PATH keeps|plain") };
    // The kernel is probed before.
    assert!(Command::new("/bin/true").status().expect("status").success());
    let file = File::options().read(true).write(true).open(path).expect("the file");
    // As standard input it stays open in the next program. Closing another descriptor of it would give up the lock.
    // SAFETY: the standard input is this process's own; the kernel reads a lock.
    unsafe { libc::dup2(file.as_raw_fd(), 0) };
    drop(file);
    // SAFETY: the kernel reads a lock.
    assert_eq!(unsafe { libc::fcntl(0, libc::F_SETLK, &lock(libc::F_WRLCK)) }, 0);
    let _child = Command::new("/bin/true").keep_record_locks(keeps == "keeps").launch().expect("launch");
    let error = process::Command::new("/proc/self/exe").args(["locks::after", path]).exec();
    panic!("{error}");
}

scenario!(record_locks_stay_when_the_caller_executes_another_program);
/// With the setting no lock is lost; without it most are, which shows that this is noticed.
/// With the lost locks of callers without the setting as a control.
pub fn record_locks_stay_when_the_caller_executes_another_program(_: &[String]) {
    assert_eq!(lost(true, observe::scaled(20)), 0);
    if lost(false, 20) == 0 {
        skip("the negative control of record locks", "no lock was lost");
    }
}
