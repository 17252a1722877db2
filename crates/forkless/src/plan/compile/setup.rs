//! Compiles settings into ops: names are looked up, and most settings become one system call.

use crate::error::Error;
use crate::plan::compile::arena::{Arena, Arg};
use crate::plan::compile::places::Places;
use crate::request::command::values::Resource;
use crate::request::command::{CallArg, Command, Isolation, IsolationArg, IsolationVariable, Name, Setup};
use crate::step::Step;
use forkless_core::plan::{BEST_EFFORT, CALLER_VARIABLES, Op, OpCode};
use forkless_core::sys::{prctl, uapi};
use nix::unistd::{Group, User, getgrouplist};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::RawFd;
use std::path::Path;

/// Adds ops to a plan.
pub(super) struct Steps<'a> {
    pub(super) ops: Vec<Op>,
    pub(super) arena: &'a mut Arena,
    pub(super) setup: &'a Setup,
    pub(super) sandbox: &'a Isolation,
    pub(super) places: Places,
    last_object: Option<(Step, String, u32)>,
}

impl<'a> Steps<'a> {
    pub(super) fn of(command: &'a Command, arena: &'a mut Arena) -> Self {
        let (setup, sandbox) = (&command.setup, &command.sandbox);
        Self { ops: Vec::with_capacity(16), arena, setup, sandbox, places: Places::of(command), last_object: None }
    }
}

impl Steps<'_> {
    /// Adds an op. If the command has the step as best effort, the launch continues after its failure.
    pub(super) fn op(&mut self, step: Step, op: Op) {
        let flags = if self.setup.best_effort.contains(&step.code()) { BEST_EFFORT } else { 0 };
        self.ops.push(Op { flags: op.flags | flags, ..op });
    }

    /// Adds an op that opens a file at number `to`. `kind`: flags of the op.
    pub(super) fn open(&mut self, to: RawFd, path: &CStr, flags: i32, mode: u32, kind: u32) {
        let a = self.arena.text(path.to_bytes());
        let op = Op { flags: kind, a, b: flags as u32, c: mode, set: to as u64, ..Op::new(OpCode::Open) };
        self.op(Step::Open, op);
    }

    /// Adds a system call. `object`: what follows the step's name in errors.
    pub(super) fn call(&mut self, step: Step, object: &str, number: u32, args: &[Arg]) {
        self.call_into(step, object, number, args, None);
    }

    /// Adds a system call whose result a later one uses.
    pub(super) fn call_into(&mut self, step: Step, object: &str, number: u32, args: &[Arg], result: Option<u32>) {
        let a = self.arena.call(number, args, result, 0);
        self.add(step, object, a);
    }

    /// Adds a system call for which the errno `accept` is no failure.
    pub(super) fn call_unless(&mut self, step: Step, object: &str, number: u32, args: &[Arg], accept: i32) {
        let a = self.arena.call(number, args, None, accept);
        self.add(step, object, a);
    }

    /// Adds a system call that is repeated as long as it fails with EAGAIN.
    pub(super) fn call_again(&mut self, step: Step, object: &str, number: u32, args: &[Arg], result: u32) {
        let a = self.arena.call(number, args, Some(result), 0);
        self.arena.try_again(a);
        self.add(step, object, a);
    }

    /// Adds an op that stores its only argument in the variable `result`.
    fn store(&mut self, step: Step, object: &str, args: &[Arg], result: Option<u32>) {
        let a = self.arena.call(0, args, result, 0);
        self.arena.store(a);
        self.add(step, object, a);
    }

    /// Groups the ops from `start` on: if one of them fails as best effort, the rest of the group is skipped too.
    pub(super) fn belong(&mut self, start: usize) {
        let together = &mut self.ops[start..];
        let count = together.len() as u32;
        (1..=count).zip(together).for_each(|(n, op)| op.skip = count - n);
    }

    /// Lets the ops from `start` on fail only as `step` may: they are parts of it. `None`: they may not fail.
    pub(super) fn fail_as(&mut self, step: Option<Step>, start: usize) {
        let may_fail = step.is_some_and(|step| self.setup.best_effort.contains(&step.code()));
        let flags = if may_fail { BEST_EFFORT } else { 0 };
        self.ops[start..].iter_mut().for_each(|op| op.flags = op.flags & !BEST_EFFORT | flags);
    }

    fn add(&mut self, step: Step, object: &str, call: u32) {
        let c = self.object(step, object);
        self.op(step, Op { a: call, b: step.code(), c, ..Op::new(OpCode::Call) });
    }

    /// The offset of an object's text. Most steps are several calls for one object.
    fn object(&mut self, step: Step, object: &str) -> u32 {
        if let Some((of_step, text, offset)) = &self.last_object
            && *of_step == step
            && text == object
        {
            return *offset;
        }
        let offset = match (self.sandbox.in_sandbox, &self.sandbox.pivot_root) {
            // The caller names paths as they are in the sandbox, so the prefix of the new root is removed from them.
            (true, Some(root)) if object.contains('"') => {
                let root = root.to_string_lossy();
                let inside = object.replace(&format!(", looked up inside \"{root}\""), ", inside the sandbox");
                let most = if step == Step::Symlink { 1 } else { usize::MAX };
                self.arena.text(inside.replacen(&format!("\"{root}/"), "\"/", most).as_bytes())
            }
            _ => self.arena.text(object.as_bytes()),
        };
        self.last_object = Some((step, object.to_owned(), offset));
        offset
    }
}

