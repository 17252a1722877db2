//! Settings of one value: how a child shows that it has one, and what must come of it. Independent of the library's table, which it
//! checks.

use super::privileges::{NICE, RESOURCE};
use super::{Prediction, Settings, World};
use crate::observe::{Observed, UNKNOWN};
use std::fs;
use std::io::{BufRead, BufReader};

/// One setting.
struct Check {
    name: &'static str,
    /// As the kernel has it for the calling process.
    observe: fn() -> String,
    /// What the child has if that was asked for, and what is refused or fails.
    predict: fn(&World<'_>, &Settings, &mut Prediction),
    /// What may be asked for; the first ones are good.
    choices: &'static [&'static str],
}

const CHECKS: &[Check] = &[
    Check {
        name: "nice",
        // SAFETY: reads a number.
        observe: || (20 - unsafe { libc::syscall(libc::SYS_getpriority, 0, 0) }).to_string(),
        predict: |world, one, found| {
            let Some(nice) = one.nice else { return };
            found.put("nice", nice);
            found.put("io_priority", "*");
            found.refuse("nice", !(-20..=19).contains(&nice));
            found.fail("Nice", nice < world.before.set["nice"].parse().unwrap_or(0) && !world.outer.has(NICE));
        },
        choices: &["nice = 1", "nice = 19", "nice = 0", "nice = -1", "nice = 20"],
    },
    Check {
        name: "timer_slack",
        observe: || prctl(libc::PR_GET_TIMERSLACK),
        predict: |_, one, found| {
            if let Some(slack) = one.timer_slack {
                found.put("timer_slack", slack);
            }
        },
        choices: &["timer_slack = 1", "timer_slack = 77777"],
    },
    Check {
        name: "personality",
        // SAFETY: this value reads a number.
        observe: || format!("{:#x}", unsafe { libc::syscall(libc::SYS_personality, u32::MAX) }),
        predict: |_, one, found| {
            if let Some(persona) = one.personality {
                found.put("personality", format!("{persona:#x}"));
            }
        },
        choices: &["personality = 0x40000", "personality = 0"],
    },
    Check {
        name: "oom_score_adj",
        observe: || fs::read_to_string("/proc/self/oom_score_adj").map_or(UNKNOWN.into(), |text| text.trim().into()),
        predict: |world, one, found| {
            let Some(score) = one.oom_score_adj else { return };
            found.put("oom_score_adj", score);
            found.refuse("oom_score_adj", !(-1000..=1000).contains(&score));
            let is_filtered = world.has_any(|one| one.seccomp.is_some());
            let is_roots = world.hides_memory && is_filtered && !world.is_now("uid", 0);
            found.fail("OomScore", is_roots || score < 0 && !world.outer.has(RESOURCE));
        },
        choices: &["oom_score_adj = 1", "oom_score_adj = 1000", "oom_score_adj = -500", "oom_score_adj = 1001"],
    },
    Check {
        name: "memory_policy",
        // A mapping without a policy of its own shows the thread's; without NUMA there is no such file.
        observe: || {
            let mut line = String::new();
            let file = fs::File::open("/proc/thread-self/numa_maps");
            let _ = file.and_then(|file| BufReader::new(file).read_line(&mut line));
            line.split_whitespace().nth(1).unwrap_or(UNKNOWN).to_owned()
        },
        predict: |_, one, found| {
            let Some(policy) = &one.memory_policy else { return };
            let shown = [("membind", "bind"), ("preferred", "prefer")];
            found.put(
                "memory_policy",
                shown.iter().fold(policy.clone(), |text, (word, shown)| text.replace(word, shown)),
            );
        },
        choices: &["memory_policy = 'membind:0'", "memory_policy = 'preferred:0'", "memory_policy = 'local'"],
    },
    Check {
        name: "memory_deny_write_execute",
        observe: || prctl(PR_GET_MDWE),
        predict: |world, one, found| {
            if one.memory_deny_write_execute == Some(true) {
                found.put("memory_deny_write_execute", 1);
                found.refuse("memory_deny_write_execute", !world.forks);
            }
        },
        choices: &["memory_deny_write_execute = true"],
    },
];

const PR_GET_MDWE: i32 = 66;

/// An option that asks for a number.
fn prctl(option: i32) -> String {
    // SAFETY: reads a number.
    let answer = unsafe { libc::syscall(libc::SYS_prctl, option, 0, 0, 0, 0) };
    if answer < 0 { UNKNOWN.into() } else { answer.to_string() }
}

/// Of the calling process.
pub fn observe() -> Observed {
    CHECKS.iter().map(|check| (check.name.to_owned(), (check.observe)())).collect()
}

/// Is this the name of a setting, and if so, has this kernel got it?
pub fn is_there(name: &str) -> Option<bool> {
    let check = CHECKS.iter().find(|check| check.name == name)?;
    Some((check.observe)() != UNKNOWN)
}

/// What of it has changed in the calling process.
pub fn changes(before: &Observed) -> Vec<String> {
    let changed = observe().into_iter().filter(|(name, now)| before[name] != *now);
    changed.map(|(name, now)| format!("{name} was {}, is {now}", before[&name])).collect()
}

/// What may be asked for, as an `Ask` has it: a list for each setting that this kernel has got.
pub fn choices() -> impl Iterator<Item = &'static [&'static str]> {
    CHECKS.iter().filter(|check| (check.observe)() != UNKNOWN).map(|check| check.choices)
}

pub(super) fn predict(world: &World<'_>, one: &Settings, found: &mut Prediction) {
    CHECKS.iter().for_each(|check| (check.predict)(world, one, found));
}

#[cfg(test)]
mod tests {
    use super::CHECKS;
    use forkless::settings::TABLE;

    #[test]
    fn every_setting_of_the_table_is_checked() {
        let played: Vec<&str> = TABLE.iter().filter(|row| row.docs.is_some()).map(|row| row.name).collect();
        assert_eq!(CHECKS.iter().map(|check| check.name).collect::<Vec<_>>(), played);
    }
}
