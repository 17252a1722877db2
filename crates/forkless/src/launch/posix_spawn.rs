//! Creating the child by libc's `posix_spawn(3)`.
//!
//! The plan's ops become file actions and attributes. An op that has no equivalent is refused when the plan is made.
//!
//! `posix_spawn` reports an errno, but not the step that failed. So what can be checked, opened or duplicated
//! beforehand is done here, where an error can name its step.

use super::failure;
use super::run::{LaunchForm, Run, Running};
use super::stack::Stack;
use crate::error::Error;
use crate::kernel::{self, LIBCS};
use crate::launch::wait;
use crate::plan::posix_spawn::Extensions;
use crate::plan::{Plan, describe};
use crate::route::Route;
use crate::step::Step;
use forkless_core::exec::{can_go_on, is_absent};
use forkless_core::frame::{SLOT_INHERIT, SLOT_NULL, source_of};
use forkless_core::plan::{self, Op, OpCode, Pair};
use forkless_core::report::Outcome;
use forkless_core::signals::handler;
use forkless_core::sys::{self, errno, uapi};
use nix::libc;
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd};
use std::ffi::{c_char, c_int, c_short};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Launches a plan by `posix_spawn`.
pub(super) fn run(plan: &Plan, run: &Run<'_>) -> Result<Running, Error> {
    let mut request = SpawnArguments::new(plan)?;
    request.fill(run)?;
    // Reserves a descriptor for the pidfd: at RLIMIT_NOFILE the launch must fail before the program runs, not after.
    let room = if run.pidfd { Some(kernel::pidfd_open(sys::getpid())) } else { None };
    let room = match room {
        Some(Err(error @ (errno::EMFILE | errno::ENOMEM))) => return Err(failure::clone_error(plan, true, error)),
        room => room.and_then(Result::ok),
    };
    let started = Instant::now();
    let pid = request.spawn()?;
    let pidfd = room.and_then(|room| pidfd(room, pid));
    let ended = (run.form == LaunchForm::End).then(|| wait::wait(pid, pidfd.as_ref(), started));
    let route = Route::PosixSpawn { inherits_all: plan.fds.inherit_all };
    Ok(Running {
        pid,
        id: pid,
        pidfd,
        stack: Stack::bare(),
        left: true,
        ended,
        started,
        route,
        maps: None,
        origin: None,
    })
}

/// The child's pidfd, in place of the reserved descriptor `room`. `None` if other code has already reaped the child.
fn pidfd(room: OwnedFd, pid: i32) -> Option<OwnedFd> {
    drop(room);
    let pidfd = kernel::pidfd_open(pid).ok()?;
    (!wait::is_reaped(pid, Some(&pidfd))).then_some(pidfd)
}

/// The arguments of a call of `posix_spawn`.
struct SpawnArguments<'a> {
    plan: &'a Plan,
    actions: libc::posix_spawn_file_actions_t,
    attributes: libc::posix_spawnattr_t,
    flags: c_int,
    /// The signals that are reset to their default actions.
    defaults: u64,
    /// The descriptors that this launch has opened or duplicated for the child.
    held: Vec<OwnedFd>,
    /// The highest possible descriptor number, if the child gets a descriptor there; and the source of that
    /// descriptor.
    last: Option<(RawFd, Option<RawFd>)>,
}

impl Drop for SpawnArguments<'_> {
    fn drop(&mut self) {
        // SAFETY: both were initialized by `new`.
        unsafe {
            libc::posix_spawn_file_actions_destroy(&mut self.actions);
            libc::posix_spawnattr_destroy(&mut self.attributes);
        }
    }
}

