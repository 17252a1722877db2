//! Playback: the loop that the child runs.
//!
//! # Safety
//! Runs in a child of `clone` that shares the caller's memory: nothing here may allocate, lock, panic, call libc or
//! touch a descriptor before the table is the child's own. The frame and the plan it names stay valid until the kernel
//! has cleared the frame's futex word.

use crate::frame::{ASK_WANTED, ASKED, Frame, GO, GO_AWAY, GO_WAIT, Table};
use crate::plan::{BEST_EFFORT, Header, IN_PLACE, Op, OpCode, at};
use crate::sys::{self, Result, errno};
use crate::{call, exec, fds, planted, process, signals};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, fence};

/// Plays the frame's plan and turns into the program, or ends the child and leaves the reason in the frame.
pub unsafe extern "C-unwind" fn play(frame: *mut Frame) -> ! {
    // SAFETY: the frame outlives the child's use of it, and its other fields are not written by the parent meanwhile.
    unsafe { play_with(&*frame, || Ok(())) }
}

/// Plays the frame's plan in the calling process, which turns into the program: comes back only if that failed, with the
/// reason in the frame. The frame's table must be [`Table::Own`].
///
/// # Safety
/// Frame and plan are valid, and the plan has no step that needs a parent. What is not async-signal-safe may be called in
/// the steps: this is no child.
pub unsafe fn play_here(frame: &Frame) {
    // SAFETY: the caller's contract.
    unsafe { run(frame, || Ok(())) };
}

/// Plays the frame's plan; before its last op, which executes the program, `before` is called.
#[inline(always)]
pub unsafe fn play_with(frame: &Frame, before: impl FnOnce() -> Result<()>) -> ! {
    // SAFETY: the caller's contract.
    unsafe { run(frame, before) };
    // What was stored must be seen by who sees the futex word cleared, which the kernel does with a plain store.
    fence(Release);
    sys::exit(127)
}

/// Plays the ops in their order, until one fails.
#[inline(always)]
unsafe fn run(frame: &Frame, before: impl FnOnce() -> Result<()>) {
    let mut before = Some(before);
    if frame.reset_handlers != 0 {
        signals::block_all();
    }
    if frame.guards_dumps != 0 {
        // SAFETY: this is the child (module contract).
        unsafe { signals::guard(frame) };
    }
    if frame.reset_handlers != 0 {
        frame.detail.store(signals::PUTS_HANDLERS_AWAY, Relaxed);
        if let Err(error) = signals::reset_handlers(Some(frame)) {
            frame.errno.store(error, Relaxed);
            return;
        }
        frame.detail.store(-1, Relaxed);
    }
    let plan = frame.plan.load(Relaxed).cast_const();
    // SAFETY: the plan outlives the child's use of it (module contract).
    let (ops, count) = unsafe { (at::<Op>(plan, (*plan).ops), (*plan).op_count) };
    let mut index = 0;
    while index < count {
        if index + 1 == count {
            // The step is still the one before: who ends here has not executed anything.
            if let Some(Err(error)) = before.take().map(|before| before()) {
                frame.errno.store(error, Relaxed);
                break;
            }
        }
        // Written before the step is taken, so that a child killed in the middle can be told from one that finished.
        if !planted!("step-not-stored") {
            frame.step.store(index + 1, Relaxed);
        }
        // SAFETY: index is below the op count.
        let op = unsafe { &*ops.add(index as usize) };
        // SAFETY: this is the child (module contract).
        if let Err(error) = unsafe { step(frame, plan, op) } {
            let may_fail = op.flags & BEST_EFFORT != 0 || planted!("every-step-may-fail");
            if !may_fail || !call::note_miss(frame, index, error) {
                if !planted!("errno-not-stored") {
                    frame.errno.store(error, Relaxed);
                }
                break;
            }
            index += if planted!("rest-of-step-not-skipped") { 0 } else { op.skip };
        }
        index += 1;
    }
}

/// Does one op. `Exec` returns only if it failed.
unsafe fn step(frame: &Frame, plan: *const Header, op: &Op) -> Result<()> {
    // SAFETY: every arm's contract is this module's: the child, with a valid frame and plan.
    unsafe {
        match op.code {
            OpCode::Table => make_private(frame),
            OpCode::Place => fds::place(frame, plan),
            OpCode::Taken => {
                fds::announce_taken(frame);
                Ok(())
            }
            OpCode::CloseOthers => fds::close_others(frame, plan),
            OpCode::SetSid => process::setsid(),
            OpCode::SetPgid => process::setpgid(op.a as i32),
            OpCode::Chdir => process::chdir(at(plan, op.a)),
            OpCode::Open if op.flags & IN_PLACE != 0 => fds::open_in_place(at(plan, op.a), op),
            OpCode::Open => fds::open_as(at(plan, op.a), op),
            OpCode::Dup => fds::copy(op.a as i32, op.b as i32),
            OpCode::SigDefault => signals::set_default(Some(frame), op.set),
            OpCode::SigIgnore => signals::set_ignored(op.set),
            OpCode::SigMask => signals::set_mask(frame, op),
            OpCode::Call => call::call(frame, plan, op),
            OpCode::ParentDeathSignal => process::parent_death_signal(frame, op.a),
            OpCode::Foreground => process::foreground(op.a as i32),
            OpCode::AwaitGo => await_go(frame),
            OpCode::Seccomp => call::seccomp(at(plan, op.a), op.b),
            OpCode::HandBack => call::hand_back(frame, op),
            OpCode::PreExec => run_hook(frame),
            OpCode::Exec => Err(exec::exec(frame, plan, op)),
            OpCode::ExecFd => Err(exec::exec_fd(plan, op.a as i32)),
        }
    }
}

