//! The stack and the plan of a child that may still use this process's memory.

use super::stack::Stack;
use crate::plan::Plan;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// The memory that a child may use until it has left.
pub(crate) struct Pending {
    pub(crate) stack: Stack,
    pub(crate) plan: ManuallyDrop<Arc<Plan>>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Pending")
    }
}

// A panic cannot leave it half-changed: it is only read and dropped.
impl UnwindSafe for Pending {}
impl RefUnwindSafe for Pending {}

impl Pending {
    pub(crate) fn new(stack: Stack, plan: &Arc<Plan>) -> Self {
        Self { stack, plan: ManuallyDrop::new(Arc::clone(plan)) }
    }

    pub(crate) fn has_left(&self) -> bool {
        self.stack.has_left()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // The child reads the plan until it has left. If it has not been seen to leave, the plan is leaked: a freed
        // plan could be overwritten while the child plays it.
        if !self.stack.has_shared_memory() || self.has_left() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.plan) };
        }
    }
}
