//! Compiles a command into a plan. All decisions, look-ups and allocations of a launch happen here, before the clone.

use crate::error::Error;
use crate::plan::posix_spawn::Extensions;
use crate::plan::{Creator, Fds, InnerProgram, Placement, Plan, PlannedStream};
use crate::request::command::posix::FileAction;
use crate::request::command::{CallArg, Command, GroupLimits, Isolation, Namespace, ReadyFile};
use crate::request::stdio::FdSource;
use crate::route::Launcher;
use crate::step::Step;
use forkless_core::plan::{
    ANY_BY_SHELL, BEST_EFFORT, CALLER_VARIABLES, IN_PLACE, MISSES, NOT_PROCFS, Op, OpCode, SURELY, TRY_ALL,
};
use forkless_core::sys::{errno, signal, uapi};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

mod arena;
mod descriptors;
mod environment;
mod launcher;
mod mounts;
mod places;
mod program;
mod sandbox;
mod setup;

use arena::{Arena, Arg, Environment};
use descriptors::{Descriptors, descriptors, is_terminal};
pub(crate) use environment::compile as environment_of;
use sandbox::Opens;
use setup::{Ids, Steps};

/// Compiles a command. `resolve`: the plan is for any number of runs, by any launcher, so the program is looked up
/// now and the runs need not search for it.
pub(crate) fn compile(command: &Command, resolve: bool) -> io::Result<Plan> {
    if let Some(confinement) = &command.confinement {
        return compile(&confinement.confine(command)?, resolve);
    }
    if let Some(tree) = &command.tree {
        return compile(&tree.confine(command)?, resolve);
    }
    check(command)?;
    let resolve = resolve || command.cloner.is_some();
    let (env, candidates) = match &command.ready {
        Some(ready) => (ready.env.clone(), program::Candidates { paths: Cow::Borrowed(&ready.paths), searched: None }),
        None => {
            let candidates = match command.program_fd {
                Some(_) => program::Candidates::default(),
                None => program::candidates(command, resolve)?,
            };
            (environment::compile(&command.env), candidates)
        }
    };
    let descriptors = descriptors(command)?;
    let mut arena = Arena::new();
    // Descriptors that the child uses in the caller's table, before it has its own.
    let joined = command.sandbox.joins.iter().map(|(_, fd)| Arc::clone(fd));
    let group = command.sandbox.cgroup.iter().filter(|_| command.launcher == Launcher::Fork).cloned();
    let read_early: Vec<_> = command.setup.directory_fd.iter().cloned().chain(joined).chain(group).collect();
    let reads_early = !read_early.is_empty();
    let ids = Ids::look_up(command)?;
    let ops = ops(command, &mut arena, &descriptors, &ids, candidates.paths.len());
    check_misses(command, &ops)?;
    let forks = command.launcher == Launcher::Fork;
    let shell = command.scripts_by_shell.then(|| arena.text(b"/bin/sh"));
    let paths: Vec<u32> = candidates.paths.iter().map(|path| arena.text(path.as_bytes())).collect();
    // Such a plan may be sent to a zygote or a template, so it must contain the environment.
    let envp = if resolve { Environment::Copied(&env) } else { Environment::Kept(env.vector()) };
    let inner = descriptors.init.map(|socket| InnerProgram::new(socket, command, &candidates.paths));
    let words = arena.finish(arena::Parts {
        ops: &ops,
        argv: inner.as_ref().map_or(&command.args, |inner| &inner.args),
        envp,
        pairs: &descriptors.pairs,
        keep: &descriptors.keep,
        candidates: &paths,
        shell,
    });
    let fds = Fds {
        stdio: [0, 1, 2].map(|n| {
            if is_terminal(command, n) { PlannedStream::Compiled } else { PlannedStream::of(command.fds.get(&n)) }
        }),
        pty: command.pty.clone(),
        sockets: descriptors.sockets,
        back: descriptors.back,
        exec_pipe: descriptors.exec_pipe,
        keeps_locks: command.keeps_locks,
        highest_source: descriptors.highest_source,
        borrows: descriptors.borrows,
        inherit_all: command.inherit_all,
        reads_early,
    };
    let plan = Plan {
        arena: words.ok_or_else(|| Error::check(&command.program, "arguments and environment exceed 4 GiB"))?,
        fds,
        place: placement(command, forks),
        creator: creator(command),
        kill_on_drop: command.kill_on_drop,
        once: command.once,
        leads_group: command.setsid || command.pty.is_some() || command.process_group == Some(0),
        flags: launcher::flags(command),
        pidfd: command.pidfd.or_else(|| launcher::is_autoreaped(command).then_some(true)),
        launcher: command.launcher,
        extensions: (command.launcher == Launcher::PosixSpawn).then(Extensions::get),
        closures: command.closures.clone(),
        cloner: command.cloner.clone(),
        program: command.program.clone(),
        inner,
        in_sandbox: command.sandbox.in_sandbox,
        searched: candidates.searched,
        _environment: (!resolve).then_some(env),
        _owned: descriptors.owned.into_iter().chain(read_early).collect(),
    };
    launcher::check_plan(&plan)?;
    Ok(plan)
}

