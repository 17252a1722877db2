//! The control group: named as systemd-run(1)'s properties name theirs.

use std::{
    fmt::Write,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use forkless::{Cgroup, Command};

use super::{super::failure::Failure, limits::amount};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Control group (version 2; a limit makes a new one; suffixes K, M, G, T)")]
pub(crate) struct ControlGroup {
    /// Be born in the control group of this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = LIMITS)]
    cgroup: Option<PathBuf>,

    /// Be born in a new control group, in that of the directory PARENT or in ours; whoever is left in it when the
    /// program has ended is killed
    #[arg(long, value_name = "PARENT", num_args = 0..=1, require_equals = true)]
    new_cgroup: Option<Option<PathBuf>>,

    /// The most memory, in bytes; where none can be freed, the kernel kills
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    memory_max: Option<u64>,

    /// Memory above which everything in the group is slowed down, in bytes
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    memory_high: Option<u64>,

    /// The most memory that may be swapped out, in bytes
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    memory_swap_max: Option<u64>,

    /// The most processes and threads
    #[arg(long, value_name = "N", value_parser = amount)]
    tasks_max: Option<u64>,

    /// The most processor time, such as 150% for one and a half processors
    #[arg(long, value_name = "PERCENT", value_parser = quota)]
    cpu_quota: Option<u64>,

    /// Share of processor time where others want it too: 1 to 10000, 100 is usual
    #[arg(long, value_name = "N", value_parser = weight())]
    cpu_weight: Option<u32>,

    /// Share of the disks where others want them too: 1 to 10000, 100 is usual
    #[arg(long, value_name = "N", value_parser = weight())]
    io_weight: Option<u32>,
}

/// What makes a new group, and so excludes one that is there.
const LIMITS: [&str; 8] =
    ["new_cgroup", "memory_max", "memory_high", "memory_swap_max", "tasks_max", "cpu_quota", "cpu_weight", "io_weight"];

/// Microseconds of each `cpu.max` period.
const PERIOD: u64 = 100_000;

/// How long killed processes may take to go: those that wait for a disk take their time.
const PATIENCE: Duration = Duration::from_secs(10);

fn weight() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=10_000)
}

/// A limit that was asked for, and what is written to which file for it.
struct Limit {
    flag: &'static str,
    file: &'static str,
    value: String,
}

impl ControlGroup {
    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        if let Some(directory) = &self.cgroup {
            command.cgroup(super::super::failure::open("--cgroup", directory)?);
        }
        Ok(())
    }

    /// Makes the group, if there is to be a new one.
    pub(crate) fn make(&self) -> Result<Option<OwnGroup>, Failure> {
        let limits = self.limits();
        if self.new_cgroup.is_none() && limits.is_empty() {
            return Ok(None);
        }
        let failed = |error: &dyn std::fmt::Display| {
            let flags = limits.iter().map(|limit| limit.flag).collect::<Vec<_>>().join(", ");
            Failure::before(format_args!("{}: {error}", if flags.is_empty() { "--new-cgroup" } else { &flags }))
        };
        let mut controllers: Vec<&str> = limits.iter().filter_map(|limit| limit.file.split('.').next()).collect();
        controllers.dedup();
        let parent = match self.new_cgroup.iter().flatten().next() {
            Some(parent) => {
                Cgroup::hand_down(parent, &controllers).map_err(|error| failed(&error))?;
                parent.clone()
            }
            None => {
                let own = Cgroup::own().map_err(|error| failed(&error))?;
                let advised = |error| failed(&format_args!("{error}{}", advice(&own, &controllers)));
                Cgroup::hand_down(&own, &controllers).map_err(advised)?;
                own
            }
        };
        // From here on, whatever fails, the group is removed.
        let group = OwnGroup(Some(create(&parent).map_err(|error| failed(&error))?));
        for Limit { flag, file, value } in &limits {
            let set = group.get().map_or(Ok(()), |group| group.set(file, value).map(drop));
            set.map_err(|error| Failure::before(format_args!("{flag}: {error}")))?;
        }
        Ok(Some(group))
    }

    fn limits(&self) -> Vec<Limit> {
        // As the library's: the kernel's word for no limit.
        let size = |number: u64| if number == u64::MAX { "max".to_owned() } else { number.to_string() };
        let limits = [
            ("--memory-max", "memory.max", self.memory_max.map(size)),
            ("--memory-high", "memory.high", self.memory_high.map(size)),
            ("--memory-swap-max", "memory.swap.max", self.memory_swap_max.map(size)),
            ("--tasks-max", "pids.max", self.tasks_max.map(size)),
            ("--cpu-quota", "cpu.max", self.cpu_quota.map(|quota| format!("{quota} {PERIOD}"))),
            ("--cpu-weight", "cpu.weight", self.cpu_weight.map(|weight| weight.to_string())),
            ("--io-weight", "io.weight", self.io_weight.map(|weight| format!("default {weight}"))),
        ];
        limits.into_iter().filter_map(|(flag, file, value)| Some(Limit { flag, file, value: value? })).collect()
    }

    /// What the clone does about it, for `--explain`.
    pub(crate) fn words(&self) -> String {
        let limits = self.limits();
        let mut words = String::new();
        if let Some(directory) = &self.cgroup {
            words = format!("; in the control group {directory:?}");
        } else if self.new_cgroup.is_some() || !limits.is_empty() {
            words = match self.new_cgroup.iter().flatten().next() {
                Some(parent) => format!("; in a new control group in {parent:?}"),
                None => "; in a new control group in ours".to_owned(),
            };
            for (number, Limit { file, value, .. }) in limits.iter().enumerate() {
                let _ = write!(words, "{} {file} {value}", if number == 0 { " with" } else { "," });
            }
        }
        words
    }
}

