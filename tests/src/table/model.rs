//! Settings in any combination, and what must come of them: a refusal, a failure of a step, or a child like this.

use super::parent::{self, Place};
use super::settings::{self, Settings};
use super::{Report, ask, signal};
use crate::observe::{Observed, observe};
use crate::state::State;
use forkless::{Command, Error, Stdio};
use serde::{Deserialize, Serialize};
use std::{fs, io};

/// Settings in the order in which they are said.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct List {
    /// Returns before exec.
    pub launch: bool,
    /// One or a few settings each, none of them said twice.
    pub one: Vec<Settings>,
    /// What the prediction goes by in place of them: for controls.
    #[serde(default)]
    pub lie: Vec<Settings>,
}

const SETGID: u32 = 6;
const SETUID: u32 = 7;
const CHROOT: u32 = 18;
const ADMIN: u32 = 21;
const NICE: u32 = 23;
const RESOURCE: u32 = 24;

/// What must come of a list.
#[derive(Debug, Default)]
struct Prediction {
    /// The request itself is refused.
    refused: Vec<&'static str>,
    /// Steps that fail; the first in the order of the plan does.
    failing: Vec<&'static str>,
    /// What the child finds where it is not the parent's; `*`: not looked at, `!`: other than the parent's.
    child: Observed,
    umask: Option<u32>,
}

/// Plays a list in this process. Gives what was wrong.
pub fn play(list: &List, nobody: bool, place: &Place) -> io::Result<Vec<String>> {
    fs::create_dir(place.file("t"))?;
    if nobody {
        parent::become_nobody()?;
    }
    parent::reset_signals();
    let file = ask::report_file(place);
    let mut command = Command::new(&place.probe);
    command.arg("--report").arg(&file).stdin(Stdio::null());
    for one in &list.one {
        settings::apply(one, &mut command, place)?;
    }
    // The command itself holds descriptors.
    let (state, before) = (State::now(), observe());
    let answer = if list.launch { command.launch() } else { command.spawn() }.and_then(|mut child| child.wait());
    let mut wrong = state.differences(&State::now());
    let right = predict(if list.lie.is_empty() { &list.one } else { &list.lie }, &before);
    // For who counts what the lists come to.
    parent::complain(match &answer {
        Ok(_) => "ran",
        Err(_) if right.refused.is_empty() => "failed",
        Err(_) => "refused",
    });
    let report = fs::read_to_string(&file).ok().map(|text| toml::from_str::<Report>(&text).expect("a report"));
    match (answer, report) {
        (Err(error), None) => {
            let step = Error::of(&error).map(|error| format!("{:?}", error.step())).unwrap_or_default();
            let expected = if right.refused.is_empty() { &right.failing } else { &vec!["Check"] };
            if !expected.contains(&step.as_str()) {
                wrong.push(format!("{step} failed ({error}), predicted was {right:?}"));
            }
        }
        (Ok(status), Some(report)) if status.success() => {
            if !right.refused.is_empty() || !right.failing.is_empty() {
                wrong.push(format!("succeeded, predicted was {right:?}"));
            }
            compare(&mut wrong, &right, &report, &before, state.umask);
        }
        other => wrong.push(format!("{other:?}")),
    }
    Ok(wrong)
}

fn compare(wrong: &mut Vec<String>, right: &Prediction, report: &Report, before: &Observed, umask: u32) {
    for (name, parents) in before {
        let (found, right) = (&report.set[name], right.child.get(name).unwrap_or(parents));
        let fits = match right.as_str() {
            "*" => true,
            "!" => found != parents,
            _ => found == right,
        };
        if !fits {
            wrong.push(format!("{name} is {found:?}, should be {right:?}"));
        }
    }
    let found = u32::from_str_radix(&report.umask, 8).ok();
    if found != Some(right.umask.unwrap_or(umask)) {
        wrong.push(format!("the umask is {}", report.umask));
    }
}

