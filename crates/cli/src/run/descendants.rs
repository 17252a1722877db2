//! All processes that a program has started, for a timeout on a terminal.
//!
//! There the program stays in the process group of forkless: it may read the terminal, and Ctrl-C and Ctrl-Z reach all of a
//! pipeline. So a timeout cannot signal a group. Forkless adopts what the program leaves behind (PR_SET_CHILD_SUBREAPER), and
//! then all descendants of forkless are the program's.

use std::{collections::BTreeSet, fs, io};

use forkless_core::sys;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Are the PIDs in /proc those of this process's PID namespace?
fn has_own_numbers() -> bool {
    fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == sys::getpid().to_string().as_str())
}

/// From now on, processes whose parent ends become children of forkless.
pub(super) fn adopt() {
    // If this fails, the timeout misses processes whose parent has ended.
    let _ = rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1));
}

/// Sends a signal to all descendants but the program itself, until two searches in a row find no new ones: if a process ends
/// during a search, its children move to forkless, where the next search finds them.
pub(super) fn signal_others(program: u32, signal: i32) {
    if !has_own_numbers() {
        return;
    }
    const ROUNDS: usize = 100;
    let mut seen = BTreeSet::from([program as i32]);
    let mut found_none = 0;
    for _ in 0..ROUNDS {
        let new: Vec<_> = all().into_iter().filter(|(pid, _)| !seen.contains(pid)).collect();
        found_none = if new.is_empty() { found_none + 1 } else { 0 };
        if found_none == 2 {
            break;
        }
        for (pid, parent) in new {
            seen.insert(pid);
            // The process may have ended, or may belong to a user whose processes forkless may not signal.
            let _ = send(pid, parent, signal);
        }
    }
}

/// Reaps the adopted processes that have ended. The program is left to its handle.
pub(super) fn reap_others(program: u32) {
    for pid in children(sys::getpid()).into_iter().filter(|pid| *pid as u32 != program) {
        const WNOHANG: u32 = 1;
        let mut status = 0;
        let _ = sys::wait4(pid, &mut status, WNOHANG, None);
    }
}

/// The descendants of forkless, each with its parent.
fn all() -> Vec<(i32, i32)> {
    let mut found: Vec<(i32, i32)> = Vec::new();
    let mut parents = vec![sys::getpid()];
    while let Some(parent) = parents.pop() {
        for pid in children(parent) {
            if found.iter().all(|(known, _)| *known != pid) {
                found.push((pid, parent));
                parents.push(pid);
            }
        }
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Signals by a pidfd, and only if the parent is the expected one: the PID may have been reused.
fn send(pid: i32, parent: i32, signal: i32) -> io::Result<()> {
    let number = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    let pidfd = pidfd_open(number, PidfdFlags::empty())?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let is_ours = |found: i32| found == parent || found == sys::getpid();
    if !after_name.split(' ').nth(2).and_then(|word| word.parse().ok()).is_some_and(is_ours) {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: the number is from 1 to 64: that of --signal, which its parser has checked, KILL or CONT.
    pidfd_send_signal(&pidfd, unsafe { Signal::from_raw_unchecked(signal) })?;
    Ok(())
}