impl<'a> SpawnArguments<'a> {
    fn new(plan: &'a Plan) -> Result<Self, Error> {
        let (mut actions, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let failed = |error| Error::new(plan.program(), Step::Clone, error).on("by posix_spawn");
        // SAFETY: they initialize what they are given, or fail; the first is destroyed if the second fails.
        unsafe {
            check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr())).map_err(failed)?;
            if let Err(error) = check(libc::posix_spawnattr_init(attributes.as_mut_ptr())) {
                libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
                return Err(failed(error));
            }
            let (actions, attributes) = (actions.assume_init(), attributes.assume_init());
            Ok(Self {
                plan,
                actions,
                attributes,
                flags: 0,
                defaults: libcs_defaults(),
                held: Vec::new(),
                last: last(plan).map(|last| (last, None)),
            })
        }
    }

    /// Converts the plan's ops, in their order.
    fn fill(&mut self, run: &Run<'_>) -> Result<(), Error> {
        let plan = self.plan;
        let extensions = plan.extensions.unwrap_or_else(Extensions::get);
        for op in plan.steps() {
            let failed = |error| {
                let bare = Error::new(plan.program(), describe::step_of(op), error);
                match describe::object_of(plan, op, None) {
                    Some(object) => bare.on(object),
                    None => bare,
                }
            };
            let actions = &raw mut self.actions;
            // SAFETY: the actions are initialized; texts are the plan's and end in NUL.
            let answer = unsafe {
                match op.code {
                    OpCode::Place => {
                        self.move_descriptors(run)?;
                        0
                    }
                    OpCode::CloseOthers => self.close_others(extensions),
                    OpCode::Chdir => extensions.chdir.map_or(errno::ENOSYS, |chdir| chdir(actions, self.text(op.a))),
                    // The descriptor is for the program, so it must stay open across exec.
                    OpCode::Open => {
                        let flags = op.b as c_int & !libc::O_CLOEXEC;
                        let (path, mode) = (self.text(op.a), op.c as libc::mode_t);
                        libc::posix_spawn_file_actions_addopen(actions, op.set as c_int, path, flags, mode)
                    }
                    OpCode::Dup => {
                        self.check_dup(op.a as RawFd, run).map_err(failed)?;
                        libc::posix_spawn_file_actions_adddup2(actions, op.a as c_int, op.b as c_int)
                    }
                    OpCode::Call => self.call(op, extensions),
                    _ => self.attribute(op),
                }
            };
            check(answer).map_err(failed)?;
        }
        // SAFETY: initialized; the set is copied.
        let answer = unsafe {
            self.flags |= libc::POSIX_SPAWN_SETSIGDEF as c_int;
            match libc::posix_spawnattr_setsigdefault(&mut self.attributes, &signals(self.defaults)) {
                0 => libc::posix_spawnattr_setflags(&mut self.attributes, self.flags as c_short),
                error => error,
            }
        };
        check(answer).map_err(|error| Error::new(plan.program(), Step::Clone, error).on("by posix_spawn"))
    }

    /// The system calls that have an equivalent: the working directory by descriptor, and the scheduler.
    fn call(&mut self, op: &Op, extensions: Extensions) -> c_int {
        let Some(call) = self.plan.call(op) else { return 0 };
        match (describe::step_of(op), extensions.fchdir) {
            // SAFETY: the actions are initialized; the plan holds the descriptor.
            (Step::Chdir, Some(fchdir)) => unsafe { fchdir(&mut self.actions, call.args[0] as c_int) },
            #[cfg(not(target_env = "musl"))]
            (Step::Scheduler, _) => {
                self.flags |= libc::POSIX_SPAWN_SETSCHEDULER as c_int;
                // SAFETY: the third argument is the offset of a parameter in the arena; the attributes are
                // initialized.
                unsafe {
                    let parameter = plan::at::<libc::sched_param>(self.plan.header(), call.args[2] as u32);
                    match libc::posix_spawnattr_setschedparam(&mut self.attributes, parameter) {
                        0 => libc::posix_spawnattr_setschedpolicy(&mut self.attributes, call.args[1] as c_int),
                        error => error,
                    }
                }
            }
            _ => 0,
        }
    }

    /// Session, process group and signals.
    fn attribute(&mut self, op: &Op) -> c_int {
        const POSIX_SPAWN_SETSID: c_int = 0x80;
        let attributes = &raw mut self.attributes;
        // SAFETY: the attributes are initialized, and the sets are copied.
        unsafe {
            match op.code {
                OpCode::SetSid => {
                    self.flags |= POSIX_SPAWN_SETSID;
                    0
                }
                OpCode::SetPgid => {
                    self.flags |= libc::POSIX_SPAWN_SETPGROUP as c_int;
                    libc::posix_spawnattr_setpgroup(attributes, op.a as libc::pid_t)
                }
                OpCode::SigDefault => {
                    self.defaults |= op.set;
                    0
                }
                // The default, also for the signals that libc itself uses.
                OpCode::SigMask if op.a == 1 && op.set == 0 => 0,
                OpCode::SigMask => {
                    let inherited = if op.a == 1 { sys::signal_mask().unwrap_or(0) } else { 0 };
                    self.flags |= libc::POSIX_SPAWN_SETSIGMASK as c_int;
                    libc::posix_spawnattr_setsigmask(attributes, &signals(inherited | op.set))
                }
                _ => 0,
            }
        }
    }

    /// Moves descriptors to their numbers. The child duplicates them one after the other, and could overwrite a
    /// source that it still needs. So a source whose number is a target is first duplicated here, to a number that is
    /// no target.
    fn move_descriptors(&mut self, run: &Run<'_>) -> Result<(), Error> {
        let plan = self.plan;
        let pairs: Vec<&Pair> = (0..).map_while(|n| plan.pair(n)).collect();
        let is_target = |number: RawFd| pairs.binary_search_by_key(&number, |pair| pair.target).is_ok();
        let mut null = None;
        for (n, pair) in (0..).zip(&pairs) {
            let (op, code) = (place_op(plan), OpCode::Place);
            let failed = |errno| failure::failed(plan, Outcome::Failed { op, code, detail: n, errno });
            let from = match source_of(&run.slots, pair) {
                SLOT_INHERIT => continue,
                SLOT_NULL => match null {
                    Some(number) => number,
                    None => {
                        let opened = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
                        let opened = opened.map_err(|error| failed(error.raw_os_error()))?;
                        let number = aside(&opened, is_target).map_err(failed)?;
                        *null.insert(hold(&mut self.held, number))
                    }
                },
                number => {
                    // SAFETY: the next call checks that it is open. The caller keeps the numbers open that it has set.
                    let fd = unsafe { BorrowedFd::borrow_raw(number) };
                    fcntl_getfd(fd).map_err(|error| failed(error.raw_os_error()))?;
                    if is_target(number) || self.is_last(pair.target) {
                        let copy = aside(fd, is_target).map_err(failed)?;
                        hold(&mut self.held, copy)
                    } else {
                        number
                    }
                }
            };
            if self.is_last(pair.target) {
                self.last = Some((pair.target, Some(from)));
                continue;
            }
            // SAFETY: the actions are initialized.
            check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.actions, from, pair.target) })
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Whether this is the highest possible number, which is filled only after the others have been closed.
    fn is_last(&self, target: RawFd) -> bool {
        self.last.is_some_and(|(last, _)| last == target)
    }

    /// Closes the descriptors that the program must not inherit: the gaps between its numbers one by one, the rest at
    /// once.
    ///
    /// If the rest begins at RLIMIT_NOFILE, libc refuses that number, although higher descriptors may be open from
    /// before the limit was lowered. Then the rest begins one number lower.
    fn close_others(&mut self, extensions: Extensions) -> c_int {
        let Some(close_from) = extensions.close_from else { return errno::ENOSYS };
        if limit().is_some_and(|limit| self.plan.keep().iter().any(|&number| number as u64 >= limit)) {
            // A descriptor at or above the limit cannot be made; that step reports the error.
            return 0;
        }
        let actions = &raw mut self.actions;
        let source = self.last.and_then(|(_, source)| source);
        // SAFETY: the actions are initialized. A number that is not open is no error.
        let close = |number| check(unsafe { libc::posix_spawn_file_actions_addclose(actions, number) });
        let mut from = 0;
        let mut all = || {
            for &number in self.plan.keep() {
                (from..number).filter(|&unwanted| Some(unwanted) != source).try_for_each(close)?;
                from = number + 1;
            }
            let Some((last, source)) = self.last else {
                // SAFETY: as above.
                return check(unsafe { close_from(actions, from) });
            };
            // SAFETY: as above.
            check(unsafe { close_from(actions, last) })?;
            let Some(source) = source else { return Ok(()) };
            // SAFETY: as above.
            check(unsafe { libc::posix_spawn_file_actions_adddup2(actions, source, last) })?;
            if self.plan.keep().contains(&source) { Ok(()) } else { close(source) }
        };
        all().err().unwrap_or(0)
    }

    /// Checks the source of a duplicate: if the child inherits it, it must be open and must survive exec.
    fn check_dup(&self, source: RawFd, run: &Run<'_>) -> Result<(), i32> {
        let is_it = |pair: &Pair| pair.target == source && source_of(&run.slots, pair) != SLOT_INHERIT;
        let is_placed = (0..).map_while(|n| self.plan.pair(n)).any(is_it);
        let is_opened = self.plan.steps().any(|op| op.code == OpCode::Open && op.set as RawFd == source);
        if is_placed || is_opened {
            return Ok(());
        }
        // SAFETY: the number is used only to read its flags, which fails if it is not open.
        match fcntl_getfd(unsafe { BorrowedFd::borrow_raw(source) }) {
            Ok(flags) if flags.contains(FdFlags::CLOEXEC) => Err(errno::EBADF),
            Ok(_) => Ok(()),
            Err(error) => Err(error.raw_os_error()),
        }
    }

    fn text(&self, offset: u32) -> *const c_char {
        // SAFETY: offsets of strings come from the plan's own ops.
        unsafe { plan::at(self.plan.header(), offset) }
    }

    /// Tries the candidates in turn, by the rules of `forkless_core::exec`.
    fn spawn(&self) -> Result<i32, Error> {
        let exec = self.plan.op(self.plan.last_op());
        let (mut answer, mut told) = (errno::ENOENT, 0);
        for (n, &offset) in (0..).zip(self.plan.candidates(exec)) {
            let path = self.text(offset);
            let error = match self.spawn_one(path, exec.c) {
                Ok(pid) => return Ok(pid),
                Err(error) => error,
            };
            let is_final = !can_go_on(error, exec.flags);
            if is_final || is_absent(answer) {
                (answer, told) = (error, n);
            }
            if is_final {
                break;
            }
        }
        Err(self.error(answer, told))
    }

    /// `posix_spawn(3)` of one path. Retries each millisecond, at most `busy_ms` times, while the file is open for
    /// writing.
    fn spawn_one(&self, path: *const c_char, busy_ms: u32) -> Result<i32, i32> {
        // SAFETY: the plan's two vectors hold addresses and end in zero words; only the environment may lie elsewhere.
        let (argv, envp) = unsafe {
            let header = self.plan.header();
            (plan::at::<*mut c_char>(header, (*header).argv), plan::environment(header).cast::<*mut c_char>())
        };
        let (mut left, mut pid) = (busy_ms, 0);
        loop {
            // SAFETY: everything named is initialized and outlives the call; the vectors are only read.
            let answer = unsafe { libc::posix_spawn(&mut pid, path, &self.actions, &self.attributes, argv, envp) };
            match answer {
                0 => return Ok(pid),
                errno::ETXTBSY if left > 0 => {
                    left -= 1;
                    sys::pause(Duration::from_millis(1));
                }
                error => return Err(error),
            }
        }
    }

    /// The error, with the step that most likely failed, and the other steps that may have failed.
    fn error(&self, errno: i32, candidate: u32) -> Error {
        if matches!(errno, errno::EAGAIN | errno::ENOMEM) {
            return failure::clone_error(self.plan, false, errno).on("by posix_spawn");
        }
        let outcome = Outcome::Failed { op: self.plan.last_op(), code: OpCode::Exec, detail: candidate as i32, errno };
        let error = failure::failed(self.plan, outcome);
        let others: Vec<String> =
            self.plan.steps().filter(|op| can_fail(op)).map(|op| in_words(self.plan, op)).collect();
        if others.is_empty() {
            return error;
        }
        error.note(format!("posix_spawn does not report the step: it may also have been {}", others.join(", or ")))
    }
}

