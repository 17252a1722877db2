//! The report of a warm child's end to its set of templates, by a caller that does not wait by the child's handle.

use super::Child;
use crate::launch::run::Origin;
use std::process::ExitStatus;

/// Reports the end of one child.
#[doc(hidden)]
#[derive(Debug)]
pub struct Ending(Box<dyn Origin>);

impl Child {
    /// For callers that [release](Self::release) the child. `None`: it was not to be launched warm.
    #[doc(hidden)]
    pub fn take_ending(&mut self) -> Option<Ending> {
        self.inner.origin.take().map(Ending)
    }
}

impl Ending {
    /// As [`Child::cold_reason`].
    #[cfg(feature = "warm")]
    #[doc(hidden)]
    pub fn cold_reason(&self) -> Option<&str> {
        self.0.cold_reason()
    }

    /// The child has been waited for.
    #[doc(hidden)]
    pub fn child_ended(&self, status: ExitStatus) {
        self.0.child_ended(status);
    }
}
