//! Launchers: how a child comes to be. By `clone`, unless another one is asked for by name ([`fork`], [`posix_spawn`]) or
//! there is a zygote to do it ([`by_zygote`]).
//!
//! A launch takes a stack, readies its frame, clones, and then waits as long as its [`Form`] asks: not at all, until
//! the child has taken its descriptors, or until it has left the parent's memory. If something that the kernel was
//! believed to allow turns out to be refused, the failed child has been invisible and has done nothing, so the launch
//! is done again by the next best way.

use crate::compile::Plan;
use crate::error::Error;
use crate::orphan;
use crate::wait::{self, Ended};
use crate::zygote::Request;
use forkless_core::frame::{Frame, GO_WAIT, LEFT, RUNNING, SLOT_INHERIT, SLOTS, Table};
use forkless_core::plan::{OpCode, VARIABLES};
use forkless_core::planted;
use forkless_core::report::{Outcome, outcome};
use forkless_core::sys::signal::{SIGCONT, SIGSYS};
use forkless_core::sys::{self, errno, uapi};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

mod by_zygote;

pub(crate) mod clone;

mod creator;

mod dumpable;

mod dumps;

mod exec;

mod failure;

mod fork;

mod maps;

mod posix_spawn;

pub(crate) mod probe;

pub(crate) mod stack;

pub(crate) mod processor;

mod support;

mod traced;

pub use dumps::assume_old_kernel;
pub use stack::mapped_stacks;
pub use support::Support;

use clone::{Cloned, How};
pub(crate) use creator::Creator;
use creator::CreatorError;
use dumpable::Mark;
pub use dumpable::{KeepDumpable, set_dumpable};
pub(crate) use exec::exec;
pub(crate) use fork::Closure;
pub(crate) use posix_spawn::{Extensions, refusal as posix_spawn_refusal};
use probe::{Feature, Features, is_refusal};
pub(crate) use stack::Stack;

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
    /// Who clones; none: we do.
    pub(crate) zygote: Option<Request<'a>>,
    /// The parent's descriptors for the slots.
    pub(crate) slots: [RawFd; SLOTS],
    /// What the first three slots hold may be opened anew through `/proc`.
    pub(crate) only_pipes: bool,
    pub(crate) pidfd: bool,
    pub(crate) form: Form,
}

/// A child that has been launched; unless `left`, it may still be in our memory.
pub(crate) struct Running {
    /// What the kernel is asked about the child by; [`wait::NOBODY`] for one that is autoreaped.
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
    maps: Option<Result<(), maps::MapError>>,
}

/// The way a child was launched, and why that one: from [`Child::route`](crate::Child::route).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The launcher.
    pub launcher: Launcher,
    /// The system call.
    pub call: Call,
    /// How the child's descriptor table came to be.
    pub table: DescriptorTable,
    /// How descriptors above the copied ones were passed.
    pub passing: Passing,
}

/// A way to make a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// A child that shares the caller's memory until exec: `clone3(2)`.
    Clone,
    /// A child with a copy of the caller's memory: `fork(3)` of the C library, whose cost grows with that memory.
    Fork,
    /// `posix_spawn(3)` of the C library.
    PosixSpawn,
    /// A child that a [`Zygote`](crate::zygote::Zygote) cloned, which never shares the caller's memory.
    Zygote,
}

/// The system call that made the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// `clone3(2)` with `CLONE_CLEAR_SIGHAND`.
    Clone3,
    /// `clone(2)`, because `clone3` is refused or missing here.
    Clone,
    /// Whatever the C library's `fork(3)` uses.
    Fork,
    /// Whatever the C library's `posix_spawn(3)` uses.
    PosixSpawn,
}

/// How the child's descriptor table came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescriptorTable {
    /// Made by the child, with the caller's standard streams and nothing else copied.
    Private,
    /// Made by the child, with the caller's descriptors below a number copied and closed again where they were not
    /// wanted, because `pidfd_getfd` is refused here.
    PrivateBelow(u32),
    /// Copied whole, because `close_range` is refused or missing here.
    Copied,
    /// Copied whole, because everything is to be inherited.
    CopiedOnRequest,
    /// Copied whole, as the launcher does; what was not asked for is closed again in the child.
    CopiedByLauncher,
    /// A zygote's, with what it was sent for this child.
    Sent,
}