/// What the settings say together.
fn predict(list: &[Settings], before: &Observed) -> Prediction {
    let mut found = Prediction::default();
    let has_bit = |bit: u32| {
        u64::from_str_radix(before["cap.effective"].trim_start_matches("0x"), 16).unwrap_or(0) >> bit & 1 == 1
    };
    let any = |is: &dyn Fn(&Settings) -> bool| list.iter().any(is);
    let makes = |kind: &str| any(&|one| one.unshare.iter().any(|made| made == kind));
    let (user_namespace, was_root) = (makes("User"), before["uid"] == "0 0 0");
    let best_effort = |step: &str| any(&|one| one.best_effort.iter().any(|known| known == step));
    // Over everything, and over what is in the child's own namespaces.
    let has = |bit| has_bit(bit) && !user_namespace;
    let has_inside = |bit| user_namespace || has_bit(bit);
    let leaves_root = any(&|one| one.uid.is_some_and(|uid| uid != 0));
    let no_new_privs = any(&|one| one.no_new_privs);
    let may_filter = no_new_privs || has_inside(ADMIN) && !leaves_root;
    let own = |name: &str, id: u32| before[name].split(' ').next() == Some(&id.to_string());
    let mut put = |name: &str, value: String| found.child.insert(name.to_owned(), value);
    let mut fail = |step: &'static str, is: bool| {
        if is && !best_effort(step) {
            found.failing.push(step);
        }
    };
    let mut refuse = |why: &'static str, is: bool| {
        if is {
            found.refused.push(why);
        }
    };
    // A user by name and one by number are the same setting: the last one said counts.
    let user = list.iter().rev().find(|one| one.user.is_some() || one.uid.is_some());
    refuse("user", user.is_some_and(|one| one.user.is_some()));
    if user_namespace {
        for name in ["uid", "gid"] {
            put(name, "0 0 0".into());
        }
        for name in ["uid_map", "gid_map", "setgroups", "groups", "cap.permitted", "cap.effective", "cap.bounding"] {
            put(name, "*".into());
        }
    }
    for one in list {
        for kind in &one.unshare {
            let names = [("Mount", "mnt"), ("Network", "net")];
            let name =
                names.iter().find(|(known, _)| known == kind).map_or(kind.to_lowercase(), |(_, name)| (*name).into());
            put(&format!("ns.{name}"), "!".into());
            if kind == "Cgroup" {
                put("cgroup", "*".into());
            }
            let step = if kind == "Time" { "Namespace" } else { "Clone" };
            fail(step, !has_inside(ADMIN));
        }
        for (name, [soft, hard]) in &one.rlimit {
            put(&format!("limit.{name}"), format!("{soft} {hard}"));
            let known = before[&format!("limit.{name}")].rsplit(' ').next().and_then(|hard| hard.parse::<i64>().ok());
            fail("Rlimit", soft > hard || known.is_some_and(|known| *hard > known) && !has(RESOURCE));
        }
        if let Some(nice) = one.nice {
            put("nice", if best_effort("Nice") { "*".into() } else { nice.to_string() });
            put("io_priority", "*".into());
            refuse("nice", !(-20..=19).contains(&nice));
            fail("Nice", nice < before["nice"].parse().unwrap_or(0) && !has(NICE));
        }
        if let Some((policy, priority)) = &one.scheduler {
            let number = ["Other", "Fifo", "RoundRobin", "Batch", "", "Idle"].iter().position(|known| known == policy);
            put("scheduler", format!("{} {priority}", number.expect("a policy")));
            put("io_priority", "*".into());
            fail("Scheduler", *priority > 0 && !has(NICE));
        }
        if let Some(cpus) = &one.affinity {
            put("affinity", cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
            refuse("affinity", cpus.is_empty());
            fail("Affinity", cpus.contains(&60000));
        }
        if let Some(slack) = one.timer_slack {
            put("timer_slack", slack.to_string());
        }
        if let Some(persona) = one.personality {
            put("personality", format!("{persona:#x}"));
        }
        if let Some(score) = one.oom_score_adj {
            put("oom_score_adj", score.to_string());
            refuse("oom_score_adj", !(-1000..=1000).contains(&score));
            fail("OomScore", score < 0 && !has(RESOURCE));
        }
        if let Some(uid) = one.uid {
            put("uid", format!("{uid} {uid} {uid}"));
            fail("SetUid", if user_namespace { uid != 0 } else { !has(SETUID) && !own("uid", uid) });
            if was_root && !any(&|one| one.groups.is_some()) {
                put("groups", String::new());
                fail("SetGroups", !has_inside(SETGID));
            }
            if was_root && uid != 0 {
                for name in ["cap.permitted", "cap.effective"] {
                    put(name, "0x0".into());
                }
            }
        }
        if let Some(gid) = one.gid {
            put("gid", format!("{gid} {gid} {gid}"));
            fail("SetGid", if user_namespace { gid != 0 } else { !has(SETGID) && !own("gid", gid) });
        }
        if let Some(groups) = &one.groups {
            put("groups", groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
            let unmapped = user_namespace && groups.iter().any(|&gid| gid != 0);
            fail("SetGroups", unmapped || !has_bit(SETGID));
        }
        if let Some(mask) = one.umask {
            found.umask = Some(mask);
            refuse("umask", mask > 0o777);
        }
        if one.no_new_privs {
            put("no_new_privs", "1".into());
        }
        if let Some(name) = &one.parent_death_signal {
            put("parent_death_signal", signal(name).to_string());
            refuse("parent_death_signal", !(1..=64).contains(&signal(name)));
        }
        if let Some(root) = &one.chroot {
            fail("Chroot", root != "/" || !has_inside(CHROOT));
        }
        if let Some(name) = &one.hostname {
            put("hostname", name.clone());
            refuse("hostname", !makes("Uts"));
        }
        refuse("mount", !one.mount.is_empty() && !makes("Mount"));
        fail("Landlock", one.landlock.is_some() && !may_filter);
        if one.seccomp.is_some() {
            fail("Seccomp", !may_filter);
            put("seccomp", "2".into());
            put("filters", (before["filters"].parse().unwrap_or(0) + 1).to_string());
        }
    }
    // The kernel gives a real-time thread none.
    if any(&|one| one.scheduler.as_ref().is_some_and(|(_, priority)| *priority > 0)) {
        put("timer_slack", "*".into());
    }
    // Nothing that the kernel says about itself comes after a clone that is refused.
    if found.failing.contains(&"Clone") {
        found.failing = vec!["Clone"];
    }
    found
}