fn place_op(plan: &Plan) -> u32 {
    (0..plan.last_op()).find(|&index| plan.op(index).code == OpCode::Place).unwrap_or(0)
}

/// Whether the child does something for this op that may be refused and was not tried beforehand.
fn can_fail(op: &Op) -> bool {
    match op.code {
        OpCode::SetSid | OpCode::SetPgid | OpCode::Chdir | OpCode::Open => true,
        OpCode::Call => describe::step_of(op) != Step::PassFd,
        _ => false,
    }
}

fn in_words(plan: &Plan, op: &Op) -> String {
    let words = describe::step_of(op).describe();
    describe::object_of(plan, op, None).map_or(words.into(), |object| format!("{words} {object}"))
}

/// The highest possible descriptor number, if the child gets a descriptor there.
fn last(plan: &Plan) -> Option<RawFd> {
    let highest = plan.keep().last().copied().filter(|&highest| highest > 2)?;
    (Some(highest as u64 + 1) == limit()).then_some(highest)
}

/// The soft RLIMIT_NOFILE; `None` if it cannot be read. (rustix panics then.)
fn limit() -> Option<u64> {
    let mut limit = [0u64; 2];
    let args = [0, uapi::RLIMIT_NOFILE as usize, 0, limit.as_mut_ptr() as usize, 0, 0];
    // SAFETY: the kernel writes two words.
    unsafe { sys::syscall(uapi::__NR_prlimit64, args) }.ok().map(|_| limit[0])
}