/// Where the child starts, and what it changes of itself.
fn placement(command: &Command, forks: bool) -> Placement {
    let sandbox = &command.sandbox;
    Placement {
        // A forked child makes or joins its namespaces itself.
        namespaces: if forks { 0 } else { sandbox.unshare & !(Namespace::Time as u64) },
        id_maps: sandbox::id_maps(command),
        is_foreign: is_foreign(command),
        cgroup: sandbox.cgroup.clone().filter(|_| !forks),
        limits: limits(command),
        changes_cgroup: !forks
            && (sandbox.cgroup.is_some() || sandbox.limits.make.is_some() || setup::has_write(&command.setup)),
        changes_ids: has_ids(command),
        names_parent: command.setup.parent_death_signal.is_some() && !sandbox.has_new(Namespace::Pid),
        is_in_other_pids: [Isolation::has_new, Isolation::has_joined].iter().any(|how| how(sandbox, Namespace::Pid)),
        is_filtered: sandbox.seccomp.is_some(),
        vfork: command.setup.simple.oom_score_adj.is_some(),
    }
}

/// The limits for which each launch makes a cgroup.
fn limits(command: &Command) -> Option<GroupLimits> {
    let best_effort = command.setup.best_effort.contains(&Step::Limits.code());
    let limits = &command.sandbox.limits;
    limits.make.is_some().then(|| GroupLimits { best_effort, ..limits.clone() })
}

/// Whether the child changes its IDs while it still shares the caller's memory.
fn has_ids(command: &Command) -> bool {
    command.setup.has_ids() || command.setup.has_calls_for_ids() || sandbox::opens(command).is_some()
}

/// Whether the child may be unable to inspect the caller, because it is in another user or PID namespace.
fn is_foreign(command: &Command) -> bool {
    let sandbox = &command.sandbox;
    [Namespace::User, Namespace::Pid].into_iter().any(|kind| sandbox.has_new(kind) || sandbox.has_joined(kind))
}

/// The thread that clones the child.
fn creator(command: &Command) -> Creator {
    if let Some((_, namespace)) = command.sandbox.joins.iter().rfind(|(kind, _)| *kind == Namespace::Pid) {
        return Creator::Member(Arc::clone(namespace));
    }
    let of_process = command.setup.parent_death_signal.is_some() && !command.setup.follows_thread;
    if of_process { Creator::Process } else { Creator::Caller }
}

/// Refuses invalid values, and names the setting.
fn check(command: &Command) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::check(&command.program, what));
    let has_nul = |text: &OsStr| text.as_bytes().contains(&0);
    if has_nul(&command.program) || command.candidates.iter().any(|program| has_nul(program)) {
        return refuse("the program's name contains a NUL byte".into());
    }
    if let Some(n) = command.args.iter().position(|arg| has_nul(arg)) {
        return refuse(format!("argument {n} contains a NUL byte"));
    }
    for (key, value) in &command.env.changes {
        // As in std, removing a variable is no error if no variable can have that name.
        let is_bad = |value: &OsStr| has_nul(key) || has_nul(value);
        if value.as_deref().is_some_and(is_bad) {
            return refuse(format!("the environment variable {key:?} contains a NUL byte"));
        }
    }
    if command.directory.as_ref().is_some_and(|directory| has_nul(directory.as_os_str())) {
        return refuse("the directory's name contains a NUL byte".into());
    }
    if (command.setsid || command.pty.is_some()) && command.process_group.is_some() {
        return refuse(
            "setsid (or pty) and process_group exclude each other: a session leader leads its own group".into(),
        );
    }
    if let Some(signal) = command.signals.bad {
        return refuse(format!("signal {signal} does not exist (1 to 64 do)"));
    }
    check_setup(command)?;
    sandbox::check(command)?;
    launcher::check(command)?;
    if command.signals.ignore & KILL_AND_STOP != 0 {
        return refuse("SIGKILL and SIGSTOP cannot be ignored".into());
    }
    Ok(())
}

