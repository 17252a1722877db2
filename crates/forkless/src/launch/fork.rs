//! Creating the child by libc's `fork(3)`: for a child that needs its own memory, above all for closures that run
//! before exec.
//!
//! The child plays the same plan, in a copy of the caller's memory. It reports through a frame in a shared mapping,
//! which is created for this run. `forkless_core::forked` explains how the caller learns that the child has left.
//! Every signal is blocked before the fork, until the child has reset the handlers, so no handler of the caller runs
//! in the copy.
//!
//! The exit signal is SIGCHLD from the start. So the host's SIGCHLD handler also sees a child that fails before exec,
//! and a host that reaps every child may reap it first. Every launcher that forks has this limit.

use super::forked::{PATIENCE, nap};
use super::run::{Caller, LaunchForm, Run, Running};
use super::stack::Stack;
use super::watch::{conclude, dismissed, wait_though_stopped, wait_while};
use super::{failure, maps};
use crate::error::Error;
use crate::kernel::{self, LIBCS};
use crate::launch::wait::{self, is_gone};
use crate::plan::Plan;
use crate::procfs;
use crate::request::closure::call_all;
use crate::route::Route;
use crate::step::Step;
use crate::sync;
use forkless_core::forked::{self, NO_OWNER};
use forkless_core::frame::{ASK_WANTED, ASKED, GO, GO_AWAY, GO_WAIT, LEFT, Table};
use forkless_core::plan::VARIABLES;
use forkless_core::signals::blocked_in_caller;
use forkless_core::sys::{self, errno};
use nix::libc;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::write;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Launches a plan by fork.
pub(super) fn run(plan: &Plan, run: &Run<'_>) -> Result<Running, Error> {
    let caller = Caller::of(plan, run);
    let mut stack = Stack::shared().map_err(|error| failure::stack_error(plan, error))?;
    ready(&mut stack, plan, run, &caller);
    let started = Instant::now();
    let made = plan.creator.run(caller.is_first_thread(), || fork(&stack));
    let pid = made.map_err(|error| failure::creator_error(plan, error))?;
    let pid = pid.map_err(|error| failure::clone_error(plan, false, error).on("by fork"))?;
    let pidfd = if run.pidfd { pidfd(pid) } else { Ok(None) };
    // The child waits at the gate, so it starts nothing outside of its cgroup.
    let entered = run.cgroup.map_or(Ok(()), |group| enter(group, pid));
    open_gate(&stack, pidfd.is_ok() && entered.is_ok());
    if let Err(error) = entered {
        wait_though_stopped(&stack, pid, None, |word| word != LEFT);
        wait::reap(pid, None);
        return Err(Error::new(plan.program(), Step::ControlGroup, error));
    }
    let pidfd = pidfd.map_err(|error| {
        wait_though_stopped(&stack, pid, None, |word| word != LEFT);
        wait::reap(pid, None);
        failure::clone_error(plan, true, error)
    })?;
    let route = Route::Fork { inherits_all: plan.fds.inherit_all };
    let mut running =
        Running { pid, id: pid, pidfd, stack, left: false, ended: None, started, route, maps: None, origin: None };
    if let Some(id_maps) = &plan.place.id_maps {
        write_maps(plan, &mut running, id_maps)?;
    }
    match run.form {
        LaunchForm::Launch => return Ok(running),
        LaunchForm::Spawn => running.left = wait_while(&running.stack, pid, None, |word| word != LEFT),
        LaunchForm::End => {
            running.ended = Some(wait::wait(pid, running.pidfd.as_ref(), started));
            running.stack.frame().word.store(LEFT, Ordering::Release);
            running.left = true;
        }
    }
    if !running.left {
        return Ok(running);
    }
    match conclude(&mut running, plan) {
        Ok(()) => Ok(running),
        Err(failure) => Err(failure.error(plan)),
    }
}

