//! One run of a plan: what it adds to the plan, what comes of it, and who asks for it.

use super::dumps;
use super::maps::MapError;
use super::stack::Stack;
use crate::error::Error;
use crate::plan::{Creator, Plan};
use crate::route::Route;
use crate::wait::Ended;
use forkless_core::frame::SLOTS;
use forkless_core::sys;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

/// How long a launch stays with its child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Until the child exists and has taken the descriptors that it is passed, if any.
    Launch,
    /// Until it has executed the program or failed.
    Spawn,
    /// Until it has ended.
    End,
}

/// What one run adds to a plan.
pub(crate) struct Run<'a> {
    /// Who clones; none: this process does.
    pub(crate) cloner: Option<&'a dyn Cloner>,
    /// The parent's descriptors for the slots.
    pub(crate) slots: [RawFd; SLOTS],
    /// What the first three slots hold may be opened anew through `/proc`.
    pub(crate) only_pipes: bool,
    pub(crate) pidfd: bool,
    pub(crate) form: Form,
}

/// Another process that clones in the caller's place.
pub(crate) trait Cloner {
    /// Launches a plan; the child is the caller's.
    fn launch(&self, plan: &Plan, run: &Run<'_>) -> Result<Running, Error>;
}

/// A child that has been launched; unless `left`, it may still be in our memory.
pub(crate) struct Running {
    /// What the kernel is asked about the child by; [`crate::wait::NOBODY`] for one that is autoreaped.
    pub(crate) pid: i32,
    /// Its process id.
    pub(crate) id: i32,
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) stack: Stack,
    pub(crate) left: bool,
    /// With [`Form::End`]: how it ended.
    pub(crate) ended: Option<io::Result<Ended>>,
    pub(crate) started: Instant,
    pub(crate) route: Route,
    /// What came of writing the id maps, if there are any.
    pub(crate) maps: Option<Result<(), MapError>>,
}

/// Who launches, where the child has to know: process and thread, else 0.
pub(super) struct Caller {
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// The signal mask, where another thread clones.
    pub(super) mask: Option<u64>,
    /// The memory is not to be dumpable while the child shares it.
    pub(super) forbids_dumps: bool,
}

impl Caller {
    /// Asked for each launch: a forked copy of this process has other numbers.
    pub(super) fn of(plan: &Plan, run: &Run<'_>) -> Self {
        let creates = !matches!(plan.creator, Creator::Caller);
        let passes = plan.highest_source >= 0 || run.slots.iter().any(|&slot| slot >= 0);
        let needed = creates || plan.names_parent || passes || plan.id_maps.is_some();
        let (pid, tid) = if needed { (sys::getpid(), sys::gettid()) } else { (0, 0) };
        let mask = if plan.creator.blocks_signals(pid == tid) { sys::signal_mask().ok() } else { None };
        Self { pid, tid, mask, forbids_dumps: dumps::may_come_from_a_filter(plan.is_filtered) }
    }

    pub(super) fn is_first_thread(&self) -> bool {
        self.pid == self.tid
    }
}
