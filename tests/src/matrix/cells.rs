//! Converts traces to cells.

use super::{But, Matrix, Outcome, Row, is_in};
use crate::trace::{Call, Who};
use serde::{Deserialize, Serialize};

/// A launch to trace and play.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// See [`super::LAUNCHERS`].
    pub launcher: String,
    /// See [`super::BASES`].
    pub base: String,
    /// See [`super::FORMS`].
    pub form: String,
    /// A setup's name.
    pub setup: String,
}

/// The calls of a launch.
#[derive(Debug, Clone)]
pub struct Traced {
    /// Which one.
    pub launch: Launch,
    /// Its calls, the first launch of a process and the next one together.
    pub calls: Vec<Call>,
    /// Those of the next one.
    pub next: Vec<Call>,
    /// Those of the start of a zygote.
    pub start: Vec<Call>,
}

/// One cell: a launch under one refusal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// The launch.
    pub launch: Launch,
    /// The refusal, as the filters are written.
    pub refusal: String,
    /// The process whose calls alone are refused, by a [supervisor](crate::supervise). None: a filter refuses those of all.
    pub only: Option<String>,
    /// Is the filter there from the first launch on? Else it comes after one.
    pub first: bool,
    /// The expected outcome.
    pub outcome: Outcome,
    /// Does a plain launch by the same launcher not make the call? Then it must work.
    pub is_good_after: bool,
    /// Must a launch have made the call? Some are made only where one process waits for another.
    pub is_made: bool,
    /// See [`Row::leaves`].
    pub leaves: Vec<String>,
}

impl Cell {
    /// In words.
    pub fn name(&self) -> String {
        let Launch { launcher, base, form, setup } = &self.launch;
        let when = if self.first { "" } else { ", after a first launch" };
        let base = if base.is_empty() { String::new() } else { format!(" ({base})") };
        let only = self.only.as_ref().map_or(String::new(), |only| format!(" in the {only}"));
        format!("{}{only} [{launcher}{base}, {form}, {setup}{when}]", self.refusal)
    }

    /// The call's name.
    pub fn call(&self) -> &str {
        self.refusal.split(' ').next().unwrap_or("")
    }

    /// Which of the calls of that name are refused.
    pub fn condition(&self) -> &str {
        self.refusal.split(' ').nth(2).unwrap_or("")
    }

    /// The filter's result for the call.
    pub fn reply_to_call(&self) -> &str {
        self.refusal.split(' ').nth(1).unwrap_or("")
    }
}

/// The answer of a filter that gives none: the call waits.
pub const HANG: &str = "HANG";

/// Launchers whose `launch` does not wait for the child's exec.
const GO_ON: [&str; 3] = ["clone", "fork", "zygote"];

/// The launcher whose processes have filters of their own.
pub const ZYGOTE: &str = "zygote";

/// The results of filters that are no errno.
pub const KILLS: [&str; 3] = ["TRAP", "KILL_THREAD", "KILL"];

/// The errnos that filters give.
const USUAL: [&str; 3] = ["EPERM", "ENOSYS", "EACCES"];

/// Calls that no row is about, one line each.
pub fn without_row(matrix: &Matrix, traced: &[Traced]) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    for Traced { launch, calls, .. } in traced {
        for call in calls {
            let rows = || matrix.call.iter().filter(|row| row.is_for(&launch.launcher) && row.is_it(call));
            if !rows().any(|row| row.is_by(call.who)) {
                let who = super::word(call.who);
                let name = crate::table::name_of(call.number);
                let args: Vec<String> = call.args.iter().map(|arg| format!("{:#x}", arg)).collect();
                let line = format!("no row: {who} {name} by {}: {}", launch.launcher, args.join(" "));
                if !missing.iter().any(|known| known.split(": ").take(2).eq(line.split(": ").take(2))) {
                    missing.push(format!("{line} ({}, {}, {})", launch.form, launch.setup, launch.base));
                }
            }
        }
    }
    missing
}

/// Rows that are about no call, one line each.
pub fn without_call(matrix: &Matrix, traced: &[Traced]) -> Vec<String> {
    let mut missing = Vec::new();
    for row in &matrix.call {
        for who in [Who::Parent, Who::Helper, Who::Child].into_iter().filter(|who| row.is_by(*who)) {
            let is_made = traced.iter().any(|traced| {
                row.untraced
                    || row.rare
                    || row.is_for(&traced.launch.launcher)
                        && traced.calls.iter().any(|call| call.who == who && row.is_it(call))
            });
            if !is_made {
                missing.push(format!("no {} makes the call of the row {}", super::word(who), row.call));
            }
        }
    }
    missing
}

