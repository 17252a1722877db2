//! A plan's ops in words: for errors, and to show what a child is going to do.

use crate::plan::{Plan, PlannedStream, TERMINAL_SLOT};
use crate::route::Launcher;
use crate::step::Step;
use forkless_core::frame::EXEC_SLOT;
use forkless_core::plan::{Op, OpCode, Origin, Pair};

/// The step that an op makes.
pub(crate) fn step_of(op: &Op) -> Step {
    match op.code {
        OpCode::Table | OpCode::Taken => Step::Table,
        OpCode::Place => Step::PassFd,
        OpCode::CloseOthers | OpCode::CloseRange => Step::CloseFds,
        OpCode::SetSid => Step::SetSid,
        OpCode::SetPgid => Step::SetPgid,
        OpCode::Chdir | OpCode::EnterAgain => Step::Chdir,
        OpCode::Open => Step::Open,
        OpCode::Dup => Step::Dup,
        OpCode::SigDefault | OpCode::SigIgnore | OpCode::SigMask => Step::Signals,
        OpCode::Call => Step::of_code(op.b).unwrap_or(Step::Call),
        OpCode::ParentDeathSignal => Step::ParentDeathSignal,
        OpCode::Foreground => Step::Foreground,
        OpCode::AwaitGo => Step::IdMaps,
        OpCode::Seccomp => Step::Seccomp,
        OpCode::HandBack => Step::HandBack,
        OpCode::PreExec => Step::PreExec,
        OpCode::Exec | OpCode::ExecFd => Step::Exec,
    }
}

/// The object of an op. `detail`: the one that a failure was about, if the op has several.
pub(crate) fn object_of(plan: &Plan, op: &Op, detail: Option<i32>) -> Option<String> {
    match op.code {
        OpCode::Place => plan.pair(detail?).map(pair),
        OpCode::CloseRange => Some(format!("from {}", op.a)),
        OpCode::SetPgid => Some(format!("{}", op.a as i32)),
        OpCode::Chdir => Some(format!("{:?}", plan.text(op.a))),
        OpCode::EnterAgain if op.a == 1 => Some("to the working directory in the child's mount namespace".into()),
        OpCode::EnterAgain => Some("to the path of the working directory, after the mounts".into()),
        OpCode::Open => Some(format!("{:?} as fd {}", plan.text(op.a), op.set as i32)),
        OpCode::Dup => Some(format!("{} as {}", op.a, op.b)),
        OpCode::Call => Some(plan.text(op.c)).filter(|text| !text.is_empty()),
        OpCode::ParentDeathSignal => Some(format!("{}", op.a)),
        OpCode::Foreground => Some(format!("of the terminal at fd {}", op.a)),
        OpCode::HandBack => Some(format!("in variable {}", op.b)),
        OpCode::ExecFd => Some(format!("fd {}", op.a)),
        OpCode::PreExec => Some(format!("closure {}", i64::from(detail?) + 1)),
        _ => None,
    }
}

fn pair(pair: &Pair) -> String {
    match pair.origin() {
        Origin::Null => format!("/dev/null as {}", pair.target),
        Origin::Descriptor(source) => format!("{source} as {}", pair.target),
        Origin::Slot(_) => format!("{}", pair.target),
    }
}

