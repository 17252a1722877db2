//! Creating the child by clone: with the best method that the kernel is known to allow, and with the next best one if
//! that is refused.

use super::clone::{self, CloneArgs, Cloned};
use super::creator::CreatorError;
use super::dumpable::{self, KeepDumpable, Mark};
use super::probe::{Feature, Features, is_refusal};
use super::run::{Caller, LaunchForm, Run, Running};
use super::stack::Stack;
use super::watch::{Unstarted, conclude, dismissed, fatal_signal, wait_for};
use super::{dumps, failure, maps};
use crate::error::Error;
use crate::launch::wait;
use crate::plan::Plan;
use crate::procfs;
use crate::route::{CloneCall, DescriptorTable, Passing, Route};
use forkless_core::frame::{EXEC_SLOT, Frame, GO_WAIT, LEFT, SLOT_INHERIT, Table};
use forkless_core::plan::{OpCode, VARIABLES};
use forkless_core::report::Outcome;
use forkless_core::sys::signal::SIGSYS;
use forkless_core::sys::{self, errno};
use std::os::fd::AsRawFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The method of a clone: its system call, and how the file-descriptor table is made.
#[derive(Clone, Copy)]
struct CloneMethod {
    call: CloneCall,
    table: DescriptorTable,
    /// The kernel was not probed: the child tries `close_range` in its copy of the table, and closes one by one if that is
    /// refused.
    unprobed: bool,
}

impl CloneMethod {
    /// Whether the child shares the caller's file-descriptor table until it has made its own.
    fn has_shared_table(self) -> bool {
        matches!(self.table, DescriptorTable::Private(_) | DescriptorTable::PrivateBelow(_))
    }

    fn passing(self) -> Passing {
        match self.table {
            DescriptorTable::Private(passing) => passing,
            _ => Passing::None,
        }
    }

    fn route(self) -> Route {
        let is_unprobed = self.unprobed && self.table == DescriptorTable::Copied;
        Route::Clone { call: self.call, table: if is_unprobed { DescriptorTable::CopiedUnprobed } else { self.table } }
    }
}

/// How long a launch is repeated whose ID maps cannot be written because of other launches.
const PATIENCE_FOR_MAPS: Duration = Duration::from_secs(10);

/// Launches a plan by clone.
pub(super) fn run(plan: &Plan, run: &Run<'_>) -> Result<Running, Error> {
    let probed = || {
        let features = Features::get_to_launch(run.form != LaunchForm::Launch);
        features.map_err(|error| failure::probe_error(plan, error))
    };
    let assumed = Features::unprobed(plan.once);
    let mut unprobed = assumed.is_some();
    let mut features = assumed.map_or_else(probed, Ok)?;
    let caller = Caller::of(plan, run);
    // pidfd_getfd(2) needs permission to trace the caller. A child in another user or PID namespace does not have it,
    // and no child has it while the caller is non-dumpable.
    let mut copy_sources = plan.place.is_foreign || caller.forbids_dumps;
    let started = Instant::now();
    loop {
        let way = CloneMethod { unprobed, ..best_way(plan, run, &caller, features, copy_sources) };
        let closes = plan.place.changes_ids || caller.forbids_dumps;
        let keep_dumpable = match closes.then(KeepDumpable::begin).transpose() {
            Err(error) if plan.place.changes_ids => return Err(failure::dumpable_error(plan, error)),
            answer => answer.ok().flatten(),
        };
        let mark = Mark::begin(keep_dumpable.as_ref());
        // With ID maps this comes after the write: the map files belong to root while the memory is non-dumpable.
        if caller.forbids_dumps && plan.place.id_maps.is_none() && keep_dumpable.is_some() {
            dumps::forbid();
        }
        let mut running = match attempt(plan, run, &caller, way) {
            Ok(running) => running,
            // Emulators that do not share memory have no clone3: the probe finds that.
            Err(NotCloned::Clone(error)) if unprobed && is_clone3_refusal(plan, error) => {
                drop(keep_dumpable);
                unprobed = false;
                features = probed()?;
                continue;
            }
            Err(NotCloned::Clone(error)) if way.call == CloneCall::Clone3 && is_clone3_refusal(plan, error) => {
                drop(keep_dumpable);
                features = features.lose(Feature::Clone3, mark);
                continue;
            }
            Err(NotCloned::Clone(error)) => return Err(failure::clone_error(plan, run.pidfd, error)),
            Err(NotCloned::Stack(error)) => return Err(failure::stack_error(plan, error)),
            Err(NotCloned::Creator(error)) => return Err(failure::creator_error(plan, error)),
        };
        if let Some(maps) = plan.place.id_maps.as_ref().filter(|_| running.maps.is_none()) {
            let frame = running.stack.frame();
            let is_there = || frame.state() != LEFT;
            running.maps = Some(maps::write(running.id, &frame.go, maps, caller.forbids_dumps, is_there));
        }
        if let Some(Err((errno, what))) = running.maps {
            let before = dismissed(&mut running, plan);
            drop(keep_dumpable);
            // While the memory is non-dumpable because of the child of another launch, the map files belong to root.
            if errno == errno::EACCES && !mark.is_alone() && started.elapsed() < PATIENCE_FOR_MAPS {
                dumpable::wait_until_alone();
                continue;
            }
            let before = before.ok_or_else(|| failure::map_error(plan, errno, what))?;
            if !choose_next_method(&before, way, &mut features, &mut copy_sources, mark) {
                return Err(before.error(plan));
            }
            continue;
        }
        wait_for(&mut running, run.form, can_pass_descriptors(plan, run, way), keep_dumpable);
        if !running.left {
            return Ok(running);
        }
        match conclude(&mut running, plan) {
            Ok(()) => {
                features.confirm(used(way));
                return Ok(running);
            }
            Err(failure) if choose_next_method(&failure, way, &mut features, &mut copy_sources, mark) => {}
            Err(failure) => return Err(failure.error(plan)),
        }
    }
}