/// The setups that stand for all in every form.
const PLAIN: [&str; 3] = ["nothing", "pipes", "a file passed"];

/// The cells. Not `whole`: each row, launcher, form and answer once, by the first setup that has the call made, and by another
/// form than `spawn` only where that is a plain one; what only a base has made comes with that base.
pub fn cells(matrix: &Matrix, traced: &[Traced], whole: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for row in &matrix.call {
        let mut seen = Vec::new();
        let others = |traced: &&Traced| row.is_for(&traced.launch.launcher) && traced.launch.launcher != ZYGOTE;
        for Traced { launch, calls, .. } in traced.iter().filter(others) {
            let mut who: Vec<Who> = calls.iter().filter(|call| row.is_it(call)).map(|call| call.who).collect();
            if row.untraced {
                who.push(Who::Parent);
            }
            if who.is_empty() {
                continue;
            }
            who.sort_unstable();
            who.dedup();
            let key = (launch.launcher.clone(), launch.form.clone(), who);
            let is_plain = PLAIN.contains(&launch.setup.as_str());
            if !whole && (seen.contains(&key) || !is_plain && launch.form != "spawn") {
                continue;
            }
            seen.push(key);
            add(row, launch, traced, &mut cells);
        }
        by_zygote(row, traced, whole, &mut cells);
        hanging(row, matrix, traced, whole, &mut cells);
    }
    cells
}

/// The cells of a launch by a zygote: each process that makes the call has its own. A filter refuses what only the child calls,
/// as it would in a sandbox. Otherwise a supervisor refuses it to one process.
fn by_zygote(row: &Row, traced: &[Traced], whole: bool, cells: &mut Vec<Cell>) {
    let fits = |traced: &&Traced| traced.launch.launcher == ZYGOTE && row.is_for(ZYGOTE);
    let mut seen = Vec::new();
    for Traced { launch, calls, start, next } in traced.iter().filter(fits) {
        let makes = |who: Who| calls.iter().any(|call| call.who == who && row.is_it(call));
        let is_only_childs =
            ![Who::Parent, Who::Helper].into_iter().any(makes) && !start.iter().any(|call| row.is_it(call));
        for who in [Who::Parent, Who::Helper, Who::Child].into_iter().filter(|who| row.is_by(*who) && makes(*who)) {
            let key = (launch.form.clone(), who);
            let is_plain = PLAIN.contains(&launch.setup.as_str());
            if !whole && (seen.contains(&key) || !is_plain && launch.form != "spawn") {
                continue;
            }
            seen.push(key);
            let kills = match who {
                Who::Parent => &[][..],
                Who::Child if is_only_childs => &KILLS[..],
                Who::Child | Who::Helper => &KILLS[2..],
            };
            for answer in row.answers().chain(kills.iter().copied()) {
                let (refusal, leaves) = (row.refusal(answer), [row.leaves.clone(), vec!["errno".into()]].concat());
                let only = (!is_only_childs).then(|| super::word(who).to_owned());
                for first in [true, false] {
                    let outcome = outcome(row, launch, answer, first, who);
                    if matches!(outcome, Outcome::NotPlayed(_)) {
                        continue;
                    }
                    let (launch, refusal, only, leaves) =
                        (launch.clone(), refusal.clone(), only.clone(), leaves.clone());
                    let again = || next.iter().any(|call| call.who == who && row.is_it(call));
                    // A helper may end the first launch after the caller has begun the next.
                    let is_made = !row.rare && (first || who != Who::Helper && again());
                    cells.push(Cell { launch, refusal, only, first, outcome, is_good_after: false, is_made, leaves });
                }
            }
        }
    }
}