/// Fills the frame for one run.
fn ready(stack: &mut Stack, plan: &Plan, run: &Run<'_>, caller: &Caller) {
    // A child that sees its parent as PID 0, in another PID namespace, notices the parent's death only in `/proc`.
    let looks = plan.place.is_in_other_pids || plan.place.id_maps.is_some();
    let in_procfs = if looks && procfs::is_ours() { sys::getpid() } else { 0 };
    stack.begin(|frame| {
        *frame.plan.get_mut() = plan.header().cast_mut();
        // Always stored: at the gate the child checks whether its parent is still alive.
        frame.host = sys::getpid();
        frame.host_in_procfs = in_procfs;
        // For a child in another PID namespace, the parent's PID is 0.
        frame.parent = if plan.place.is_in_other_pids { 0 } else { frame.host };
        frame.thread = caller.tid;
        *frame.variables.get_mut() = [usize::MAX; VARIABLES];
        *frame.asked.get_mut() = if plan.place.id_maps.is_some() { ASK_WANTED } else { 0 };
        frame.slots = run.slots;
        frame.only_pipes = run.only_pipes as u32;
        frame.table = Table::Copied;
        frame.reset_handlers = 1;
        frame.has_caller_mask = caller.mask.is_some() as u32;
        frame.caller_mask = caller.mask.unwrap_or(0);
        frame.hook = Some(call_all);
        frame.hook_data = (&raw const plan.closures).cast();
    });
}

/// `fork(3)`, with signals blocked so that no handler of the caller runs in the child. Does not return in the child.
fn fork(stack: &Stack) -> Result<i32, i32> {
    // Without the signals that libc itself uses. A thread that changes its IDs interrupts every thread with one and
    // waits for all of them, and a pthread_atfork(3) handler may wait for that thread: a deadlock if they were
    // blocked. The mask is restored below; the child sets its own.
    let mask = sys::set_signal_mask(blocked_in_caller() & !LIBCS)?;
    let frame = stack.frame_ptr();
    // SAFETY: there is no child yet.
    unsafe {
        if (*frame).has_caller_mask == 0 {
            ((*frame).has_caller_mask, (*frame).caller_mask) = (1, mask);
        }
    }
    // SAFETY: the child plays the plan in its own memory and does not return. Its closures may run after fork, as
    // `pre_exec` requires, and so may the handlers of pthread_atfork(3), which fork(3) calls.
    let answer = match unsafe { libc::fork() } {
        // SAFETY: such a frame is the first field of a ForkFrame; the child's copy of the plan is its own.
        0 => unsafe { forked::play(frame.cast()) },
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(errno::EAGAIN)),
        pid => Ok(pid),
    };
    let _ = sys::set_signal_mask(mask);
    answer
}

/// The pidfd of a child that has not begun to play. `None` if pidfds are refused, or if the child was killed and
/// other code has reaped it.
fn pidfd(pid: i32) -> Result<Option<OwnedFd>, i32> {
    match kernel::pidfd_open(pid) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(error @ (errno::EMFILE | errno::ENOMEM)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Moves a process into a cgroup.
fn enter(group: BorrowedFd<'_>, pid: i32) -> Result<(), i32> {
    let file = openat(group, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let written = file.and_then(|file| write(&file, pid.to_string().as_bytes()));
    written.map(drop).map_err(|error| error.raw_os_error())
}

/// Lets the child begin, or makes it exit.
fn open_gate(stack: &Stack, go: bool) {
    if let Some(shared) = stack.forked() {
        shared.gate.store(if go { GO } else { GO_AWAY }, Ordering::Release);
        sync::futex_wake(&shared.gate);
    }
}

/// Writes the ID maps once the child has created its user namespace.
fn write_maps(plan: &Plan, running: &mut Running, id_maps: &crate::plan::IdMaps) -> Result<(), Error> {
    let (frame, pid) = (running.stack.frame(), running.pid);
    let asks = || frame.asked.load(Ordering::Acquire) == ASKED;
    while !asks() && !running.stack.has_left() && !is_gone(pid) {
        nap(&frame.asked, ASK_WANTED, PATIENCE);
    }
    // The child has left before it asked, so an earlier step has failed: the caller reports that step.
    if !asks() {
        return Ok(());
    }
    maps::write(pid, &frame.go, id_maps, false, || true).map_err(|(error, what)| match dismissed(running, plan) {
        Some(before) => before.error(plan),
        None => failure::map_error(plan, error, what),
    })
}

const _: () = assert!(NO_OWNER == 0 && GO_WAIT == 0, "as in a new mapping");