/// How the child got descriptors that were not copied with its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passing {
    /// There were none.
    None,
    /// `pidfd_getfd(2)` on the parent.
    PidfdGetfd,
    /// Pipes opened anew through `/proc`, because `pidfd_getfd` is refused here.
    Proc,
    /// Sent to a zygote: `unix(7)` SCM_RIGHTS.
    ScmRights,
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.launcher == Launcher::Zygote {
            let call = if self.call == Call::Clone3 { "clone3" } else { "clone" };
            return write!(out, "{call} by a zygote; descriptors and plan sent to it");
        }
        let call = match self.call {
            Call::Clone3 => "clone3 in shared memory",
            Call::Clone => "clone in shared memory (clone3 is refused or missing here)",
            Call::Fork => "fork, in a copy of the memory",
            Call::PosixSpawn => "posix_spawn of the C library",
        };
        write!(out, "{call}; ")?;
        match self.table {
            DescriptorTable::Private => write!(out, "private descriptor table with only what was asked for"),
            DescriptorTable::PrivateBelow(n) => {
                write!(out, "private descriptor table, copied below {n} (pidfd_getfd is refused here)")
            }
            DescriptorTable::Copied => write!(out, "copied descriptor table (close_range is refused or missing here)"),
            DescriptorTable::CopiedOnRequest => write!(out, "copied descriptor table (everything is to be inherited)"),
            DescriptorTable::CopiedByLauncher => write!(out, "copied descriptor table (this launcher knows no other)"),
            DescriptorTable::Sent => write!(out, "descriptors sent"),
        }?;
        match self.passing {
            Passing::None | Passing::ScmRights => Ok(()),
            Passing::PidfdGetfd => write!(out, "; descriptors passed by pidfd_getfd"),
            Passing::Proc => write!(out, "; pipes passed through /proc (pidfd_getfd is refused here)"),
        }
    }
}

