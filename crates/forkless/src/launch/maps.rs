//! The ID maps of a child's new user namespace, which only a process outside it can write.

use super::dumps;
use super::stack::Stack;
use crate::plan::IdMaps;
use crate::procfs::Process;
use crate::sync::{self, AtomicI32, AtomicU32};
use forkless_core::frame::{ASK_WANTED, ASKED, GO, GO_AWAY, LEFT};
use forkless_core::sys::errno;
use rustix::fs::OFlags;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::thread;

/// An errno, and the file that it is about.
pub(crate) type MapError = (i32, &'static str);

/// Writes the maps and lets the child continue; on failure makes it exit. `forbids_dumps`: makes the memory
/// non-dumpable before the child continues.
///
/// The child waits for this call and has not been reaped, so the PID is its own. `is_there` checks that for an
/// autoreaped child, which may be killed and reaped at any time.
pub(crate) fn write(
    pid: i32,
    go: &AtomicU32,
    maps: &IdMaps,
    forbids_dumps: bool,
    is_there: impl Fn() -> bool,
) -> Result<(), MapError> {
    let answer = write_all(pid, maps, is_there);
    if forbids_dumps {
        dumps::forbid();
    }
    go.store(if answer.is_ok() { GO } else { GO_AWAY }, Ordering::Release);
    sync::futex_wake(go);
    answer.map_err(|(error, what)| (error.raw_os_error().unwrap_or(errno::EINVAL), what))
}

/// Clones, while another thread writes the maps: with `CLONE_VFORK` the thread that clones is suspended until the
/// child has left.
///
/// Returns the result of `clone`, and the result of writing the maps if the child has asked for them.
pub(crate) fn write_meanwhile<T>(
    stack: &mut Stack,
    maps: &IdMaps,
    forbids_dumps: bool,
    clone: impl FnOnce(&mut Stack) -> T,
) -> io::Result<(T, Option<Result<(), MapError>>)> {
    let (go, asked, child, word) = stack.handshake();
    child.store(0, Ordering::Relaxed);
    asked.store(ASK_WANTED, Ordering::Relaxed);
    thread::scope(|scope| {
        let wait_and_write = move || {
            await_request(asked, child)
                .map(|pid| write(pid, go, maps, forbids_dumps, || word.load(Ordering::Acquire) != LEFT))
        };
        let writer = thread::Builder::new().spawn_scoped(scope, wait_and_write)?;
        let cloned = clone(stack);
        dismiss_writer(asked, child);
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((cloned, written))
    })
}

/// Waits until a child asks for its maps, and returns its PID. `None`: none will ask.
pub(super) fn await_request(asked: &AtomicU32, child: &AtomicI32) -> Option<i32> {
    while asked.load(Ordering::Acquire) != ASKED {
        let _ = sync::futex_wait(asked, ASK_WANTED, None);
    }
    Some(child.load(Ordering::Relaxed)).filter(|&pid| pid != 0)
}

/// Ends the wait of the thread in [`await_request`]. A child that has not asked by now has left, or was never created.
pub(super) fn dismiss_writer(asked: &AtomicU32, child: &AtomicI32) {
    // A relaxed load suffices: with CLONE_VFORK the clone returns after all stores of the child.
    if asked.load(Ordering::Relaxed) != ASKED {
        child.store(0, Ordering::Relaxed);
        asked.store(ASKED, Ordering::Release);
        sync::futex_wake(asked);
    }
}

fn write_all(pid: i32, maps: &IdMaps, is_there: impl Fn() -> bool) -> Result<(), (io::Error, &'static str)> {
    // One write(2) for each file: the kernel accepts a map only once.
    let process = || Process::open(pid);
    let put = |file: &'static str, text: &str| {
        let opened = process().and_then(|process| process.file(file, OFlags::WRONLY));
        // If the child exists after the open, the file is the child's own, even if its PID is reused later.
        let opened =
            opened.and_then(|file| is_there().then_some(file).ok_or(io::Error::from_raw_os_error(errno::ESRCH)));
        let answer = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        answer.map_err(|error| (error, file))
    };
    if !maps.uid.is_empty() {
        put("uid_map", &maps.uid)?;
    }
    if !maps.gid.is_empty() {
        // Without CAP_SETGID the kernel accepts a group map only after setgroups(2) has been denied (CVE-2014-8989).
        match put("gid_map", &maps.gid) {
            Err((error, _)) if error.raw_os_error() == Some(errno::EPERM) => {
                put("setgroups", "deny")?;
                put("gid_map", &maps.gid)?;
            }
            answer => answer?,
        }
    }
    Ok(())
}
