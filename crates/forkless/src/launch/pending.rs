//! What a child that may still be in our memory is using.

use super::stack::Stack;
use crate::plan::Plan;
use forkless_core::planted;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// What a child may be using as long as it has not left our memory.
pub(crate) struct Pending {
    pub(crate) stack: Stack,
    pub(crate) plan: ManuallyDrop<Arc<Plan>>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Pending")
    }
}

// A panic leaves it as it was: it is looked at, and dropped.
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
        // Nothing the child reads may be freed before it has left. If whoever drops this cannot know, the plan stays.
        if !self.stack.shares_memory() || self.has_left() || planted!("plan-freed-in-flight") {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.plan) };
        }
    }
}