/// Launches a plan.
pub(crate) fn run(plan: &Plan, run: &Run<'_>) -> Result<Running, Error> {
    orphan::look_after_a_few();
    if planted!("errno-overwritten") {
        nix::errno::Errno::EINVAL.set();
    }
    if let Some(request) = &run.zygote {
        return by_zygote::run(plan, run, request);
    }
    match plan.launcher {
        Launcher::Fork => return fork::run(plan, run),
        Launcher::PosixSpawn => return posix_spawn::run(plan, run),
        _ => {}
    }
    let features = Features::get_to_launch(run.form != Form::Launch);
    let mut features = features.map_err(|error| failure::probe_error(plan, error))?;
    let caller = Caller::of(plan, run);
    // No child fetches a descriptor from a process that is not dumpable.
    let mut copy_sources = plan.is_foreign || caller.forbids_dumps;
    loop {
        let route = route(plan, run, &caller, features, copy_sources);
        let closes = plan.changes_ids || caller.forbids_dumps;
        let keep_dumpable = match closes.then(KeepDumpable::begin).transpose() {
            Err(error) if plan.changes_ids => return Err(failure::dumpable_error(plan, error)),
            answer => answer.ok().flatten(),
        };
        let mark = Mark::begin(closes);
        // Else when the id maps have been written, which belong to root while the process is not dumpable.
        if caller.forbids_dumps && plan.id_maps.is_none() && keep_dumpable.is_some() {
            dumps::forbid();
        }
        let mut running = match attempt(plan, run, &caller, route) {
            Ok(running) => running,
            Err(Refused::Clone(error)) if route.call == Call::Clone3 && is_clone3_refusal(plan, error) => {
                drop(keep_dumpable);
                features = features.lose(Feature::Clone3, mark);
                continue;
            }
            Err(Refused::Clone(error)) => return Err(failure::clone_error(plan, run.pidfd, error)),
            Err(Refused::Stack(error)) => return Err(failure::stack_error(plan, error)),
            Err(Refused::Creator(error)) => return Err(failure::creator_error(plan, error)),
        };
        if let Some(maps) = plan.id_maps.as_ref().filter(|_| running.maps.is_none()) {
            let frame = running.stack.frame();
            let is_there = || frame.state() != LEFT;
            running.maps = Some(maps::write(running.id, &frame.go, maps, caller.forbids_dumps, is_there));
        }
        if let Some(Err((errno, what))) = running.maps {
            let status = reap(&running);
            drop(keep_dumpable);
            let before = result(&running.stack, plan).err().filter(|outcome| !was_sent_away(outcome));
            let outcome = before.ok_or_else(|| failure::map_error(plan, errno, what))?;
            let signal = fatal_signal(&running.stack, status);
            if !knows_better(outcome, signal, route, &mut features, &mut copy_sources, mark) {
                return Err(failure::failed(plan, outcome).by(signal));
            }
            continue;
        }
        wait_for(&mut running, run.form, passes_descriptors(plan, run, route), keep_dumpable);
        if running.route.passing == Passing::PidfdGetfd && running.stack.frame().no_getfd.load(Ordering::Relaxed) != 0 {
            // Refused since the probe; the child found the other way by itself.
            features = features.lose(Feature::GetFd, mark);
            running.route.passing = Passing::Proc;
        }
        if !running.left {
            return Ok(running);
        }
        let outcome = match result(&running.stack, plan) {
            Ok(()) if running.ended.is_none() && plan.is_filtered && !has_executed(&running.stack, running.pid) => {
                let status = wait::reap(running.pid, running.pidfd.as_ref());
                return Err(killed_in_exec(plan, status));
            }
            Ok(()) => {
                features.worked(used(running.route));
                return Ok(running);
            }
            Err(outcome) => outcome,
        };
        let status = match running.ended {
            None if planted!("failed-child-not-reaped") => None,
            None => wait::reap(running.pid, running.pidfd.as_ref()),
            Some(ended) => ended.ok().map(|ended| ended.status),
        };
        let signal = fatal_signal(&running.stack, status);
        if !knows_better(outcome, signal, route, &mut features, &mut copy_sources, mark) {
            return Err(failure::failed(plan, outcome).by(signal));
        }
    }
}

/// After a failure: is there another way? Then what is to be avoided is noted.
fn knows_better(
    outcome: Outcome,
    signal: Option<i32>,
    route: Route,
    features: &mut Features,
    copy_sources: &mut bool,
    mark: Mark,
) -> bool {
    match next_best(outcome, signal, route).filter(|_| !planted!("no-other-way-tried")) {
        Some(NextBest::CopyTable) => *features = features.lose(Feature::CloseRange, mark),
        Some(NextBest::CopySources { without }) => {
            *copy_sources = true;
            *features = without.map_or(*features, |feature| features.lose(feature, mark));
        }
        None => return false,
    }
    true
}

/// Did the child fail because its id maps could not be written? Else it had failed before, and they could not for that.
fn was_sent_away(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { code: OpCode::AwaitGo, .. })
}

/// Who launches, where the child has to know: process and thread, else 0.
struct Caller {
    pid: i32,
    tid: i32,
    /// The signal mask, where another thread clones.
    mask: Option<u64>,
    /// The memory is not to be dumpable while the child shares it.
    forbids_dumps: bool,
}

impl Caller {
    /// Asked for each launch: a forked copy of this process has other numbers.
    fn of(plan: &Plan, run: &Run<'_>) -> Self {
        let creates = !matches!(plan.creator, Creator::Caller);
        let passes = plan.highest_source >= 0 || run.slots.iter().any(|&slot| slot >= 0);
        let needed = creates || plan.names_parent || passes || plan.id_maps.is_some();
        let (pid, tid) = if needed { (sys::getpid(), sys::gettid()) } else { (0, 0) };
        let mask = if plan.creator.blocks_signals(pid == tid) { sys::signal_mask().ok() } else { None };
        Self { pid, tid, mask, forbids_dumps: dumps::may_come_from_a_filter(plan.is_filtered) }
    }

    fn is_first_thread(&self) -> bool {
        self.pid == self.tid
    }
}

