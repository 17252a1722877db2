//! Is this process traced, by a debugger or by strace?
//!
//! The kernel announces a child to its caller's tracer by the flags of the clone. A child with neither `CLONE_VFORK` nor
//! SIGCHLD as its exit signal is announced as a thread: gdb and lldb then take it for one of the host's, and lose the host
//! when it executes a program. With `CLONE_VFORK` it is announced as what it is, a process that has the host's memory until
//! exec, and they take their breakpoints out of that memory meanwhile. So a traced caller launches with `CLONE_VFORK`, and
//! waits for the exec.
//!
//! The answer is in `/proc` and costs some microseconds. So it is asked for at the first launch, and again at the first
//! that is [`WINDOW`] later; a launch in between costs no system call. A tracer that attaches stops the process, mostly for
//! longer than that, so the launches after an attach know of it. A forked copy of this process has the original's answer for no
//! longer than that either.
//!
//! Source: kernel_clone() in kernel/fork.c, PTRACE_EVENT_CLONE in ptrace(2), TracerPid in proc_pid_status(5).

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How long an answer is believed, in nanoseconds.
const WINDOW: u64 = 100_000_000;

/// The same where `/proc` gives no answer: each look may be a line in a security module's log.
const WINDOW_WITHOUT_PROC: u64 = 100 * WINDOW;

/// Until when the answer is believed, in nanoseconds of the wall clock, which an atomic can hold; and in the lowest bits the
/// answer.
static ANSWER: AtomicU64 = AtomicU64::new(0);

const TRACED: u64 = 1;
const WITHOUT_PROC: u64 = 2;

/// Is the process traced, as far as was seen a short while ago? By the vDSO's clock: mostly without a system call.
pub(super) fn is_traced() -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let answer = ANSWER.load(Ordering::Relaxed);
    let window = if answer & WITHOUT_PROC == 0 { WINDOW } else { WINDOW_WITHOUT_PROC };
    // Whoever sets the clock back does not prolong it.
    if answer.checked_sub(now).is_some_and(|left| left > 0 && left <= window) {
        return answer & TRACED != 0;
    }
    let (window, found) = match has_tracer() {
        Some(traced) => (WINDOW, if traced { TRACED } else { 0 }),
        // As before: there may be no descriptor left for the look.
        None => (WINDOW_WITHOUT_PROC, answer & TRACED | WITHOUT_PROC),
    };
    ANSWER.store((now + window) & !(TRACED | WITHOUT_PROC) | found, Ordering::Relaxed);
    found & TRACED != 0
}

/// Has the calling thread a tracer? The process's first thread, which `/proc/self` is about, may have ended.
///
/// None where `/proc` does not tell.
fn has_tracer() -> Option<bool> {
    const KEY: &[u8] = b"\nTracerPid:\t";
    let mut text = [MaybeUninit::uninit(); 512];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let status = openat(CWD, c"/proc/thread-self/status", flags, Mode::empty()).ok()?;
    // Name, Umask, State, Tgid, Ngid, Pid, PPid, TracerPid: far fewer bytes, even where each of the name's is escaped.
    let (text, _) = rustix::io::read(&status, &mut text).ok()?;
    let at = text.windows(KEY.len()).position(|window| window == KEY)?;
    Some(*text.get(at + KEY.len())? != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_for_its_window() {
        let is_expected = has_tracer().expect("/proc");
        assert_eq!(is_traced(), is_expected);
        let until = ANSWER.load(Ordering::Relaxed);
        assert_eq!(is_traced(), is_expected);
        let again = ANSWER.load(Ordering::Relaxed);
        assert!(until == again || again >= until + WINDOW / 2, "{until} {again}");
        // The clock is set back by an hour, as it were: that answer is of no use.
        ANSWER.store((until + 3_600_000_000_000) & !TRACED | !is_expected as u64, Ordering::Relaxed);
        assert_eq!(is_traced(), is_expected);
        assert!(ANSWER.load(Ordering::Relaxed) < until + 60_000_000_000);
    }
}
