//! A launch by a zygote: the plan, the run and the caller's attributes are put into a parcel, and the descriptors are
//! sent over the socket.
//!
//! The kernel writes the child's PID into the parcel before the child runs. So whenever a helper is killed, either
//! the child's PID is known, or no child exists. After that it is a child like any other: the futex word in the
//! parcel shows when it has left the helper's memory, and its error is in the frame.

use super::Request;
use super::helper::{Helper, PATIENCE};
use super::message::{ARENA_AT, CGROUP_AT, DIRECTORY_AT, MAX_PATCHES, PARCEL_AT, PID_NAMESPACE_AT};
use super::message::{Parcel, WORDS, failure};
use super::registry::{read_calls, write_calls};
use crate::error::Error;
use crate::identity::{Identity, difference_of_rights};
use crate::kernel;
use crate::launch::creator::CreatorError;
use crate::launch::failure::{clone_error, creator_error, failed, map_error};
use crate::launch::run::{Cloner, LaunchForm, Run, Running};
use crate::launch::stack::Stack;
use crate::launch::wait;
use crate::launch::watch::{conclude, dismissed, reap, wait_for};
use crate::launch::{maps, processor};
use crate::plan::{Creator, Plan};
use crate::procfs::Status;
use crate::route::{CloneCall, Launcher, Route};
use crate::step::Step;
use crate::sync;
use forkless_core::attributes::observe;
use forkless_core::frame::{self, GO_WAIT, LEFT, RUNNING, SLOT_INHERIT, SLOT_NULL, Table};
use forkless_core::plan::{self, OpCode, Pair, VARIABLES};
use forkless_core::report::Outcome;
use forkless_core::sys::{self, errno, uapi};
use forkless_core::zygote_child::{Comparison, SAME, what};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::ExitStatus;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A field of a parcel that has been sent. Helper and child write to the parcel meanwhile, so references are allowed
/// only to atomics and to fields that no longer change.
macro_rules! field {
    ($base:expr, $($field:ident).+) => {{
        let parcel = $base.as_ptr().wrapping_byte_add(PARCEL_AT).cast::<Parcel>();
        // SAFETY: the parcel is mapped as long as its stack exists, which outlives each use here.
        unsafe { &(*parcel).$($field).+ }
    }};
}

/// How many helpers a launch tries if they die during the launch.
const TRIES: usize = 3;

/// The functions of the helper that the child calls, with their bytes.
type Calls<'a> = &'a [(&'a str, &'a [u8])];

/// Why a launch must be tried again with another helper.
pub(crate) enum Again {
    /// The helper has ended without making the child. How it ended.
    Died(String),
    /// Its attributes differ from the caller's. The first difference.
    Differs(&'static str),
}

pub(crate) enum Refused {
    Again(Again),
    Error(Error),
    /// Nothing was sent: the caller itself is short of descriptors or memory.
    Callers(Error),
    /// The child was made and is killed: its program may have run.
    Late(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Cloner for Request<'_> {
    fn launch(&self, plan: &Plan, run: &Run<'_>) -> Result<Running, Error> {
        launch(plan, run, self)
    }
}

fn launch(plan: &Plan, run: &Run<'_>, request: &Request<'_>) -> Result<Running, Error> {
    refuse(plan)?;
    let zygote = request.zygote;
    let says = |why: String| Error::without_errno(plan.program(), Step::Zygote, why);
    let mut tries = 0;
    loop {
        tries += 1;
        let helper = zygote.helper().map_err(says)?;
        let status =
            helper.files.status().map_err(|error| on_zygote(plan, error, "while reading /proc/thread-self/status"))?;
        match attempt(plan, run, request.calls, &helper, status, false) {
            Ok(running) => return Ok(running),
            Err(Refused::Error(error) | Refused::Callers(error) | Refused::Late(error)) => return Err(error),
            Err(Refused::Again(Again::Died(how))) => {
                zygote.discard(&helper, true);
                if !zygote.does_restart() || tries >= TRIES {
                    let pid = helper.pid;
                    return Err(says(format!("the helper (PID {pid}) ended before it made the child: {how}")));
                }
            }
            Err(Refused::Again(Again::Differs(how))) => {
                zygote.discard(&helper, false);
                if tries >= TRIES {
                    return Err(says(format!(
                        "a child of the helper would not inherit the caller's attributes: {how}"
                    )));
                }
            }
        }
    }
}

/// Refuses what no zygote can do.
fn refuse(plan: &Plan) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::check(plan.program(), why));
    if plan.launcher != Launcher::Clone {
        return refuse("a zygote supports only Launcher::Clone and no pre_exec: use Zygote::launch_with instead");
    }
    if plan.flags != 0 {
        return refuse("a zygote cannot do autoreap: it clones with CLONE_PARENT, which excludes CLONE_AUTOREAP");
    }
    if plan.fds.inherit_all {
        return refuse("a zygote cannot do inherit_all: it does not have the caller's descriptors");
    }
    if plan.place.names_parent && matches!(plan.creator, Creator::Caller) {
        return refuse("a zygote cannot do thread_death_signal: its children are not cloned by the calling thread");
    }
    Ok(())
}

