//! Playing a case through a front end.

use super::ask::{command, report_file};
use super::check;
use super::check::Before;
use super::model::simple;
use super::parent::{self, Place};
use super::{BEFORE_5_16, BY_ZYGOTE, Case, GIVEN, Report, launcher, refusals};
use crate::observe::observe;
use crate::state::{State, without_limits};
use forkless::zygote::{Zygote, ZygoteOptions};
use forkless::{Child, Command, Prepared, Route};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::{fs, mem};

/// The ways to run a command.
pub const FRONT_ENDS: [&str; 8] = [
    "Command::spawn",
    "Command::launch",
    "Command::status",
    "Command::output",
    "Prepared::spawn",
    "Prepared::launch",
    "Prepared::status",
    "Prepared::output",
];

/// The ways to have a zygote run one: see [`BY_ZYGOTE`].
pub const ZYGOTE_FRONT_ENDS: [&str; 4] = ["Zygote::spawn", "Zygote::launch", "Zygote::status", "Zygote::output"];

/// The result.
#[derive(Debug, Default)]
pub struct Played {
    /// How the child ended; none if the launch failed.
    pub status: Option<ExitStatus>,
    /// Why it failed.
    pub error: Option<io::Error>,
    /// What was captured, where something was.
    pub stdout: Option<Vec<u8>>,
    /// What was captured, where something was.
    pub stderr: Option<Vec<u8>>,
    /// The data received from the sockets.
    pub socket: Option<Vec<u8>>,
    /// The child's pid, where the front end tells.
    pub pid: Option<i32>,
    /// The steps passed over, where the front end tells.
    pub skipped: Option<Vec<String>>,
    /// What was handed back, where the front end tells.
    pub handed_back: Option<Vec<String>>,
    /// The way taken, where the front end tells.
    pub route: Option<Route>,
}

/// Plays a case on a route in this process, which is not to be used for anything afterwards. Gives what was wrong.
pub fn play(case: &Case, route: &str, place: &Place) -> io::Result<Vec<String>> {
    // The parent's later state may need it.
    let first = |need: &String| need == "root" || need.starts_with("CAP_") && !case.parent.nobody;
    let (first, needs) = case.needs.iter().cloned().partition::<Vec<_>, _>(first);
    let mut unmet = parent::unmet(&first);
    if unmet.is_none() {
        parent::become_it(&case.parent, place)?;
        unmet = parent::unmet(&needs);
    }
    if let Some(why) = unmet {
        parent::complain(&format!("SKIPPED: {} because {why}\n", case.name));
        return Ok(Vec::new());
    }
    if route == BEFORE_5_16 {
        forkless::internal::assume_old_kernel();
    }
    if route.starts_with("later:") {
        let first =
            Command::new(&place.probe).stdin(forkless::Stdio::null()).spawn().and_then(|mut child| child.wait());
        assert!(first.is_ok_and(|status| status.success()), "the first launch");
    }
    parent::limit_it(&case.parent)?;
    if !route.starts_with(GIVEN) {
        parent::refuse(refusals(route))?;
    }
    let before = Before { state: State::now(), set: observe() };
    let mut wrong: Vec<(String, Vec<&str>)> = Vec::new();
    let front_ends = if route == BY_ZYGOTE { &ZYGOTE_FRONT_ENDS[..] } else { &FRONT_ENDS[..] };
    for &front_end in front_ends {
        let named = |asked: &Vec<String>| asked.iter().any(|name| front_end.ends_with(name.as_str()));
        if !case.front_ends.as_ref().is_none_or(named) {
            continue;
        }
        let mut complaints = play_one(case, route, front_end, place, &before)?;
        let mut changes = before.state.differences(&State::now());
        changes.extend(without_limits(|| simple::changes(&before.set)));
        complaints.extend(changes.into_iter().map(|change| format!("the parent has changed: {change}")));
        // The same error of several front ends is reported once.
        for what in complaints {
            match wrong.iter_mut().find(|(known, _)| *known == what) {
                Some((_, by)) if by.last() == Some(&front_end) => {}
                Some((_, by)) => by.push(front_end),
                None => wrong.push((what, vec![front_end])),
            }
        }
    }
    if case.error.is_some() && !case.no_good_after {
        match Command::new(&place.probe).status() {
            Ok(status) if status.success() => {}
            other => wrong.push((format!("a good launch afterwards: {other:?}"), Vec::new())),
        }
    }
    // A look-up of names loads libraries.
    let looks_up = case.ask.set.user.is_some() || case.ask.set.group.is_some();
    State::assert_mappings(&before.state, if looks_up { 64 } else { 24 });
    if case.ask.set.cgroup.is_some() {
        parent::remove_cgroup();
    }
    let by = |by: Vec<&str>| if by.len() == front_ends.len() { "all".into() } else { by.join(", ") };
    Ok(wrong.into_iter().map(|(what, front_ends)| format!("{what} ({})", by(front_ends))).collect())
}

