//! Hosts with very many threads, open files or mappings: `scenario NAME with=threads:10000`.

use crate::observe;
use crate::unusual;
use std::fs;
use std::mem;
use std::sync::mpsc::channel;
use std::thread;

/// Removes the requested numbers from the arguments, and provides them until the process ends.
pub(crate) fn choose(args: &mut Vec<String>) {
    args.retain(|arg| {
        let Some((kind, count)) = arg.strip_prefix("with=").and_then(|rest| rest.split_once(':')) else { return true };
        let wanted: usize = count.parse().expect("a number");
        let made = match kind {
            "threads" => threads(wanted),
            "files" => files(wanted),
            "mappings" => mappings(wanted),
            _ => match unusual::become_it(kind) {
                Some(true) => wanted,
                Some(false) => {
                    observe::skip(&format!("a host with {kind}"), "the kernel has none of it");
                    std::process::exit(0);
                }
                None => panic!("{kind} is no kind of crowd"),
            },
        };
        let short = if made < wanted {
            format!(", of {wanted}: no more fit the limits of this machine")
        } else {
            String::new()
        };
        println!("USED: {made} {kind}{short}");
        false
    });
}

/// Threads, or other things, that are left for whatever the scenario itself needs.
const SPARE: usize = 1000;

fn threads(count: usize) -> usize {
    let (mut threads, mut started) = (Vec::new(), 0);
    let (begun, beginnings) = channel();
    while threads.len() < count {
        let (sender, receiver) = channel::<()>();
        let begun = begun.clone();
        // It ends when the sender is dropped.
        let body = move || {
            let _ = begun.send(());
            let _ = receiver.recv();
        };
        match thread::Builder::new().stack_size(16 << 10).spawn(body) {
            Ok(thread) => {
                threads.push((sender, thread));
                started += 1;
            }
            Err(_) => {
                let kept = threads.len().saturating_sub(SPARE);
                for (sender, thread) in threads.drain(kept..) {
                    drop(sender);
                    thread.join().expect("a thread");
                }
                break;
            }
        }
    }
    let made = threads.len();
    // A thread maps its alternate signal stack as it begins, which the scenario must not count as its own mappings.
    beginnings.iter().take(started).for_each(drop);
    mem::forget(threads);
    made
}

fn files(count: usize) -> usize {
    let limit = sysctl("/proc/sys/fs/nr_open").min(count + SPARE) as u64;
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: read and write a limit of this process.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now);
        let wanted = libc::rlimit { rlim_cur: limit, rlim_max: limit.max(now.rlim_max) };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) != 0 {
            now.rlim_cur = now.rlim_max.min(limit);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const now);
        }
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now);
    }
    let fits = count.min((now.rlim_cur as usize).saturating_sub(SPARE));
    // One file, under many numbers.
    // SAFETY: new descriptors.
    (0..fits).take_while(|_| unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3) } >= 0).count()
}

fn mappings(count: usize) -> usize {
    let present = observe::mappings();
    let fits = count.min(sysctl("/proc/sys/vm/max_map_count").saturating_sub(present + SPARE));
    let mapped = |n: usize| {
        // Adjacent mappings with the same protection would be merged.
        let protection = if n.is_multiple_of(2) { libc::PROT_READ } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel likes.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) != libc::MAP_FAILED }
    };
    (0..fits).take_while(|n| mapped(*n)).count()
}

fn sysctl(path: &str) -> usize {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(usize::MAX)
}