/// Limits and scheduling: these may need the caller's privileges, so they come before the IDs change.
pub(super) fn resources(steps: &mut Steps<'_>) {
    let setup = steps.setup;
    for (&resource, &(soft, hard)) in &setup.rlimits {
        let limit = steps.arena.push_words(&[soft, hard]);
        let object = format!("{} to {}:{}", Resource::ALL[resource as usize].name(), amount(soft), amount(hard));
        let args = [Arg::Number(0), Arg::Number(resource.into()), Arg::Data(limit), Arg::Number(0)];
        steps.call(Step::Rlimit, &object, uapi::__NR_prlimit64, &args);
    }
    if let Some(nice) = setup.simple.nice {
        let args = [Arg::Number(0), Arg::Number(0), Arg::Number(nice as i64 as u64)];
        steps.call(Step::Nice, &nice.to_string(), uapi::__NR_setpriority, &args);
    }
    if let Some((policy, priority)) = setup.scheduler {
        let parameter = Arg::Data(steps.arena.data(&priority.to_ne_bytes()));
        if let Some(policy) = policy {
            let args = [Arg::Number(0), Arg::Number(policy as u64), parameter];
            let object = format!("policy {policy}, priority {priority}");
            steps.call(Step::Scheduler, &object, uapi::__NR_sched_setscheduler, &args);
        } else {
            let object = format!("priority {priority}");
            steps.call(Step::Scheduler, &object, uapi::__NR_sched_setparam, &[Arg::Number(0), parameter]);
        }
    }
    if let Some(cpus) = &setup.affinity {
        let mut mask = vec![0u64; cpus.last().map_or(1, |last| last / 64 + 1)];
        for cpu in cpus {
            mask[cpu / 64] |= 1 << (cpu % 64);
        }
        let object = format!("to {}", cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        let data = steps.arena.push_words(&mask);
        let args = [Arg::Number(0), Arg::Number(mask.len() as u64 * 8), Arg::Data(data)];
        steps.call(Step::Affinity, &object, uapi::__NR_sched_setaffinity, &args);
    }
    if let Some((class, level)) = setup.io_priority {
        const IOPRIO_WHO_PROCESS: u64 = 1;
        let args = [Arg::Number(IOPRIO_WHO_PROCESS), Arg::Number(0), Arg::Number((class << 13 | level).into())];
        steps.call(Step::IoPriority, &format!("class {class}, level {level}"), uapi::__NR_ioprio_set, &args);
    }
    played(steps, When::Resources);
}

/// The child writes its own `oom_score_adj`, which takes three system calls.
///
/// The kernel sets the value for every process that shares the writer's memory, unless the writer is a vfork child.
/// So the launcher adds `CLONE_VFORK`. Source: `__set_oom_adj()` in fs/proc/base.c.
///
/// The path is looked up before the mounts. A user who controls a directory that is mounted over `/proc` could make it a
/// link to any file, which the caller's privileges would then write to.
pub(super) fn oom_score(steps: &mut Steps<'_>) {
    let Some(score) = steps.setup.simple.oom_score_adj else { return };
    /// The first variable that callers cannot name.
    const FILE: u32 = CALLER_VARIABLES as u32;
    let object = score.to_string();
    let path = steps.arena.data(b"/proc/self/oom_score_adj");
    let at = Arg::Number(uapi::AT_FDCWD as i64 as u64);
    let flags = Arg::Number((uapi::O_WRONLY | uapi::O_CLOEXEC).into());
    let start = steps.ops.len();
    steps.call_into(Step::OomScore, &object, uapi::__NR_openat, &[at, Arg::Data(path), flags], Some(FILE));
    let text = steps.arena.data(object.as_bytes());
    let write = [Arg::Variable(FILE), Arg::Data(text), Arg::Number(object.len() as u64)];
    steps.call(Step::OomScore, &object, uapi::__NR_write, &write);
    steps.call(Step::OomScore, &object, uapi::__NR_close, &[Arg::Variable(FILE)]);
    steps.belong(start);
}

/// Whether the command has calls of [`Command::call`] that may write. Such a write may move the child to another
/// cgroup.
pub(super) fn has_write(setup: &Setup) -> bool {
    const WRITES: [u32; 8] = [
        uapi::__NR_write,
        uapi::__NR_writev,
        uapi::__NR_pwrite64,
        uapi::__NR_pwritev,
        uapi::__NR_pwritev2,
        uapi::__NR_sendfile,
        uapi::__NR_splice,
        uapi::__NR_copy_file_range,
    ];
    setup.calls.iter().any(|call| WRITES.contains(&call.number))
}

/// The controlling terminal and the foreground group, after the session. `pty`: the pseudo-terminal's number.
pub(super) fn terminal(steps: &mut Steps<'_>, pty: Option<RawFd>) {
    const TIOCSCTTY: u64 = 0x540e;
    if let Some(number) = steps.setup.terminal.or(pty) {
        let args = [Arg::Number(number as u64), Arg::Number(TIOCSCTTY), Arg::Number(0)];
        steps.call(Step::Terminal, &format!("of fd {number}"), uapi::__NR_ioctl, &args);
    }
    if let Some(number) = steps.setup.foreground {
        steps.op(Step::Foreground, Op { a: number as u32, ..Op::new(OpCode::Foreground) });
    }
}

/// Changes the root directory, and makes it the working directory.
pub(super) fn root(steps: &mut Steps<'_>) {
    let Some(root) = &steps.setup.chroot else { return };
    let object = format!("{root:?}{}", steps.places.describe(root));
    let start = steps.ops.len();
    let path = match steps.places.inside(root) {
        Some(_) => {
            steps.enter(Step::Chroot, &object, root);
            Path::new(".")
        }
        None => root,
    };
    let path = steps.path(path);
    steps.call(Step::Chroot, &object, uapi::__NR_chroot, &[path]);
    steps.belong(start);
    enter_root(steps);
}

/// Makes the new root the working directory. It must not fail: the program could leave the root by the old one.
pub(super) fn enter_root(steps: &mut Steps<'_>) {
    let start = steps.ops.len();
    let top = steps.arena.data(b"/");
    steps.call(Step::Chdir, "\"/\"", uapi::__NR_chdir, &[Arg::Data(top)]);
    steps.fail_as(None, start);
}

/// IDs as numbers. `None`: the caller's.
#[derive(Default)]
pub(super) struct Ids {
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Option<Vec<u32>>,
}

impl Ids {
    pub(super) fn is_leaving_root(&self) -> bool {
        self.uid.is_some_and(|uid| uid != 0)
    }

    /// Looks names up in the caller: the C library's look-up may read files, talk to daemons, allocate and take
    /// locks, which the child must not do.
    pub(super) fn look_up(command: &Command) -> Result<Self, Error> {
        let setup = &command.setup;
        let refuse = |what: String| Error::check(&command.program, what);
        let mut ids = Self { groups: setup.groups.clone(), ..Self::default() };
        match &setup.group {
            Some(Name::Id(gid)) => ids.gid = Some(*gid),
            Some(Name::Name(name)) => ids.gid = Some(group_id(name).map_err(refuse)?),
            None => {}
        }
        match &setup.user {
            Some(Name::Id(uid)) => ids.uid = Some(*uid),
            Some(Name::Name(name)) => {
                let (uid, user) = user_id(name).map_err(refuse)?;
                ids.uid = Some(uid);
                if let Some(user) = user {
                    let gid = *ids.gid.get_or_insert(user.gid.as_raw());
                    if ids.groups.is_none() {
                        ids.groups = Some(group_list(&user.name, gid).map_err(refuse)?);
                    }
                }
            }
            None => {}
        }
        // For setresuid(2) and setresgid(2) this number means "unchanged".
        if ids.uid == Some(u32::MAX) || ids.gid == Some(u32::MAX) {
            return Err(refuse(format!("{} is not a valid user or group ID", u32::MAX)));
        }
        // Checked last, so that a launch without IDs makes no system call for it.
        let is_root = || nix::unistd::geteuid().is_root();
        if ids.uid.is_some() && ids.groups.is_none() && is_root() {
            ids.groups = Some(Vec::new());
        }
        Ok(ids)
    }
}

/// The groups come first and the user last, because a change of user takes away the privilege to change them.
pub(super) fn identity(steps: &mut Steps<'_>, ids: &Ids) {
    if let Some(groups) = &ids.groups {
        let bytes: Vec<u8> = groups.iter().flat_map(|gid| gid.to_ne_bytes()).collect();
        let list = steps.arena.data(&bytes);
        let names = groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let args = [Arg::Number(groups.len() as u64), Arg::Data(list)];
        steps.call(Step::SetGroups, &format!("to {names:?}"), uapi::__NR_setgroups, &args);
    }
    if let Some(gid) = ids.gid {
        let args = [Arg::Number(gid.into()); 3];
        steps.call(Step::SetGid, &gid.to_string(), uapi::__NR_setresgid, &args);
    }
    if let Some(uid) = ids.uid {
        let args = [Arg::Number(uid.into()); 3];
        steps.call(Step::SetUid, &uid.to_string(), uapi::__NR_setresuid, &args);
    }
}

/// The system calls of a sandbox.
pub(super) fn isolation_calls(steps: &mut Steps<'_>) {
    let number = |variable: IsolationVariable| CALLER_VARIABLES as u32 + variable as u32;
    for call in &steps.sandbox.calls {
        let arg = |arg: &IsolationArg| match arg {
            IsolationArg::Number(number) => Arg::Number(*number),
            IsolationArg::Bytes(bytes) => Arg::Data(steps.arena.data(bytes)),
            IsolationArg::Variable(variable) => Arg::Variable(number(*variable)),
            IsolationArg::Address(variable) => Arg::Address(number(*variable)),
        };
        let args: Vec<Arg> = call.args.iter().map(arg).collect();
        let result = call.result.map(number);
        match call.number {
            Some(number) => steps.call_into(call.step, call.object, number, &args, result),
            None => steps.store(call.step, call.object, &args, result),
        }
    }
}

fn arguments_of(steps: &mut Steps<'_>, args: &[CallArg]) -> Vec<Arg> {
    let arg = |arg: &CallArg| match arg {
        CallArg::Number(number) => Arg::Number(*number),
        CallArg::Bytes(bytes) => Arg::Data(steps.arena.data(bytes)),
        CallArg::Variable(variable) => Arg::Variable(*variable),
    };
    args.iter().map(arg).collect()
}

/// The system calls of [`Command::call`].
pub(super) fn calls(steps: &mut Steps<'_>) {
    for call in &steps.setup.calls {
        let args = arguments_of(steps, &call.args);
        steps.call_into(Step::Call, &call.number.to_string(), call.number, &args, call.result);
    }
}

/// Steps after the IDs change: the kernel clears the parent-death signal when they change, and no_new_privs needs no
/// privilege.
pub(super) fn last(steps: &mut Steps<'_>) {
    if steps.setup.no_new_privs {
        let args = [
            Arg::Number(prctl::PR_SET_NO_NEW_PRIVS.into()),
            Arg::Number(1),
            Arg::Number(0),
            Arg::Number(0),
            Arg::Number(0),
        ];
        steps.call(Step::NoNewPrivs, "", uapi::__NR_prctl, &args);
    }
    played(steps, When::Last);
    if let Some(signal) = steps.setup.parent_death_signal {
        steps.op(Step::ParentDeathSignal, Op { a: signal as u32, ..Op::new(OpCode::ParentDeathSignal) });
    }
}

fn amount(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".into() } else { limit.to_string() }
}

fn digits(name: &OsStr) -> Option<u32> {
    name.to_str()?.parse().ok()
}

fn user_id(name: &OsStr) -> Result<(u32, Option<User>), String> {
    let found = User::from_name(&name.to_string_lossy()).map_err(|error| format!("user {name:?}: {error}"))?;
    match (found, digits(name)) {
        (Some(user), _) => Ok((user.uid.as_raw(), Some(user))),
        (None, Some(uid)) => Ok((uid, User::from_uid(uid.into()).unwrap_or(None))),
        (None, None) => Err(format!("there is no user {name:?}")),
    }
}

fn group_id(name: &OsStr) -> Result<u32, String> {
    let found = Group::from_name(&name.to_string_lossy()).map_err(|error| format!("group {name:?}: {error}"))?;
    match (found, digits(name)) {
        (Some(group), _) => Ok(group.gid.as_raw()),
        (None, Some(gid)) => Ok(gid),
        (None, None) => Err(format!("there is no group {name:?}")),
    }
}

/// The groups that `initgroups(3)` would set.
fn group_list(user: &str, gid: u32) -> Result<Vec<u32>, String> {
    let failed = |error| format!("groups of user {user:?}: {error}");
    let user = CString::new(user).map_err(|_| "a user's name contains a NUL byte".to_owned())?;
    let groups = getgrouplist(&user, gid.into()).map_err(failed)?;
    Ok(groups.into_iter().map(|gid| gid.as_raw()).collect())
}

/// An argument of a system call in the table of settings.
trait CallArgument {
    fn arg(self, arena: &mut Arena) -> Arg;
}

impl CallArgument for u64 {
    fn arg(self, _: &mut Arena) -> Arg {
        Arg::Number(self)
    }
}

impl CallArgument for u32 {
    fn arg(self, _: &mut Arena) -> Arg {
        Arg::Number(self.into())
    }
}

/// Passed as the address of a copy in the arena.
impl CallArgument for &[u64] {
    fn arg(self, arena: &mut Arena) -> Arg {
        Arg::Data(arena.push_words(self))
    }
}

impl<T: CallArgument + Copy> CallArgument for &T {
    fn arg(self, arena: &mut Arena) -> Arg {
        (*self).arg(arena)
    }
}

/// When a call of the table of settings is made: see docs/design/order.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before the IDs change: the call may need the caller's privileges.
    Resources,
    /// After the IDs, before the filters.
    Last,
}

macro_rules! op {
    ($now:ident $steps:ident $name:ident $step:ident $value:ident { by_hand }) => {};
    (
        $now:ident $steps:ident $name:ident $step:ident $value:ident
        { $when:ident: $call:ident($($arg:expr),*), $object:literal }
    ) => {
        if let Some($value) = $steps.setup.simple.$name.as_ref().filter(|_| $now == When::$when) {
            // Some calls do not use the value.
            let _ = $value;
            let args = [$($arg.arg($steps.arena)),*];
            $steps.call(Step::$step, &format!($object), uapi::$call, &args);
        }
    };
}

macro_rules! simple {
    (
        played { $(
            $(#[$doc:meta])*
            $name:ident($value:ident: $($kind:tt)*) {
                line $line:literal step $step:ident = $code:literal, $words:literal, $of:literal op $op:tt $($rest:tt)*
            }
        )* }
        passed $passed:tt
    ) => {
        /// Adds the calls of the settings that are made at this point.
        fn played(steps: &mut Steps<'_>, now: When) {
            $(op! { now steps $name $step $value $op })*
        }
    };
}

crate::settings!(simple);
