//! Watching a child that was made by fork: it has memory of its own, so no futex word is cleared when it leaves.

use super::stack::has_left;
use crate::kernel;
use crate::wait::{is_gone, is_stopped};
use forkless_core::forked::{ForkFrame, UNWATCHED};
use forkless_core::frame::LEFT;
use forkless_core::planted;
use forkless_core::sys::{self, errno, uapi};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A child between clone and exec that is still there after this is looked at more closely.
pub(super) const PATIENCE: Duration = Duration::from_millis(10);

/// [`wait_while`](super::watch::wait_while) the child has not left; false if the time ran out or it was found stopped.
pub(super) fn wait_while(shared: &ForkFrame, pid: i32, limit: Option<Duration>) -> bool {
    // A limit beyond what the clock holds is no limit.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let has_left = || {
        let known = shared.frame.word.load(Ordering::Acquire) == LEFT || has_left(shared);
        if known {
            // The child writes to it no more.
            shared.frame.word.store(LEFT, Ordering::Release);
        }
        known
    };
    let mut looked = None;
    loop {
        let owner = shared.owner.load(Ordering::Acquire);
        if has_left() {
            return true;
        }
        let now = Instant::now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        // Where the kernel does not say it, it has to be asked for.
        let patience = if owner == UNWATCHED { Duration::from_micros(200) } else { PATIENCE };
        if now.duration_since(*looked.get_or_insert(now)) >= patience || left == Some(Duration::ZERO) {
            looked = Some(now);
            // Where nothing says it yet, the child may still be at its plan.
            let has_executed = || executed(pid).unwrap_or(planted!("unknown-taken-for-executed"));
            let is_gone = is_gone(pid) && !planted!("killed-child-not-missed");
            if is_gone || owner == UNWATCHED && has_executed() {
                shared.frame.word.store(LEFT, Ordering::Release);
                return true;
            }
            if is_stopped(pid) {
                return has_left();
            }
        }
        if left == Some(Duration::ZERO) {
            return false;
        }
        nap(&shared.owner, owner, left.map_or(patience, |left| left.min(patience)));
    }
}

pub(super) fn nap(word: &AtomicU32, value: u32, time: Duration) {
    let time = uapi::__kernel_timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos() as i64 };
    let _ = sys::futex_wait(word, value, Some(&time));
}

/// Has the child, which has left, executed a program, or was it killed in exec? True where that cannot be known.
///
/// It leaves a moment before the kernel marks it as having done so.
pub(super) fn has_executed(pid: i32) -> bool {
    loop {
        match executed(pid) {
            // What has ended changes no more.
            Some(false) if is_gone(pid) => return executed(pid) != Some(false),
            Some(false) => sys::pause(Duration::from_micros(50)),
            answer => return answer.unwrap_or(true),
        }
    }
}

/// Has the child executed a program? None where that cannot be known at the moment.
///
/// `/proc` says it of every child, but reading it takes a descriptor. Without one `setpgid(2)` says it, of a child in our
/// session: a parent may move a child to another process group only until the child executes a program, and then gets
/// EACCES. No process has this group, so nothing is moved: before exec the answer is EPERM. (POSIX, setpgid; the order of
/// the checks is that of setpgid() in kernel/sys.c.)
fn executed(pid: i32) -> Option<bool> {
    const NO_GROUP: i32 = i32::MAX;
    if let Some(has_forked_only) = stat(pid) {
        return Some(!has_forked_only);
    }
    match kernel::set_group(pid, NO_GROUP) {
        Err(errno::EACCES) => Some(true),
        // In another session it is EPERM either way.
        Err(errno::EPERM) if kernel::session(pid) == kernel::session(0) => Some(false),
        _ => None,
    }
}

/// PF_FORKNOEXEC of a child's flags: `proc_pid_stat(5)`, include/linux/sched.h.
fn stat(pid: i32) -> Option<bool> {
    const PF_FORKNOEXEC: u64 = 0x40;
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may have anything in it; nothing behind it has a parenthesis.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let mut words = text.get(end + 2..)?.split(|&byte| byte == b' ');
    let flags: u64 = std::str::from_utf8(words.nth(6)?).ok()?.parse().ok()?;
    Some(flags & PF_FORKNOEXEC != 0)
}