/// Once for a `Command`, twice for a `Prepared`.
fn play_one(case: &Case, route: &str, front_end: &str, place: &Place, before: &Before) -> io::Result<Vec<String>> {
    let mut command = command(&case.ask, place)?;
    command.launcher(launcher(route));
    let prepared = match front_end.split_once("::") {
        Some(("Prepared" | "Zygote", _)) => match command.prepare() {
            Ok(prepared) => Some(prepared),
            Err(error) => return Ok(check::check(case, route, front_end, &failed(error), None, place, before)),
        },
        _ => None,
    };
    if prepared.is_some() {
        // A prepared command does not depend on the command any more.
        drop(mem::replace(&mut command, Command::new("no such program")));
    }
    let mut wrong = Vec::new();
    let zygote = match front_end.starts_with("Zygote").then(|| Zygote::start(&ZygoteOptions::new())).transpose() {
        Ok(zygote) => zygote,
        Err(error) => return Ok(check::check(case, route, front_end, &failed(error), None, place, before)),
    };
    for _ in 0..1 + prepared.is_some() as usize {
        let file = report_file(place);
        let _ = fs::remove_file(&file);
        let played = match (&zygote, &prepared) {
            (Some(zygote), Some(prepared)) => run_by(zygote, prepared, front_end, case),
            _ => run(&mut command, prepared.as_ref(), front_end, case),
        };
        let report = without_limits(|| fs::read_to_string(&file)).ok();
        let report = report.map(|text| toml::from_str::<Report>(&text).expect("a report"));
        wrong.extend(check::check(case, route, front_end, &played, report.as_ref(), place, before));
    }
    Ok(wrong)
}

fn failed(error: io::Error) -> Played {
    Played { error: Some(error), ..Played::default() }
}

fn run(command: &mut Command, prepared: Option<&Prepared>, front_end: &str, case: &Case) -> Played {
    let form = front_end.split_once("::").map_or(front_end, |(_, form)| form);
    let child = match form {
        "spawn" => prepared.map_or_else(|| command.spawn(), Prepared::spawn),
        "launch" => prepared.map_or_else(|| command.launch(), Prepared::launch),
        "status" => {
            return match prepared.map_or_else(|| command.status(), Prepared::status) {
                Ok(status) => Played { status: Some(status), ..Played::default() },
                Err(error) => failed(error),
            };
        }
        _ => {
            return match prepared.map_or_else(|| command.output(), Prepared::output) {
                Ok(output) => Played {
                    status: Some(output.status),
                    stdout: Some(output.stdout),
                    stderr: Some(output.stderr),
                    ..Played::default()
                },
                Err(error) => failed(error),
            };
        }
    };
    match child {
        Ok(child) => to_the_end(child, case),
        Err(error) => failed(error),
    }
}

fn run_by(zygote: &Zygote, prepared: &Prepared, front_end: &str, case: &Case) -> Played {
    let played = match front_end {
        "Zygote::spawn" => zygote.spawn(prepared).map(|child| to_the_end(child, case)),
        "Zygote::launch" => zygote.launch(prepared).map(|child| to_the_end(child, case)),
        "Zygote::status" => zygote.status(prepared).map(|status| Played { status: Some(status), ..Played::default() }),
        _ => zygote.output(prepared).map(|output| Played {
            status: Some(output.status),
            stdout: Some(output.stdout),
            stderr: Some(output.stderr),
            ..Played::default()
        }),
    };
    played.unwrap_or_else(failed)
}

/// Feeds a child, reads it, waits for it.
fn to_the_end(mut child: Child, case: &Case) -> Played {
    let mut played = Played { pid: Some(child.id() as i32), route: Some(child.route()), ..Played::default() };
    if let Err(error) = child.wait_exec() {
        // Every later question has the same answer.
        let again = child.wait().err().map(|error| error.to_string());
        assert_eq!(again, Some(error.to_string()), "wait after a failed wait_exec");
        played.error = Some(error);
        return played;
    }
    played.skipped = Some(child.skipped().iter().map(|error| format!("{:?}", error.step())).collect());
    let mut handed_back = Vec::new();
    while let Some(fd) = child.take_handed_back().expect("a free descriptor") {
        let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
        handed_back.push(link.to_string_lossy().into_owned());
    }
    played.handed_back = Some(handed_back);
    if let Some(mut stdin) = child.stdin.take() {
        // A child that does not read is no fault.
        let _ = stdin.write_all(case.ask.feed.as_bytes());
    }
    for (number, _) in case.ask.fd.iter().filter(|(_, source)| *source == "socketpair") {
        let mut socket = UnixStream::from(child.take_socket(number.parse().unwrap()).expect("a socket's other end"));
        let _ = socket.write_all(case.ask.feed.as_bytes());
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(played.socket.get_or_insert_default());
    }
    let (out, err) = (child.stdout.take(), child.stderr.take());
    if let Some(mut out) = out {
        let _ = out.read_to_end(played.stdout.get_or_insert_default());
    }
    if let Some(mut err) = err {
        let _ = err.read_to_end(played.stderr.get_or_insert_default());
    }
    match child.wait() {
        Ok(status) => {
            played.status = Some(status);
            assert_eq!(child.wait().ok(), Some(status), "a second wait");
            assert_eq!(child.try_wait().ok(), Some(Some(status)), "try_wait after wait");
        }
        Err(error) => played.error = Some(error),
    }
    played
}