/// After a failure: whether another method remains. If so, notes what the next attempt must avoid.
fn choose_next_method(
    failure: &Unstarted,
    way: CloneMethod,
    features: &mut Features,
    copy_sources: &mut bool,
    mark: Mark,
) -> bool {
    match next_best(failure.outcome, failure.signal, way) {
        Some(NextBest::CopyTable) => *features = features.lose(Feature::CloseRange, mark),
        Some(NextBest::CopySources { without }) => {
            *copy_sources = true;
            *features = without.map_or(*features, |feature| features.lose(feature, mark));
        }
        None => return false,
    }
    true
}

/// Why a launch with [`LaunchForm::Launch`] would wait for the exec; `None`: it would not. A caller that the exec itself
/// waits for must not make such a launch.
#[cfg(all(feature = "warm", target_arch = "x86_64", target_env = "gnu"))]
pub(crate) fn waits_for_the_exec(plan: &Plan) -> Option<&'static str> {
    if dumps::can_be_of_a_filter(plan.place.is_filtered) {
        return Some("the caller has a seccomp filter, and Linux is older than 5.16");
    }
    let is_vfork = plan.place.vfork || plan.place.changes_cgroup || CloneArgs::plain().vfork;
    match plan.place.changes_ids || is_vfork {
        true => Some("the caller is traced"),
        false => None,
    }
}

/// Whether the launch must wait until the child has read the caller's descriptors, which it does after the clone.
/// (Inherited standard streams do not count.)
fn can_pass_descriptors(plan: &Plan, run: &Run<'_>, way: CloneMethod) -> bool {
    let is_held = run.can_hold(plan) && matches!(way.table, DescriptorTable::PrivateBelow(_));
    if plan.fds.keeps_locks {
        return way.has_shared_table();
    }
    way.has_shared_table()
        && !is_held
        && (plan.fds.reads_early || plan.fds.highest_source >= 0 || run.slots.iter().any(|&slot| slot >= 0))
}

/// Whether the error means that `clone3` itself is refused. With namespaces or a cgroup the same errors have other
/// causes.
fn is_clone3_refusal(plan: &Plan, error: i32) -> bool {
    let plain = plan.place.namespaces == 0 && !plan.place.has_cgroup();
    // clone(2) does not have these flags. Without them the child would not be the one that was requested.
    if plan.flags != 0 {
        return false;
    }
    if plain { is_refusal(error) } else { error == errno::ENOSYS && !plan.place.has_cgroup() }
}

enum NotCloned {
    Stack(i32),
    Clone(i32),
    Creator(CreatorError),
}