/// The descriptors of a launch, in the order of the parcel's patches.
struct ParcelDescriptors<'a> {
    fds: Vec<BorrowedFd<'a>>,
    places: Vec<u32>,
}

impl ParcelDescriptors<'_> {
    /// Adds `fd`. The helper stores its own number of it at offset `at` of the mapping.
    fn add(&mut self, fd: RawFd, at: usize) {
        // SAFETY: used only during the launch, while its owner keeps it open. A number that is not open is an error.
        self.fds.push(unsafe { BorrowedFd::borrow_raw(fd) });
        self.places.push(at as u32);
    }
}

fn on_zygote(plan: &Plan, error: io::Error, what: &str) -> Error {
    Error::new(plan.program(), Step::Zygote, error.raw_os_error().unwrap_or(errno::EINVAL)).on(what)
}

/// One launch by this helper, which may be a template. `status`: the calling thread's, read for this launch.
///
/// Unless the helper is a template or bound to a CPU, all but the rights are compared while the helper makes the child.
pub(crate) fn attempt(
    plan: &Plan,
    run: &Run<'_>,
    calls: Calls<'_>,
    helper: &Arc<Helper>,
    status: Status,
    is_template: bool,
) -> Result<Running, Refused> {
    let differs = |what| Err(Refused::Again(Again::Differs(what)));
    let rights = difference_of_rights(&status, &helper.status);
    if let Some(difference) = rights {
        return differs(difference);
    }
    let is_closed = helper.is_closed_now();
    let meanwhile = !is_template && !helper.is_kept_near();
    if is_closed || !meanwhile {
        compare(plan, helper, &status)?;
    }
    if is_closed {
        return differs("Landlock domain");
    }
    let directory = directory().map_err(|error| {
        Refused::Callers(Error::new(plan.program(), Step::Adopt, error.raw_os_error()).on("directory"))
    })?;
    let mask =
        sys::signal_mask().map_err(|error| Refused::Callers(Error::new(plan.program(), Step::Signals, error)))?;
    let list = write_calls(calls);
    let arena = plan.arena();
    let (mut stack, base, id) = match helper.parcel(size_of_val(arena) + list.len()) {
        Ok(parcel) => parcel,
        Err(error) => return Err(lost(plan, helper, error, "while sending its memory")),
    };
    let mut descriptors = ParcelDescriptors { fds: Vec::with_capacity(16), places: Vec::with_capacity(16) };
    descriptors.add(directory.as_raw_fd(), DIRECTORY_AT);
    fill(plan, run, &mut stack, base, &status, mask, &mut descriptors);
    // SAFETY: the parcel is ours until it is sent.
    let parcel = unsafe { base.byte_add(PARCEL_AT).cast::<Parcel>().as_mut() };
    parcel.sent.comparison = Comparison::new(meanwhile);
    // SAFETY: the parcel has room for the arena and the list behind it.
    unsafe { base.byte_add(ARENA_AT + size_of_val(arena)).copy_from(NonNull::from(&*list).cast(), list.len()) };
    if helper.status.umask_and_ignored().0 == Some(parcel.sent.adopt.umask) {
        parcel.sent.adopt.umask = SAME;
    }
    let cpus = parcel.sent.adopt.cpus.get(..parcel.sent.adopt.cpu_words as usize).unwrap_or(&[]);
    let is_few = !cpus.is_empty() && processor::is_few(cpus);
    parcel.order.kept = helper.keep_near(is_few) as u32;
    parcel.order.calls = if list.is_empty() { 0 } else { size_of_val(arena) as u32 };
    parcel.order.calls_len = list.len() as u32;
    parcel.order.descriptors = descriptors.places.len() as u32;
    let Some(places) = parcel.order.patches.get_mut(..descriptors.places.len()) else {
        stack.frame().word.store(LEFT, Ordering::Release);
        return Err(Error::check(
            plan.program(),
            format!("a zygote takes at most {MAX_PATCHES} descriptors for one launch"),
        )
        .into());
    };
    places.copy_from_slice(&descriptors.places);
    if plan.place.changes_ids {
        helper.note_change_of_ids();
    }
    let started = Instant::now();
    if let Err(error) = helper.send(id, &descriptors.fds) {
        stack.frame().word.store(LEFT, Ordering::Release);
        if error == rustix::io::Errno::BADF {
            return Err(not_open(plan, run).into());
        }
        return Err(lost(plan, helper, error, "while sending its descriptors"));
    }
    let compared = if meanwhile { compare_meanwhile(plan, helper, &status, base) } else { Ok(()) };
    let pid = await_child(&stack, helper).map_err(|how| Refused::Again(Again::Died(how)))?;
    drop(directory);
    let Some(pid) = pid else {
        return Err(no_child(plan, calls, base).into());
    };
    let is_old = field!(base, order.old_clone).load(Ordering::Relaxed) != 0;
    let route = Route::Zygote { call: if is_old { CloneCall::Clone } else { CloneCall::Clone3 } };
    let running = Running {
        pid,
        id: pid,
        pidfd: None,
        stack,
        left: false,
        ended: None,
        started,
        route,
        maps: None,
        origin: None,
    };
    finish(plan, run, base, running, compared, is_template)
}