/// The cells of a call that hangs: in a launch that a child alone makes it in, and whose caller does not wait for the child; and
/// in a zygote's helper.
fn hanging(row: &Row, matrix: &Matrix, traced: &[Traced], whole: bool, cells: &mut Vec<Cell>) {
    for launcher in GO_ON.into_iter().filter(|launcher| row.is_for(launcher) && !row.untraced) {
        let fits = |traced: &&Traced| {
            let Launch { launcher: its, form, setup, .. } = &traced.launch;
            its == launcher && form == "launch" && matrix.setup(setup).waits.is_none()
        };
        let by = |traced: &Traced, who: Who| traced.next.iter().any(|call| call.who == who && row.is_it(call));
        let all = traced.iter().filter(fits).filter(|traced| by(traced, Who::Child) && !by(traced, Who::Parent));
        for Traced { launch, .. } in all.take(if whole { usize::MAX } else { 1 }) {
            let (launch, refusal, outcome) = (launch.clone(), row.refusal(HANG), Outcome::Hangs);
            let only = (launcher == ZYGOTE).then(|| "child".to_owned());
            cells.push(Cell {
                launch,
                refusal,
                only,
                first: false,
                outcome,
                is_good_after: false,
                is_made: false,
                leaves: Vec::new(),
            });
        }
    }
    let helpers = |traced: &&Traced| {
        let is_call = |call: &Call| call.who == Who::Helper && row.is_it(call);
        traced.launch.launcher == ZYGOTE
            && row.is_for(ZYGOTE)
            && row.is_by(Who::Helper)
            && traced.next.iter().any(is_call)
    };
    for Traced { launch, .. } in traced.iter().filter(helpers).take(if whole { usize::MAX } else { 1 }) {
        let (launch, refusal, only) = (launch.clone(), row.refusal(HANG), Some("helper".to_owned()));
        let outcome = Outcome::Works("another helper makes the launch when the one that hangs has been killed".into());
        let (is_made, leaves) = (!row.rare, vec!["errno".into()]);
        cells.push(Cell { launch, refusal, only, first: true, outcome, is_good_after: false, is_made, leaves });
    }
}

fn add(row: &Row, launch: &Launch, traced: &[Traced], cells: &mut Vec<Cell>) {
    let makes = |launch: &Launch, who: Who| {
        let traced = traced.iter().find(|traced| traced.launch == *launch);
        let is_seen = traced.is_some_and(|traced| traced.calls.iter().any(|call| call.who == who && row.is_it(call)));
        is_seen || row.untraced && who == Who::Parent
    };
    let plain = Launch { setup: "nothing".into(), form: "spawn".into(), ..launch.clone() };
    // The program itself ends by exit_group.
    let is_good_after =
        row.name() != "exit_group" && ![Who::Parent, Who::Helper, Who::Child].into_iter().any(|who| makes(&plain, who));
    let mut leaves = row.leaves.clone();
    if launch.launcher != "clone" {
        leaves.push("errno".into());
    }
    // A filter that kills the parent leaves nothing to check; one that traps needs a handler.
    let kills = if makes(launch, Who::Parent) { &KILLS[..1] } else { &KILLS[..] };
    let who = if makes(launch, Who::Child) { Who::Child } else { Who::Parent };
    for answer in row.answers().chain(kills.iter().copied()) {
        for first in [true, false] {
            let outcome = outcome(row, launch, answer, first, who);
            if matches!(outcome, Outcome::NotPlayed(_)) {
                continue;
            }
            let (launch, refusal, only, leaves) = (launch.clone(), row.refusal(answer), None, leaves.clone());
            cells.push(Cell { launch, refusal, only, first, outcome, is_good_after, is_made: false, leaves });
        }
    }
}

impl Row {
    /// The errnos to try.
    fn answers(&self) -> impl Iterator<Item = &str> {
        let usual = USUAL.into_iter().filter(|usual| self.errnos.iter().all(|errno| errno != usual));
        self.errnos.iter().map(String::as_str).chain(usual)
    }
}

fn outcome(row: &Row, launch: &Launch, answer: &str, first: bool, who: Who) -> Outcome {
    let fits = |but: &&But| {
        is_in(&but.launchers, &launch.launcher)
            && is_in(&but.forms, &launch.form)
            && is_in(&but.answers, answer)
            && is_in(&but.setups, &launch.setup)
            && is_in(&but.bases, &launch.base)
            && but.child.is_none_or(|only| only == (who == Who::Child))
            && but.first.is_none_or(|only| only == first)
    };
    if let Some(but) = row.but.iter().find(fits) {
        return but.outcome.clone();
    }
    match who {
        Who::Child if KILLS.contains(&answer) => row.killed.clone().unwrap_or(row.refused.clone()),
        Who::Helper if KILLS.contains(&answer) => Outcome::Works("another helper".into()),
        _ => row.refused.clone(),
    }
}