/// The whole plan: one line for each step of the child.
pub(crate) fn steps(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(limits) = &plan.place.limits {
        let values = limits.files.iter().map(|(file, value)| format!(", {file} {value}")).collect::<String>();
        lines.push(format!("start in a new cgroup{values}"));
    }
    for index in 0..=plan.last_op() {
        let op = plan.op(index);
        let words = step_of(op).describe();
        match op.code {
            OpCode::Table if plan.fds.inherit_all => lines.push("inherit every fd that is not close-on-exec".into()),
            OpCode::Table if plan.launcher != Launcher::Clone => lines.push("inherit the descriptor table".into()),
            OpCode::Table => lines.push(format!("{words} with 0 to 2 in it")),
            OpCode::Place => lines.extend(passed(plan)),
            OpCode::CloseOthers if plan.launcher != Launcher::Clone => lines.push(words.into()),
            OpCode::Taken | OpCode::CloseOthers => {}
            OpCode::PreExec => lines.push(format!("call {} of pre_exec", closures(plan.closures.len()))),
            OpCode::SigDefault => lines.push(format!("{words} to their defaults: {}", signals(op.set))),
            OpCode::SigIgnore => lines.push(format!("{words} ignored: {}", signals(op.set))),
            OpCode::SigMask if op.a == 1 && op.set == 0 => lines.push(format!("{words} blocked: as in the caller")),
            OpCode::SigMask if op.a == 1 => {
                lines.push(format!("{words} blocked: as in the caller, and {}", signals(op.set)))
            }
            OpCode::SigMask => lines.push(format!("{words} blocked: {}", signals(op.set))),
            OpCode::AwaitGo => lines.push("wait until the caller has written the id maps".into()),
            OpCode::Exec => lines.push(format!("{words} {}", programs(plan, op))),
            OpCode::ExecFd if plan.inner.is_some() => {
                let program = plan.inner.as_ref().and_then(|inner| inner.path(0)).unwrap_or_default().to_string_lossy();
                lines.push(format!("{words} an init, which executes {program}"));
            }
            _ => {
                let line = object_of(plan, op, None).map_or(words.into(), |object| format!("{words} {object}"));
                // Calls that belong together, such as those that drop capabilities one by one, are one line.
                let belongs = index > 0 && plan.op(index - 1).skip > 0;
                if !belongs || lines.last() != Some(&line) {
                    lines.push(line);
                }
            }
        }
    }
    lines
}

fn closures(count: usize) -> String {
    if count == 1 { "the closure".into() } else { format!("the {count} closures") }
}

/// The descriptors that are not simply inherited.
fn passed(plan: &Plan) -> Vec<String> {
    let line = |one: &Pair| match one.origin() {
        Origin::Slot(n) if n < 3 => match plan.fds.stdio[n] {
            PlannedStream::Unset | PlannedStream::Inherit => None,
            PlannedStream::Null => Some(format!("open /dev/null as fd {n}")),
            _ => Some(format!("take a pipe or socket of the caller's as fd {n}")),
        },
        Origin::Null => Some(format!("open {}", pair(one))),
        Origin::Slot(TERMINAL_SLOT) if plan.fds.pty.is_some() => {
            Some(format!("take the pseudo-terminal as fd {}", one.target))
        }
        Origin::Slot(EXEC_SLOT) if plan.fds.exec_pipe => {
            Some(format!("take a pipe that exec closes as fd {}", one.target))
        }
        Origin::Slot(_) => Some(format!("take a socket of the caller's as fd {}", one.target)),
        Origin::Descriptor(_) => Some(format!("take the caller's fd {}", pair(one))),
    };
    (0..).map_while(|n| plan.pair(n)).filter_map(line).collect()
}

/// The candidate that is tried first, and the number of the others: PATH may have dozens of directories.
fn programs(plan: &Plan, exec: &Op) -> String {
    let all: Vec<_> = (0..exec.b as i32).filter_map(|n| plan.candidate(exec, n)).collect();
    match (all.as_slice(), plan.searched()) {
        ([first, others @ ..], Some(_)) if others.len() > 1 => {
            let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
            let alike = others.iter().all(|other| name(other) == name(first));
            format!("{first}, or {} others{}", others.len(), if alike { " along PATH" } else { "" })
        }
        _ => all.join(", or "),
    }
}

fn signals(set: u64) -> String {
    let numbers: Vec<_> = (0..64).filter(|n| set >> n & 1 == 1).map(|n| (n + 1).to_string()).collect();
    if numbers.is_empty() { "none".into() } else { numbers.join(", ") }
}