/// Compares the other attributes of the calling thread with the helper's. A caller that cannot change its namespaces now
/// may have changed them before it gave up its privileges, or another thread of its process may have.
fn compare(plan: &Plan, helper: &Helper, status: &Status) -> Result<(), Refused> {
    let caller = Identity::of_caller(&helper.files)
        .map_err(|error| Refused::Callers(on_zygote(plan, error, "while reading /proc/thread-self/cgroup")))?;
    let inherited = || helper.files.inherited(status, Some(&helper.inherited)).difference(&helper.inherited);
    let difference = caller.difference(&helper.identity).or_else(inherited);
    let differ = || helper.files.files.namespaces(sys::gettid()).ok() != Some(helper.namespaces);
    match difference.or_else(|| differ().then_some("namespaces")) {
        Some(difference) => Err(Refused::Again(Again::Differs(difference))),
        None => Ok(()),
    }
}

/// The same while the helper makes the child, which waits for the result.
fn compare_meanwhile(plan: &Plan, helper: &Helper, status: &Status, base: NonNull<u8>) -> Result<(), Refused> {
    let compared = compare(plan, helper, status);
    field!(base, sent.comparison).conclude(compared.is_ok());
    compared
}

/// The rest of a launch, after the child exists.
fn finish(
    plan: &Plan,
    run: &Run<'_>,
    base: NonNull<u8>,
    mut running: Running,
    compared: Result<(), Refused>,
    is_template: bool,
) -> Result<Running, Refused> {
    if let Err(difference) = compared {
        reap(&mut running);
        return Err(difference);
    }
    if run.pidfd {
        match kernel::pidfd_open(running.pid) {
            Ok(pidfd) => running.pidfd = Some(pidfd),
            Err(error @ (errno::EMFILE | errno::ENOMEM)) => {
                wait::signal(running.pid, None, kernel::SIGKILL);
                reap(&mut running);
                return Err(Refused::Late(clone_error(plan, true, error)));
            }
            // The call is refused. Or the child has ended and other code has reaped it, which the wait will report.
            Err(_) => {}
        }
    }
    if let Some(id_maps) = &plan.place.id_maps {
        if let Err((errno, what)) = maps::write(running.pid, &running.stack.frame().go, id_maps, false, || true) {
            let before = dismissed(&mut running, plan);
            return Err(before.map_or_else(|| map_error(plan, errno, what), |failure| failure.error(plan)).into());
        }
    }
    // The child has its own copies of the descriptors, so `launch` need not wait until it has begun. A launch by a
    // template must wait: until then it can be made cold instead.
    wait_for(&mut running, run.form, is_template, None);
    if !running.left {
        return Ok(running);
    }
    let Err(failure) = conclude(&mut running, plan) else { return Ok(running) };
    if let Outcome::Adopt { what: what::NICE | what::SCHEDULER | what::IO_PRIORITY | what::LIMIT, errno } =
        failure.outcome
    {
        if matches!(errno, errno::EPERM | errno::EACCES) {
            // A new helper starts with the caller's present values, so its children need not raise any.
            return Err(Refused::Again(Again::Differs("limits or scheduling")));
        }
    }
    let by_function = function_error(plan, &running.stack, base, failure.status);
    Err(by_function.unwrap_or_else(|| failure.error(plan)).into())
}

