//! Making the child by libc's `fork(3)`: for what wants memory of its own, above all closures that run before exec.
//!
//! The child plays the same plan, in a copy of the caller's memory. What it has to say goes through a frame in a shared
//! mapping, made for this run; how it is seen to leave is told in `forkless_core::forked`. Every signal is blocked from
//! before the fork until the child has reset the handlers, so none of the caller's runs in the copy.
//!
//! Its exit signal is SIGCHLD from the start. So a child that fails before exec is seen by the host's SIGCHLD handler, and
//! a host that reaps whatever ends may take it from us, as with any launcher that forks.

use super::stack::Stack;
use super::{Caller, Form, PATIENCE, Run, Running};
use super::{failure, fatal_signal, is_stopped, killed_in_exec, maps, result, wait_though_stopped, was_sent_away};
use crate::error::Error;
use crate::kernel::{self, LIBCS};
use crate::plan::Plan;
use crate::plan::closure::call_all;
use crate::route::{Call, DescriptorTable, Launcher, Passing, Route};
use crate::wait;
use forkless_core::forked::{self, NO_OWNER, OWNER_LEFT, Shared, UNWATCHED};
use forkless_core::frame::{ASK_WANTED, ASKED, GO, GO_AWAY, GO_WAIT, LEFT, Table};
use forkless_core::plan::VARIABLES;
use forkless_core::planted;
use forkless_core::signals::BLOCKED_IN_CALLER;
use forkless_core::sys::{self, errno, uapi};
use nix::libc;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

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
    open_gate(&stack, pidfd.is_ok());
    let pidfd = pidfd.map_err(|error| {
        wait_though_stopped(&stack, pid, None, |word| word != LEFT);
        wait::reap(pid, None);
        failure::clone_error(plan, true, error)
    })?;
    let table = if plan.inherit_all { DescriptorTable::CopiedOnRequest } else { DescriptorTable::CopiedByLauncher };
    let route = Route { launcher: Launcher::Fork, call: Call::Fork, table, passing: Passing::None };
    let mut running = Running { pid, id: pid, pidfd, stack, left: false, ended: None, started, route, maps: None };
    if let Some(id_maps) = &plan.id_maps {
        write_maps(plan, &running, id_maps)?;
    }
    match run.form {
        Form::Launch => return Ok(running),
        Form::Spawn => running.left = super::wait_while(&running.stack, pid, None, |word| word != LEFT),
        Form::End => {
            running.ended = Some(wait::wait(pid, running.pidfd.as_ref(), started));
            running.stack.frame().word.store(LEFT, Ordering::Release);
            running.left = true;
        }
    }
    if !running.left {
        return Ok(running);
    }
    match result(&running.stack, plan) {
        Ok(()) if running.ended.is_none() && plan.is_filtered && !has_executed(pid) => {
            Err(killed_in_exec(plan, wait::reap(pid, None)))
        }
        Ok(()) => Ok(running),
        Err(outcome) => {
            // By its pidfd if there is one: others may reap a child of ours that forks, and its pid be a stranger's.
            let ended = running.ended.take().unwrap_or_else(|| wait::wait(pid, running.pidfd.as_ref(), started));
            let status = ended.ok().map(|ended| ended.status);
            Err(failure::failed(plan, outcome).by(fatal_signal(&running.stack, status)))
        }
    }
}

/// Readies the frame, and what lies beside it.
fn ready(stack: &mut Stack, plan: &Plan, run: &Run<'_>, caller: &Caller) {
    stack.begin(|frame| {
        *frame.plan.get_mut() = plan.header().cast_mut();
        // For the gate, too.
        frame.host = sys::getpid();
        // A parent in another process-id namespace is 0 to the child.
        frame.parent = if plan.is_in_other_pids { 0 } else { frame.host };
        frame.thread = caller.tid;
        *frame.variables.get_mut() = [usize::MAX; VARIABLES];
        *frame.asked.get_mut() = if plan.id_maps.is_some() { ASK_WANTED } else { 0 };
        frame.slots = run.slots;
        frame.only_pipes = run.only_pipes as u32;
        frame.table = Table::Copied;
        frame.reset_handlers = u32::from(!planted!("handlers-in-a-forked-child"));
        frame.has_caller_mask = caller.mask.is_some() as u32;
        frame.caller_mask = caller.mask.unwrap_or(0);
        frame.hook = Some(call_all);
        frame.hook_data = (&raw const plan.closures).cast();
    });
}

