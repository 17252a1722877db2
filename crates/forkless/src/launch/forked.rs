//! Watching a child that was created by fork. It has its own memory, so the kernel clears no futex word when it
//! leaves.

use super::stack::has_left;
use crate::kernel;
use crate::launch::wait::{is_gone, is_stopped};
use crate::procfs::Process;
use crate::sync;
use forkless_core::forked::{ForkFrame, UNWATCHED};
use forkless_core::frame::LEFT;
use forkless_core::sys::{self, errno, uapi};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long to sleep before checking whether a child between clone and exec was stopped or killed.
pub(super) const PATIENCE: Duration = Duration::from_millis(10);

/// [`wait_while`](super::watch::wait_while) for a forked child: waits until it has left. False if the time ran out or
/// the child was found stopped.
pub(super) fn wait_while(shared: &ForkFrame, pid: i32, limit: Option<Duration>) -> bool {
    // A limit beyond the clock's range is no limit.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let has_left = || {
        let known = shared.frame.word.load(Ordering::Acquire) == LEFT || has_left(shared);
        if known {
            // The child no longer writes to the word.
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
        // Without robust futexes the kernel does not wake this thread, so the child is polled.
        let patience = if owner == UNWATCHED { Duration::from_micros(200) } else { PATIENCE };
        if now.duration_since(*looked.get_or_insert(now)) >= patience || left == Some(Duration::ZERO) {
            looked = Some(now);
            // If it cannot be determined at the moment, the child may still be playing its plan.
            let has_executed = || is_executed_now(pid).unwrap_or(false);
            let is_gone = is_gone(pid);
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
    let _ = sync::futex_wait(word, value, Some(&time));
}

/// Whether a child that has left has executed a program; false if it was killed in exec. True if that cannot be
/// determined.
///
/// The kernel marks the exec a moment after the child has left the memory, so this waits for the mark or the child's
/// end.
pub(super) fn has_executed(pid: i32) -> bool {
    loop {
        match is_executed_now(pid) {
            // The child has ended, so a second look is final.
            Some(false) if is_gone(pid) => return is_executed_now(pid) != Some(false),
            Some(false) => sys::pause(Duration::from_micros(50)),
            answer => return answer.unwrap_or(true),
        }
    }
}

/// Whether a process has the mark of an exec, or has ended and waits to be reaped: from `/proc`, also for a process that
/// is no child of the caller. `None`: it does not exist, or is hidden.
pub(super) fn has_mark_or_ended(pid: i32) -> Option<bool> {
    let (state, has_forked_only) = stat(pid)?;
    Some(!has_forked_only || matches!(state, b'Z' | b'X'))
}

/// Whether the child has executed a program. `None` if that cannot be determined at the moment.
///
/// `/proc` shows it for every child, but reading it needs a descriptor. If none is left, `setpgid(2)` shows it for a
/// child in the caller's session. A parent may move a child to another process group only until the child executes a
/// program, and gets EACCES afterwards. No process has the group that is named here, so nothing is moved: before exec
/// the call fails with EPERM. (POSIX, setpgid; the order of the checks is that of setpgid() in kernel/sys.c.)
fn is_executed_now(pid: i32) -> Option<bool> {
    const NO_GROUP: i32 = i32::MAX;
    if let Some((_, has_forked_only)) = stat(pid) {
        return Some(!has_forked_only);
    }
    match kernel::set_group(pid, NO_GROUP) {
        Err(errno::EACCES) => Some(true),
        // For a child in another session the call fails with EPERM before and after exec.
        Err(errno::EPERM) if kernel::session(pid) == kernel::session(0) => Some(false),
        _ => None,
    }
}

/// The state of a process, and whether its flags have PF_FORKNOEXEC, which exec clears: `proc_pid_stat(5)`,
/// include/linux/sched.h.
fn stat(pid: i32) -> Option<(u8, bool)> {
    const PF_FORKNOEXEC: u64 = 0x40;
    let text = Process::open(pid).and_then(|process| process.read("stat")).ok()?;
    // The program's name may contain parentheses; no later field does.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let mut words = text.get(end + 2..)?.split(|&byte| byte == b' ');
    let state = *words.next()?.first()?;
    let flags: u64 = std::str::from_utf8(words.nth(5)?).ok()?.parse().ok()?;
    Some((state, flags & PF_FORKNOEXEC != 0))
}

#[cfg(test)]
mod tests {
    use super::super::stack::Stack;
    use super::UNWATCHED;
    use forkless_core::forked::{OWNER_LEFT, play};
    use forkless_core::frame::GO_AWAY;
    use forkless_core::sys::uapi;
    use nix::libc;
    use std::sync::atomic::Ordering;

    /// The kernel marks only a word with the child's thread ID, and wakes a waiter only if the word has FUTEX_WAITERS,
    /// which it keeps.
    #[test]
    fn the_kernel_marks_the_word_of_a_forked_child_that_has_left() {
        let stack = Stack::shared().expect("a mapping");
        let shared = stack.forked().expect("a frame for a forked child");
        // The child takes the word, and exits at the gate.
        shared.gate.store(GO_AWAY, Ordering::Release);
        // SAFETY: the child makes system calls only, and does not return.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the frame of such a stack is the first field of a ForkFrame.
            unsafe { play(stack.frame_ptr().cast()) };
        }
        let mut status = 0;
        // SAFETY: the kernel writes a status.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid, "{}", std::io::Error::last_os_error());
        let word = shared.owner.load(Ordering::Acquire);
        assert!(word == UNWATCHED || word == uapi::FUTEX_WAITERS | OWNER_LEFT, "{word:#x}");
    }
}
