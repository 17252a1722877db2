//! What came of a run, read by the parent from the frame after the child has left.

use crate::frame::Frame;
use crate::plan::MISSES;
use crate::plan::{Header, Op, OpCode, at};
use crate::signals::PUTS_HANDLERS_AWAY;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// How a run of a plan ended, as far as the launch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The child has become the program, or was about to: `execve` was its last step and did not fail. Or its hook took it
    /// elsewhere.
    Exec,
    /// A step failed.
    Failed {
        /// The op's index in the plan.
        op: u32,
        /// What the op was.
        code: OpCode,
        /// What of its object failed (see [`Frame::detail`]).
        detail: i32,
        /// Why.
        errno: i32,
    },
    /// A child that another process cloned could not take this on of what the caller is, or one of the caller's could not put
    /// the caller's handlers away.
    Adopt {
        /// One of [`zygote_child::what`](crate::zygote_child::what), or [`PUTS_HANDLERS_AWAY`].
        what: i32,
        /// Why; 0: it was killed.
        errno: i32,
    },
    /// The child was killed in this step (the op's index, and what it was), before it came to `execve`, or in that by what
    /// is known not to be the program's death. `None`: before the first one.
    Killed(Option<(u32, OpCode)>),
    /// The frame names this step, which the plan has not got: something else has written to it.
    Garbled(u32),
}

/// Reads a frame whose child has left (its futex word is 0, or it has been reaped).
///
/// # Safety
/// `plan` is the one that was played, or its twin.
pub unsafe fn outcome(frame: &Frame, plan: *const Header) -> Outcome {
    let step = frame.step.load(Acquire);
    if step == 0 {
        return match frame.errno.load(Relaxed) {
            0 if frame.detail.load(Relaxed) != PUTS_HANDLERS_AWAY => Outcome::Killed(None),
            errno => Outcome::Adopt { what: frame.detail.load(Relaxed), errno },
        };
    }
    // SAFETY: the ops of the plan lie in its arena, and the step is 1 + the index of one of them.
    let code = unsafe {
        if step > (*plan).op_count {
            return Outcome::Garbled(step);
        }
        (*at::<Op>(plan, (*plan).ops).add(step as usize - 1)).code
    };
    if frame.ended_by.load(Relaxed) != 0 {
        return Outcome::Killed(Some((step - 1, code)));
    }
    match (frame.errno.load(Relaxed), code) {
        // A hook may end its child, or execute something itself: what comes of that is the child's status.
        (0, OpCode::Exec | OpCode::ExecFd | OpCode::PreExec) => Outcome::Exec,
        (0, _) => Outcome::Killed(Some((step - 1, code))),
        (errno, _) => Outcome::Failed { op: step - 1, code, detail: frame.detail.load(Relaxed), errno },
    }
}

/// The best-effort steps that failed, as op index and errno.
pub fn misses(frame: &Frame) -> impl Iterator<Item = (u32, i32)> + '_ {
    let count = (frame.missed.load(Acquire) as usize).min(MISSES);
    frame.misses.iter().take(count).map(|miss| {
        let miss = miss.load(Relaxed);
        ((miss >> 32) as u32, miss as u32 as i32)
    })
}
