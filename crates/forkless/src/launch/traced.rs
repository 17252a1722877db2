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

use super::dumpable::now;
use forkless_core::planted;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long an answer is believed, in nanoseconds.
const WINDOW: u64 = 100_000_000;

/// The same where `/proc` gives no answer: each look may be a line in a security module's log.
const WINDOW_WITHOUT_PROC: u64 = 100 * WINDOW;

/// Until when the answer is believed, in nanoseconds of the monotonic clock, and the answer in the lowest bit.
static ANSWER: AtomicU64 = AtomicU64::new(0);

/// Is the process traced, as far as was seen a short while ago? By the vDSO's clock: mostly without a system call.
pub(super) fn is_traced() -> bool {
    let now = now();
    let answer = ANSWER.load(Ordering::Relaxed);
    if now < answer && !planted!("tracer-looked-for-each-time") {
        return answer & 1 == 1;
    }
    let (window, traced) = match has_tracer() {
        Some(traced) => (WINDOW, traced),
        // As before: there may be no descriptor left for the look.
        None => (WINDOW_WITHOUT_PROC, answer & 1 == 1),
    };
    let window = if planted!("tracer-looked-for-once") { 1 << 62 } else { window };
    ANSWER.store((now + window) & !1 | traced as u64, Ordering::Relaxed);
    traced
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
    }
}
