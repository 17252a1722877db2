//! A command that is prepared once and run any number of times.

use crate::child::Child;
use crate::launch::run::LaunchForm;
use crate::plan::{Plan, describe};
use crate::start::{self, Start};
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

/// A command whose plan has been made: from [`Command::prepare`](crate::Command::prepare).
///
/// A launch from it allocates no memory, except for the output that it captures. Several threads may launch from it at once. It
/// does not depend on the `Command` any more. Clones share the plan.
///
/// ```
/// use forkless::Command;
/// let mut command = Command::new("true");
/// let prepared = command.prepare()?;
/// for _ in 0..3 {
///     assert!(prepared.status()?.success());
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Prepared(Arc<Plan>);

impl Prepared {
    pub(crate) fn new(plan: Plan) -> Self {
        Self(Arc::new(plan))
    }

    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.0
    }

    /// Starts the program and returns when it has been executed, as [`Command::spawn`](crate::Command::spawn) does.
    ///
    /// # Errors
    /// As for [`Command::spawn`](crate::Command::spawn).
    ///
    /// ```
    /// let prepared = forkless::Command::new("true").prepare()?;
    /// let mut children = [prepared.spawn()?, prepared.spawn()?];
    /// for child in &mut children {
    ///     assert!(child.wait()?.success());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn(&self) -> io::Result<Child> {
        Start::new(LaunchForm::Spawn).child(&self.0)
    }

    /// Starts the program and returns as soon as the child exists, as [`Command::launch`](crate::Command::launch) does.
    ///
    /// # Errors
    /// As for [`Command::launch`](crate::Command::launch).
    ///
    /// ```
    /// let prepared = forkless::Command::new("true").prepare()?;
    /// let mut child = prepared.launch()?;
    /// child.wait_exec()?; // reports a failure of the exec
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn launch(&self) -> io::Result<Child> {
        Start::new(LaunchForm::Launch).child(&self.0)
    }

    /// Runs the program to its end and returns its exit status, as [`Command::status`](crate::Command::status) does.
    ///
    /// # Errors
    /// As for [`Command::status`](crate::Command::status).
    ///
    /// ```
    /// let prepared = forkless::Command::new("false").prepare()?;
    /// assert_eq!(prepared.status()?.code(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn status(&self) -> io::Result<ExitStatus> {
        start::status(&self.0)
    }
}

impl Prepared {
    /// Describes what the child will do: a line of text for each step, for people to read.
    ///
    /// ```
    /// let prepared = forkless::Command::new("true").umask(0o022).prepare()?;
    /// assert!(prepared.steps().contains(&"umask 022".to_owned()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn steps(&self) -> Vec<String> {
        describe::steps(&self.0)
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Prepared").field(&self.0.program()).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Child, Command, Error, Prepared, Stdio};
    use std::panic::{RefUnwindSafe, UnwindSafe};

    #[test]
    fn handles_go_from_thread_to_thread() {
        fn goes<T: Send + Sync>() {}
        goes::<Command>();
        goes::<Prepared>();
        goes::<Child>();
        goes::<Stdio>();
        goes::<Error>();
    }

    #[test]
    fn a_panic_spoils_no_handle() {
        fn survives<T: UnwindSafe + RefUnwindSafe>() {}
        survives::<Command>();
        survives::<Prepared>();
        survives::<Child>();
        survives::<Stdio>();
        survives::<Error>();
    }

    /// What a waiting child costs the parent beside its descriptors.
    #[test]
    fn a_handle_is_small() {
        assert!(size_of::<Child>() <= 512, "{} bytes", size_of::<Child>());
    }
}