/// Does the child read descriptors of ours after the clone? (The standard streams it inherits do not count.)
fn passes_descriptors(plan: &Plan, run: &Run<'_>, route: Route) -> bool {
    let shares = matches!(route.table, DescriptorTable::Private | DescriptorTable::PrivateBelow(_));
    shares && (plan.reads_early || plan.highest_source >= 0 || run.slots.iter().any(|&slot| slot >= 0))
}

/// Is it `clone3` itself that is refused? Namespaces and control groups have errors of their own.
fn is_clone3_refusal(plan: &Plan, error: i32) -> bool {
    let plain = plan.namespaces == 0 && plan.cgroup.is_none();
    // Without the flags it would be another child than the one asked for.
    if plan.flags != 0 {
        return false;
    }
    if plain { is_refusal(error) } else { error == errno::ENOSYS && plan.cgroup.is_none() }
}

/// A child that was killed in exec, as a filter may do, leaves no word. But it still has no exit signal, so a wait that
/// asks for everything sees it and an ordinary one does not.
pub(crate) fn has_executed(stack: &Stack, pid: i32) -> bool {
    if !stack.shares_memory() {
        return fork::has_executed(pid);
    }
    is_program(pid)
}

/// The same for a child that has left our memory.
pub(crate) fn is_program(pid: i32) -> bool {
    let sees = |more: u32| {
        let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | more;
        sys::waitid(uapi::P_PID, pid, &mut { sys::SignalInfo::EMPTY }, options, None).is_ok()
    };
    sees(0) || !sees(uapi::__WALL) || planted!("killed-in-exec-believed")
}

enum Refused {
    Stack(i32),
    Clone(i32),
    Creator(CreatorError),
}

/// Fills a frame for one run.
fn ready(frame: &mut Frame, plan: &Plan, run: &Run<'_>, caller: &Caller, route: Route) {
    *frame.plan.get_mut() = plan.header().cast_mut();
    // In a process-id namespace of its own the child sees no parent, and passes descriptors without one.
    frame.parent = if plan.is_in_other_pids { 0 } else { caller.pid };
    frame.host = caller.pid;
    frame.thread = caller.tid;
    if !planted!("misses-of-the-run-before") {
        *frame.missed.get_mut() = 0;
    }
    *frame.variables.get_mut() = [usize::MAX; VARIABLES];
    frame.slots = run.slots;
    frame.only_pipes = run.only_pipes as u32;
    frame.announce = (passes_descriptors(plan, run, route) && run.form == Form::Launch) as u32;
    *frame.no_getfd.get_mut() = (route.passing == Passing::Proc) as u32;
    frame.no_close_range = (route.table == DescriptorTable::Copied) as u32;
    frame.reset_handlers = 0;
    frame.hook = None;
    frame.has_caller_mask = caller.mask.is_some() as u32;
    frame.caller_mask = caller.mask.unwrap_or(0);
    (frame.table, frame.keep_below) = match route.table {
        DescriptorTable::Private => (Table::Private, 3),
        DescriptorTable::PrivateBelow(limit) => (Table::Private, limit),
        _ => (Table::Copied, 0),
    };
}

