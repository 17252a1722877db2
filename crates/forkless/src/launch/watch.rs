//! Watching a child between clone and exec: has it left, has it executed its program, and if not, why.

use super::dumpable::KeepDumpable;
use super::failure;
use super::forked::{self, PATIENCE};
use super::run::{Form, Running};
use super::stack::Stack;
use crate::error::Error;
use crate::kernel::SIGCONT;
use crate::plan::Plan;
use crate::wait::{self, is_gone, is_stopped};
use forkless_core::frame::{LEFT, RUNNING};
use forkless_core::plan::OpCode;
use forkless_core::planted;
use forkless_core::report::{Outcome, outcome};
use forkless_core::sys::{self, uapi};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Waits as long as the form asks; sets `left` if the child has left our memory by then.
pub(crate) fn wait_for(
    running: &mut Running,
    form: Form,
    passes_descriptors: bool,
    keep_dumpable: Option<KeepDumpable>,
) {
    let (stack, id, pidfd) = (&running.stack, running.id, running.pidfd.as_ref());
    if let Some(keep) = keep_dumpable {
        // Whatever the form: what the child did to us must be undone before anything else happens. It is continued if
        // it is stopped, since it could be for ever.
        wait_though_stopped(stack, id, pidfd, |word| word != LEFT);
        keep.end(id);
    }
    match form {
        Form::Launch if passes_descriptors => wait_though_stopped(stack, id, pidfd, |word| word == RUNNING),
        Form::Launch => {}
        Form::Spawn => {
            if !wait_while(stack, id, None, |word| word != LEFT) && passes_descriptors {
                wait_though_stopped(stack, id, pidfd, |word| word == RUNNING);
            }
        }
        // What the child is passed stays open as long as the caller of this holds the plan.
        Form::End => {
            running.ended = Some(wait::wait(running.pid, pidfd, running.started));
            // It has gone, unless we are not allowed to wait: then it may still be reading the plan.
            while !wait_while(stack, id, None, |word| word != LEFT) {}
        }
    }
    running.left = stack.frame().state() == LEFT;
}

/// Waits while `busy` holds for the futex word, also for a stopped child.
///
/// A child stopped before it has done what we wait for would keep us here for as long as it is stopped, so it is continued.
/// It is not stopped again: a SIGCONT that came meanwhile would be undone, and its pid may by then be another's.
pub(crate) fn wait_though_stopped(stack: &Stack, pid: i32, pidfd: Option<&OwnedFd>, busy: impl Fn(u32) -> bool) {
    while !wait_while(stack, pid, None, &busy) {
        if !planted!("stopped-child-not-continued") {
            wait::signal(pid, pidfd, SIGCONT);
        }
    }
}

/// Reaps a child that has failed or been sent away, and is about to leave; one that is stopped has to go on for that.
pub(super) fn reap(running: &Running) -> Option<ExitStatus> {
    wait_though_stopped(&running.stack, running.id, running.pidfd.as_ref(), |word| word != LEFT);
    wait::reap(running.pid, running.pidfd.as_ref())
}

/// Waits on a stack's futex word; false if the time ran out or the child was found stopped. `pid`: its process id, which is not
/// another's as long as the word is not clear.
pub(crate) fn wait_while(stack: &Stack, pid: i32, limit: Option<Duration>, busy: impl Fn(u32) -> bool) -> bool {
    if let Some(shared) = stack.forked() {
        return forked::wait_while(shared, pid, limit);
    }
    let frame = stack.frame();
    // A limit beyond what the clock holds is no limit.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut looked = None;
    loop {
        let value = frame.state();
        if !busy(value) {
            return true;
        }
        // The first time round nothing has been slept; after that, signals to us may cut each sleep short.
        let now = Instant::now();
        if now.duration_since(*looked.get_or_insert(now)) >= PATIENCE {
            looked = Some(now);
            if stack.is_lent() && is_gone(pid) {
                // Killed together with its helper, before it could tell.
                frame.word.store(LEFT, Ordering::Release);
                continue;
            }
            if is_stopped(pid) {
                return !busy(frame.state());
            }
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            return false;
        }
        let nap = left.map_or(PATIENCE, |left| left.min(PATIENCE));
        let nap = uapi::__kernel_timespec { tv_sec: nap.as_secs() as i64, tv_nsec: nap.subsec_nanos() as i64 };
        let _ = sys::futex_wait(&frame.word, value, Some(&nap));
    }
}

/// The signal that ended a child, by its status or by the handler that ended it in the signal's place.
pub(crate) fn fatal_signal(stack: &Stack, status: Option<ExitStatus>) -> Option<i32> {
    match stack.frame().ended_by.load(Ordering::Relaxed) {
        0 => status.and_then(|status| status.signal()),
        signal => Some(signal as i32),
    }
}

/// After the child has left: has it executed the program?
pub(crate) fn result(stack: &Stack, plan: &Plan) -> Result<(), Outcome> {
    // SAFETY: the child has left; it has played this plan, or a copy of it.
    match unsafe { outcome(stack.frame(), plan.header()) } {
        Outcome::Exec => Ok(()),
        failure => Err(failure),
    }
}

/// The error of a child that a filter of its own killed in exec.
pub(crate) fn killed_in_exec(plan: &Plan, status: Option<ExitStatus>) -> Error {
    let error = failure::failed(plan, Outcome::Killed(Some((plan.last_op(), OpCode::Exec))));
    error.by(status.and_then(|status| status.signal()))
}

/// After the child has left: how it failed, if it did not come to execute the program.
pub(crate) fn failed(stack: &Stack, plan: &Plan) -> Option<Outcome> {
    result(stack, plan).err()
}

/// After the child has left: the best-effort steps that failed.
pub(crate) fn missed(stack: &Stack, plan: &Plan) -> Vec<Error> {
    failure::missed(plan, stack.frame())
}

/// A child that was killed in exec, as a filter may do, leaves no word. But it still has no exit signal, so a wait that
/// asks for everything sees it and an ordinary one does not.
pub(crate) fn has_executed(stack: &Stack, pid: i32) -> bool {
    if !stack.shares_memory() {
        return forked::has_executed(pid);
    }
    is_program(pid)
}

/// The same for a child that has left our memory.
pub(crate) fn is_program(pid: i32) -> bool {
    let sees = |more: u32| {
        let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | more;
        sys::waitid(uapi::P_PID, pid, &mut { sys::SignalInfo::EMPTY }, options, None).is_ok()
    };
    sees(0) || !sees(uapi::__WALL) || planted!("killed-in-exec-believed")
}

/// Did the child fail because its id maps could not be written? Else it had failed before, and they could not for that.
pub(crate) fn was_sent_away(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { code: OpCode::AwaitGo, .. })
}
