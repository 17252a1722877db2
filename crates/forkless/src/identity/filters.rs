//! Whether two threads have the same seccomp filters. The kernel shows how many a thread has, and not which.
//!
//! A thread inherits the filters of the thread that started it. It can add filters, and cannot remove any. So two facts
//! are certain:
//! - A thread whose number has not changed has the filters that it had.
//! - While a process has a single thread, that thread's filters are *common*: all threads that are started later have
//!   them too, and those with the same number have no others.
//!
//! All other filters are a thread's *own*, even if the thread that started it, or all threads
//! (SECCOMP_FILTER_FLAG_TSYNC), have the same: nothing shows that.
//!
//! So a process has to be seen while it has a single thread. That is tried when this library is loaded, before it starts
//! a thread, and each time that a status is read for a comparison.
//!
//! Before Linux 5.9 the number is not shown either. There, a filter that a thread adds to common ones is not noticed.
//!
//! Source: copy_seccomp(), seccomp_attach_filter() and seccomp_sync_threads() in kernel/seccomp.c and kernel/fork.c.

use crate::procfs::Status;
use forkless_core::signals::has_filter;
use forkless_core::sys;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

/// The PID of the process that had a single thread (upper half), and the number of its filters. 0: it has not been seen
/// with filters. Another process that has this memory, because it was forked or because it shares it, has to be seen itself.
static COMMON: AtomicU64 = AtomicU64::new(0);

/// The number of filters where the kernel does not show it.
const UNKNOWN: u32 = u32::MAX;

/// The number of filters of the thread that has this status.
fn number(status: &Status) -> u32 {
    let [mode, number] = status.values(["Seccomp:", "Seccomp_filters:"]);
    match mode.is_none_or(|mode| mode.trim_ascii() == b"0") {
        true => 0,
        false => Status::number(number, 10).map_or(UNKNOWN, |number| number as u32),
    }
}

fn entry(number: u32) -> u64 {
    (sys::getpid() as u64) << 32 | u64::from(number)
}

/// Notes the filters of the calling thread as common, if it is the only thread. `status`: its own, read by itself, so
/// that no thread has been started meanwhile.
fn note(status: &Status, number: u32) {
    let [threads] = status.values(["Threads:"]);
    if Status::number(threads, 10) == Some(1) {
        COMMON.store(entry(number), Ordering::Relaxed);
    }
}

/// Notes the filters of the calling thread, if it has any and is the only thread.
pub(crate) fn note_filters() {
    if has_filter() {
        if let Ok(status) = Status::of_caller() {
            note(&status, number(&status));
        }
    }
}

/// Runs when this library is loaded. In most programs that is before `main` and before the first thread is started. It
/// makes one system call, and reads a file only in a process that has filters.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = look_at_load;

extern "C" fn look_at_load() {
    note_filters();
}

/// The thread that the calling thread's filters belong to: `thread`, or `None` if it has none or common ones. `status`:
/// the calling thread's.
pub(super) fn owner(status: &Status, thread: ThreadId) -> Option<ThreadId> {
    // A reference, so that the entry for the loader is linked.
    let _ = &raw const AT_LOAD;
    let number = number(status);
    if number == 0 {
        return None;
    }
    note(status, number);
    let is_common = COMMON.load(Ordering::Relaxed) == entry(number);
    (!is_common).then_some(thread)
}
