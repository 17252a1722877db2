//! The child's own cgroup, for its limits: see [`Command::memory_max`](crate::Command::memory_max).

use super::{Child, Inner};
use crate::error::Error;
use crate::request::command::LaunchGroup;
use crate::usage::LimitEvents;

impl Child {
    /// Stores the cgroup of the child's limits, or the reason why it has none.
    pub(crate) fn limited(mut self, group: Option<Box<dyn LaunchGroup>>, skipped: Option<Error>) -> Self {
        self.inner.group = group;
        self.inner.skipped.extend(skipped);
        self
    }

    /// Whether all that it has started is killed when it has ended.
    pub(crate) fn has_group(&self) -> bool {
        self.inner.group.is_some()
    }

    /// How often the child, with all that it has started, has reached the limits of
    /// [`Command::memory_max`](crate::Command::memory_max) and [`Command::tasks_max`](crate::Command::tasks_max). `None`
    /// before it has been waited for, and for a child without such limits.
    ///
    /// ```no_run
    /// # let mut command = forkless::Command::new("make");
    /// let mut child = command.spawn()?; // after command.memory_max("512M")
    /// child.wait()?;
    /// if child.limit_events().is_some_and(|events| events.oom_kills > 0) {
    ///     eprintln!("out of memory");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn limit_events(&self) -> Option<LimitEvents> {
        self.inner.limit_events
    }
}

impl Inner {
    /// Kills what the child has left in its cgroup, and notes which limits were reached.
    pub(super) fn end_group(&mut self) {
        if let Some(group) = self.group.take() {
            self.limit_events = Some(group.end());
        }
    }
}