/// Fills a frame for one run.
fn ready(frame: &mut Frame, plan: &Plan, run: &Run<'_>, caller: &Caller, way: CloneMethod) {
    *frame.plan.get_mut() = plan.header().cast_mut();
    // In another PID namespace the parent has no PID. Such a child inherits descriptors, and does not fetch them.
    frame.parent = if plan.place.is_in_other_pids { 0 } else { caller.pid };
    frame.host = caller.pid;
    frame.host_in_procfs = caller.in_procfs;
    frame.thread = caller.tid;
    *frame.skipped.get_mut() = 0;
    *frame.variables.get_mut() = [usize::MAX; VARIABLES];
    frame.slots = run.slots;
    frame.only_pipes = run.only_pipes as u32;
    frame.announce = (can_pass_descriptors(plan, run, way) && run.form == LaunchForm::Launch) as u32;
    frame.opens_pipes = (way.passing() == Passing::Proc) as u32;
    if way.passing() == Passing::Proc {
        /// No file.
        const NONE: [u64; 2] = [u64::MAX; 2];
        let identity = |fd: i32| if fd < 0 { NONE } else { sys::identity(fd).unwrap_or(NONE) };
        frame.pipes = [0, 1, 2, EXEC_SLOT].map(|slot| identity(run.slots[slot]));
    }
    frame.no_close_range = (way.table == DescriptorTable::Copied && !way.unprobed) as u32;
    frame.reset_handlers = 0;
    frame.hook = None;
    frame.has_caller_mask = caller.mask.is_some() as u32;
    frame.caller_mask = caller.mask.unwrap_or(0);
    (frame.table, frame.keep_below) = match way.table {
        DescriptorTable::Private(_) => (Table::Private, 3),
        DescriptorTable::PrivateBelow(limit) => (Table::Private, limit),
        _ => (Table::Copied, 0),
    };
}

/// Takes a stack, fills its frame, and clones.
fn attempt(plan: &Plan, run: &Run<'_>, caller: &Caller, way: CloneMethod) -> Result<Running, NotCloned> {
    let mut stack = Stack::take().map_err(NotCloned::Stack)?;
    stack.begin(|frame| {
        ready(frame, plan, run, caller, way);
        *frame.go.get_mut() = GO_WAIT;
        *frame.asked.get_mut() = 0;
    });
    let plain = CloneArgs::plain();
    // clone(2) has one output address: either for the pidfd, or for the PID, which the thread that writes the ID maps
    // needs.
    let has_place = plan.place.id_maps.is_none() || way.call == CloneCall::Clone3 || !run.pidfd;
    // The child shares the caller's memory. If the OOM killer of the child's cgroup selects the child because of that
    // memory, it kills every process that shares it, the caller too. It skips only vfork'd children: oom_badness() in
    // mm/oom_kill.c.
    let vfork = plan.place.vfork || (plain.vfork || plan.place.changes_cgroup) && has_place;
    let writes_meanwhile = vfork && plan.place.id_maps.is_some();
    let how = CloneArgs {
        clone3: way.call == CloneCall::Clone3,
        share_files: way.has_shared_table(),
        pidfd: run.pidfd,
        namespaces: plan.place.namespaces,
        cgroup: run.cgroup(plan).map_or(-1, |group| group.as_raw_fd()),
        vfork,
        tells_pid: writes_meanwhile,
        flags: plan.flags,
        ..plain
    };
    let started = Instant::now();
    let mut tried = false;
    let mut clone = |stack: &mut Stack, how: CloneArgs| {
        plan.creator.run(caller.is_first_thread(), || {
            tried = true;
            // SAFETY: `play` keeps the child's rules. The stack and the plan are held by the caller until the child
            // has left: by waiting for that here, or by the handle that the stack goes into together with the plan.
            unsafe { clone::clone(stack, how, forkless_core::child::play) }
        })
    };
    // A thread that has joined another PID namespace cannot start threads. So the thread that writes the ID maps is
    // started here.
    let made = match plan.place.id_maps.as_ref().filter(|_| writes_meanwhile) {
        Some(maps) => match maps::write_meanwhile(&mut stack, maps, caller.forbids_dumps, |stack| clone(stack, how)) {
            // No thread could be started. CLONE_VFORK is only a precaution here, against a tracer or the OOM killer:
            // the launch continues without it instead of failing.
            Err(_) if !plan.place.vfork => Ok((clone(&mut stack, CloneArgs { vfork: false, ..how }), None)),
            answer => answer.map_err(CreatorError::Thread),
        },
        None => Ok((clone(&mut stack, how), None)),
    };
    let made = made.and_then(|(cloned, maps)| Ok((cloned?, maps)));
    if !tried {
        stack.cancel();
    }
    let (cloned, maps) = made.map_err(NotCloned::Creator)?;
    let Cloned { pid, pidfd } = cloned.map_err(NotCloned::Clone)?;
    let asked_by = if plan.is_autoreaped() { wait::NOBODY } else { pid };
    Ok(Running {
        pid: asked_by,
        id: pid,
        pidfd,
        stack,
        left: false,
        ended: None,
        started,
        route: way.route(),
        maps,
        origin: None,
    })
}