/// The first act of every child but those that inherit everything: a descriptor table of its own.
///
/// One system call makes the table, copies only the descriptors below `keep_below` into it and leaves the rest where
/// they are: no copy of the whole table, no walk to close it. The kernel copies in words of 64 descriptors, so those below
/// 64 are held until the call returns; should another thread's exec meet one of them (ETXTBSY) it is tried again.
///
/// Source: `close_range(2)`, CLOSE_RANGE_UNSHARE; `sane_fdtable_size()` in fs/file.c.
unsafe fn make_private(frame: &Frame) -> Result<()> {
    let keep_below = frame.keep_below + if planted!("table-copies-more") { 61 } else { 0 };
    let unshare = if planted!("hosts-descriptors-closed") { 0 } else { sys::CLOSE_RANGE_UNSHARE };
    match frame.table {
        Table::Private if planted!("table-not-made") => Ok(()),
        // SAFETY: UNSHARE makes the table the child's own before anything in it is closed.
        Table::Private => unsafe { sys::close_range(keep_below, u32::MAX, unshare) },
        Table::Copied | Table::Own => Ok(()),
    }
}

/// Calls what only a child with memory of its own may be told to: no other launcher sets a hook.
unsafe fn run_hook(frame: &Frame) -> Result<()> {
    let Some(hook) = frame.hook else { return Err(errno::ENOSYS) };
    // SAFETY: who sets the hook answers for it and its argument.
    match unsafe { hook(frame, frame.hook_data) } {
        0 => Ok(()),
        _ if planted!("failed-closure-passed-over") => Ok(()),
        error => Err(error),
    }
}

/// Waits for the parent's word.
fn await_go(frame: &Frame) -> Result<()> {
    if planted!("maps-not-awaited") {
        return Ok(());
    }
    if frame.asked.load(Relaxed) == ASK_WANTED {
        frame.asked.store(ASKED, Release);
        sys::futex_wake(&frame.asked);
    }
    await_word(&frame.go, frame)
}

/// Waits until a word that is [`GO_WAIT`] becomes [`GO`], for as long as the parent lives: it may be stopped.
pub(crate) fn await_word(go: &AtomicU32, frame: &Frame) -> Result<()> {
    /// How often the parent is looked for, who would never say it if it died.
    const LOOK: sys::uapi::__kernel_timespec = sys::uapi::__kernel_timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        match go.load(Acquire) {
            GO => return Ok(()),
            GO_AWAY if planted!("sent-away-and-goes-on") => return Ok(()),
            GO_AWAY => return Err(errno::ECHILD),
            _ => {}
        }
        let timed_out = sys::futex_wait(go, GO_WAIT, Some(&LOOK)) == Err(errno::ETIMEDOUT);
        if timed_out && process::has_lost_parent(frame) && !planted!("dead-host-awaited") {
            return Err(errno::ESRCH);
        }
    }
}

/// What [`probe`] found, in place of a plan's results.
pub mod probed {
    /// Set in `detail` by the child: the memory is shared.
    pub const SHARED: i32 = 1;
    /// `close_range` with UNSHARE works.
    pub const CLOSE_RANGE: i32 = 2;
    /// `pidfd_open` and `pidfd_getfd` on the parent work.
    pub const GETFD: i32 = 4;
    /// `pidfd_open` of a thread works.
    pub const THREAD_FD: i32 = 8;
}

/// Entry of the probe child: tries what launches rest on and notes each success in the frame's `detail`.
///
/// Each success is noted at once, so that a filter that kills the child for one call does not hide the earlier ones.
pub unsafe extern "C-unwind" fn probe(frame: *mut Frame) -> ! {
    // SAFETY: as for `play`.
    let frame = unsafe { &*frame };
    // Stores only: on aarch64 an atomic exchange may be a call of a helper that is not ours (outline atomics).
    let mut found = probed::SHARED;
    frame.detail.store(found, Relaxed);
    // SAFETY: UNSHARE makes the table the child's own before anything in it is closed.
    if unsafe { sys::close_range(3, u32::MAX, sys::CLOSE_RANGE_UNSHARE) }.is_err() {
        sys::exit(0);
    }
    found |= probed::CLOSE_RANGE;
    frame.detail.store(found, Relaxed);
    if sys::pidfd_open(sys::getpid(), sys::PIDFD_THREAD).is_ok() {
        found |= probed::THREAD_FD;
        frame.detail.store(found, Relaxed);
    }
    if let Ok(parent) = sys::pidfd_open(sys::getppid(), 0) {
        // Permission is checked before the number is looked up, so a closed descriptor 0 is as good an answer as any.
        if matches!(sys::pidfd_getfd(parent, 0), Ok(_) | Err(errno::EBADF)) {
            found |= probed::GETFD;
            frame.detail.store(found, Relaxed);
        }
    }
    sys::exit(0)
}
