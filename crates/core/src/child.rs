//! Playback: the loop that the child runs.
//!
//! # Safety
//! Runs in a child of `clone` that shares the caller's memory: nothing here may allocate, lock, panic, call libc, or
//! touch a descriptor before the file-descriptor table is the child's own. The frame and its plan stay valid until the
//! kernel has cleared the frame's futex word.

use crate::frame::{ASK_WANTED, ASKED, Frame, GO, GO_AWAY, GO_WAIT, Table};
use crate::plan::{BEST_EFFORT, Header, IN_PLACE, Op, OpCode, at};
use crate::sync::{self, AtomicU32, fence};
use crate::sys::{self, Result, errno};
use crate::{call, exec, fds, process, signals};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Plays the frame's plan and executes the program; on failure exits, with the reason in the frame.
pub unsafe extern "C-unwind" fn play(frame: *mut Frame) -> ! {
    // SAFETY: the frame outlives the child's use of it, and its other fields are not written by the caller meanwhile.
    unsafe { play_with(&*frame, || Ok(())) }
}

/// Plays the frame's plan in the calling process itself, which becomes the program. Returns only on failure, with the
/// reason in the frame. The frame's table must be [`Table::Own`].
///
/// # Safety
/// Frame and plan are valid, and no step of the plan needs a parent. Steps may call functions that are not
/// async-signal-safe: this process is not a child.
pub unsafe fn play_here(frame: &Frame) {
    // SAFETY: the caller's contract.
    unsafe { run(frame, || Ok(())) };
}

/// Plays the frame's plan. Calls `before` ahead of the last op, which executes the program.
#[inline(always)]
pub unsafe fn play_with(frame: &Frame, before: impl FnOnce() -> Result<()>) -> ! {
    // SAFETY: the caller's contract.
    unsafe { run(frame, before) };
    // Release fence: a caller that sees the futex word cleared must see these stores. The kernel clears it with a plain
    // store.
    fence(Release);
    sys::exit(127)
}

/// Plays all ops of the frame's plan but the last, which executes the program. False if one failed: the reason is in the
/// frame. For a warm launch, whose child becomes the program without an exec.
///
/// # Safety
/// As for [`play`].
pub unsafe fn play_all_but_last(frame: &Frame) -> bool {
    let mut is_at_last = false;
    let stop = || {
        is_at_last = true;
        // No error: it only ends the loop.
        Err(0)
    };
    // SAFETY: the caller's contract.
    unsafe { run(frame, stop) };
    is_at_last
}

/// Plays the ops in order, until one fails.
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
            // The recorded step is still the previous one: a child that exits here has not executed anything.
            if let Some(Err(error)) = before.take().map(|before| before()) {
                frame.errno.store(error, Relaxed);
                break;
            }
        }
        // Stored before the step is made, so that a child that is killed during the step is distinguished from one that
        // finished it.
        frame.step.store(index + 1, Relaxed);
        // SAFETY: index is below the op count.
        let op = unsafe { &*ops.add(index as usize) };
        // SAFETY: this is the child (module contract).
        if let Err(error) = unsafe { step(frame, plan, op) } {
            let may_fail = op.flags & BEST_EFFORT != 0;
            if !may_fail || !call::note_miss(frame, index, error) {
                frame.errno.store(error, Relaxed);
                break;
            }
            index += op.skip;
        }
        index += 1;
    }
}

