//! Watching a child between clone and exec: whether it has left the memory, whether it has executed its program, and
//! if not, why.

use super::dumpable::KeepDumpable;
use super::failure;
use super::forked::{self, PATIENCE};
use super::run::{LaunchForm, Running};
use super::stack::Stack;
use crate::error::Error;
use crate::kernel::SIGCONT;
use crate::launch::wait::{self, is_gone, is_stopped};
use crate::plan::Plan;
use crate::sync;
use forkless_core::frame::{LEFT, RUNNING};
use forkless_core::plan::OpCode;
use forkless_core::report::{Outcome, outcome};
use forkless_core::sys::{self, uapi};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Waits as long as `form` requires, and then sets `left` if the child has left the caller's memory.
pub(crate) fn wait_for(
    running: &mut Running,
    form: LaunchForm,
    passes_descriptors: bool,
    keep_dumpable: Option<KeepDumpable>,
) {
    let (stack, id, pidfd) = (&running.stack, running.id, running.pidfd.as_ref());
    if let Some(keep) = keep_dumpable {
        // With every form: the caller's memory is non-dumpable because of the child, and that must be undone before
        // the launch returns. A stopped child is continued, because it might stay stopped for ever.
        wait_though_stopped(stack, id, pidfd, |word| word != LEFT);
        keep.end(id);
    }
    match form {
        LaunchForm::Launch if passes_descriptors => wait_though_stopped(stack, id, pidfd, |word| word == RUNNING),
        LaunchForm::Launch => {}
        LaunchForm::Spawn => {
            if !wait_while(stack, id, None, |word| word != LEFT) && passes_descriptors {
                wait_though_stopped(stack, id, pidfd, |word| word == RUNNING);
            }
        }
        // The caller holds the plan during this wait, so the descriptors that are passed stay open.
        LaunchForm::End => {
            running.ended = Some(wait::wait(running.pid, pidfd, running.started));
            // The child has ended, unless the wait was refused: then it may still be reading the plan.
            while !wait_while(stack, id, None, |word| word != LEFT) {}
        }
    }
    running.left = stack.frame().state() == LEFT;
}

/// Waits while `busy` holds for the futex word. Continues the child if it is stopped.
///
/// Otherwise a stopped child would block the caller for as long as it is stopped. It is not stopped again afterwards:
/// that could undo a SIGCONT of another process, and by then the PID may belong to another process.
pub(crate) fn wait_though_stopped(stack: &Stack, pid: i32, pidfd: Option<&OwnedFd>, busy: impl Fn(u32) -> bool) {
    while !wait_while(stack, pid, None, &busy) {
        wait::signal(pid, pidfd, SIGCONT);
    }
}

/// A child that has failed before it ran its program. It has been reaped.
pub(crate) struct Unstarted {
    pub(crate) outcome: Outcome,
    pub(crate) status: Option<ExitStatus>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
}

impl Unstarted {
    pub(crate) fn error(&self, plan: &Plan) -> Error {
        failure::failed(plan, self.outcome).by(self.signal)
    }
}

/// The end of a launch whose child has left, however it was created: the child runs its program, or is reaped.
pub(crate) fn conclude(running: &mut Running, plan: &Plan) -> Result<(), Unstarted> {
    let outcome = match result(&running.stack, plan) {
        Err(outcome) => outcome,
        Ok(()) if running.ended.is_none() && plan.place.is_filtered && !has_executed(&running.stack, running.pid) => {
            killed_in_exec(plan)
        }
        Ok(()) => return Ok(()),
    };
    let status = reap(running);
    Err(Unstarted { outcome, status, signal: fatal_signal(&running.stack, status) })
}

/// Reaps a child that has been told to exit, because its ID maps could not be written. `None`: it had not failed before.
pub(crate) fn dismissed(running: &mut Running, plan: &Plan) -> Option<Unstarted> {
    let status = reap(running);
    // Else it has failed because of the maps: it waited for them.
    let is_earlier = |outcome: &Outcome| !matches!(outcome, Outcome::Failed { code: OpCode::AwaitGo, .. });
    let outcome = result(&running.stack, plan).err().filter(is_earlier)?;
    Some(Unstarted { outcome, status, signal: fatal_signal(&running.stack, status) })
}

