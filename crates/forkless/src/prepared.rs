//! A command prepared once, to be run often.

use crate::child::Child;
use crate::launch::run::Form;
use crate::output;
use crate::plan::{Plan, describe};
use crate::start::{self, Start};
use std::io;
use std::process::{ExitStatus, Output};
use std::sync::Arc;

/// A command whose plan has been made: from [`Command::prepare`](crate::Command::prepare).
///
/// Runs allocate nothing (but for what a program's output needs), may go on in several threads at once, and do not
/// depend on the `Command` any more. Clones share the plan.
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

    /// As [`Command::spawn`](crate::Command::spawn).
    ///
    /// # Errors
    /// As there.
    pub fn spawn(&self) -> io::Result<Child> {
        Start::new(Form::Spawn).child(&self.0)
    }

    /// As [`Command::launch`](crate::Command::launch).
    ///
    /// # Errors
    /// As there.
    pub fn launch(&self) -> io::Result<Child> {
        Start::new(Form::Launch).child(&self.0)
    }

    /// As [`Command::status`](crate::Command::status).
    ///
    /// # Errors
    /// As there.
    pub fn status(&self) -> io::Result<ExitStatus> {
        start::status(&self.0)
    }

    /// As [`Command::output`](crate::Command::output).
    ///
    /// # Errors
    /// As there.
    pub fn output(&self) -> io::Result<Output> {
        output::output(&self.0)
    }
}

impl Prepared {
    /// What the child is going to do, step by step, in words.
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