/// Makes one step. `Exec` returns only on failure.
unsafe fn step(frame: &Frame, plan: *const Header, op: &Op) -> Result<()> {
    // SAFETY: every arm's contract is this module's: the child, with a valid frame and plan.
    unsafe {
        match op.code {
            OpCode::Table => make_private(frame),
            OpCode::Place => fds::place_descriptors(frame, plan),
            OpCode::Taken => {
                fds::announce_taken(frame);
                Ok(())
            }
            OpCode::CloseOthers => fds::close_others(frame, plan),
            OpCode::CloseRange => fds::close_range(frame, op),
            OpCode::SetSid => process::setsid(),
            OpCode::SetPgid => process::setpgid(op.a as i32),
            OpCode::Chdir => process::chdir(at(plan, op.a)),
            OpCode::EnterAgain => process::enter_again(op.a == 1),
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

/// The first step of every child that does not inherit all descriptors: unshare the file-descriptor table.
///
/// One system call creates the table, copies only the descriptors below `keep_below` into it and leaves the others in
/// the caller's: the table is neither copied nor walked to close descriptors. The kernel copies in words of 64
/// descriptors, so descriptors below 64 have an additional reference until the call returns. If another thread's exec
/// meets one of them open for writing (ETXTBSY), it is retried.
///
/// Source: `close_range(2)`, CLOSE_RANGE_UNSHARE; `sane_fdtable_size()` in fs/file.c.
unsafe fn make_private(frame: &Frame) -> Result<()> {
    match frame.table {
        // SAFETY: UNSHARE makes the table the child's own before any descriptor is closed.
        Table::Private => unsafe { sys::close_range(frame.keep_below, u32::MAX, sys::CLOSE_RANGE_UNSHARE) },
        Table::Copied | Table::Own => Ok(()),
    }
}

/// Calls the hook, which only launchers of children with their own memory set.
unsafe fn run_hook(frame: &Frame) -> Result<()> {
    let Some(hook) = frame.hook else { return Err(errno::ENOSYS) };
    // SAFETY: the launcher that sets the hook is responsible for it and its argument.
    match unsafe { hook(frame, frame.hook_data) } {
        0 => Ok(()),
        error => Err(error),
    }
}

/// Waits until the caller has done its part.
fn await_go(frame: &Frame) -> Result<()> {
    if frame.asked.load(Relaxed) == ASK_WANTED {
        frame.asked.store(ASKED, Release);
        sync::futex_wake(&frame.asked);
    }
    await_word(&frame.go, frame)
}

/// Waits until a word changes from [`GO_WAIT`] to [`GO`], for as long as the caller lives. The caller may be stopped,
/// so there is no timeout.
pub(crate) fn await_word(go: &AtomicU32, frame: &Frame) -> Result<()> {
    /// How often to check that the caller is alive: a dead caller never changes the word.
    const POLL_INTERVAL: sys::uapi::__kernel_timespec = sys::uapi::__kernel_timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        match go.load(Acquire) {
            GO => return Ok(()),
            GO_AWAY => return Err(errno::ECHILD),
            _ => {}
        }
        let timed_out = sync::futex_wait(go, GO_WAIT, Some(&POLL_INTERVAL)) == Err(errno::ETIMEDOUT);
        if timed_out && process::has_lost_parent(frame) {
            return Err(errno::ESRCH);
        }
    }
}

/// The results of [`probe`], as bits of the frame's `detail`.
pub mod probed {
    /// Set by the child: the memory is shared.
    pub const SHARED: i32 = 1;
    /// `close_range` with UNSHARE works.
    pub const CLOSE_RANGE: i32 = 2;
    /// `pidfd_open` and `pidfd_getfd` on the caller work.
    pub const GETFD: i32 = 4;
    /// `pidfd_open` of a thread works.
    pub const THREAD_FD: i32 = 8;
}

/// Entry of the probe child: tries the system calls that launches depend on, and records each success in the frame's
/// `detail`.
///
/// Each success is stored at once, because a seccomp filter may kill the child in a later call.
pub unsafe extern "C-unwind" fn probe(frame: *mut Frame) -> ! {
    // SAFETY: as for `play`.
    let frame = unsafe { &*frame };
    // Plain stores only: on aarch64 an atomic exchange may be compiled to a call of an outline-atomics helper, which is
    // outside of this crate.
    let mut found = probed::SHARED;
    frame.detail.store(found, Relaxed);
    // SAFETY: UNSHARE makes the table the child's own before any descriptor is closed.
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
        // The permission is checked before the descriptor is looked up, so EBADF for a closed descriptor 0 is a success
        // too.
        if matches!(sys::pidfd_getfd(parent, 0), Ok(_) | Err(errno::EBADF)) {
            found |= probed::GETFD;
            frame.detail.store(found, Relaxed);
        }
    }
    sys::exit(0)
}