/// A group of this run's own. Dropping it kills who is in it and removes it.
#[derive(Debug)]
pub(crate) struct OwnGroup(Option<Cgroup>);

impl OwnGroup {
    fn get(&self) -> Option<&Cgroup> {
        self.0.as_ref()
    }

    pub(crate) fn join(&self, command: &mut Command) -> Result<(), Failure> {
        if let Some(group) = self.get() {
            let failed = |error| Failure::before(format_args!("--new-cgroup: {error}"));
            command.cgroup(group.directory().map_err(failed)?);
        }
        Ok(())
    }

    /// What is to be said of it in any case: that memory ran out, which else looks like a kill by anybody.
    pub(crate) fn trouble(&self) -> Option<String> {
        let group = self.get()?;
        let killed = group.oom_kills().ok().filter(|killed| *killed > 0)?;
        let who = if killed == 1 { "a process".to_owned() } else { format!("{killed} processes") };
        let limit = match group.get("memory.max").ok().and_then(|text| text.parse::<u64>().ok()) {
            Some(bytes) => format!("it may use {} KiB", bytes >> 10),
            None => "it has no limit of its own".to_owned(),
        };
        Some(format!("memory ran out, and the kernel killed {who} of the control group ({limit})"))
    }

    /// Lines for the block of what was used, as far as the kernel counts it.
    pub(crate) fn usage(&self) -> String {
        let mut lines = String::new();
        let Some(group) = self.get() else { return lines };
        if let Ok(bytes) = group.memory_peak() {
            let _ = writeln!(lines, "  group memory  {} KiB at most", bytes >> 10);
        }
        if let Ok(count) = group.pids_peak() {
            let _ = writeln!(lines, "  group tasks   {count} at most");
        }
        if let Ok(time) = group.cpu_time() {
            let _ = writeln!(lines, "  group cpu     {:.6} s", time.as_secs_f64());
        }
        lines
    }

    /// Kills who is left in it, and removes it.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.clear()
    }

    fn clear(&mut self) -> io::Result<()> {
        let Some(group) = self.0.take() else { return Ok(()) };
        group.kill()?;
        group.wait_empty(PATIENCE)?;
        group.remove()
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        let _ = self.clear();
    }
}

/// A group of a name that is not taken: that of a forkless which was killed, or is in another process-id namespace, is
/// left alone.
fn create(parent: &Path) -> io::Result<Cgroup> {
    let id = std::process::id();
    let mut tries = 0;
    loop {
        let name = if tries == 0 { format!("forkless-{id}") } else { format!("forkless-{id}-{tries}") };
        match Cgroup::create(parent, &name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < 1_000 => tries += 1,
            answer => return answer,
        }
    }
}

/// Where else the group might be made. To go there unasked would take the program out of limits that are on us.
fn advice(own: &Path, controllers: &[&str]) -> String {
    let hands_down = |directory: &&Path| {
        let handed = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.iter().all(|one| handed.split_whitespace().any(|word| word == *one))
    };
    let may_write = |directory: &&Path| rustix::fs::access(*directory, rustix::fs::Access::WRITE_OK).is_ok();
    match own.ancestors().skip(1).filter(may_write).find(hands_down) {
        Some(above) => format!("; outside of our own group it could be: --new-cgroup={}", above.display()),
        None => "; a group that does can be named: --new-cgroup=PARENT".to_owned(),
    }
}

/// A percentage of one processor, in microseconds of each period.
fn quota(word: &str) -> Result<u64, String> {
    let digits = word.strip_suffix('%').filter(|text| text.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    let percent = digits.and_then(|text| text.parse::<f64>().ok()).filter(|percent| (1.0..=1e6).contains(percent));
    let percent = percent.ok_or("must be a percentage of one processor, from 1%, such as 150%")?;
    Ok((percent * PERIOD as f64 / 100.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_percentages_of_a_processor() {
        assert_eq!(quota("150%"), Ok(150_000));
        assert_eq!(quota("12.5%"), Ok(12_500));
        for word in ["", "%", "150", "0%", "0.5%", "-5%", "inf%", "1e3%", "9999999%"] {
            assert!(quota(word).is_err(), "{word}");
        }
    }
}