/// Puts a run, a plan's arena and the caller's attributes into a parcel. `mask`: the caller's blocked signals.
fn fill(
    plan: &Plan,
    run: &Run<'_>,
    stack: &mut Stack,
    base: NonNull<u8>,
    status: &Status,
    mask: u64,
    descriptors: &mut ParcelDescriptors<'_>,
) {
    stack.begin(|frame| {
        frame.host = sys::getpid();
        // The helper was started through a procfs of this namespace, and has the same mounts.
        frame.host_in_procfs = frame.host;
        frame.parent = if plan.place.is_in_other_pids { 0 } else { frame.host };
        frame.thread = 0;
        *frame.skipped.get_mut() = 0;
        *frame.go.get_mut() = GO_WAIT;
        *frame.asked.get_mut() = 0;
        *frame.pid.get_mut() = 0;
        *frame.variables.get_mut() = [usize::MAX; VARIABLES];
        frame.slots = run.slots;
        frame.only_pipes = 0;
        frame.announce = 0;
        frame.opens_pipes = 0;
        frame.no_close_range = 0;
        frame.reset_handlers = 0;
        (frame.has_caller_mask, frame.caller_mask) = (1, mask);
        (frame.table, frame.keep_below) = (Table::Copied, 0);
        frame.is_robust = 1;
    });
    // SAFETY: the parcel is ours until it is sent.
    let Parcel { sent, order } = unsafe { base.byte_add(PARCEL_AT).cast::<Parcel>().as_mut() };
    // A caller that waits for the exec is woken by the exec. The others must get the PID earlier, even if the helper
    // waits for the child (vfork).
    sent.announce = (run.form == LaunchForm::Launch || plan.place.id_maps.is_some()) as u32;
    observe(&mut sent.adopt);
    let (umask, ignored) = status.umask_and_ignored();
    (sent.adopt.umask, sent.adopt.ignored) = (umask.unwrap_or(SAME), ignored.unwrap_or(0));
    order.namespaces = plan.place.namespaces;
    (order.cgroup, order.pid_namespace) = (-1, -1);
    // A child that changes its IDs makes the helper's memory non-dumpable until it has left, so the helper waits.
    order.vfork = (plan.place.vfork || plan.place.changes_ids) as u32;
    for word in [&mut order.failure, &mut order.old_clone, &mut order.function, &mut order.said] {
        *word = AtomicU32::new(0);
    }
    if let Some(group) = run.cgroup(plan) {
        descriptors.add(group.as_raw_fd(), CGROUP_AT);
    }
    if let Creator::Member(namespace) = &plan.creator {
        descriptors.add(namespace.as_raw_fd(), PID_NAMESPACE_AT);
    }
    let arena = plan.arena();
    // SAFETY: the parcel has room for the arena, and the two do not overlap.
    unsafe { base.byte_add(ARENA_AT).cast().copy_from(NonNull::from(arena).cast::<u64>(), arena.len()) };
    read_early(plan, descriptors);
    for (at, source) in sources(plan, run) {
        descriptors.add(source, at);
    }
}

