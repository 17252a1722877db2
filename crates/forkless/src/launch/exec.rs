//! Exec without a child: the calling process becomes the program.
//!
//! It plays the plan that a forked child would play. No other process takes part, so a plan that needs one is refused.

use super::failure;
use crate::error::Error;
use crate::launch::pipes;
use crate::plan::{Plan, PlannedStream};
use crate::request::closure::call_all;
use crate::step::Step;
use forkless_core::child::play_here;
use forkless_core::frame::{Frame, Table};
use forkless_core::plan::{OpCode, VARIABLES};
use forkless_core::report::{Outcome, outcome};
use forkless_core::sys::{self, errno, uapi};

/// Plays the plan. Returns only on failure, with the error. Then the signal mask and the actions of `signals` have
/// been restored.
pub(crate) fn exec(plan: &Plan, signals: u64) -> Error {
    if let Some(what) = refusal(plan) {
        return Error::check(plan.program(), format!("exec makes no child, so there is no parent {what}"));
    }
    // SAFETY: all zeroes is a valid frame.
    let mut frame: Box<Frame> = Box::new(unsafe { std::mem::zeroed() });
    *frame.plan.get_mut() = plan.header().cast_mut();
    frame.table = Table::Own;
    *frame.variables.get_mut() = [usize::MAX; VARIABLES];
    frame.slots = pipes::plain_slots(plan);
    frame.hook = Some(call_all);
    frame.hook_data = (&raw const plan.closures).cast();
    let before = SavedSignals::save(signals);
    // SAFETY: the frame and the plan outlive this call, and no step of the plan needs a parent: `refusal` found none.
    unsafe { play_here(&frame) };
    before.restore();
    // SAFETY: the frame belongs to this plan, which was played above.
    match unsafe { outcome(&frame, plan.header()) } {
        // No errno was stored. execve(2) itself never returns without one.
        Outcome::Exec => Error::new(plan.program(), Step::Exec, errno::ENOSYS),
        failure => failure::failed(plan, failure),
    }
}

/// What the plan needs a parent process for, as text for an error.
fn refusal(plan: &Plan) -> Option<&'static str> {
    let pipes = plan.fds.stdio.iter().any(|stream| matches!(stream, PlannedStream::Piped | PlannedStream::SocketPair));
    let dies = plan.steps().any(|op| op.code == OpCode::ParentDeathSignal);
    let needs = [
        (pipes || !plan.fds.sockets.is_empty(), "to have the other end of a pipe or a pair of sockets"),
        (plan.fds.pty.is_some(), "to have the other side of a pseudo-terminal"),
        (plan.place.id_maps.is_some(), "to write id maps"),
        (plan.place.is_in_other_pids, "outside of the other PID namespace"),
        (plan.place.limits.is_some(), "to make and remove the cgroup of its limits"),
        (dies, "whose end could be signalled"),
    ];
    needs.into_iter().find(|(needed, _)| *needed).map(|(_, what)| what)
}

/// Signal actions and the signal mask.
struct SavedSignals {
    mask: sys::Result<u64>,
    actions: Vec<(u32, uapi::kernel_sigaction)>,
}

impl SavedSignals {
    fn save(set: u64) -> Self {
        let wanted = (1..=64).filter(|signal| set >> (signal - 1) & 1 == 1);
        let actions = wanted.filter_map(|signal| Some((signal, sys::signal_action(signal).ok()?))).collect();
        Self { mask: sys::signal_mask(), actions }
    }

    fn restore(self) {
        for (signal, action) in self.actions {
            // SAFETY: `save` got this action from the kernel for the same signal.
            let _ = unsafe { sys::set_signal_action(signal, &action) };
        }
        if let Ok(mask) = self.mask {
            let _ = sys::set_signal_mask(mask);
        }
    }
}