/// Stack, frame, clone.
fn attempt(plan: &Plan, run: &Run<'_>, caller: &Caller, route: Route) -> Result<Running, Refused> {
    let mut stack = Stack::take().map_err(Refused::Stack)?;
    stack.begin(|frame| {
        ready(frame, plan, run, caller, route);
        *frame.go.get_mut() = GO_WAIT;
        *frame.asked.get_mut() = 0;
    });
    let plain = How::plain();
    // The old clone has one place for the pidfd and for the pid that who writes meanwhile needs.
    let has_place = plan.id_maps.is_none() || route.call == Call::Clone3 || !run.pidfd;
    // The OOM killer of a cgroup goes by the memory of who is in it, which here is ours, and kills everyone who has it. It
    // passes over nobody but a vfork'd child: oom_badness() in mm/oom_kill.c.
    let vfork = plan.vfork || (plain.vfork || plan.changes_cgroup) && has_place;
    let writes_meanwhile = vfork && plan.id_maps.is_some();
    let how = How {
        clone3: route.call == Call::Clone3,
        share_files: matches!(route.table, DescriptorTable::Private | DescriptorTable::PrivateBelow(_)),
        pidfd: run.pidfd,
        namespaces: plan.namespaces,
        cgroup: plan.cgroup.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        vfork,
        tells_pid: writes_meanwhile,
        flags: if planted!("clone3-flags-left-out") { 0 } else { plan.flags },
        ..plain
    };
    let started = Instant::now();
    let mut tried = false;
    let mut clone = |stack: &mut Stack, how: How| {
        plan.creator.run(caller.is_first_thread(), || {
            tried = true;
            // SAFETY: `play` keeps the child's rules. The stack and the plan are held by the caller until the child has
            // left: by waiting for that here, or by the handle that the stack goes into together with the plan.
            unsafe { clone::clone(stack, how, forkless_core::child::play) }
        })
    };
    // Who has joined a process-id namespace can start no thread, so who writes is started here.
    let made = match plan.id_maps.as_ref().filter(|_| writes_meanwhile) {
        Some(maps) => match maps::write_meanwhile(&mut stack, maps, caller.forbids_dumps, |stack| clone(stack, how)) {
            // Not needed for what the child does: rather one that is seen by a tracer, or the OOM killer, than none.
            Err(_) if !plan.vfork => Ok((clone(&mut stack, How { vfork: false, ..how }), None)),
            answer => answer.map_err(CreatorError::Thread),
        },
        None => Ok((clone(&mut stack, how), None)),
    };
    let made = made.and_then(|(cloned, maps)| Ok((cloned?, maps)));
    if !tried {
        stack.cancel();
    }
    let (cloned, maps) = made.map_err(Refused::Creator)?;
    let Cloned { pid, pidfd } = cloned.map_err(Refused::Clone)?;
    let asked_by = if plan.is_autoreaped() { wait::NOBODY } else { pid };
    Ok(Running { pid: asked_by, id: pid, pidfd, stack, left: false, ended: None, started, route, maps })
}

/// The best way that the known features allow.
fn route(plan: &Plan, run: &Run<'_>, caller: &Caller, features: Features, copy_sources: bool) -> Route {
    let call = if features.has(Feature::Clone3) || plan.flags != 0 { Call::Clone3 } else { Call::Clone };
    let highest_slot = run.slots.iter().copied().max().unwrap_or(SLOT_INHERIT);
    let highest = plan.highest_source.max(highest_slot);
    let getfd = features.has(Feature::GetFd) && (caller.is_first_thread() || features.has(Feature::ThreadFd));
    // The slots above those of the standard streams are sockets, and a terminal.
    let only_pipes = run.only_pipes && plan.highest_source < 3 && run.slots[3..].iter().all(|&slot| slot < 0);
    let (table, passing) = if plan.inherit_all {
        (DescriptorTable::CopiedOnRequest, Passing::None)
    } else if !features.has(Feature::CloseRange) {
        (DescriptorTable::Copied, Passing::None)
    } else if highest < 3 {
        (DescriptorTable::Private, Passing::None)
    } else if getfd && !copy_sources {
        (DescriptorTable::Private, Passing::PidfdGetfd)
    } else if only_pipes && features.has(Feature::ProcFd) && !copy_sources {
        (DescriptorTable::Private, Passing::Proc)
    } else {
        (DescriptorTable::PrivateBelow(highest as u32 + 1), Passing::None)
    };
    Route { launcher: Launcher::Clone, call, table, passing }
}

/// The features that a launch by this route relied on.
fn used(route: Route) -> impl Iterator<Item = Feature> {
    let private = matches!(route.table, DescriptorTable::Private | DescriptorTable::PrivateBelow(_));
    let all = [
        (Feature::Clone3, route.call == Call::Clone3),
        (Feature::CloseRange, private),
        (Feature::GetFd, route.passing == Passing::PidfdGetfd),
        (Feature::ProcFd, route.passing == Passing::Proc),
    ];
    all.into_iter().filter_map(|(feature, is_used)| is_used.then_some(feature))
}