/// Reaps a child that has failed, or that must exit, and is about to leave. Continues it if it is stopped.
pub(crate) fn reap(running: &mut Running) -> Option<ExitStatus> {
    let (stack, pidfd) = (&running.stack, running.pidfd.as_ref());
    wait_though_stopped(stack, running.id, pidfd, |word| word != LEFT);
    match running.ended.take() {
        // No other part of the program can have reaped a child that we have cloned and that has not executed a program.
        None if stack.has_shared_memory() => wait::reap(running.pid, pidfd),
        ended => {
            let ended = ended.unwrap_or_else(|| wait::wait(running.pid, pidfd, running.started));
            ended.ok().map(|ended| ended.status)
        }
    }
}

/// Waits on a stack's futex word while `busy` holds. False if the time ran out or the child was found stopped. `pid`:
/// the child's PID, which is not reused before the word is cleared.
pub(crate) fn wait_while(stack: &Stack, pid: i32, limit: Option<Duration>, busy: impl Fn(u32) -> bool) -> bool {
    if let Some(shared) = stack.forked() {
        return forked::wait_while(shared, pid, limit);
    }
    let frame = stack.frame();
    // A limit beyond the clock's range is no limit.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut looked = None;
    loop {
        let value = frame.state();
        if !busy(value) {
            return true;
        }
        // By the clock, and not by the number of sleeps: signals to this process may cut each sleep short.
        let now = Instant::now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        let is_over = left == Some(Duration::ZERO);
        if now.duration_since(*looked.get_or_insert(now)) >= PATIENCE || is_over {
            looked = Some(now);
            if is_gone(pid) {
                // The child was killed together with its zygote's helper, which could not report it; or the kernel could not
                // clear the word: see `Stack::child_has_ended`.
                frame.word.store(LEFT, Ordering::Release);
                continue;
            }
            if is_stopped(pid) {
                return !busy(frame.state());
            }
        }
        if is_over {
            return false;
        }
        let nap = left.map_or(PATIENCE, |left| left.min(PATIENCE));
        let nap = uapi::__kernel_timespec { tv_sec: nap.as_secs() as i64, tv_nsec: nap.subsec_nanos() as i64 };
        let _ = sync::futex_wait(&frame.word, value, Some(&nap));
    }
}

/// The signal that ended a child: from its status, or from the handler that ended it because of the signal
/// (`signals::guard`).
pub(crate) fn fatal_signal(stack: &Stack, status: Option<ExitStatus>) -> Option<i32> {
    match stack.frame().ended_by.load(Ordering::Relaxed) {
        0 => status.and_then(|status| status.signal()),
        signal => Some(signal as i32),
    }
}

/// After the child has left: whether it has executed the program, or how it failed.
pub(crate) fn result(stack: &Stack, plan: &Plan) -> Result<(), Outcome> {
    // SAFETY: the child has left; it has played this plan, or a copy of it.
    match unsafe { outcome(stack.frame(), plan.header()) } {
        Outcome::Exec => Ok(()),
        failure => Err(failure),
    }
}

/// How a child failed that its own seccomp filter killed in exec.
pub(crate) fn killed_in_exec(plan: &Plan) -> Outcome {
    Outcome::Killed(Some((plan.last_op(), OpCode::Exec)))
}

/// After the child has left: the best-effort steps that failed.
pub(crate) fn skipped(stack: &Stack, plan: &Plan) -> Vec<Error> {
    failure::skipped(plan, stack.frame())
}

/// Whether a child that has left has executed its program. A child that was killed in exec, for example by a seccomp
/// filter, reports nothing. But exec has not set its exit signal, so a wait with `__WALL` sees it and other waits do
/// not.
pub(crate) fn has_executed(stack: &Stack, pid: i32) -> bool {
    if !stack.has_shared_memory() {
        return forked::has_executed(pid);
    }
    is_program(pid)
}

/// The same for a child that shared the caller's memory and has left it.
pub(crate) fn is_program(pid: i32) -> bool {
    let sees = |more: u32| {
        let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | more;
        sys::waitid(uapi::P_PID, pid, &mut { sys::SignalInfo::EMPTY }, options, None).is_ok()
    };
    sees(0) || !sees(uapi::__WALL)
}