/// Adds the descriptors that calls use before the child has its own table: their first argument.
fn read_early(plan: &Plan, descriptors: &mut ParcelDescriptors<'_>) {
    for index in 0..plan.last_op() {
        let op = plan.op(index);
        match op.code {
            OpCode::Table => return,
            OpCode::Call => {
                let Some(call) = plan.call(op) else { continue };
                if matches!(call.number, uapi::__NR_fchdir | uapi::__NR_setns) {
                    descriptors.add(call.args[0] as RawFd, ARENA_AT + op.a as usize + offset_of!(plan::Call, args));
                }
            }
            _ => {}
        }
    }
}

/// The caller's descriptor of each pair that has one, and the offset of the pair's source in the parcel.
fn sources<'a>(plan: &'a Plan, run: &'a Run<'_>) -> impl Iterator<Item = (usize, RawFd)> + 'a {
    let first = plan.head().pairs as usize;
    (0..).map_while(|n| plan.pair(n)).enumerate().filter_map(move |(n, pair)| {
        let at = ARENA_AT + first + n * size_of::<Pair>() + offset_of!(Pair, source);
        Some((at, source_of(pair, run)?))
    })
}

fn source_of(pair: &Pair, run: &Run<'_>) -> Option<RawFd> {
    match frame::source_of(&run.slots, pair) {
        SLOT_NULL => None,
        // A closed or close-on-exec stream is not sent. The helper's own is close-on-exec too, so the program has
        // none.
        SLOT_INHERIT => Some(pair.target).filter(|&target| sys::descriptor_flags(target) == Ok(0)),
        fd => Some(fd),
    }
}

/// The calling thread's working directory, at a number above 2, so that it is not mistaken for a closed standard
/// stream.
fn directory() -> Result<OwnedFd, rustix::io::Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, ".", flags, Mode::empty())?;
    if directory.as_raw_fd() > 2 { Ok(directory) } else { rustix::io::fcntl_dupfd_cloexec(&directory, 3) }
}

/// The error if the message was refused because a descriptor is not open: the same that a child would report.
fn not_open(plan: &Plan, run: &Run<'_>) -> Error {
    let closed = (0..)
        .map_while(|n| Some((n, plan.pair(n)?)))
        .find(|(_, pair)| source_of(pair, run).is_some_and(|source| sys::descriptor_flags(source).is_err()));
    let place = (0..plan.last_op()).find(|&index| plan.op(index).code == OpCode::Place);
    match (closed, place) {
        (Some((detail, _)), Some(op)) => {
            failed(plan, Outcome::Failed { op, code: OpCode::Place, detail, errno: errno::EBADF })
        }
        // The child uses other descriptors before it has its own table.
        _ => failed(plan, Outcome::Failed { op: 0, code: plan.op(0).code, detail: -1, errno: errno::EBADF }),
    }
}

/// The error if a message could not be sent.
fn lost(plan: &Plan, helper: &Helper, error: rustix::io::Errno, what: &str) -> Refused {
    if matches!(error, rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) {
        return Refused::Again(Again::Died(helper.end().unwrap_or_else(|| "it closed its socket".into())));
    }
    if error == rustix::io::Errno::STALE {
        return Refused::Again(Again::Died("the caller has closed its socket".into()));
    }
    let is_limit = matches!(error, rustix::io::Errno::MFILE | rustix::io::Errno::NFILE);
    let error = Error::new(plan.program(), Step::Zygote, error.raw_os_error()).on(what);
    if is_limit { Refused::Callers(error) } else { error.note("the request goes over a socket: see unix(7)").into() }
}