/// Refuses settings that exclude each other, and values that the kernel would silently change or ignore.
fn check_setup(command: &Command) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::check(&command.program, what));
    let setup = &command.setup;
    if setup.terminal.is_some() && command.pty.is_some() {
        return refuse("pty and controlling_terminal exclude each other: pty sets the controlling terminal");
    }
    if setup.terminal.is_some() && !command.setsid {
        return refuse("a controlling terminal needs a new session: setsid(true)");
    }
    if setup.chroot.as_ref().is_some_and(|root| root.as_os_str().as_bytes().contains(&0)) {
        return refuse("the root directory's name contains a NUL byte");
    }
    if let Some(what) = setup.simple.out_of_range() {
        return refuse(what);
    }
    if setup.umask.is_some_and(|mask| mask > 0o777) {
        return refuse("the umask must be from 0 to 0777");
    }
    // Higher numbers would change the class, or be ignored.
    if setup.io_priority.is_some_and(|(_, level)| level > 7) {
        return refuse("the level of the I/O priority must be from 0 to 7");
    }
    if setup.affinity.as_ref().is_some_and(|cpus| cpus.is_empty() || cpus.last() >= Some(&65536)) {
        return refuse("the CPU affinity must name one CPU or more, from 0 to 65,535");
    }
    if setup.parent_death_signal.is_some_and(|signal| !(1..=64).contains(&signal)) {
        return refuse("the parent-death signal does not exist (1 to 64 do)");
    }
    let variables = 0..CALLER_VARIABLES as u32;
    for call in &setup.calls {
        let named = call.args.iter().filter_map(|arg| if let CallArg::Variable(n) = arg { Some(*n) } else { None });
        if call.args.len() > 6 || named.chain(call.result).any(|variable| !variables.contains(&variable)) {
            return refuse("a system call has at most 6 arguments, and variables are numbered from 0 to 14");
        }
    }
    if setup.hand_backs.iter().any(|variable| !variables.contains(variable)) {
        return refuse("hand_back needs a variable from 0 to 14");
    }
    if let Some(step) = setup.best_effort.iter().filter_map(|&code| Step::of_code(code)).find(|step| !step.can_fail()) {
        return refuse(&format!("the step {:?} cannot be best effort", step.describe()));
    }
    Ok(())
}

/// The signals whose action cannot be changed.
const KILL_AND_STOP: u64 = signal::bit(signal::SIGKILL) | signal::bit(signal::SIGSTOP);

