//! How many processes can still be started here: by the limit of the user (`ulimit -u`), and by those of the cgroups.
//!
//! A job that finds no room waits. But a job that runs cannot wait: where its own fork(2) fails, the job fails.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use forkless_core::sys::{getrlimit, uapi};
use rustix::process::getuid;

use super::message::say;

/// A shell and the program that it starts.
const FOR_A_JOB: u64 = 2;

/// The number of slots: as many as wanted, or fewer if there is no room for so many processes. At least one.
pub(super) fn fit(wanted: usize) -> usize {
    let limits = [of_user(), of_cgroups()];
    let Some((room, what)) = limits.into_iter().flatten().min_by_key(|(room, _)| *room) else { return wanted };
    let fitting = usize::try_from(room / FOR_A_JOB).unwrap_or(usize::MAX).max(1);
    if fitting >= wanted {
        return wanted;
    }
    say(format_args!("only {fitting} jobs at once: {what} leaves room for {room} processes"));
    fitting
}

/// The limit counts the threads of all processes of the real user. Root has none.
fn of_user() -> Option<(u64, &'static str)> {
    let limit = getrlimit(uapi::RLIMIT_NPROC).ok().filter(|_| !getuid().is_root())?[0];
    // First by all threads of the machine, which is faster: "0.00 0.01 0.05 1/123 4567".
    let all = fs::read_to_string("/proc/loadavg").ok()?;
    let all: u64 = all.split(' ').nth(3)?.split_once('/')?.1.parse().ok()?;
    const MANY: u64 = 1 << 16;
    if limit.saturating_sub(all) > MANY {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let own = processes.filter(|entry| entry.metadata().is_ok_and(|file| file.uid() == getuid().as_raw()));
    let threads = own.filter_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse::<u64>().ok())
    });
    Some((limit.saturating_sub(threads.sum()), "the limit of processes (ulimit -u)"))
}

/// Each cgroup on the way to the root may have a limit.
fn of_cgroups() -> Option<(u64, &'static str)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let places = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let root = match (number, controllers) {
            ("0", "") => "/sys/fs/cgroup",
            (_, "pids") => "/sys/fs/cgroup/pids",
            _ => return None,
        };
        Some((PathBuf::from(root), Path::new(path).strip_prefix("/").ok()?.to_owned()))
    });
    let room = places.flat_map(|(root, path)| {
        let above: Vec<PathBuf> = path.ancestors().map(|part| root.join(part)).collect();
        above.into_iter().filter_map(|group| {
            let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
            Some(number("pids.max")?.saturating_sub(number("pids.current")?))
        })
    });
    room.min().map(|room| (room, "a cgroup (pids.max)"))
}
