//! Compares the result of a case with the expectations.

use super::parent::{Place, cgroup_name, pty};
use super::play::Played;
use super::{Case, Failure, Find, GIVEN, Report, encode, errno, launcher, launchers, refusals, signal};
use crate::observe::{Observed, UNKNOWN};
use crate::process;
use crate::state::State;
use forkless::{
    Error, Route, Step,
    internal::{CloneCall, DescriptorTable, Passing},
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

/// The parent before a launch.
#[derive(Debug)]
pub struct Before {
    /// The state that a launch must not change.
    pub state: State,
    /// The attributes that a child inherits from it by default.
    pub set: Observed,
}

/// The errors of one run.
pub fn check(
    case: &Case,
    route: &str,
    front_end: &str,
    played: &Played,
    report: Option<&Report>,
    place: &Place,
    before: &Before,
) -> Vec<String> {
    let mut wrong = Vec::new();
    // What is refused later is found out on the way.
    let fixed = case.way.as_deref() != Some("any") && !route.starts_with("later:");
    if front_end.starts_with("Zygote") {
        let by_zygote = played.route.is_none_or(|route| matches!(route, Route::Zygote { .. }));
        same(&mut wrong, "launched by the zygote", by_zygote, true);
    } else if let Some(taken) = played.route.filter(|_| fixed) {
        match launchers::route_of(launcher(route), &case.ask) {
            Some(way) => same(&mut wrong, "the way", taken, way),
            None => check_way(&mut wrong, case, refusals(route), taken),
        }
    }
    // A request that is at fault may be refused for that as well.
    let refused = launchers::refused(launcher(route), &case.ask);
    let is_check = played.error.as_ref().and_then(Error::of).is_some_and(|error| error.step() == Step::Check);
    if !refused.is_empty() && (case.error.is_none() || is_check) {
        check_refusal(&mut wrong, case, &refused, played, place);
        return wrong;
    }
    match (&case.error, &played.error) {
        (Some(expected), Some(error)) => check_error(&mut wrong, expected, error, route, place),
        (Some(_), None) => wrong.push(format!("should have failed, ended with {:?}", played.status)),
        (None, Some(error)) => wrong.push(format!("failed: {error} ({error:?})")),
        (None, None) => {
            check_end(&mut wrong, &case.child, played, front_end, place);
            match report {
                Some(report) => check_report(&mut wrong, case, report, played, front_end, place, before),
                None if case.ask.silent => {}
                None => wrong.push("the child did not report".into()),
            }
        }
    }
    if played.error.is_some() && report.is_some() {
        wrong.push("the launch has failed, and the program was run".into());
    }
    for (file, text) in &case.child.files {
        let found = fs::read(place.file(file)).map(|bytes| encode(&bytes)).unwrap_or_else(|error| error.to_string());
        same(&mut wrong, &format!("file {file}"), &found, text);
    }
    wrong
}

fn same<T: PartialEq<U> + std::fmt::Debug, U: std::fmt::Debug>(
    wrong: &mut Vec<String>,
    what: &str,
    found: T,
    right: U,
) {
    if found != right {
        wrong.push(format!("{what} is {found:?}, should be {right:?}"));
    }
}

/// Is a setting that this launcher cannot make refused by name, or the request for what else is wrong with it?
fn check_refusal(wrong: &mut Vec<String>, case: &Case, refused: &[&str], played: &Played, place: &Place) {
    let Some(error) = played.error.as_ref().and_then(|error| Some((error, Error::of(error)?))) else {
        wrong.push(format!("one of {refused:?} should have been refused, came to {played:?}"));
        return;
    };
    same(wrong, "the step of the refusal", error.1.step(), Step::Check);
    let message = error.0.to_string();
    let is_named = refused.iter().any(|words| message.contains(words)) && message.contains("Launcher::");
    let as_expected = case.error.as_ref().is_some_and(|expected| {
        expected.step == "Check" && expected.text.iter().all(|part| message.contains(&place.text(part)))
    });
    if !is_named && !as_expected {
        wrong.push(format!("the refusal {message:?} names none of {refused:?} and no launcher that can"));
    }
}

/// Does the error name step, errno, kind, and the thing?
fn check_error(wrong: &mut Vec<String>, expected: &Failure, error: &std::io::Error, route: &str, place: &Place) {
    // What the host refuses anyway is not what the case is about.
    let refusals = if route.starts_with(GIVEN) { "" } else { refusals(route) };
    let launcher = launcher(route);
    let Some(ours) = Error::of(error) else {
        wrong.push(format!("an error without a step: {error:?}"));
        return;
    };
    let steps = launchers::steps(launcher, &expected.step);
    let step = format!("{:?}", ours.step());
    if !steps.contains(&step) {
        wrong.push(format!(
            "the step is {step:?}, should be {}",
            steps.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(" or ")
        ));
    }
    let is_the_same = step == expected.step;
    let refused = || match refusals.rsplit(',').next()?.split_whitespace().nth(1)? {
        "KILL" => None,
        name => Some(errno(name)),
    };
    let right = if expected.step == "Check" { None } else { expected.errno.as_deref().map(errno).or_else(refused) };
    // What is written to is not what `clone3` is given.
    if ours.step() != Step::ControlGroup {
        same(wrong, "the errno", ours.errno(), right);
    }
    same(wrong, "the io::Error's kind", error.kind(), ours.kind());
    if let Some(kind) = &expected.kind {
        same(wrong, "the kind", format!("{:?}", error.kind()), kind.as_str());
    }
    let message = error.to_string();
    // Another step has other words.
    for part in expected.text.iter().filter(|_| is_the_same) {
        let part = place.text(part);
        if !message.contains(&part) {
            wrong.push(format!("the message {message:?} does not contain {part:?}"));
        }
    }
    if let Some(expected) = expected.message.as_ref().filter(|_| is_the_same) {
        same(wrong, "the message", message, place.text(expected));
    }
}

fn check_end(wrong: &mut Vec<String>, child: &Find, played: &Played, front_end: &str, place: &Place) {
    let status = played.status.expect("no error, so a status");
    match child.signal {
        Some(signal) => same(wrong, "the ending signal", status.signal(), Some(signal)),
        None => same(wrong, "the exit code", status.code(), Some(child.exit)),
    }
    let captured = [("stdout", &played.stdout, &child.stdout), ("stderr", &played.stderr, &child.stderr)];
    for (name, found, right) in captured {
        if let Some(found) = found {
            same(wrong, name, encode(found), right.as_str());
        }
    }
    if let Some(found) = &played.socket {
        same(wrong, "what came through the socket", encode(found), child.socket.as_str());
    }
    if let Some(skipped) = &played.skipped {
        same(wrong, "what was passed over", skipped, &child.skipped);
    }
    if let Some(handed_back) = &played.handed_back {
        let right: Vec<String> = child.handed_back.iter().map(|target| place.text(target)).collect();
        same(wrong, "what was handed back", handed_back, &right);
    }
    if front_end.ends_with("output") {
        assert!(played.stdout.is_some());
    }
}

fn check_report(
    wrong: &mut Vec<String>,
    case: &Case,
    report: &Report,
    played: &Played,
    front_end: &str,
    place: &Place,
    before: &Before,
) {
    let child = &case.child;
    check_argv(wrong, case, report, place);
    check_env(wrong, case, report, place);
    check_fds(wrong, case, report, front_end, place, before);
    let cwd = child.cwd.as_ref().map_or_else(|| before.state.cwd.clone(), |cwd| place.file(cwd));
    same(wrong, "cwd", report.cwd.as_str(), encode(cwd.as_os_str().as_bytes()));
    let umask = child.set.get("umask").map_or(Some(before.state.umask), |mask| u32::from_str_radix(mask, 8).ok());
    same(wrong, "umask", u32::from_str_radix(&report.umask, 8).ok(), umask);
    let outside = child.in_pid_namespace || child.in_joined_pids;
    if child.in_pid_namespace {
        same(wrong, "pid and parent's pid", [report.pid, report.ppid], [1, 0]);
    } else if child.in_joined_pids {
        same(wrong, "being process 1, and the parent's pid,", (report.pid == 1, report.ppid), (false, 0));
    } else {
        same(wrong, "the parent's pid", report.ppid, std::process::id() as i32);
        if let Some(pid) = played.pid {
            same(wrong, "the pid", report.pid, pid);
        }
    }
    // Both were begun outside.
    let [group, session] = if outside { [0, 0] } else { before.state.groups };
    same(wrong, "the session", report.sid, if child.own_session { report.pid } else { session });
    let own_group = child.own_group || child.own_session;
    same(wrong, "the process group", report.pgid, if own_group { report.pid } else { group });
    check_set(wrong, child, &report.set, before);
    let masked = || (1..=64).filter(|n| before.state.mask >> (n - 1) & 1 == 1).collect();
    let mut blocked = child.blocked.as_deref().map_or_else(masked, numbers);
    blocked.retain(|signal| !report.caught.contains(signal));
    same(wrong, "blocked signals", &report.blocked, &blocked);
    let inherited = || before.state.actions.iter().zip(1..).filter(|(action, _)| action.handler == 1).map(|(_, n)| n);
    let ignored =
        child.ignored.as_deref().map_or_else(|| inherited().filter(|&n| n != libc::SIGPIPE).collect(), numbers);
    same(wrong, "ignored signals", &report.ignored, &ignored);
    same(wrong, "signals with a handler", report.caught.iter().filter(|signal| ![32, 33].contains(*signal)).count(), 0);
    // Whoever feeds the child is the handle.
    if matches!(front_end.rsplit("::").next(), Some("spawn" | "launch")) || child.read.as_deref() == Some("") {
        same(wrong, "what was read", &report.read, &child.read);
    }
}

/// Settings: as asked for, and else as in the parent.
fn check_set(wrong: &mut Vec<String>, child: &Find, found: &Observed, before: &Before) {
    for (name, parents) in &before.set {
        let found = found.get(name).map_or("missing", String::as_str);
        // Whoever begins a session or a group leaves the terminal.
        let leaves = child.own_session || child.own_group || child.in_pid_namespace || child.in_joined_pids;
        match child.set.get(name).map(String::as_str) {
            Some("any") => {}
            Some("other") if found == parents => wrong.push(format!("{name} is {found:?}, as in the parent")),
            Some("other") => {}
            // The hierarchy may be mounted from anywhere.
            Some("new") if found.ends_with(&format!("/{}", cgroup_name())) => {}
            Some(right) if right.starts_with("at ") => {
                let number = right[3..].parse().expect("at N");
                same(wrong, name, found, before.state.fds[&number].target.as_str());
            }
            Some(right) => same(wrong, name, found, right),
            None if parents == UNKNOWN || leaves && matches!(name.as_str(), "terminal" | "foreground") => {}
            None => same(wrong, name, found, parents.as_str()),
        }
    }
    for name in child.set.keys().filter(|name| *name != "umask" && !before.set.contains_key(*name)) {
        wrong.push(format!("{name} is nothing that is looked at"));
    }
}

fn numbers(names: &[String]) -> Vec<i32> {
    let mut numbers: Vec<i32> = names.iter().map(|name| signal(name)).collect();
    numbers.sort_unstable();
    numbers
}

fn check_argv(wrong: &mut Vec<String>, case: &Case, report: &Report, place: &Place) {
    if let Some(count) = case.child.argc {
        same(wrong, "argc", report.argv.len(), count);
        return;
    }
    let asked = || std::iter::once(case.ask.arg0.as_ref().unwrap_or(&case.ask.program)).chain(&case.ask.args).cloned();
    let right = case.child.argv.clone().unwrap_or_else(|| asked().collect());
    let right: Vec<String> = right.iter().map(|arg| encode(place.bytes(arg).as_bytes())).collect();
    same(wrong, "argv", &report.argv, &right);
}

fn check_env(wrong: &mut Vec<String>, case: &Case, report: &Report, place: &Place) {
    let (ask, child) = (&case.ask, &case.child);
    let mut found = report.env.clone();
    found.sort_unstable();
    let encoded = |entry: OsString| encode(entry.as_bytes());
    if let Some(exactly) = &child.env_exactly {
        let right: Vec<String> = exactly.iter().map(|entry| encoded(place.bytes(entry))).collect();
        same(wrong, "the environment", &found, &right);
    }
    if ask.env.is_empty() && ask.env_remove.is_empty() && !ask.env_clear {
        let mut right: Vec<String> = std::env::vars_os()
            .map(|(mut key, value)| {
                key.push("=");
                key.push(value);
                encoded(key)
            })
            .collect();
        right.sort_unstable();
        same(wrong, "the environment", &found, &right);
    }
    for (key, value) in &child.env {
        let entry = encoded(place.bytes(&format!("{key}={value}")));
        if !found.contains(&entry) {
            wrong.push(format!("the environment has no {entry}"));
        }
    }
    for key in &child.no_env {
        if found.iter().any(|entry| entry.split_once('=').is_some_and(|(found, _)| found == key)) {
            wrong.push(format!("the environment has {key}"));
        }
    }
}

fn check_fds(wrong: &mut Vec<String>, case: &Case, report: &Report, front_end: &str, place: &Place, before: &Before) {
    let captures = front_end.ends_with("output");
    let mut right: BTreeMap<String, String> = BTreeMap::new();
    for n in 0..3 {
        let unset = if n == 0 { "null".into() } else { "pipe".into() };
        let inherited = format!("parent {n}");
        let silent = captures && !case.ask.fd.contains_key(&n.to_string());
        right.insert(n.to_string(), if silent { unset } else { inherited });
    }
    right.extend(case.child.fd.clone());
    for number in report.fds.keys().filter(|number| !right.contains_key(*number)) {
        wrong.push(format!("the child has fd {number}: {}", report.fds[number]));
    }
    for (number, expected) in &right {
        let found = report.fds.get(number).map_or("closed", String::as_str);
        let expected = target(expected, place, before);
        let (bare, mode) = found.rsplit_once(' ').unwrap_or((found, ""));
        let fits = match expected.as_str() {
            "pipe" => bare.starts_with("pipe:[") && mode == if number == "0" { "r" } else { "w" },
            "socket" => bare.starts_with("socket:[") && mode == "rw",
            other => found == other || bare == other,
        };
        if !fits {
            wrong.push(format!("the child's fd {number} is {found}, should be {expected}"));
        }
    }
    for [one, other] in &case.child.same {
        let fd = |number: &i32| report.fds.get(&number.to_string());
        same(wrong, &format!("fd {one}, as against fd {other},"), fd(one), fd(other));
    }
}

/// What a descriptor is to be: `pipe`, `socket`, `terminal`, `null`, `closed`, `parent N` (what the parent has at N), `file NAME`;
/// the last with ` r`, ` w` or ` rw` behind it where that matters.
pub fn target(expected: &str, place: &Place, before: &Before) -> String {
    let (kind, rest) = expected.split_once(' ').unwrap_or((expected, ""));
    match kind {
        "null" => "/dev/null rw".into(),
        "parent" => {
            let number = rest.parse().expect("a descriptor's number");
            before.state.fds.get(&number).map_or_else(|| "closed".into(), |fd| encode(fd.target.as_bytes()))
        }
        "file" => encode(place.file(rest).as_os_str().as_bytes()),
        "pipe" | "socket" | "closed" => expected.into(),
        "terminal" => format!("{} rw", pty().path().expect("a name").display()),
        _ => panic!("{expected} is nothing that a descriptor can be"),
    }
}

/// Is the way taken the one that the filter leaves?
fn check_way(wrong: &mut Vec<String>, case: &Case, refusals: &str, taken: Route) {
    let refused = |call: &str| refusals.split(',').any(|refusal| refusal.split_whitespace().next() == Some(call));
    let Route::Clone { call, table: taken, .. } = taken else {
        return wrong.push(format!("not cloned, but {taken}"));
    };
    same(wrong, "the call", call, if refused("clone3") { CloneCall::Clone } else { CloneCall::Clone3 });
    let sources = || case.ask.fd.iter().map(|(number, source)| (number.parse::<i32>().unwrap(), source.as_str()));
    let named = sources().any(|(number, source)| match source.split_once(' ').unwrap_or((source, "")) {
        ("inherit", _) => number > 2,
        ("fd", source) => source.parse::<i32>().is_ok_and(|source| source > 2),
        ("file" | "socketpair", _) => true,
        _ => false,
    });
    let set = &case.ask.set;
    let attaches = set.mount.iter().any(|mount| mount.starts_with("attach_"));
    let named =
        named || attaches || set.pty || set.program_fd.is_some() || set.landlock.is_some() || !set.hand_back.is_empty();
    let pipes = sources().any(|(_, source)| source == "piped");
    let no_getfd = refused("pidfd_getfd") || refused("pidfd_open");
    let is_hidden = process::is_hidden_from_children() || set.seccomp.is_some() && !process::is_kernel_at_least(5, 16);
    let (table, passing) = if case.ask.inherit_all {
        ("CopiedOnRequest", Passing::None)
    } else if refused("close_range") {
        ("Copied", Passing::None)
    } else if named && no_getfd || (named || pipes) && is_hidden {
        ("PrivateBelow", Passing::None)
    } else {
        let passing = match (named || pipes, no_getfd) {
            (false, _) => Passing::None,
            (true, true) => Passing::Proc,
            (true, false) => Passing::PidfdGetfd,
        };
        ("Private", passing)
    };
    let (name, passed) = match taken {
        DescriptorTable::PrivateBelow(_) => ("PrivateBelow".into(), Passing::None),
        DescriptorTable::Private(passed) => ("Private".into(), passed),
        other => (format!("{other:?}"), Passing::None),
    };
    same(wrong, "the descriptor table", name.as_str(), table);
    same(wrong, "the passing", passed, passing);
}