/// What to try after a failure that was a refusal.
enum NextBest {
    CopyTable,
    CopySources {
        /// What would be refused to any other launch too.
        without: Option<Feature>,
    },
}

fn next_best(failure: Outcome, signal: Option<i32>, route: Route) -> Option<NextBest> {
    // Bad system call: what a filter kills with. Any other signal is somebody else's doing.
    let by_filter = signal == Some(SIGSYS);
    let private = matches!(route.table, DescriptorTable::Private | DescriptorTable::PrivateBelow(_));
    let passing_by = if route.passing == Passing::Proc { Feature::ProcFd } else { Feature::GetFd };
    match failure {
        Outcome::Killed(Some((_, OpCode::Table))) if private && by_filter => Some(NextBest::CopyTable),
        Outcome::Failed { code: OpCode::Table, errno, .. } if private && is_refusal(errno) => Some(NextBest::CopyTable),
        Outcome::Failed { code: OpCode::Place, errno, .. } if route.passing != Passing::None && is_refusal(errno) => {
            let for_all = matches!(errno, errno::EPERM | errno::ENOSYS);
            Some(NextBest::CopySources { without: for_all.then_some(passing_by) })
        }
        Outcome::Killed(Some((_, OpCode::Place))) if route.passing != Passing::None && by_filter => {
            Some(NextBest::CopySources { without: Some(passing_by) })
        }
        _ => None,
    }
}

/// Waits as long as the form asks; sets `left` if the child has left our memory by then.
fn wait_for(running: &mut Running, form: Form, passes_descriptors: bool, keep_dumpable: Option<KeepDumpable>) {
    let (stack, id, pidfd) = (&running.stack, running.id, running.pidfd.as_ref());
    if let Some(keep) = keep_dumpable {
        // Whatever the form: what the child did to us must be undone before anything else happens. It is continued if
        // it is stopped, since it could be for ever.
        wait_though_stopped(stack, id, pidfd, |word| word != LEFT);
        keep.end(id);
    }
    match form {
        Form::Launch if passes_descriptors => wait_though_stopped(stack, id, pidfd, |word| word == RUNNING),
        Form::Launch => {}
        Form::Spawn => {
            if !wait_while(stack, id, None, |word| word != LEFT) && passes_descriptors {
                wait_though_stopped(stack, id, pidfd, |word| word == RUNNING);
            }
        }
        // What the child is passed stays open as long as the caller of this holds the plan.
        Form::End => {
            running.ended = Some(wait::wait(running.pid, pidfd, running.started));
            // It has gone, unless we are not allowed to wait: then it may still be reading the plan.
            while !wait_while(stack, id, None, |word| word != LEFT) {}
        }
    }
    running.left = stack.frame().state() == LEFT;
}

/// Waits while `busy` holds for the futex word, also for a stopped child.
///
/// A child stopped before it has done what we wait for would keep us here for as long as it is stopped, so it is continued.
/// It is not stopped again: a SIGCONT that came meanwhile would be undone, and its pid may by then be another's.
fn wait_though_stopped(stack: &Stack, pid: i32, pidfd: Option<&OwnedFd>, busy: impl Fn(u32) -> bool) {
    while !wait_while(stack, pid, None, &busy) {
        if !planted!("stopped-child-not-continued") {
            wait::signal(pid, pidfd, SIGCONT);
        }
    }
}

/// Reaps a child that has failed or been sent away, and is about to leave; one that is stopped has to go on for that.
fn reap(running: &Running) -> Option<ExitStatus> {
    wait_though_stopped(&running.stack, running.id, running.pidfd.as_ref(), |word| word != LEFT);
    wait::reap(running.pid, running.pidfd.as_ref())
}

/// A child between clone and exec that is still there after this is looked at more closely.
const PATIENCE: Duration = Duration::from_millis(10);

