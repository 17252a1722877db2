//! When, where and how the program runs: named as nice(1), taskset(1), chrt(1), ionice(1) and setarch(1) name theirs.

use std::collections::BTreeSet;

use clap::Args;
use forkless::{Command, IoClass, Scheduler};

use crate::near::did_you_mean;

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct Scheduling {
    /// Add N to the nice value
    #[arg(long, visible_alias = "adjustment", value_name = "N", allow_negative_numbers = true)]
    pub(super) nice: Option<i32>,

    /// Run only on these CPUs, such as 0,2-3 or 0-6:2 (default: inherit them)
    #[arg(long, visible_alias = "cpus", value_name = "LIST", value_parser = cpu_list)]
    cpu_list: Option<Cpus>,

    /// Set the scheduling policy: other, batch, idle, fifo[:PRIORITY] or rr[:PRIORITY] (default of PRIORITY: 1)
    #[arg(long, value_name = "POLICY", value_parser = scheduler)]
    scheduler: Option<(Scheduler, u32)>,

    /// Set the I/O priority: idle, best-effort[:LEVEL] or realtime[:LEVEL], from 0 (highest) to 7 (default of LEVEL: 4)
    #[arg(long, value_name = "CLASS", value_parser = io_priority)]
    ionice: Option<(IoClass, u32)>,

    /// Set the execution domain and its flags: a number for personality(2)
    #[arg(long, value_name = "NUMBER", value_parser = super::super::parse::number32)]
    personality: Option<u32>,

    /// Do not place memory at random
    #[arg(long, visible_alias = "addr-no-randomize")]
    no_aslr: bool,
}

impl Scheduling {
    pub(crate) fn apply(&self, command: &mut Command) {
        if let Some(adjustment) = self.nice {
            // As nice(1): a sum beyond the range becomes the end of the range.
            let now = rustix::process::getpriority_process(None).unwrap_or(0);
            command.nice(now.saturating_add(adjustment).clamp(-20, 19));
        }
        if let Some(Cpus(cpus)) = &self.cpu_list {
            command.cpu_affinity(cpus.iter().copied());
        }
        if let Some((policy, priority)) = self.scheduler {
            command.scheduler(policy, priority);
        }
        if let Some((class, level)) = self.ionice {
            command.io_priority(class, level);
        }
        if self.no_aslr || self.personality.is_some() {
            let randomize = if self.no_aslr { libc::ADDR_NO_RANDOMIZE as u32 } else { 0 };
            command.personality(self.personality.unwrap_or_else(personality) | randomize);
        }
    }
}

/// The execution domain of forkless.
fn personality() -> u32 {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: with this value, personality(2) changes nothing and only returns the current one.
    unsafe { libc::personality(ASK) as u32 }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cpus(BTreeSet<usize>);

/// taskset's list: numbers, ranges, and ranges with a stride.
fn cpu_list(word: &str) -> Result<Cpus, String> {
    let wrong = || format!("{word:?} is not a list of CPUs, such as 0,2-3 or 0-6:2");
    let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n < 65536).ok_or_else(wrong);
    let mut cpus = BTreeSet::new();
    for part in word.split(',') {
        let (range, stride) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last, stride) = (number(first)?, number(last)?, number(stride)?);
        if first > last || stride == 0 {
            return Err(wrong());
        }
        cpus.extend((first..=last).step_by(stride));
    }
    Ok(Cpus(cpus))
}

/// A policy, and the priority where it has one.
fn scheduler(word: &str) -> Result<(Scheduler, u32), String> {
    let (name, priority) = match word.split_once(':') {
        Some((name, priority)) => (name, Some(priority)),
        None => (word, None),
    };
    let policy = match name {
        "other" => Scheduler::Other,
        "batch" => Scheduler::Batch,
        "idle" => Scheduler::Idle,
        "fifo" => Scheduler::Fifo,
        "rr" => Scheduler::RoundRobin,
        _ => {
            let near = did_you_mean(name, ["other", "batch", "idle", "fifo", "rr"]);
            return Err(format!("must be other, batch, idle, fifo[:PRIORITY] or rr[:PRIORITY]{near}"));
        }
    };
    match (policy, priority) {
        (Scheduler::Fifo | Scheduler::RoundRobin, None) => Ok((policy, 1)),
        (Scheduler::Fifo | Scheduler::RoundRobin, Some(text)) => {
            let priority = text.parse().ok().filter(|n| (1..=99).contains(n));
            Ok((policy, priority.ok_or("a real-time priority must be from 1 to 99")?))
        }
        (_, None) => Ok((policy, 0)),
        (_, Some(_)) => Err(format!("policy {name} takes no priority")),
    }
}

/// A class by ionice's name or number, and its level; 4 where none is given, as in ionice.
fn io_priority(word: &str) -> Result<(IoClass, u32), String> {
    let (name, level) = word.split_once(':').map_or((word, None), |(name, level)| (name, Some(level)));
    let class = match name {
        "realtime" | "1" => IoClass::Realtime,
        "best-effort" | "2" => IoClass::BestEffort,
        "idle" | "3" => IoClass::Idle,
        _ => {
            let near = did_you_mean(name, ["idle", "best-effort", "realtime"]);
            return Err(format!("must be idle, best-effort[:LEVEL] or realtime[:LEVEL]{near}"));
        }
    };
    match (class, level) {
        (IoClass::Idle, None) => Ok((class, 0)),
        (IoClass::Idle, Some(_)) => Err("class idle takes no level".to_owned()),
        (_, None) => Ok((class, 4)),
        (_, Some(text)) => {
            let level = text.parse().ok().filter(|n| *n <= 7);
            Ok((class, level.ok_or("a level must be from 0 (highest) to 7")?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_list_accepts_the_forms_of_taskset() {
        let list = |cpus: &[usize]| Ok(Cpus(cpus.iter().copied().collect()));
        assert_eq!(cpu_list("0,2-3"), list(&[0, 2, 3]));
        assert_eq!(cpu_list("0-6:2"), list(&[0, 2, 4, 6]));
        for word in ["", "a", "3-1", "1-", "-1", "0-4:0", "99999", "0,,1"] {
            assert!(cpu_list(word).is_err(), "{word}");
        }
    }

    #[test]
    fn scheduler_and_io_priority_accept_names_and_levels() {
        assert_eq!(scheduler("batch"), Ok((Scheduler::Batch, 0)));
        assert_eq!(scheduler("rr"), Ok((Scheduler::RoundRobin, 1)));
        assert_eq!(scheduler("fifo:99"), Ok((Scheduler::Fifo, 99)));
        for word in ["", "fifo:0", "fifo:100", "batch:1", "FIFO", "rr:"] {
            assert!(scheduler(word).is_err(), "{word}");
        }
        assert_eq!(io_priority("idle"), Ok((IoClass::Idle, 0)));
        assert_eq!(io_priority("best-effort:7"), Ok((IoClass::BestEffort, 7)));
        assert_eq!(io_priority("1"), Ok((IoClass::Realtime, 4)));
        for word in ["", "idle:1", "best-effort:8", "none", "4"] {
            assert!(io_priority(word).is_err(), "{word}");
        }
    }
}
