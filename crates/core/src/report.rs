//! The result of a run, which the caller reads from the frame after the child has left.

use crate::frame::Frame;
use crate::plan::MISSES;
use crate::plan::{Header, Op, OpCode, at};
use crate::signals::PUTS_HANDLERS_AWAY;
use core::sync::atomic::Ordering::Relaxed;

/// The result of a run of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The child has executed the program, or was about to: `execve` was its last step and did not fail. Or its hook
    /// executed a program or exited.
    Exec,
    /// A step failed.
    Failed {
        /// The op's index in the plan.
        op: u32,
        /// The op's code.
        code: OpCode,
        /// Which object of the step failed (see [`Frame::detail`]).
        detail: i32,
        /// The errno.
        errno: i32,
    },
    /// A child of a zygote could not take on this attribute of the caller, or a child could not reset the caller's
    /// signal handlers.
    Adopt {
        /// One of [`zygote_child::what`](crate::zygote_child::what), or [`PUTS_HANDLERS_AWAY`].
        what: i32,
        /// The errno; 0: it was killed.
        errno: i32,
    },
    /// The child was killed in this step (the op's index and code), before `execve`, or during it by something that is
    /// known not to be the program's own death. `None`: before the first step.
    Killed(Option<(u32, OpCode)>),
    /// The frame has a step that the plan does not have: other code has written to the frame.
    Garbled(u32),
}

/// Reads the frame of a child that has left (its futex word is 0, or it has been reaped).
///
/// # Safety
/// `plan` is the one that was played, or a copy of it.
pub unsafe fn outcome(frame: &Frame, plan: *const Header) -> Outcome {
    let step = frame.step.load(Relaxed);
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
        // A hook may exit, or execute a program itself: only the child's exit status shows which.
        (0, OpCode::Exec | OpCode::ExecFd | OpCode::PreExec) => Outcome::Exec,
        (0, _) => Outcome::Killed(Some((step - 1, code))),
        (errno, _) => Outcome::Failed { op: step - 1, code, detail: frame.detail.load(Relaxed), errno },
    }
}

/// The best-effort steps that failed, as op index and errno.
pub fn misses(frame: &Frame) -> impl Iterator<Item = (u32, i32)> + '_ {
    let count = (frame.skipped.load(Relaxed) as usize).min(MISSES);
    frame.misses.iter().take(count).map(|miss| {
        let miss = miss.load(Relaxed);
        ((miss >> 32) as u32, miss as u32 as i32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{offset_of, zeroed};

    /// Step, errno, detail and the signal that ended the child, and what they mean in a plan of one step and exec.
    #[test]
    fn every_end_has_one_meaning() {
        #[repr(C)]
        struct Arena(Header, [Op; 2]);
        // SAFETY: plain numbers.
        let mut arena = Arena(unsafe { zeroed() }, [Op::new(OpCode::SetSid), Op::new(OpCode::Exec)]);
        (arena.0.ops, arena.0.op_count) = (offset_of!(Arena, 1) as u32, 2);
        let failed = |op, code, detail, errno| Outcome::Failed { op, code, detail, errno };
        for ((step, errno, detail, ended_by), meaning) in [
            ((0, 0, 0, 0), Outcome::Killed(None)),
            ((0, 1, 5, 0), Outcome::Adopt { what: 5, errno: 1 }),
            ((0, 0, PUTS_HANDLERS_AWAY, 0), Outcome::Adopt { what: PUTS_HANDLERS_AWAY, errno: 0 }),
            ((1, 0, 0, 0), Outcome::Killed(Some((0, OpCode::SetSid)))),
            ((1, 1, 3, 0), failed(0, OpCode::SetSid, 3, 1)),
            ((1, 1, 3, 11), Outcome::Killed(Some((0, OpCode::SetSid)))),
            ((2, 0, 0, 0), Outcome::Exec),
            ((2, 0, 0, 11), Outcome::Killed(Some((1, OpCode::Exec)))),
            ((2, 2, 0, 0), failed(1, OpCode::Exec, 0, 2)),
            ((3, 0, 0, 0), Outcome::Garbled(3)),
            ((u32::MAX, 1, 1, 1), Outcome::Garbled(u32::MAX)),
        ] {
            // SAFETY: a frame may be all zero.
            let frame: Frame = unsafe { zeroed() };
            frame.step.store(step, Relaxed);
            frame.errno.store(errno, Relaxed);
            frame.detail.store(detail, Relaxed);
            frame.ended_by.store(ended_by, Relaxed);
            // SAFETY: the arena begins with its header.
            let found = unsafe { outcome(&frame, (&raw const arena).cast()) };
            assert_eq!(found, meaning, "{step} {errno} {detail} {ended_by}");
        }
    }
}
