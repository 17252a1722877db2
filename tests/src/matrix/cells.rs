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
}

/// One cell: a launch under one refusal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// The launch.
    pub launch: Launch,
    /// The refusal, as the filters are written.
    pub refusal: String,
    /// Is the filter there from the first launch on? Else it comes after one.
    pub first: bool,
    /// The expected outcome.
    pub outcome: Outcome,
    /// Does a plain launch by the same launcher not make the call? Then it must work.
    pub is_good_after: bool,
    /// See [`Row::leaves`].
    pub leaves: Vec<String>,
}

impl Cell {
    /// In words.
    pub fn name(&self) -> String {
        let Launch { launcher, base, form, setup } = &self.launch;
        let when = if self.first { "" } else { ", after a first launch" };
        let base = if base.is_empty() { String::new() } else { format!(" ({base})") };
        format!("{} [{launcher}{base}, {form}, {setup}{when}]", self.refusal)
    }

    /// The filter's result for the call.
    pub fn answer(&self) -> &str {
        self.refusal.split(' ').nth(1).unwrap_or("")
    }
}

/// The answer of a filter that gives none: the call waits.
pub const HANG: &str = "HANG";

/// Launchers whose `launch` does not wait for the child's exec.
const GO_ON: [&str; 2] = ["clone", "fork"];

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
        for Traced { launch, calls, .. } in traced.iter().filter(|traced| row.is_for(&traced.launch.launcher)) {
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
        hanging(row, matrix, traced, whole, &mut cells);
    }
    cells
}

/// The cells of a call that hangs: in a launch that a child alone makes it in, and whose caller does not wait for the child.
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
            cells.push(Cell { launch, refusal, first: false, outcome, is_good_after: false, leaves: Vec::new() });
        }
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
    let usual = USUAL.iter().filter(|usual| row.errnos.iter().all(|errno| errno != *usual));
    let errnos = row.errnos.iter().map(String::as_str).chain(usual.copied());
    for answer in errnos.chain(kills.iter().copied()) {
        for first in [true, false] {
            let outcome = outcome(row, launch, answer, first, makes(launch, Who::Child));
            if matches!(outcome, Outcome::NotPlayed(_)) {
                continue;
            }
            let refusal = row.refusal(answer);
            cells.push(Cell { launch: launch.clone(), refusal, first, outcome, is_good_after, leaves: leaves.clone() });
        }
    }
}

fn outcome(row: &Row, launch: &Launch, answer: &str, first: bool, is_childs: bool) -> Outcome {
    let fits = |but: &&But| {
        is_in(&but.launchers, &launch.launcher)
            && is_in(&but.forms, &launch.form)
            && is_in(&but.answers, answer)
            && is_in(&but.setups, &launch.setup)
            && is_in(&but.bases, &launch.base)
            && but.child.is_none_or(|only| only == is_childs)
            && but.first.is_none_or(|only| only == first)
    };
    if let Some(but) = row.but.iter().find(fits) {
        return but.outcome.clone();
    }
    if KILLS.contains(&answer) && is_childs {
        row.killed.clone().unwrap_or(row.refused.clone())
    } else {
        row.refused.clone()
    }
}
