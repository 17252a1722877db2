//! Whether this process is traced, by a debugger or by strace.
//!
//! The kernel reports a new child to the tracer of its caller, and chooses the kind of report by the clone's flags. A
//! child with neither `CLONE_VFORK` nor the exit signal SIGCHLD is reported as a thread. gdb and lldb then take it
//! for a thread of the host, and lose the host when the child executes a program. With `CLONE_VFORK` it is reported
//! as a process that has the host's memory until exec, and they remove their breakpoints from that memory for that
//! time. So a traced caller launches with `CLONE_VFORK`, and waits for the exec.
//!
//! The answer is in `/proc`, and reading it costs some microseconds. So it is read at the first launch, and again at
//! the first launch after [`WINDOW`] has passed. Launches in between make no system call for it. A tracer that
//! attaches stops the process, mostly for longer than that, so the launches after an attach see the tracer. A forked
//! copy of this process uses the original's answer for no longer than that either.
//!
//! Source: kernel_clone() in kernel/fork.c, PTRACE_EVENT_CLONE in ptrace(2), TracerPid in proc_pid_status(5).

use super::dumpable::now;
use crate::procfs::THREADS_STATUS;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long an answer is used, in nanoseconds.
const WINDOW: u64 = 100_000_000;

/// The same if `/proc` gives no answer. It is longer, because a security module may log each refused read.
const WINDOW_WITHOUT_PROC: u64 = 100 * WINDOW;

/// Until when the answer is used, in nanoseconds of the monotonic clock. The lowest bit is the answer.
static ANSWER: AtomicU64 = AtomicU64::new(0);

/// Whether the process was traced when this was last read. Reads the clock in the vDSO, so mostly without a system
/// call.
pub(super) fn is_traced() -> bool {
    let now = now();
    let answer = ANSWER.load(Ordering::Relaxed);
    if now < answer {
        return answer & 1 == 1;
    }
    let (window, traced) = match has_tracer() {
        Some(traced) => (WINDOW, traced),
        // The previous answer stays. There may be no descriptor left to open the file.
        None => (WINDOW_WITHOUT_PROC, answer & 1 == 1),
    };
    ANSWER.store((now + window) & !1 | traced as u64, Ordering::Relaxed);
    traced
}

/// Whether the calling thread has a tracer; `None` if `/proc` gives no answer.
///
/// Not `/proc/self`: that describes the process's first thread, which may have ended.
fn has_tracer() -> Option<bool> {
    const KEY: &[u8] = b"\nTracerPid:\t";
    let mut text = [MaybeUninit::uninit(); 512];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let status = openat(CWD, THREADS_STATUS, flags, Mode::empty()).ok()?;
    // The lines up to there are Name, Umask, State, Tgid, Ngid, Pid, PPid and TracerPid. They are far shorter than the
    // buffer, even if every byte of the name is escaped.
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