/// The steps in their fixed order; `docs/design/order.md` gives the reasons.
fn ops(command: &Command, arena: &mut Arena, descriptors: &Descriptors, ids: &Ids, candidates: usize) -> Vec<Op> {
    let mut steps = Steps::of(command, arena);
    let opens = sandbox::opens(command);
    if opens == Some(Opens::AtBirth) {
        sandbox::close_memory(&mut steps);
    }
    if command.launcher == Launcher::Fork {
        launcher::born(&mut steps);
    }
    if let Some(directory) = command.setup.directory_number() {
        // Before the child has its own table, because only the caller's has the descriptor. fchdir(2) does not change
        // the table.
        let number = Arg::Number(directory as u64);
        steps.call(Step::Chdir, &format!("to fd {directory}"), uapi::__NR_fchdir, &[number]);
    }
    sandbox::joins(&mut steps);
    steps.ops.push(Op::new(OpCode::Table));
    if !descriptors.pairs.is_empty() {
        steps.ops.push(Op::new(OpCode::Place));
    }
    if !descriptors.pairs.is_empty() || command.keeps_locks {
        steps.ops.push(Op::new(OpCode::Taken));
    }
    if !command.inherit_all {
        steps.ops.push(Op::new(OpCode::CloseOthers));
    }
    for &number in descriptors.passing.iter() {
        const FD_CLOEXEC: u64 = 1;
        let args = [Arg::Number(number as u64), Arg::Number(uapi::F_SETFD.into()), Arg::Number(FD_CLOEXEC)];
        steps.call(Step::PassFd, &format!("{number}, close-on-exec"), uapi::__NR_fcntl, &args);
    }
    sandbox::maps(&mut steps);
    if opens == Some(Opens::WithMaps) {
        sandbox::close_memory(&mut steps);
    }
    sandbox::surroundings(&mut steps);
    setup::oom_score(&mut steps);
    if command.sandbox.ids_first {
        setup::identity(&mut steps, ids);
    }
    mounts::enter_again(&mut steps, command.directory.as_deref(), true);
    mounts::mounts(&mut steps, &descriptors.trees);
    mounts::enter_again(&mut steps, command.directory.as_deref(), false);
    setup::resources(&mut steps);
    if command.setsid || command.pty.is_some() {
        steps.op(Step::SetSid, Op::new(OpCode::SetSid));
    }
    if let Some(group) = command.process_group {
        steps.op(Step::SetPgid, Op { a: group as u32, ..Op::new(OpCode::SetPgid) });
    }
    setup::terminal(&mut steps, descriptors.terminal);
    setup::root(&mut steps);
    mounts::pivot_root(&mut steps);
    setup::isolation_calls(&mut steps);
    sandbox::capabilities_before(&mut steps);
    if !command.sandbox.ids_first {
        setup::identity(&mut steps, ids);
    }
    if let Some(directory) = &command.directory {
        let a = steps.arena.text(directory.as_os_str().as_bytes());
        steps.op(Step::Chdir, Op { a, ..Op::new(OpCode::Chdir) });
    }
    files(command, &mut steps);
    file_actions(command, &mut steps);
    redirections(command, &mut steps);
    setup::calls(&mut steps);
    if let Some(back) = descriptors.back {
        for &variable in &command.setup.hand_backs {
            let op = Op { a: back as u32, b: variable, ..Op::new(OpCode::HandBack) };
            steps.op(Step::HandBack, op);
        }
    }
    setup::last(&mut steps);
    if opens == Some(Opens::LessCapable) {
        sandbox::close_memory(&mut steps);
    }
    sandbox::capabilities_after(&mut steps, ids.is_leaving_root());
    sandbox::landlock(&mut steps, descriptors.ruleset);
    let signals = &command.signals;
    if signals.default & !KILL_AND_STOP != 0 {
        let set = signals.default & !KILL_AND_STOP;
        steps.op(Step::Signals, Op { set, ..Op::new(OpCode::SigDefault) });
    }
    if signals.ignore != 0 {
        steps.op(Step::Signals, Op { set: signals.ignore, ..Op::new(OpCode::SigIgnore) });
    }
    let (a, set) = (signals.inherit_mask as u32, signals.mask);
    steps.op(Step::Signals, Op { a, set, ..Op::new(OpCode::SigMask) });
    if !command.closures.is_empty() {
        steps.op(Step::PreExec, Op::new(OpCode::PreExec));
    }
    sandbox::seccomp(&mut steps);
    steps.ops.push(match descriptors.program {
        Some(program) => Op { a: program as u32, ..Op::new(OpCode::ExecFd) },
        None => {
            let shell = if command.any_by_shell { ANY_BY_SHELL } else { 0 };
            let flags = shell | if command.tries_all { TRY_ALL } else { 0 };
            Op { flags, b: candidates as u32, c: command.busy_ms, ..Op::new(OpCode::Exec) }
        }
    });
    steps.ops
}