/// Waits on a stack's futex word; false if the time ran out or the child was found stopped. `pid`: its process id, which is not
/// another's as long as the word is not clear.
pub(crate) fn wait_while(stack: &Stack, pid: i32, limit: Option<Duration>, busy: impl Fn(u32) -> bool) -> bool {
    if let Some(shared) = stack.forked() {
        return fork::wait_while(shared, pid, limit);
    }
    let frame = stack.frame();
    // A limit beyond what the clock holds is no limit.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut looked = None;
    loop {
        let value = frame.state();
        if !busy(value) {
            return true;
        }
        // The first time round nothing has been slept; after that, signals to us may cut each sleep short.
        let now = Instant::now();
        if now.duration_since(*looked.get_or_insert(now)) >= PATIENCE {
            looked = Some(now);
            if stack.is_lent() && is_gone(pid) {
                // Killed together with its helper, before it could tell.
                frame.word.store(LEFT, Ordering::Release);
                continue;
            }
            if is_stopped(pid) {
                return !busy(frame.state());
            }
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            return false;
        }
        let nap = left.map_or(PATIENCE, |left| left.min(PATIENCE));
        let nap = uapi::__kernel_timespec { tv_sec: nap.as_secs() as i64, tv_nsec: nap.subsec_nanos() as i64 };
        let _ = sys::futex_wait(&frame.word, value, Some(&nap));
    }
}

/// Has the child ended, or been reaped by another?
fn is_gone(pid: i32) -> bool {
    let mut info = sys::SignalInfo::EMPTY;
    let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | uapi::__WALL;
    sys::waitid(uapi::P_PID, pid, &mut info, options, None) == Err(errno::ECHILD) || info.pid == pid
}

/// Is the child stopped by a signal? Leaves the news for whoever waits for stopped children.
fn is_stopped(pid: i32) -> bool {
    let mut info = sys::SignalInfo::EMPTY;
    let options = uapi::WSTOPPED | uapi::WNOHANG | uapi::WNOWAIT | uapi::__WALL;
    let is_stopped = sys::waitid(uapi::P_PID, pid, &mut info, options, None).is_ok() && info.pid == pid;
    is_stopped && !planted!("stop-not-noticed")
}

/// The signal that ended a child, by its status or by the handler that ended it in the signal's place.
fn fatal_signal(stack: &Stack, status: Option<ExitStatus>) -> Option<i32> {
    match stack.frame().ended_by.load(Ordering::Relaxed) {
        0 => status.and_then(|status| status.signal()),
        signal => Some(signal as i32),
    }
}

/// After the child has left: has it executed the program?
fn result(stack: &Stack, plan: &Plan) -> Result<(), Outcome> {
    // SAFETY: the child has left; it has played this plan, or a copy of it.
    match unsafe { outcome(stack.frame(), plan.header()) } {
        Outcome::Exec => Ok(()),
        failure => Err(failure),
    }
}

/// The error of a child that a filter of its own killed in exec.
pub(crate) fn killed_in_exec(plan: &Plan, status: Option<ExitStatus>) -> Error {
    let error = failure::failed(plan, Outcome::Killed(Some((plan.last_op(), OpCode::Exec))));
    error.by(status.and_then(|status| status.signal()))
}

/// After the child has left: how it failed, if it did not come to execute the program.
pub(crate) fn failed(stack: &Stack, plan: &Plan) -> Option<Outcome> {
    result(stack, plan).err()
}

/// After the child has left: the best-effort steps that failed.
pub(crate) fn missed(stack: &Stack, plan: &Plan) -> Vec<Error> {
    failure::missed(plan, stack.frame())
}

/// After the child has failed: why, in the user's words.
pub(crate) fn launch_error(
    outcome: Outcome,
    stack: &Stack,
    plan: &Plan,
    status: Option<ExitStatus>,
    route: Route,
) -> Error {
    if route.launcher == Launcher::Zygote {
        let failed = || failure::failed(plan, outcome).by(fatal_signal(stack, status));
        return by_zygote::late_function_error(stack, plan, status).unwrap_or_else(failed);
    }
    // It is too late to try another way for this child, but the next one will go it.
    let signal = fatal_signal(stack, status);
    if let Ok(features) = Features::get() {
        let (mut features, mut copy_sources) = (features, false);
        knows_better(outcome, signal, route, &mut features, &mut copy_sources, Mark::begin(false));
    }
    failure::failed(plan, outcome).by(signal)
}