/// `fork(3)`, with no handler of the caller's left in the child. In the child it does not return.
fn fork(stack: &Stack) -> Result<i32, i32> {
    // Not libc's own two: another thread that changes ids waits for every thread, and fork's handlers may wait for that one.
    // Put back below; the child sets its own.
    let mask = sys::set_signal_mask(BLOCKED_IN_CALLER & !LIBCS)?;
    let frame = stack.frame_ptr();
    // SAFETY: there is no child yet.
    unsafe {
        if (*frame).has_caller_mask == 0 {
            ((*frame).has_caller_mask, (*frame).caller_mask) = (1, mask);
        }
    }
    // SAFETY: the child plays the plan in its own memory and does not return; what it calls besides, closures and the
    // handlers of pthread_atfork(3), is what may be called after fork.
    let answer = match unsafe { libc::fork() } {
        // SAFETY: such a frame is the first field of a Shared; the child's copy of the plan is its own.
        0 => unsafe { forked::play(frame.cast()) },
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(errno::EAGAIN)),
        pid => Ok(pid),
    };
    if !planted!("mask-not-put-back-by-fork") {
        let _ = sys::set_signal_mask(mask);
    }
    answer
}

/// The pidfd of a child that has not begun; none where pidfds are refused. A child that was killed and reaped by another
/// has none either.
fn pidfd(pid: i32) -> Result<Option<OwnedFd>, i32> {
    match kernel::pidfd_open(pid) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(error @ (errno::EMFILE | errno::ENOMEM)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Lets the child begin, or sends it away.
fn open_gate(stack: &Stack, go: bool) {
    if let Some(shared) = stack.forked() {
        shared.gate.store(if go { GO } else { GO_AWAY }, Ordering::Release);
        sys::futex_wake(&shared.gate);
    }
}

/// Writes the id maps when the child has made its user namespace.
fn write_maps(plan: &Plan, running: &Running, id_maps: &crate::plan::IdMaps) -> Result<(), Error> {
    let (frame, pid) = (running.stack.frame(), running.pid);
    let asks = || frame.asked.load(Ordering::Acquire) == ASKED;
    while !asks() && !running.stack.has_left() && !is_gone(pid) {
        nap(&frame.asked, ASK_WANTED, PATIENCE);
    }
    // One that has left before has failed before, and its own words are better.
    if !asks() {
        return Ok(());
    }
    maps::write(pid, &frame.go, id_maps, false, || true).map_err(|(error, what)| {
        wait_though_stopped(&running.stack, pid, running.pidfd.as_ref(), |word| word != LEFT);
        let _ = wait::wait(pid, running.pidfd.as_ref(), running.started);
        match result(&running.stack, plan).err().filter(|outcome| !was_sent_away(outcome)) {
            Some(outcome) => failure::failed(plan, outcome),
            None => failure::map_error(plan, error, what),
        }
    })
}

/// Has the child been seen to leave?
pub(super) fn has_left(shared: &Shared) -> bool {
    let owner = shared.owner.load(Ordering::Acquire);
    owner != UNWATCHED && owner & OWNER_LEFT != 0
}

/// [`wait_while`](super::wait_while) the child has not left; false if the time ran out or it was found stopped.
pub(super) fn wait_while(shared: &Shared, pid: i32, limit: Option<Duration>) -> bool {
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

fn nap(word: &AtomicU32, value: u32, time: Duration) {
    let time = uapi::__kernel_timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos() as i64 };
    let _ = sys::futex_wait(word, value, Some(&time));
}

/// Has the child ended, be it reaped or not? One that was killed early never came to say so.
fn is_gone(pid: i32) -> bool {
    let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | uapi::__WALL;
    let mut info = sys::SignalInfo::EMPTY;
    match sys::waitid(uapi::P_PID, pid, &mut info, options, None) {
        Ok(()) => info.pid == pid,
        Err(errno::ECHILD) => true,
        // Refused, which says nothing of the child.
        Err(_) => std::fs::read(format!("/proc/{pid}/stat")).is_ok_and(|text| has_ended(&text)),
    }
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

/// The state in a child's `/proc/PID/stat` is that of a zombie.
fn has_ended(text: &[u8]) -> bool {
    let end = text.iter().rposition(|&byte| byte == b')');
    end.and_then(|end| text.get(end + 2)).is_some_and(|state| matches!(state, b'Z' | b'X'))
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

const _: () = assert!(NO_OWNER == 0 && GO_WAIT == 0, "as in a new mapping");