/// The best method that the known features allow.
fn best_way(plan: &Plan, run: &Run<'_>, caller: &Caller, features: Features, copy_sources: bool) -> CloneMethod {
    let call = if features.has(Feature::Clone3) || plan.flags != 0 { CloneCall::Clone3 } else { CloneCall::Clone };
    let highest_slot = run.slots.iter().copied().max().unwrap_or(SLOT_INHERIT);
    let highest = plan.fds.highest_source.max(highest_slot);
    let getfd = features.has(Feature::GetFd) && (caller.is_first_thread() || features.has(Feature::ThreadFd));
    // The other slots above the standard streams hold sockets and a terminal, which are no pipes.
    let is_pipe = |(n, &slot): (usize, &i32)| slot < 0 || n < 3 || n == EXEC_SLOT;
    let only_pipes = run.only_pipes && plan.fds.highest_source < 3 && run.slots.iter().enumerate().all(is_pipe);
    let table = if plan.fds.inherit_all {
        DescriptorTable::CopiedOnRequest
    } else if !features.has(Feature::CloseRange) {
        DescriptorTable::Copied
    } else if highest < 3 {
        DescriptorTable::Private(Passing::None)
    } else if run.has_slot_copies(plan) {
        DescriptorTable::PrivateBelow(highest as u32 + 1)
    } else if getfd && !copy_sources {
        DescriptorTable::Private(Passing::PidfdGetfd)
    } else if only_pipes && features.has(Feature::ProcFd) && !copy_sources && procfs::is_ours() {
        DescriptorTable::Private(Passing::Proc)
    } else {
        DescriptorTable::PrivateBelow(highest as u32 + 1)
    };
    CloneMethod { call, table, unprobed: false }
}

/// The features that a launch relied on.
fn used(way: CloneMethod) -> impl Iterator<Item = Feature> {
    let all = [
        (Feature::Clone3, way.call == CloneCall::Clone3),
        (Feature::CloseRange, way.has_shared_table()),
        (Feature::GetFd, way.passing() == Passing::PidfdGetfd),
        (Feature::ProcFd, way.passing() == Passing::Proc),
    ];
    all.into_iter().filter_map(|(feature, is_used)| is_used.then_some(feature))
}

/// The next method to try after a refusal.
enum NextBest {
    CopyTable,
    CopySources {
        /// The feature that would be refused to every other launch too.
        without: Option<Feature>,
    },
}

fn next_best(failure: Outcome, signal: Option<i32>, way: CloneMethod) -> Option<NextBest> {
    // A seccomp filter kills with SIGSYS. Any other signal has another cause, which another method does not remove.
    let by_filter = signal == Some(SIGSYS);
    let (private, passes) = (way.has_shared_table(), way.passing() != Passing::None);
    let passing_by = if way.passing() == Passing::Proc { Feature::ProcFd } else { Feature::GetFd };
    match failure {
        Outcome::Killed(Some((_, OpCode::Table))) if private && by_filter => Some(NextBest::CopyTable),
        Outcome::Failed { code: OpCode::Table, errno, .. } if private && is_refusal(errno) => Some(NextBest::CopyTable),
        Outcome::Failed { code: OpCode::Place, errno, .. } if passes && is_refusal(errno) => {
            let for_all = matches!(errno, errno::EPERM | errno::ENOSYS);
            Some(NextBest::CopySources { without: for_all.then_some(passing_by) })
        }
        Outcome::Killed(Some((_, OpCode::Place))) if passes && by_filter => {
            Some(NextBest::CopySources { without: Some(passing_by) })
        }
        _ => None,
    }
}

/// The error of a child that failed after its launch had returned.
pub(crate) fn late_error(
    outcome: Outcome,
    stack: &Stack,
    plan: &Plan,
    status: Option<ExitStatus>,
    route: Route,
) -> Error {
    if stack.is_lent() {
        let failed = || failure::failed(plan, outcome).by(fatal_signal(stack, status));
        return stack.lenders_error(plan, status).unwrap_or_else(failed);
    }
    // It is too late to repeat this launch, but later launches avoid what was refused. Only cloned children have
    // other methods. For a forked child the features are not read, because the probe would clone a child that shares
    // memory.
    let signal = fatal_signal(stack, status);
    let known = (matches!(route, Route::Clone { .. }) && !plan.once).then(Features::get);
    if let (Route::Clone { call, table }, Some(Ok(features))) = (route, known) {
        let way = CloneMethod { call, table, unprobed: false };
        let (mut features, mut copy_sources) = (features, false);
        let failure = Unstarted { outcome, status, signal };
        choose_next_method(&failure, way, &mut features, &mut copy_sources, Mark::begin(None));
    }
    failure::failed(plan, outcome).by(signal)
}
