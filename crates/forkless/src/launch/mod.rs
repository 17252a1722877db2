//! Launchers: the methods to create a child. [`cloned`] is the default; [`fork`] and [`posix_spawn`] are selected
//! explicitly. With a [`run::Cloner`] (a zygote) another process clones. [`exec`] creates no child.
//!
//! A launch takes a stack, fills its frame and clones. Its [`run::LaunchForm`] says how long it then waits: not at all,
//! until the child has taken its descriptors, until it has left the caller's memory, or until it has ended.
//!
//! The kernel may refuse a feature that the probe found to be allowed. Then the failed child was invisible to the
//! host and has changed nothing, so the launch is repeated with the next best method.

use crate::error::Error;
use crate::plan::Plan;
use crate::route::Launcher;
use run::{Run, Running};

pub(crate) mod clone;
pub(crate) mod cloned;
pub(crate) mod creator;
pub(crate) mod dumpable;
mod dumps;
pub(crate) mod exec;
pub(crate) mod failure;
mod fork;
mod forked;
pub(crate) mod maps;
pub(crate) mod pending;
pub(crate) mod pipes;
mod posix_spawn;
mod features;
pub(crate) mod probe;
pub(crate) mod processor;
pub(crate) mod run;
mod pool;
pub(crate) mod stack;
pub(crate) mod support;
mod traced;
pub(crate) mod wait;
pub(crate) mod watch;

pub use dumpable::{KeepDumpable, set_dumpable};
pub use dumps::assume_old_kernel;
pub use stack::mapped_stacks;
pub use support::Support;

/// Launches a plan.
pub(crate) fn run(plan: &Plan, run: &Run<'_>) -> Result<Running, Error> {
    if let Some(cloner) = run.cloner {
        return cloner.launch(plan, run);
    }
    match plan.launcher {
        Launcher::Fork => fork::run(plan, run),
        Launcher::PosixSpawn => posix_spawn::run(plan, run),
        Launcher::Clone => cloned::run(plan, run),
    }
}
