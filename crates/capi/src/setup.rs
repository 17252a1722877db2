//! Setters for process attributes: IDs, limits, scheduling, terminal.

use crate::boundary::to_status;
use crate::command::setters;
use crate::error::{Failure, bad};
use crate::handle::{NULL, copy, slice, text};
use forkless::{CallArg, IoClass, Launcher, Resource, Scheduler, Step};
use libc::{c_char, c_int, gid_t, size_t, uid_t};
use std::ffi::c_void;
use std::io;

const SCHEDULERS: [Scheduler; 5] =
    [Scheduler::Other, Scheduler::Fifo, Scheduler::RoundRobin, Scheduler::Batch, Scheduler::Idle];

const IO_CLASSES: [IoClass; 3] = [IoClass::Realtime, IoClass::BestEffort, IoClass::Idle];

/// `forkless_call_arg`.
#[repr(C)]
pub(crate) struct CArg {
    /// 0: a number; 1: the address of a copy of the bytes; 2: a variable.
    kind: c_int,
    number: u64,
    bytes: *const c_void,
}

impl CArg {
    /// # Safety
    /// With kind 1, `bytes` is null or has `number` bytes.
    unsafe fn read(&self) -> Result<CallArg, Failure> {
        match self.kind {
            0 => Ok(CallArg::Number(self.number)),
            // SAFETY: the caller's contract.
            1 => Ok(CallArg::Bytes(unsafe { slice(self.bytes.cast::<u8>(), self.number as usize) }?.to_vec())),
            2 => Ok(CallArg::Variable(self.number.try_into().map_err(|_| bad("no such variable"))?)),
            _ => Err(bad("no such kind of argument")),
        }
    }
}

/// The launchers that can be selected for a command, by their numbers in forkless.h.
const LAUNCHERS: [Launcher; 3] = [Launcher::Clone, Launcher::Fork, Launcher::PosixSpawn];

/// `forkless_function`.
type Function = unsafe extern "C" fn(*mut c_void) -> c_int;

/// A function of the caller and its argument.
struct PreExec {
    function: Function,
    value: *mut c_void,
}

// SAFETY: only forked children use the pair, each in its own copy of the memory.
unsafe impl Send for PreExec {}
// SAFETY: as above.
unsafe impl Sync for PreExec {}

impl PreExec {
    fn call(&self) -> io::Result<()> {
        // SAFETY: the function may run in a forked child, right before exec (forkless.h).
        match unsafe { (self.function)(self.value) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno.saturating_abs())),
        }
    }
}

setters! {
    fn forkless_command_launcher(launcher: c_int) command => {
        let found = usize::try_from(launcher).ok().and_then(|number| LAUNCHERS.get(number));
        command.launcher(*found.ok_or(bad("no such launcher, or one that cannot be selected for a command"))?);
    }

    fn forkless_command_pre_exec(
        function: Option<Function>,
        value: *mut c_void
    ) command => {
        let function = function.ok_or(bad("the function is a null pointer"))?;
        let one = PreExec { function, value };
        command.pre_exec(move || one.call());
    }

    fn forkless_command_current_dir_fd(fd: c_int) command => {
        command.current_dir_fd(copy(fd)?);
    }

    fn forkless_command_uid(uid: uid_t) command => {
        command.uid(uid);
    }

    fn forkless_command_gid(gid: gid_t) command => {
        command.gid(gid);
    }

    fn forkless_command_groups(groups: *const gid_t, count: size_t) command => {
        command.groups(slice(groups, count)?);
    }

    fn forkless_command_user(name: *const c_char) command => {
        command.user(text(name)?);
    }

    fn forkless_command_group(name: *const c_char) command => {
        command.group_name(text(name)?);
    }

    fn forkless_command_rlimit(resource: c_int, soft: u64, hard: u64) command => {
        let found = Resource::ALL.into_iter().find(|one| *one as c_int == resource);
        command.rlimit(found.ok_or(bad("no such resource"))?, soft, hard);
    }

    fn forkless_command_scheduler(policy: c_int, priority: c_int) command => {
        let found = SCHEDULERS.iter().find(|one| **one as c_int == policy).ok_or(bad("no such scheduling policy"))?;
        command.scheduler(*found, priority.try_into().map_err(|_| bad("negative priority"))?);
    }

    fn forkless_command_cpu_affinity(processors: *const c_int, count: size_t) command => {
        let numbers = slice(processors, count)?.iter().map(|&one| usize::try_from(one));
        let numbers: Result<Vec<_>, _> = numbers.collect();
        command.cpu_affinity(numbers.map_err(|_| bad("negative CPU number"))?);
    }

    fn forkless_command_io_priority(class: c_int, level: c_int) command => {
        let found = IO_CLASSES.iter().find(|one| **one as c_int == class).ok_or(bad("no such I/O class"))?;
        command.io_priority(*found, level.try_into().map_err(|_| bad("negative I/O priority level"))?);
    }

    fn forkless_command_call(call: u32, args: *const CArg, count: size_t, result: c_int) command => {
        let args: Result<Vec<_>, _> = slice(args, count)?.iter().map(|arg| arg.read()).collect();
        command.call(call, args?, u32::try_from(result).ok());
    }

    fn forkless_command_hand_back(variable: u32) command => {
        command.hand_back(variable);
    }

    fn forkless_command_best_effort(step: c_int) command => {
        let step = u32::try_from(step).ok().and_then(Step::of_code).filter(|step| step.can_fail());
        command.best_effort(step.ok_or(bad("unknown step, or a launch cannot continue without it"))?);
    }
}