/// Refuses a plan with more best-effort steps than a frame can record: every skipped step must be reported.
fn check_misses(command: &Command, ops: &[Op]) -> Result<(), Error> {
    // Backwards from the last op: the most steps that can be skipped from each op on.
    let mut most = vec![0; ops.len() + 1];
    for (index, op) in ops.iter().enumerate().rev() {
        let missed = if op.flags & BEST_EFFORT != 0 { 1 + most[index + 1 + op.skip as usize] } else { 0 };
        most[index] = missed.max(most[index + 1]);
    }
    if most[0] > MISSES {
        return Err(Error::check(&command.program, format!("at most {MISSES} steps can be best effort")));
    }
    Ok(())
}

/// Files that the child opens, with its own umask. Copies of descriptors come after them, so that such a file can be
/// copied too.
fn files(command: &Command, steps: &mut Steps<'_>) {
    if let Some(mask) = command.setup.umask {
        steps.call(Step::Umask, &format!("{mask:03o}"), uapi::__NR_umask, &[Arg::Number(mask.into())]);
    }
    for (&number, source) in &command.fds {
        if let FdSource::Open { path: Ok(path), flags, mode } = source {
            steps.open(number, path, *flags, *mode, not_procfs(command));
        }
    }
    for (&number, source) in &command.fds {
        if let FdSource::DupOf(other) = source {
            // A copy of the same number means that the descriptor is inherited.
            if *other != number {
                steps.op(Step::Dup, Op { a: *other as u32, b: number as u32, ..Op::new(OpCode::Dup) });
            }
        }
    }
}

/// The redirections of a shell line. They come last, because a shell applies them to the descriptors that it has.
fn redirections(command: &Command, steps: &mut Steps<'_>) {
    for redirection in command.ready.iter().flat_map(|ready| &ready.redirections) {
        match redirection {
            ReadyFile::Open { to, path, flags } => steps.open(*to, path, *flags, 0o666, NOT_PROCFS | SURELY),
            ReadyFile::Copy { to, from } => {
                steps.op(Step::Dup, Op { a: *from as u32, b: *to as u32, ..Op::new(OpCode::Dup) });
            }
        }
    }
}

/// The flag of an open that must not lead to procfs. A child that shares the caller's memory has it for every open: in
/// procfs such a child looks like its caller.
fn not_procfs(command: &Command) -> u32 {
    if command.launcher == Launcher::Fork { 0 } else { NOT_PROCFS }
}

/// Steps in the order of the caller's requests, as `posix_spawn_file_actions_t` has them.
fn file_actions(command: &Command, steps: &mut Steps<'_>) {
    const EBADF: i32 = errno::EBADF;
    let number = |fd: RawFd| Arg::Number(fd as u32 as u64);
    for action in &command.actions {
        match action {
            FileAction::Close(fd) => {
                steps.call_unless(Step::CloseFds, &fd.to_string(), uapi::__NR_close, &[number(*fd)], EBADF);
            }
            FileAction::CloseRange(first, last) => {
                let (a, b) = (*first as u32, *last as u32);
                steps.op(Step::CloseFds, Op { a, b, ..Op::new(OpCode::CloseRange) });
            }
            FileAction::Dup2 { from, to } if from == to => {
                let args = [number(*from), Arg::Number(uapi::F_SETFD.into()), Arg::Number(0)];
                steps.call(Step::Dup, &from.to_string(), uapi::__NR_fcntl, &args);
            }
            FileAction::Dup2 { from, to } => {
                let args = [number(*from), number(*to), Arg::Number(0)];
                steps.call(Step::Dup, &format!("{from} to {to}"), uapi::__NR_dup3, &args);
            }
            FileAction::Open { to, path, flags, mode } => {
                steps.open(*to, path, *flags, *mode, IN_PLACE | not_procfs(command));
            }
            FileAction::Chdir(path) => {
                let a = steps.arena.text(path.to_bytes());
                steps.op(Step::Chdir, Op { a, ..Op::new(OpCode::Chdir) });
            }
            FileAction::Fchdir(fd) => {
                steps.call(Step::Chdir, &format!("to fd {fd}"), uapi::__NR_fchdir, &[number(*fd)]);
            }
            FileAction::Foreground(fd) => {
                steps.op(Step::Foreground, Op { a: *fd as u32, ..Op::new(OpCode::Foreground) });
            }
        }
    }
}
