//! Generates docs/refused.md from the matrix.

use super::{But, Matrix, Outcome, Row};
use std::fmt::Write;

/// The default launcher. The page leaves out the rows of the others.
const LAUNCHER: &str = "clone";

const HEAD: &str = "# Refused system calls

This page says what a launch does when a seccomp filter, or an old kernel, refuses one of its system calls. It has the
default, `Launcher::Clone`; [tests/matrix.toml](../tests/matrix.toml) has the rows of `Fork`, `PosixSpawn` and `Zygote` too.
`FORKLESS_PAGE=write cargo test -p forkless-tests --test matrix` writes it from `tests/matrix.toml`; do not edit it.

The test traces launches of each form and each setting, and fails if one makes a call that has no row. It plays each row under filters: with the
errors below and with EPERM, ENOSYS and EACCES, both from the first launch on and only after it; and with SECCOMP_RET_TRAP, KILL_THREAD and
KILL_PROCESS.

After each launch the caller's descriptors, signal mask, signal actions, dumpable flag, working directory, umask, ids and children must be as
before, and a plain launch that does not need the call must work. Exceptions are noted as *leaves*.

- **who**: the process that makes the call: the parent, before or after the clone, or the child.
- **refused**: the call fails with an error. *works*: how the launch continues. Otherwise the launch fails with an error of the named step and the
  call's errno, unless another errno is named.
- **killed**: the filter kills the child that makes the call. If a step is named, the launch fails with an error of that step that says so.
  A filter that kills the caller leaves no process to report to. With TRAP, the caller's handler for SIGSYS decides the result of the call.

Names of system calls: `dup3`; `close_range arg2=0` if the third argument is 0; `clone3 arg0&256` if it has this bit.
";

/// The whole page.
pub fn page(matrix: &Matrix) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n| call | who | what for | refused | killed |\n| --- | --- | --- | --- | --- |\n");
    for row in matrix.call.iter().filter(|row| row.is_for(LAUNCHER)) {
        page.push_str(&line(row, LAUNCHER));
    }
    hangs(&mut page, matrix);
    page
}

/// The section on calls that never return.
fn hangs(page: &mut String, matrix: &Matrix) {
    page.push_str(
        "
## Calls that hang

A system call of the child may never return, for example on a file system whose server is gone. With `Launcher::Clone`, `Launcher::Fork` and a `Zygote`,
`launch` returns all the same, a wait with a timeout ends, and the child can be killed. The test has each of the child's calls hang, by a filter
whose listener does not answer (SECCOMP_RET_USER_NOTIF). A call of a zygote's helper that hangs holds every form, until the helper is killed: then another
one makes the launch. `spawn`, `status` and `output` wait for the child's exec, so they wait as long as the call.
So does `launch` with these settings:

| setting | reason |
| --- | --- |
",
    );
    for setup in &matrix.setup {
        if let Some(why) = &setup.waits {
            let _ = writeln!(page, "| {} | {why} |", setup.name);
        }
    }
}

fn line(row: &Row, launcher: &str) -> String {
    let mut refused = vec![describe(&row.refused)];
    for but in row.but.iter().filter(|but| super::is_in(&but.launchers, launcher)) {
        match conditions(but) {
            // For this launcher it is never otherwise.
            conditions if conditions.is_empty() => refused = vec![format!("{} ({})", describe(&but.outcome), but.why)],
            conditions => refused.push(format!("{conditions}: {} ({})", describe(&but.outcome), but.why)),
        }
    }
    let refused = refused.join("; ");
    let killed = match (&row.killed, row.who.contains("child")) {
        (_, false) => String::new(),
        (Some(outcome), true) => describe(outcome),
        (None, true) => describe(&row.refused),
    };
    let leaves: Vec<&str> =
        row.leaves.iter().map(|what| if what == "fd" { "open descriptors" } else { what }).collect();
    let leaves = if leaves.is_empty() { String::new() } else { format!(" (leaves {})", leaves.join(", ")) };
    let who = row.who.replace(' ', ", ");
    format!("| `{}` | {who} | {} | {refused}{leaves} | {killed} |\n", row.call, row.what)
}

/// Where it is otherwise.
fn conditions(but: &But) -> String {
    let listed = |list: &Option<Vec<String>>, before: &str| {
        list.as_ref().map_or(String::new(), |list| {
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            format!("{before} {}", list.join(", "))
        })
    };
    let bases = but.bases.as_ref().map_or(String::new(), |bases| {
        let name = |base: &String| if base.is_empty() { "nothing else".to_owned() } else { format!("`{base}`") };
        let all: Vec<String> = bases.iter().map(name).collect();
        format!("if {} is refused too", all.join(" or "))
    });
    let first = match but.first {
        Some(true) => "in the first launch",
        Some(false) => "after a first launch",
        None => "",
    };
    let child = match but.child {
        Some(true) => "in a child",
        Some(false) => "in the parent",
        None => "",
    };
    let conditions = [
        listed(&but.answers, "on"),
        child.to_owned(),
        listed(&but.setups, "for"),
        listed(&but.forms, "by"),
        bases,
        first.to_owned(),
    ];
    let conditions: Vec<String> = conditions.into_iter().filter(|condition| !condition.is_empty()).collect();
    conditions.join(" ")
}

fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Works(how) => format!("works: {how}"),
        Outcome::Error(step) => step_words(step),
        Outcome::ErrorAs([step, errno]) => format!("{}: {errno}", step_words(step)),
        Outcome::Either([step, how]) => format!("works: {how}; or {}", step_words(step)),
        Outcome::OnceError(step) => format!("{}, once", step_words(step)),
        Outcome::Hangs => "the child hangs, and the caller can kill it".to_owned(),
        Outcome::Io(what) | Outcome::Status(what) | Outcome::NotPlayed(what) => what.clone(),
    }
}

/// A step in the words of its errors.
fn step_words(name: &str) -> String {
    let step = (0..256).filter_map(forkless::Step::of_code).find(|step| format!("{step:?}") == name);
    let step = step.unwrap_or_else(|| panic!("{name} is no step"));
    format!("error \"{}\"", step.describe())
}