/// Waits for the child's PID. `None` if the helper has reported that there will be no child. The error: how the
/// helper has ended.
fn await_child(stack: &Stack, helper: &Helper) -> Result<Option<i32>, String> {
    let frame = stack.frame();
    let known = || Some(frame.pid.load(Ordering::Acquire)).filter(|&pid| pid != 0);
    let nap = uapi::__kernel_timespec { tv_sec: 0, tv_nsec: PATIENCE.subsec_nanos() as i64 };
    let asked = Instant::now();
    let mut looked = asked;
    loop {
        let word = frame.state();
        if word == LEFT || word != RUNNING && known().is_some() {
            return Ok(known());
        }
        if looked.elapsed() >= PATIENCE {
            looked = Instant::now();
            // From here on the child can be waited for, whatever happens to the helper.
            if known().is_some() {
                return Ok(known());
            }
            if let Some(end) = helper.end_or_go_on(asked) {
                if known().is_none() {
                    frame.word.store(LEFT, Ordering::Release);
                    return Err(end);
                }
            }
        }
        let _ = sync::futex_wait(&frame.word, word, Some(&nap));
    }
}

/// The error of a helper that could not make the child.
fn no_child(plan: &Plan, calls: Calls<'_>, base: NonNull<u8>) -> Error {
    let error = field!(base, order.errno).load(Ordering::Relaxed);
    let on_zygote = |what: &str| Error::new(plan.program(), Step::Zygote, error).on(what);
    match field!(base, order.failure).load(Ordering::Relaxed) {
        failure::CLONE => clone_error(plan, false, error),
        failure::DESCRIPTORS => {
            on_zygote("while receiving its descriptors").note("the helper could not receive all of them: RLIMIT_NOFILE")
        }
        failure::FUNCTION => {
            let name = calls.get(error as usize).map_or("?", |(name, _)| name);
            let why = "the helper has no function of this name";
            Error::without_errno(plan.program(), Step::Function, why).on(format!("{name:?}"))
        }
        failure::JOIN => creator_error(plan, CreatorError::Join(error)),
        _ => on_zygote("while reading its plan"),
    }
}

/// The error of the function that made the launch fail, if one did.
fn function_error(plan: &Plan, stack: &Stack, base: NonNull<u8>, status: Option<ExitStatus>) -> Option<Error> {
    let number = field!(base, order.function).load(Ordering::Acquire).checked_sub(1)? as usize;
    // The child may have overwritten these numbers by mistake.
    let (start, length) = (*field!(base, order.calls) as usize, *field!(base, order.calls_len) as usize);
    if ARENA_AT + start + length > stack.lent_length() {
        return None;
    }
    // SAFETY: it is inside the parcel (just checked), and the child, which alone could change it, has ended.
    let list = unsafe { std::slice::from_raw_parts(base.byte_add(ARENA_AT + start).as_ptr(), length) };
    let name = read_calls(list).nth(number).map(|(name, _)| String::from_utf8_lossy(name).into_owned())?;
    let why = match field!(base, order.said).load(Ordering::Acquire) as usize {
        0 => match status {
            Some(status) => format!("it ended the process: {status}"),
            None => "it ended the process".into(),
        },
        length => {
            let words = field!(base, order.words).get();
            // SAFETY: the child that wrote it has ended.
            let words = unsafe { &*words };
            String::from_utf8_lossy(&words[..length.min(WORDS)]).into_owned()
        }
    };
    Some(Error::without_errno(plan.program(), Step::Function, why).on(format!("{name:?}")))
}

/// The error of a function, if it is noticed only after the launch has returned.
pub(super) fn late_function_error(stack: &Stack, plan: &Plan, status: Option<ExitStatus>) -> Option<Error> {
    // SAFETY: the frame of a zygote's child is at this offset in its parcel's mapping, which exists as long as the
    // stack.
    let base = unsafe { NonNull::new(stack.frame_ptr())?.cast::<u8>().byte_sub(PARCEL_AT) };
    function_error(plan, stack, base, status)
}

const _: () = assert!(PATIENCE.as_secs() == 0);
