//! One run of a plan: its input in addition to the plan, its result, and the calling process.

use super::dumps;
use super::maps::MapError;
use super::stack::Stack;
use crate::error::Error;
use crate::launch::wait::Reaped;
use crate::plan::{Creator, Plan};
use crate::procfs;
use crate::route::Route;
use forkless_core::frame::SLOTS;
use forkless_core::sys;
use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::process::ExitStatus;
use std::time::Instant;

/// How long a launch waits for its child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchForm {
    /// Until the child exists, and has taken the descriptors that are passed to it, if any.
    Launch,
    /// Until it has executed the program or failed.
    Spawn,
    /// Until it has ended.
    End,
}

/// The input of one run, in addition to the plan.
pub(crate) struct Run<'a> {
    /// The process that clones in the caller's place. `None`: the caller clones.
    pub(crate) cloner: Option<&'a dyn Cloner>,
    /// The cgroup that this launch has made for the child.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// The caller's descriptors for the slots.
    pub(crate) slots: [RawFd; SLOTS],
    /// The first three slots hold only pipes, which the child may open again through `/proc`.
    pub(crate) only_pipes: bool,
    pub(crate) pidfd: bool,
    pub(crate) form: LaunchForm,
    /// The caller keeps the descriptors of the slots open until the child has taken them, so that a launch need not wait
    /// for that.
    pub(crate) holds: bool,
}

impl Run<'_> {
    /// The cgroup that the child is cloned into.
    pub(crate) fn cgroup<'b>(&'b self, plan: &'b Plan) -> Option<BorrowedFd<'b>> {
        self.cgroup.or_else(|| plan.place.cgroup.as_ref().map(|group| group.as_fd()))
    }

    /// Whether the child gets all its descriptors by copying the table up to the highest of them, instead of fetching
    /// them from the caller.
    pub(super) fn has_slot_copies(&self, plan: &Plan) -> bool {
        /// The kernel copies descriptors in words of this many, even if fewer are needed.
        const WORD: RawFd = 64;
        self.can_hold(plan) && plan.fds.highest_source < WORD && self.slots.iter().all(|&slot| slot < WORD)
    }

    /// Whether all that the child takes stays open: the caller keeps the descriptors of the slots, and the plan its own.
    pub(super) fn can_hold(&self, plan: &Plan) -> bool {
        self.holds && !plan.fds.reads_early && !plan.fds.borrows
    }
}

/// Another process that clones in the caller's place.
pub(crate) trait Cloner {
    /// Launches a plan. The result is a child of the caller, not of the process that clones.
    fn launch(&self, plan: &Plan, run: &Run<'_>) -> Result<Running, Error>;
}

/// The cloner of a plan: see [`Plan::cloner`].
pub(crate) struct OfPlan(pub(crate) Box<dyn Cloner + Send + Sync + UnwindSafe + RefUnwindSafe>);

impl OfPlan {
    pub(crate) fn get(plan: &Plan) -> Option<&dyn Cloner> {
        let above: &dyn Any = &**plan.cloner.as_ref()?;
        above.downcast_ref::<Self>().map(|cloner| &*cloner.0 as &dyn Cloner)
    }
}

/// What a child's handle needs from the cloner that launched the child.
pub(crate) trait Origin: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Why the cloner did not clone the child itself. `None` if it did.
    #[cfg(feature = "warm")]
    fn cold_reason(&self) -> Option<&str>;
    /// The child has been waited for.
    fn child_ended(&self, status: ExitStatus);
}

/// A child that has been launched. Unless `left` is set, it may still use this process's memory.
pub(crate) struct Running {
    /// The PID for waits and signals: [`crate::launch::wait::NOBODY`] for an autoreaped child, whose own PID may be reused.
    pub(crate) pid: i32,
    /// The child's own PID.
    pub(crate) id: i32,
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) stack: Stack,
    pub(crate) left: bool,
    /// With [`LaunchForm::End`]: how it ended.
    pub(crate) ended: Option<io::Result<Reaped>>,
    pub(crate) started: Instant,
    pub(crate) route: Route,
    /// The result of writing the ID maps, once they have been written.
    pub(crate) maps: Option<Result<(), MapError>>,
    /// Set by a cloner that must learn of the child's end.
    pub(crate) origin: Option<Box<dyn Origin>>,
}

/// The calling process and thread. Both numbers are 0 if the child does not need them.
pub(super) struct Caller {
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// The PID as `/proc` shows it; 0 if that shows another PID namespace, or nothing needs it.
    pub(super) in_procfs: i32,
    /// The calling thread's signal mask, if another thread clones: the program must not get that thread's mask.
    pub(super) mask: Option<u64>,
    /// The memory must be non-dumpable while the child shares it: see [`dumps`].
    pub(super) forbids_dumps: bool,
}

impl Caller {
    /// Not kept from one launch to the next: a forked copy of this process has different numbers.
    pub(super) fn of(plan: &Plan, run: &Run<'_>) -> Self {
        let creates = !matches!(plan.creator, Creator::Caller);
        let passes =
            !run.has_slot_copies(plan) && (plan.fds.highest_source >= 0 || run.slots.iter().any(|&slot| slot >= 0));
        let needed = creates || plan.place.names_parent || passes || plan.place.id_maps.is_some();
        let (pid, tid) = if needed { (sys::getpid(), sys::gettid()) } else { (0, 0) };
        let mask = if plan.creator.has_blocked_signals(pid == tid) { sys::signal_mask().ok() } else { None };
        // A child that waits for its ID maps checks from time to time whether its parent lives.
        let in_procfs = if plan.place.id_maps.is_some() && procfs::is_ours() { pid } else { 0 };
        Self { pid, tid, in_procfs, mask, forbids_dumps: dumps::can_be_of_a_filter(plan.place.is_filtered) }
    }

    pub(super) fn is_first_thread(&self) -> bool {
        self.pid == self.tid
    }
}