/// A close-on-exec duplicate at a number of 3 or more that is no target.
fn aside(fd: impl std::os::fd::AsFd, is_target: impl Fn(RawFd) -> bool) -> Result<OwnedFd, i32> {
    let mut from = 3;
    loop {
        let copy = fcntl_dupfd_cloexec(&fd, from).map_err(|error| error.raw_os_error())?;
        if !is_target(copy.as_raw_fd()) {
            return Ok(copy);
        }
        from = copy.as_raw_fd() + 1;
    }
}

/// Keeps a descriptor open during the launch; returns its number.
fn hold(held: &mut Vec<OwnedFd>, fd: OwnedFd) -> RawFd {
    let number = fd.as_raw_fd();
    held.push(fd);
    number
}

/// The signals that libc itself uses, except those that the caller ignores. libc leaves them ignored in the program
/// unless they are reset to their default actions.
fn libcs_defaults() -> u64 {
    let is_ignored = |signal: u32| sys::signal_action(signal).is_ok_and(|action| handler(&action) == libc::SIG_IGN);
    (1..=64)
        .filter(|signal| LIBCS >> (signal - 1) & 1 == 1 && !is_ignored(*signal))
        .fold(0, |set, n| set | 1 << (n - 1))
}

/// A `sigset_t` whose first word is the kernel's set. libc's own functions leave out the signals that libc itself
/// uses.
fn signals(set: u64) -> libc::sigset_t {
    // SAFETY: all zeroes is an empty set, and it is longer than a word.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        (&raw mut signals).cast::<u64>().write(set);
        signals
    }
}

fn check(answer: c_int) -> Result<(), i32> {
    if answer == 0 { Ok(()) } else { Err(answer) }
}
